"""What a claim asks of measurements: predicates over the rows of results.

A predicate takes the evidence and its parameters, and returns whether it holds, what was found, and what was asked.
Accuracies are medians over seeds unless it says otherwise. A method counts only if it fits the sizes that it was trained on.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from statistics import mean, median
from typing import Any

from longhand.hub_cards.evaluation.results import Row, generalizable_length, group_by, group_variants
from longhand.hub_cards.research.study import Study
from longhand.hub_cards.research.study_pages import FITS, trained_match


class NotRunError(Exception):
    """The rows that a predicate needs are not there; the message says which."""


class NotFittedError(Exception):
    """A method that a predicate needs does not fit its trained sizes; the message says which."""


@dataclass(frozen=True)
class Finding:
    """Whether a predicate holds, what was found, and what was asked."""

    holds: bool
    found: str
    asked: str


@dataclass(frozen=True)
class Evidence:
    """The rows that a claim is judged by.

    Attributes:
        rows: what was measured.
        study: the study whose runs were measured; None if the rows are of no training runs.
        tests: exact match of the study's last checkpoints by size, which says what fits.
    """

    rows: list[Row]
    study: Study | None = None
    tests: list[Row] = field(default_factory=list)

    def runs(self, variant: str) -> list[Row]:
        """Return the rows of a variant.

        Raises:
            NotRunError: there are none.
        """
        rows = group_variants(self.rows).get(variant)
        if not rows:
            raise NotRunError(f"`{variant}` is not run yet")
        return rows

    def trained(self, variant: str) -> tuple[int, int]:
        """Return the shortest and longest size that a variant is trained on."""
        assert self.study is not None, "a predicate about variants needs a study"
        return self.study.trained_sizes(variant)

    def tests_of(self, variant: str) -> list[Row]:
        """Return exact match of a variant's last checkpoints by size."""
        return group_variants(self.tests).get(variant, [])

    def worst(self, variant: str) -> float:
        """Return the exact match of a variant at its worst trained size.

        Raises:
            NotRunError: no trained size was tested.
        """
        found = trained_match(self.tests_of(variant), self.trained(variant))
        if found is None:
            raise NotRunError(f"`{variant}` is not tested at its trained sizes yet")
        return found

    def check_fit(self, variant: str) -> None:
        """Raise NotFittedError unless a variant fits its trained sizes."""
        if (found := self.worst(variant)) < FITS:
            raise NotFittedError(f"`{variant}` does not fit its trained sizes ({found:.3f} at the worst)")

    def fitted(self, variant: str) -> list[Row]:
        """Return the rows of a variant that fits its trained sizes.

        Raises:
            NotFittedError: it does not.
        """
        self.check_fit(variant)
        return self.runs(variant)

    def values(self, rows: list[Row], size: int, measure: str) -> list[float]:
        """Return a measure of each seed at a size."""
        values = [row[measure] for row in rows if row["length"] == size]
        if not values:
            raise NotRunError(f"size {size} is not tested yet")
        return values

    def select(self, where: dict[str, Any], fitted: bool = True) -> list[Row]:
        """Return the rows whose fields have these values; `model` is the name of a variant or of a model.

        Args:
            fitted: a variant must fit its trained sizes.

        Raises:
            NotRunError: there are none.
            NotFittedError: the variant does not fit.
        """
        if fitted and self.study is not None and where.get("model") in self.study.variants:
            self.check_fit(where["model"])
        rows = [{**row, "model": row["model"].rpartition("-seed")[0] or row["model"]} for row in self.rows if "model" in row]
        rows = [row for row in rows or self.rows if where.items() <= row.items()]
        if not rows:
            raise NotRunError(f"there are no rows of {describe(where)} yet")
        return rows


Predicate = Callable[..., Finding]
PREDICATES: dict[str, Predicate] = {}


def predicate(function: Predicate) -> Predicate:
    """Add a function to the predicates that claims may use, under its own name."""
    PREDICATES[function.__name__] = function
    return function


def check_parameters(name: str, parameters: dict[str, Any]) -> None:
    """Raise ValueError unless there is such a predicate with such parameters."""
    if name not in PREDICATES:
        raise ValueError(f"predicate {name!r} is unknown: choose from {', '.join(PREDICATES)}")
    try:
        inspect.signature(PREDICATES[name]).bind(None, **parameters)
    except TypeError as error:
        raise ValueError(f"predicate {name!r}: {error}") from error


