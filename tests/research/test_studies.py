"""The command of the studies: their list, and names that are none."""

import json
import re
import shutil
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest
from cases import drawn
from PIL import Image
from test_commands import held_elsewhere

from longhand.data.proofs.check import coverings
from longhand.eval import check_options, parse_arguments
from longhand.hub_cards.evaluation import plots
from longhand.hub_cards.evaluation.plots import WIDTH
from longhand.hub_cards.recipes import list_recipes, load_recipe, write_recipe
from longhand.hub_cards.research import pages as documents
from longhand.hub_cards.research import run as training
from longhand.hub_cards.research import study_pages
from longhand.hub_cards.research.__main__ import ARITHMETIC, GPU, STUDIES, is_measured, load_code, main
from longhand.hub_cards.research.study import RUNS_FILE, STUDY_RESULTS, Study, list_studies, load_study
from longhand.hub_cards.research.study_pages import (
    CERTIFICATES,
    draw_study,
    seeds_table,
    study_block,
    study_table,
)
from longhand.hub_cards.research.tables import as_frame, read_frame, render_table
from longhand.hub_cards.result_rows import RESULTS_FILE, read_results, write_results
from longhand.hub_cards.training.arguments import parse_run


def test_every_study_has_a_line_and_a_folder(capsys):
    main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*STUDIES, GPU, *list_studies()]
    assert all(re.search(r"[\w)][.?]$", line) and "None" not in line for line in lines)
    files = [
        file for room in ("theories", "structured") for file in (documents.HUB_CARDS / "research" / room).glob("[a-z]*.py")
    ]
    files = [file for file in files if re.search(r"^(def run\(|RESULTS = )", file.read_text(encoding="utf-8"), re.MULTILINE)]
    # What the script for a GPU measures too stands beside its other parts.
    assert sorted([ARITHMETIC, *(file.stem for file in files)]) == list(STUDIES)


def test_a_name_that_is_none_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit) as end:
        main(["rings"])
    printed = capsys.readouterr().err
    assert end.value.code == 2 and printed.count("\n") == 1 and "nope_ceiling" in printed


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


@pytest.mark.parametrize("name", drawn(list_studies(), 25))
def test_every_run_and_evaluation_of_a_study_is_legal_and_trained_sizes_are_tested(name):
    study = load_study(name)
    for run in study.runs[: len(study.variants)]:
        parsed = parse_run([*run.command(Path("out") / run.name), "--use_cpu", "True"])
        assert min(parsed.data.test_lengths) <= parsed.data.max_length, run.name
    for one in (one for run in study.runs for one in run.evaluations):
        check_options(parse_arguments(one.command(Path("out"))))
    for one in (one for measurements in study.evaluate.values() for one in measurements):
        assert {*one.get("variants", ())} <= {*study.variants} and {*one.get("seeds", ())} <= {*study.seeds}


@pytest.mark.parametrize("name", list_studies())
def test_results_of_a_study_are_of_its_present_runs(name):
    folder = training.STUDY_RESULTS / name
    if not folder.exists():
        pytest.skip("the study has not been run here")
    recorded, runs = read_results(folder / RUNS_FILE), {run.name: run.record for run in load_study(name).runs}
    assert all(json.loads(json.dumps(runs[record["model"]])) == record for record in recorded)
    files = set(folder.rglob("*.jsonl")) - {folder / RUNS_FILE}
    models = {row["model"].removesuffix("/best") for file in files for row in read_results(file)}
    assert models == {record["model"] for record in recorded}
    # A file of an evaluation that the study does not have would be removed by its next run.
    assert {file.parent.name for file in files} - {name} <= {*load_study(name).evaluate, CERTIFICATES.parent.name}


def test_the_study_that_a_page_shows_is_legal_and_its_results_are_of_it():
    present = {run.name: json.loads(json.dumps(run.record)) for run in documents.own_study().runs}
    if not documents.OWN.exists():
        pytest.skip("the study has not been run here")
    records = {record["model"]: record for record in read_results(documents.OWN / RUNS_FILE)}
    for record in (*records.values(), *present.values()):
        # The file of the encoding lies where the command ran.
        record["arguments"]["plugin"] = [Path(file).name for file in record["arguments"]["plugin"]]
    assert records.items() <= present.items()
    assert {row["model"].removesuffix("/best") for row in read_results(documents.OWN / RESULTS_FILE)} == {*records}


