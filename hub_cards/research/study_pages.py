"""Tables and pictures of studies (`hub_cards/research/studies/NAME.yaml`).

A method's reach counts only if the method fits the sizes that it was trained on. Otherwise a low score says nothing about
generalization: such a method is shown in italics, or in grey, and has no reach.
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import cast

from longhand.data.tasks.registry import find_task
from longhand.hub_cards.checkpoints.checkpoint import CERTIFICATE_FILE
from longhand.hub_cards.checkpoints.length_certificate import ranges
from longhand.hub_cards.checkpoints.load import zoo
from longhand.hub_cards.commands import read_object
from longhand.hub_cards.evaluation.plots import (
    NOT_FITTED,
    describe_sizes,
    median_line,
    plot_checkpoints,
    plot_lines,
    plot_results,
)
from longhand.hub_cards.research.study import STUDY_RESULTS, Study, load_study
from longhand.hub_cards.research.tables import TABLES, TableLine, filled_table, render_table
from longhand.hub_cards.result_rows import (
    CERTIFICATES_FILE,
    RESULTS_FILE,
    Row,
    best_rows,
    by_class,
    generalizable_length,
    group_by,
    group_variants,
    last_rows,
    median_interval,
    read_results,
    worst_verdict,
)

FITS = 0.95
"""Exact match at every tested size within the trained ones from which on a method fits them."""

CERTIFICATES = Path("certificates", CERTIFICATES_FILE)
"""In the results of a study whose runs end with a certificate, or whose file evaluates `certificates: {certify: true}`."""

VERDICT_STUDIES = ("addition-absolute", "worst-tables", "worst-practice", "proved-lengths")
"""Studies whose models are listed with what is proved, what is refuted and what is only sampled of them."""

SEARCH = "search"
"""The name under which a study evaluates `--worst`."""

LENGTHS_FILE = Path("lengths", CERTIFICATES_FILE)
"""In the results of a study whose file evaluates `lengths: {certify: true, lengths: ...}`."""

PROVED_LENGTHS = "proved-lengths"
"""The study whose models are proved length by length."""


PROVED_TABLE = "addition-absolute-proved"
"""The shipped learned table whose certificate says which lengths are proved."""


def describe_tests(rows: list[Row], what: str) -> str:
    """Say over how many seeds the medians are, of which checkpoints, and how many problems were tested, on what."""
    seeds = sorted({len({row["model"] for row in own}) for own in group_variants(rows).values()})
    said = "one seed" if seeds == [1] else f"medians of {' or '.join(map(str, seeds))} seeds"
    said = said.capitalize() if last_rows(rows) else f"Best checkpoints, {said}"
    counts = sorted({row["num_samples"] for row in rows})
    samples = describe_sizes((counts[0], counts[-1]))
    return f"{said}, {samples} {what}, test seed {rows[0]['seed']}, {rows[0]['hardware']}."


def median_cells(rows: list[Row], lengths: Iterable[int], measure: str = "exact_match") -> TableLine:
    """Return the median of a measure over runs, for each length; empty if a length was not tested."""
    values = group_by(rows, itemgetter("length"))
    return {str(n): f"{median(row[measure] for row in values[n]):.3f}" if n in values else "" for n in lengths}


def trained_match(rows: list[Row], sizes: tuple[int, int]) -> float | None:
    """Return the lowest exact match at trained sizes, each the median over seeds; None if no trained size was tested."""
    tested = group_by([row for row in rows if sizes[0] <= row["length"] <= sizes[1]], itemgetter("length"))
    return min((median(row["exact_match"] for row in own) for own in tested.values()), default=None)


def fits(rows: list[Row], sizes: tuple[int, int]) -> bool:
    """Whether a variant's runs fit the trained sizes."""
    return (trained_match(rows, sizes) or 0.0) >= FITS


def seeds_that_fit(rows: list[Row], sizes: tuple[int, int]) -> tuple[int, int]:
    """Return how many seeds of a variant fit its trained sizes, and how many there are."""
    seeds = group_by(rows, itemgetter("model")).values()
    return sum(fits(own, sizes) for own in seeds), len(seeds)


def fitted_reach(rows: list[Row], sizes: tuple[int, int]) -> str:
    """Return the generalizable length of a variant that fits its trained sizes, with >= if nothing longer was tested."""
    return describe_reach(rows) if fits(rows, sizes) else NOT_FITTED


