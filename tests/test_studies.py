"""The command of the studies: their list, and names that are none."""

import json
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from test_locks import held_elsewhere

from longhand.eval import check_options, parse_arguments
from longhand.hub_cards.evaluation.results import read_results, write_results
from longhand.hub_cards.recipes import list_recipes, load_recipe, write_recipe
from longhand.hub_cards.research import pages as documents
from longhand.hub_cards.research import run as training
from longhand.hub_cards.research.__main__ import STUDIES, main
from longhand.hub_cards.research.study import RUNS_FILE, Study, list_studies, load_study
from longhand.hub_cards.research.study_pages import draw_study, study_block, study_table
from longhand.hub_cards.training.arguments import parse_run


def test_every_study_has_a_line_and_a_folder(capsys):
    main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*STUDIES, *list_studies()]
    assert all(re.search(r"[\w)][.?]$", line) and "None" not in line for line in lines)
    assert sorted(folder.parent.name for folder in documents.RESEARCH.glob("*/study.py")) == list(STUDIES)


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
    assert end.value.code == 0 and f"usage: python -m longhand.hub_cards.research {name}" in " ".join(
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
        parsed = parse_run([*run.command(Path("out") / run.name), "--use_cpu", "True"])
        assert min(parsed.data.test_lengths) <= parsed.data.max_length, run.name


@pytest.mark.parametrize("name", list_studies())
def test_results_of_a_study_are_of_its_present_runs(name):
    folder = training.RESULTS / name
    if not folder.exists():
        return
    recorded, runs = read_results(folder / RUNS_FILE), {run.name: run.record for run in load_study(name).runs}
    assert all(json.loads(json.dumps(runs[record["model"]])) == record for record in recorded)
    files = set(folder.rglob("*.jsonl")) - {folder / RUNS_FILE}
    models = {row["model"].removesuffix("/best") for file in files for row in read_results(file)}
    assert models == {record["model"] for record in recorded}
    # A file of an evaluation that the study does not have would be removed by its next run.
    assert {file.parent.name for file in files} - {name} <= {*load_study(name).evaluate, training.CERTIFICATES.parent.name}


@pytest.mark.parametrize("name", list_studies())
def test_every_evaluation_of_a_study_is_legal(name):
    for run in load_study(name).runs:
        for one in run.evaluations:
            check_options(parse_arguments(one.command(Path("out") / run.name)))


def test_every_study_with_results_is_on_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in documents.HUB_CARDS.glob("*.md"))
    shown = {*re.findall(r"(?:<!-- results studies/|### `)([\w-]+)", pages), "tasks"}
    assert {folder.name for folder in training.RESULTS.iterdir()} & set(list_studies()) <= shown


def test_a_file_with_an_unknown_or_missing_field_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("longhand.hub_cards.research.study.STUDIES_FOLDER", tmp_path)
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


def test_tables_show_last_checkpoints_and_best_ones_where_there_are_some():
    def row(model, length, exact_match):
        shared = {"num_samples": 4, "seed": 0, "hardware": "abacus", "run_seconds": 7.2, "token_accuracy": 0.5}
        return {"model": model, "length": length, "length_b": length, "exact_match": exact_match, **shared}

    last = [row("nope-seed0", 1, 1.0), row("nope-seed0", 3, 0.5)]
    best = [row("nope-seed0/best", 1, 0.9), row("nope-seed0/best", 3, 0.25)]
    assert "best" not in study_table(TINY, last) and "| nope | 1 to 2 | 1.000 | 1.000 | 0.500 | 1 | 4 | 7 |" in study_table(
        TINY, last
    )
    both = study_table(TINY, last + best)
    assert "of the best checkpoint" in both and "| 1 | not fitted | 4 | 7 |" in both and "Fitted: at least 0.95" in both
    # Some measurements were made of best checkpoints only.
    alone = study_table(TINY, best, columns=("lengths",))
    assert "| nope |  |  |" in alone and "\nBest checkpoints, one seed, 4 problems per size" in alone
    assert "| nope | 0.500 |" in study_table(replace(TINY, lengths=[3]), last, measure="token_accuracy", columns=["lengths"])


