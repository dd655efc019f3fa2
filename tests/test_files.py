"""Files that are written whole or not at all."""

import os

import pytest

from longhand.hub_cards import commands
from longhand.hub_cards.commands import write_atomically


@pytest.mark.parametrize(("content", "written"), [("gelöst\n", "gelöst\n".encode()), (b"\x00\xff", b"\x00\xff")])
def test_text_and_bytes_replace_what_was_there_and_leave_nothing_else(tmp_path, content, written):
    file = tmp_path / "recipe.yaml"
    file.write_text("old")
    write_atomically(file, content)
    assert file.read_bytes() == written and list(tmp_path.iterdir()) == [file]


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path, monkeypatch):
    file = tmp_path / "recipe.yaml"
    file.write_text("old")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(file, "new")
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


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
