"""Every tensor is made on the device of what it meets: forward passes, losses, generation, evaluation, certification."""

import json
from contextlib import ExitStack, nullcontext

import pytest
import torch
from accelerator import CUDA, Accelerator, is_on, place
from cases import all_but, drawn
from far_subjects import KINDS, small_model
from position_subjects import DECODERS, ENCODERS, LIKE_OTHERS, build, encode, tokenizer
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import TrainerCallback
from transformers.utils import logging

import longhand
from longhand.data import TASKS, build_task
from longhand.data.batches import check_lengths, draw_batch
from longhand.data.families import to_device
from longhand.data.proofs import LengthProver, certify, hash_weights
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint
from longhand.hub_cards.checkpoints.length_certificate import certify_lengths, prove_again
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.evaluation.measure import evaluate_lengths, write_attention, write_places, write_position_maps
from longhand.hub_cards.evaluation.worst import find_worst
from longhand.hub_cards.research.theories.constructions import construct_addition
from longhand.hub_cards.training import worst_practice
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling import CoupledGPTForCausalLM, parallel_greedy
from longhand.train import make_trainer

PROMPTS = tokenizer(["653+049=", "7+12="], padding=True, return_tensors="pt")


def move(model):
    for tensor in (*model.parameters(), *model.buffers()):
        place(tensor)
    return model


def on_accelerator(model, run):
    """What a function of a model and a way to move a batch returns, on the processor and on the accelerator."""
    expected = run(model, lambda batch: batch)
    with Accelerator():
        return run(move(model), lambda batch: to_device(batch, CUDA)), expected


def train(model, batch):
    torch.manual_seed(0)
    outputs = model.train()(**batch)
    outputs.loss.backward()
    return outputs


@pytest.mark.parametrize("encoding", drawn(DECODERS, 7))
def test_decoders_learn_and_write_on_one_device(encoding):
    batch = tokenizer(["653+049=2070$", "7+12=910$"], padding=True, return_tensors="pt")
    batch["labels"] = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)

    def run(model, place):
        outputs = train(model, place(dict(batch)))
        prompts = place(dict(PROMPTS))
        written = [model.eval().generate(**prompts, max_new_tokens=4, **how) for how in ({}, {"num_beams": 2})]
        if model.model.position_encoding.windowed:
            written.append(model.generate(**prompts, do_sample=False, custom_generate=parallel_greedy))
        model(**prompts, output_attentions=True)
        return [outputs.logits, outputs.loss, *written]

    found, expected = on_accelerator(build(encoding, attention_scale="log_length", attn_implementation="eager"), run)
    assert all(map(is_on, found))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", all_but(LIKE_OTHERS, ENCODERS))
def test_encoders_learn_and_label_on_one_device(name):
    batch = encode("relative", "_12+_95", "1+5")
    batch["labels"] = batch.input_ids.clamp(max=10).masked_fill(batch.attention_mask == 0, -100)

    def run(model, place):
        outputs = train(model, place(dict(batch)))
        return [outputs.loss, model.eval()(**place(dict(batch)), output_attentions=True).logits]

    found, expected = on_accelerator(build(name, attn_implementation="eager"), run)
    assert all(map(is_on, found))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", TASKS)
