"""Coupling rules: position ids from the query's tokens."""

import inspect
import re
from collections import ChainMap

import pytest
import torch
from task_subjects import FORMATS, FURTHER_FORMATS, draw_group, text_of

from longhand import CoupledGPTConfig
from longhand.data import Addition, ColumnTask, SignedSubtraction
from longhand.data.tasks.registry import build_tokenizer
from longhand.modeling.coupling import COUPLING_RULES, any_text_rules, shift_position_ids
from longhand.modeling.relations import ONLY_QUERY, coupled_pair_map
from longhand.modeling.vocabulary import ALL_TOKENS, PAD, UNKNOWN

RULES = list(COUPLING_RULES)
PADDED_SUM_RULES = ("multi_operand_addition", "multi_operand_addition_marked_top")
ADDITION_RULES = ["addition", "addition_all_reversed", "addition_plain"]
SUBTRACTION_RULES = ["subtraction", "signed_subtraction"]
MULTIPLICATION_RULES = [
    "multiplication",
    "multiplication_by_digits",
    "multiplication_marked_top",
    "multiplication_scratchpad",
]
MINESWEEPER_RULES = ["minesweeper", "minesweeper_next_cell"]
FLAT_BOARDS = ["minesweeper_flat"]
STRING_RULES = ["copy", "reverse"]


class Sums(ColumnTask):
    name, operands, sign, flush = "sums", 2, "+", 1

    def step(self, carry, symbols):
        return (sum(symbols) + carry) % 10, (sum(symbols) + carry) // 10


TABLE = ChainMap({"columns": Sums().rule}, COUPLING_RULES)
"""The rules, with the rule `columns` for the table of a task."""

TASK_OF = {
    rule: task
    for task in [*FURTHER_FORMATS, *FORMATS]
    for rule in (*getattr(task, "couplings", ()), *getattr(task, "further_couplings", ()))
}
TASK_OF |= {
    "addition_all_reversed": Addition(zero_padding=False, order="all_reversed"),
    "columns": Sums(),
    "calculator": SignedSubtraction(),
}


def queries(rule: str, *lengths: int) -> list[str]:
    """Drawn queries of these lengths of a task that has the rule, padded on the left to one width with `.`."""
    task = TASK_OF.get(rule, Addition())
    texts = []
    for place, length in enumerate(lengths):
        examples = task.format(*draw_group(task, length, 1, seed=place))
        texts.append(text_of(task, examples.tokens[0][: examples.query_lengths[0]]))
    return [text.rjust(max(map(len, texts)), ".") for text in texts]


SYMBOLS = {".": PAD, "?": UNKNOWN}


def encode(*texts: str) -> torch.LongTensor:
    """Token ids of texts of one length, `$` written out; `.` is padding and `?` an unknown token."""
    return torch.tensor([[SYMBOLS[c] if c in SYMBOLS else ALL_TOKENS.index(c) for c in text] for text in texts])


def ids_of(rule: str, text: str, columns: int | None = None) -> torch.LongTensor:
    return TABLE[rule].plan(encode(text), columns or len(text)).position_ids[0]


def drawing(rule: str) -> tuple[str, list[list[int]], int]:
    """Tokens, ids (a list for each level) and start that a rule's docstring shows."""
    text = inspect.getdoc(COUPLING_RULES[rule].plan)
    tokens, ids = re.search(r"^ *\$((?: \S)+)((?:\n *\d+(?: \d+)*)+)$", text, re.M).groups()
    ids = [[int(value) for value in line.split()] for line in ids.strip().splitlines()]
    start = re.search(r"With start (\d+)", text)
    return "$" + tokens.replace(" ", ""), ids, int(start[1]) if start else 1


@pytest.mark.parametrize("rule", RULES)
def test_docstring_drawing_is_what_the_rule_computes(rule):
    text, expected, start = drawing(rule)
    assert shift_position_ids(ids_of(rule, text), torch.tensor(start - 1)).tolist() == expected