@pytest.mark.parametrize("name", [name for name in list_studies() if (STUDY_RESULTS / name / CERTIFICATES).exists()])
def test_certificates_of_a_study_are_about_what_the_search_lists_today(name):
    study = load_study(name)
    for variant, certificates in read_frame(STUDY_RESULTS / name / CERTIFICATES).groupby("variant"):
        run, rows = study.parse(variant), certificates.astype(object).where(certificates.notna(), None).to_dict("records")
        listed = sum(part.count for part in coverings(run.task.family.model_class(run.config), run.task))
        assert {row["neighbourhoods"] for row in rows} <= {listed, None}, variant
        # An earlier check made predictions in whole problems, some of them more than once.
        assert {row["predictions"] for row in rows if not row.get("problems")} <= {listed}, variant
        assert not any(row["neighbourhoods"] is None and row["certified"] for row in rows), variant


def test_every_study_with_results_is_on_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in documents.HUB_CARDS.glob("*.md"))
    # The block `proofs` is of the study of proved lengths.
    shown = {*re.findall(r"(?:<!-- results studies/|### `)([\w-]+)", pages), "tasks", study_pages.PROVED_LENGTHS}
    assert {folder.name for folder in training.STUDY_RESULTS.iterdir()} & set(list_studies()) <= shown


def test_every_command_and_picture_of_the_papers_figures_exists():
    page = (documents.HUB_CARDS / "PAPERS.md").read_text(encoding="utf-8")
    text = page.partition("## Figures")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| (?!figure or table|---)[^|]*\|([^|]*)\|([^|]*)\|[^|]*\|$", text, flags=re.MULTILINE)
    assert len(lines) == text.count("\n| ") - 2 * text.count("\n| figure or table ")
    known = {*STUDIES, *list_studies(), *list_recipes()}
    for command, ours in lines:
        names = {*re.findall(r"`research ([\w-]+)`", command), *re.findall(r"`(\w+(?:-\w+)+)`", command)}
        assert names <= known, names - known
        assert all((documents.HUB_CARDS / file).is_file() for file in re.findall(r"\]\(([^)#]+)", ours)), ours


def test_every_page_stands_in_the_index():
    index = documents.HUB_CARDS / "README.md"
    named = re.findall(r"^\| \[(\w+\.md)\]\(\1\) \|", index.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted([*named, index.name]) == sorted(page.name for page in documents.HUB_CARDS.glob("*.md"))


def measured(model, length, exact_match, length_b=None, **more):
    shared = {"task": "addition", "num_samples": 4, "seed": 0, "decode": "teacher_forced", "seconds": 1.0}
    shared |= {"hardware": "abacus", "run_seconds": 7.2, "token_accuracy": 0.5, **more}
    return {"model": model, "length": length, "length_b": length_b or length, "exact_match": exact_match, **shared}


def finished(folder, run):
    """Leave what a finished run of a study leaves."""
    (folder / run.name).mkdir(parents=True)
    write_results([measured(run.name, size, 1.0) for size in (1, 3)], folder / run.name / "results.jsonl")
    write_recipe(parse_run(run.command(folder / run.name)).recipe, folder / run.name / "recipe.yaml")


def cells(table):
    """The lines of a table by their first cell, as cells by heading."""
    header, _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line)
    return {line[0]: dict(zip(header, line, strict=True)) for line in lines}


def test_neighbouring_sizes_share_a_column_just_if_all_lines_have_them_alike():
    lines = [{"variant": "a", "1": "1.0", "2": "1.0", "3": "0.5", "4": "0.5", "steps": "0.5"},
             {"variant": "b", "1": "0.9", "2": "0.9", "3": "0.5", "4": "0.1", "steps": "0.1"}]  # fmt: skip
    joined = cells(render_table(lines))
    assert joined["a"] == {"variant": "a", "1, 2": "1.0", "3": "0.5", "4": "0.5", "steps": "0.5"}
    assert joined["b"] == {"variant": "b", "1, 2": "0.9", "3": "0.5", "4": "0.1", "steps": "0.1"}


