"""Joined coupling rules: one rule for several kinds of query, told apart by their first sign, each with levels of its own.

Tokens of one kind of query have no ids at the levels of the others. A relation of the joined rule is a relation of one
member, with `NEITHER` at all other levels. So it holds between two tokens of a query if and only if it holds by the member
that reads this query, and every token sees exactly what it sees by that member alone: neighbourhoods are the member's.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .coupling import COUPLING_RULES, Plan, PlanFunction, coupling_rule
from .pair_maps import NEITHER, Relation
from .query_forms import check_rows, first_column
from .vocabulary import ALL_TOKENS, BOS


def joined_rule(members: Mapping[int, str]) -> Callable[[PlanFunction], PlanFunction]:
    """Register the decorated function as a coupling rule that joins others; it calls `plan_joined`.

    Args:
        members: names of listed rules by the token that tells their queries: the first one after `$` that is no digit.

    Raises:
        ValueError: a member names no relations, goes on after its planned response, or is named twice.
    """
    if len(set(members.values())) < len(members):
        raise ValueError(f"a coupling rule is joined with itself: {', '.join(members.values())}")
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
            response_length = max(response_length, plan.response_length)
            same_layout = bool(rows.all()) and len(plan.position_ids) == 1
    return Plan(position_ids[:1] if same_layout else position_ids, response_length)
