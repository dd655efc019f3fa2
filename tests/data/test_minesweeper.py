import itertools
from math import ceil, floor

import numpy as np
import pytest
import torch

from longhand.data import CouplingCollator, FreshBatches, Minesweeper, make_generator
from longhand.data.columns import RowStructure, rows_of
from longhand.data.tasks.registry import build_tokenizer
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import coupled_pair_map
from longhand.modeling.vocabulary import BOS, EQUALS, PAD, decode

RULE = COUPLING_RULES["minesweeper_next_cell"]


def write(task, *rows):
    """The text of one problem, from rows of `M` and `_`."""
    boards = np.array([[[cell == "M" for cell in row] for row in rows]], dtype=np.uint8)
    return decode(task.format(boards, np.array([[len(row) for row in rows]])).tokens[0])


def test_board_and_solution_are_written_row_by_row():
    assert write(Minesweeper(), "M__", "__M") == "$M__>__M=M2112M$"
    assert write(Minesweeper(separate_eos=True), "_M_M") == "$_M_M=1M2M<eos>"
    assert write(Minesweeper(), "_", "M", "M") == "$_>M>M=1MM$"
    assert write(Minesweeper(), "MMM", "M_M", "MMM") == "$MMM>M_M>MMM=MMMM8MMMM$"
    assert write(Minesweeper(), "_") == "$_=0$"


def test_a_board_without_separators_is_one_line_with_the_ids_of_its_cells():
    task = Minesweeper(separators=False)
    assert write(task, "M__", "__M") == "$M____M=M2112M$"
    boards = np.array([[[1, 0, 0], [0, 0, 1]]], dtype=np.uint8)
    lengths = np.array([[3, 3]])
    columns, rows = [0, 2, 3, 4, 2, 3, 4, 1, 2, 3, 4, 2, 3, 4, 0], [0, 2, 2, 2, 3, 3, 3, 1, 2, 2, 2, 3, 3, 3, 0]
    examples = task.format(boards, lengths)
    assert CouplingCollator(task.coupling, 99)(examples)["position_ids"].tolist() == [[columns, rows]]
    written = rows_of(task).columns(task, boards, lengths, None, RowStructure(position_ids=True))
    assert written["position_ids"].to_pylist() == [[columns, rows]]
    # Rules that read any text number the tokens as ever.
    assert CouplingCollator("sequential", 99)(examples)["position_ids"].tolist() == [[list(range(15))]]


def test_flat_boards_of_several_sizes_in_one_batch_have_their_own_ids():
    task = Minesweeper(separators=False)
    collator = CouplingCollator(task.coupling, 15, "random_start")
    batches = FreshBatches(task, 2, 4, 0, mixed=True, collator=collator, batch_size=32, num_batches=1)
    batch = batches[0]
    alone = CouplingCollator(task.coupling, 15)
    for tokens, ids in zip(batch["input_ids"], batch["position_ids"], strict=True):
        equals = int((tokens == EQUALS).int().argmax())
        response, query = ids[:, equals + 1 : 2 * equals], ids[:, 1:equals]
        assert torch.equal(response, query) and len(set(zip(*query.tolist(), strict=True))) == equals - 1
        assert (ids[:, 2 * equals :] == 0).all()
    square = task.format(np.zeros((1, 3, 3), dtype=np.uint8), np.full((1, 3), 3))
    planned = COUPLING_RULES[task.coupling].plan(torch.from_numpy(square.tokens).long(), square.tokens.shape[1])
    assert torch.equal(alone(square)["position_ids"], planned.position_ids)


@pytest.mark.parametrize(("question", "shape"), [
    ("M__M", None), ("M_ _M", (2, 2)), ("M_>_M=", (2, 2)), ("M__>__M", (3, 2)), ("M M _ _", (1, 4)),
])  # fmt: skip
def test_a_question_that_tells_rows_apart_gives_the_ids_of_its_cells(question, shape):
    task = Minesweeper(separators=False)
    assert task.prompt(question) == "".join(cell for cell in question if cell in "M_") + "="
    ids = task.question_ids(question)
    if shape is None:
        # Then the rule takes the board for a square.
        assert ids is None
        return
    width, height = shape
    drawn = task.format(np.zeros((1, height, width), dtype=np.uint8), np.full((1, height), width))
    assert torch.equal(ids, CouplingCollator(task.coupling, 15)(drawn)["position_ids"])