@pytest.mark.parametrize("start", [1, 7])
@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_addition_is_the_general_formula_of_the_paper(length, start):
    def formula(i):
        if i == 1:
            return 0
        if i <= length + 2:
            return start + i - 1
        if i <= 2 * length + 3:
            return start + i - length - 2
        return start + 3 * length + 4 - i

    text = "$" + "9" * length + "+" + "8" * length + "="
    ids = shift_position_ids(ids_of("addition", text, 3 * length + 4), torch.tensor(start - 1))
    expected = [formula(i) for i in range(1, 3 * length + 5)]
    assert ids[0].tolist() == expected


@pytest.mark.parametrize("start", [1, 7])
@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 2), (4, 2), (2, 3), (5, 1)])
def test_multiplication_is_the_general_formula_of_the_paper(first, second, start):
    length = first + second

    def formula(i):
        if i == 1:
            return 0
        if i <= first + 2:
            return start + i - 2 + second
        if i <= length + 3:
            return start + i - 3
        return start - i + 3 + 2 * length

    text = "$" + "9" * first + "*" + "8" * second + "="
    ids = shift_position_ids(ids_of("multiplication", text, 2 * length + 4), torch.tensor(start - 1))
    assert ids[0].tolist() == [*(formula(i) for i in range(1, 2 * length + 4)), 0]
    assert COUPLING_RULES["multiplication"].plan(encode(text), 1).response_length == length + 1


@pytest.mark.parametrize("second", [1, 2, 3])
@pytest.mark.parametrize("first", [1, 2, 7])
def test_marked_top_puts_a_digit_or_a_marker_in_the_columns_that_digits_of_a_product_look_at(first, second):
    text = f"${'6' * first}*{'4' * second}="
    by_column, by_digit = ids_of("multiplication_marked_top", text, len(text) + first + second)
    # `$`, `*`, A: the two columns above A, then A's own. The smallest id is 1, so that of `$` may be 0, which is none.
    dollar, *digits, star = by_column[: first + 2].tolist()
    assert [dollar, star, *digits] == list(range(second - 1, first + second + 1))
    assert by_column[len(text) :].tolist() == list(range(first + second, 0, -1))
    # A and the markers above it are alike at the second level, so that one relation finds either.
    assert (by_digit[: first + 2] == 0).all() and (by_digit[len(text) - 1 :] == second + 1).all()


@pytest.mark.parametrize("text", ["$01+09=", "$065+049=", "$0653+0049+0871="])
def test_marked_top_of_sums_puts_the_begin_token_above_the_top_column(text):
    columns = len(text) + text.index("+")
    plain, marked = (ids_of(rule, text, columns)[0] for rule in PADDED_SUM_RULES)
    assert marked.tolist() == [1, *(plain[1:] + (plain[1:] > 0)).tolist()]
    # Each token that predicts one of the response finds a token of the next column, the end token's too.
    for place in range(len(text) - 1, columns - 1):
        assert (marked[:place] == marked[place] - 1).any()


def test_response_lengths_of_a_batch_are_the_longest_ones():
    for rule in PADDED_SUM_RULES:
        assert COUPLING_RULES[rule].plan(encode("$065+049=", "$6+5+4+3="), 9).response_length == 4
    assert COUPLING_RULES["multiplication"].plan(encode("..$6*5=", "$65*49="), 7).response_length == 5


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 3), (3, 1), (2, 3), (5, 4)])
def test_minesweeper_couples_a_cell_of_the_board_with_its_solution_by_column_and_row(width, height):
    text = "$" + ">".join(["M" * width] * height) + "="
    length, cells = len(text), width * height
    columns, rows = ids_of("minesweeper", text, length + cells + 1)
    of_cells = [(column + 2, row + 2) for row in range(height) for column in range(width)]
    of_separators = [(1, row + 2) for row in range(1, height)]
    ids = list(zip(columns.tolist(), rows.tolist(), strict=True))
    assert [pair for pair, token in zip(ids, text, strict=False) if token == "M"] == of_cells
    assert [pair for pair, token in zip(ids, text, strict=False) if token == ">"] == of_separators
    assert (ids[0], ids[length - 1], ids[length:]) == ((0, 0), (1, 1), [*of_cells, (0, 0)])
    assert COUPLING_RULES["minesweeper"].plan(encode(text), 1).response_length == cells + 1


