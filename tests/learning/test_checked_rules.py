"""Rules that people check: the functions agree with other implementations, and the models' tables with both."""

import random

import numpy as np
import pytest
from cases import all_but

from longhand.data import learn_task
from longhand.hub_cards.research.theories import checked_rules
from longhand.hub_cards.research.theories import rules as study
from longhand.hub_cards.research.theories.rules import RULES, compare, draw_words, implementation, near_misses, table_answers
from longhand.hub_cards.result_rows import read_results, write_results


@pytest.mark.parametrize("name", RULES)
def test_a_rule_agrees_with_another_implementation(name):
    rule, function = RULES[name], getattr(checked_rules, name)
    if rule.named == "python-stdnum":
        pytest.importorskip("stdnum")
    assert implementation(rule.other) is not function
    drawn = list(draw_words(rule, 3000, random.Random(1)))
    right = [text for text in drawn if rule.check(text) == "1"] or drawn
    close = [text for near in right[:20] for text in near_misses(near, rule.symbols)]
    answers = set()
    for text in [*drawn, *close]:
        value = function(int(text) if rule.alphabet is None else text)
        answers.add(value)
        assert rule.check(text) == (value if isinstance(value, str) else str(int(value))), text
    assert len(answers) > 1


def test_near_misses_are_all_changes_of_one_symbol_and_all_swaps_of_neighbours():
    changed, swapped = ["bba", "cba", "aaa", "aca", "abb", "abc"], ["baa", "aab"]
    assert list(near_misses("aba", "abc")) == changed + swapped
    assert list(near_misses("", "ab")) == []


LONG = ("time_of_day", "password", "roman")
"""Rules that take longest to learn."""


@pytest.mark.parametrize("name", ["from_gray", pytest.param("leap_year", marks=pytest.mark.release), *all_but(LONG, LONG)])
def test_the_table_of_a_rule_agrees_with_another_implementation(name):
    rule = RULES[name]
    learned = learn_task(getattr(checked_rules, name), alphabet=rule.alphabet, name=f"rule_{name}")
    at_random, near, first = compare(rule, learned.task, 3000)
    assert (at_random.cases, at_random.wrong, near.wrong) == (3000, 0, 0) and near.cases > 1000 and len(first) == 1000


@pytest.mark.thorough
def test_a_table_that_is_wrong_somewhere_is_found_out():
    """The comparison is of the table that a checkpoint holds: an entry that is changed is counted, with an example."""
    rule = RULES["time_of_day"]
    learned = learn_task(lambda text: checked_rules.time_of_day(text) or text == "24:00", alphabet=rule.alphabet, name="off")
    at_random, near, _ = compare(rule, learned.task, 30_000)
    assert at_random.wrong + near.wrong > 0 and "24:00: 1, not 0" in (at_random.example, near.example)


@pytest.mark.thorough
@pytest.mark.parametrize("name", all_but(["leap_year", "hex_color"], ["from_gray", "leap_year", "hex_color"]))
def test_answers_of_a_table_are_those_that_the_task_gives_to_questions(name):
    rule = RULES[name]
    task = learn_task(getattr(checked_rules, name), alphabet=rule.alphabet, name=f"asked_{name}").task
    texts = list(draw_words(rule, 60, random.Random(3)))
    answers = table_answers(task, texts)
    assert answers == [task.answer_to(text) for text in texts]
    assert np.unique(answers).size > 1


def test_the_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    made = []

    def row(name, cases, folder, seconds):
        made.append(name)
        if name == "bcd":
            raise KeyboardInterrupt
        return {"kind": "rule", "name": name, "verified": name != "roman", "cases": cases}

    monkeypatch.setattr(study, "rule_row", row)

    def run(*rules, cases=10):
        study.run(study.RuleOptions(output_dir=tmp_path, rules=list(rules), cases=cases), tmp_path / "rules.jsonl")

    with pytest.raises(KeyboardInterrupt):
        run("roman", "vin", "bcd")
    assert [row["name"] for row in read_results(tmp_path / "rules.jsonl")] == ["roman", "vin"]
    with pytest.raises(KeyboardInterrupt):
        run("roman", "vin", "bcd")
    assert made == ["roman", "vin", "bcd", "bcd"]
    # A row that says why a rule was refused, or of fewer texts, is made again.
    write_results([{"kind": "refused", "name": "vin"}], tmp_path / "rules.jsonl")
    run("vin")
    run("vin", cases=11)
    assert made[4:] == ["vin", "vin"]


def test_the_commands_of_all_rules_are_printed(tmp_path, capsys):
    study.run(study.RuleOptions(output_dir=tmp_path, cases=10, print=True), tmp_path / "rules.jsonl")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(RULES) == 21 and all("longhand.train columns --function" in line for line in lines)


@pytest.mark.release
def test_a_rule_becomes_a_verified_model(tmp_path):
    options = study.RuleOptions(output_dir=tmp_path, rules=["leap_year"], cases=2000, seconds=600.0)
    study.run(options, tmp_path / "rules.jsonl")
    (row,) = read_results(tmp_path / "rules.jsonl")
    assert row["certified"] and row["verified"] and row["wrong"] == row["near_wrong"] == row["asked_wrong"] == 0
