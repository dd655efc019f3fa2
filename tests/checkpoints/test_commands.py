"""How commands end, files that are written whole or not at all, and folders that one process at a time writes into."""

import ast
import errno
import os
import shlex
import signal
import subprocess
import sys
import time
import weakref
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest
from refusals import refusal as refused
from test_train import SMALL, refusal

from longhand import eval as evaluation
from longhand import train
from longhand.data import TASKS
from longhand.hub_cards import commands, harness
from longhand.hub_cards import push as push_cli
from longhand.hub_cards.commands import LOCK_FILE, holding, interruptible, write_atomically
from longhand.hub_cards.page import __main__ as page
from longhand.hub_cards.recipes import read_recipe
from longhand.hub_cards.training.arguments import parse_run, read_arguments


class Thing:
    """Something that a weak reference can refer to."""


@pytest.fixture
def interrupts():
    """Python's own handler: processes that run tests in parallel ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("place", ["the command", "the callback of a weak reference"])
def test_ctrl_c_ends_a_command_in_one_line(place, capsys):
    with pytest.raises(SystemExit) as end, interruptible("go on by hand"):
        if place == "the command":
            signal.raise_signal(signal.SIGINT)
        thing = Thing()
        reference = weakref.ref(thing, lambda gone: signal.raise_signal(signal.SIGINT))
        del thing
        assert reference() is None
        for _ in range(200):
            time.sleep(0.01)
    assert end.value.code == 130
    assert capsys.readouterr().err.strip() == "interrupted: go on by hand"


@pytest.mark.parametrize("lines", [1, 100_000])
@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)"])
def test_a_closed_output_ends_a_command_in_one_line(lines, end):
    """A single line is written when Python exits, many before; `--help` ends the program by itself."""
    code = f"""
from commands import interruptible, refusing_in_one_line
with interruptible("run it again"), refusing_in_one_line(OSError):
    input()
    for line in range({lines}):
        print("a line")
    {end}
