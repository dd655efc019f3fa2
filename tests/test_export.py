"""Models as ONNX graphs: the same logits, cached decoding included, and refusals."""

from types import SimpleNamespace

import pytest
import torch
from publishing_subjects import fill_disk, refusal
from small_language_models import save_random_model

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data import TASKS, EvaluationBatches
from longhand.hub_cards import export
from longhand.hub_cards.export import ExportableCoupledGPT

ADDITION = TASKS["addition"]()
DECODERS = {
    "window": {},
    "two layers": {"num_hidden_layers": 2},
    "learned": {"position_encoding": "learned", "windowed": False},
    "rotary": {"position_encoding": "rotary"},
    "fire": {"position_encoding": "fire", "coupling": "sequential"},
    "none": {"position_encoding": "none", "coupling": "sequential"},
    "log length": {"attention_scale": "log_length", "qk_norm": True, "tie_word_embeddings": True},
}


def decoder(**options):
    torch.manual_seed(0)
    given = {**ADDITION.family.config_options(ADDITION), "hidden_size": 16, "intermediate_size": 16, **options}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**given)).eval()
    # A norm with weights of 1 may be applied twice without a difference.
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 2.0)
    return model


def sums(length=4, count=3):
    collator = ADDITION.family.collator(CoupledGPTConfig())
    return EvaluationBatches(ADDITION, (length, length), count, 0, "test", count, collator=collator)[0]["input_ids"]


@pytest.mark.parametrize("options", DECODERS.values(), ids=DECODERS)
def test_a_decoder_with_given_ids_has_the_models_logits_with_and_without_a_cache(options):
    model, tokens = decoder(**options), sums()
    expected = model(tokens).logits
    graph = ExportableCoupledGPT(model)
    _, position_ids, mask, _ = graph.example(tokens)
    logits, past = graph(tokens[:, :5], position_ids[..., :5], mask[:, :5], graph.empty_cache(len(tokens)))
    rest, _ = graph(tokens[:, 5:], position_ids, mask, past)
    torch.testing.assert_close(torch.cat([logits, rest], 1), expected, atol=1e-4, rtol=1e-4)


def test_padding_on_the_left_changes_nothing():
    model, tokens = decoder(), sums()
    graph = ExportableCoupledGPT(model)
    _, position_ids, mask, _ = graph.example(tokens)
    padded = [torch.nn.functional.pad(part, (3, 0)) for part in (tokens, position_ids, mask)]
    logits, _ = graph(*padded, graph.empty_cache(len(tokens)))
    torch.testing.assert_close(logits[:, 3:], model(tokens).logits, atol=1e-4, rtol=1e-4)


def test_an_encoder_is_refused(small_encoder, tmp_path, capsys):
    assert "only decoders" in refusal(capsys, export.main, small_encoder, tmp_path / "a.onnx")


@pytest.mark.thorough
def test_onnxruntime_decodes_as_generate_does_and_a_full_disk_leaves_the_old_file(main_job, tmp_path, capsys, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'longhand[export]'")
    pytest.importorskip("onnxscript", reason="pip install 'longhand[export]'")
    file = tmp_path / "addition.onnx"
    file.write_bytes(b"old")
    with monkeypatch.context() as patch:
        fill_disk(patch, tmp_path)
        assert str(file) in refusal(capsys, export.main, main_job, file)
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]
    export.main([str(main_job), str(file)])
    model = CoupledGPTForCausalLM.from_pretrained(main_job)
    tokens = sums(6)
    prompt = tokens[:, :15]
    expected = model.generate(prompt, do_sample=False)
    session = onnxruntime.InferenceSession(str(tmp_path / "addition.onnx"))
    position_ids = model.model.plan_position_ids(prompt, expected.shape[1]).numpy()
    past = ExportableCoupledGPT(model).empty_cache(len(prompt)).numpy()
    written, new = prompt.numpy(), prompt.numpy()
    while written.shape[1] < expected.shape[1]:
        columns = written.shape[1]
        given = {"input_ids": new, "position_ids": position_ids[..., :columns], "past": past}
        given["attention_mask"] = torch.ones(written.shape, dtype=torch.int64).numpy()
        logits, past = session.run(None, given)
        new = logits[:, -1:].argmax(-1)
        written = torch.cat([torch.from_numpy(written), torch.from_numpy(new)], 1).numpy()
    assert (written == expected.numpy()).all()


def test_a_file_that_cannot_be_written_and_a_model_of_others_are_refused_first(tmp_path, capsys):
    for name in ("addition.txt", "no/a.onnx"):
        assert name in refusal(capsys, export.main, "no-checkpoint", name)
    folder = save_random_model(tmp_path / "llama")
    assert "llama" in refusal(capsys, export.main, folder, tmp_path / "a.onnx")


@pytest.mark.parametrize("name", [name for name, kind in TASKS.items() if kind.family is ADDITION.family])
def test_every_task_has_problems_to_compare(name):
    task = TASKS[name]()
    config = task.family.model_class.config_class(**task.family.config_options(task))
    for part in task.parts:
        checkpoint = SimpleNamespace(task=part, model=SimpleNamespace(config=config))
        assert all(len(export.problems(checkpoint, length)) for length in (3, 4, 6))
