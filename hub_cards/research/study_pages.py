"""Tables and pictures of studies (`hub_cards/research/studies/NAME.yaml`).

A method's reach counts only if the method fits the sizes that it was trained on. Otherwise a low score says nothing about
generalization: such a method is shown in italics, or in grey, and has no reach.
"""

# Used by: claims.py, gallery.py, pages.py, run.py, hub_cards/research/papers, hub_cards/research/theories. Changed freely.

from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import cast

from pandas import DataFrame

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
from longhand.hub_cards.research.tables import (
    TABLES,
    TableLine,
    fill_cells,
    filled_table,
    generalizable_length,
    last,
    last_or_best,
    read_frame,
    render_table,
)
from longhand.hub_cards.result_rows import (
    CERTIFICATES_FILE,
    RESULTS_FILE,
    Row,
    group_by,
    last_rows,
    median_interval,
    read_results,
    worst_verdict,
)

FITS = 0.95
"""Exact match at every tested size within the trained ones from which on a method fits them."""

CERTIFICATES = Path("certificates", CERTIFICATES_FILE)
"""In the results of a study whose runs end with a certificate, or whose file evaluates `certificates: {certify: true}`."""

VERDICT_STUDIES = ("addition-absolute", "worst-tables")
"""Studies whose models are listed with what is refuted and what is only sampled of them; `proofs_block` lists others."""

SEARCH = "search"
"""The name under which a study evaluates `--worst`."""

LENGTHS_FILE = Path("lengths", CERTIFICATES_FILE)
"""In the results of a study whose file evaluates `lengths: {certify: true, lengths: ...}`."""

PROVED_LENGTHS = "proved-lengths"
"""The study whose models are proved length by length."""


PROVED_TABLE = "addition-absolute-proved"
"""The shipped learned table whose certificate says which lengths are proved."""


def fitting(study: Study, rows: DataFrame) -> DataFrame:
    """Return how each tested variant of a study fits the sizes that it was trained on, in the order of the study.

    The index holds the variants. `match` is the lowest exact match at trained sizes, each the median over seeds, NaN if no
    trained size was tested. `fit` and `seeds` count the seeds that fit, and all. `reach` is the generalizable length in
    words.

    Args:
        rows: exact match by size, of last checkpoints or of the best ones.
    """
    lines = {}
    variants = dict(iter(rows.groupby("variant")))
    for variant in (name for name in study.variants if name in variants):
        tests = variants[variant]
        trained = tests[tests["length"].between(*study.trained_sizes(variant))]
        match = trained.groupby("length")["exact_match"].median().min()
        by_seed = trained.groupby(["model", "length"])["exact_match"].median().groupby("model").min()
        lines[variant] = {
            "match": match,
            "fit": int((by_seed >= FITS).sum()),
            "seeds": tests["model"].nunique(),
            "reach": describe_reach(tests) if match >= FITS else NOT_FITTED,
        }
    return DataFrame.from_dict(lines, orient="index", columns=["match", "fit", "seeds", "reach"])


def unfitted(study: Study, rows: DataFrame) -> list[str]:
    """Return the variants that were tested at trained sizes and do not fit them, so that no other size says anything."""
    found = fitting(study, rows)
    return list(found.index[found["match"] < FITS])


def describe_reach(tests: DataFrame) -> str:
    """Return the generalizable length of a run or a variant, with >= if nothing longer was tested."""
    reached = generalizable_length(tests)
    return f">= {reached}" if reached == tests["length"].max() else str(reached)


