import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from refusals import refusal as refused

from longhand import train
from longhand.data import Addition, CouplingCollator, FreshBatches
from longhand.data.batches import PRACTICE_EVERY
from longhand.data.machines.covering import Practice, Problems
from longhand.data.proofs import certificate as certificate_module
from longhand.data.proofs import hash_weights
from longhand.data.splits import SPLITS
from longhand.eval import load_checkpoint
from longhand.hub_cards.checkpoints import certificate_file, load
from longhand.hub_cards.commands import LOCK_FILE
from longhand.hub_cards.recipes import list_recipes, load_recipe, read_recipe, write_recipe
from longhand.hub_cards.result_rows import read_results
from longhand.hub_cards.training import trainer
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.run_folder import claim_folder, keep_as_best

pytestmark = pytest.mark.usefixtures("undrawn")

SIZES = (
    "--hidden_size 16 --intermediate_size 32 --batch_size 8 --max_length 3 --validation_lengths 3 4 --validation_samples 4"
)
STEPS = "--test_lengths 4 --test_samples 4 --max_steps 20 --eval_steps 5 --until_certified False"
SMALL = ["addition", *SIZES.split(), *STEPS.split()]
UNTIL_CERTIFIED = [*SMALL, "--until_certified", "True"]
MIXED = ["--batching", "mixed"]
LEARNED = ["--position_encoding", "learned", "--position_sampling", "random_start", "--wrap_position_ids"]


def refusal(capsys, arguments):
    return refused(capsys, train.main, *arguments)


def test_main_job_is_exact_far_beyond_its_trained_lengths(main_job):
    rows = {(row["model"], row["length"]): row["exact_match"] for row in read_results(main_job / "results.jsonl")}
    assert rows == {(model, length): 1.0 for model in ("addition", "addition/best") for length in (30, 200)}


def test_finished_folder_holds_last_and_best_checkpoint_results_plot_and_recipe(main_job):
    checkpoint = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "recipe.yaml"}
    names = {path.name for path in main_job.iterdir()}
    assert checkpoint | {"results.jsonl", "accuracy.png", "best"} <= names
    assert checkpoint <= {path.name for path in (main_job / "best").iterdir()}
    assert not names & {"checkpoints", ".partial", LOCK_FILE}
    # It is certified, so none is better.
    assert (main_job / "model.safetensors").read_bytes() == (main_job / "best" / "model.safetensors").read_bytes()


def test_certified_weights_take_the_place_of_those_that_the_validations_chose(tmp_path):
    (tmp_path / "best").mkdir()
    for file, text in {"a.safetensors": "new", "best/a.safetensors": "old", "best/b.safetensors": "old"}.items():
        (tmp_path / file).write_text(text)
    keep_as_best(tmp_path)
    assert {file.name: file.read_text() for file in (tmp_path / "best").iterdir()} == {"a.safetensors": "new"}


def test_a_run_keeps_what_its_validations_measured(main_job):
    rows, recipe = read_results(main_job / "validation.jsonl"), read_recipe(main_job / "recipe.yaml")
    steps = sorted({row["step"] for row in rows})
    assert not any(step % recipe["eval_steps"] for step in steps)
    assert [(row["step"], row["length"]) for row in rows] == list(
        itertools.product(steps, sorted(recipe["validation_lengths"]))
    )
    assert {row["model"] for row in rows} == {main_job.name}
    # The last step is the one of a certified model.
    assert {row["exact_match"] for row in rows if row["step"] == steps[-1]} == {1.0}


class Cut(BaseException):
    """A run that ends in the middle."""


def drawn_batches(monkeypatch, cut_at=None, kind=FreshBatches) -> dict[int, bytes]:
    """Filled with the tokens of every batch that is drawn from now on; the run is cut before batch `cut_at`."""
    drawn, global_batch = {}, kind.global_batch

    def recording(batches, index):
        if index == cut_at:
            raise Cut
        examples, generator = global_batch(batches, index)
        drawn[index] = examples.tokens.tobytes()
        return examples, generator

    monkeypatch.setattr(kind, "global_batch", recording)
    return drawn


