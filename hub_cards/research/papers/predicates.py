"""Questions that claims put to measurements: expressions over rows of results, such as `reach("coupled") >= 3.12`.

`ask` evaluates an expression with these names in scope. A comparison gives a `Outcome`: whether it holds, what was found,
what was asked. `None` says that the numbers do not decide it: a difference is within the noise of the seeds, or a reach ends
with the tested sizes. A method counts only if it fits the sizes that it was trained on, unless `fitted=False` is given.

    reach(VARIANT)                  the generalizable length; bounds are multiples of the longest trained size
    best_reach(VARIANT)             that of the best seed, which must be farther than the median
    match(VARIANT, ..., at=SIZE)    the median exact match at a size, or at each of a list of sizes
    kept(VARIANT, FIRST, LAST)      the share of its exact match at the size, or class, FIRST that a variant keeps at LAST
    mean(FIELD, NAME=VALUE, ...)    the mean of a field over the rows with these values; `after.0` is item 0 of a list
    every(FIELD, NAME=VALUE, ...)   the field in each of these rows
    within(MEASURED, LOW, HIGH)     any of these has two bounds; `>=` and `<=` give one

`>` says that a reach is above another, or a match above each of others; `<=` between matches that it is above none; `<` that
a mean is lower. These names give a `Outcome` by themselves:

    fits_alone(VARIANT, OTHER, ...)        a variant fits its trained sizes, and none of the others does
    best(VARIANT, OTHER, ..., at=SIZES)    a variant is the best one at most sizes
    steepest(VARIANT, SIZE)                beyond the trained sizes, a variant falls most at this size
    heads(VARIANT, KIND, ..., least=SHARE) in most seeds, kinds of tokens have this weight, each in a head of its own

These names give plain numbers: `worst(VARIANT)`, the exact match at the worst trained size; `certified(VARIANT)`, how many
runs are certified; `refuted(VARIANT)`, how many are known to be wrong at a trained length of two digits or more; `proved()`,
up to which length all sums of the shipped learned table are proved.
"""

# Used by: hub_cards/research. Changed freely.

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations, count
from math import inf, isfinite, isnan, nan
from statistics import median
from typing import Any

from pandas import DataFrame, Series

from longhand.hub_cards.metrics.exact_match_by_length.counting import wilson_interval
from longhand.hub_cards.research.study import Study
from longhand.hub_cards.research.study_pages import FITS, fitting, is_refuted, read_lengths, read_shipped_lengths
from longhand.hub_cards.research.tables import generalizable_length
from longhand.hub_cards.result_rows import Row

ENOUGH_SEEDS = 3
"""Fewer seeds of a variant say nothing about a difference unless the intervals of their problems are apart."""

ENOUGH_PROBLEMS = 2000
"""With fewer at a size, a reach that is too short decides nothing: a model with 0.97 right often fails a test of 100."""


class NotRunError(Exception):
    """The rows that an expression needs are not there; the message says which."""


class NotFittedError(Exception):
    """A method that an expression needs does not fit its trained sizes; the message says which."""