def describe_reach(rows: Sequence[Row]) -> str:
    """Return the generalizable length of a run or a variant, with >= if nothing longer was tested."""
    reached = generalizable_length(list(rows))
    if reached == max(row["length"] for row in rows):
        return f">= {reached}"
    return str(reached)


def unfitted(study: Study, tests: list[Row]) -> list[str]:
    """Return the variants that were tested at trained sizes and do not fit them, so that no other size says anything.

    Args:
        tests: exact match by size, of last checkpoints or of the best ones.
    """
    variants = {name: rows for name, rows in group_variants(tests).items() if name in study.variants}
    matches = {name: trained_match(rows, study.trained_sizes(name)) for name, rows in variants.items()}
    return [name for name, found in matches.items() if found is not None and found < FITS]


def study_block(study: Study, folder: Path, evaluation: str = "", kind: str = "") -> str:
    """Return a table of a study.

    Args:
        folder: of the study's results.
        evaluation: what was measured besides, a name in `Study.evaluate`; "" is what train.py measured.
        kind: "runs" for a line for each run or measurement, and each task if there are several; "labels" for the share of
            right labels; "seeds" for what many seeds tell, see `seeds_table`; "" is the usual table.
    """
    for file in (folder / evaluation / f"{table}.jsonl" for table in TABLES):
        if file.exists():
            return filled_table(file.stem, read_results(file))
    rows = read_results(folder / evaluation / RESULTS_FILE)
    if kind == "runs":
        tasks = {row["task"] for row in rows}
        return filled_table("long" if evaluation else "by-task" if len(tasks) > 1 else "by-length", last_rows(rows))
    if kind == "labels":
        return study_table(study, rows, measure="token_accuracy")
    if kind == "seeds":
        return seeds_table(study, last_rows(rows))
    if evaluation:
        return study_table(study, rows, tests=read_tests(folder))
    certificates = read_results(folder / CERTIFICATES) if (folder / CERTIFICATES).exists() else []
    return study_table(study, rows, certificates)


def seeds_table(study: Study, rows: list[Row]) -> str:
    """Return a line for each variant: medians beyond the trained sizes with 95% intervals by bootstrap over the seeds.

    Below the first line, each cell also says how many seeds are above the same seed of the first variant.

    Args:
        rows: of last checkpoints; every variant has the same seeds and sizes.
    """
    variants = group_variants(rows)
    measured = [name for name in study.variants if name in variants]
    first = measured[0]
    longest = study.trained_sizes(first)[1]
    sizes = sorted({row["length"] for row in rows if row["length"] > longest})
    lines = []
    for name in measured:
        line = {"variant": name}
        for size in sizes:
            own, other = (_matches_by_seed(variants[one], size) for one in (name, first))
            low, high = median_interval(list(own.values()))
            above = "" if name == first else f", {sum(own[seed] > other[seed] for seed in own)} of {len(own)} above"
            line[str(size)] = f"{median(own.values()):.2f} ({low:.2f} to {high:.2f}){above}"
        lines.append(line)
    counted = f"how many seeds are above the same seed of `{first}`"
    return render_table(lines, f"Medians over seeds, with 95% intervals by bootstrap over the seeds, and {counted}.")


def _matches_by_seed(rows: list[Row], size: int) -> dict[str, float]:
    """Exact match at a size by the seed of the run."""
    return {row["model"].rpartition("-seed")[2]: row["exact_match"] for row in rows if row["length"] == size}


def results_by_variant(study: Study) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
    """Return the rows of a study's last checkpoints, and its certificates, by variant; nothing if there are none."""
    results, certificates = (
        group_variants(last_rows(read_results(file))) if file.exists() else {}
        for file in (STUDY_RESULTS / study.name / name for name in (RESULTS_FILE, CERTIFICATES))
    )
    return results, certificates


def read_tests(folder: Path) -> list[Row]:
    """Return exact match by size of a study's last checkpoints; of the best ones if there are no others."""
    return last_rows(rows := read_results(folder / RESULTS_FILE)) or rows