KILLED_AT_STEP_12 = """
import os, signal, sys
from longhand import train
from longhand.data import FreshBatches

global_batch = FreshBatches.global_batch

def until_killed(batches, index):
    if index == 12 and os.environ["RANK"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return global_batch(batches, index)

FreshBatches.global_batch = until_killed
train.main(sys.argv[1:])
"""


def test_processes_that_would_each_train_alone_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    message = refusal(capsys, [*SMALL, "--output_dir", tmp_path / "run"])
    assert "torch has no GPUs for them: add --use_cpu True" in message and not list(tmp_path.iterdir())


def test_output_folder_of_a_finished_run_is_not_overwritten(main_job, capsys):
    before = {path: path.stat().st_mtime_ns for path in main_job.iterdir()}
    assert "finished run" in refusal(capsys, ["addition", "--output_dir", main_job])
    assert before == {path: path.stat().st_mtime_ns for path in main_job.iterdir()}


def test_unfinished_run_is_continued_only_when_asked_and_only_as_it_was(tmp_path, capsys):
    run = parse_run([*SMALL, "--output_dir", str(tmp_path)])
    write_recipe(run.recipe, tmp_path / "recipe.yaml")
    assert "--resume" in refusal(capsys, [*SMALL, "--output_dir", tmp_path])
    message = refusal(capsys, [*SMALL, "--learning_rate", "0.5", "--resume", "--output_dir", tmp_path])
    assert "learning_rate was 0.004, now 0.5" in message


def test_training_stops_at_the_first_loss_that_is_not_finite_and_saves_nothing_of_it(tmp_path, capsys):
    options = ["--learning_rate", "1e11", "--warmup_steps", "0", "--until_certified", "True"]
    with pytest.raises(SystemExit) as stop:
        train.main([*SMALL, *options, "--output_dir", str(tmp_path)])
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert stop.value.code == 1 and error.startswith("error: training stopped at step ")
    assert "learning_rate below 100000000000.0" in error and not list(tmp_path.rglob("*.safetensors"))