def test_a_table_shows_everything_and_marks_what_does_not_fit():
    rows = [measured(f"{name}-seed{seed}", size, 0.9 if name == "nope" and size == 1 else 1.0 - seed / 2)
            for name in ("nope", "coupled") for size in (1, 3) for seed in (0, 0.01)]  # fmt: skip
    table = study_table(TINY, as_frame(rows))
    assert list(cells(table)) == ["nope", "coupled"] and "In italics" in table.splitlines()[-1]
    assert cells(table)["coupled"] | {"seeds that fit": "2 of 2", "reach": ">= 3"} == cells(table)["coupled"]
    assert "steps" not in cells(table)["coupled"] and re.search(r"In each row: .*steps 4\b", table)
    poor = {"1": "*0.900*", "3": "*0.998*", "reach": "not fitted"}
    assert cells(table)["nope"] | poor == cells(table)["nope"]
    assert list(cells(study_table(TINY, as_frame(rows[:4])))) == ["nope"], "a table of nothing that fits is a table"
    assert "*" not in study_table(TINY, as_frame(rows), measure="token_accuracy")


def test_a_line_for_each_run_has_no_mixture_of_tasks(tmp_path):
    tasks = {"addition": 0.25, "subtraction": 0.75}
    write_results(
        [{**measured("nope-seed0", 1, value), "task": task} for task, value in tasks.items()], tmp_path / "results.jsonl"
    )
    table = study_block(TINY, tmp_path, kind="runs")
    assert all(re.search(f"`{task}` .* {value:.3f} ", table) for task, value in tasks.items())


def test_a_table_of_seeds_counts_those_above_the_same_seed_of_the_first_variant():
    values = {"nope": (0.1, 0.5, 0.9), "coupled": (0.2, 0.4, 1.0)}
    rows = [
        measured(f"{name}-seed{seed}", size, value)
        for name, own in values.items()
        for seed, value in enumerate(own)
        for size in (1, 3)
    ]
    table = cells(seeds_table(TINY, as_frame(rows)))
    assert table == {
        "nope": {"variant": "nope", "3": "0.50 (0.10 to 0.90)"},
        "coupled": {"variant": "coupled", "3": "0.40 (0.20 to 1.00), 2 of 3 above"},
    }


def test_a_class_of_sums_is_no_trained_size(tmp_path):
    """Sums of 8 digits whose longest cascade has 2 columns are not sums of 2 digits."""
    tests = [measured("coupled-seed0", 2, 1.0), measured("nope-seed0", 2, 0.5)]
    classes = [measured(f"{name}-seed0", 8, 0.1, length_b=b) for name in ("coupled", "nope") for b in (1, 2, 3)]
    (tmp_path / "cascades").mkdir()
    write_results(tests, tmp_path / "results.jsonl")
    write_results(classes, tmp_path / "cascades" / "results.jsonl")
    table = study_block(TINY, tmp_path, "cascades")
    assert {name: line["1, 2, 3"] for name, line in cells(table).items()} == {"nope": "*0.100*", "coupled": "0.100"}
    assert len(cells(study_block(TINY, tmp_path, "cascades", "runs"))) == 2
    draw_study(TINY, as_frame(classes), tmp_path / "classes.png", as_frame(tests))
    grid = [measured("nope-seed0", a, 0.5, length_b=b) for a in (1, 3) for b in (2, 4)]
    draw_study(TINY, as_frame(grid), tmp_path / "grid.png")
    for name in ("grid.png", "classes.png"):
        assert Image.open(tmp_path / name).width == WIDTH * 150, "drawn in the house style"
    draw_study(TINY, as_frame(tests[1:]), tmp_path / "poor.png")
    assert Image.open(tmp_path / "poor.png").width == WIDTH * 150, "a picture of nothing that fits"