def test_a_table_has_the_columns_that_the_study_names():
    study = replace(TINY, columns=["certified", "smallest margin", "exact match"])
    shared = {"num_samples": 4, "seed": 0, "hardware": "abacus", "run_seconds": 7.2, "length": 3, "length_b": 3}
    rows = [{**shared, "model": f"{run.name}", "exact_match": 0.75} for run in study.runs]
    checks = [{"model": "nope-seed0", "certified": True, "margin": 2.0, "predictions": 9},
              {"model": "nope-seed1", "certified": False, "margin": -1.0, "predictions": 9}]  # fmt: skip
    lines = study_table(study, rows, checks).splitlines()
    assert lines[0] == "| variant | certified | smallest margin | exact match |"
    assert lines[2] == "| nope | 1 of 2 | -1.00 | at least 0.750 to 3 |"
    assert lines[3] == "| coupled | cannot be |  | at least 0.750 to 3 |"
    with pytest.raises(ValueError, match=rf"study {TINY.name}: columns has 'margin'; choose among trained on, "):
        study_table(replace(TINY, columns=["margin"]), rows)


def test_tables_and_pictures_follow_from_the_sizes_that_were_measured(tmp_path):
    row = {"model": "nope-seed0", "task": "addition", "num_samples": 4, "seed": 0, "decode": "teacher_forced",
           "seconds": 1.0, "hardware": "abacus", "run_seconds": 7.2, "token_accuracy": 0.5, "exact_match": 0.5}  # fmt: skip
    grid = [{**row, "length": a, "length_b": b} for a in (1, 3) for b in (2, 4)]
    classes = [{**row, "length": 8, "length_b": b} for b in (1, 2, 3)]
    draw_study(TINY, grid, tmp_path / "grid.png")
    draw_study(TINY, classes, tmp_path / "classes.png")
    assert (tmp_path / "grid.png").exists() and (tmp_path / "classes.png").exists()
    (tmp_path / "cascades").mkdir()
    write_results(classes, tmp_path / "cascades" / "results.jsonl")
    table = study_block(TINY, tmp_path, "cascades")
    assert table.startswith("| variant | 1 | 2 | 3 | seconds |") and "4 sums of 8 digits by class" in table
    runs = study_block(TINY, tmp_path, "cascades", "runs")
    assert "| nope-seed0 | 8, 2 | 4 | teacher_forced | **0.500** |" in runs


@pytest.mark.parametrize(
    ("recipe", "arguments", "sizes"),
    [
        ("minesweeper", {}, (5, 9)),
        ("multiplication-2", {}, (1, 10)),
        ("multiplication-scratchpad", {}, (1, 5)),
        ("encoder-multiplication-3", {}, (5, 5)),
        ("encoder-addition", {"max_length": 7}, (7, 7)),
        ("addition-scratchpad", {}, (1, 6)),
        # A test of 8 is 8 numbers of 8 digits; training has 5 numbers at most.
        ("addition-scratchpad", {"max_length": 10, "max_operands": 5}, (1, 5)),
        ("paper-addition", {}, (1, 30)),
    ],
)
def test_trained_sizes_of_every_task_are_known(recipe, arguments, sizes):
    assert replace(TINY, recipe=recipe, arguments=arguments, variants={"own": {}}).trained_sizes("own") == sizes


def test_every_recipe_has_trained_sizes():
    for recipe in list_recipes():
        shortest, longest = replace(TINY, recipe=recipe, arguments={}, variants={"own": {}}).trained_sizes("own")
        assert 1 <= shortest <= longest, recipe


MEASURED = replace(
    TINY,
    evaluate={
        "long": [{"lengths": [4, 5], "num_samples": 2, "seeds": [0]}, {"lengths": 6, "num_samples": 3, "seeds": [0]}],
        "generated": [{"lengths": 2, "decode": "generate", "variants": ["nope"]}],
    },
)


def test_measurements_are_of_the_runs_that_the_study_names(tmp_path):
    long = ["long", "long"]
    measured = {run.name: [one.name for one in run.evaluations] for run in MEASURED.runs}
    assert measured == {
        "nope-seed0": [*long, "generated"], "coupled-seed0": long, "nope-seed1": ["generated"], "coupled-seed1": []
    }  # fmt: skip
    first, second, _ = MEASURED.runs[0].evaluations
    assert first.command(tmp_path)[1:5] == ["--lengths", "4,5", "--num_samples", "2"]
    assert first.folder(tmp_path) != second.folder(tmp_path)
    # A run without measurements is recorded as before there were any.
    assert MEASURED.runs[3].record == TINY.runs[3].record != MEASURED.runs[1].record


def test_results_of_a_recipe_that_has_changed_are_missing(tmp_path, monkeypatch):
    run, out, results = TINY.runs[0], tmp_path / "out", tmp_path / "results"
    finished(out, run)
    training.gather(TINY, out, results)
    assert run not in training.missing_runs(TINY, results)
    now = load_recipe(TINY.recipe)
    for changes, missing in (({"description": "words alone"}, False), ({"adam_beta2": 0.5}, True)):
        monkeypatch.setattr("longhand.hub_cards.research.study._recipe", lambda name, changes=changes: {**now, **changes})
        assert (run in training.missing_runs(TINY, results)) == missing