def read_field(row: Row, name: str) -> float:
    """Return a field of a row; `probabilities.4` is item 4 of the list `probabilities`."""
    name, _, item = name.partition(".")
    return row[name][int(item)] if item else row[name]


def describe(where: dict[str, Any]) -> str:
    """Return "`ape`, window 10"."""
    return ", ".join(f"`{value}`" if name == "model" else f"{name} {value}" for name, value in where.items())


def spread(values: list[float]) -> str:
    """Return the median of values, and their range if there are several."""
    several = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
    return f"{median(values):.3f}{several}"


def within(value: float, at_least: float | None, at_most: float | None) -> bool:
    """Whether a value is within its bounds."""
    return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)


def bounds(at_least: float | None, at_most: float | None) -> str:
    """Return "at least 0.9", "at most 0.1", both, or "exactly 1"."""
    if at_least is not None and at_least == at_most:
        return f"exactly {at_least:g}"
    limits = {"at least": at_least, "at most": at_most}
    return " and ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit is not None)


@predicate
def fit(evidence: Evidence, variants: list[str]) -> Finding:
    """Every one of these variants fits its trained sizes."""
    worst = {name: evidence.worst(name) for name in variants}
    found = ", ".join(f"`{name}` {match:.3f}" for name, match in worst.items())
    return Finding(min(worst.values()) >= FITS, f"at the worst trained size: {found}", f"each at least {FITS}")


@predicate
def not_fit(evidence: Evidence, variants: list[str], although: str) -> Finding:
    """None of these variants fits its trained sizes, although another variant of the study does."""
    evidence.fitted(although)
    worst = {name: evidence.worst(name) for name in variants}
    found = ", ".join(f"`{name}` {match:.3f}" for name, match in worst.items())
    holds = max(worst.values()) < FITS
    return Finding(holds, f"at the worst trained size: {found}; `{although}` fits", f"each below {FITS}")


@predicate
def reach(evidence: Evidence, variant: str, at_least: float | None = None, at_most: float | None = None) -> Finding:
    """The generalizable length of a variant, in multiples of its longest trained size."""
    rows, longest = evidence.fitted(variant), evidence.trained(variant)[1]
    reached, tested = generalizable_length(rows), max(row["length"] for row in rows)
    found = f"`{variant}` reaches {reached}, {reached / longest:.2f} times its trained {longest}"
    asked = f"{bounds(at_least, at_most)} times"
    holds = within(reached / longest, at_least, at_most)
    if not holds and reached == tested and at_least is not None:
        raise NotRunError(f"{found}, the largest tested size; asked: {asked}")
    return Finding(holds, found, asked)


@predicate
def farther(evidence: Evidence, variant: str, than: list[str]) -> Finding:
    """A variant has a larger generalizable length than each of the others; all fit their trained sizes."""
    reached = {name: generalizable_length(evidence.fitted(name)) for name in (variant, *than)}
    found = ", ".join(f"`{name}` {size}" for name, size in reached.items())
    return Finding(reached[variant] > max(reached[name] for name in than), f"reach: {found}", f"`{variant}` farther")


@predicate
def rising(evidence: Evidence, variants: list[str]) -> Finding:
    """Generalizable lengths never fall from one variant to the next, and the last is larger than the first."""
    reached = {name: generalizable_length(evidence.fitted(name)) for name in variants}
    lengths = list(reached.values())
    found = ", ".join(f"`{name}` {size}" for name, size in reached.items())
    return Finding(lengths == sorted(lengths) and lengths[-1] > lengths[0], f"reach: {found}", "rising in this order")


@predicate
def match(
    evidence: Evidence,
    variant: str,
    size: int,
    at_least: float | None = None,
    at_most: float | None = None,
    measure: str = "exact_match",
) -> Finding:
    """A measure of a variant at a size, which fits its trained sizes."""
    values = evidence.values(evidence.fitted(variant), size, measure)
    found, asked = f"`{variant}` {spread(values)} at {size}", bounds(at_least, at_most)
    return Finding(within(median(values), at_least, at_most), found, asked)