def study_table(
    study: Study,
    rows: list[Row],
    certificates: Sequence[Row] = (),
    tests: list[Row] | None = None,
    measure: str = "exact_match",
) -> str:
    """Return a line for each variant with results, in the order of the study.

    Last checkpoints are shown; best ones only if there are no others. The numbers of variants that do not fit their trained
    sizes are in italics.

    Args:
        certificates: of the variants that can be certified.
        tests: rows that say what fits, if the rows are of another evaluation than the study's tests.
    """
    shown = last_rows(rows) or rows
    classes, is_usual = is_by_class(shown), tests is None and measure == "exact_match"
    poor = unfitted(study, tests or shown) if measure == "exact_match" else []
    what = f"sums of {shown[0]['length']} digits by class" if classes else "problems per size"
    note = describe_tests(shown, what)
    shown = by_class(shown) if classes else shown
    last, best, checks = group_variants(shown), group_variants(best_rows(rows)), group_variants(list(certificates))
    lengths = sorted({row["length"] for row in shown}) if study.lengths is None or not is_usual else study.lengths
    lines = []
    for variant in (name for name in study.variants if name in last):
        own, sizes = last[variant], study.trained_sizes(variant)
        cells = median_cells(own, lengths, measure)
        if variant in poor:
            cells = {size: f"*{cell}*" if cell else "" for size, cell in cells.items()}
        if poor and not lengths:
            # Sizes of different tasks make no columns.
            match = trained_match(own, sizes)
            cells["at trained sizes"] = "" if match is None else f"*{match:.3f}*" if variant in poor else f"{match:.3f}"
        line = {"variant": variant, "trained on": describe_sizes(sizes), **cells}
        if is_usual:
            line |= {"seeds that fit": "{} of {}".format(*seeds_that_fit(own, sizes)), "reach": fitted_reach(own, sizes)}
            line |= {"of the best checkpoint": fitted_reach(best[variant], sizes) if variant in best else ""} if best else {}
            line |= certificate_cells(study, variant, own, checks.get(variant, [])) if checks else {}
            line["steps"] = f"{study.parse(variant).training.max_steps:,}"
        lines.append({**line, "seconds": f"{median(row['run_seconds'] for row in own):.0f}"})
    if poor:
        note += (
            f" In italics: exact match at a trained size is below {FITS}, so that longer sizes say nothing of the variant."
        )
    return render_table(lines, note) if lines else f"{note}\n"


def certificate_cells(study: Study, variant: str, tests: list[Row], rows: list[Row]) -> TableLine:
    """Return the worst exact match of all runs and sizes, and what the certificates of a variant's runs say."""
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    # A run with a wrong prediction does not say how many its list has.
    counts = [row["neighbourhoods"] for row in rows if row["neighbourhoods"]]
    return {
        "worst exact match": f"{min(row['exact_match'] for row in tests):.3f}",
        "certified": f"{sum(row['certified'] for row in rows)} of {len(rows)}" if rows else "cannot be",
        "neighbourhoods": f"{max(counts):,}" if counts else "",
        "smallest margin": f"{min(row['margin'] for row in rows):.2f}" if rows else "",
        # Where a prediction is wrong nothing is bounded.
        "lead / bound": f"{min(ratios):,.0f}" if rows and len(ratios) == len(rows) else "",
        "parameters": f"{study.parameters(variant):,}",
    }


def draw_study(study: Study, rows: list[Row], file: Path, tests: list[Row] | None = None) -> None:
    """Draw exact match against size or class, a line for each variant: medians over seeds. Two sizes make a grid.

    Variants that do not fit their trained sizes are grey.

    Args:
        tests: rows that say what fits; None means `rows`.
    """
    shown = last_rows(rows) or rows
    classes, lengths = is_by_class(shown), {row["length"] for row in shown}
    variants = group_variants(by_class(shown) if classes else shown)
    trained = {study.trained_sizes(variant) for variant in variants}
    sizes = trained.pop() if len(trained) == 1 and not classes else None
    if len({(row["length"], row["length_b"]) for row in shown}) > len(lengths) and not classes:
        plot_results(shown, file, sizes, find_task(shown[0]["task"]))
        return
    poor = unfitted(study, shown if tests is None else tests)
    drawn = {name: median_line(name, variants[name]) for name in study.variants if name in variants}
    fitted = [line for name, line in drawn.items() if name not in poor]
    xlabel = find_task(shown[0]["task"]).size_names[1] if classes else study.xlabel
    plot_lines(fitted, file, sizes, xlabel, poor=[line for name, line in drawn.items() if name in poor])


