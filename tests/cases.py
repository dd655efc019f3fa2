"""Which cases of one contract are tried in every run of the tests; the others are marked, and tried before a release."""

import random
from collections.abc import Collection, Iterable, Sequence

import pytest

_RELEASE = pytest.mark.release


def all_but(left_out: Collection[object], cases: Iterable[object]) -> list[object]:
    """All cases, of which those that are left out are marked."""
    return [pytest.param(case, marks=_RELEASE) if case in left_out else case for case in cases]


def drawn(cases: Iterable[object], count: int) -> list[object]:
    """All cases, of which all but so many, drawn by a fixed seed, are marked."""
    cases = [*cases]
    kept = {*random.Random(0).sample(range(len(cases)), count)}
    return [case if place in kept else pytest.param(case, marks=_RELEASE) for place, case in enumerate(cases)]


def in_turn(cases: Collection[object], ways: Sequence[object], left_out: Collection[object] = ()) -> list[object]:
    """Every case in every way, of which those are not marked that try each case in one way, the ways taking turns.

    For cases and ways that do not depend on each other: what fails in one way only is seen in one case of that way. Cases
    that are left out are marked in every way.
    """
    tried, others = ([case for case in cases if (case in left_out) == is_left_out] for is_left_out in (False, True))
    turns = [(case, place % len(ways)) for place, case in enumerate(tried)] + [(case, None) for case in others]
    return [
        pytest.param(case, way, marks=() if number == turn else _RELEASE)
        for case, turn in turns
        for number, way in enumerate(ways)
    ]
