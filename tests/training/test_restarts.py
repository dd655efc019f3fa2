"""Runs that give up a seed and begin again with the next one."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from cases import drawn
from made_once import make_once
from test_train import UNTIL_CERTIFIED, Cut
from transformers import TrainerState

from longhand import train
from longhand.data.proofs import certificate
from longhand.hub_cards.checkpoints import certificate_file
from longhand.hub_cards.checkpoints.checkpoint import RESTARTS_FILE
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.publishing.cards import render_card
from longhand.hub_cards.publishing.publications import model_publication
from longhand.hub_cards.result_rows import read_results
from longhand.hub_cards.training import run_folder, trainer
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.run_folder import GivenUp
from longhand.hub_cards.training.trainer import PATIENCE, PREDICTIONS, WRONG, given_up

pytestmark = pytest.mark.usefixtures("undrawn")

EVERY = 2
"""Steps between two checks."""

SHORT_PATIENCE = 2
"""Checks without progress after which a seed is given up here, so that runs are short."""

STEPS = 20
AT = EVERY * (1 + SHORT_PATIENCE)
"""The step at which a seed is given up whose first check is its best one."""

WORDS = [*UNTIL_CERTIFIED, "--eval_steps", str(EVERY), "--max_steps", str(STEPS), "--seed", "5"]
SEEDS = [5, 6, 7]
"""The third is certified: two are given up."""


def patch_checks(patch) -> list[int]:
    """Let checks find three wrong predictions, and none from step 4 on with the third seed; return the seeds by turn."""
    made, checked = [], []
    check_thoroughly, make_trainer = certificate.check_thoroughly, train.make_trainer

    def making(run):
        made.append(make_trainer(run))
        seeds.append(run.training.seed)
        return made[-1]

    def check(model, task, enough):
        # What is found is made up, so that one real check gives all else.
        checked[:] = checked or [check_thoroughly(model, task, enough=enough)]
        (found,) = checked
        if seeds[-1] == SEEDS[-1] and made[-1].state.global_step >= 4:
            return replace(found, wrong=0, ratio=99.0)
        return replace(found, wrong=3, ratio=None)

    seeds = []
    patch.setattr(train, "make_trainer", making)
    patch.setattr(trainer, "PATIENCE", SHORT_PATIENCE)
    patch.setattr(certificate, "check_thoroughly", check)
    patch.setattr(certificate_file, "certify_checkpoint", lambda *_, **__: None)
    patch.setattr(train, "is_certified", lambda *_: True)
    return seeds


@pytest.fixture
def seeds(monkeypatch) -> list[int]:
    return patch_checks(monkeypatch)


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Path:
    def run(place: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch_checks(patch)
            train.main([*WORDS, "--output_dir", str(place / "run")])

    return make_once(tmp_path_factory, "restarted", run) / "run"


def contents(folder: Path) -> dict[str, bytes]:
    """What says how a run was trained, in a folder of the same name."""
    return {name: (folder / name).read_bytes() for name in ("model.safetensors", RESTARTS_FILE, "validation.jsonl")}


def test_a_stuck_run_begins_again_and_says_so_everywhere(whole, capsys, tmp_path, seeds):
    rows = read_results(whole / RESTARTS_FILE)
    assert [(row["seed"], row["steps"], row["wrong"]) for row in rows] == [(5, AT, 3), (6, AT, 3)]
    checkpoint = read_checkpoint(whole)
    # The recipe says what was asked for, so the same command begins again at the same steps.
    assert checkpoint.recipe["seed"] == SEEDS[0]
    card = render_card(checkpoint)
    assert all(f"- {GivenUp(**row)}" in card for row in rows)
    published = model_publication(checkpoint, "user/run").make_files(tmp_path, None)
    assert RESTARTS_FILE in published
    assert not list((whole / "checkpoints").glob("*"))
    again = tmp_path / "run"
    train.main([*WORDS, "--output_dir", str(again)])
    printed = capsys.readouterr().out
    assert seeds == SEEDS and contents(again) == contents(whole)
    assert [f"begins again with seed {seed} " in printed for seed in SEEDS] == [False, True, True]
    # The weights are those of the third seed alone, with the steps that two seeds leave.
    alone = [*WORDS, "--seed", str(SEEDS[-1]), "--max_steps", str(STEPS - 2 * AT), "--output_dir", str(tmp_path / "alone")]
    train.main(alone)
    assert contents(again)["model.safetensors"] == (tmp_path / "alone" / "model.safetensors").read_bytes()
    assert not (tmp_path / "alone" / RESTARTS_FILE).exists()


KILLED = {
    "while a seed is trained": (trainer.FreshBatches, "global_batch", AT - 1, AT),
    "when a seed is given up": (train, "give_up", 0, 1),
    "before its states are removed": (run_folder.shutil, "rmtree", 0, 2),
    "while its states are removed": (run_folder.shutil, "rmtree", 1, 2),
    "before it is written down": (run_folder, "write_results", 0, 1),
    # The first call is for the beginning.
    "before the next one begins": (train, "following", 1, 1),
}
"""Where the run is cut off: what is called, after how many calls, and how many there are for each seed."""


@pytest.mark.slow
@pytest.mark.parametrize("kill", drawn(product(KILLED, [0, 1]), 3), ids=str)
def test_a_run_that_is_killed_around_a_restart_resumes_to_the_same_weights(kill, whole, seeds, tmp_path, monkeypatch):
    when, turn = kill
    place, name, before, each = KILLED[when]
    folder, real, calls = tmp_path / "run", getattr(place, name), []

    def cutting(*args, **kwargs):
        # Trainer removes states that are no longer needed by the same function.
        if "checkpoint-" in str(args[0]) and run_folder.REMOVED_FOLDER not in str(args[0]):
            return real(*args, **kwargs)
        calls.append(name)
        if len(calls) > before + turn * each:
            raise Cut
        return real(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(place, name, cutting)
        train.main([*WORDS, "--output_dir", str(folder)])
    assert not (folder / "model.safetensors").exists()
    train.main([*WORDS, "--resume", "--output_dir", str(folder)])
    assert contents(folder) == contents(whole)
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}


def history(*wrong: int) -> TrainerState:
    checks = [{"step": EVERY * (place + 1), WRONG: one, PREDICTIONS: 50} for place, one in enumerate(wrong)]
    # Trainer logs losses and validations beside them.
    return TrainerState(global_step=EVERY * len(wrong), log_history=[{"step": 1, "loss": 2.0}, *checks, {"eval_loss": 1.0}])


@pytest.mark.parametrize(
    ("wrong", "steps_left", "expected"),
    [
        ([3] * PATIENCE, 100, False),
        ([3] * (PATIENCE + 1), 100, True),
        ([3, *[4] * PATIENCE], 100, True),
        ([9, 3, *[4] * (PATIENCE - 1), 2], 100, False),
        ([9, 3, 2, *[4] * (PATIENCE - 1)], 100, False),
        # Nothing was wrong once: margins are what is waited for.
        ([3, 0, *[1] * PATIENCE], 100, False),
        ([0] * (PATIENCE + 5), 100, False),
        # The next seed would not have the time that this one was given.
        ([3] * (PATIENCE + 1), EVERY * PATIENCE - 1, False),
        ([3] * (PATIENCE + 1), EVERY * PATIENCE, True),
        ([], 100, False),
    ],
)
def test_a_seed_is_given_up_by_its_checks_alone(wrong, steps_left, expected, tmp_path):
    state = history(*wrong)
    training = parse_run([*WORDS, "--output_dir", str(tmp_path)]).training
    training.max_steps = state.global_step + steps_left
    found = given_up(state, training)
    assert (found is not None) == expected
    if found:
        assert found == GivenUp(5, state.global_step, min(wrong), 50)
