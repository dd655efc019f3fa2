"""A task is columns with ids: the rows of a task's runs have the ids that its coupling rule draws from the text."""

from collections import Counter

import numpy as np
import pytest
import torch
from neighbourhood_search import listed_neighbourhoods, neighbourhoods

from longhand.data.machines.columns import ABSENT, ANY_COLUMN
from longhand.data.tasks.encoder_addition import EncoderAddition
from longhand.data.tasks.encoder_multiplication import EncoderMultiplication
from longhand.data.tasks.registry import build_task
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import coupled_pair_map
from longhand.modeling.settling import find_answers
from longhand.modeling.transducer import OWN_RELATIONS
from longhand.modeling.vocabulary import EQUALS

WHOLE_TEXTS = [
    build_task("addition"),
    build_task("addition", order="all_reversed", separate_eos=True),
    build_task("addition", zero_padding=False),
    build_task("multi_operand_addition", operands=2),
    build_task("multi_operand_addition", operands=3),
    build_task("subtraction"),
    build_task("signed_subtraction"),
    build_task("copy"),
    build_task("reverse"),
    build_task("parity"),
    build_task("division"),
    build_task("multiplication", multiplier_length=1),
    build_task("multiplication", multiplier_length=2),
    build_task("base_addition", radix=10),
    build_task("plus_one"),
    build_task("comparison"),
    build_task("remainder", modulus=7),
]
"""Tasks of which a run is a whole problem."""

ROW_BY_ROW = [
    build_task("addition_scratchpad"),
    build_task("multiplication_scratchpad"),
    build_task("multiplication_scratchpad", radix=2),
]
"""Tasks of which a run is one row of a problem."""

ANY_WINDOW = (0, 1)
"""The window of tasks that have none of their own."""


def rule_of(task):
    return COUPLING_RULES["multiplication_by_digits"] if task.name == "multiplication" else task.rule


def named(tasks):
    return pytest.mark.parametrize("task", tasks, ids=lambda task: task.name)


def some_run(graph, generator) -> np.ndarray:
    """The labels (columns, words) of a run that is drawn, from the column before the first one to that behind the last."""
    vertex, run = 0, []
    while vertex != graph.end:
        edges = np.flatnonzero((graph.source == vertex) & (graph.target != 0))
        lasts = edges[graph.target[edges] == graph.end]
        # Every other time a run ends where it can.
        edges = lasts if len(lasts) and generator.integers(2) else edges
        edge = generator.choice(edges)
        run.append(graph.labels[edge])
        vertex = graph.target[edge]
    return np.array(run)


def cells_of(graph, run: np.ndarray) -> Counter:
    """The tokens of a run, each with its ids; a row of one token has it once."""
    cells = {}
    for row, ids in enumerate(graph.rows.ids):
        for column, labels in enumerate(run, -1):
            # Behind the last column of a row that is written comes the next token of the text, which is not in the row.
            is_behind = column == len(run) - 2 and row in graph.rows.written
            if labels[row] != ABSENT and not is_behind:
                one_for_all = ids(0) == ids(1)
                cells[row, None if one_for_all else column] = (int(labels[row]), ids(column))
    return Counter(cells.values())