@pytest.mark.parametrize("side", [1, 2, 5])
def test_a_flat_board_has_the_ids_of_a_board_with_separators(side):
    flat, rows = f"${'M' * side**2}=", "$" + ">".join(["M" * side] * side) + "="
    separated = ids_of("minesweeper", rows, len(rows) + side**2 + 1)
    cells = [column for column in range(separated.shape[-1]) if column >= len(rows) or rows[column] != ">"]
    assert torch.equal(ids_of("minesweeper_flat", flat, len(flat) + side**2 + 1), separated[:, cells])
    assert COUPLING_RULES["minesweeper_flat"].plan(encode(flat), 1).response_length == side**2 + 1


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 3), (3, 1), (2, 3), (5, 4)])
def test_minesweeper_next_cell_shows_a_token_the_cells_around_the_one_that_comes_next(width, height):
    text = "$" + ">".join(["M" * width] * height) + "="
    begin = len(text) - 1
    rule = COUPLING_RULES["minesweeper_next_cell"]
    ids = rule.plan(encode(text), begin + width * height + 2).position_ids
    seen = coupled_pair_map(ids[..., begin:-1], ids, rule.relations, windowed=True)[0]
    for cell in range(width * height + 1):
        x, y = cell % width, cell // width
        expected = torch.full((seen.shape[1],), -1)
        expected[[0, -1]] = len(rule.relations)
        for column in range(max(x - 1, 0), min(x + 2, width)):
            for row in range(max(y - 1, 0), min(y + 2, height)):
                relation = rule.relations.index((x - column, y - row, ONLY_QUERY))
                expected[1 + row * (width + 1) + column] = relation
        assert torch.equal(seen[cell].long(), expected)


@pytest.mark.parametrize("rule", ADDITION_RULES)
@pytest.mark.parametrize(("first", "second"), [(5, 2), (2, 5), (1, 4)])
def test_operands_without_padding_keep_the_ids_of_their_significance(rule, first, second):
    longest = max(first, second)
    unpadded = ids_of(rule, "$" + "1" * first + "+" + "1" * second + "=", first + second + longest + 5)
    padded_text = "$" + "".join(
        operand.ljust(longest, "0") + sign if rule == "addition_all_reversed" else operand.rjust(longest, "0") + sign
        for operand, sign in (("1" * first, "+"), ("1" * second, "="))
    )
    padded = ids_of(rule, padded_text, 3 * longest + 5)
    present = [column for column in range(3 * longest + 5) if column >= len(padded_text) or padded_text[column] != "0"]
    assert torch.equal(unpadded, padded[:, present])


@pytest.mark.parametrize("rule", RULES)
def test_ids_of_a_row_depend_on_its_own_query_alone(rule):
    texts = queries(rule, 2, 3, 1, 3)
    alone = torch.stack([ids_of(rule, text, 13) for text in texts])
    for rows in (slice(None), slice(2)):
        assert torch.equal(
            TABLE[rule].plan(encode(*texts[rows]), 13).position_ids.expand(len(alone[rows]), -1, -1), alone[rows]
        )
    query = texts[1].lstrip(".")
    for rest in ("000000", "2070$.", "+=$9=1", "??????"):
        assert torch.equal(ids_of(rule, query + rest), ids_of(rule, query, len(query) + 6))
    for padding in (1, 3):
        expected = torch.nn.functional.pad(ids_of(rule, query, 13), (padding, 0))
        assert torch.equal(ids_of(rule, "." * padding + query, padding + 13), expected)
    # Rows of one layout share one row of ids.
    other = query.replace("M", "_") if rule in MINESWEEPER_RULES + FLAT_BOARDS else re.sub("[1-9]", "1", query)
    assert torch.equal(TABLE[rule].plan(encode(query, other), 11).position_ids, ids_of(rule, query, 11).unsqueeze(0))


@pytest.mark.parametrize("rule", ADDITION_RULES)
def test_response_length_counts_a_carry_and_the_end_token(rule):
    assert TABLE[rule].plan(encode("$7+653=", "$49+12="), 7).response_length == 5