@dataclass(frozen=True)
class Outcome:
    """Whether an expression holds, None if the numbers do not decide it; what was found, and what was asked."""

    holds: bool | None
    found: str
    asked: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """The rows that a claim is judged by, see `tables.as_frame`, and what an expression may ask of them.

    Attributes:
        rows: what was measured.
        study: the study whose runs were measured; None if the rows are of no training runs.
        tests: exact match by size of the checkpoints that are judged, which says what fits.
        at_scale: whether no size or budget is below the paper's.
    """

    rows: DataFrame
    study: Study | None = None
    tests: DataFrame = field(default_factory=DataFrame)
    at_scale: bool = False

    @property
    def of_study(self) -> Study:
        """The study of the runs; a question about variants needs one."""
        assert self.study is not None, "a question about variants needs a study"
        return self.study

    @cached_property
    def fitting(self) -> DataFrame:
        """How each tested variant fits its trained sizes, see `study_pages.fitting`."""
        return fitting(self.of_study, self.tests)

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

    def select(self, fitted: bool = True, **where: object) -> DataFrame:
        """Return the rows whose fields have these values; `model` is the name of a variant or of a model.

        Args:
            fitted: a variant must fit its trained sizes.

        Raises:
            NotRunError: there are none.
            NotFittedError: the variant does not fit.
        """
        model = str(where.get("model", ""))
        is_variant = self.study is not None and model in self.study.variants
        if fitted and is_variant and (worst := self.worst(model)) < FITS:
            raise NotFittedError(f"`{model}` does not fit its trained sizes ({worst:.3f} at the worst)")
        rows = self.rows
        for name, value in where.items():
            if name in rows:
                is_chosen = rows[name] == value
                rows = rows[is_chosen | (rows["variant"] == value) if name == "model" else is_chosen]
        if rows.empty or not where.keys() <= {*rows}:
            raise NotRunError(f"there are no rows of {describe(where)} yet")
        return rows

    def at(self, variant: str, size: int, fitted: bool = True) -> DataFrame:
        """Return the rows of a variant at a size, a row for each seed; it raises what `select` raises."""
        return self.select(fitted, model=variant, length=size)

    def median(self, variant: str, size: int) -> float:
        """Return the median exact match of a variant at a size; it raises what `select` raises."""
        return float(self.at(variant, size)["exact_match"].median())

    def certified(self, variant: str) -> int:
        """Return how many runs of a variant are certified."""
        return int(self.select(fitted=False, model=variant)["certified"].sum())

    def refuted(self, variant: str) -> int:
        """Return how many runs of a variant are known to be wrong at a trained length of two digits or more."""
        shortest, longest = self.of_study.trained_sizes(variant)
        rows = [row for row in read_lengths(self.of_study) if row["model"].rpartition("-seed")[0] == variant]
        wrong = [row for row in rows if max(2, shortest) <= row["length"] <= longest and is_refuted(row)]
        return len({row["model"] for row in wrong})

    def proved(self) -> int:
        """Return up to which length all sums of the shipped learned table are proved, from 1 on; 0 if those of 1 are not."""
        lengths = {row["length"] for row in read_shipped_lengths() if row["verdict"] == "proved"}
        return next(length for length in count() if length + 1 not in lengths)

    def kept(self, variant: str, first: int, last: int) -> "Share":
        """Return the share of its median exact match at the first size, or class, that a variant keeps at the last."""
        start, end = self.median(variant, first), self.median(variant, last)
        share = end / start if start else 0.0
        return Share(share, f"`{variant}` {start:.3f} at {first}, {end:.3f} at {last}: keeps {share:.2f}")

    def fits_alone(self, variant: str, *others: str) -> Outcome:
        """Say whether none of the other variants fits its trained sizes, although this one does.

        Whether a loss stays flat is not among the results, so with less than the paper's budget this is not decided.
        """
        self.select(model=variant)
        worst = {name: self.worst(name) for name in others}
        found = ", ".join(f"`{name}` {match:.3f}" for name, match in worst.items())
        found = f"at the worst trained size: {found}; `{variant}` fits"
        holds = max(worst.values()) < FITS
        return Outcome((self.at_scale or None) if holds else False, found, f"each below {FITS}, with the paper's budget")

    def best(self, variant: str, *others: str, at: Sequence[int]) -> Outcome:
        """Say whether a variant has the highest median at more than half of these sizes."""
        medians = [{name: self.median(name, size) for name in (variant, *others)} for size in at]
        first = sum(of_size[variant] == max(of_size.values()) for of_size in medians)
        return Outcome(first > len(at) / 2, f"`{variant}` is best at {first} of {len(at)} sizes", "more than half")

    def steepest(self, variant: str, size: int) -> Outcome:
        """Say whether beyond the trained sizes the median of a variant falls most at this size, from that tested before."""
        medians = self.select(model=variant).groupby("length")["exact_match"].median()
        falls = -medians[medians.index >= self.of_study.trained_sizes(variant)[1]].diff().dropna()
        steep = falls.idxmax()
        found = f"`{variant}` falls by {falls[size]:.3f} at {size}; it falls most at {steep}, by {falls[steep]:.3f}"
        return Outcome(bool(steep == size), found, f"the largest fall at {size}")

    def heads(self, variant: str, *kinds: str, least: float) -> Outcome:
        """Say whether in most seeds each of these kinds of tokens has a head of its own that gives it this weight."""
        found, seeds = [], []
        for name, rows in self.select(model=variant).groupby("model", sort=False):
            strongest = {kind: rows.loc[rows[kind].idxmax()] for kind in kinds}
            described = ", ".join(f"{kind} {row[kind]:.2f} (head {row['head']})" for kind, row in strongest.items())
            found.append(f"`{name}` {described}")
            is_distinct = len({(row["layer"], row["head"]) for row in strongest.values()}) == len(kinds)
            seeds.append(is_distinct and all(row[kind] >= least for kind, row in strongest.items()))
        asked = f"in most seeds each at least {least}, by a head of its own"
        return Outcome(sum(seeds) > len(seeds) / 2, "; ".join(found), asked)