def test_a_model_of_flat_boards_answers_with_the_ids_of_the_question():
    """A random model answers what it decodes greedily with the ids of this board, and not with those of another form."""
    task = Minesweeper(separators=False)
    torch.manual_seed(1)
    config = CoupledGPTConfig(
        hidden_size=32, num_attention_heads=2, num_hidden_layers=1, coupling=task.coupling, max_position_ids=9, init="fan_in"
    )
    model, tokenizer = CoupledGPTForCausalLM(config).eval(), build_tokenizer(tokens=task.tokens)
    with torch.no_grad():
        for table in model.model.position_encoding.parameters():
            # Ids decide what a model with first weights writes.
            table *= 100

    def answer(question):
        return task.family.answer(task, model, tokenizer, question)

    ids = task.question_ids("M__>__M")
    inputs = tokenizer("M____M=", return_tensors="pt")
    written = model.generate(**inputs, position_ids=ids, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert answer("M__>__M") == tokenizer.decode(written, skip_special_tokens=True)
    assert answer("M__>__M") != answer("M_>__>_M")
    with pytest.raises(ValueError, match="a square board"):
        answer("M____M")


def test_width_and_height_are_uniform_and_independent():
    task = Minesweeper()
    lengths = task.sample_lengths(make_generator(0), 60_000, 3, 5)
    assert lengths.shape == (60_000, 5)
    sizes = task.sizes(lengths)
    widths, heights = sizes.T
    assert np.array_equal(lengths, np.where(np.arange(5) < heights[:, None], widths[:, None], 0))
    counts = np.bincount((widths - 3) * 3 + heights - 3, minlength=9)
    assert len(counts) == 9 and np.abs(counts - 60_000 / 9).max() <= 4.5 * (60_000 / 9) ** 0.5


@pytest.mark.parametrize(
    ("width", "height", "low", "high"),
    [(5, 5, 0.1, 0.25), (5, 4, 0.1, 0.25), (1, 2, 0.0, 1.0), (10, 7, 0.1, 0.15), (3, 1, 0.5, 0.5), (1, 1, 0.1, 0.25),
     (4, 4, 0.0, 0.0), (2, 3, 1.0, 1.0)],
)  # fmt: skip
def test_number_of_mines_is_uniform_and_so_are_their_places(width, height, low, high):
    count = 40_000
    lengths = np.tile((width,) * height, (count, 1))
    boards = Minesweeper(min_mine_ratio=low, max_mine_ratio=high).draw_operands(make_generator(0), lengths)
    cells = width * height
    most = floor(round(high * cells, 6))
    expected = range(min(ceil(round(low * cells, 6)), most), most + 1)
    mines, counts = np.unique(boards.sum(axis=(1, 2), dtype=int), return_counts=True)
    assert mines.tolist() == list(expected)
    share = count / len(expected)
    assert np.abs(counts - share).max() <= 4.5 * share**0.5
    share = (expected[0] + most) / 2 / cells
    assert np.abs(boards.mean(axis=0) - share).max() <= 4.5 * (share * (1 - share) / count) ** 0.5
    if cells > 1:
        # Two cells both hold mines as often as they do among all choices of so many places.
        share = np.mean([number * (number - 1) / (cells * (cells - 1)) for number in expected])
        both = (boards.reshape(count, -1)[:, 0] & boards.reshape(count, -1)[:, -1]).mean()
        assert abs(both - share) <= 4.5 * (share * (1 - share) / count) ** 0.5


@pytest.fixture(scope="module")
def covering():
    """Every listed neighbourhood and the tokens that are right next there, as `neighbourhoods` writes them."""
    (listed,) = Minesweeper().covering(RULE.relations, 1).batches
    found = {}
    for own, keys, right in zip(listed.tokens.tolist(), listed.keys, listed.right.tolist(), strict=True):
        seen = sorted(
            (relation, key) for relation, key in zip(listed.relations.tolist(), keys.tolist(), strict=True) if key != PAD
        )
        relations, tokens = zip(*seen, (len(RULE.relations), BOS), strict=True)
        found.setdefault((relations, own, *tokens), set()).add(right)
    return found


def neighbourhoods(boards, lengths, found=None):
    """From every neighbourhood of boards of one size to the tokens that are right next."""
    found = {} if found is None else found
    examples = Minesweeper().format(boards, lengths)
    tokens, first = torch.from_numpy(examples.tokens).long(), int(examples.query_lengths[0]) - 1
    ids = RULE.plan(tokens[:1], tokens.shape[1]).position_ids
    seen = coupled_pair_map(ids, ids, RULE.relations, windowed=True)[0]
    for column in range(first, tokens.shape[1] - 1):
        keys = [key for key in range(column + 1) if seen[column, key] >= 0]
        # A row of tokens and relations: sorted by relation they are a multiset, for no relation occurs twice.
        relations = seen[column, keys]
        assert len(relations.unique()) == len(keys)
        order = relations.argsort()
        rows = torch.cat([tokens[:, column : column + 1], tokens[:, keys][:, order]], dim=1)
        label = tuple(relations[order].tolist())
        for row in torch.cat([rows, tokens[:, column + 1 : column + 2]], dim=1).unique(dim=0).tolist():
            found.setdefault((label, *row[:-1]), set()).add(row[-1])
    return found


@pytest.mark.parametrize(
    ("width", "height"),
    [*itertools.product(range(1, 5), repeat=2), (1, 9), (9, 1), (2, 8), (9, 8)],
)
def test_boards_of_every_size_have_no_other_neighbourhoods(covering, width, height):
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
        task = Minesweeper(min_mine_ratio=low, max_mine_ratio=high)
        lengths = np.tile(task.operand_lengths(width, height), (100, 1))
        found = neighbourhoods(task.draw_operands(make_generator(width, height), lengths), lengths)
        assert all(covering[seen] == right for seen, right in found.items())


@pytest.mark.parametrize(
    "question", ["M__>__M", "M__>__M=", " M__ > __M = ", "M__ __M", "M__\n__M\n", "M__ \r\n__M", "M__>\n__M"]
)
def test_rows_of_a_question_may_be_parted_in_several_ways(question):
    task = Minesweeper()
    assert task.prompt(question) == "M__>__M="
    assert task.prompt(question) == write(task, "M__", "__M")[1:8] + "="


def test_fewest_mines_must_not_be_more_than_the_most():
    with pytest.raises(ValueError, match=r"min_mine_ratio must not be above max_mine_ratio, got 0.3 and 0.25"):
        Minesweeper(min_mine_ratio=0.3)
