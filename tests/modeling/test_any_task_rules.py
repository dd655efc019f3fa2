"""Coupling rules that plan ids for any task."""

import re

import numpy as np
import pytest
import torch
from position_subjects import tokenizer

from longhand.data import TASKS, CouplingCollator, make_generator
from longhand.data.formatting import Examples
from longhand.data.tasks.column_task import ColumnTask
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling.coupling import COUPLING_RULES, any_text_rules
from longhand.modeling.vocabulary import ALL_TOKENS, PAD, TOKENS


def examples_of(task, count=12, length=5) -> Examples:
    lengths = task.sample_lengths(make_generator(0), count, length, length)
    return task.examples(make_generator(1), np.tile(lengths[:1], (count, 1)), "train")


DECODER_TASKS = [name for name, task in TASKS.items() if issubclass(task, DecoderTask) and not issubclass(task, ColumnTask)]


@pytest.mark.parametrize("name", DECODER_TASKS)
def test_every_task_can_have_every_rule_for_any_task(name):
    examples = examples_of(TASKS[name]())
    for rule in any_text_rules():
        run = parse_run(["addition", "--task", name, "--coupling", rule, "--until_certified", "False"])
        assert run.config.coupling == rule
        batch = run.task.family.collator(run.config)(examples)
        assert batch["position_ids"].shape[1:] == (1, examples.tokens.shape[1])


@pytest.mark.parametrize("name", DECODER_TASKS)
def test_abacus_counts_the_digits_of_every_number(name):
    examples = examples_of(TASKS[name]())
    rows = CouplingCollator("abacus", 1)(examples)["position_ids"].expand(len(examples), -1, -1)
    for tokens, found in zip(examples.tokens, rows[:, 0].tolist(), strict=True):
        query, response = "".join(ALL_TOKENS[token] if token != PAD else "." for token in tokens).split("=", 1)
        numbers = re.findall("[0-9]+|[^0-9]", query)
        counted = [place if number.isdigit() else 0 for number in numbers for place in range(1, len(number) + 1)]
        if "<" in response:
            response = response[: response.index("<")] + "." * (len(tokens) - len(query) - 1 - response.index("<"))
        assert found == [*counted, 0, *range(1, len(response) + 1)]


@pytest.mark.parametrize(("text", "expected"), [("$12+3", [0, 1, 2, 0, 1, 1, 2, 3]), ("12=", [1, 2, 0, 1, 2, 3, 4, 5])])
def test_abacus_reads_texts_without_equals_sign_or_begin(text, expected):
    tokens = torch.tensor([[TOKENS.index(character) for character in text]])
    assert COUPLING_RULES["abacus"].plan(tokens, 8).position_ids.tolist() == [[expected]]


@pytest.mark.parametrize("rule", any_text_rules())
def test_rules_for_any_task_plan_a_response_as_long_as_the_query(rule):
    batch = tokenizer(["653+049=2070", "7+12=91"], padding=True, return_tensors="pt").input_ids
    plan = COUPLING_RULES[rule].plan(batch, 40)
    assert plan.response_length == 9
    for row, query in enumerate((9, 6)):
        begin = int((batch[row] != PAD).int().argmax())
        assert plan.position_ids[row, 0, begin + 2 * query - 1] == plan.largest_ids[row, 0]


def test_capacity_of_abacus_counts_the_response_and_its_end():
    digits = int(re.search(r"responses of (\d+) digits", COUPLING_RULES["abacus"].capacity(9))[1])
    tokens = tokenizer("1+1=", return_tensors="pt").input_ids
    assert int(COUPLING_RULES["abacus"].plan(tokens, 5 + digits + 1).position_ids.max()) == 9
