import json
import re
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

from longhand.data.metrics import METRICS
from longhand.hub_cards.metrics.exact_match_by_length.counting import wilson_interval
from longhand.hub_cards.recipes import load_recipe
from longhand.hub_cards.research.tables import TABLES, as_frame, generalizable_length
from longhand.hub_cards.result_rows import (
    describe_length,
    describe_worst,
    format_medians,
    format_table,
    median_interval,
    read_results,
    worst_verdict,
    write_results,
)


def result(**changes):
    row = {"model": "addition", "task": "addition", "length": 30, "length_b": 30, "exact_match": 0.5}
    row |= {"token_accuracy": 0.987654, "num_samples": 100, "seed": 0, "decode": "teacher_forced", "seconds": 12.34}
    return {**row, **changes}


@pytest.mark.parametrize(
    ("right", "count", "interval"),
    [
        (0, 10, (0.0, 0.2775)),
        (10, 10, (0.7225, 1.0)),
        (50, 100, (0.4038, 0.5962)),
        (8, 10, (0.4902, 0.9433)),
        (1, 1, (0.2065, 1.0)),
        (1000, 1000, (0.9962, 1.0)),
    ],
)
def test_wilson_interval_has_known_values(right, count, interval):
    assert wilson_interval(right, count) == pytest.approx(interval, abs=5e-5)


def test_median_interval_of_runs_holds_their_median_and_stays_among_them():
    values = [0.1, 0.8, 0.9, 0.95, 0.97, 0.99, 1.0, 1.0]
    low, high = median_interval(values)
    assert 0.1 <= low < 0.96 < high <= 1.0
    assert median_interval(values) == (low, high)


