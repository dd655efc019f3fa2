"""Tables and pictures of studies (`hub_cards/research/studies/NAME.yaml`).

A method's reach counts only if the method fits the sizes that it was trained on. Otherwise a low score says nothing about
generalization.
"""

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from statistics import median

from longhand.data import TASKS
from longhand.hub_cards.evaluation.plots import describe_sizes, plot_comparison, plot_grid
from longhand.hub_cards.evaluation.results import (
    ATTENTION_FILE,
    CERTIFICATES_FILE,
    PLACES_FILE,
    POSITION_MAPS_FILE,
    RESULTS_FILE,
    Row,
    best_rows,
    by_class,
    group_by,
    group_variants,
    last_rows,
    read_results,
)
from longhand.hub_cards.research.study import Study
from longhand.hub_cards.research.tables import (
    TableLine,
    describe_reach,
    describe_samples,
    describe_seeds,
    filled_table,
    median_cells,
    median_seconds,
    render_table,
)

FITS = 0.95
"""Exact match at every tested size within the trained ones from which on a method fits them."""

NOT_FITTED = "not fitted"

CERTIFICATES = Path("certificates", CERTIFICATES_FILE)
"""In the results of a study whose runs end with a certificate, or whose file evaluates `certificates: {certify: true}`."""

TABLE_OF_FILE = {
    ATTENTION_FILE: "attention",
    CERTIFICATES_FILE: "certificates",
    PLACES_FILE: "places",
    POSITION_MAPS_FILE: "vectors",
}
"""The tables of results files that do not hold accuracies."""

CLASSES = "columns of the longest chain of carries"
"""The name of the axis of sums by class."""

USUAL = ("trained on", "seeds that fit", "lengths", "reach", "of the best checkpoint", "certified", "steps", "seconds")
"""The columns of a study's table, unless its file names others; `lengths` is a column for each size. The columns of best
checkpoints and of certificates are left out where there are none.

Others: `predictions checked`, `smallest margin` and `lead / bound` of the certificates; `exact match`, the worst of all runs
and sizes; `parameters` of the model.
"""


def trained_match(rows: list[Row], sizes: tuple[int, int]) -> float | None:
    """Return the lowest exact match at trained sizes, each the median over seeds; None if no trained size was tested."""
    tested = group_by([row for row in rows if sizes[0] <= row["length"] <= sizes[1]], itemgetter("length"))
    return min((median(row["exact_match"] for row in own) for own in tested.values()), default=None)


def fits(rows: list[Row], sizes: tuple[int, int]) -> bool:
    """Whether a variant's runs fit the trained sizes."""
    return (trained_match(rows, sizes) or 0.0) >= FITS


def fails(rows: list[Row], sizes: tuple[int, int]) -> bool:
    """Whether a variant's runs were tested at trained sizes and do not fit them, so that no other size says anything."""
    return trained_match(rows, sizes) is not None and not fits(rows, sizes)


def seeds_that_fit(rows: list[Row], sizes: tuple[int, int]) -> tuple[int, int]:
    """Return how many seeds of a variant fit its trained sizes, and how many there are."""
    seeds = group_by(rows, itemgetter("model")).values()
    return sum(fits(own, sizes) for own in seeds), len(seeds)


def fitted_reach(rows: list[Row], sizes: tuple[int, int]) -> str:
    """Return the generalizable length of a variant if it fits the trained sizes."""
    return describe_reach(rows) if fits(rows, sizes) else NOT_FITTED


def unfitted(study: Study, tests: list[Row]) -> list[str]:
    """Return the variants that do not fit their trained sizes.

    Args:
        tests: exact match by size, of last checkpoints or of the best ones.
    """
    variants = group_variants(tests)
    return [name for name, own in variants.items() if name in study.variants and fails(own, study.trained_sizes(name))]


def study_block(study: Study, folder: Path, evaluation: str = "", kind: str = "") -> str:
    """Return a table of a study.

    Args:
        folder: of the study's results.
        evaluation: what was measured besides, a name in `Study.evaluate`; "" is what train.py measured.
        kind: "runs" for a line for each run or measurement, "labels" for the share of right labels; "" is the usual table.
    """
    for file, table in TABLE_OF_FILE.items():
        if (folder / evaluation / file).exists():
            return filled_table(table, read_results(folder / evaluation / file))
    rows = read_results(folder / evaluation / RESULTS_FILE)
    if kind == "runs":
        return filled_table("long" if evaluation else kind, last_rows(rows))
    if kind == "labels":
        return study_table(study, rows, measure="token_accuracy", columns=("lengths", "seconds"))
    if evaluation:
        return study_table(study, rows, tests=read_tests(folder), columns=("lengths", "seconds"))
    certificates = read_results(folder / CERTIFICATES) if (folder / CERTIFICATES).exists() else []
    return study_table(study, rows, certificates)


def read_tests(folder: Path) -> list[Row]:
    """Return exact match by size of a study's last checkpoints; of the best ones if there are no others."""
    return last_rows(rows := read_results(folder / RESULTS_FILE)) or rows


