"""Runs that were cut off, and what `--resume` makes of them."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from test_hub_commands import PUSHED, hub, refusal
from test_train import SMALL, Cut

from longhand import train
from longhand.hub_cards.checkpoints.files import hash_files
from longhand.hub_cards.training import run_folder, trainer
from longhand.hub_cards.training.run_folder import last_checkpoint

assert hub

WEIGHTS = ("model.safetensors", "best/model.safetensors")


def contents(folder: Path, names=WEIGHTS) -> list[bytes]:
    return [(folder / name).read_bytes() for name in names]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path]:
    """A finished run, and the same run cut off after its last step, with the checkpoints of steps 15 and 20."""
    whole, cut = (tmp_path_factory.mktemp("runs") / name for name in ("whole", "cut"))
    train.main([*SMALL, "--output_dir", str(whole)])
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Cut):

        def stop(*_):
            raise Cut

        patch.setattr(train, "save_final", stop)
        train.main([*SMALL, "--output_dir", str(cut)])
    return whole, cut


@pytest.fixture
def cut(made, tmp_path) -> Path:
    return Path(shutil.copytree(made[1], tmp_path / "cut"))


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    # In the stored bytes of the largest tensors, which lie in the middle.
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def empty_state(file: Path) -> None:
    torch.save({}, file)


def other_step(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "global_step": 7}))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((name, damage) for name in ("optimizer.pt", "rng_state.pth") for damage in (Path.unlink, truncate, flip_bit)),
        *((name, damage) for name in ("scheduler.pt", "optimizer.pt") for damage in (Path.unlink, empty_state)),
        *((name, damage) for name in ("model.safetensors", "config.json") for damage in (Path.unlink, truncate)),
        *(("trainer_state.json", damage) for damage in (Path.unlink, truncate, other_step)),
    ],
)
def test_checkpoint_with_a_damaged_file_is_passed_over_by_name(name, damage, cut, capsys):
    assert last_checkpoint(cut / "checkpoints").name == "checkpoint-20"
    damage(cut / "checkpoints" / "checkpoint-20" / name)
    capsys.readouterr()
    assert last_checkpoint(cut / "checkpoints").name == "checkpoint-15"
    (line,) = capsys.readouterr().out.splitlines()
    assert "checkpoint-20 is passed over: " in line and ("safetensors" if "safetensors" in name else name) in line


@pytest.mark.parametrize(
    "damaged", [["checkpoint-20/optimizer.pt"], ["checkpoint-20/scheduler.pt", "checkpoint-15/rng_state.pth"]]
)
def test_run_resumes_to_the_same_weights_whatever_checkpoint_is_damaged(damaged, made, cut, capsys):
    for name in damaged:
        (cut / "checkpoints" / name).unlink()
    train.main([*SMALL, "--resume", "--output_dir", str(cut)])
    assert contents(cut) == contents(made[0])
    assert ("the run starts from its beginning" in capsys.readouterr().out) == (len(damaged) == 2)


def test_checkpoint_whose_best_weights_are_lost_is_not_continued(cut):
    state = cut / "checkpoints" / "checkpoint-20" / "trainer_state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "best_model_checkpoint": "x/checkpoint-10"}))
    assert last_checkpoint(cut / "checkpoints").name == "checkpoint-15"


def test_checkpoint_of_another_number_of_processes_is_continued_with_a_word(cut, capsys):
    newest = cut / "checkpoints" / "checkpoint-20"
    assert last_checkpoint(cut / "checkpoints", processes=2) == newest
    assert "written by 1 processes, and 2 continue it" in capsys.readouterr().out
    shutil.copy(newest / "rng_state.pth", newest / "rng_state_1.pth")
    (newest / "rng_state.pth").rename(newest / "rng_state_0.pth")
    (newest / "hashes.json").write_text(json.dumps(hash_files(newest, ["*.safetensors", "*.pt", "*.pth"])))
    assert last_checkpoint(cut / "checkpoints", processes=2) == newest and capsys.readouterr().out == ""
    assert last_checkpoint(cut / "checkpoints") == newest and "written by 2" in capsys.readouterr().out


def test_run_killed_while_its_states_are_removed_is_complete(made, tmp_path, capsys, monkeypatch):
    folder = Path(shutil.copytree(made[1], tmp_path / "run"))

    def stop(*_):
        raise Cut

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(run_folder.shutil, "rmtree", stop)
        shutil.copytree(made[0], folder, dirs_exist_ok=True)
        run_folder.remove_checkpoints(folder)
    assert "nothing is left to resume" in refusal(capsys, train.main, *SMALL, "--resume", "--output_dir", folder)
    assert {path.name for path in folder.iterdir()} == {path.name for path in made[0].iterdir()}


def test_run_killed_before_its_first_file_is_begun_again(tmp_path, made):
    (tmp_path / ".recipe.yaml.0123.partial").write_text("recipe: addi")
    (tmp_path / ".longhand.lock").write_text("process 1 on somewhere")
    train.main([*SMALL, "--output_dir", str(tmp_path)])
    assert contents(tmp_path) == contents(made[0])


@pytest.mark.parametrize("when", ["during its training", "before its push", "by a failure of the Hub"])
def test_run_that_was_not_pushed_is_pushed_by_resume_once(when, hub, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"

    def stop(*_, **__):
        raise Cut

    with monkeypatch.context() as patch, pytest.raises((Cut, SystemExit)):
        if when == "by a failure of the Hub":
            hub.fail("POST", "/commit/", times=10_000)
        else:
            patch.setattr(train, "push_model" if when == "before its push" else "write_card", stop)
        train.main([*PUSHED, "--output_dir", str(folder)])
    hub.faults.clear()
    assert "--resume" in refusal(capsys, train.main, *PUSHED, "--output_dir", folder) or when != "during its training"
    train.main([*PUSHED, "--resume", "--output_dir", str(folder)])
    assert "results.jsonl" in hub.repositories["model", "user/run"].head.files
    message = refusal(capsys, train.main, *PUSHED, "--resume", "--output_dir", folder)
    assert "was pushed to user/run: nothing is left to resume" in message
    assert "pushed.json" not in hub.repositories["model", "user/run"].head.files
    train.main([*PUSHED, "--resume", "--hub_model_id", "user/other", "--output_dir", str(folder)])
    assert "results.jsonl" in hub.repositories["model", "user/other"].head.files


def test_run_without_its_certificate_is_not_pushed_by_resume(hub, tmp_path, capsys):
    arguments = [*PUSHED, "--until_certified", "True", "--output_dir", str(tmp_path / "run")]
    assert "not certified after 2 steps; it was not pushed: " in refusal(capsys, train.main, *arguments, status=1)
    assert "complete but not certified" in refusal(capsys, train.main, *arguments, "--resume")
    assert not hub.repositories


@pytest.mark.parametrize("phase", ["recipe.yaml", "checkpoint-10", ".partial", "results.jsonl", "accuracy.png", "README.md"])
def test_full_disk_ends_in_one_line_and_the_run_can_be_continued(phase, made, tmp_path, capsys, monkeypatch):
    folder, real_replace, real_save = tmp_path / "run", os.replace, trainer.Trainer._save_checkpoint
    words = [*SMALL, "--output_dir", str(folder)]
    if phase not in ("recipe.yaml", "checkpoint-10"):
        shutil.copytree(made[1], folder)
        words.append("--resume")

    def replace(source, target):
        if Path(target).name == phase:
            raise OSError(28, "No space left on device")
        real_replace(source, target)

    def save(self, *arguments, **options):
        real_save(self, *arguments, **options)
        if self.state.global_step == 10 and phase == "checkpoint-10":
            raise RuntimeError("PytorchStreamWriter failed writing file data/0")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        patch.setattr(trainer.Trainer, "_save_checkpoint", save)
        if phase == ".partial":
            patch.setattr(train, "save_final", lambda *_: replace("", phase))
        message = refusal(capsys, train.main, *words, status=1)
    assert message.endswith("the same command with --resume continues the run")
    assert not (folder / "checkpoints" / "checkpoint-10").exists() or phase != "checkpoint-10"
    train.main([*words, "--resume"] if (folder / "recipe.yaml").exists() else words)
    assert contents(folder) == contents(made[0])
    assert {path.name for path in folder.iterdir()} == {path.name for path in made[0].iterdir()}