def test_results_are_read_back_as_written_and_leave_no_partial_file(tmp_path):
    file = tmp_path / "results.jsonl"
    rows = [result(), result(length_b=5, exact_match=1 / 3, model="größer")]
    write_results([result()] * 9, file)
    write_results(rows, file)
    assert read_results(file) == rows
    assert len(file.read_text(encoding="utf-8").splitlines()) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["results.jsonl"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"model": "addi', "a row must be one JSON object, got"),
        ("{}", "the result lacks model, task, decode, length, length_b"),
        (json.dumps(result(exact_match=float("nan"))), "numbers must be finite, got NaN"),
        (json.dumps(result(exact_match=1.5)), "exact_match must be a number from 0 to 1, got 1.5"),
        (json.dumps(result(answer_match=True)), "answer_match must be a number from 0 to 1, got True"),
        (
            json.dumps(result(seconds=0)).replace('"seconds": 0', '"seconds": 1e999'),
            "seconds must be a number from 0 to 900",
        ),
        (json.dumps(result(length="30")), "length must be a whole number from 0 to 9007199254740992, got '30'"),
        (json.dumps(result(length_b=10**30)), "length_b must be a whole number from 0 to 9007199254740992, got 1000"),
        (json.dumps(result(worst_problem="1\n2")), "worst_problem must be text in one line or null, got '1\\n2'"),
        (json.dumps(result(worst_tried=-1)), "worst_tried must be a whole number or null, got -1"),
        (json.dumps(result(worst_verdict="none")), "worst_verdict must be one of searched, proved, refuted, got 'none'"),
        (json.dumps(result(worst_lead="low")), "worst_lead must be a number or null, got 'low'"),
        (json.dumps(result(weights="a\nb")), "weights must be text in one line, got 'a\\nb'"),
    ],
)
def test_a_line_that_is_no_result_is_named(tmp_path, line, message):
    file = tmp_path / "results.jsonl"
    file.write_text(f"{json.dumps(result())}\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(f"{file}, line 2: {message}")):
        read_results(file)


def test_length_is_described_by_one_number_where_operands_agree():
    assert describe_length(result()) == "30"
    assert describe_length(result(length_b=5)) == "30, 5"


def test_the_table_holds_the_numbers_of_every_row_and_every_metric_in_columns_that_line_up():
    rows = [result(), result(model="a-much-longer-name", length=200, length_b=7, exact_match=1.0, answer_match=0.75)]
    header, *lines = format_table(rows).splitlines()
    assert header.split()[:2] == ["model", "size"] and all(metric.heading in header for metric in METRICS)
    assert lines[0].split() == ["addition", "30", "0.5000", "0.4038", "to", "0.5962", "0.987654", "100", "12.3"]
    assert lines[1].split()[:6] == ["a-much-longer-name", "200,", "7", "1.0000", "0.9630", "to"]
    assert "0.7500" in lines[1] and len({len(line) for line in (header, *lines)}) == 1
    assert "answer" not in format_table(rows[:1])


def test_the_table_says_what_a_search_for_the_worst_problem_found():
    found = {"worst_tried": 640, "worst_lead": 0.5, "worst_problem": "1+2=", "worst_answer": None, "worst_right": None}
    wrong = {**found, "worst_lead": -1.0, "worst_answer": "4", "worst_right": "3"}
    proved = {**found, "worst_tried": None, "worst_problem": None}
    table = format_table([result(**found), result(**wrong), result(**proved), result()])
    none, said, never, unasked = table.splitlines()[1:]
    assert "none found in 640, lowest lead 0.50" in none and "wrong: 1+2= answered 4" in said
    assert "none, proved" in never and "none" not in unasked and "wrong" not in unasked
    # Rows of earlier versions have no verdict.
    for older, verdict in ((found, "searched"), (wrong, "refuted"), (proved, "proved")):
        newer = {**older, "worst_verdict": verdict, "worst_tried": 640}
        assert describe_worst(newer) == describe_worst(older) and worst_verdict(older) == worst_verdict(newer) == verdict
    long = describe_worst(result(**{**wrong, "worst_problem": "9" * 600 + "="}))
    assert long.startswith("wrong: 999") and len(long) < 120


def test_medians_are_taken_for_each_length_over_checkpoints():
    rows = [result(exact_match=match, model=f"seed{i}") for i, match in enumerate((0.2, 0.9, 0.7))]
    rows.insert(1, result(length=200, length_b=5, exact_match=0.125))
    header, *lines = format_medians(rows).splitlines()
    assert "median exact match" in header
    assert lines[0].split() == ["30", "0.7000", "0.2000", "to", "0.9000", "3"]
    assert lines[1].split() == ["200,", "5", "0.1250", "0.1250", "to", "0.1250", "1"]


@pytest.mark.parametrize(
    ("matches", "expected"),
    [({10: 1.0, 20: 0.96, 30: 0.95, 40: 1.0}, 20), ({10: 0.5, 20: 1.0}, 0), ({10: 1.0, 20: 1.0}, 20)],
)
def test_generalizable_length_is_the_longest_before_the_median_falls_to_the_threshold(matches, expected):
    rows = [result(length=length, exact_match=match) for length, match in matches.items()]
    rows += [{**row, "exact_match": 0.0} for row in rows] + [{**row, "exact_match": 1.0} for row in rows]
    assert generalizable_length(as_frame(rows)) == expected


def test_recipe_with_a_base_is_the_base_with_changes(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("base: addition-short\ndescription: x\nmax_length: 7\n", encoding="utf-8")
    assert load_recipe(str(file)) == {
        **load_recipe("addition"),
        **load_recipe("addition-short"),
        "description": "x",
        "max_length": 7,
    }
    assert load_recipe("addition-short")["learning_rate"] == load_recipe("addition")["learning_rate"]
    file.write_text("base: exponentiation\n", encoding="utf-8")
    with pytest.raises(ValueError, match="recipe 'exponentiation' is unknown"):
        load_recipe(str(file))


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "\tx: 1", "", "- a\n- b\n", "addition"])
def test_a_recipe_that_maps_no_names_is_refused_by_the_name_of_its_file(tmp_path, text):
    file = tmp_path / "recipe.yaml"
    file.write_text(text, encoding="utf-8")
    for source in (file, tmp_path):
        with pytest.raises(ValueError, match=re.escape(str(file))):
            load_recipe(str(source))


@cache
def written() -> str:
    """The code that writes rows, studies, and results."""
    root = Path(__file__).parents[2]
    patterns = ("hub_cards/**/*.py", "hub_cards/**/*.yaml", "hub_cards/**/*.jsonl", "tests/benchmarks/*.py")
    files = [file for pattern in patterns for file in root.glob(pattern) if file.name != "tables.yaml"]
    return "".join(file.read_text(encoding="utf-8") for file in files)


def is_written(field: str) -> bool:
    """Whether something writes a field: in quotes, or before an `=` or a colon."""
    return any(f"{quote}{field}{quote}" in written() for quote in "\"'") or bool(re.search(rf"\b{field}[=:]", written()))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_the_pages_names_fields_that_something_writes(name):
    """A row that lacks a field leaves its cell empty, and so would a misspelled field."""
    table = TABLES[name]
    formats = [*table["columns"].values(), table.get("cell", ""), table.get("note", "")]
    named = {re.split(r"[.\[]", field)[0] for text in formats for _, field, _, _ in Formatter().parse(text) if field}
    unknown = [field for field in named if not is_written(field)]
    assert not unknown, f"{name} of tables.yaml names {', '.join(unknown)}, which no row has"
