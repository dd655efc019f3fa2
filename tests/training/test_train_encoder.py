"""Encoders from the recipe to the evaluated checkpoint."""

import shutil
from pathlib import Path

import pytest
import torch
from refusals import refusal

from longhand import eval as evaluation
from longhand import train
from longhand.data import EncoderAddition, EncoderMultiplication
from longhand.data.tasks.complexity import cascade_lengths
from longhand.hub_cards.evaluation.measure import measure_position_maps
from longhand.hub_cards.result_rows import read_results
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling import PairwiseBertConfig, PairwiseBertForTokenClassification

SIZES = "--hidden_size 24 --num_hidden_layers 1 --num_attention_heads 2 --intermediate_size 16 --max_length 3 --batch_size 8"
STEPS = "--max_steps 6 --eval_steps 3 --validation_lengths 3 4 --validation_samples 4 --test_lengths 2 4 --test_samples 4"
SMALL = f"{SIZES} {STEPS}".split()
MODELS = {
    "encoder-addition": EncoderAddition(field_width=12, varied_field=True),
    "encoder-multiplication-3": EncoderMultiplication(field_width=9, varied_field=True, multiplier_length=3),
}
TEXT = ["--pair_maps", "coupled", "none", "--windowed", "False", "--text_tokens", "3", "--absolute_positions", "text"]
TEXT += ["--max_position_embeddings", "40", "--num_train_samples", "16", "--varied_field", "False"]
ABSOLUTE = ["--pair_maps", "none", "--windowed", "False", "--absolute_positions", "all"]
SHORT = ["--validation_lengths", "5", "--test_lengths", "5"]


@pytest.fixture(scope="module", params=MODELS)
def finished(request, tmp_path_factory):
    """The name of a recipe and the folder of a tiny run of it."""
    folder = tmp_path_factory.mktemp("runs") / request.param
    train.main([request.param, *SMALL, "--output_dir", str(folder)])
    return request.param, folder


@pytest.fixture(scope="module")
def addition(tmp_path_factory):
    """The folder of a tiny run for sums."""
    folder = tmp_path_factory.mktemp("runs") / "sums"
    train.main(["encoder-addition", *SMALL, "--output_dir", str(folder)])
    return folder


def test_finished_folder_holds_a_checkpoint_its_results_and_its_recipe(finished):
    name, folder = finished
    checkpoint = {"config.json", "model.safetensors", "tokenizer.json", "recipe.yaml", "modeling_pairwise_bert.py"}
    assert checkpoint | {"results.jsonl", "accuracy.png", "best"} <= {path.name for path in folder.iterdir()}
    assert not (folder / "checkpoints").exists()
    loaded = evaluation.load_checkpoint(str(folder))
    assert type(loaded.model) is PairwiseBertForTokenClassification and not loaded.model.training
    assert loaded.task == MODELS[name].for_evaluation
    assert (loaded.name, loaded.trained_lengths) == (name, (1, 3))
    rows = read_results(folder / "results.jsonl")
    assert [(row["model"], row["length"]) for row in rows] == [
        *((name, length) for length in (2, 4)),
        *((f"{name}/best", length) for length in (2, 4)),
    ]
    assert {(row["task"], row["num_samples"], row["decode"]) for row in rows} == {(loaded.task.name, 4, "teacher_forced")}


def test_command_evaluates_the_checkpoint_as_the_run_did(finished, tmp_path, capsys):
    _, folder = finished
    options = ["--lengths", "2,4", "--num_samples", "4", "--attentions", "--output_places", "--position_maps"]
    evaluation.main([str(folder), *options, "--output_dir", str(tmp_path)])
    measured = ("length", "length_b", "exact_match", "token_accuracy")
    expected = [[row[key] for key in measured] for row in read_results(folder / "results.jsonl")[:2]]
    assert [[row[key] for key in measured] for row in read_results(tmp_path / "results.jsonl")] == expected
    for file in ("accuracy.png", f"attention-{folder.name}.png", f"attention-{folder.name}-response.png", "positions.png"):
        assert (tmp_path / file).read_bytes().startswith(b"\x89PNG")
    assert [row["layer"] for row in read_results(tmp_path / "positions.jsonl")] == [1]
    places = read_results(tmp_path / "places.jsonl")
    for length in (2, 4):
        found = [row["place"] for row in places if row["length"] == length]
        assert found == list(range(1, len(found) + 1))
    assert "exact" in capsys.readouterr().out


