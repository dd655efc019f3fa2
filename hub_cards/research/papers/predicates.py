"""Questions that claims put to measurements: predicates over the rows of results.

A predicate takes the evidence and its parameters, and returns whether it holds, what was found and what was asked. `None`
says that the numbers do not decide it: a difference is within the noise of the seeds, or a reach ends with the tested sizes.
Accuracies are medians over seeds. A method counts only if it fits the sizes that it was trained on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import inf, isfinite, isnan, nan
from operator import itemgetter
from statistics import mean, median

from pandas import DataFrame

from longhand.hub_cards.metrics.exact_match_by_length.counting import wilson_interval
from longhand.hub_cards.research.study import Study
from longhand.hub_cards.research.study_pages import FITS, fitting
from longhand.hub_cards.result_rows import Row, generalizable_length, group_by

ENOUGH_SEEDS = 3
"""Fewer seeds of a variant say nothing about a difference unless the intervals of their problems are apart."""

ENOUGH_PROBLEMS = 2000
"""With fewer at a size, a reach that is too short decides nothing: a model with 0.97 right often fails a test of 100."""


class NotRunError(Exception):
    """The rows that a predicate needs are not there; the message says which."""


class NotFittedError(Exception):
    """A method that a predicate needs does not fit its trained sizes; the message says which."""


@dataclass(frozen=True)
class Finding:
    """Whether a predicate holds, None if the numbers do not decide it; what was found, and what was asked."""

    holds: bool | None
    found: str
    asked: str


@dataclass(frozen=True)
class Evidence:
    """The rows that a claim is judged by.

    Attributes:
        rows: what was measured.
        study: the study whose runs were measured; None if the rows are of no training runs.
        tests: exact match by size of the checkpoints that are judged, which says what fits.
        at_scale: whether no size or budget is below the paper's.
    """

    rows: list[Row]
    study: Study | None = None
    tests: list[Row] = field(default_factory=list)
    at_scale: bool = False

    def trained(self, variant: str) -> tuple[int, int]:
        """Return the shortest and longest size that a variant is trained on."""
        assert self.study is not None, "a predicate about variants needs a study"
        return self.study.trained_sizes(variant)

    @cached_property
    def fitting(self) -> DataFrame:
        """How each tested variant fits its trained sizes, see `study_pages.fitting`."""
        assert self.study is not None, "a predicate about variants needs a study"
        return fitting(self.study, self.tests)

    def worst(self, variant: str) -> float:
        """Return the exact match of a variant at its worst trained size.

        Raises:
            NotRunError: no trained size was tested.
        """
        found = self.fitting["match"].get(variant, nan)
        if isnan(found):
            raise NotRunError(f"`{variant}` is not tested at its trained sizes yet")
        return found

    def seeds_that_fit(self, variant: str) -> tuple[int, int]:
        """Return how many seeds of a variant fit its trained sizes, and how many there are."""
        return self.fitting["fit"].get(variant, 0), self.fitting["seeds"].get(variant, 0)

    def select(self, where: Row, fitted: bool = True) -> list[Row]:
        """Return the rows whose fields have these values; `model` is the name of a variant or of a model.

        Args:
            fitted: a variant must fit its trained sizes.

        Raises:
            NotRunError: there are none.
            NotFittedError: the variant does not fit.
        """
        model = where.get("model", "")
        is_variant = self.study is not None and model in self.study.variants
        if fitted and is_variant and (worst := self.worst(model)) < FITS:
            raise NotFittedError(f"`{model}` does not fit its trained sizes ({worst:.3f} at the worst)")
        others = {name: value for name, value in where.items() if name != "model"}
        rows = [row for row in self.rows if others.items() <= row.items()]
        if model:
            rows = [row for row in rows if model in (row["model"], row["model"].rpartition("-seed")[0])]
        if not rows:
            raise NotRunError(f"there are no rows of {describe(where)} yet")
        return rows

    def runs(self, variant: str) -> list[Row]:
        """Return the rows of a variant that fits; it raises what `select` raises."""
        return self.select({"model": variant})

    def at(self, variant: str, size: int, fitted: bool = True) -> list[Row]:
        """Return the rows of a variant at a size, a row for each seed; it raises what `select` raises."""
        return self.select({"model": variant, "length": size}, fitted)


def read_field(row: Row, name: str) -> float:
    """Return a field of a row; `probabilities.4` is item 4 of the list `probabilities`."""
    name, _, item = name.partition(".")
    return row[name][int(item)] if item else row[name]


def describe(where: Row) -> str:
    """Return "`ape`, window 10"."""
    return ", ".join(f"`{value}`" if name == "model" else f"{name} {value}" for name, value in where.items())


def spread(values: list[float]) -> str:
    """Return the median of values, and their range if there are several."""
    several = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
    return f"{median(values):.3f}{several}"


def bounds(at_least: float, at_most: float) -> str:
    """Return "at least 0.9", "at most 0.1", both, or "exactly 1"."""
    limits = {"at least": at_least, "at most": at_most}
    said = " and ".join(f"{name} {limit:g}" for name, limit in limits.items() if isfinite(limit))
    return f"exactly {at_least:g}" if at_least == at_most else said


def names(variants: Sequence[str]) -> str:
    """Return "`ape`, `rpe` and `nope`"."""
    *first, last = (f"`{variant}`" for variant in variants)
    return f"{', '.join(first)} and {last}" if first else last


def all_of(parts: list[bool | None]) -> bool | None:
    """Return False if a part is False, else None if one is None, else True."""
    return False if False in parts else None if None in parts else True


def is_higher(own: Sequence[float], other: Sequence[float]) -> bool | None:
    """Whether the values of some seeds are higher than those of others, by the exact rank test at 5%; None if neither is.

    Three seeds of each decide if all of one are above all of the other.
    """

    def significant(more: Sequence[float], less: Sequence[float]) -> bool:
        pooled = sorted([*more, *less])
        ranks = [pooled.index(value) + pooled.count(value) / 2 for value in [*more, *less]]
        sums = [sum(chosen) for chosen in combinations(ranks, len(more))]
        return sum(one >= sum(ranks[: len(more)]) for one in sums) <= 0.05 * len(sums)

    return True if significant(own, other) else False if significant(other, own) else None


def is_above(own: list[Row], other: list[Row], name: str) -> bool | None:
    """Whether a field is higher in some seeds' rows than in others': `is_higher`, or with few seeds by their problems.

    With fewer than `ENOUGH_SEEDS` of either, 95% intervals of the shares of right answers must be apart.
    """
    values, others = (
        [mean(read_field(row, name) for row in rows) for rows in group_by(all_rows, itemgetter("model")).values()]
        for all_rows in (own, other)
    )
    if min(len(values), len(others)) >= ENOUGH_SEEDS:
        return is_higher(values, others)
    if name not in ("exact_match", "accuracy"):
        return None
    (low, high), (other_low, other_high) = (problem_interval(rows, name) for rows in (own, other))
    return True if low > other_high else False if other_low > high else None


def problem_interval(rows: list[Row], name: str) -> tuple[float, float]:
    """Return the lowest and the highest end of the 95% intervals of a share of right answers, an interval for each row."""
    ends = [wilson_interval(round(row[name] * row["num_samples"]), row["num_samples"]) for row in rows]
    return min(low for low, _ in ends), max(high for _, high in ends)


def not_fit(evidence: Evidence, variants: list[str], although: str) -> Finding:
    """None of these variants fits its trained sizes, although another variant of the study does.

    Whether a loss stays flat is not among the results, so with less than the paper's budget this is not decided.
    """
    evidence.runs(although)
    worst = {name: evidence.worst(name) for name in variants}
    found = ", ".join(f"`{name}` {match:.3f}" for name, match in worst.items())
    found = f"at the worst trained size: {found}; `{although}` fits"
    holds = max(worst.values()) < FITS
    return Finding((evidence.at_scale or None) if holds else False, found, f"each below {FITS}, with the paper's budget")


def reach(
    evidence: Evidence,
    variant: str,
    at_least: float = -inf,
    at_most: float = inf,
    beyond: tuple[str, ...] = (),
    best: bool = False,
) -> Finding:
    """The generalizable length of a variant, in multiples of its longest trained size, or beyond that of other variants.

    A reach that ends with the tested sizes may be longer: such a reach decides only that it is at least as long.

    Args:
        best: of the best seed, which must be farther than the median.
    """
    longest = evidence.trained(variant)[1]
    reached, seeds, ends = {}, {}, {}
    for name in (variant, *beyond):
        rows = evidence.runs(name)
        seeds[name] = [generalizable_length(own) for own in group_by(rows, itemgetter("model")).values()]
        reached[name] = max(seeds[name]) if best else generalizable_length(rows)
        ends[name] = reached[name] == max(row["length"] for row in rows)
    ratio, parts = reached[variant] / longest, []
    at_end = {name: ", the largest tested size" if is_end else "" for name, is_end in ends.items()}
    of_seeds = "best of " if best else ""
    found = [f"{of_seeds}`{variant}` reaches {reached[variant]}, {ratio:.2f} times {longest}{at_end[variant]}"]
    if isfinite(at_least):
        few = min(row["num_samples"] for row in evidence.runs(variant)) < ENOUGH_PROBLEMS
        parts.append(True if ratio >= at_least else None if ends[variant] or few else False)
    if isfinite(at_most):
        parts.append(False if ratio > at_most else None if ends[variant] else True)
    if best:
        parts.append(max(seeds[variant]) > median(seeds[variant]))
    for name in beyond:
        few = min(len(seeds[variant]), len(seeds[name])) < ENOUGH_SEEDS
        farther = reached[variant] > reached[name] if few else is_higher(seeds[variant], seeds[name])
        parts.append(None if ends[name] or (ends[variant] and not farther) else farther)
        found.append(f"`{name}` {reached[name]}{at_end[name]}")
    asked = f"{bounds(at_least, at_most)} times" if not beyond else f"`{variant}` farther than {names(beyond)}"
    return Finding(all_of(parts), "; ".join(found), asked)


def match(
    evidence: Evidence,
    variant: str,
    size: int | list[int],
    at_least: float = -inf,
    at_most: float = inf,
    above: tuple[str, ...] = (),
    not_above: tuple[str, ...] = (),
    fitted: bool = True,
) -> Finding:
    """Exact match of a variant at a size, or at each of some sizes.

    Args:
        above: variants whose exact match must be lower.
        not_above: variants whose median must not be lower; it is decided against only if the seeds are.
        fitted: all must fit their trained sizes.
    """
    parts: list[bool | None] = []
    found = []
    for one in size if isinstance(size, list) else [size]:
        rows = {name: evidence.at(name, one, fitted) for name in (variant, *above, *not_above)}
        values = {name: [row["exact_match"] for row in own] for name, own in rows.items()}
        parts.append(at_least <= median(values[variant]) <= at_most)
        parts += [is_above(rows[variant], rows[name], "exact_match") for name in above]
        for name in not_above:
            lower = median(values[variant]) <= median(values[name])
            parts.append(lower or (False if is_above(rows[variant], rows[name], "exact_match") else None))
        found.append(f"{', '.join(f'`{name}` {spread(own)}' for name, own in values.items())} at {one}")
    asked = bounds(at_least, at_most)
    if above or not_above:
        asked = f"`{variant}` above {names(above)}" if above else f"`{variant}` not above {names(not_above)}"
    return Finding(all_of(parts), "; ".join(found), asked)


def best(evidence: Evidence, variant: str, than: list[str], sizes: list[int]) -> Finding:
    """A variant has the highest median at more than half of these sizes."""
    rows = [{name: evidence.at(name, size) for name in (variant, *than)} for size in sizes]
    medians = [{name: median(row["exact_match"] for row in own) for name, own in at.items()} for at in rows]
    first = sum(own[variant] == max(own.values()) for own in medians)
    return Finding(first > len(sizes) / 2, f"`{variant}` is best at {first} of {len(sizes)} sizes", "more than half")


def keeps(evidence: Evidence, variant: str, first: int, last: int, at_least: float = -inf, at_most: float = inf) -> Finding:
    """The share of its median exact match at the first size, or class, that a variant keeps at the last."""
    start, end = (median(row["exact_match"] for row in evidence.at(variant, size)) for size in (first, last))
    share = end / start if start else 0.0
    found = f"`{variant}` {start:.3f} at {first}, {end:.3f} at {last}: keeps {share:.2f}"
    return Finding(at_least <= share <= at_most, found, bounds(at_least, at_most))


def steepest(evidence: Evidence, variant: str, size: int) -> Finding:
    """Beyond the trained sizes, the median exact match of a variant falls most at this size, from the one tested before."""
    longest = evidence.trained(variant)[1]
    sizes = sorted({row["length"] for row in evidence.runs(variant) if row["length"] >= longest})
    medians = [median(row["exact_match"] for row in evidence.at(variant, tested)) for tested in sizes]
    falls = {after: start - end for after, start, end in zip(sizes[1:], medians, medians[1:], strict=False)}
    steep = max(falls, key=falls.__getitem__)
    found = f"`{variant}` falls by {falls[size]:.3f} at {size}; it falls most at {steep}, by {falls[steep]:.3f}"
    return Finding(steep == size, found, f"the largest fall at {size}")


def value(
    evidence: Evidence,
    where: Row,
    field: str,
    at_least: float = -inf,
    at_most: float = inf,
    below: Row | None = None,
    every: bool = False,
    fitted: bool = True,
) -> Finding:
    """The mean of a field over rows, or the field in every row, is within bounds, or below that of other rows.

    Args:
        fitted: the variants must fit their trained sizes.
    """
    rows = evidence.select(where, fitted)
    values = [read_field(row, field) for row in rows]
    found = f"{field} of {describe(where)}: {mean(values):.4g}"
    if below is not None:
        others = evidence.select(below, fitted)
        more = mean(read_field(row, field) for row in others)
        # Rows of no training run have no noise.
        lower = mean(values) < more if evidence.study is None else is_above(others, rows, field)
        return Finding(lower, f"{found}, of {describe(below)}: {more:.4g}", "the first lower")
    if every:
        kept = sum(at_least <= one <= at_most for one in values)
        span = f"{min(values):.4g}" if min(values) == max(values) else f"from {min(values):.4g} to {max(values):.4g}"
        found = f"{field} of {describe(where)}: {span}; {bounds(at_least, at_most)} in {kept} of {len(values)} rows"
        return Finding(kept == len(values), found, f"{bounds(at_least, at_most)} in every row")
    return Finding(at_least <= mean(values) <= at_most, found, bounds(at_least, at_most))


def heads(evidence: Evidence, variant: str, fields: list[str], at_least: float) -> Finding:
    """In most seeds, each of these kinds of tokens has a head of its own that gives the kind at least this weight."""
    found, seeds = [], []
    for name, rows in group_by(evidence.runs(variant), itemgetter("model")).items():
        strongest = {kind: max(rows, key=itemgetter(kind)) for kind in fields}
        described = ", ".join(f"{kind} {row[kind]:.2f} (head {row['head']})" for kind, row in strongest.items())
        found.append(f"`{name}` {described}")
        distinct = len({(row["layer"], row["head"]) for row in strongest.values()}) == len(fields)
        seeds.append(distinct and all(row[kind] >= at_least for kind, row in strongest.items()))
    asked = f"in most seeds each at least {at_least}, by a head of its own"
    return Finding(sum(seeds) > len(seeds) / 2, "; ".join(found), asked)


PREDICATES: dict[str, Callable[..., Finding]] = {
    function.__name__: function for function in (not_fit, reach, match, best, keeps, steepest, value, heads)
}
"""The questions of claims, by name."""