def test_folder_with_other_files_is_refused(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("precious")
    assert "choose another --output_dir" in refusal(capsys, [*SMALL, "--output_dir", tmp_path])
    assert "no run to continue" in refusal(capsys, [*SMALL, "--resume", "--output_dir", tmp_path / "new"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["adition"], "choose one of addition"),
        (["addition", "--lerning_rate", "1"], "did you mean --learning_rate"),
        (["addition", "--num_attention_heads", "5"], "not a multiple"),
        (["addition", *LEARNED[:4], "--until_certified", "False", "--max_length", "300"], "operands of 200 digits"),
        (["addition", "--lr_scheduler_kwargs", '{"floor": 1}'], "floor"),
        (["addition", "--max_length", "3", "--min_length", "4"], "min_length <= max_length"),
        (["addition-absolute", "--test_lengths", "201"], "operands of 200 digits"),
        (["addition", "--until_certified", "False", "--num_train_samples", "10"], "fill no batch"),
        (["addition", "--gradient_accumulation_steps", "3"], "cannot be divided"),
        (["addition", "--test_lengths", "1000000000"], "1,000,000"),
        (["addition", "--bf16"], "use_cpu"),
        (["nonexistent.yaml"], "nonexistent.yaml"),
        (
            ["addition", "--until_certified", "--num_train_samples", "1000"],
            "num_train_samples unset, got 1000",
        ),
        (
            ["addition", "--until_certified", "--dataloader_num_workers", "2"],
            "needs dataloader_num_workers 0, got 2",
        ),
        (["addition", "--until_certified", "--windowed", "False"], "the model has no window"),
        (["addition", "--until_certified", "--coupling", "sequential"], "the coupling rule 'sequential'"),
        (["addition", "--decay_steps", "49"], "decay_steps must not end before the 50 steps of warm-up, got 49"),
        (
            ["addition-absolute", "--max_multiplier", "5"],
            "max_multiplier needs position_sampling multiplier",
        ),
        (["addition", "--hub_model_id", "user/name"], "hub_model_id needs push_to_hub True, got False"),
        (["addition", "--certified_ratio", "9"], "certified_ratio must be at least 10, got 9"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_is_written(arguments, expected, tmp_path, capsys):
    assert expected in refusal(capsys, [*arguments, "--output_dir", tmp_path / "run"])
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    claim_folder(parse_run(["addition", "--output_dir", str(tmp_path / "run")]))


@pytest.mark.parametrize("name", list_recipes())
def test_recipe_is_legal_and_is_what_the_run_keeps(name, tmp_path):
    given = load_recipe(name)
    run = parse_run([name, "--use_cpu", "True", "--output_dir", str(tmp_path / "run")])
    assert run.name == name
    # A recipe leaves out a value that is the default of transformers.
    assert given == {name: run.recipe.get(name, getattr(run.training, name, None)) for name in given}


@pytest.mark.parametrize("words", [["--muon_learning_rate", "unset"], ["--muon_learning_rate=unset"]])
def test_unset_takes_back_what_the_recipe_gives(words, tmp_path):
    run = parse_run(["encoder-multiplication-3", *words, "--output_dir", str(tmp_path)])
    assert run.training.muon_learning_rate is None


def test_the_recipe_of_a_repository_is_downloaded_and_one_that_is_here_is_not(tmp_path, monkeypatch):
    recipe = load_recipe("addition-tiny")
    asked = []

    def download(source, **_):
        asked.append(source)
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(load, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    for folder in ("snapshot", "runs/mine"):
        (tmp_path / folder).mkdir(parents=True)
        write_recipe(recipe, tmp_path / folder / "recipe.yaml")
    for here in ("addition-tiny", "runs/mine", "runs/mine/recipe.yaml"):
        assert parse_run([here]).data.task == recipe["task"] and asked == []
    with pytest.raises(ValueError, match="there is no recipe file"):
        parse_run(["runs/other.yaml"])
    assert asked == []
    assert parse_run(["user/mine"]).data.task == recipe["task"] and asked == ["user/mine"]


def test_command_line_overrides_the_recipe_and_a_kept_recipe_runs_again(tmp_path):
    run = parse_run([*SMALL, "--learning_rate", "0.25", "--output_dir", str(tmp_path / "run")])
    assert run.training.learning_rate == 0.25
    (tmp_path / "kept").mkdir()
    write_recipe(run.recipe, tmp_path / "kept" / "recipe.yaml")
    again = parse_run([str(tmp_path / "kept")])
    assert json.dumps(again.recipe) == json.dumps(run.recipe)
    assert again.config.to_dict() == run.config.to_dict()


def test_run_that_is_not_certified_in_time_ends_with_status_1_and_a_complete_folder(tmp_path, capsys, monkeypatch):
    folder, checks = tmp_path / "run", []
    check = certificate_module.check_neighbourhoods
    monkeypatch.setattr(certificate_module, "check_neighbourhoods", lambda *a, **k: checks.append(a) or check(*a, **k))
    with pytest.raises(SystemExit) as stop:
        train.main([*UNTIL_CERTIFIED, "--output_dir", str(folder)])
    assert stop.value.code == 1
    # The check of the last validation is not made again at the end.
    assert len(checks) == 4
    printed = capsys.readouterr()
    assert printed.err.strip().splitlines()[-1] == "error: not certified after 20 steps"
    assert "run: NOT CERTIFIED. Nothing is proved." in printed.out
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["certified"] is False and certificate["wrong"] > 0
    assert certificate["weights"] == hash_weights(load_checkpoint(str(folder)).model.cpu())
    names = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "recipe.yaml", "results.jsonl", "accuracy.png", "best"} <= names
    assert "checkpoints" not in names


@pytest.mark.slow
def test_run_cut_off_while_it_practises_resumes_bit_for_bit(tmp_path, monkeypatch):
    whole, cut, words = tmp_path / "whole", tmp_path / "cut", [*UNTIL_CERTIFIED, "--max_steps", "15"]
    with monkeypatch.context() as patch:
        expected = drawn_batches(patch)
        with pytest.raises(SystemExit):
            train.main([*words, "--output_dir", str(whole)])
    with monkeypatch.context() as patch, pytest.raises(Cut):
        drawn_batches(patch, cut_at=13)
        train.main([*words, "--output_dir", str(cut)])
    with monkeypatch.context() as patch:
        resumed = drawn_batches(patch)
        with pytest.raises(SystemExit) as stop:
            train.main([*words, "--resume", "--output_dir", str(cut)])
    assert stop.value.code == 1
    assert resumed == {index: expected[index] for index in range(10, 15)}
    # Batch 12 came from the problems that fail at step 10, which only the saved weights know.
    run = parse_run([*words, "--output_dir", str(tmp_path / "new")])
    unpractised = train.make_trainer(run).train_dataset
    assert [unpractised.global_batch(index)[0].tokens.tobytes() == expected[index] for index in (11, 12)] == [True, False]
    for file in ("model.safetensors", "best/model.safetensors", "certificate.json"):
        assert (whole / file).read_bytes() == (cut / file).read_bytes()


@pytest.mark.slow
def test_run_cut_off_after_it_was_certified_resumes_to_the_same_weights(tmp_path, monkeypatch):
    check, arguments = trainer.check_neighbourhoods, [*UNTIL_CERTIFIED, "--output_dir"]
    drawn = drawn_batches(monkeypatch)

    def certified_from_step_10(model, task, enough):
        return replace(check(model, task), wrong=0, ratio=99.0, failing=Practice()) if 9 in drawn else check(model, task)

    monkeypatch.setattr(certificate_module, "check_thoroughly", certified_from_step_10)
    monkeypatch.setattr(certificate_file, "certify_checkpoint", lambda *_, **__: None)
    monkeypatch.setattr(train, "is_certified", lambda *_: True)
    train.main([*arguments, str(tmp_path / "whole")])
    assert set(drawn) == set(range(10))
    drawn.clear()

    def cut(*_):
        raise Cut

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(train, "save_final", cut)
        train.main([*arguments, str(tmp_path / "cut")])
    train.main([*arguments, str(tmp_path / "cut"), "--resume"])
    assert set(drawn) == set(range(10))
    whole, cut = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut"))
    assert whole == cut


@pytest.mark.parametrize(("wrong", "ratio", "steps"), [(0, 21.0, 5), (0, 19.0, 20)])
def test_run_stops_at_the_first_validation_without_mistakes_and_with_the_asked_ratio(
    wrong, ratio, steps, tmp_path, monkeypatch
):
    check, drawn = trainer.check_neighbourhoods, drawn_batches(monkeypatch)
    monkeypatch.setattr(
        certificate_module,
        "check_thoroughly",
        lambda model, task, enough: replace(check(model, task), wrong=wrong, ratio=ratio),
    )
    words = [*UNTIL_CERTIFIED, "--certified_ratio", "20", "--output_dir", str(tmp_path)]
    train.make_trainer(parse_run(words)).train()
    assert len(drawn) == steps


def practising(problems, low=1, high=3, seed=0):
    collator = CouplingCollator("addition", 40)
    batches = FreshBatches(Addition(), low, high, seed, collator=collator, batch_size=64, num_batches=40)
    batches.practise(Practice([Problems(batches.task, *each) for each in problems]))
    return batches


def tokens_of(batches, indices=range(40)):
    return [batches.global_batch(index)[0].tokens for index in indices]


def covering():
    """Sums of one to three digits, among them those of held-out splits."""
    generator = np.random.default_rng(0)
    digits = [generator.integers(10, size=(300, 2, width), dtype=np.uint8) for width in (1, 2, 3)]
    return [(own, np.full(own.shape[:2], own.shape[2])) for own in digits]


@pytest.mark.parametrize(("low", "high"), [(1, 2), (2, 2), (2, 3), (4, 9)])
def test_practised_problems_have_trained_lengths(low, high):
    practised = practising(covering(), low, high)
    usual = tokens_of(practising([], low, high))
    drawn = [tokens for tokens, other in zip(tokens_of(practised), usual, strict=True) if not np.array_equal(tokens, other)]
    widths = {(tokens.shape[1] - 5) // 3 for tokens in drawn}
    assert widths <= set(range(low, high + 1)) and max(widths) == high


def test_practised_sums_are_none_of_the_held_out_splits():
    practised = practising(covering(), 1, 3)
    held_out = 0
    for tokens in tokens_of(practised, range(0, 40 * PRACTICE_EVERY, PRACTICE_EVERY)):
        width = (tokens.shape[1] - 5) // 3
        digits = np.stack([tokens[:, 1 : 1 + width], tokens[:, 2 + width : 2 + 2 * width]], axis=1)[..., ::-1]
        lengths = np.where(digits > 0, np.arange(1, width + 1), 1).max(axis=2)
        # A sum is written like this in a split if the longer operand has no leading zero.
        written = lengths.max(axis=1) == width
        splits = Addition().split_of(np.ascontiguousarray(digits[written]), lengths[written])
        held_out += (splits != SPLITS.index("train")).sum()
    assert held_out == 0


@pytest.mark.parametrize(("by", "better"), [("exact_match", [True, True, False]), ("loss", [True, False, True])])
def test_the_best_checkpoint_is_chosen_beyond_the_trained_sizes(by, better, tmp_path, monkeypatch):
    """By exact match, among equals the share of right tokens decides; by loss, that of the longest size."""
    small = " ".join(SMALL).replace("--validation_lengths 3 4", "--validation_lengths 3 4 5").split()
    words = [*small, "--metric_for_best_model", by, "--output_dir", str(tmp_path / "run")]
    made = train.make_trainer(parse_run(words))
    sizes = {"exact_match": {3: [0.0, 1.0, 1.0], 4: [0.0, 0.0, 0.25], 5: [0.25, 0.25, 0.0]}}
    sizes |= {"token_accuracy": {3: [0.0, 1.0, 1.0], 4: [0.5, 0.9, 0.9], 5: [1.0, 1.0, 0.9]}}
    chosen = []
    sizes |= {"loss": {3: [0.0, 0.0, 5.0], 4: [0.0, 0.0, 5.0], 5: [0.2, 2.0, 0.1]}}
    for moment in range(3):
        seen = {f"eval_{size}_{name}": of[size][moment] for name, of in sizes.items() for size in of}
        monkeypatch.setattr(trainer.Trainer, "evaluate", lambda *_, seen=seen: dict(seen))
        chosen.append(made._determine_best_metric(made.evaluate(), None))
    assert chosen == better


@pytest.mark.parametrize("more", [[], ["--dry_run"]])
@pytest.mark.parametrize("option", ["--test_lengths", "--validation_lengths"])
def test_sizes_of_which_a_split_holds_no_problem_are_refused_before_training(option, more, tmp_path, capsys):
    words = ["copy", "--task", "parity", "--until_certified", "False", option, "3", "12", *more]
    message = refusal(capsys, [*words, "--output_dir", tmp_path / "run"])
    assert "holds no problem of the task 'parity' of the sizes 3" in message and not (tmp_path / "run").exists()