def test_shifted_ids_wrap_on_the_ring_and_zero_stays():
    ids = torch.tensor([[0, 1, 2, 3, 4, 0]])
    assert shift_position_ids(ids, torch.tensor(3), 5).tolist() == [[0, 4, 5, 1, 2, 0]]
    assert shift_position_ids(ids, torch.tensor([[0], [5]]), 5).tolist() == ids.repeat(2, 1).tolist()


LARGEST = {
    **dict.fromkeys(ADDITION_RULES, "${0}+1="),
    **dict.fromkeys(PADDED_SUM_RULES, "$1{0}+1{0}="),
    **dict.fromkeys(SUBTRACTION_RULES, "${0}-{0}="),
    **dict.fromkeys(STRING_RULES, "${0}="),
    "division": "${0}/7=",
}
"""Queries of the size that a rule's capacity names; padded, if the operands of the rule are."""


@pytest.mark.parametrize("limit", [6, 13])
@pytest.mark.parametrize("rule", LARGEST)
def test_capacity_is_the_longest_operand_whose_ids_fit(rule, limit):
    longest = int(re.search(r"\d+", TABLE[rule].capacity(limit))[0])
    sizes = [int(ids_of(rule, LARGEST[rule].format("1" * length), 99).max()) for length in (longest, longest + 1)]
    assert sizes == [limit, limit + 1]


@pytest.mark.parametrize("limit", [6, 13])
@pytest.mark.parametrize("rule", MULTIPLICATION_RULES)
def test_capacity_of_multiplication_counts_both_operands(rule, limit):
    digits = int(re.search(r"(\d+) digits in all", TABLE[rule].capacity(limit))[1])
    for second in (1, 2, digits - 1):
        assert int(ids_of(rule, f"${'1' * (digits - second)}*{'1' * second}=", 500).max()) == limit


@pytest.mark.parametrize("limit", [2, 6])
@pytest.mark.parametrize("rule", MINESWEEPER_RULES)
def test_capacity_of_boards_is_their_most_rows_and_columns(rule, limit):
    rows, columns = map(int, re.findall(r"(\d+)", TABLE[rule].capacity(limit)))

    def largest(rows, columns):
        return int(ids_of(rule, "$" + ">".join(["_" * columns] * rows) + "=", 3 * (rows + 1) * (columns + 1)).max())

    assert [largest(rows, columns), largest(rows + 1, columns), largest(rows, columns + 1)] == [limit, limit + 1, limit + 1]


def test_capacity_of_sequential_ids_counts_the_tokens_after_the_first():
    tokens = int(re.search(r"(\d+) tokens", COUPLING_RULES["sequential"].capacity(9))[1])
    assert int(ids_of("sequential", "$1+1=", tokens + 1).max()) == 9


MALFORMED = [
    "$653049=", "$653+049", "$+049=", "$653+=", "$=", "$+=", "$65+3+4=", "$6-5=", "$65M+3=", "$6+$5=", "$$6+5=", "$=6+5",
    "653+049=", "1$65+4=", "$65..+4=", "$65+4..=", "$.65+4=", "....", "$",
]  # fmt: skip


FORMS = {
    **dict.fromkeys(ADDITION_RULES, MALFORMED),
    **dict.fromkeys(MULTIPLICATION_RULES, (*(text.replace("+", "*") for text in MALFORMED), "$65+49=", "$65*+9=")),
    **dict.fromkeys(PADDED_SUM_RULES, [text for text in MALFORMED if text != "$65+3+4="]
    + ["$653+49=", "$65+149=", "$65+49+1=", "$65+49+123=", "$65+49+=", "$+65+49=", "$65++49=", "$65+49-12=", "$65+49*12=",
       "$65+4912=", "$65+49", "$65=49+12=", "$65+49+1$="]),
    **dict.fromkeys(FLAT_BOARDS, (
        "$=", "$M_", "M=", "$M_=", "$M__=", "$M_>_M=", "$M__M_=", "$653+49=", "$M_$M_=", "$$M__=", ".M_MM=", "$M?MM=",
    )),
    **dict.fromkeys(STRING_RULES, ("$=", "$12", "$1+2=", "12=", "1$2=", "$12$=", "$1.2=", "...", "$M=")),
    "subtraction": ["$65+4=", "$65-=", "$-4=", "$6-5-4=", "65-4=", "$65-4", "$6-$4="],
    **dict.fromkeys(MINESWEEPER_RULES, (
        "$=", "$>=", "$M_", "M_=", "$M>=", "$>M=", "$M_>M=", "$M>M_=", "$MM>>MM=", "$M_>=", "$M_>M_>=", "$M_>3_=",
        "$653+49=", "$M_+__=", "$M_>_M>_=", "$M_$M_=", "$$M_=", ".M_=", "$M_..=", "$M_>_..=", "$.M_=", "$M_>M?=", "....",
    )),
}  # fmt: skip
"""Queries that a rule cannot read."""