def describe_tests(rows: DataFrame, what: str) -> str:
    """Say over how many seeds the medians are, of which checkpoints, and how many problems were tested, on what."""
    seeds = sorted(set(rows.groupby("variant")["model"].nunique()))
    said = "one seed" if seeds == [1] else f"medians of {' or '.join(map(str, seeds))} seeds"
    said = f"Best checkpoints, {said}" if rows["is_best"].all() else said.capitalize()
    samples, first = describe_sizes((rows["num_samples"].min(), rows["num_samples"].max())), rows.iloc[0]
    return f"{said}, {samples} {what}, test seed {first['seed']}, {first['hardware']}."


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
    if kind == "runs":
        runs = last_rows(read_results(folder / evaluation / RESULTS_FILE))
        tasks = {row["task"] for row in runs}
        return filled_table("long" if evaluation else "by-task" if len(tasks) > 1 else "by-length", runs)
    rows = read_frame(folder / evaluation / RESULTS_FILE)
    if kind == "labels":
        return study_table(study, rows, measure="token_accuracy")
    if kind == "seeds":
        return seeds_table(study, last(rows))
    if evaluation:
        return study_table(study, rows, tests=read_tests(folder))
    return study_table(study, rows, read_frame(folder / CERTIFICATES))


def seeds_table(study: Study, rows: DataFrame) -> str:
    """Return a line for each variant: medians beyond the trained sizes with 95% intervals by bootstrap over the seeds.

    Below the first line, each cell also says how many seeds are above the same seed of the first variant.

    Args:
        rows: of last checkpoints; every variant has the same seeds and sizes.
    """
    matches = rows.pivot(index="run", columns=["variant", "length"], values="exact_match")
    first, *others = [name for name in study.variants if name in matches]
    sizes = sorted(size for size in matches[first] if size > study.trained_sizes(first)[1])
    lines = []
    for variant in (first, *others):
        line = {"variant": variant}
        for size in sizes:
            values = matches[variant][size]
            low, high = median_interval(list(values))
            above = "" if variant == first else f", {(values > matches[first][size]).sum()} of {len(values)} above"
            line[str(size)] = f"{values.median():.2f} ({low:.2f} to {high:.2f}){above}"
        lines.append(line)
    counted = f"how many seeds are above the same seed of `{first}`"
    return render_table(lines, f"Medians over seeds, with 95% intervals by bootstrap over the seeds, and {counted}.")


def read_study(study: Study) -> tuple[DataFrame, DataFrame]:
    """Return the rows of a study's last checkpoints, and its certificates; nothing if there are none."""
    folder = STUDY_RESULTS / study.name
    return last(read_frame(folder / RESULTS_FILE)), read_frame(folder / CERTIFICATES)


def read_tests(folder: Path) -> DataFrame:
    """Return exact match by size of a study's last checkpoints; of the best ones if there are no others."""
    return last_or_best(read_frame(folder / RESULTS_FILE))


def study_table(
    study: Study,
    rows: DataFrame,
    certificates: DataFrame | None = None,
    tests: DataFrame | None = None,
    measure: str = "exact_match",
) -> str:
    """Return a line for each variant with results, in the order of the study.

    Last checkpoints are shown; best ones only if there are no others. The numbers of variants that do not fit their trained
    sizes are in italics.

    Args:
        certificates: of the variants that can be certified.
        tests: rows that say what fits, if the rows are of another evaluation than the study's tests.
    """
    shown, is_usual = last_or_best(rows), tests is None and measure == "exact_match"
    classes = is_by_class(shown)
    note = describe_tests(shown, f"sums of {shown['length'].iloc[0]} digits by class" if classes else "problems per size")
    shown = by_class(shown) if classes else shown
    variants = [name for name in study.variants if name in set(shown["variant"])]
    medians = shown.pivot_table(measure, "variant", "length", "median").reindex(variants)
    medians = medians.reindex(columns=study.lengths) if study.lengths is not None and is_usual else medians
    fits = fitting(study, shown if tests is None else tests).reindex(variants)
    is_poor = (fits["match"] < FITS) & (measure == "exact_match")
    if is_poor.any() and medians.empty:
        # Sizes of different tasks make no columns.
        medians["at trained sizes"] = fits["match"]
    cells = medians.map("{:.3f}".format).where(medians.notna(), "")
    cells = cells.mask(is_poor, "*" + cells + "*").where(medians.notna(), "")
    table = DataFrame({"trained on": [describe_sizes(study.trained_sizes(name)) for name in variants]}, variants).join(cells)
    if is_usual:
        table["seeds that fit"] = fits["fit"].astype(str) + " of " + fits["seeds"].astype(str)
        table["reach"] = fits["reach"]
        if rows["is_best"].any():
            best = fitting(study, rows[rows["is_best"]])["reach"].reindex(variants).fillna("")
            if best.equals(table["reach"]):
                table = table.rename(columns={"reach": "reach, also of the best checkpoint"})
            else:
                table["reach of the best checkpoint"] = best
        if certificates is not None and len(certificates):
            table = table.join(certificate_cells(study, shown, certificates))
        table["steps"] = [f"{study.parse(name).training.max_steps:,}" for name in variants]
    table["seconds"] = shown.groupby("variant")["run_seconds"].median().map("{:.0f}".format)
    if is_poor.any():
        note += f" In italics: exact match at a trained size is below {FITS}."
    lines = table.rename(columns=str).rename_axis("variant").reset_index().to_dict("records")
    return render_table(lines, note) if lines else f"{note}\n"


