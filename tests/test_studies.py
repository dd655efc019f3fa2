"""The command of the studies: their list, and names that are none."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from longhand.hub_cards.reports import documents
from longhand.hub_cards.reports.studies import study_table
from longhand.hub_cards.runs.arguments import parse_run
from longhand.hub_cards.runs.recipes import write_recipe
from longhand.hub_cards.runs.results import read_results, write_results
from longhand.hub_cards.runs.studies import RUNS_FILE, Study, list_studies, load_study
from longhand.hub_cards.studies import training
from longhand.hub_cards.studies.__main__ import STUDIES, main


def test_every_study_has_a_line_and_a_folder(capsys):
    main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*STUDIES, *list_studies()]
    assert all(re.search(r"[\w)][.?]$", line) and "None" not in line for line in lines)
    assert sorted(folder.parent.name for folder in documents.STUDIES.glob("*/study.py")) == list(STUDIES)


@pytest.mark.parametrize(("arguments", "said"), [([], "no study is named"), (["rings"], "study 'rings' is unknown")])
def test_a_name_that_is_none_is_refused_in_one_line(arguments, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    printed = capsys.readouterr().err
    assert end.value.code == 2 and printed.count("\n") == 1 and said in printed and "nope_ceiling" in printed


@pytest.mark.parametrize("name", [*STUDIES, *list_studies()])
def test_help_of_a_study_names_its_command(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0 and f"usage: python -m longhand.hub_cards.studies {name}" in " ".join(
        capsys.readouterr().out.split()
    )


TINY = Study(
    name="tiny",
    question="Does a study train what is missing?",
    recipe="addition-nope",
    arguments={
        **{"max_length": 2, "hidden_size": 16, "head_dim": 8, "intermediate_size": 16, "max_steps": 4, "eval_steps": 2},
        **{"batch_size": 4, "validation_lengths": [2], "validation_samples": 4, "test_lengths": [1, 3], "test_samples": 4},
    },
    variants={"nope": {}, "coupled": {"recipe": "addition-absolute"}},
    seeds=[0, 1],
)


@pytest.mark.parametrize("name", list_studies())
def test_every_run_of_a_study_is_legal_and_tests_trained_sizes(name):
    study = load_study(name)
    for run in study.runs[: len(study.variants)]:
        parsed = parse_run(run.command(Path("out") / run.name))
        assert min(parsed.data.test_lengths) <= parsed.data.max_length, run.name


@pytest.mark.parametrize("name", list_studies())
def test_results_of_a_study_are_of_its_present_runs(name):
    folder = training.RESULTS / name
    if not folder.exists():
        return
    recorded, runs = read_results(folder / RUNS_FILE), {run.name: run.record for run in load_study(name).runs}
    assert all(json.loads(json.dumps(runs[record["model"]])) == record for record in recorded)
    models = {row["model"].removesuffix("/best") for row in read_results(folder / "results.jsonl")}
    assert models == {record["model"] for record in recorded}


def test_a_file_with_an_unknown_or_missing_field_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("longhand.hub_cards.runs.studies.STUDIES_FOLDER", tmp_path)
    (tmp_path / "odd.yaml").write_text("question: Is it odd?\nrecipe: addition\nvariant: {}\n")
    with pytest.raises(ValueError, match="unknown field 'variant': legal are arguments"):
        load_study("odd")
    (tmp_path / "odd.yaml").write_text("question: Is it odd?\nrecipe: addition\n")
    with pytest.raises(ValueError, match="lacks the field 'variants'"):
        load_study("odd")


def finished(folder, run, exact_match=1.0):
    """Leave what a finished run of a study leaves."""
    (folder / run.name).mkdir(parents=True)
    shared = {"task": "addition", "num_samples": 4, "seed": 0, "decode": "teacher_forced", "token_accuracy": 1.0}
    shared |= {"seconds": 1.0, "run_seconds": 9.0, "hardware": "a processor"}
    sizes = [{"model": run.name, "length": n, "length_b": n, "exact_match": exact_match} for n in (1, 3)]
    write_results([{**shared, **size} for size in sizes], folder / run.name / "results.jsonl")
    write_recipe(parse_run(run.command(folder / run.name)).recipe, folder / run.name / "recipe.yaml")


def test_finished_runs_are_gathered_and_changed_ones_trained_again(tmp_path):
    runs, results = TINY.runs, tmp_path / "results"
    finished(tmp_path / "out", runs[0])
    (tmp_path / "out" / runs[1].name / "checkpoints").mkdir(parents=True)
    training.gather(TINY, tmp_path / "out", results)
    assert training.missing_runs(TINY, results) == runs[1:]
    finished(tmp_path / "out", runs[2])
    # The folder of a gathered run may go.
    (tmp_path / "out" / runs[0].name / "results.jsonl").unlink()
    training.gather(TINY, tmp_path / "out", results)
    assert {row["model"] for row in read_results(results / "results.jsonl")} == {runs[0].name, runs[2].name}
    changed = replace(TINY, variants={**TINY.variants, "nope": {"num_hidden_layers": 2}})
    # The folder holds the run as it was before the change, which is not the one that the study asks for now.
    finished(tmp_path / "out", replace(runs[0], name="other"))
    (tmp_path / "out" / "other" / "results.jsonl").rename(tmp_path / "out" / runs[0].name / "results.jsonl")
    training.gather(changed, tmp_path / "out", results)
    assert {row["model"] for row in read_results(results / "results.jsonl")} == set()
    assert training.missing_runs(changed, results) == changed.runs


def test_a_variant_that_does_not_fit_has_no_reach(tmp_path):
    for run in TINY.runs:
        finished(tmp_path / "out", run, exact_match=0.9 if run.name.startswith("nope") else 1.0)
    training.gather(TINY, tmp_path / "out", tmp_path)
    nope, coupled = study_table(TINY, read_results(tmp_path / "results.jsonl")).splitlines()[2:4]
    assert nope.startswith("| nope | 1 to 2 | 0.900 |") and "| not fitted |" in nope
    assert "| >= 3 |" in coupled and "| 4 | 9 |" in coupled


@pytest.mark.slow
def test_a_study_trains_what_is_missing_and_shows_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "load_study", lambda name: replace(TINY, seeds=[0]))
    monkeypatch.setattr(training, "RESULTS", tmp_path / "results")
    options = {"jobs": 2, "only": None, "print_only": False, "output_dir": tmp_path / "out"}
    training.run("tiny", **{**options, "print_only": True})
    commands = capsys.readouterr().out.splitlines()
    assert len(commands) == 2 and all(line.startswith("OMP_NUM_THREADS=1 python train.py addition-") for line in commands)
    training.run("tiny", **options)
    printed = capsys.readouterr().out
    assert "2 to train" in printed and printed.count("exact match 1: ") == 2 and "| coupled | 1 to 2 |" in printed
    training.run("tiny", **options)
    assert "0 to train" in capsys.readouterr().out
    assert (tmp_path / "results" / "tiny" / "accuracy.png").exists()
