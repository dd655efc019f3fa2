"""Runs that were cut off, and what `--resume` makes of them."""

import os
import shutil
from pathlib import Path

import pytest
from made_once import make_once
from refusals import refusal
from test_hub_commands import PUSHED, hub
from test_train import LEARNED, MIXED, SMALL, Cut, drawn_batches

from longhand import train
from longhand.data import FixedBatches, FreshBatches
from longhand.hub_cards.publishing import cards
from longhand.hub_cards.training.arguments import parse_run
from longhand.hub_cards.training.run_folder import claim_folder, last_checkpoint

assert hub

pytestmark = pytest.mark.usefixtures("undrawn")

WEIGHTS = ("model.safetensors", "best/model.safetensors")
WORST = "--practise_worst 8 --max_steps 15"
SCHEDULE = "--max_steps 30 --warmup_steps 2 --decay_steps 12 --num_train_samples 100"
AT_ONCE = "--practise_worst 8 --eval_steps 4 --max_steps 12"
SHARPER = "--qk_norm True --sharper_scores 3"
MUON = "--muon_learning_rate 0.02 --weight_decay 0.3"
ENCODER = "encoder-addition --hidden_size 24 --num_hidden_layers 1 --num_attention_heads 2 --intermediate_size 16"
ENCODER += " --max_length 3 --batch_size 8 --max_steps 6 --eval_steps 3 --validation_lengths 3 4 --validation_samples 4"
ENCODER += " --test_lengths 2 --test_samples 4"
# Dropout and the number of loops are drawn too.
ENCODER += " --sampling mixed --num_loops 4 --settle_weight 0.1 --hidden_dropout_prob 0.1"


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in WEIGHTS]


def stop(*_, **__):
    raise Cut


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "at", "kind", "resumed"),
    [
        # Cut off when the learning rate has fallen.
        ([*SMALL, *LEARNED, *MIXED, *SCHEDULE.split()], 18, FixedBatches, 15),
        pytest.param([*SMALL, *MUON.split()], 12, FreshBatches, 10, marks=pytest.mark.release),
        # The worst problems that were found at step 10 are practised in batch 12.
        pytest.param([*SMALL, *LEARNED, *WORST.split()], 13, FreshBatches, 10, marks=pytest.mark.release),
        # Those that were found at step 8 are practised in batch 8 already, the first one of the resumed run.
        pytest.param([*SMALL, *LEARNED, *AT_ONCE.split()], 10, FreshBatches, 8, marks=pytest.mark.release),
        # Factors of scores grow before and behind the step at which it is cut off.
        pytest.param([*SMALL, *LEARNED, *SHARPER.split()], 13, FreshBatches, 10, marks=pytest.mark.release),
        (ENCODER.split(), 4, FreshBatches, 3),
    ],
    ids=["schedule", "muon", "worst", "worst at once", "sharper scores", "encoder"],
)
def test_a_run_that_is_cut_off_and_moved_resumes_bit_for_bit(words, at, kind, resumed, tmp_path, monkeypatch, capsys):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train.main([*words, "--output_dir", str(whole)])
    with monkeypatch.context() as patch, pytest.raises(Cut):
        drawn_batches(patch, at, kind)
        train.main([*words, "--output_dir", str(cut)])
    assert not (cut / "model.safetensors").exists()
    moved = cut.rename(tmp_path / "moved")
    capsys.readouterr()
    train.main([*words, "--output_dir", str(moved), "--resume"])
    assert str(moved / "checkpoints" / f"checkpoint-{resumed}") in capsys.readouterr().out
    assert contents(whole) == contents(moved)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path]:
    """A finished run, and the same run cut off after its last step, with the checkpoints of steps 15 and 20."""

    def run(folder: Path) -> None:
        train.main([*SMALL, "--output_dir", str(folder / "whole")])
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Cut):
            patch.setattr(train, "save_final", stop)
            train.main([*SMALL, "--output_dir", str(folder / "cut")])

    folder = make_once(tmp_path_factory, "whole_and_cut", run)
    return folder / "whole", folder / "cut"


@pytest.fixture
def cut(made, tmp_path) -> Path:
    return Path(shutil.copytree(made[1], tmp_path / "cut"))


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        # Trainer goes on without the first two, and says nothing.
        ("optimizer.pt", Path.unlink),
        ("rng_state.pth", Path.unlink),
        ("optimizer.pt", flip_bit),
        ("model.safetensors", truncate),
        ("trainer_state.json", Path.unlink),
        ("trainer_state.json", truncate),
    ],
)
def test_a_checkpoint_with_a_damaged_file_is_passed_over_by_name(name, damage, cut, capsys):
    assert last_checkpoint(cut / "checkpoints").name == "checkpoint-20"
    damage(cut / "checkpoints" / "checkpoint-20" / name)
    capsys.readouterr()
    assert last_checkpoint(cut / "checkpoints").name == "checkpoint-15"
    (line,) = capsys.readouterr().out.splitlines()
    assert "checkpoint-20 is passed over: " in line and name in line


def test_a_run_whose_checkpoints_are_all_damaged_starts_anew(made, cut, capsys):
    for name in ("checkpoint-20/scheduler.pt", "checkpoint-15/rng_state.pth"):
        (cut / "checkpoints" / name).unlink()
    train.main([*SMALL, "--resume", "--output_dir", str(cut)])
    assert contents(cut) == contents(made[0]) and "starts from its beginning" in capsys.readouterr().out


def test_a_run_killed_before_its_first_file_is_begun_again(tmp_path):
    (tmp_path / ".recipe.yaml.0123.partial").write_text("recipe: addi")
    (tmp_path / ".longhand.lock").write_text("process 1 on somewhere")
    assert claim_folder(parse_run([*SMALL, "--output_dir", str(tmp_path)])) is None


@pytest.mark.parametrize("when", ["during its training", "by a failure of the Hub"])
def test_a_run_that_was_not_pushed_is_pushed_by_resume(when, hub, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises((Cut, SystemExit)):
        if when == "by a failure of the Hub":
            hub.fail("POST", "/commit/", times=10_000)
        else:
            patch.setattr(cards, "write_card", stop)
        train.main([*PUSHED, "--output_dir", str(folder)])
    hub.faults.clear()
    train.main([*PUSHED, "--resume", "--output_dir", str(folder)])
    assert "results.jsonl" in hub.repositories["model", "user/run"].head.files


def test_a_run_without_its_certificate_is_not_pushed_by_resume(hub, tmp_path, capsys):
    arguments = [*PUSHED, "--until_certified", "True", "--output_dir", str(tmp_path / "run")]
    assert "not certified after 2 steps; it was not pushed: " in refusal(capsys, train.main, *arguments, status=1)
    assert "complete but not certified" in refusal(capsys, train.main, *arguments, "--resume")
    assert not hub.repositories


@pytest.mark.parametrize("phase", ["recipe.yaml", "README.md"])
def test_a_full_disk_ends_in_one_line_and_the_run_can_be_continued(phase, made, tmp_path, capsys, monkeypatch):
    folder, real_replace = tmp_path / "run", os.replace
    words = [*SMALL, "--output_dir", str(folder)]
    if phase == "README.md":
        shutil.copytree(made[1], folder)
        words.append("--resume")

    def replace(source, target):
        if Path(target).name == phase:
            raise OSError(28, "No space left on device")
        real_replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        message = refusal(capsys, train.main, *words, status=1)
    assert message.endswith("the same command with --resume continues the run")
    train.main(words)
    assert contents(folder) == contents(made[0])
    assert {path.name for path in folder.iterdir()} == {path.name for path in made[0].iterdir()}