def certificate_cells(study: Study, tests: DataFrame, certificates: DataFrame) -> DataFrame:
    """Return, by variant, the worst exact match of all runs and sizes, and what the certificates of its runs say."""
    lines = {}
    checked = dict(iter(certificates.groupby("variant")))
    for variant, worst in tests.groupby("variant")["exact_match"].min().items():
        rows = checked.get(variant, certificates[:0])
        # A run with a wrong prediction does not say how many its list has, and bounds nothing.
        numbers = rows.reindex(columns=["neighbourhoods", "ratio"]).astype(float)
        counts, ratios = numbers["neighbourhoods"].dropna(), numbers["ratio"].dropna()
        lines[variant] = {
            "worst exact match": f"{worst:.3f}",
            "certified": f"{rows['certified'].sum()} of {len(rows)}" if len(rows) else "cannot be",
            "neighbourhoods": f"{counts.max():,.0f}" if len(counts) else "",
            "smallest margin": f"{rows['margin'].min():.2f}" if len(rows) else "",
            "lead / bound": f"{ratios.min():,.0f}" if len(rows) and len(ratios) == len(rows) else "",
            "parameters": f"{study.parameters(str(variant)):,}",
        }
    return DataFrame.from_dict(lines, orient="index")


def draw_study(study: Study, rows: DataFrame, file: Path, tests: DataFrame | None = None) -> None:
    """Draw exact match against size or class, a line for each variant: medians over seeds. Two sizes make a grid.

    Variants that do not fit their trained sizes are grey.

    Args:
        tests: rows that say what fits; None means `rows`.
    """
    shown = last_or_best(rows)
    classes, task = is_by_class(shown), find_task(shown["task"].iloc[0])
    trained = {study.trained_sizes(variant) for variant in shown["variant"].unique()}
    sizes = trained.pop() if len(trained) == 1 and not classes else None
    if len(shown[["length", "length_b"]].drop_duplicates()) > shown["length"].nunique() and not classes:
        plot_results(shown.to_dict("records"), file, sizes, task)
        return
    poor = unfitted(study, shown if tests is None else tests)
    variants = dict(iter((by_class(shown) if classes else shown).groupby("variant")))
    drawn = {name: median_line(name, variants[name].to_dict("records")) for name in study.variants if name in variants}
    fitted = [line for name, line in drawn.items() if name not in poor]
    xlabel = task.size_names[1] if classes else study.xlabel
    plot_lines(fitted, file, sizes, xlabel, poor=[line for name, line in drawn.items() if name in poor])


def draw_checkpoints(study: Study, rows: list[Row], file: Path, tests: DataFrame) -> None:
    """Draw exact match by length at the validations of each variant's first run, see `plot_checkpoints`.

    Args:
        rows: of `VALIDATION_FILE`.
        tests: rows that say what fits; the title of a variant that does not fit its trained sizes says so.
    """
    poor = unfitted(study, tests)
    titles = {name: f"{name} ({NOT_FITTED})" if name in poor else name for name in study.variants}
    runs = {name: [row for row in rows if row["model"] == f"{name}-seed{study.seeds[0]}"] for name in study.variants}
    if drawn := [name for name, validations in runs.items() if validations]:
        sizes = {titles[name]: study.trained_sizes(name) for name in drawn}
        plot_checkpoints({titles[name]: runs[name] for name in drawn}, file, sizes, study.xlabel)