def draw_checkpoints(study: Study, rows: list[Row], file: Path, tests: list[Row]) -> None:
    """Draw exact match by length at the validations of each variant's first run, see `plot_checkpoints`.

    Args:
        rows: of `VALIDATION_FILE`.
        tests: rows that say what fits; the title of a variant that does not fit its trained sizes says so.
    """
    poor = unfitted(study, tests)
    titles = {name: f"{name} ({NOT_FITTED})" if name in poor else name for name in study.variants}
    runs = {name: [row for row in rows if row["model"] == f"{name}-seed{study.seeds[0]}"] for name in study.variants}
    if drawn := [name for name, own in runs.items() if own]:
        sizes = {titles[name]: study.trained_sizes(name) for name in drawn}
        plot_checkpoints({titles[name]: runs[name] for name in drawn}, file, sizes, study.xlabel)


def is_by_class(rows: list[Row]) -> bool:
    """Whether sums of one length were tested by class, such as the length of their longest cascade of carries."""
    return len({row.get("length") for row in rows}) == 1 < len({row.get("length_b") for row in rows})


def read_lengths(study: Study) -> list[Row]:
    """Return a row for each length of a study's models that was to be proved; none if none was.

    Its fields are `model`, `weights`, `hardware` and those of `LengthVerdict`: `length`, `verdict` (proved, refuted or
    open), ...
    """
    file = STUDY_RESULTS / study.name / LENGTHS_FILE
    rows = read_results(file) if file.exists() else []
    of_model = ("model", "weights", "hardware")
    return [{**{name: row[name] for name in of_model}, **one} for row in rows for one in row["lengths"]]


def read_searched(study: Study) -> list[Row]:
    """Return the tests of a study's last checkpoints, what was searched besides, and what was proved of single lengths."""
    files = [STUDY_RESULTS / study.name / RESULTS_FILE, STUDY_RESULTS / study.name / SEARCH / RESULTS_FILE]
    rows = [row for file in files if file.exists() for row in last_rows(read_results(file))]
    return rows + read_lengths(study)


def is_refuted(row: Row) -> bool:
    """Whether a row knows of a wrong problem: of a proof that failed, of a search, or of a sample."""
    return row.get("verdict") == "refuted" or row.get("worst_answer") is not None or row.get("exact_match", 1.0) < 1


def is_proved(row: Row) -> bool:
    """Whether a row says that no problem of its length is wrong."""
    return row.get("verdict") == "proved" or worst_verdict(row) == "proved"


def first_refuted(rows: Sequence[Row]) -> Row | None:
    """Return the row of the shortest length that is refuted, one that names a problem if there is one."""
    wrong = [row for row in rows if is_refuted(row)]
    return min(wrong, key=lambda row: (row["length"], _problem(row) is None), default=None)


def _problem(row: Row) -> str | None:
    named = (row.get("problem"), row.get("answer"), row.get("right"))
    if row.get("verdict") != "refuted":
        named = (row.get("worst_problem"), row.get("worst_answer"), row.get("worst_right"))
    problem, answer, right = named
    return None if answer is None else f"`{problem}` answered `{answer}`, right is `{right}`"


def describe_lengths(lengths: Iterable[int], tested: Iterable[int]) -> str:
    """Return "2 to 8, 20" of some of the tested lengths; a range holds all that were tested in it."""
    kept = set(lengths)
    runs: list[list[int]] = []
    is_next = False
    for length in sorted(set(tested)):
        if length in kept:
            runs = [*runs[:-1], [runs[-1][0], length]] if is_next else [*runs, [length, length]]
        is_next = length in kept
    return ", ".join(describe_sizes((first, last)) for first, last in runs)


def verdict_line(name: str, trained: tuple[int, int], rows: Sequence[Row]) -> TableLine:
    """Return the line of one model, from its rows of any kind."""
    tested = {row["length"] for row in rows}
    refuted = {row["length"] for row in rows if is_refuted(row)}
    proved = {row["length"] for row in rows if is_proved(row)}
    return {
        "model": name,
        "trained on": describe_sizes(trained),
        "proved": describe_lengths(proved, tested),
        "nothing wrong found": describe_lengths(tested - refuted - proved, tested),
        "wrong": describe_lengths(refuted, tested),
        "a problem of the shortest": first_problem(rows),
    }


def verdict_block() -> str:
    """Return the table of all learned tables."""
    lines = []
    for study in map(load_study, VERDICT_STUDIES):
        for model, rows in group_by(read_searched(study), lambda row: row["model"]).items():
            lines.append(verdict_line(model, study.trained_sizes(model.rpartition("-seed")[0]), rows))
    return render_table(lines) if lines else "No results yet.\n"


