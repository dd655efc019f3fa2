"""Rules that people check: the functions agree with other implementations, and the machines with the functions."""

import random

import pytest

from longhand.data import learn_task
from longhand.hub_cards.research.theories import checked_rules
from longhand.hub_cards.research.theories.rules import RULES, as_text, draw, machine_answers


@pytest.mark.parametrize("name", RULES)
def test_a_rule_agrees_with_another_implementation(name):
    rule, function = RULES[name], getattr(checked_rules, name)
    if rule.named == "python-stdnum":
        pytest.importorskip("stdnum")
    other = rule.other()
    answers = set()
    for text in draw(rule, 3000, random.Random(1)):
        answers.add(as_text(function(int(text) if rule.alphabet is None else text)))
        assert as_text(function(int(text) if rule.alphabet is None else text)) == as_text(other(text)), text
    assert len(answers) > 1


@pytest.mark.parametrize("name", ["leap_year", "roman", "time_of_day", "from_gray", "password"])
def test_the_machine_of_a_rule_agrees_with_another_implementation(name):
    rule = RULES[name]
    learned = learn_task(getattr(checked_rules, name), alphabet=rule.alphabet, name=f"rule_{name}")
    texts = list(draw(rule, 3000, random.Random(2)))
    other = rule.other()
    assert machine_answers(learned, texts) == [as_text(other(text)) for text in texts]
