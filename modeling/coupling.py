"""Coupling rules: how position ids of query and response follow from the meaning of the query's tokens.

A rule reads token ids up to and including the first `=` and returns a `Plan`: position ids for any number of columns, so
the ids of a response are known before its first token is. Tokens that matter to each other share an id; 0 marks padding
and tokens without an id. A rule's ids are as small as possible; for training, `shift_position_ids` moves them to a random
start.

The rules are in `coupling_rules.py`. A file outside this package adds its rules with `coupling_rule`.

A joined rule (`joined_rule`) stands for several kinds of query, told apart by their first sign, each with levels of its own.
Tokens of one kind of query have no ids at the levels of the others. A relation of the joined rule is a relation of one
member, with `NEITHER` at all other levels. So two tokens of a query are related by the joined rule if and only if
they are by the member that reads this query, and every token sees exactly what it sees by that member alone.
"""

# Used by: modeling, data, data/machines, data/proofs, data/tasks, hub_cards/publishing, hub_cards/research/structured,
# hub_cards/training. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .query_forms import check_rows, first_column
from .registry import check_free, pickled_with
from .relations import NEITHER, Relation
from .structure import GIVEN
from .vocabulary import ALL_TOKENS, BOS


class Plan(NamedTuple):
    """Position ids of whole sequences, derived from their queries.

    Attributes:
        position_ids: (batch or 1, levels, columns) int64; 0 means padding, or no id at this level. One row
            stands for the whole batch if every row has the same layout.
        response_length: number of tokens of the longest possible response in the batch, with its end token; or a tensor of
            this one number, which only those read who need it.
        largest_ids: (batch or 1, levels) the largest id of each row's query and planned response, for a rule whose ids
            continue after the planned response; None if its ids end there.
    """

    position_ids: Tensor
    response_length: int | Tensor
    largest_ids: Tensor | None = None


@dataclass(frozen=True)
class CouplingRule:
    """A rule's name, the function that plans ids, and its limits.

    Attributes:
        plan: `(input_ids, columns) -> Plan`.
        levels: number of ids per token.
        capacity: returns a phrase for the longest query whose ids fit into 1..n, given n.
        relations: the relations that a token needs to see to predict the next token, for a window (see `relations.py`);
            empty if the rule names none.
        reads_any_text: whether the rule reads the text of every task.
        members: names of the rules that this one joins, see `joined_rule`.
    """

    name: str
    plan: Callable[[Tensor, int], Plan]
    levels: int
    capacity: Callable[[int], str]
    relations: tuple[Relation, ...] = ()
    reads_any_text: bool = False
    members: tuple[str, ...] = ()

    def __reduce_ex__(self, protocol):
        """Pickle a rule that a configuration may name by its name: its functions may be lambdas."""
        if self.name == GIVEN:
            return given_rule, (self.levels,)
        if COUPLING_RULES.get(self.name) is self:
            return pickled_with([self.plan], (find_rule, (self.name,)))
        return super().__reduce_ex__(protocol)


COUPLING_RULES: dict[str, CouplingRule] = {}
"""All rules by name; `coupling_rule` fills it."""

PlanFunction = Callable[[Tensor, int], Plan]


def coupling_rule(
    *, levels: int, capacity: Callable[[int], str], relations: tuple[Relation, ...] = (), **limits: Any
) -> Callable[[PlanFunction], PlanFunction]:
    """Register the decorated function `(input_ids, columns) -> Plan` as a coupling rule, named like the function.

    Args:
        levels, capacity, relations, limits: the other attributes of the `CouplingRule`.

    Raises:
        ValueError: the name is taken by another function, or a relation has not one entry per level.
    """

    def add(plan: PlanFunction) -> PlanFunction:
        name = plan.__name__
        if wrong := [relation for relation in relations if len(relation) != levels]:
            raise ValueError(f"a relation of the coupling rule {name!r} must have {levels} entries, got {wrong[0]}")
        holder = COUPLING_RULES.get(name)
        check_free("coupling rule", name, plan, holder.plan if holder else None)
        COUPLING_RULES[name] = CouplingRule(name, plan, levels, capacity, relations, **limits)
        return plan

    return add


def given_rule(levels: int) -> CouplingRule:
    """Return the rule of a model whose ids every call gives: it derives none."""

    def refuse(input_ids: Tensor, columns: int) -> Plan:
        raise ValueError("coupling is 'given', so no ids are derived: pass position_ids, to generate() too")

    return CouplingRule(GIVEN, refuse, levels, capacity=lambda ids: f"one with ids up to {ids}")


def find_rule(rule: str | CouplingRule) -> CouplingRule:
    """Return a coupling rule by its name, or as it is given; raise ValueError for what is neither."""
    if isinstance(rule, str):
        if rule in COUPLING_RULES:
            return COUPLING_RULES[rule]
    # A rule may be of another copy of this file: the code of a checkpoint and this package can be loaded in one process.
    elif hasattr(rule, "plan"):
        return rule
    raise ValueError(f"coupling must be a rule, or the name of one ({', '.join(COUPLING_RULES)}), got {rule!r:.60}")


def joining_rules(name: str) -> list[str]:
    """Return the names of the rules that join the rule of this name with others."""
    return [joined.name for joined in COUPLING_RULES.values() if name in joined.members]


