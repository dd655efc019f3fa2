"""Studies with code of their own print what they found, and write where they are told."""

from importlib import import_module
from pathlib import Path

import pytest

from longhand.hub_cards.research.__main__ import STUDIES, load_code, main, make_parser
from longhand.hub_cards.research.structured import families, table_cells
from longhand.hub_cards.research.theories import complexity, hint_costs, nope_ceiling
from longhand.hub_cards.result_rows import read_results

WRITING = [name for name in STUDIES if hasattr(load_code(name), "RESULTS")]
SHORT = {
    "nope_ceiling": [],
    "complexity": [],
    "families": [],
    "hint_costs": [],
    "table_cells": ["--seeds", "1", "--steps", "20", "--num_samples", "2"],
}
"""Studies that are run here, with options that make them short."""


def package_files() -> dict[Path, bytes]:
    folder = Path(str(import_module("longhand.hub_cards.research").__file__)).parent
    return {file: file.read_bytes() for file in folder.rglob("*") if file.suffix in (".jsonl", ".png")}


@pytest.mark.parametrize("name", STUDIES)
def test_each_study_that_writes_files_of_the_package_takes_another_place(name):
    own = Path(load_code(name).__file__).parent
    places = [
        action for action in make_parser(name)._actions if isinstance(action.default, Path) and own in action.default.parents
    ]
    assert [action.dest for action in places] == ["output"] * (name in WRITING)
    assert all(action.type is Path for action in places)


@pytest.mark.parametrize("name", SHORT)
def test_a_study_prints_its_rows_and_keeps_the_files_of_the_package(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nope_ceiling, "MAX_DIGITS", 2)
    monkeypatch.setattr(complexity, "FIGURES", complexity.FIGURES[:2])
    # The picture is of all figures.
    monkeypatch.setattr(complexity, "draw", lambda rows, file: None)
    monkeypatch.setattr(families, "TYPES", {families.CAUSAL: ["bloom", "mamba"]})
    monkeypatch.setattr(hint_costs, "LENGTHS", (2,))
    monkeypatch.setattr(hint_costs, "SIZE", 2)
    monkeypatch.setattr(table_cells, "SIZES", table_cells.SIZES[:1])
    before, output = package_files(), tmp_path / "new" / "rows.jsonl"
    main([name, "--output", str(output), *SHORT[name]])
    printed = capsys.readouterr().out
    rows = [row for row in read_results(output) if "summary" not in row]
    assert len(rows) == 2 and printed.count("\n") >= 3 and f"wrote {output}" in printed
    assert package_files() == before


@pytest.mark.parametrize("options", [["--steps", "10"], ["--seeds", "0"], ["--num_samples", "0"], ["--models", "MiniLM-L6"]])
def test_a_study_of_tables_refuses_what_it_cannot_do(options, tmp_path, capsys):
    with pytest.raises(SystemExit) as refusal:
        main(["table_cells", *options, "--output", str(tmp_path / "rows.jsonl")])
    assert refusal.value.code == 2 and options[0] in capsys.readouterr().err