class Measured:
    """What is compared with numbers, and formatted as a number."""

    @property
    def number(self) -> float:
        """What was measured of one variant."""
        raise NotImplementedError

    def within(self, at_least: float, at_most: float) -> Outcome:
        """Return whether it is within these bounds."""
        raise NotImplementedError

    def __ge__(self, at_least: float) -> Outcome:
        return self.within(at_least, inf)

    def __le__(self, at_most: Any) -> Outcome:
        return self.within(-inf, at_most)

    def __format__(self, form: str) -> str:
        return format(self.number, form)


class Share(Measured):
    """A number, and what is said of it."""

    number = nan

    def __init__(self, number: float, found: str) -> None:
        self.number, self.found = number, found

    def within(self, at_least: float, at_most: float) -> Outcome:
        """Return whether the number is within these bounds."""
        return Outcome(bool(at_least <= self.number <= at_most), self.found, bounds(at_least, at_most))


class ReachOfVariant(Measured):
    """The generalizable length of a variant.

    A length that is the largest tested one may be longer: it decides only that the reach is at least as long.
    """

    number = 0

    def __init__(self, evidence: Evidence, variant: str, of_best: bool = False) -> None:
        rows, longest = evidence.select(model=variant), evidence.of_study.trained_sizes(variant)[1]
        self.variant, self.of_best = variant, of_best
        self.seeds = [generalizable_length(run) for _, run in rows.groupby("model")]
        self.number = max(self.seeds) if of_best else generalizable_length(rows)
        self.ratio, self.is_at_end = self.number / longest, self.number == int(rows["length"].max())
        self.has_few_problems = rows["num_samples"].min() < ENOUGH_PROBLEMS
        end = ", the largest tested size" if self.is_at_end else ""
        whose = "best of " if of_best else ""
        self.described = f"`{variant}` {self.number}{end}"
        self.found = f"{whose}`{variant}` reaches {self.number}, {self.ratio:.2f} times {longest}{end}"

    def within(self, at_least: float, at_most: float) -> Outcome:
        """Return whether the reach is within these multiples of the longest trained size."""
        parts: list[bool | None] = []
        if isfinite(at_least):
            parts.append(True if self.ratio >= at_least else None if self.is_at_end or self.has_few_problems else False)
        if isfinite(at_most):
            parts.append(False if self.ratio > at_most else None if self.is_at_end else True)
        if self.of_best:
            parts.append(self.number > median(self.seeds))
        return Outcome(all_of(parts), self.found, f"{bounds(at_least, at_most)} times")

    def __gt__(self, other: "ReachOfVariant") -> Outcome:
        is_few = min(len(self.seeds), len(other.seeds)) < ENOUGH_SEEDS
        is_farther = self.number > other.number if is_few else is_higher(self.seeds, other.seeds)
        holds = None if other.is_at_end or (self.is_at_end and not is_farther) else is_farther
        return Outcome(holds, f"{self.found}; {other.described}", f"`{self.variant}` farther than `{other.variant}`")