def any_text_rules() -> list[str]:
    """Return the names of the rules that read the text of every task."""
    return [name for name, rule in COUPLING_RULES.items() if rule.reads_any_text]


def shift_position_ids(position_ids: Tensor, offset: Tensor, max_position_ids: int | None = None) -> Tensor:
    """Move every id except 0 up by `offset`, which broadcasts. With `max_position_ids`, ids wrap around the ring 1..max."""
    shifted = position_ids + offset
    if max_position_ids is not None:
        shifted = (shifted - 1) % max_position_ids + 1
    return torch.where(position_ids > 0, shifted, 0)


def check_room(coupling: str | CouplingRule, needed: int, max_position_ids: int) -> None:
    """Raise ValueError if more position ids are needed than exist."""
    if needed > max_position_ids:
        raise ValueError(
            f"prompt and response need {needed} position ids but max_position_ids is {max_position_ids}: "
            f"the longest that fits is {find_rule(coupling).capacity(max_position_ids)}"
        )


def largest_position_ids(coupling: str | CouplingRule, input_ids: Tensor) -> Tensor:
    """Return the largest id of each row's query and planned response at every level, (batch or 1, levels)."""
    rule = find_rule(coupling)
    plan = rule.plan(input_ids, 1)
    if plan.largest_ids is not None:
        return plan.largest_ids
    return rule.plan(input_ids, input_ids.shape[1] + int(plan.response_length)).position_ids.amax(-1)


def spread_position_ids(position_ids: Tensor, largest_ids: Tensor, max_position_ids: int) -> Tensor:
    """Spread ids 1..n evenly over 1..max; 0 stays 0.

    Id k becomes round(k (max + 1) / (n + 1)), the mean of the k-th smallest id in a random subset of n ids (randomized
    positions, Ruoss et al., 2023).

    Args:
        position_ids: (batch or 1, levels, columns); ids above n, after a planned response, become max.
        largest_ids: (batch or 1, levels) n, at most max.
    """
    n = largest_ids.unsqueeze(-1)
    return ((2 * position_ids * (max_position_ids + 1) + n + 1) // (2 * (n + 1))).clamp(max=max_position_ids)


def plan_position_ids(
    coupling: str | CouplingRule, input_ids: Tensor, columns: int, spread_over: int | None = None
) -> Tensor:
    """Return a rule's position ids, (batch or 1, levels, columns), spread over 1..`spread_over` if that is given.

    Raises:
        ValueError: a row is not of the rule's form, or has more than `spread_over` ids.
    """
    input_ids = input_ids.long()
    position_ids = find_rule(coupling).plan(input_ids, columns).position_ids
    if spread_over is None:
        return position_ids
    largest_ids = largest_position_ids(coupling, input_ids)
    check_room(coupling, int(largest_ids.max()), spread_over)
    return spread_position_ids(position_ids, largest_ids, spread_over)


def joined_rule(members: Mapping[int, str]) -> Callable[[PlanFunction], PlanFunction]:
    """Register the decorated function as a coupling rule that joins others; it calls `plan_joined`.

    Args:
        members: names of listed rules by the token that tells their queries: the first one after `$` that is no digit.

    Raises:
        ValueError: a member names no relations, or goes on after its planned response.
    """
    rules = [COUPLING_RULES[name] for name in members.values()]
    if unfit := [rule.name for rule in rules if not rule.relations or rule.reads_any_text]:
        raise ValueError(f"the coupling rule {unfit[0]!r} cannot be joined with others: it names no relations of a window")
    levels, relations = 0, list[Relation]()
    total = sum(rule.levels for rule in rules)
    for rule in rules:
        after = total - levels - rule.levels
        relations += [(*[NEITHER] * levels, *relation, *[NEITHER] * after) for relation in rule.relations]
        levels += rule.levels
    return coupling_rule(
        levels=total,
        capacity=lambda ids: "; ".join(f"by {rule.name}, {rule.capacity(ids)}" for rule in rules),
        relations=tuple(relations),
        members=tuple(rule.name for rule in rules),
    )


def plan_joined(members: Mapping[int, str], input_ids: Tensor, columns: int) -> Plan:
    """Return the plan of every row by the member that reads it, the members' levels one after the other.

    Raises:
        ValueError: no member reads a row.
    """
    column = torch.arange(input_ids.shape[1], device=input_ids.device)
    after = column > first_column(input_ids == BOS)
    marks = input_ids.gather(1, first_column(after & (input_ids >= 10))).squeeze(1)
    known = torch.isin(marks, torch.tensor(list(members), device=marks.device))
    check_rows(known, input_ids, " or ".join(f"'$A{ALL_TOKENS[mark]}...='" for mark in members))
    rules = [COUPLING_RULES[name] for name in members.values()]
    position_ids = input_ids.new_zeros(len(input_ids), sum(rule.levels for rule in rules), columns)
    first_level, response_length, same_layout = 0, 0, False
    for mark, rule in zip(members, rules, strict=True):
        levels = slice(first_level, first_level := first_level + rule.levels)
        if (rows := marks == mark).any():
            plan = rule.plan(input_ids[rows], columns)
            position_ids[rows, levels] = plan.position_ids
            response_length = max(response_length, int(plan.response_length))
            same_layout = bool(rows.all()) and len(plan.position_ids) == 1
    return Plan(position_ids[:1] if same_layout else position_ids, response_length)