def study_table(
    study: Study,
    rows: list[Row],
    certificates: Sequence[Row] = (),
    tests: list[Row] | None = None,
    measure: str = "exact_match",
    columns: Sequence[str] = (),
) -> str:
    """Return a line for each variant with results, in the order of the study.

    Last checkpoints are shown; best ones only if there are no others. Variants that do not fit their trained sizes have no
    line: the note names them. Where the measure is not exact match, they have one.

    Args:
        tests: rows that say what fits; None means `rows`.
        columns: as in `USUAL`; by default the columns of the study.
    """
    left_out = {"of the best checkpoint": not best_rows(rows), "certified": not certificates}
    columns = columns or study.columns or [name for name in USUAL if not left_out.get(name)]
    shown = last_rows(rows) or rows
    classes = is_by_class(shown)
    poor = unfitted(study, shown if tests is None else tests) if measure == "exact_match" else []
    notes = [] if last_rows(rows) else ["best checkpoints"]
    what = f"sums of {shown[0]['length']} digits by class" if classes else "problems per size"
    notes += [describe_seeds(group_variants(shown)), describe_samples(shown, what)]
    shown = by_class(shown) if classes else shown
    last, best, checks = group_variants(shown), group_variants(best_rows(rows)), group_variants(list(certificates))
    lengths = study.lengths if tests is None and study.lengths else sorted({row["length"] for row in shown})
    lines = []
    for variant in (name for name in study.variants if name in last and name not in poor):
        own, sizes = last[variant], study.trained_sizes(variant)
        cells: dict[str, str | TableLine] = {
            "trained on": describe_sizes(sizes),
            "seeds that fit": "{} of {}".format(*seeds_that_fit(own, sizes)),
            "lengths": median_cells(own, lengths, measure),
            "reach": fitted_reach(own, sizes),
            "of the best checkpoint": fitted_reach(best[variant], sizes) if variant in best else "",
            "exact match": describe_worst(own),
            **certificate_cells(checks.get(variant, [])),
            "parameters": f"{study.parameters(variant):,}" if "parameters" in columns else "",
            "steps": f"{study.setting(variant, 'max_steps'):,}",
            "seconds": median_seconds(own),
        }
        if unknown := [name for name in columns if name not in cells]:
            raise ValueError(f"study {study.name}: columns has {unknown[0]!r}; choose among {', '.join(cells)}")
        chosen = (cell if isinstance(cell := cells[name], dict) else {name: cell} for name in columns)
        lines.append({"variant": variant, **{heading: text for part in chosen for heading, text in part.items()}})
    note = f"{', '.join(notes)}."
    note = note[0].upper() + note[1:]
    if poor:
        note += f" Left out, since exact match at a trained size is below {FITS}: {', '.join(f'`{name}`' for name in poor)}."
    return render_table(lines, note) if lines else f"{note}\n"


def certificate_cells(rows: list[Row]) -> TableLine:
    """Return what the certificates of a variant's runs say; a variant without them cannot be certified."""
    if not rows:
        return {"certified": "cannot be", "predictions checked": "", "smallest margin": "", "lead / bound": ""}
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    return {
        "certified": f"{sum(row['certified'] for row in rows)} of {len(rows)}",
        "predictions checked": f"{max(row['predictions'] for row in rows):,}",
        "smallest margin": f"{min(row['margin'] for row in rows):.2f}",
        # Where a prediction is wrong nothing is bounded.
        "lead / bound": f"{min(ratios):,.0f}" if len(ratios) == len(rows) else "",
    }


def describe_worst(rows: list[Row]) -> str:
    """Return the worst exact match of all runs and sizes, and the longest size."""
    worst = min(row["exact_match"] for row in rows)
    return f"{'' if worst == 1 else 'at least '}{worst:.3f} to {max(row['length'] for row in rows):,}"


def draw_study(study: Study, rows: list[Row], file: Path, tests: list[Row] | None = None) -> None:
    """Draw exact match against size or class, a line for each variant: medians over seeds. Two sizes make a grid.

    Variants that do not fit their trained sizes are left out; if none fits, there is no picture.

    Args:
        tests: rows that say what fits; None means `rows`.
    """
    shown = last_rows(rows) or rows
    classes, lengths = is_by_class(shown), {row["length"] for row in shown}
    variants = group_variants(by_class(shown) if classes else shown)
    trained = {study.trained_sizes(variant) for variant in variants}
    sizes = trained.pop() if len(trained) == 1 and not classes else None
    if len({(row["length"], row["length_b"]) for row in shown}) > len(lengths) and not classes:
        plot_grid(shown, file, sizes, TASKS[shown[0]["task"]].size_names)
        return
    poor = unfitted(study, shown if tests is None else tests)
    if drawn := {name: variants[name] for name in study.variants if name in variants and name not in poor}:
        plot_comparison(drawn, file, sizes, CLASSES if classes else study.xlabel)
    else:
        file.unlink(missing_ok=True)


def is_by_class(rows: list[Row]) -> bool:
    """Whether sums of one length were tested by class, such as the length of their longest cascade of carries."""
    return len({row["length"] for row in rows}) == 1 < len({row["length_b"] for row in rows})