class Match(Measured):
    """Exact matches of variants at some sizes, in median over seeds."""

    def __init__(self, evidence: Evidence, *variants: str, at: int | Sequence[int], fitted: bool = True) -> None:
        self.evidence, self.variants, self.fitted = evidence, variants, fitted
        self.sizes = [at] if isinstance(at, int) else [*at]

    def rows(self, size: int) -> dict[str, DataFrame]:
        """Return the rows of each variant at a size."""
        return {name: self.evidence.at(name, size, self.fitted) for name in self.variants}

    @property
    def number(self) -> float:
        """The exact match of the only variant at the only size."""
        (size,) = self.sizes
        (rows,) = self.rows(size).values()
        return float(rows["exact_match"].median())

    def within(self, at_least: float, at_most: float) -> Outcome:
        """Return whether each exact match of the only variant is within these bounds."""
        (name,) = self.variants
        rows = {size: self.rows(size)[name]["exact_match"] for size in self.sizes}
        found = "; ".join(f"`{name}` {spread(matches)} at {size}" for size, matches in rows.items())
        holds = all(at_least <= matches.median() <= at_most for matches in rows.values())
        return Outcome(holds, found, bounds(at_least, at_most))

    def __gt__(self, others: "Match") -> Outcome:
        (name,) = self.variants
        return self._compare(others, is_above, f"`{name}` above {names(others.variants)}")

    def __le__(self, others: Any) -> Outcome:
        if not isinstance(others, Match):
            return super().__le__(others)
        (name,) = self.variants
        return self._compare(others, is_not_above, f"`{name}` not above {names(others.variants)}")

    def _compare(self, others: "Match", compare: Any, asked: str) -> Outcome:
        """Compare the only variant with each other one at each size."""
        if others.sizes != self.sizes:
            raise ValueError(f"matches at sizes {self.sizes} are compared with matches at {others.sizes}")
        parts, found = [], []
        for size in self.sizes:
            ((name, rows),) = self.rows(size).items()
            rows_of_others = others.rows(size)
            parts += [compare(rows, other_rows, "exact_match") for other_rows in rows_of_others.values()]
            matches = {variant: tests["exact_match"] for variant, tests in {name: rows, **rows_of_others}.items()}
            found.append(f"{', '.join(f'`{variant}` {spread(values)}' for variant, values in matches.items())} at {size}")
        return Outcome(all_of(parts), "; ".join(found), asked)


class Mean(Measured):
    """The mean of a field over rows."""

    def __init__(self, evidence: Evidence, name: str, fitted: bool = True, **where: object) -> None:
        self.evidence, self.name, self.where = evidence, name, where
        self.rows = evidence.select(fitted, **where)
        self.values = read_field(self.rows, name)

    @property
    def number(self) -> float:
        """The mean."""
        return float(self.values.mean())

    def within(self, at_least: float, at_most: float) -> Outcome:
        """Return whether the mean is within these bounds."""
        found = f"{self.name} of {describe(self.where)}: {self.number:.4g}"
        return Share(self.number, found).within(at_least, at_most)

    def __lt__(self, other: "Mean") -> Outcome:
        found = f"{self.name} of {describe(self.where)}: {self.number:.4g}, of {describe(other.where)}: {other.number:.4g}"
        # Rows of no training run have no noise.
        is_lower = self.number < other.number if self.evidence.study is None else is_above(other.rows, self.rows, self.name)
        return Outcome(is_lower, found, "the first lower")


