"""A study of one's own: a file anywhere, whose runs, table and picture go into one folder; and the page that shows it."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

from longhand.hub_cards.recipes import write_recipe
from longhand.hub_cards.research import run as training
from longhand.hub_cards.research.__main__ import main
from longhand.hub_cards.research.study import SET_BY_RUN, load_study
from longhand.hub_cards.result_rows import read_results, write_results

PAGE = Path(training.__file__).parents[1] / "COMPARISONS.md"
PACKAGE = PAGE.parents[2]

TINY = {
    **{"max_length": 2, "hidden_size": 16, "head_dim": 8, "num_attention_heads": 2, "intermediate_size": 16},
    **{"num_hidden_layers": 1, "max_steps": 4, "eval_steps": 2, "batch_size": 4, "validation_lengths": [2]},
    **{"validation_samples": 4, "test_lengths": [1, 3], "test_samples": 4},
}


def write_study(folder, **fields):
    """A study's file in a folder."""
    file = folder / "mine.yaml"
    own = {"recipe": "addition-absolute", "arguments": TINY, "variants": {"nope": {"encoding": "none"}, "coupled": None}}
    file.write_text(
        yaml.safe_dump({name: value for name, value in {**own, **fields}.items() if value is not None}, sort_keys=False)
    )
    load_study.cache_clear()
    return str(file)


def section():
    """The text of the page about an encoding of one's own."""
    return PAGE.read_text(encoding="utf-8").partition("\n## Compare an encoding of your own\n")[2].partition("\n## ")[0]


