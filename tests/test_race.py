"""The race against the authors' code runs without a checkout, and refuses one that reads other problems."""

import json
import os
import subprocess
import sys
from argparse import ArgumentTypeError
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

RACE = Path(__file__).parent / "benchmarks" / "race.py"


@pytest.fixture
def race(monkeypatch):
    monkeypatch.syspath_prepend(RACE.parent)
    return import_module("race")


@pytest.mark.thorough
def test_this_package_runs_alone_without_a_checkout(tmp_path):
    command = [sys.executable, str(RACE), "generation", "decoding", "--rounds", "1", "--size", "1"]
    # Nothing is compiled, which would take a while and a compiler.
    environment = os.environ | {"TORCHDYNAMO_DISABLE": "1"}
    subprocess.run([*command, "--output", str(tmp_path / "race.jsonl")], check=True, env=environment)
    rows = [json.loads(line) for line in (tmp_path / "race.jsonl").read_text().splitlines()]
    assert {row["benchmark"].split(",")[0] for row in rows} == {"generation", "decoding"}
    assert all(row["longhand"] > 0 and "ratio" not in row for row in rows)
    assert all(row.get("share", 0) < 1 for row in rows)


def test_a_checkout_that_reads_other_problems_is_refused(race):
    same = {"tokens": 605, "supervised": 202, "parameters": 1}
    race.check_same(race.paper_model(), same)
    with pytest.raises(SystemExit, match="200 digits"):
        race.check_same(race.paper_model(), same | {"tokens": 606})


@pytest.mark.thorough
def test_a_checkout_that_fails_is_reported_in_its_last_words(race, tmp_path):
    (tmp_path / "hydra.py").write_text("raise ImportError('no part that it needs')")
    peer = race.Peer(sys.executable, tmp_path, str(tmp_path))
    with pytest.raises(SystemExit, match="ImportError: no part that it needs"):
        peer.ask("generation", 1)


def test_a_folder_that_is_no_checkout_is_refused(race, tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "config.yaml").touch()
    with pytest.raises(ArgumentTypeError, match="src/data"):
        race.peer_folder(str(tmp_path))
    for name in race.EXPECTED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert race.peer_folder(str(tmp_path)) == tmp_path.resolve()


def test_the_least_multiplications_are_counted_for_each_predicted_token(race):
    config = SimpleNamespace(hidden_size=2, intermediate_size=3, vocab_size=21)
    # One digit: three tokens are predicted, which see 5, 6 and 7 keys.
    assert race.multiply_adds(config, 1) == 3 * (2 * 2 + 3 * 2 * 3 + 2 * 21) + 2 * 2 * (5 + 6 + 7)