class Every(Mean):
    """A field in each of some rows."""

    def within(self, at_least: float, at_most: float) -> Outcome:
        """Return whether the field of each row is within these bounds."""
        low, high, limits = self.values.min(), self.values.max(), bounds(at_least, at_most)
        kept = int(self.values.between(at_least, at_most).sum())
        span = f"{low:.4g}" if low == high else f"from {low:.4g} to {high:.4g}"
        found = f"{self.name} of {describe(self.where)}: {span}; {limits} in {kept} of {len(self.values)} rows"
        return Outcome(kept == len(self.values), found, f"{limits} in every row")


MEASURES: dict[str, Callable[..., Measured]] = {
    "reach": ReachOfVariant,
    "best_reach": partial(ReachOfVariant, of_best=True),
    "match": Match,
    "mean": Mean,
    "every": Every,
}
"""What an expression may compare, each made of the evidence."""

ASKED = ("kept", "fits_alone", "best", "steepest", "heads", "worst", "certified", "refuted", "proved")
"""What an expression may ask the evidence itself."""


def within(measured: Measured, at_least: float, at_most: float) -> Outcome:
    """Return whether something measured is within these bounds."""
    return measured.within(at_least, at_most)


def ask(expression: str, evidence: Evidence) -> Any:
    """Return what an expression of a claim gives: a `Outcome`, or what was measured where nothing is compared.

    Raises:
        NotRunError: rows that it needs are not there.
        NotFittedError: a method that it needs does not fit its trained sizes.
    """
    scope: dict[str, object] = {name: partial(measure, evidence) for name, measure in MEASURES.items()}
    scope |= {name: getattr(evidence, name) for name in ASKED}
    return eval(expression, {"__builtins__": {}, "range": range, "within": within} | scope)


def texts_of(expression: str) -> set[str]:
    """Return the texts in quotes of an expression, such as the names of variants."""
    constants = (node.value for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def read_field(rows: DataFrame, name: str) -> Series:
    """Return a field of rows as numbers; `probabilities.4` is item 4 of the lists `probabilities`."""
    name, _, item = name.partition(".")
    return (rows[name].str[int(item)] if item else rows[name]).astype(float)


def describe(where: Row) -> str:
    """Return "`ape`, window 10"."""
    return ", ".join(f"`{value}`" if name == "model" else f"{name} {value}" for name, value in where.items())


def spread(values: Series) -> str:
    """Return the median of values, and their range if there are several."""
    several = f" ({values.min():.3f} to {values.max():.3f})" if len(values) > 1 else ""
    return f"{values.median():.3f}{several}"


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
        return sum(total >= sum(ranks[: len(more)]) for total in sums) <= 0.05 * len(sums)

    return True if significant(own, other) else False if significant(other, own) else None


def is_above(own: DataFrame, other: DataFrame, name: str) -> bool | None:
    """Whether a field is higher in some seeds' rows than in others': `is_higher`, or with few seeds by their problems.

    With fewer than `ENOUGH_SEEDS` of either, 95% intervals of the shares of right answers must be apart.
    """
    values, others = (list(read_field(rows, name).groupby(rows["model"]).mean()) for rows in (own, other))
    if min(len(values), len(others)) >= ENOUGH_SEEDS:
        return is_higher(values, others)
    if name not in ("exact_match", "accuracy"):
        return None
    (low, high), (other_low, other_high) = (problem_interval(rows, name) for rows in (own, other))
    return True if low > other_high else False if other_low > high else None


def is_not_above(own: DataFrame, other: DataFrame, name: str) -> bool | None:
    """Whether the median of a field is not higher than in other rows; it is decided against only if the seeds are."""
    is_lower = own[name].median() <= other[name].median()
    return True if is_lower else False if is_above(own, other, name) else None


def problem_interval(rows: DataFrame, name: str) -> tuple[float, float]:
    """Return the lowest and the highest end of the 95% intervals of a share of right answers, an interval for each row."""
    counts = [(round(share * count), count) for share, count in zip(rows[name], rows["num_samples"], strict=True)]
    ends = [wilson_interval(right, count) for right, count in counts]
    return min(low for low, _ in ends), max(high for _, high in ends)