def is_by_class(rows: DataFrame) -> bool:
    """Whether sums of one length were tested by class, such as the length of their longest cascade of carries."""
    return {"length", "length_b"} <= {*rows} and rows["length"].nunique() == 1 < rows["length_b"].nunique()


def by_class(rows: DataFrame) -> DataFrame:
    """Return rows with the class in the place of the length."""
    return rows.assign(length=rows["length_b"])


def read_lengths(study: Study) -> list[Row]:
    """Return a row for each length of a study's models that was to be proved; none if none was.

    Its fields are `model`, `weights`, `hardware` and those of `LengthVerdict`: `length`, `verdict` (proved, refuted or
    open), ...
    """
    file = STUDY_RESULTS / study.name / LENGTHS_FILE
    rows = read_results(file) if file.exists() else []
    of_model = ("model", "weights", "hardware")
    return [{**{name: row[name] for name in of_model}, **verdict} for row in rows for verdict in row["lengths"]]


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


def proof_line(model: str, trained: tuple[int, int], tests: DataFrame, rows: Sequence[Row]) -> TableLine:
    """Return the line of one model whose lengths were to be proved.

    Args:
        tests: its exact match by sampled length.
        rows: of `read_lengths`, one or more.
    """
    tested = [row["length"] for row in rows]
    lengths = {name: [row["length"] for row in rows if row["verdict"] == name] for name in ("proved", "open", "refuted")}
    proved = [row for row in rows if row["verdict"] == "proved"]
    beyond = [row for row in rows if row["verdict"] == "refuted" and row["length"] > trained[1]]
    first, first_beyond = first_problem(rows), first_problem(beyond)
    from_end = [wrong_from_end(row["answer"], row["right"]) for row in rows if row["verdict"] == "refuted"]
    return {
        "model": model,
        "trained on": describe_sizes(trained),
        "reach by samples": describe_reach(tests),
        **{name: describe_lengths(found, tested) for name, found in lengths.items()},
        "first refuted": first,
        "first refuted beyond the trained ones": "the same" if first and first == first_beyond else first_beyond,
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
    tests = dict(iter(read_tests(STUDY_RESULTS / study.name).groupby("model")))
    sizes = {model: study.trained_sizes(model.rpartition("-seed")[0]) for model in proofs}
    return render_table([proof_line(model, sizes[model], tests[model], rows) for model, rows in proofs.items()])


def read_shipped_lengths() -> list[Row]:
    """Return a row for each length that the certificate of the shipped learned table speaks of, with its `LengthVerdict`."""
    return cast(list[Row], read_object(Path(zoo(PROVED_TABLE), CERTIFICATE_FILE))["lengths"])


def shipped_proof_block() -> str:
    """Return the table of the shipped learned table: what is proved of the lengths that were sampled, and the samples."""
    rows = {row["length"]: row for row in read_shipped_lengths()}
    tests = last(read_frame(Path(zoo(PROVED_TABLE), RESULTS_FILE)))
    sampled = tests[["length", "exact_match"]].to_dict("records")
    lines = [fill_cells(test | rows.get(test["length"], {}), TABLES["proved-table"]["columns"]) for test in sampled]
    proved = [row for row in rows.values() if row["verdict"] == "proved"]
    total = sum(row["seconds"] for row in proved)
    counted = f"{sum(row['cases'] for row in proved):,} cases and {sum(row['boxes'] for row in proved):,} boxes"
    said = f"Proved: {ranges(row['length'] for row in proved)} digits, {counted}, in {total / 60:,.0f} minutes of one core."
    return render_table(lines, f"{said} Samples: {describe_tests(tests, 'problems per size')}")