def test_every_rule_gives_ids_and_relations_on_the_device_of_the_tokens(name):
    task = TASKS[name]()
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    kind = task.family.model_class
    model = kind(kind.config_class(**task.family.config_options(task) | sizes)).eval()
    parts = [draw_batch(model, part, part.operand_lengths(3), 2, split="train")["input_ids"] for part in task.parts]
    for part in parts:
        found, expected = on_accelerator(model, lambda model, place, part=part: model(**place({"input_ids": part})).logits)
        assert is_on(found)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "name",
    [
        "addition-tiny",
        "binary-multiplication",
        pytest.param("encoder-multiplication-1-settling", marks=pytest.mark.release),
        pytest.param("encoder-addition-settling", marks=pytest.mark.release),
    ],
)
def test_models_are_evaluated_and_certified_on_one_device(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", str)
    checkpoint = load_checkpoint(longhand.zoo(name))
    model, task = move(checkpoint.model), checkpoint.task
    with Accelerator():
        train(model, to_device(draw_batch(model, task, task.operand_lengths(3), 2), CUDA))
        lengths = check_lengths(model.eval(), task, [task.operand_lengths(3)])
        for way in ("teacher_forced", "generate", "parallel")[: 3 if task.family.name == "decoder" else 1]:
            assert evaluate_lengths(checkpoint, lengths, num_samples=4, decode=way)[0]["exact_match"] == 1
        assert certify(model, task).certified


class OnAccelerator(TrainerCallback):
    """Moves a training to the accelerator when it begins.

    Attributes:
        accelerator_on: holds the mode until the training ends.
    """

    def __init__(self, trainer):
        self.trainer, self.accelerator_on = trainer, ExitStack()

    def on_train_begin(self, arguments, state, control, **rest):
        move(self.trainer.model)
        place(self.trainer._tr_loss)
        vars(arguments)["_setup_devices"] = CUDA
        self.accelerator_on.enter_context(Accelerator())


@pytest.mark.parametrize("name", all_but(["encoder-addition"], ["addition-tiny", "encoder-addition"]))
def test_attention_is_drawn_on_one_device(name, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", str)
    checkpoint = load_checkpoint(longhand.zoo(name))
    lengths = check_lengths(checkpoint.model, checkpoint.task, [checkpoint.task.operand_lengths(3)])
    move(checkpoint.model)
    with Accelerator():
        write_attention([checkpoint], {checkpoint.task: lengths}, 5, 0, tmp_path)
        write_places([checkpoint], {checkpoint.task: lengths}, 5, 0, tmp_path)
        if name.startswith("encoder"):
            write_position_maps([checkpoint], tmp_path)
    assert (tmp_path / "attention.jsonl").stat().st_size and (tmp_path / "places.jsonl").stat().st_size


@pytest.mark.parametrize(
    "words",
    [
        ["addition", "--muon_learning_rate", "0.02", "--until_certified", "True"],
        pytest.param(["addition", "--until_certified", "False"], marks=pytest.mark.release),
        pytest.param(["addition-absolute", "--practise_worst", "4"], marks=pytest.mark.release),
        ["addition-absolute-proved", "--practise_worst", "4"],
        pytest.param(["encoder-addition-settling", "--until_certified", "True"], marks=pytest.mark.release),
    ],
)
def test_runs_train_validate_and_practise_on_one_device(words, tmp_path, monkeypatch):
    """A few steps with validations, checks and searches between them, all tensors of the run on the accelerator."""
    monkeypatch.setattr(worst_practice, "ROUNDS", 2)
    sizes = ["--batch_size", "8", "--max_steps", "3", "--eval_steps", "1", "--validation_lengths", "4", "--use_cpu", "True"]
    sizes += ["--validation_samples", "6", "--max_length", "4", "--gradient_accumulation_steps", "1"]
    trainer = make_trainer(parse_run([*words, *sizes, "--output_dir", str(tmp_path / "run")]))
    trainer.args.save_strategy = "no"
    begins = OnAccelerator(trainer)
    trainer.callback_handler.callbacks.insert(0, begins)
    with begins.accelerator_on:
        trainer.train()
    assert trainer.state.global_step
    assert all(map(is_on, trainer.model.parameters()))


@pytest.mark.release
@pytest.mark.parametrize("scale", [pytest.param("sqrt", marks=pytest.mark.release), "log_length"])
def test_lengths_are_proved_and_worst_problems_found_on_one_device(scale, tmp_path, monkeypatch):
    """A model may lie on an accelerator: it is asked there, and its bounds are found from a copy of its weights."""
    monkeypatch.setattr(torch.cuda, "get_device_name", str)
    task = build_task("addition")
    wrong, _ = small_model(**{**KINDS["recipe"], "attention_scale": scale})
    expected = [LengthProver(model, task).verdict(2) for model in (wrong, construct_addition(2))]
    with Accelerator():
        for model, before in zip((wrong, construct_addition(2)), expected, strict=True):
            checkpoint = Checkpoint("own", tmp_path, "folder", move(model), None, task, task, {}, hash_weights(model))
            found = LengthProver(checkpoint.model, task).verdict(2)
            assert (found.verdict, found.cases, found.problem) == (before.verdict, before.cases, before.problem)
            row = certify_lengths(checkpoint, [1, 2], tmp_path / f"{before.verdict}.json", None)
            assert row["lengths"][1]["verdict"] == before.verdict
            stated = json.loads((tmp_path / f"{before.verdict}.json").read_text())
            assert prove_again(stated, checkpoint) == stated
            # A prover may find at once that nothing is wrong.
            worst = find_worst(checkpoint, (2, 2), seconds=1)
            assert (worst.answer is None) == (before.verdict == "proved")
    assert {verdict.verdict for verdict in expected} == {"proved", "refuted"}


def says_uncovered(folder, caplog, on_cuda: bool = False, **options) -> bool:
    """Whether a certified model says, before a pass on a device, that its certificate does not hold there."""
    model = CoupledGPTForCausalLM.from_pretrained(folder, **options).eval()
    caplog.clear()
    with Accelerator() if on_cuda else nullcontext(), caplog.at_level("WARNING"):
        model = move(model) if on_cuda else model
        batch = dict(tokenizer("653+049=", return_tensors="pt"))
        model(**to_device(batch, CUDA) if on_cuda else batch)
    return "'eager' is covered" in caplog.text


def test_a_certified_model_attends_by_a_kernel_that_is_covered_or_says_once_that_it_does_not(tmp_path, caplog):
    logging.enable_propagation()
    construct_addition(3).save_pretrained(tmp_path)
    (tmp_path / "certificate.json").write_text(json.dumps({"lengths": [{"length": 2, "verdict": "proved"}]}))
    model = CoupledGPTForCausalLM.from_pretrained(tmp_path)
    assert model.config._attn_implementation == "eager"
    by_eager, by_sdpa = ({}, {"attn_implementation": "eager"}), {"attn_implementation": "sdpa"}
    for options in by_eager:
        assert not any(says_uncovered(tmp_path, caplog, on_cuda, **options) for on_cuda in (False, True))
    assert not says_uncovered(tmp_path, caplog, **by_sdpa) and says_uncovered(tmp_path, caplog, True, **by_sdpa)
    with sdpa_kernel(SDPBackend.MATH):
        assert not says_uncovered(tmp_path, caplog, True, **by_sdpa)
    # Under a window no kernel is asked for.
    assert not says_uncovered(longhand.zoo("addition"), caplog, True, **by_sdpa)
    (tmp_path / "certificate.json").unlink()
    assert CoupledGPTForCausalLM.from_pretrained(tmp_path).config._attn_implementation == "sdpa"