def problem_of(task, graph, run: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The digits (1, operands, width), ones first, and lengths of the problem of a run."""
    words = []
    for row, ids in list(enumerate(graph.rows.ids))[: task.operands + (task.name == "multiplication")]:
        word = [label for label in run[1:-1, row].tolist() if 0 <= label <= 9]
        if ids(0) == ids(1):
            word = word[:1]
            if len(words) == 2:
                # The ones of a number whose tens come first in the text.
                word += words.pop()
        words.append(word)
    if not task.ones_come_first or task.name == "division":
        words = [word[::-1] for word in words]
    words = words[: task.operands]
    digits = np.zeros((1, task.operands, max(map(len, words))), dtype=np.uint8)
    for operand, word in enumerate(words):
        digits[0, operand, : len(word)] = word
    lengths = np.array([[len(word) for word in words]])
    if task.name == "multi_operand_addition":
        # The column above the operands is padding.
        digits, lengths = digits[:, :, :-1], lengths - 1
    return digits, lengths


@named(WHOLE_TEXTS)
def test_the_rows_of_a_run_have_the_ids_that_the_rule_draws(task):
    generator, compared = np.random.default_rng(0), 0
    for graph in task.runs(ordered=True):
        for _ in range(20):
            run = some_run(graph, generator)
            if len(run) > ANY_COLUMN // 4:
                continue
            examples = task.format(*problem_of(task, graph, run))
            text = torch.from_numpy(examples.tokens).long()
            drawn = rule_of(task).plan(text, text.shape[1]).position_ids[0].T.numpy()
            cells = cells_of(graph, run)
            # Differences alone matter, so the rule and the rows may count from different ids.
            (equals,) = (np.array(ids) for token, ids in cells if token == EQUALS)
            shift = drawn[text[0].tolist().index(EQUALS)] - equals
            expected = Counter()
            for (token, ids), count in cells.items():
                expected[token, tuple(np.where(np.array(ids) > 0, ids + shift, 0).tolist())] += count
            found = Counter((int(token), tuple(ids)) for token, ids in zip(text[0], drawn.tolist(), strict=True) if any(ids))
            assert not expected - found, f"{task.name}: rows have other ids than the rule draws"
            extra = found - expected
            digits = [token for token, _ in extra if token < 10]
            # The first row of a signed difference is listed apart from the second one.
            assert not digits or task.name == "signed_subtraction"
            compared += len(run)
    assert compared >= 30


# The list of products with two digits takes a minute.
@named([task for task in WHOLE_TEXTS + ROW_BY_ROW if getattr(task, "multiplier_length", 1) == 1])
def test_what_tokens_see_by_the_drawn_ids_is_what_they_see_by_the_ids_of_rows(task):
    window = task.known_window or ANY_WINDOW
    listed = set(listed_neighbourhoods(task.covering(window, 1)))
    generator, seen = np.random.default_rng(1), set()
    for length in (1, 2, 3, 5, 8):
        lengths = task.group_lengths(generator, np.array(task.operand_lengths(length)), 20, length)
        digits = task.draw(generator, lengths, "train") if length > 4 else task.draw_operands(generator, lengths)
        seen |= neighbourhoods(rule_of(task), task.format(digits, lengths), window)
    assert seen <= listed and len(seen) >= 8


@pytest.mark.parametrize("task", [EncoderAddition(), EncoderMultiplication(spill=True)], ids=lambda task: task.name)
def test_what_an_encoders_tokens_see_by_the_pair_map_is_what_they_see_by_ids_of_rows(task):
    window = task.settling_relations or task.settling_window
    relations = _answers(task).relations.tolist()
    first, second = task.settling_ids
    pairs = [(column, ids) for ids in (second, first) for column in (0, -1) if column == 0 or ids(0) != ids(1)]
    own = torch.tensor([second(0)]).T.unsqueeze(0)
    others = torch.tensor([ids(column) for column, ids in pairs]).T.unsqueeze(0)
    related = coupled_pair_map(own, others, window, windowed=True)[0, 0].tolist()
    assert sorted(related) == sorted(relations)


@named([build_task(f"settling_{name}") for name in ("base_addition", "comparison", "even_pairs", "remainder", "plus_one")])
def test_what_a_label_sees_of_operands_is_what_rows_of_ids_say(task):
    """The model's table names relations, columns and operands of each slot; the search finds them by the ids of rows."""
    (sight,) = task.sights
    found = [(OWN_RELATIONS + relation, *slot) for slot, relation in zip(sight.sees, sight.relations, strict=True)]
    assert found == task.transducer.label_slots
    assert max(relation for relation, _, _ in found) + 1 == task.transducer.label_relations


def _answers(task):
    first = [1, 2, 3] if task.name == "encoder_addition" else [7, 0, 0]
    digits = np.array([[first, [4, 5, 6]]], dtype=np.uint8)
    tokens = torch.from_numpy(task.write(digits, 4).tokens).long()
    return find_answers(task.settling_map, tokens, task.settling_window, 1)
