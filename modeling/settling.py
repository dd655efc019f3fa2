"""Encoders that settle: from pass to pass a token keeps its predicted label alone, and the answer is what stays.

Before the first pass no label is known (`?`). In sums, and in products with one digit, the answer is read at the operator
and at every token of the second number. A pass gives a label to a token whose carry is decided by what it sees, its own
column and the column below:

    tokens    1 6 4 + 2 3 5
    pass 1          _ ? ? 9      4 + 5 = 9 carries if a carry comes in; 6 + 3 = 9 too
    pass 2          _ ? 9 9      no carry comes in
    pass 3          _ 3 9 9

So a pass has an exact target whatever is known before it, and no gradient need flow from pass to pass. The number of passes
grows with the longest run of columns whose own digits do not decide their carries. In a grid (`encoder_maps.grid_keys`) a
pass gives labels to the cells whose neighbours have theirs, so labels spread from one corner to the other.
"""

# Used by: modeling_pairwise_bert.py, data, data/machines, data/proofs, data/proofs/windows, data/tasks,
# hub_cards/publishing. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .encoder_maps import (
    GRID,
    RULE_IDS,
    UNIFORM,
    grid_keys,
    multiplier_places,
    num_relations,
    operator_index,
    virtual_indices,
)
from .relations import NOT_RELATED, pack
from .structure import IGNORED
from .transducer import Transducer
from .vocabulary import BOS, ENCODER_TOKENS, EQUALS, GREATER, NOT_KNOWN, PAD, STATES, TIMES

MOST_TOKENS = 2**31 - 1
"""Tokens of a batch, all rows together."""

NO_STATE = -1
"""State of a token at which no answer is read."""


class AnswerTokens(NamedTuple):
    """The tokens at which answers are read, and what they see. Places are those in the flattened batch.

    Attributes:
        places: (answers,) the tokens, row by row.
        rows: (answers,) the row of each.
        keys: (answers, slots) places of what each token sees, itself included; -1 where there is nothing.
        relations: (slots,) the relation of each slot.
    """

    places: Tensor
    rows: Tensor
    keys: Tensor
    relations: Tensor


class LabelCases(NamedTuple):
    """Tokens, each with all that its next label depends on.

    Attributes:
        tokens: (cases,).
        states: (cases,) labels of the pass before; `NOT_KNOWN` for none yet, `NO_STATE` where no answer is read.
        keys: (cases, slots) the tokens that each one sees, itself included.
        key_states: (cases, slots).
        relations: (cases, slots), `NOT_RELATED` where there is no key.
    """

    tokens: Tensor
    states: Tensor
    keys: Tensor
    key_states: Tensor
    relations: Tensor


def find_answers(name: str, input_ids: Tensor, relation_range: Sequence[int], max_multiplier_length: int) -> AnswerTokens:
    """Find the tokens at which answers are read and what they see under a window, at a cost linear in the tokens.

    Args:
        name: the pair map's rule.
        input_ids: (batch, tokens).
        relation_range, max_multiplier_length: as for `encoder_maps.derive_pair_map`, whose related keys these are.

    Raises:
        ValueError: a row is not two numbers with an operator between them, or not a grid, its multiplier is too long, or the
            batch has more than `MOST_TOKENS` tokens.
    """
    if input_ids.numel() > MOST_TOKENS:
        raise ValueError(f"a batch may have {MOST_TOKENS:,} tokens, got {input_ids.numel():,}")
    indices = virtual_indices(input_ids)
    if name == GRID:
        seen = grid_keys(input_ids, indices)
        rows, columns = seen[..., 0].nonzero(as_tuple=True)
        find = _Finder(indices)
        slots = [(relation, find(rows, key[rows, columns])) for relation, key in enumerate(seen.unbind(-1))]
    else:
        rows, columns = (indices >= operator_index(input_ids, indices)).nonzero(as_tuple=True)
        slots = _keys_by_ids(name, input_ids, indices, (rows, columns), relation_range, max_multiplier_length)
    keys = torch.stack([found for _, found in slots], dim=1)
    relations = torch.tensor([relation for relation, _ in slots], device=keys.device)
    return AnswerTokens(rows * input_ids.shape[1] + columns, rows, keys, relations)