def test_a_run_of_a_version_without_an_argument_is_finished(tmp_path):
    run = TINY.runs[0]
    finished(tmp_path, run)
    recipe = load_recipe(str(tmp_path / run.name))
    assert recipe.pop("decay_steps") is None and training.is_finished(run, tmp_path / run.name)
    write_recipe(recipe, tmp_path / run.name / "recipe.yaml")
    assert training.is_finished(run, tmp_path / run.name)
    write_recipe({**recipe, "decay_steps": 2}, tmp_path / run.name / "recipe.yaml")
    assert not training.is_finished(run, tmp_path / run.name)


def test_a_run_is_finished_when_it_is_measured_and_its_measurements_are_gathered(tmp_path):
    run, out, results = MEASURED.runs[1], tmp_path / "out", tmp_path / "results"
    finished(out, run)
    training.gather(MEASURED, out, results)
    assert not results.exists() and not training.is_finished(run, out / run.name)
    rows = read_results(out / run.name / "results.jsonl")
    for number, one in enumerate(run.evaluations):
        one.folder(out / run.name).mkdir(parents=True)
        write_results([{**rows[0], "length": 10 + number, "length_b": 10}], one.folder(out / run.name) / "results.jsonl")
    training.gather(MEASURED, out, results)
    assert [row["length"] for row in read_results(results / "long" / "results.jsonl")] == [10, 11]
    assert training.missing_runs(MEASURED, results) == [MEASURED.runs[0], *MEASURED.runs[2:]]
    # Other options: what was measured with the former ones is not shown in their place.
    changed = replace(MEASURED, evaluate={"long": [{"lengths": 7, "num_samples": 2}]})
    training.gather(changed, out, results)
    assert not (results / "long" / "results.jsonl").exists() and len(training.missing_runs(changed, results)) == 4


def test_a_study_that_measures_what_it_does_not_have_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("longhand.hub_cards.research.study.STUDIES_FOLDER", tmp_path)
    text = "question: Is it odd?\nrecipe: addition\nvariants: {own: {}}\nevaluate:\n  long: {lengths: 9, %s}\n"
    (tmp_path / "odd.yaml").write_text(text % "variants: [other]")
    with pytest.raises(ValueError, match="evaluate long has variants 'other': choose from own"):
        load_study("odd")
    (tmp_path / "odd.yaml").write_text(text % "seeds: [3]")
    with pytest.raises(ValueError, match="evaluate long has seeds 3: choose from 0"):
        load_study("odd")


def test_a_run_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    def train(one, folder, deadline):
        if one == TINY.runs[0]:
            raise OSError("no space left")
        if one != TINY.runs[1]:
            finished(folder.parent, one)
        return "error: out of luck"

    monkeypatch.setattr(training, "train", train)
    assert sorted(training.train_all(TINY.runs, tmp_path, 2)) == ["coupled-seed0", "nope-seed0"]
    printed = capsys.readouterr().out
    assert "nope-seed0: failed: no space left" in printed and "coupled-seed0: failed: error: out of luck" in printed
    assert "nope-seed1: exact match 1: 1.000" in printed


def test_a_study_that_runs_in_another_process_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "load_study", lambda name: TINY)
    monkeypatch.setattr(training, "RESULTS", tmp_path / "results")
    with held_elsewhere(tmp_path / "out" / "tiny"), pytest.raises(ValueError, match="is in use by another process"):
        training.run("tiny", jobs=1, only=None, print_only=False, output_dir=tmp_path / "out")


def test_a_run_that_a_killed_study_left_behind_is_waited_for(tmp_path, capsys):
    with held_elsewhere(tmp_path / "run"):
        waiting = threading.Thread(target=training.wait_for, args=[tmp_path / "run"])
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive() and f"run: waits, {tmp_path / 'run'} is in use" in capsys.readouterr().out
    waiting.join()


@pytest.mark.parametrize("evaluate", [{}, {"certificates": [{"certify": True}]}])
def test_the_certificate_of_training_is_gathered_unless_an_evaluation_certifies(tmp_path, evaluate):
    one = replace(TINY, evaluate=evaluate).runs[0]
    measured = {"hardware": "a CPU", "run_seconds": 5.0}
    result = {"task": "addition", "decode": "generate", "length": 1, "length_b": 1, "num_samples": 1, "seed": 0}
    result |= {"exact_match": 1.0, "token_accuracy": 1.0, "seconds": 0.1}
    write_results([{"model": one.name, **result, **measured}], tmp_path / "results.jsonl")
    certificate = {"certified": True, "margin": 2.0, "ratio": 30.0, "statement": "It is right.", "proof": ["Because."]}
    (tmp_path / "certificate.json").write_text(json.dumps(certificate))
    rows = training.read_run(one, tmp_path).get(Path("certificates", "certificates.jsonl"), [])
    assert rows == ([] if evaluate else [{"model": one.name, "certified": True, "margin": 2.0, "ratio": 30.0, **measured}])