def test_a_picture_shows_what_does_not_fit_in_grey(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(plots, "save_figure", lambda figure, file: drawn.update({file: figure}))
    rows = [measured(f"{name}-seed0", size, value) for name, value in (("nope", 0.5), ("coupled", 1.0)) for size in (1, 3)]
    draw_study(TINY, as_frame(rows), tmp_path / "both.png")
    lines = {line.get_label(): line for line in drawn[tmp_path / "both.png"].axes[0].lines}
    assert {name: line.get_color() == plots.GREY for name, line in lines.items()} == {
        "coupled": False, "nope (not fitted)": True
    }  # fmt: skip
    assert list(lines["nope (not fitted)"].get_ydata()) == [0.5, 0.5]


def test_a_table_says_what_certificates_say_of_all_runs():
    checks = [{"model": f"nope-seed{seed}", "certified": not seed, "margin": 2.0 - 3 * seed,
               "predictions": 9, "neighbourhoods": 9 if not seed else None}
              for seed in (0, 1)]  # fmt: skip
    tests = as_frame([measured(run.name, 3, 0.75) for run in TINY.runs])
    text = study_table(TINY, tests, as_frame(checks))
    table = cells(text)
    said = {"certified": "1 of 2", "smallest margin": "-1.00", "lead / bound": ""}
    assert "worst exact match 0.750" in text, "it is the same of both variants"
    assert table["nope"].items() >= said.items() and table["coupled"]["certified"] == "cannot be"


@pytest.mark.parametrize(
    ("recipe", "arguments", "sizes"),
    [
        ("minesweeper", {}, (5, 9)),
        ("multiplication-scratchpad", {}, (1, 5)),
        ("encoder-multiplication-3", {}, (5, 5)),
        ("encoder-addition", {"max_length": 7}, (7, 7)),
        # A test of 8 is 8 numbers of 8 digits; training has 5 numbers at most.
        ("addition-scratchpad", {"max_length": 10, "max_operands": 5}, (1, 5)),
    ],
)
def test_trained_sizes_are_known(recipe, arguments, sizes):
    assert replace(TINY, recipe=recipe, arguments=arguments, variants={"own": {}}).trained_sizes("own") == sizes


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
    shutil.rmtree(out / run.name)  # The folder of a gathered run may go.
    finished(out, MEASURED.runs[3])
    training.gather(MEASURED, out, results)
    assert [row["length"] for row in read_results(results / "long" / "results.jsonl")] == [10, 11]
    assert {row["model"] for row in read_results(results / "results.jsonl")} == {run.name, MEASURED.runs[3].name}
    assert training.missing_runs(MEASURED, results) == [MEASURED.runs[0], MEASURED.runs[2]]
    # Other options: what was measured with the former ones is not shown in their place.
    changed = replace(MEASURED, evaluate={"long": [{"lengths": 7, "num_samples": 2}]})
    training.gather(changed, out, results)
    assert not (results / "long" / "results.jsonl").exists() and len(training.missing_runs(changed, results)) == 4


def test_a_run_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    def train(one, folder):
        if one == TINY.runs[0]:
            raise OSError("no space left")
        if one != TINY.runs[1]:
            finished(folder.parent, one)
        return "error: out of luck"

    monkeypatch.setattr(training, "train", train)
    assert sorted(training.train_all(TINY.runs, tmp_path, 2, lambda: None)) == ["coupled-seed0", "nope-seed0"]
    printed = capsys.readouterr().out
    assert "nope-seed0: failed: no space left" in printed and "coupled-seed0: failed: error: out of luck" in printed
    assert "nope-seed1: done" in printed


def test_a_study_that_runs_in_another_process_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "load_study", lambda name: TINY)
    monkeypatch.setattr(training, "STUDY_RESULTS", tmp_path / "results")
    with held_elsewhere(tmp_path / "out" / "tiny"), pytest.raises(ValueError, match="is in use by another process"):
        training.run(training.StudyOptions(output_dir=tmp_path / "out"), "tiny")


