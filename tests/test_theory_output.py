"""Studies of theory print what they found, and write where they are told."""

import argparse
from importlib import import_module
from pathlib import Path

import pytest

from longhand.hub_cards.research.__main__ import THEORIES, load_code, main
from longhand.hub_cards.research.theories import complexity, nope_ceiling
from longhand.hub_cards.result_rows import read_results

WRITING = [name for name in THEORIES if hasattr(load_code(name), "RESULTS")]


def package_files() -> dict[str, bytes]:
    folder = Path(str(import_module(nope_ceiling.__package__).__file__)).parent
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in (".jsonl", ".png")}


@pytest.mark.parametrize("name", WRITING)
def test_each_study_that_writes_files_of_the_package_takes_another_place(name):
    code, parser = load_code(name), argparse.ArgumentParser()
    code.add_options(parser)
    places = [action for action in parser._actions if action.default == code.RESULTS]
    assert [action.type for action in places] == [Path]


@pytest.mark.parametrize("name", ["nope_ceiling", "complexity"])
def test_a_study_prints_its_rows_and_keeps_the_files_of_the_package(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nope_ceiling, "MAX_DIGITS", 2)
    monkeypatch.setattr(complexity, "FIGURES", complexity.FIGURES[:2])
    # The picture is of all figures.
    monkeypatch.setattr(complexity, "plot_distributions", lambda rows, file: None)
    before = package_files()
    main([name, "--output", str(tmp_path / "new" / "rows.jsonl")])
    rows = read_results(tmp_path / "new" / "rows.jsonl")
    printed = capsys.readouterr().out
    assert len(rows) == 2 and printed.count("\n") >= 3 and f"wrote {tmp_path / 'new' / 'rows.jsonl'}" in printed
    assert package_files() == before