@pytest.mark.parametrize("rule", ["relative", "uniform"])
def test_vectors_are_as_dispersed_as_so_many_equal_ones(rule):
    options = {"relation_range": [-3, 6], "pair_maps": [rule], "num_hidden_layers": 1, "hidden_size": 8}
    model = PairwiseBertForTokenClassification(PairwiseBertConfig(**options, intermediate_size=8))
    checkpoint = evaluation.Checkpoint("name", Path(), "folder", model, None, EncoderAddition(), None, {}, "")
    weight = model.model.layers[0].self_attn.relations[0].weight
    generator = torch.Generator().manual_seed(0)
    for present in ([-1], [0, 6], range(-3, 7)):
        with torch.no_grad():
            weight.copy_(torch.nn.functional.normalize(torch.randn(weight.shape, generator=generator), dim=-1))
            absent = [difference + 3 for difference in range(-3, 7) if difference not in present]
            weight[absent] = 0
            weight[10:] *= 100
        (row,) = measure_position_maps(checkpoint)
        assert row["effective_relations"] == pytest.approx(len(present), rel=1e-5)
        assert row["share"] == pytest.approx(1 / len(present), rel=1e-5) and row["strongest"] in present
        assert (row["layer"], row["rule"], row["relations"]) == (1, rule, 10)
        shares = {difference: 10 / len(present) for difference in present}
        assert row["after"] == pytest.approx([shares.get(difference, 0) for difference in (-1, -2, -3)], rel=1e-5, abs=1e-5)


def test_what_an_encoder_cannot_do_is_refused_before_anything_is_written(addition, tmp_path, capsys):
    output = ("--output_dir", tmp_path / "new")
    assert "generates nothing: leave out --decode" in refusal(
        capsys, evaluation.main, addition, "--decode", "generate", *output
    )
    assert "certif" in refusal(capsys, evaluation.main, addition, "--certify", *output)
    assert "'6*5' is not an addition such as '653+49'" in refusal(capsys, evaluation.main, addition, "--ask", "6*5")
    assert "not two" in refusal(capsys, evaluation.main, addition, "--lengths", "3", "--lengths_b", "2", *output)
    message = refusal(capsys, evaluation.main, addition, "--sampling", "hard", *output)
    assert "sampling 'hard' is unknown: choose one of uniform" in message
    message = refusal(capsys, evaluation.main, addition, "--sampling", "cascades", "--lengths", "3", *output)
    assert "have a class of 0..3, got None" in message
    assert not (tmp_path / "new").exists()


def test_sums_are_evaluated_by_the_length_of_their_cascade(addition, tmp_path, monkeypatch):
    drawn = []
    draw = EncoderAddition.draw

    def recording(task, generator, lengths, split):
        digits = draw(task, generator, lengths, split)
        drawn.append((lengths[:, 1].tolist(), cascade_lengths(digits[:, 0], digits[:, 1]).tolist()))
        return digits

    monkeypatch.setattr(EncoderAddition, "draw", recording)
    options = ["--lengths", "6", "--lengths_b", "0:6:3", "--num_samples", "4", "--sampling", "cascades"]
    evaluation.main([str(addition), *options, "--output_dir", str(tmp_path)])
    assert [(row["length"], row["length_b"]) for row in read_results(tmp_path / "results.jsonl")] == [(6, 0), (6, 3), (6, 6)]
    assert drawn and all(wanted == found for wanted, found in drawn)