@predicate
def above(
    evidence: Evidence, variant: str, than: list[str], size: int, measure: str = "exact_match", fitted: bool = True
) -> Finding:
    """In all seeds a variant is above all seeds of each of the others, at a size.

    Args:
        fitted: all must fit their trained sizes.
    """
    rows = {name: evidence.fitted(name) if fitted else evidence.runs(name) for name in (variant, *than)}
    values = {name: evidence.values(own, size, measure) for name, own in rows.items()}
    found = ", ".join(f"`{name}` {spread(own)}" for name, own in values.items())
    holds = min(values[variant]) > max(max(values[name]) for name in than)
    return Finding(holds, f"at {size}: {found}", f"every seed of `{variant}` above the others")


@predicate
def not_above(evidence: Evidence, variant: str, than: str, sizes: list[int], either: bool = False) -> Finding:
    """At none of these sizes is every seed of a variant above every seed of the other; both fit their trained sizes.

    Args:
        either: nor is every seed of the other above.
    """
    found, holds = [], True
    for size in sizes:
        own, other = (evidence.values(evidence.fitted(name), size, "exact_match") for name in (variant, than))
        holds &= min(own) <= max(other) and (not either or min(other) <= max(own))
        found.append(f"`{variant}` {spread(own)}, `{than}` {spread(other)} at {size}")
    asked = "neither has every seed above the other" if either else f"not every seed of `{variant}` above `{than}`"
    return Finding(holds, "; ".join(found), f"{asked}, at each size")


@predicate
def best_seed(evidence: Evidence, variant: str, at_least: float) -> Finding:
    """The best seed's generalizable length, in multiples of its longest trained size; it is above the seeds' median."""
    longest = evidence.trained(variant)[1]
    reached = [generalizable_length(rows) for rows in group_by(evidence.fitted(variant), itemgetter("model")).values()]
    best = max(reached) / longest
    found = f"seeds of `{variant}` reach {', '.join(map(str, reached))}, the best {best:.2f} times {longest}"
    holds = best >= at_least and max(reached) > median(reached)
    return Finding(holds, found, f"{bounds(at_least, None)} times, and more than the median")


@predicate
def best_at_most(evidence: Evidence, variant: str, than: list[str], sizes: list[int]) -> Finding:
    """A variant has the highest median at more than half of these sizes."""
    rows = {name: evidence.fitted(name) for name in (variant, *than)}
    medians = {name: [median(evidence.values(own, size, "exact_match")) for size in sizes] for name, own in rows.items()}
    best = sum(own == max(all_own) for own, *all_own in zip(medians[variant], *medians.values(), strict=True))
    return Finding(best > len(sizes) / 2, f"`{variant}` is best at {best} of {len(sizes)} sizes", "more than half")


@predicate
def keeps(
    evidence: Evidence, variant: str, first: int, last: int, at_least: float | None = None, at_most: float | None = None
) -> Finding:
    """The share of its median exact match at the first size, or class, that a variant keeps at the last."""
    start, end = (median(evidence.values(evidence.fitted(variant), size, "exact_match")) for size in (first, last))
    share = end / start if start else 0.0
    found = f"`{variant}` {start:.3f} at {first}, {end:.3f} at {last}: keeps {share:.2f}"
    return Finding(within(share, at_least, at_most), found, bounds(at_least, at_most))


@predicate
def steepest(evidence: Evidence, variant: str, size: int) -> Finding:
    """Beyond the trained sizes a variant loses its largest share from one tested size to the next at this one."""
    rows, longest = evidence.fitted(variant), evidence.trained(variant)[1]
    sizes = sorted({row["length"] for row in rows if row["length"] >= longest})
    medians = [median(evidence.values(rows, one, "exact_match")) for one in sizes]
    kept = {after: end / start if start else 1.0 for after, start, end in zip(sizes[1:], medians, medians[1:], strict=False)}
    if size not in kept:
        raise NotRunError(f"size {size} is not tested yet")
    steep = min(kept, key=kept.__getitem__)
    found = f"`{variant}` keeps {kept[size]:.2f} at {size}; it falls most at {steep}, where it keeps {kept[steep]:.2f}"
    return Finding(steep == size, found, f"the largest fall at {size}")


@predicate
def certified(evidence: Evidence, variant: str) -> Finding:
    """Every seed of a variant was proved exact for problems of every size."""
    proved = [row["certified"] for row in evidence.runs(variant)]
    return Finding(all(proved), f"{sum(proved)} of {len(proved)} seeds certified for every size", "all seeds")