@pytest.mark.parametrize("rule", FORMS)
def test_a_malformed_query_is_refused_and_shown(rule):
    for text in FORMS[rule]:
        with pytest.raises(ValueError, match=re.escape(repr(text.replace(".", "").replace("?", "<unk>")))):
            ids_of(rule, text)


@pytest.mark.parametrize("rule", ADDITION_RULES)
def test_the_malformed_row_of_a_batch_is_the_one_shown(rule):
    with pytest.raises(ValueError, match=re.escape("'$65-49='")):
        TABLE[rule].plan(encode("$65+49=", "$65-49=", "$65+49="), 7)


@pytest.mark.parametrize("rule", ADDITION_RULES)
def test_an_unknown_character_is_refused_with_the_form(rule):
    tokens = build_tokenizer()("65a+4=", return_tensors="pt").input_ids
    with pytest.raises(ValueError, match=re.escape("'$65<unk>+4='") + ".* outside the vocabulary.*" + re.escape("'$A+B='")):
        TABLE[rule].plan(tokens, 9)


def test_sequential_ids_refuse_unknown_characters_of_the_query():
    with pytest.raises(ValueError, match="outside the vocabulary"):
        COUPLING_RULES["sequential"].plan(encode("$6?+5="), 6)


# Rules of a user's own file.

RULE_FILE = """
import torch
from longhand.modeling.coupling import Plan, coupling_rule

@coupling_rule(levels=2, capacity=lambda ids: f"{ids} tokens", relations=((0, 1),), reads_any_text=True)
def toy(input_ids, columns):
    ids = torch.arange(1, columns + 1)
    return Plan(torch.stack([ids, ids]).unsqueeze(0), 3)
"""


@pytest.fixture
def forget_rules():
    """Rules that a test registers are forgotten after it."""
    rules = COUPLING_RULES.copy()
    yield
    COUPLING_RULES.clear()
    COUPLING_RULES.update(rules)


def test_a_rule_of_another_file_is_one_of_all_rules_and_may_be_imported_again(forget_rules):
    for _ in range(2):
        exec(RULE_FILE, {"__name__": "my_rules"})
    rule = COUPLING_RULES["toy"]
    assert (rule.name, rule.levels, rule.relations, rule.capacity(7)) == ("toy", 2, ((0, 1),), "7 tokens")
    assert any_text_rules() == ["sequential", "abacus", "toy"]
    assert CoupledGPTConfig(coupling="toy").position_levels == 2
    assert ids_of("toy", "$1=").tolist() == [[1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("taken", ["toy", "addition"])
def test_a_rule_whose_name_is_taken_is_refused(forget_rules, taken):
    exec(RULE_FILE, {"__name__": "my_rules"})
    before = COUPLING_RULES[taken]
    with pytest.raises(ValueError, match=rf"rule '{taken}' exists already, as .*: choose another name for other\.{taken}"):
        exec(RULE_FILE.replace("toy", taken), {"__name__": "other"})
    assert COUPLING_RULES[taken] is before


def test_relations_without_an_entry_for_every_level_are_refused(forget_rules):
    with pytest.raises(ValueError, match=r"rule 'toy' must have 2 entries, got \(0,\)"):
        exec(RULE_FILE.replace("((0, 1),)", "((0, 1), (0,))"), {"__name__": "my_rules"})
