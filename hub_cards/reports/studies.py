"""Table and picture of a study (`hub_cards/studies/NAME.yaml`).

A method's reach counts only if the method fits the sizes that it was trained on. Otherwise a low score says nothing about
generalization.
"""

from operator import itemgetter
from pathlib import Path
from statistics import median

from longhand.hub_cards.reports.plots import plot_comparison
from longhand.hub_cards.reports.tables import (
    describe_reach,
    describe_samples,
    describe_seeds,
    median_cells,
    median_seconds,
    render_table,
)
from longhand.hub_cards.runs.results import Row, best_rows, group_by, group_variants, last_rows
from longhand.hub_cards.runs.studies import Study

FITS = 0.95
"""Exact match at every tested size within the trained ones from which on a method fits them."""


def trained_match(rows: list[Row], sizes: tuple[int, int]) -> float | None:
    """Return the lowest exact match at trained sizes, each the median over seeds; None if no trained size was tested."""
    tested = group_by([row for row in rows if sizes[0] <= row["length"] <= sizes[1]], itemgetter("length"))
    return min((median(row["exact_match"] for row in own) for own in tested.values()), default=None)


def fits(rows: list[Row], sizes: tuple[int, int]) -> bool:
    """Whether a variant's runs fit the trained sizes."""
    return (trained_match(rows, sizes) or 0.0) >= FITS


def study_table(study: Study, rows: list[Row]) -> str:
    """Return a line for each variant: exact match at trained and other sizes, and reach if the variant fits the trained."""
    last, best = group_variants(last_rows(rows)), group_variants(best_rows(rows))
    lines = []
    for variant in (name for name in study.variants if name in last):
        own, sizes = last[variant], study.trained_sizes(variant)
        matched = trained_match(own, sizes)
        cells = median_cells(own, study.lengths or sorted({row["length"] for row in rows}))
        fitting = {"last": own, "best": best.get(variant, [])}
        reach = {name: describe_reach(some) if fits(some, sizes) else "not fitted" for name, some in fitting.items()}
        lines.append(
            {
                "variant": variant,
                "trained on": f"{sizes[0]} to {sizes[1]}",
                "worst trained size": "" if matched is None else f"{matched:.3f}",
                **cells,
                "reach": reach["last"],
                "of the best checkpoint": reach["best"],
                "steps": f"{max_steps(study, variant):,}",
                "seconds": median_seconds(own),
            }
        )
    note = (
        f"{describe_seeds(last).capitalize()}, {describe_samples(rows, 'problems per size')}. The reach counts if exact "
        f"match is at least {FITS} at every trained size that was tested."
    )
    return render_table(lines, note)


def max_steps(study: Study, variant: str) -> int:
    """Return the optimizer steps of a variant."""
    return study.setting(variant, "max_steps")


def draw_study(study: Study, rows: list[Row], file: Path) -> None:
    """Draw exact match against size, a line for each variant: medians of the last checkpoints."""
    variants = group_variants(last_rows(rows))
    sizes = {study.trained_sizes(variant) for variant in variants}
    shown = {variant: variants[variant] for variant in study.variants if variant in variants}
    plot_comparison(shown, file, sizes.pop() if len(sizes) == 1 else None, study.xlabel)