def test_settings_are_those_of_the_run_with_defaults():
    plain = replace(TINY, recipe="encoder-addition", arguments={}, variants={"own": {}})
    assert plain.setting("own", "max_steps") == 2000 and plain.setting("own", "adam_beta2") == 0.95
    assert TINY.setting("coupled", "max_steps") == 4 and TINY.setting("coupled", "loops") is None


@pytest.mark.thorough
def test_a_study_trains_what_is_missing_and_shows_it(tmp_path, monkeypatch, capsys):
    evaluate = {"long": [{"lengths": 4, "num_samples": 2}], "certificates": [{"certify": True, "variants": ["pairwise"]}]}
    variants = {"nope": {}, "pairwise": {"recipe": "addition", "until_certified": False}}
    study = replace(TINY, seeds=[0], variants=variants, evaluate=evaluate)
    monkeypatch.setattr(training, "load_study", lambda name: study)
    monkeypatch.setattr(training, "RESULTS", tmp_path / "results")
    options = {"jobs": 2, "only": None, "print_only": False, "output_dir": tmp_path / "out"}
    training.run("tiny", **{**options, "print_only": True})
    commands = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in commands] == [
        ["OMP_NUM_THREADS=1", "python", name] for name in ("train.py", "eval.py", "train.py", "eval.py", "eval.py")
    ]
    training.run("tiny", **options)
    printed = capsys.readouterr().out
    assert "2 to train" in printed and printed.count("exact match 1: ") == 2 and "| pairwise | 1 to 2 |" in printed
    assert "| certified |" in printed and "| 0 of 1 |" in printed
    results = tmp_path / "results" / "tiny"
    assert [row["num_samples"] for row in read_results(results / "long" / "results.jsonl")] == [2, 2]
    assert [row["model"] for row in read_results(results / "certificates" / "certificates.jsonl")] == ["pairwise-seed0"]
    training.run("tiny", **options)
    assert "0 to train" in capsys.readouterr().out
    assert (results / "accuracy.png").exists()
    # What was measured is lost, but not what was trained.
    shutil.rmtree(results)
    shutil.rmtree(study.runs[0].evaluations[0].folder(tmp_path / "out" / "tiny" / "nope-seed0"))
    training.run("tiny", **options)
    assert "2 runs, 1 to train" in capsys.readouterr().out and not training.missing_runs(study, results)
    log = (tmp_path / "out" / "tiny" / "nope-seed0.log").read_text()
    assert log.count("trained and evaluated") == 1


@pytest.mark.thorough
def test_the_papers_runs_begin_in_order_end_in_time_and_go_on(tmp_path, monkeypatch, capsys):
    small = {
        "max_steps": 2,
        "eval_steps": 1,
        "batch_size": 4,
        "num_train_samples": 50,
        "hidden_size": 16,
        "num_attention_heads": 2,
    }
    small |= {
        "intermediate_size": 16,
        "validation_lengths": [1],
        "validation_samples": 2,
        "test_lengths": [1],
        "test_samples": 2,
    }
    study = load_study("paper-scale")
    study = replace(study, arguments={**study.arguments, **small, "use_cpu": True}, evaluate={})
    monkeypatch.setattr(training, "load_study", lambda name: study)
    monkeypatch.setattr(training, "RESULTS", tmp_path / "results")
    options = {"jobs": 2, "only": ["sums", "encoder-sums-rpe"], "print_only": False, "output_dir": tmp_path / "out"}
    training.run("paper-scale", **options, minutes=0)
    assert "begins" not in capsys.readouterr().out
    training.run("paper-scale", **options, minutes=5)
    assert capsys.readouterr().out.count("exact match 1: ") == 2
    assert all((tmp_path / "out" / "paper-scale" / f"{name}-seed0" / "results.jsonl").exists() for name in options["only"])


def test_a_run_that_time_ends_did_not_fail(tmp_path, capsys):
    late = training.time.monotonic() + 0.2
    run = replace(TINY, arguments={**TINY.arguments, "max_steps": 100_000}).runs[0]
    assert training.train_all([run], tmp_path, 1, deadline=late) == []
    assert "time is up" in capsys.readouterr().out