@pytest.mark.slow
def test_heads_for_text_and_loops_learn_a_fixed_training_set(tmp_path):
    loops = ["--num_loops", "3", "--settle_weight", "0.1", "--settle_tolerance", "0.1"]
    arguments = ["encoder-multiplication-3", *SMALL, *TEXT, *loops]
    train.main([*arguments, "--output_dir", str(tmp_path / "run")])
    model = evaluation.load_checkpoint(str(tmp_path / "run")).model
    assert model.config.head_maps == ["coupled", "none"] and model.config.settle_tolerance == 0.1
    fresh = train.make_trainer(parse_run([*arguments, "--output_dir", str(tmp_path / "new")])).model
    for (name, after), before in zip(model.named_parameters(), fresh.parameters(), strict=True):
        assert not torch.equal(after.cpu(), before.cpu()), name


def test_parts_of_a_batch_make_the_step_of_the_whole(tmp_path):
    # The same number of loops is drawn each time, and nothing else is: only rounding may differ.
    arguments = ["encoder-addition", *SMALL, "--num_loops", "2", "--settle_weight", "0.3", "--max_steps", "1"]
    arguments += ["--eval_steps", "1", "--learning_rate", "0.01"]
    gradients = []
    for parts in (1, 2):
        options = ["--gradient_accumulation_steps", str(parts), "--output_dir", str(tmp_path / str(parts))]
        trainer = train.make_trainer(parse_run([*arguments, *options]))
        model = trainer.model.train()
        batches = [trainer.train_dataset[part] for part in range(parts)]
        total = sum((batch["labels"] != -100).sum() for batch in batches)
        for batch in batches:
            torch.manual_seed(0)
            trainer.training_step(model, batch, num_items_in_batch=total)
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for whole, accumulated in zip(*gradients, strict=True):
        torch.testing.assert_close(accumulated, whole, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["encoder-addition", "--position_encoding", "learned"], "unknown argument '--position_encoding'"),
        (["encoder-addition", "--pair_maps", "rotary"], "pair_maps 'rotary' is unknown: choose one of relative, uniform"),
        (["encoder-addition", "--settle_weight", "0.1"], "with num_loops of at least 2"),
        (["encoder-addition", "--field_width", "4"], "numbers and answers of 5 digits do not fit into field_width = 4"),
        (["encoder-multiplication-3", "--max_multiplier_length", "2"], "max_multiplier_length = 2 digits, got 3"),
        (["encoder-addition-text", "--max_position_embeddings", "30"], "max_position_embeddings = 30 tokens"),
        (["encoder-addition", *ABSOLUTE, *SHORT, "--max_position_embeddings", "24"], "= 24 tokens, got 25"),
        (["encoder-addition", "--min_length", "2"], "min_length must be 1, got 2"),
        (["encoder-addition", "--num_train_samples", "512"], "varied_field needs num_train_samples unset, got 512"),
        (["encoder-addition", "--attention_probs_dropout_prob", "0.1"], "attention_probs_dropout_prob must be 0, got 0.1"),
        (["encoder-addition", "--until_certified"], "train without one by --until_certified False"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_is_written(arguments, expected, tmp_path, capsys):
    assert expected in refusal(capsys, train.main, *arguments, "--output_dir", tmp_path / "run")
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_checkpoint_of_another_family_is_refused(addition, tmp_path, capsys):
    bare = shutil.copytree(addition, tmp_path / "bare")
    (bare / "recipe.yaml").unlink()
    PairwiseBertConfig.from_pretrained(bare, task=None).save_pretrained(bare)
    message = refusal(capsys, evaluation.main, bare, "--task", "addition", "--lengths", "3")
    assert "it is a 'pairwise_bert' model, but the task 'addition' is for 'coupled_gpt' ones" in message