@predicate
def value(
    evidence: Evidence,
    where: dict[str, Any],
    field: str,
    at_least: float | None = None,
    at_most: float | None = None,
    fitted: bool = True,
) -> Finding:
    """The mean of a field over rows.

    Args:
        fitted: the variant must fit its trained sizes.
    """
    found = mean(read_field(row, field) for row in evidence.select(where, fitted))
    return Finding(within(found, at_least, at_most), f"{field} of {describe(where)}: {found:.4g}", bounds(at_least, at_most))


@predicate
def every(
    evidence: Evidence, where: dict[str, Any], field: str, at_least: float | None = None, at_most: float | None = None
) -> Finding:
    """A field is within its bounds in every one of these rows."""
    values = [read_field(row, field) for row in evidence.select(where)]
    kept = sum(within(one, at_least, at_most) for one in values)
    span = f"{min(values):.4g}" if min(values) == max(values) else f"from {min(values):.4g} to {max(values):.4g}"
    found = f"{field} of {describe(where)}: {span}; {bounds(at_least, at_most)} in {kept} of {len(values)} rows"
    return Finding(kept == len(values), found, f"{bounds(at_least, at_most)} in every row")


@predicate
def heads(evidence: Evidence, variant: str, fields: list[str], at_least: float) -> Finding:
    """In most seeds each of these kinds of tokens has a head of its own that gives it at least so much weight."""
    evidence.fitted(variant)
    found, seeds = [], []
    for name, rows in group_by(evidence.runs(variant), itemgetter("model")).items():
        strongest = {kind: max(rows, key=itemgetter(kind)) for kind in fields}
        described = ", ".join(f"{kind} {row[kind]:.2f} (head {row['head']})" for kind, row in strongest.items())
        found.append(f"`{name}` {described}")
        distinct = len({(row["layer"], row["head"]) for row in strongest.values()}) == len(fields)
        seeds.append(distinct and all(row[kind] >= at_least for kind, row in strongest.items()))
    asked = f"in most seeds each at least {at_least}, by a head of its own"
    return Finding(sum(seeds) > len(seeds) / 2, "; ".join(found), asked)


@predicate
def unequal(evidence: Evidence, variant: str, difference: float) -> Finding:
    """Within its reach a variant is at two unequal sizes at most so far below the larger size twice."""
    reached = generalizable_length(evidence.tests_of(variant))
    pairs = group_by(evidence.fitted(variant), itemgetter("length", "length_b"))
    match = {pair: median(row["exact_match"] for row in rows) for pair, rows in pairs.items() if max(pair) <= reached}
    below = {pair: match[max(pair), max(pair)] - share for pair, share in match.items()}
    worst = max(below, key=below.__getitem__)
    twice = (max(worst),) * 2
    found = f"{match[worst]:.3f} at {worst[0]} and {worst[1]}, {match[twice]:.3f} at {twice[0]} twice"
    found = f"`{variant}` at worst within its reach of {reached}: {found}"
    return Finding(below[worst] <= difference, found, f"at most {difference} below")


@predicate
def smaller(evidence: Evidence, field: str, where: dict[str, Any], than: dict[str, Any], fitted: bool = True) -> Finding:
    """The mean of a field is smaller in some rows than in others.

    Args:
        fitted: the variants must fit their trained sizes.
    """
    less, more = (mean(read_field(row, field) for row in evidence.select(one, fitted)) for one in (where, than))
    found = f"{field} of {describe(where)}: {less:.4g}, of {describe(than)}: {more:.4g}"
    return Finding(less < more, found, "the first smaller")


@predicate
def bounded(evidence: Evidence, by: str) -> Finding:
    """At every size no model is above the row of that name."""
    bound = {row["length"]: row["exact_match"] for row in evidence.select({"model": by})}
    others = group_by([row for row in evidence.rows if row["model"] != by], itemgetter("length"))
    most = {size: max(row["exact_match"] for row in rows) for size, rows in others.items()}
    found = ", ".join(f"{share:.4f} of {bound[size]:.4f} at {size}" for size, share in sorted(most.items()))
    holds = all(share <= bound[size] for size, share in most.items())
    return Finding(holds, f"trained models: {found}", f"none above `{by}`")
