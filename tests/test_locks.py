"""One process at a time writes into a folder, or publishes from it."""

import errno
import os
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest
from test_train import SMALL, refusal

from longhand import eval as evaluation
from longhand import train
from longhand.hub_cards import push as push_cli
from longhand.hub_cards.commands import LOCK_FILE, holding


@contextmanager
def held_elsewhere(folder: Path):
    """Another process that holds the folder until the block ends."""
    context = get_context("fork")
    here, there = context.Pipe()

    def hold():
        with holding(folder):
            there.send("held")
            there.recv()

    process = context.Process(target=hold, daemon=True)
    process.start()
    assert here.poll(60)
    try:
        yield process
    finally:
        here.send("over")
        process.join()


def stop_line(capsys, main, arguments) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_a_folder_that_is_held_is_refused_and_free_after_a_kill(tmp_path):
    folder = tmp_path / "new" / "run"
    with held_elsewhere(folder) as process:
        with pytest.raises(ValueError, match=f"{folder} is in use"), holding(folder):
            pass
        process.kill()
        process.join()
        assert (folder / LOCK_FILE).exists()
        with holding(folder):
            (folder / "result").write_text("")
    assert [path.name for path in folder.iterdir()] == ["result"]


def test_a_process_may_hold_a_folder_twice_and_frees_it_at_the_end(tmp_path):
    with holding(tmp_path):
        with holding(tmp_path):
            pass
        assert (tmp_path / LOCK_FILE).exists()
    assert not list(tmp_path.iterdir())
    with held_elsewhere(tmp_path):
        pass


def test_a_block_that_leaves_nothing_leaves_no_folder(tmp_path):
    with pytest.raises(KeyError), holding(tmp_path / "a" / "b"):
        raise KeyError
    with holding(tmp_path / "missing", reading=True):
        assert not (tmp_path / "missing").exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "reason"), [("a" * 300, "File name too long"), ("file", "is a file"), ("file/run", "Not a directory")]
)
def test_a_folder_that_cannot_be_made_is_refused_in_one_line(name, reason, tmp_path, capsys):
    (tmp_path / "file").write_text("precious")
    assert reason in refusal(capsys, [*SMALL, "--output_dir", tmp_path / name])
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_where_nobody_can_write_is_only_read(number, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)
    with holding(tmp_path, reading=True):
        pass
    with pytest.raises(ValueError, match="cannot be written: "), holding(tmp_path):
        pass


def test_commands_refuse_a_folder_that_another_process_holds_and_write_nothing(main_job, tmp_path, capsys):
    run, out = tmp_path / "addition", tmp_path / "out"
    (tmp_path / "empty").mkdir()
    run.symlink_to(main_job)
    before = {path: path.stat().st_mtime_ns for path in main_job.rglob("*")}
    with held_elsewhere(main_job), held_elsewhere(out):
        for main, *arguments in (
            (train.main, "addition", "--output_dir", run),
            (train.main, "addition", "--resume", "--output_dir", run),
            (evaluation.main, run, "--lengths", "3", "--output_dir", out),
            (evaluation.main, run, "--certify", "--output_dir", tmp_path / "empty"),
            (push_cli.main, "card", run),
            (push_cli.main, "model", run, "user/addition"),
        ):
            assert "is in use by another process" in stop_line(capsys, main, arguments)
        assert not [path for path in out.iterdir() if path.name != LOCK_FILE]
        evaluation.main([str(run), "--ask", "1+2"])
    assert {path: path.stat().st_mtime_ns for path in main_job.rglob("*")} == before
    assert not list((tmp_path / "empty").iterdir())