def _keys_by_ids(name, input_ids, indices, answers, relation_range, max_multiplier_length) -> list[tuple[int, Tensor]]:
    """Return the relation and the keys of every slot, for rules with ids; see `find_answers`.

    Args:
        answers: rows and columns of the tokens at which answers are read.
    """
    rows, columns = answers
    is_answer = torch.zeros_like(input_ids, dtype=torch.bool).index_put(answers, torch.tensor(True, device=rows.device))
    ids = RULE_IDS[name](input_ids, indices)
    slots, sides = [], [is_answer]
    if name in UNIFORM:
        find = _Finder(multiplier_places(input_ids, indices))
        if (longest := find.largest) > max_multiplier_length:
            raise ValueError(f"multipliers may have max_multiplier_length = {max_multiplier_length} digits, got {longest}")
        first = num_relations(name, relation_range, 0)
        for place in range(1, max_multiplier_length + 1):
            slots.append((first + place - 1, find(rows, torch.full_like(rows, place))))
    else:
        sides.insert(0, (indices > 0) & ~is_answer)
    low, high = relation_range
    for side in sides:
        find = _Finder(ids.masked_fill(~side, 0))
        for difference in range(low, high + 1):
            slots.append((difference - low, find(rows, ids[rows, columns] - difference)))
    return slots


def find_labels(table: Transducer, input_ids: Tensor) -> AnswerTokens:
    """As `find_answers`, for a column task, in whose inputs `>` stands for each symbol that is written.

        tokens    3 f + a 1 = > > >      `>` of column i, in the direction of the pass, sees itself, the token before it, and
        column    1 0   1 0   0 1 2      the operands in the columns of the window around column i - 1

    Raises:
        ValueError: a row has another form.
    """
    (table_pass,), operands = table.passes, table.operands
    begun = nn.functional.pad(input_ids, (1, 0), value=BOS)
    markers = [part.expand(len(input_ids), 1) for part in table.markers(begun)]
    # `$` is not among the tokens, so `=` stands one column further to the left.
    equals, width = markers[1] - 1, (markers[1] - operands) // operands
    columns = torch.arange(input_ids.shape[1], device=input_ids.device)
    is_label = (columns > equals) & (columns <= equals + width + table_pass.flush)
    expected = torch.where(is_label, GREATER, torch.where(columns > equals, PAD, input_ids))
    if (input_ids != expected).any() or (equals + width + table_pass.flush >= input_ids.shape[1]).any():
        raise ValueError(f"each row of input_ids must be of the form {table.form} and a '>' for each symbol to write")
    rows, columns = is_label.nonzero(as_tuple=True)
    equals, width = (part[rows].squeeze(1) for part in (equals, width))
    before, start = columns - equals - 2, rows * input_ids.shape[1]
    slots = [(0, start + columns), (1, start + columns - 1)]
    for relation, column, source in table.label_slots:
        read = before + column
        place = width - 1 - read if table_pass.direction == "ones_first" else read
        slots.append((relation, torch.where((read >= 0) & (read < width), start + source * (width + 1) + place, -1)))
    keys = torch.stack([found for _, found in slots], dim=1)
    relations = torch.tensor([relation for relation, _ in slots], device=keys.device)
    return AnswerTokens(start + columns, rows, keys, relations)


def answer_relations(answers: AnswerTokens, shape: torch.Size) -> Tensor:
    """Return the relations (batch, tokens, tokens) of all pairs, `NOT_RELATED` for those of which neither sees the other."""
    relations = torch.full((shape[0] * shape[1], shape[1]), NOT_RELATED, device=answers.keys.device)
    for key, relation in zip(answers.keys.unbind(1), answers.relations, strict=True):
        relations[answers.places[key >= 0], key[key >= 0] % shape[1]] = relation
    return relations.view(*shape, shape[1])