"""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # Alone, without the package, which takes seconds to import.
    place = Path(commands.__file__).parent
    with subprocess.Popen([sys.executable, "-c", code], cwd=place, **pipes, text=True) as process:
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stderr.read().strip() == "the output was closed, by `head` perhaps: run it again"
    assert process.returncode == 141


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("you tried to allocate 10 bytes")])
def test_a_machine_without_memory_ends_a_command_in_one_line(error, capsys):
    with pytest.raises(SystemExit) as end, interruptible("go on by hand"):
        raise error
    assert end.value.code == 1 and capsys.readouterr().err.count("\n") == 1
    with pytest.raises(RuntimeError), interruptible("go on by hand"):
        raise RuntimeError("something else")


@pytest.mark.parametrize(("content", "written"), [("gelöst\n", "gelöst\n".encode()), (b"\x00\xff", b"\x00\xff")])
def test_text_and_bytes_replace_what_was_there_and_leave_nothing_else(tmp_path, content, written):
    file = tmp_path / "recipe.yaml"
    file.write_text("old")
    write_atomically(file, content)
    assert file.read_bytes() == written and list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("name", ["outputs/plain", "a b", "-name", "--help", "it's", "$HOME"])
def test_a_folder_in_a_printed_command_is_one_word_and_no_option(name):
    run = parse_run(["addition-tiny", f"--output_dir={name}"])
    for line in train.what_next(run):
        folder = shlex.split(line)[2]
        assert Path(folder) == Path(name) and not folder.startswith("-")


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path, monkeypatch):
    file = tmp_path / "recipe.yaml"
    file.write_text("old")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(file, "new")
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


def test_a_recipe_that_names_its_parts_is_refused_before_they_are_built(tmp_path):
    """Forty lines of lists of lists would be 10^28 numbers."""
    lines = [f"list_{place}: &list_{place} [{', '.join([f'*list_{place - 1}'] * 5)}]" for place in range(1, 40)]
    (file := tmp_path / "recipe.yaml").write_text("\n".join(["list_0: &list_0 [1, 2]", *lines]))
    with pytest.raises(ValueError, match="anchors"):
        read_recipe(file)


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    (precious := tmp_path / "precious").write_text("precious")
    (tmp_path / ".recipe.yaml.guessed.partial").symlink_to(precious)
    monkeypatch.setattr(commands.secrets, "token_hex", lambda _: "guessed")
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "recipe.yaml", "new")
    assert precious.read_text() == "precious"


def test_files_are_as_readable_as_others(tmp_path):
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "atomic", "")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


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
            assert "is in use by another process" in refused(capsys, main, *arguments)
        assert not [path for path in out.iterdir() if path.name != LOCK_FILE]
        evaluation.main([str(run), "--ask", "1+2"])
    assert {path: path.stat().st_mtime_ns for path in main_job.rglob("*")} == before
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("name", ["train", "eval"])
@pytest.mark.parametrize("installed", [True, False])
def test_a_command_is_told_as_it_works_where_the_user_stands(name, installed, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(train.__file__).parent)
    text = f"python {name}.py outputs/mine"
    assert commands.with_commands(text) == text
    monkeypatch.chdir(tmp_path)
    Path(f"{name}.py").write_text("another file of this name")
    monkeypatch.setattr(commands.shutil, "which", lambda script: f"/bin/{script}" if installed else None)
    told = shlex.split(commands.with_commands(text))
    assert told == [*([f"longhand-{name}"] if installed else ["python", "-m", f"longhand.{name}"]), "outputs/mine"]
    assert f"{name}.py" not in commands.with_commands(train.USAGE + evaluation.EXAMPLES)


@pytest.mark.slow
def test_commands_of_a_run_of_a_machine_that_was_found_work_where_they_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "larger"
    few = [
        "--max_steps",
        "1",
        "--eval_steps",
        "1",
        "--validation_samples",
        "2",
        "--test_lengths",
        "2",
        "--test_samples",
        "2",
    ]
    function = ["--function", "lambda a, b: max(a, b)", "--base", "2", "--name", "larger_of_bits"]
    train.main(["columns", *function, *few, "--until_certified", "False", "--use_cpu", "True", "--output_dir", str(folder)])
    told = [shlex.split(line) for line in capsys.readouterr().out.partition("what next:")[2].splitlines() if line.strip()]
    ask = next(words for words in told if "--ask" in words)
    evaluation.main(ask[ask.index(str(folder)) :])
    card = (folder / "README.md").read_text()
    command = next(line for line in card.partition("## Reproduce")[2].splitlines() if line.startswith("python"))
    TASKS.pop("larger_of_bits")
    monkeypatch.chdir(folder)
    assert parse_run(shlex.split(command)[3:]).task.name == "larger_of_bits"
    TASKS.pop("larger_of_bits")


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["3"], [3]),
        (["3", "5"], [3, 5]),
        (["3,5"], [3, 5]),
        (["3,", "5"], [3, 5]),
        (["10:30:10"], [10, 20, 30]),
        (["3:5", "9"], [3, 4, 5, 9]),
        (["3,10:30:10", "40"], [3, 10, 20, 30, 40]),
    ],
)
def test_every_command_takes_a_list_of_lengths_in_every_form(words, numbers):
    first, *rest = words
    for given in (["--lengths", *words], [f"--lengths={first}", *rest]):
        assert evaluation.parse_arguments(["model", *given, "--lengths_b", *words]).lengths == numbers
        options = evaluation.parse_arguments([*given, "model"])
        assert (options.lengths, options.checkpoints) == (numbers, ["model"])
    for name in ("test_lengths", "validation_lengths"):
        for given in ([f"--{name}", *words], [f"--{name}={first}", *rest]):
            assert read_arguments(["addition", *given, "--seed", "7"]).values[name] == numbers
    parser = push_cli.make_parser()
    assert parser.parse_args(["dataset", "addition", "--max_length", *words, "--seed", "1"]).max_length == numbers


@pytest.mark.parametrize("text", ["x", "3;5", "5:3", "1:9:0", "", ":"])
def test_a_list_of_lengths_that_is_none_is_refused_with_its_forms(text):
    for read in (
        lambda: evaluation.parse_arguments(["model", "--lengths", text]),
        lambda: read_arguments(["addition", "--test_lengths", text]),
        lambda: push_cli.make_parser().parse_args(["dataset", "addition", "--max_length", text]),
    ):
        with pytest.raises(ValueError, match="10:200:10"):
            read()


def test_a_log_shows_a_line_before_the_command_ends(tmp_path):
    code = "import os; from longhand.hub_cards.commands import interruptible\nwith interruptible('again'):\n"
    code += "    print('begins'); os.kill(os.getpid(), 9)"
    with (tmp_path / "log").open("w") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, check=False)
    assert (tmp_path / "log").read_text() == "begins\n"


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (evaluation.main, ["addition", "--ask", "1+2"]),
        (train.main, ["--list"]),
        (push_cli.main, ["--help"]),
        (page.main, ["--help"]),
        (harness.main, ["--tasks", "copy", "out"]),
    ],
    ids=["eval", "train", "push", "page", "harness"],
)
def test_a_command_without_an_output_ends_in_one_line(main, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as end:
        main(words)
    lines = capsys.readouterr().err
    assert end.value.code == 2 and lines.count("\n") == 1 and "standard output is closed" in lines
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ctrl_c_during_imports_ends_a_command_in_one_line(tmp_path):
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt")
    for file in (train.__file__, evaluation.__file__):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in (-signal.SIGINT, 130) and done.stderr.strip().count("\n") == 0
        assert done.stderr.strip().startswith("interrupted")


def test_no_progress_bar_reaches_a_file():
    for file in Path(train.__file__).parent.rglob("*.py"):
        if "tests" in file.parts:
            continue
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) == "tqdm":
                assert "disable" in [option.arg for option in call.keywords], f"{file}:{call.lineno}"