@pytest.mark.release
def test_a_study_trains_what_is_missing_and_shows_it(tmp_path, monkeypatch, capsys):
    proofs = {"certify": True, "lengths": "1:2", "budget": 5, "variants": ["nope"]}
    evaluate = {"long": [{"lengths": 4, "num_samples": 2}], "certificates": [{"certify": True, "variants": ["pairwise"]}]}
    evaluate["lengths"] = [proofs]
    variants = {"nope": {}, "pairwise": {"recipe": "addition", "until_certified": False}}
    study = replace(TINY, seeds=[0], variants=variants, evaluate=evaluate)
    monkeypatch.setattr(training, "load_study", lambda name: study)
    monkeypatch.setattr(training, "STUDY_RESULTS", tmp_path / "results")
    options = training.StudyOptions(jobs=2, output_dir=tmp_path / "out")
    training.run(options, "tiny")
    printed = capsys.readouterr().out
    assert "2 to train" in printed and printed.count(": done") == 2
    results = tmp_path / "results" / "tiny"
    assert [row["num_samples"] for row in read_results(results / "long" / "results.jsonl")] == [2, 2]
    assert [row["model"] for row in read_results(results / "certificates" / "certificates.jsonl")] == ["pairwise-seed0"]
    # Nobody trains a model of sums in four steps, so a wrong sum is known at each length.
    monkeypatch.setattr(study_pages, "STUDY_RESULTS", tmp_path / "results")
    lengths = study_pages.read_lengths(study)
    assert [(row["model"], row["length"], row["verdict"]) for row in lengths] == [
        ("nope-seed0", length, "refuted") for length in (1, 2)
    ]
    training.run(options, "tiny")
    assert "0 to train" in capsys.readouterr().out
    # What was measured is lost, but not what was trained.
    shutil.rmtree(results)
    shutil.rmtree(study.runs[0].evaluations[0].folder(tmp_path / "out" / "tiny" / "nope-seed0"))
    training.run(options, "tiny")
    assert "2 runs, 1 to train" in capsys.readouterr().out and not training.missing_runs(study, results)
    log = (tmp_path / "out" / "tiny" / "nope-seed0.log").read_text()
    assert log.count("trained and evaluated") == 1


def test_a_change_of_arguments_makes_a_run_missing_and_a_new_argument_does_not(tmp_path, monkeypatch):
    run, out, results = TINY.runs[0], tmp_path / "out", tmp_path / "results"
    finished(out, run)
    recipe = load_recipe(str(out / run.name))
    assert recipe.pop("decay_steps") is None
    for own, is_finished in ((recipe, True), ({**recipe, "decay_steps": 2}, False)):
        write_recipe(own, out / run.name / "recipe.yaml")
        assert training.is_finished(run, out / run.name) == is_finished
    write_recipe(recipe, out / run.name / "recipe.yaml")
    training.gather(TINY, out, results)
    now = load_recipe(TINY.recipe)
    for changes, missing in (({}, False), ({"description": "words alone"}, False), ({"adam_beta2": 0.5}, True)):
        monkeypatch.setattr("longhand.hub_cards.research.study._recipe", lambda name, changes=changes: {**now, **changes})
        assert (run in training.missing_runs(TINY, results)) == missing


@pytest.mark.parametrize("evaluate", [{}, {"certificates": [{"certify": True}]}])
def test_the_certificate_of_training_is_gathered_unless_an_evaluation_certifies(tmp_path, evaluate):
    one = replace(TINY, evaluate=evaluate).runs[0]
    write_results([measured(one.name, 1, 1.0)], tmp_path / "results.jsonl")
    certificate = {"certified": True, "margin": 2.0, "ratio": 30.0, "statement": "It is right.", "proof": ["Because."]}
    (tmp_path / "certificate.json").write_text(json.dumps(certificate))
    rows = training.read_run(one, tmp_path).get(Path("certificates", "certificates.jsonl"), [])
    row = {"model": one.name, "certified": True, "margin": 2.0, "ratio": 30.0, "hardware": "abacus", "run_seconds": 7.2}
    assert rows == ([] if evaluate else [row])


@pytest.mark.parametrize("name", STUDIES)
def test_what_draws_the_rows_of_a_study_takes_rows_and_a_file(name):
    code = load_code(name)
    if is_measured(code) and hasattr(code, "draw"):
        signature(code.draw).bind([], "picture.png")