class _Finder:
    """Finds tokens by their ids (batch, tokens), of which a row has each once; 0 is no id."""

    def __init__(self, ids: Tensor):
        self.largest = int(ids.max())
        self.table = ids.new_full((len(ids), self.largest + 2), -1)
        places = torch.arange(ids.numel(), device=ids.device).view(ids.shape)
        self.table.scatter_(1, ids, places)
        self.table[:, 0] = -1

    def __call__(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Return the place of the token with each id in its row, -1 if no token has it."""
        return self.table[rows, ids.clamp(0, self.largest + 1)]


def draw_states(labels: Tensor, answers: AnswerTokens, not_known: int = NOT_KNOWN) -> Tensor:
    """Draw states (batch, tokens) to train on: of every row, a random share of the right labels is known."""
    known = torch.rand(labels.shape, device=labels.device) < torch.rand(len(labels), 1, device=labels.device)
    states = torch.full_like(labels, NO_STATE).flatten()
    drawn = torch.where(known & (labels != IGNORED), labels, not_known).flatten()
    states[answers.places] = drawn[answers.places]
    return states.view(labels.shape)


def hide_own_labels(cases: LabelCases, right: Tensor) -> LabelCases:
    """Return cases in which a token has no label yet if none is right for it (cases,), as in a grid.

    There a label is known once what it follows from is known, and is never taken back: a drawn state may say otherwise.
    """
    hidden = right == NOT_KNOWN
    key_states = torch.cat(
        [cases.key_states[:, :1].masked_fill(hidden.unsqueeze(1), NOT_KNOWN), cases.key_states[:, 1:]], dim=1
    )
    return cases._replace(states=cases.states.masked_fill(hidden, NOT_KNOWN), key_states=key_states)


def pass_targets(name: str, input_ids: Tensor, states: Tensor, labels: Tensor, table: Transducer | None = None) -> Tensor:
    """Return what is right after one pass: the label where what a token sees decides it, else that none is known.

    In a grid, the digits that enter a cell must be known. Elsewhere the carry from the column below must be decided: there
    is no column below, the label there is known, or the digits there carry the same whatever is carried into them, at most
    1 in a sum, and in a product with the digit m at most m - 1.

    Args:
        name: the pair map's rule.
        input_ids: (batch, tokens) of grids, of sums, or of products with a multiplier of one digit.
        states: (batch, tokens), see `LabelCases`.
        labels: (batch, tokens), the right labels, `IGNORED` where there is none.
        table: of a column task, whose labels are decided if the label before is known, or if the columns of the window give
            one symbol from every state before them.

    Raises:
        ValueError: a multiplier has several digits.
    """
    seen, not_known = states.flatten(), NOT_KNOWN if table is None else len(table.labels) - 1
    if table is not None:
        places, decided = _decided_labels(table, input_ids, seen)
    elif name == GRID:
        places, _, keys, _ = find_answers(GRID, input_ids, (), 0)
        decided = ((keys < 0) | (seen[keys] != NOT_KNOWN))[:, 1:].all(1)
    else:
        places, decided = _decided_columns(input_ids, seen)
    targets = labels.clone().flatten()
    undecided = places[~decided]
    targets[undecided] = torch.where(targets[undecided] == IGNORED, IGNORED, not_known)
    return targets.view(labels.shape)


def _decided_labels(table: Transducer, input_ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of the answer tokens of a column task, and whether each one is decided, see `pass_targets`."""
    places, _, keys, _ = find_labels(table, input_ids)
    (table_pass,), tokens, device = table.passes, input_ids.flatten(), input_ids.device
    symbol = torch.zeros(len(table.tokens), dtype=torch.long, device=device)
    for place, character in enumerate(table.alphabet):
        symbol[table.tokens.index(character)] = place
    keys_read = keys[:, 2:].unflatten(1, (-1, table.operands))
    present, entry = keys_read[:, :, 0] >= 0, torch.zeros_like(keys_read[:, :, 0])
    for operand in keys_read.unbind(2):
        # What is absent reads as symbol 0.
        entry = entry * len(table.alphabet) + torch.where(operand >= 0, symbol[tokens[operand]], 0)
    write, following = (torch.tensor(part, device=device) for part in (table_pass.write, table_pass.next))
    state = torch.arange(len(write), device=device).expand(len(places), -1)
    beyond = torch.tensor(table.states_beyond, device=device)
    inside = present.any(1, keepdim=True)
    # A window that begins before the first column shows that nothing came before it.
    state = torch.where(inside, torch.where(present[:, :1], state, table_pass.start), beyond[state % len(beyond)])
    written = state
    for column in range(present.shape[1]):
        read = entry[:, column, None].expand_as(state)
        real = (present[:, : column + 1].any(1) | ~inside[:, 0]).unsqueeze(1)
        written, state = write[state, read], torch.where(real, following[state, read], state)
    one = (written == written[:, :1]).all(1)
    return places, one | (tokens[keys[:, 1]] == EQUALS) | (states[keys[:, 1]] != len(table.labels) - 1)


def _decided_columns(input_ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of the answer tokens of other problems, and whether each one is decided, see `pass_targets`."""
    places, rows, keys, _ = find_answers("coupled", input_ids, (0, 1), 1)
    _, first_below, _, below = keys.unbind(1)
    digits = torch.where(input_ids < 10, input_ids, 0).flatten()
    is_product = (input_ids == TIMES).any(1)
    in_multiplier = multiplier_places(input_ids, virtual_indices(input_ids)) * is_product.unsqueeze(1)
    if (longest := int(in_multiplier.max())) > 1:
        raise ValueError(f"with label_states, a multiplier must have one digit, got {longest}")
    multiplier = (input_ids * in_multiplier).sum(1)[rows]
    first, second = (torch.where(key < 0, 0, digits[key]) for key in (first_below, below))
    total = torch.where(is_product[rows], multiplier * second, first + second)
    most = torch.where(is_product[rows], (multiplier - 1).clamp(min=0), 1)
    return places, (below < 0) | (states[below] != NOT_KNOWN) | (total // 10 == (total + most) // 10)


def settle(
    input_ids: Tensor, answers: AnswerTokens, label: Callable[[LabelCases], Tensor], not_known: int = NOT_KNOWN
) -> tuple[Tensor, Tensor]:
    """Make passes until no label changes.

    Each distinct case of a pass is computed once, and only for tokens of which something has changed. Memory is linear in
    the number of tokens. A row of n answer tokens has n + 1 passes at most: if each pass makes the lowest unknown label
    known, n passes suffice and one more changes nothing. If a row changes in all of them, all its labels become
    `not_known`.

    Args:
        input_ids: (batch, tokens).
        label: gives the logits (cases, labels) of cases.

    Returns:
        Logits (batch, tokens, labels), which say `not_known` at tokens where no answer is read; and the states.
    """
    tokens = input_ids.flatten()
    states = torch.full_like(tokens, NO_STATE)
    states[answers.places] = not_known
    most_passes = torch.bincount(answers.rows, minlength=len(input_ids)) + 1
    unsettled = torch.zeros_like(most_passes, dtype=torch.bool)
    logits = torch.zeros(len(tokens), not_known + 1, device=tokens.device)
    logits[:, not_known] = 1.0
    active, passes = torch.arange(len(answers.places), device=tokens.device), 0
    while len(active):
        passes += 1
        places = answers.places[active]
        new = _label_distinct(tokens, states, places, answers.keys[active], answers.relations, label)
        logits = logits.to(new.dtype)
        logits[places] = new
        labels = new.argmax(1)
        changed = labels != states[places]
        rows = answers.rows[active]
        unsettled[rows[changed & (most_passes[rows] == passes)]] = True
        states[places] = labels
        # Index -1, a missing key, reads the extra last entry.
        is_new = torch.zeros(len(tokens) + 1, dtype=torch.bool, device=tokens.device)
        is_new[places[changed]] = True
        seen = is_new[answers.keys].any(1) | is_new[answers.places]
        active = (seen & (most_passes[answers.rows] > passes)).nonzero().squeeze(1)
    never = answers.places[unsettled[answers.rows]]
    # Above the others by more than rounding, also of large logits in half precision.
    highest = logits[never].amax(1)
    logits[never, not_known] = highest + 1 + highest.abs() * (2 * torch.finfo(logits.dtype).eps)
    states[never] = not_known
    return logits.view(*input_ids.shape, -1), states.view(input_ids.shape)


def _label_distinct(tokens, states, places, keys, relations, label) -> Tensor:
    """Return the logits of the tokens at some places, from those of their distinct cases."""
    sizes = int(tokens.max()) + 1, int(states.max()) + 1
    distinct, index = number_cases(tokens, states, keys, *sizes).unique(return_inverse=True)
    example = torch.empty_like(distinct).scatter_(0, index, torch.arange(len(index), device=index.device))
    return label(cases_at(tokens, states, places[example], keys[example], relations))[index]


def number_cases(
    tokens: Tensor, states: Tensor, keys: Tensor, vocabulary: int = len(ENCODER_TOKENS), labels: int = len(STATES)
) -> Tensor:
    """Return a number (answers,) for each case; cases of one form are equal if and only if their numbers are.

    Args:
        tokens, states: of the flattened batch.
        keys: (answers, slots), see `AnswerTokens`. A token is one of its keys, so they say all.
        vocabulary, labels: what tokens and states are below.
    """
    states_of_token = labels + 1
    # Missing keys have the code 0.
    code = tokens * states_of_token + states - NO_STATE + 1
    codes = torch.where(keys >= 0, code[keys], 0)
    return pack(codes.unbind(1), [vocabulary * states_of_token + 1] * codes.shape[1])


def cases_at(tokens: Tensor, states: Tensor, places: Tensor, keys: Tensor, relations: Tensor) -> LabelCases:
    """Return the cases of the tokens at some places of the flattened batch."""
    related = torch.where(keys >= 0, relations, NOT_RELATED)
    return LabelCases(tokens[places], states[places], tokens[keys], states[keys], related)
