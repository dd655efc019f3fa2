"""Neighbourhoods of a task with one window, found from all pairs of tokens, and those that the task lists."""

import numpy as np
import torch

from longhand.data.proofs.verify_certificate import RELATED, TOKENS, pairs_of
from longhand.modeling.relations import NOT_RELATED, coupled_pair_map
from longhand.modeling.settling import NO_STATE
from longhand.modeling.transducer import table_of
from longhand.modeling.vocabulary import PAD


def neighbourhoods(rule, examples, window=None) -> set:
    """What every token of responses of one layout sees, by the pair map of the planned ids, with what is right next.

    With a window of whole columns, such as (0, 1), two keys may have one relation.
    """
    found, relations_of_rule = set(), rule.relations if window is None else window
    tokens = torch.from_numpy(examples.tokens).long()
    ids = rule.plan(tokens[:1], tokens.shape[1]).position_ids
    relations = coupled_pair_map(ids, ids, relations_of_rule, windowed=True)[0].tolist()
    for row in examples.tokens.tolist():
        for query in range(int(examples.query_lengths[0]) - 1, len(row) - 1):
            if row[query + 1] == PAD:
                break
            keys = [(relations[query][key], row[key]) for key in range(1, query + 1) if relations[query][key] >= 0]
            assert relations[query][0] == len(relations_of_rule)
            found.add((row[query], tuple(sorted(keys)), row[query + 1]))
    return found


def listed_neighbourhoods(covering) -> list:
    """The neighbourhoods that a task lists, in the form of `neighbourhoods`; none has two right next tokens."""
    listed = []
    for batch in covering.batches:
        relations = batch.relations.tolist()
        slots = [[pair for pair in zip(relations, row, strict=True) if pair[1] != PAD] for row in batch.keys.tolist()]
        listed += list(zip(batch.tokens.tolist(), map(tuple, map(sorted, slots)), batch.right.tolist(), strict=True))
    assert len({row[:2] for row in listed}) == len(set(listed)) and len(listed) == covering.count
    return listed


def rows_of(task, cases, targets) -> np.ndarray:
    """Cases of an encoder in the form of the verifier's lists."""
    table = table_of(getattr(task, "transducer", None))

    def number(tokens, states):
        labelled = len(task.tokens) + states if table else tokens + len(TOKENS) * (states + 1)
        return torch.where(states == NO_STATE, tokens, labelled)

    codes = RELATED * (cases.relations + 1) + number(cases.keys, cases.key_states)
    codes = torch.where(cases.relations == NOT_RELATED, 0, codes)
    sink = torch.full_like(targets, RELATED * (int(cases.relations.max()) + 2) + len(pairs_of(table)[0]))
    return np.column_stack([number(cases.tokens, cases.states), targets, codes, sink])


def as_set(rows) -> set[bytes]:
    """Neighbourhoods in the form of the verifier's lists, with keys in any order, as values."""
    rows = np.array(rows, np.int32)
    rows[:, :2] += 1
    rows[:, 2:].sort()
    return {row[row > 0].tobytes() for row in np.unique(rows, axis=0)}
