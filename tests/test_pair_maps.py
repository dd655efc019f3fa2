"""Pair maps: relations between coupled ids."""

import inspect
import itertools
import re

import pytest
import torch

from longhand.modeling.relations import NOT_RELATED, coupled_neighbours, coupled_pair_map, num_coupled_relations

RANGES = [(0, 1), (-1, 2), (2, 2)]


def ids(*levels: list[int]) -> torch.LongTensor:
    return torch.tensor([levels])


def every_pair_of_ids(largest: int) -> torch.LongTensor:
    """(1, 2 levels, tokens): all pairs of ids from 0 to `largest`."""
    values = torch.arange(largest + 1)
    return torch.cartesian_prod(values, values).T.unsqueeze(0)


def test_docstring_drawing_is_what_the_function_computes():
    text = inspect.getdoc(coupled_pair_map)
    keys = [int(value) for value in re.search(r"query \\ key((?: +\d)+)", text)[1].split()]
    rows = re.findall(r"^ +(\d) {5,}((?:[B01.] {3}){3}[B01.])", text, re.M)
    symbols = {"B": 2, "1": 1, "0": 0, ".": NOT_RELATED}
    expected = [[symbols[symbol] for symbol in row.split()] for _, row in rows]
    assert len(rows) == 2
    computed = coupled_pair_map(ids([int(query) for query, _ in rows]), ids(keys), (0, 1), True)
    assert computed[0].tolist() == expected


@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("relation_range", RANGES)
def test_relations_depend_on_differences_only(relation_range, windowed):
    position_ids = every_pair_of_ids(6)
    moved = torch.where(position_ids > 0, position_ids + torch.tensor([[5], [17]]), 0)
    expected = coupled_pair_map(position_ids, position_ids, relation_range, windowed)
    assert torch.equal(coupled_pair_map(moved, moved, relation_range, windowed), expected)


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_clipped_differences_are_counted_from_the_lowest(low, high):
    query, key = torch.arange(1, 9), torch.arange(1, 9)
    expected = (query[:, None] - key).clamp(low, high) - low
    assert torch.equal(coupled_pair_map(query[None], key[None], (low, high), False)[0], expected.int())


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_window_hides_exactly_the_differences_outside_the_range(low, high):
    values = torch.arange(1, 9)
    difference = values[:, None] - values
    clipped = coupled_pair_map(values[None], values[None], (low, high), False)[0]
    windowed = coupled_pair_map(values[None], values[None], (low, high), True)[0]
    outside = (difference < low) | (difference > high)
    assert torch.equal(windowed, clipped.masked_fill(outside, NOT_RELATED))


@pytest.mark.parametrize("relation_range", RANGES)
def test_missing_ids_are_three_relations_of_their_own(relation_range):
    relations = coupled_pair_map(torch.tensor([[5, 0]]), torch.tensor([[5, 0, 4, 6]]), relation_range, False)[0]
    only_key, only_query, neither = relations[0, 1].item(), relations[1, 0].item(), relations[1, 1].item()
    assert len({only_key, only_query, neither}) == 3
    differences = coupled_pair_map(torch.arange(1, 9)[None], torch.arange(1, 9)[None], relation_range, False)
    assert not {only_key, only_query, neither} & set(differences.flatten().tolist())


@pytest.mark.parametrize("windowed", [True, False])
def test_missing_ids_differ_at_each_of_two_levels(windowed):
    keys = ids([0, 3, 0, 3], [2, 2, 0, 0])
    with_both = coupled_pair_map(ids([3], [2]), keys, (0, 1), windowed)[0, 0].tolist()
    with_second = coupled_pair_map(ids([0], [2]), keys, (0, 1), False)[0, 0].tolist()
    assert len(set(with_both)) == 4
    assert len(set(with_both + with_second)) == 8