def written_on_the_page():
    """The files that the page shows, by name."""
    return dict(re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", section(), flags=re.DOTALL))


@pytest.mark.release
def test_the_text_of_the_page_runs(tmp_path, monkeypatch, capsys):
    """Its files and its commands, with tiny sizes: all variants are legal, and those that are trained are shown."""
    for name, text in written_on_the_page().items():
        (tmp_path / name).write_text(text)
    study = yaml.safe_load((tmp_path / "my-study.yaml").read_text())
    study["arguments"] |= TINY
    (tmp_path / "my-study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    load_study.cache_clear()
    commands = re.findall(r"^python -m longhand\.hub_cards\.research (.*?)(?:  +#.*)?$", section(), flags=re.MULTILINE)
    words = [shlex.split(command) for command in commands]
    monkeypatch.chdir(tmp_path)
    printing = next(own for own in words if "--print" in own)
    main(printing)
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("python -m longhand.train ")]
    seeds = len(load_study("my-study.yaml").seeds)
    assert len(printed) == len(study["variants"]) * seeds
    # Two variants are trained: one run by hand, as on a cluster; the command makes the other and gathers both.
    study["variants"] = {name: study["variants"][name] for name in ("mine", "coupled")}
    (tmp_path / "my-study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    load_study.cache_clear()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PACKAGE)}
    subprocess.run([sys.executable, *shlex.split(printed[0])[1:]], check=True, capture_output=True, env=environment)
    comparing = next(own for own in words if "--print" not in own)
    place = comparing.index("--seeds") if "--seeds" in comparing else None
    if place is not None:
        comparing[place + 1] = "0"
    main(comparing)
    out = capsys.readouterr().out
    assert f"{len(study['variants'])} runs, {len(study['variants']) - 1} to train" in out
    folder = Path(comparing[comparing.index("--output") + 1])
    table = (folder / "table.md").read_text()
    assert all(re.search(rf"^\| {re.escape(name)} \|", table, flags=re.MULTILINE) for name in study["variants"])
    assert Image.open(folder / "accuracy.png").width > 1000
    main(comparing)
    assert "0 to train" in capsys.readouterr().out


def test_results_of_a_study_of_ones_own_stay_in_its_folder_and_are_shown(tmp_path, monkeypatch, capsys):
    def train(one, folder):
        folder.mkdir(parents=True)
        row = {"model": one.name, "task": "addition", "length_b": 1, "num_samples": 4, "seed": 0, "token_accuracy": 0.5}
        row |= {"decode": "teacher_forced", "seconds": 1.0, "run_seconds": 2.0, "hardware": "abacus"}
        rows = [{**row, "length": size, "exact_match": 0.25 if one.name.startswith("nope") else 1.0} for size in (1, 3)]
        write_recipe(training.parse_run(one.command(folder)).recipe, folder / "recipe.yaml")
        write_results(rows, folder / "results.jsonl")
        return "trained"

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(training, "STUDY_RESULTS", tmp_path / "of the package")
    output = tmp_path / "out"
    main([write_study(tmp_path, question="Which one?"), "--output", str(output), "--seeds", "0:1", "--jobs", "2"])
    printed = capsys.readouterr().out
    assert "4 runs, 4 to train" in printed and "Which one?" in printed
    table = (output / "table.md").read_text()
    assert "*0.250*" in table and "1.000" in table and "not fitted" in table and "| nope |" in table
    assert (output / "accuracy.png").exists() and not (tmp_path / "of the package").exists()
    assert {row["model"] for row in read_results(output / "results" / "results.jsonl")} == {
        f"{name}-seed{seed}" for name in ("nope", "coupled") for seed in (0, 1)
    }
    # A study of the package goes there too.
    main(["shortest-sums", "--output", str(tmp_path / "other"), "--print", "--seeds", "7"])
    printed = capsys.readouterr().out.splitlines()
    assert printed and all("--seed 7 --data_seed 7" in line and f"{tmp_path}/other/runs/" in line for line in printed)


def test_files_beside_a_study_are_found_and_given_to_every_command(tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\n")
    (tmp_path / "base.yaml").write_text("base: addition-nope\n")
    evaluate = {"long": {"lengths": 3}}
    file = write_study(tmp_path, recipe="base.yaml", arguments={**TINY, "plugin": "mine.py"}, evaluate=evaluate)
    for one in load_study(file).runs:
        assert one.command(Path("out"))[0] == str(tmp_path / "base.yaml")
        plugin = [str(tmp_path / "mine.py")]
        assert one.arguments["plugin"] == plugin and list(one.evaluations[0].plugins) == plugin
        assert one.evaluations[0].command(Path("out"))[-4:-2] == ["--plugin", *plugin]
    json.dumps([one.record for one in load_study(file).runs])


@pytest.mark.parametrize(
    ("fields", "words", "said"),
    [
        ({"variant": {}}, [], "variant is no field of a study: these are recipe, variants"),
        ({"recipe": None}, [], "recipe must be given"),
        ({"variants": None}, [], "variants must be given"),
        ({"variants": ["a"]}, [], "variants must map names"),
        ({"variants": {"a/b": {}}}, [], "a variant names a folder"),
        ({"variants": {"a": 3}}, [], "arguments must map names"),
        ({"seeds": 3}, [], "seeds must be a list"),
        ({"variants": {"a": {"encoding": "roraty"}, "b": {"batch_sise": 3}}}, [], "a: --encoding 'roraty' .*; b: unknown"),
        ({"arguments": {**TINY, "test_lengths": [5]}}, [], "nope: test_lengths .* trained"),
        ({"evaluate": {"long": {"lengths": "x"}}}, [], "nope: .*lengths.*, got 'x'"),
        ({"seeds": [0, 0]}, [], "seeds must be a list of different"),
        ({"lengths": 5}, [], "lengths must be a list"),
        ({"evaluate": {"long": 3}}, [], "evaluate must map long"),
        ({"evaluate": {"long": {"variants": ["nop"]}}}, [], "long measures variants 'nop', .* these are nope, coupled"),
        ({"evaluate": {"long": {"seeds": [9]}}}, [], "long measures seeds 9"),
        *(({"arguments": {**TINY, name: 5}}, [], f"sets {name} of each run") for name in SET_BY_RUN),
        *(({"variants": {"a": {name: 5}}}, [], f"sets {name} of each run") for name in SET_BY_RUN),
        ({}, ["--jobs", "0"], "--jobs must be an integer of at least 1"),
        ({}, ["--seeds", "x"], "START:STOP"),
        ({}, ["--seeds", "3:1"], "START:STOP"),
        ({}, ["--only", "rotary"], "'rotary' is no variant of mine: these are nope, coupled"),
    ],
)
def test_a_study_with_a_fault_is_refused_before_its_first_run(fields, words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "train", lambda *_: pytest.fail("a run began"))
    with pytest.raises(SystemExit) as end:
        main([write_study(tmp_path, **fields), "--output", str(tmp_path / "out"), *words])
    printed = capsys.readouterr().err
    assert end.value.code == 2 and printed.count("\n") == 1 and re.search(said, printed), printed


def test_seeds_of_a_study_of_the_package_need_a_folder_of_their_own(capsys):
    with pytest.raises(SystemExit):
        main(["shortest-sums", "--seeds", "0:1"])
    assert "give --output" in capsys.readouterr().err


def test_a_study_whose_runs_fail_says_so_and_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "train", lambda *_: "error: no space left")
    with pytest.raises(SystemExit) as end:
        main([write_study(tmp_path), "--output", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert end.value.code == 1 and printed.count("failed: error: no space left") == 2 and "nothing to compare" in printed