def proof_line(model: str, trained: tuple[int, int], tests: Sequence[Row], rows: Sequence[Row]) -> TableLine:
    """Return the line of one model whose lengths were to be proved.

    Args:
        tests: its exact match by sampled length.
        rows: of `read_lengths`, one or more.
    """
    tested = [row["length"] for row in rows]
    lengths = {name: [row["length"] for row in rows if row["verdict"] == name] for name in ("proved", "open", "refuted")}
    proved = [row for row in rows if row["verdict"] == "proved"]
    beyond = [row for row in rows if row["verdict"] == "refuted" and row["length"] > trained[1]]
    from_end = [wrong_from_end(row["answer"], row["right"]) for row in rows if row["verdict"] == "refuted"]
    return {
        "model": model,
        "trained on": describe_sizes(trained),
        "reach by samples": describe_reach(tests),
        **{name: describe_lengths(own, tested) for name, own in lengths.items()},
        "first refuted": first_problem(rows),
        "first refuted beyond the trained ones": first_problem(beyond),
        "first wrong tokens, from the end": describe_range(from_end),
        "seconds of a proof": describe_range([row["seconds"] for row in proved]),
        "cases": describe_range([row["cases"] for row in proved]),
        "boxes": describe_range([row["boxes"] for row in proved]),
    }


def first_problem(rows: Sequence[Row]) -> str:
    """Return the wrong problem of the shortest length that is refuted, in words; empty if none is."""
    first = first_refuted(rows)
    return "" if first is None else _problem(first) or "drawn, not noted"


def wrong_from_end(answer: str, right: str) -> int:
    """Return which token of the right answer a wrong one has otherwise first, counted from the end: 1 is the last token."""
    same = [given == wanted for given, wanted in zip(answer, right, strict=False)]
    return len(right) - [*same, False].index(False)


def describe_range(values: Sequence[float]) -> str:
    """Return "3 to 1,200", or one number, or nothing if there is none."""
    ends = list(dict.fromkeys(f"{value:,.0f}" for value in (min(values), max(values)))) if values else []
    return " to ".join(ends)


def proofs_block() -> str:
    """Return the table of all models whose lengths were to be proved one by one."""
    study = load_study(PROVED_LENGTHS)
    proofs = group_by(read_lengths(study), itemgetter("model"))
    if not proofs:
        return "No results yet.\n"
    tests = group_by(read_tests(STUDY_RESULTS / study.name), itemgetter("model"))
    sizes = {model: study.trained_sizes(model.rpartition("-seed")[0]) for model in proofs}
    return render_table([proof_line(model, sizes[model], tests[model], rows) for model, rows in proofs.items()])


def read_shipped_lengths() -> list[Row]:
    """Return a row for each length that the certificate of the shipped learned table speaks of, with its `LengthVerdict`."""
    return cast(list[Row], read_object(Path(zoo(PROVED_TABLE), CERTIFICATE_FILE))["lengths"])


def shipped_proof_block() -> str:
    """Return the table of the shipped learned table: what is proved of the lengths that were sampled, and the samples."""
    rows = {row["length"]: row for row in read_shipped_lengths()}
    tests = last_rows(read_results(Path(zoo(PROVED_TABLE), RESULTS_FILE)))
    lines = []
    for test in tests:
        row = rows.get(test["length"], {})
        known = {"verdict": row["verdict"], "cases": f"{row['cases']:,}", "boxes": f"{row['boxes']:,}"} if row else {}
        seconds = f"{row['seconds']:,.0f}" if row else ""
        lines.append(
            {"digits": str(test["length"]), **known, "seconds": seconds, "exact match": f"{test['exact_match']:.3f}"}
        )
    columns = ("digits", "verdict", "cases", "boxes", "seconds", "exact match")
    table = render_table([{column: line.get(column, "") for column in columns} for line in lines])
    proved = [row for row in rows.values() if row["verdict"] == "proved"]
    total = sum(row["seconds"] for row in proved)
    counted = f"{sum(row['cases'] for row in proved):,} cases and {sum(row['boxes'] for row in proved):,} boxes"
    said = f"Proved: {ranges(row['length'] for row in proved)} digits, {counted}, in {total / 60:,.0f} minutes of one core."
    return f"{table}\n{said} Samples: {describe_tests(tests, 'problems per size')}\n"