@pytest.mark.parametrize(
    ("query", "key", "visible"),
    [
        (([3], [5]), ([3], [5]), True),
        (([3], [5]), ([3], [3]), False),
        (([3], [5]), ([0], [5]), True),
        (([3], [5]), ([0], [3]), False),
        (([3], [0]), ([0], [5]), False),
        (([0], [0]), ([3], [5]), False),
        (([3], [5]), ([0], [0]), True),
        (([0], [0]), ([0], [0]), True),
    ],
)
def test_window_of_two_levels_needs_a_shared_level_and_none_outside(query, key, visible):
    value = coupled_pair_map(ids(*query), ids(*key), (0, 1), True).item()
    assert (value != NOT_RELATED) == visible


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("relation_range", RANGES)
def test_relations_without_a_window_are_all_values_below_their_number(relation_range, levels):
    position_ids = every_pair_of_ids(6)[:, :levels]
    values = coupled_pair_map(position_ids, position_ids, relation_range, False).unique().tolist()
    assert values == list(range(num_coupled_relations(relation_range, levels)))


@pytest.mark.parametrize("relation_range", RANGES)
def test_window_only_replaces_values_by_not_related(relation_range):
    position_ids = every_pair_of_ids(4)
    free = coupled_pair_map(position_ids, position_ids, relation_range, False)
    windowed = coupled_pair_map(position_ids, position_ids, relation_range, True)
    assert torch.equal(windowed, torch.where(windowed == NOT_RELATED, NOT_RELATED, free))


def test_ids_without_a_level_axis_are_one_level():
    query, key = torch.tensor([[0, 2, 5], [4, 0, 1]]), torch.tensor([[0, 1, 2, 3], [5, 4, 3, 0]])
    flat = coupled_pair_map(query, key, (-1, 1), True)
    assert flat.dtype == torch.int32
    assert torch.equal(flat, coupled_pair_map(query[:, None], key[:, None], (-1, 1), True))


NEIGHBOUR_RANGES = [(0, 1), (-1, 1), (0, 0), (1, 2), (-2, -1)]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("relation_range", NEIGHBOUR_RANGES)
def test_neighbours_are_the_causal_and_present_pairs_of_the_pair_map(relation_range, levels, rows, padded):
    generator = torch.Generator().manual_seed(levels)
    key_ids = torch.randint(0, 6, (rows, levels, 40), generator=generator)
    key_ids *= torch.rand(key_ids.shape, generator=generator) < 0.8
    query_columns = torch.randperm(40, generator=generator)[:25]
    query_ids = key_ids[..., query_columns]
    present = torch.rand(rows, 40, generator=generator) < 0.7 if padded else None
    found = coupled_neighbours(query_ids, key_ids, query_columns, relation_range, present)

    expected = coupled_pair_map(query_ids, key_ids, relation_range, True)
    allowed = (torch.arange(40) <= query_columns[:, None]) & (present[:, None] if padded else True)
    expected = expected.masked_fill(~allowed, NOT_RELATED)
    related = expected != NOT_RELATED
    for row, query in itertools.product(range(rows), range(25)):
        columns, relations = found.columns[row, query], found.relations[row, query]
        count = int((columns >= 0).sum())
        assert columns[:count].tolist() == related[row, query].nonzero().flatten().tolist()
        assert relations[:count].tolist() == expected[row, query][related[row, query]].tolist()
        assert (columns[count:] == -1).all() and (relations[count:] == NOT_RELATED).all()
    assert found.columns.shape[2] == int(related.sum(-1).max())
    assert (found.columns.dtype, found.relations.dtype) == (torch.int64, torch.int32)


def test_selected_neighbours_are_those_of_the_selected_queries():
    position_ids = torch.tensor([[[0, 1, 2, 1, 2, 2, 1]]])
    columns = torch.arange(7)
    found = coupled_neighbours(position_ids, position_ids, columns, (0, 1))
    for chosen in (torch.tensor([6, 2]), torch.tensor([4])):
        again = coupled_neighbours(position_ids[..., chosen], position_ids, chosen, (0, 1))
        width = again.columns.shape[2]
        assert torch.equal(found.select(chosen).columns[..., :width], again.columns)
        assert (found.select(chosen).columns[..., width:] == -1).all()
    assert torch.equal(found.select(slice(-3, None)).relations, found.relations[:, 4:])


def test_neighbours_of_a_long_input_take_memory_linear_in_its_length():
    # The pair map of these tokens would take 10**12 integers.
    position_ids = torch.arange(1, 500_001).repeat(2)[None, None]
    found = coupled_neighbours(position_ids[..., -3:], position_ids, torch.arange(999_997, 1_000_000), (0, 1))
    expected = [[499_996, 499_997, 999_996, 999_997], [499_997, 499_998, 999_997, 999_998]]
    assert found.columns[0, :2].tolist() == expected
