"""Writes the figures of README.md, COMPARISONS.md and ENCODERS.md from the results files, so that none is typed by hand.

python -m longhand.hub_cards.reports           rewrites them and their plots
python -m longhand.hub_cards.reports --check   exits with 1 where one of them is out of date
"""

import argparse
import re
import sys
from pathlib import Path
from statistics import mean, median

from longhand.hub_cards.reports.plots import plot_comparison, plot_cost
from longhand.hub_cards.reports.results import (
    CERTIFICATES_FILE,
    RESULTS_FILE,
    Row,
    describe_length,
    generalizable_length,
    group_cost,
    group_variants,
    growth_exponent,
    read_results,
)
from longhand.hub_cards.runs.recipes import list_recipes, load_recipe, replace_file

HUB_CARDS = Path(__file__).parents[1]
FOLDER = HUB_CARDS / "results"
README = HUB_CARDS.parent / "README.md"
BENCHMARKS_FILE = FOLDER / "benchmarks.jsonl"
ACCURACY_FILE = FOLDER / "accuracy.png"
MODEL_RESULTS_FOLDER = FOLDER / "models"
COST_FILE = FOLDER / "cost.jsonl"
ABLATION_FOLDER = FOLDER / "ablation"
CEILING_FILE = HUB_CARDS / "studies" / "nope_ceiling" / "ceiling.jsonl"
LONG_FOLDER = FOLDER / "long"
COMPARISONS = HUB_CARDS / "COMPARISONS.md"
ENCODERS = HUB_CARDS / "ENCODERS.md"
ENCODER_STUDIES_FOLDER = FOLDER / "encoders"
PLACES_FILE = FOLDER / "encoder_places" / "places.jsonl"
POSITIONS_FILE = PLACES_FILE.with_name("positions.jsonl")
RING_FILE = HUB_CARDS / "studies" / "ring" / "losses.jsonl"
COMPLEXITY_FILE = HUB_CARDS / "studies" / "complexity" / "distributions.jsonl"
GENERATION_FILE = FOLDER / "generation.jsonl"
STUDIES_FOLDER = FOLDER / "comparisons"
TASKS_STUDY = "tasks"
ENCODINGS_STUDY = "encodings"
LABELS_STUDIES = ("multiplication-3", "multiplication-3-windowed")
"""The studies of encoders that are shown by labels too, for so few whole answers are right."""

WINDOWED_RECIPES = {
    "addition": ["addition-short"],
    "multi_operand_addition": ["three-summands"],
    "addition_scratchpad": ["addition-scratchpad"],
    "subtraction": ["subtraction"],
    "multiplication": ["multiplication-1", "multiplication-2"],
    "multiplication_scratchpad": ["multiplication-scratchpad"],
    "copy": ["copy"],
    "reverse": ["reverse"],
    "parity": ["parity"],
    "minesweeper": ["minesweeper"],
}
"""The recipes with a window for each task."""

PUBLISHED_REACH = {
    "addition": "40 -> 200",
    "multi_operand_addition": "40 -> 90 to 100",
    "addition_scratchpad": "10 x 10 -> 20 to 30 each",
    "multiplication": "40 -> 90",
    "multiplication_scratchpad": "10 x 10 -> 20 x 15",
    "copy": "40 -> 300",
    "reverse": "40 -> 300",
    "minesweeper": "9 x 9 -> 12 x 12",
}
"""How far the learned table generalizes in paper 1 and its follow-up, from the longest trained size."""


def published_results() -> dict[str, list[Row]]:
    """Results of every recipe that has any, the last checkpoints under its name and the best ones under `NAME/best`."""
    files = {
        name: MODEL_RESULTS_FOLDER / name / RESULTS_FILE for recipe in list_recipes() for name in (recipe, f"{recipe}/best")
    }
    return {name: read_results(file) for name, file in files.items() if file.exists()}


def accuracy_table(rows: list[Row]) -> str:
    """Exact match: a line for each run, a column for each length, the median last."""
    lengths = sorted({row["length"] for row in rows})
    runs: dict[str, dict[int, float]] = {}
    for row in rows:
        runs.setdefault(row["model"], {})[row["length"]] = row["exact_match"]
    seconds = {row["model"]: row.get("run_seconds") for row in rows}
    lines = [["run", *map(str, lengths), "seconds"], ["---", *["---:"] * (len(lengths) + 1)]]
    for name, values in runs.items():
        lines.append(
            [name, *(f"{values[length]:.3f}" for length in lengths), f"{seconds[name]:.0f}" if seconds[name] else ""]
        )
    if len(runs) > 1:
        medians = [median(values[length] for values in runs.values()) for length in lengths]
        lines.append(["**median**", *(f"**{value:.3f}**" for value in medians), ""])
    samples = f"{rows[0]['num_samples']} problems per length, test seed {rows[0]['seed']}, {rows[0]['hardware']}"
    return _markdown(lines) + f"\n\n{samples}; seconds are those of training and first evaluation.\n"


def benchmark_table(rows: list[Row]) -> str:
    """Rates of both sides and their ratio."""
    lines = [["benchmark", "longhand", "baseline", "ratio", "hardware"], ["---", "---:", "---:", "---:", "---"]]
    for row in rows:
        rates = (f"{row[side]:,.0f} {row['unit']}" for side in ("longhand", "baseline"))
        lines.append([row["benchmark"], *rates, f"**{row['ratio']:.1f}**", row["hardware"]])
    return _markdown(lines) + "\n\nBoth sides in turn, medians of one run.\n"


def certificate_table(rows: list[Row]) -> str:
    """A line for each run: how its check of all neighbourhoods ended."""
    lines = [["run", "certified", "wrong", "smallest margin", "rounding", "seconds of the run"]]
    lines.append(["---", "---", "---:", "---:", "---:", "---:"])
    for row in rows:
        seconds = f"{row['run_seconds']:.0f}" if row.get("run_seconds") else ""
        rounding = "" if row["rounding"] is None else f"{row['rounding']:.1e}"
        verdict = "**yes**" if row["certified"] else "no"
        lines.append([row["model"], verdict, f"{row['wrong']:,}", f"{row['margin']:.2f}", rounding, seconds])
    counts = {(row["problems"], row["predictions"]) for row in rows}
    checked = "; ".join(f"{predictions:,} predictions in {problems:,} problems" for problems, predictions in sorted(counts))
    return _markdown(lines) + f"\n\n{checked} checked for each, {rows[0]['hardware']}.\n"


def cost_table(rows: list[Row]) -> str:
    """How time and memory grow with the digits, for each form of attention and kind of work."""
    lines = [["attention", "work", "digits", "time grows as", "memory grows as", "longest: seconds", "MB"]]
    lines.append(["---", "---", "---", "---", "---", "---:", "---:"])
    for (form, what), own in group_cost(rows).items():
        powers = (f"digits^{growth_exponent(own, quantity):.2f}" for quantity in ("seconds", "bytes"))
        span = f"{own[0]['digits']:,} to {own[-1]['digits']:,}"
        lines.append([form, what, span, *powers, f"{own[-1]['seconds']:.1f}", f"{own[-1]['bytes'] / 1e6:,.0f}"])
    return _markdown(lines) + f"\n\n{rows[0]['hardware']}.\n"


def ablation_table(rows: list[Row], certificates: list[Row]) -> str:
    """A line for each variant: medians, generalizable length, certificates."""
    lengths = [length for length in (30, 60, 100, 200) if any(row["length"] == length for row in rows)]
    lines = [["variant", *map(str, lengths), "generalizable length", "certified"]]
    lines.append(["---", *["---:"] * len(lengths), "---:", "---:"])
    longest = max(row["length"] for row in rows)
    verdicts = group_variants(certificates)
    for variant, own in group_variants(rows).items():
        medians = (median(row["exact_match"] for row in own if row["length"] == length) for length in lengths)
        reached = generalizable_length(own)
        certified = [row["certified"] for row in verdicts.get(variant, [])]
        lines.append(
            [
                variant,
                *(f"{value:.3f}" for value in medians),
                f">= {reached}" if reached == longest else str(reached),
                f"{sum(certified)} of {len(certified)}" if certified else "cannot be",
            ]
        )
    runs = len({row["model"] for row in rows}) // (len(lines) - 2)
    samples = f"Medians of {runs} seeds, {rows[0]['num_samples']} sums per length, test seed {rows[0]['seed']}"
    return _markdown(lines) + f"\n\n{samples}, {rows[0]['hardware']}.\n"


def ceiling_table(rows: list[Row]) -> str:
    """A line for each number of digits: the ceiling as an exact fraction, and what trained models reached."""
    lines = [["digits", "ceiling", "", "trained models"], ["---:", "---:", "---:", "---"]]
    for ceiling in (row for row in rows if "right" in row):
        runs = [row for row in rows if row["length"] == ceiling["length"] and "right" not in row]
        values = ", ".join(f"{row['exact_match']:.5f}" for row in runs)
        fraction = f"{ceiling['right']:,} / {ceiling['num_pairs']:,}"
        lines.append([str(ceiling["length"]), fraction, f"{ceiling['exact_match']:.5f}", values])
    return _markdown(lines) + "\n"


def long_table(rows: list[Row]) -> str:
    """A line for each evaluation of very long sums."""
    lines = [["run", "digits", "sums", "decoding", "exact match", "seconds"], ["---", "---:", "---:", "---", "---:", "---:"]]
    for row in rows:
        values = (f"{row['num_samples']:,}", row["decode"], f"**{row['exact_match']:.3f}**", f"{row['seconds']:,.1f}")
        lines.append(
            [row["model"], f"{row['length']:,}" if row["length"] == row["length_b"] else describe_length(row), *values]
        )
    return _markdown(lines) + f"\n\n{rows[0]['hardware']}.\n"


def study_table(rows: list[Row]) -> str:
    """A line for each variant: medians of the last checkpoints, generalizable lengths of the last and the best."""
    last, best = group_variants(last_rows(rows)), group_variants(best_rows(rows))
    lengths = sorted({row["length"] for row in rows})
    shown = [length for length in lengths if length in (2, 5, 10, 20, 30, 40, 60, 100, 200)]
    lines = [["variant", *map(str, shown), "generalizable length", "of the best checkpoint", "seconds"]]
    lines.append(["---", *["---:"] * (len(shown) + 3)])
    for variant, own in last.items():
        values = {length: [row["exact_match"] for row in own if row["length"] == length] for length in shown}
        lines.append(
            [
                variant,
                *(f"{median(values[length]):.3f}" if values[length] else "" for length in shown),
                _reach(own),
                _reach(best[variant]) if variant in best else "",
                f"{median(row['run_seconds'] for row in own):.0f}",
            ]
        )
    samples = f"{rows[0]['num_samples']} problems per length, test seed {rows[0]['seed']}, {rows[0]['hardware']}"
    seeds = len({row["model"] for row in last_rows(rows)}) // len(last)
    return _markdown(lines) + f"\n\n{'One seed' if seeds == 1 else f'Medians of {seeds} seeds'}, {samples}.\n"


def _reach(rows: list[Row]) -> str:
    """The generalizable length, marked where longer problems were not tested."""
    reached = generalizable_length(rows)
    return f">= {reached}" if reached == max(row["length"] for row in rows) else str(reached)


def best_rows(rows: list[Row]) -> list[Row]:
    """Those of the checkpoints with the lowest validation loss at the longest validated size, as both papers choose them."""
    return [row for row in rows if row["model"].endswith("/best")]


def last_rows(rows: list[Row]) -> list[Row]:
    """Those of the checkpoints at the end of training, which were all trained equally long."""
    return [row for row in rows if not row["model"].endswith("/best")]


def has_classes(rows: list[Row]) -> bool:
    """Whether problems of one length were tested by class, such as the length of their longest cascade of carries."""
    return any(row["length"] != row["length_b"] for row in rows)


def by_class(rows: list[Row]) -> list[Row]:
    """Rows with the class in the place of the length."""
    return [{**row, "length": row["length_b"]} for row in rows]


def encoder_table(rows: list[Row], measure: str = "exact_match") -> str:
    """A line for each variant of an encoder: a measure by length, or by class where sums of one length were tested so."""
    classes, digits = has_classes(rows), rows[0]["length"]
    rows = by_class(rows) if classes else rows
    variants, shown = group_variants(rows), sorted({row["length"] for row in rows})
    with_reach = measure == "exact_match" and not classes
    lines = [["variant", *map(str, shown), *(["generalizable length"] if with_reach else []), "seconds"]]
    lines.append(["---", *["---:"] * (len(lines[0]) - 1)])
    for variant, own in variants.items():
        values = {length: [row[measure] for row in own if row["length"] == length] for length in shown}
        cells = [f"{median(values[length]):.3f}" if values[length] else "" for length in shown]
        seconds = f"{median(row['run_seconds'] for row in own):.0f}"
        lines.append([variant, *cells, *([_reach(own)] if with_reach else []), seconds])
    seeds = {len({row["model"] for row in own}) for own in variants.values()}
    runs = "one seed" if seeds == {1} else f"medians of {' or '.join(map(str, sorted(seeds)))} seeds"
    what = f"sums of {digits} digits by class" if classes else "problems per length"
    samples = f"{rows[0]['num_samples']} {what}, test seed {rows[0]['seed']}, {rows[0]['hardware']}"
    checkpoints = "Best checkpoints" if best_rows(rows) else "Last checkpoints"
    return _markdown(lines) + f"\n\n{checkpoints}, {runs}, {samples}.\n"


def places_table(rows: list[Row]) -> str:
    """A line for each model and length: the accuracy of every output place, the last one of the answer first."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["model"].rpartition("-seed")[0], row["length"]), []).append(row)
    places = range(1, max(row["place"] for row in rows) + 1)
    lines = [["model", "digits", *map(str, places)], ["---", *["---:"] * (len(places) + 1)]]
    for (model, length), own in groups.items():
        lines.append([model, str(length), *(f"{row['accuracy']:.2f}" for row in own)])
    return _markdown(lines) + f"\n\n{rows[0]['num_samples']} problems per length, test seed {rows[0]['seed']}.\n"


def positions_table(rows: list[Row]) -> str:
    """A line for each variant: how dispersed the relative vectors of every layer are, means over seeds."""
    layers = sorted({row["layer"] for row in rows})
    lines = [["variant", *(f"layer {layer}" for layer in layers), "each run", "relations"]]
    lines.append(["---", *["---:"] * (len(layers) + 2)])
    for variant, own in group_variants(rows).items():
        values = [[row["effective_relations"] for row in own if row["layer"] == layer] for layer in layers]
        runs = ", ".join(f"{mean(run):.1f}" for run in zip(*values, strict=True))
        lines.append([variant, *(f"{mean(run):.1f}" for run in values), runs, str(own[0]["relations"])])
    return _markdown(lines) + f"\n\nBest checkpoints, {len(values[0])} seeds.\n"


def ring_table(rows: list[Row]) -> str:
    """A line for each setting and method of linear attention on the ring: losses, beside what theory says."""
    lines = [["window", "neighbours", "method", "training loss", "test loss in the window", "outside", "theory, outside"]]
    lines.append(["---:", "---:", "---", "---:", "---:", "---:", "---:"])
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault((row["window"], row["neighbours"], row["model"]), []).append(row)
    for (window, neighbours, method), own in groups.items():
        inside, outside = ([row for row in own if (row["position"] <= window) == part] for part in (True, False))
        losses = [f"{sum(row['test_loss'] for row in part) / len(part):.4f}" for part in (inside, outside)]
        trained = f"{sum(row['training_loss'] for row in own) / len(own):.1e}"
        unseen = own[0]["alpha"] ** 2 + 2 * sum(beta**2 for beta in own[0]["betas"])
        theory = {"ape": f"{unseen:.4f}", "rpe": "0"}.get(method, "")
        lines.append([str(window), str(neighbours), method, trained, *losses, theory])
    return _markdown(lines) + f"\n\nMeans over {len({row['seed'] for row in rows})} seeds and over positions.\n"


def complexity_table(rows: list[Row]) -> str:
    """A line for each distribution: its probabilities, and the share of lengths up to 4."""
    shown = range(7)
    lines = [["length", "digits", *map(str, shown), "up to 4"], ["---", *["---:"] * (len(shown) + 2)]]
    for row in rows:
        shares = [*row["probabilities"], *[0.0] * len(shown)]
        cells = [f"{shares[length]:.2e}" for length in shown]
        lines.append([row["length"], str(row["digits"]), *cells, f"{sum(shares[:5]):.4f}"])
    return _markdown(lines) + "\n"


def generation_table(rows: list[Row]) -> str:
    """Examples of each recipe a second, and their ratio to what is promised."""
    lines = [["task of the recipe", "examples a second", "promised", "ratio"], ["---", "---:", "---:", "---:"]]
    for row in rows:
        name = f"`{row['benchmark'].partition(', ')[2]}`"
        lines.append([name, f"{row['longhand']:,.0f}", f"{row['baseline']:,}", f"**{row['ratio']:.1f}**"])
    return _markdown(lines) + f"\n\n{rows[0]['hardware']}.\n"


def tasks_table(rows: list[Row], addition_rows: list[Row]) -> str:
    """Tasks down, encodings across: certificates of the window, generalizable lengths of all others.

    Args:
        rows: of runs named TASK--ENCODING-seedN, TASK a name of `TASKS`.
        addition_rows: of runs of addition named ENCODING-seedN.
    """
    encodings = sorted({name.partition("--")[2] for name in group_variants(rows)})
    rows = rows + [{**row, "model": f"addition--{row['model']}"} for row in addition_rows]
    variants = group_variants(best_rows(rows))
    lines = [["task", "window", *encodings, "the papers' learned table"], ["---"] * (len(encodings) + 3)]
    for task, recipes in WINDOWED_RECIPES.items():
        cells = [_reach(variants[name]) if (name := f"{task}--{encoding}") in variants else "" for encoding in encodings]
        lines.append([task, "; ".join(map(_window_cell, recipes)), *cells, PUBLISHED_REACH.get(task, "")])
    samples = f"{rows[0]['num_samples']} problems per size, test seed {rows[0]['seed']}, {rows[0]['hardware']}"
    return _markdown(lines) + f"\n\nBest checkpoints, one seed, {samples}.\n"


def certified_table(recipes: list[str]) -> str:
    """A line for each recipe: how the checks of its runs ended, and what the runs make of larger problems."""
    lines = [["recipe", "trained on", "certified", "predictions checked", "smallest margin", "exact match", "seconds"]]
    lines.append(["---", "---", "---", "---:", "---:", "---", "---:"])
    for name in recipes:
        recipe, rows = load_recipe(name), read_results(MODEL_RESULTS_FOLDER / name / CERTIFICATES_FILE)
        tested = read_results(MODEL_RESULTS_FOLDER / name / RESULTS_FILE)
        worst = min(row["exact_match"] for row in tested)
        lines.append(
            [
                f"`{name}`",
                f"{recipe.get('min_length', 1)} to {recipe['max_length']}",
                f"{sum(row['certified'] for row in rows)} of {len(rows)} seeds",
                f"{max(row['predictions'] for row in rows):,}",
                f"{min(row['margin'] for row in rows):.2f}",
                f"{'' if worst == 1 else 'at least '}{worst:.3f} to {max(row['length'] for row in tested):,}",
                f"{max(row['run_seconds'] for row in rows):.0f}",
            ]
        )
    note = "Seconds are those of training and first evaluation, of the slowest seed"
    return _markdown(lines) + f"\n\n{note}; {rows[0]['hardware']}.\n"


def _window_cell(recipe: str) -> str:
    file = MODEL_RESULTS_FOLDER / recipe / CERTIFICATES_FILE
    if file.exists():
        certified = [row["certified"] for row in read_results(file)]
        if any(certified):
            return f"`{recipe}`: every size, certified ({sum(certified)} of {len(certified)} seeds)"
    file = MODEL_RESULTS_FOLDER / recipe / RESULTS_FILE
    return f"`{recipe}`: {_reach(read_results(file))}" if file.exists() else ""


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def published_blocks() -> dict[str, str]:
    """Every table that a document can hold, by the name of its block."""
    certified = [name for name in list_recipes() if (MODEL_RESULTS_FOLDER / name / CERTIFICATES_FILE).exists()]
    together = [name for name in certified if name not in ("addition", "addition-short")]
    single = {name: rows for name, rows in published_results().items() if name not in together}
    blocks = {name: accuracy_table(rows) for name, rows in single.items()}
    blocks |= {
        f"{name}/certificates": certificate_table(read_results(MODEL_RESULTS_FOLDER / name / CERTIFICATES_FILE))
        for name in certified
        if name in single
    }
    if together:
        blocks["certified"] = certified_table(["addition-short", *together])
    if BENCHMARKS_FILE.exists():
        blocks["benchmarks"] = benchmark_table(read_results(BENCHMARKS_FILE))
    if COST_FILE.exists():
        blocks["cost"] = cost_table(read_results(COST_FILE))
    if (ABLATION_FOLDER / RESULTS_FILE).exists():
        files = (ABLATION_FOLDER / RESULTS_FILE, ABLATION_FOLDER / CERTIFICATES_FILE)
        blocks["ablation"] = ablation_table(*map(read_results, files))
    if CEILING_FILE.exists():
        blocks["nope-ceiling"] = ceiling_table(read_results(CEILING_FILE))
    for folder in sorted(LONG_FOLDER.glob("*")):
        blocks[f"long/{folder.name}"] = long_table(
            [row for file in sorted(folder.glob(f"*/{RESULTS_FILE}")) for row in read_results(file)]
        )
    for folder in sorted(STUDIES_FOLDER.glob("*")):
        rows = read_results(folder / RESULTS_FILE)
        if folder.name == TASKS_STUDY:
            table = tasks_table(rows, read_results(STUDIES_FOLDER / ENCODINGS_STUDY / RESULTS_FILE))
        else:
            table = study_table(rows)
        blocks[f"studies/{folder.name}"] = table
    for folder in sorted(ENCODER_STUDIES_FOLDER.glob("*")):
        blocks[f"encoders/{folder.name}"] = encoder_table(best_rows(read_results(folder / RESULTS_FILE)))
    for name in LABELS_STUDIES:
        rows = last_rows(read_results(ENCODER_STUDIES_FOLDER / name / RESULTS_FILE))
        blocks[f"encoders/{name}/labels"] = encoder_table(rows, "token_accuracy")
    blocks["encoder-places"] = places_table(read_results(PLACES_FILE))
    blocks["encoder-positions"] = positions_table(read_results(POSITIONS_FILE))
    blocks["ring"] = ring_table(read_results(RING_FILE))
    blocks["complexity"] = complexity_table(read_results(COMPLEXITY_FILE))
    if GENERATION_FILE.exists():
        blocks["generation"] = generation_table(read_results(GENERATION_FILE))
    return blocks


def render(text: str) -> str:
    """`text` with every block between `<!-- results NAME -->` and `<!-- end -->` filled from NAME's results."""
    blocks = published_blocks()

    def fill(match: re.Match) -> str:
        return f"{match[1]}{blocks.get(match[2], 'No results yet.')}\n{match[3]}"

    return re.sub(r"(<!-- results (\S+) -->\n).*?(<!-- end -->)", fill, text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a document would change")
    before = {file: file.read_text(encoding="utf-8") for file in (README, COMPARISONS, ENCODERS)}
    after = {file: render(text) for file, text in before.items()}
    if parser.parse_args().check:
        sys.exit(before != after)
    for file, text in after.items():
        replace_file(file, text)
    last = {name: rows for name, rows in published_results().items() if not name.endswith("/best")}
    plot_comparison(last, ACCURACY_FILE, (1, 30))
    plot_comparison(group_variants(read_results(ABLATION_FOLDER / RESULTS_FILE)), ABLATION_FOLDER / "accuracy.png", (1, 30))
    plot_cost(read_results(COST_FILE), COST_FILE.with_suffix(".png"))
    for folder in sorted(STUDIES_FOLDER.glob("*")):
        if folder.name != TASKS_STUDY:
            rows = best_rows(read_results(folder / RESULTS_FILE))
            plot_comparison(group_variants(rows), folder / "accuracy.png", None)
    for folder in sorted(ENCODER_STUDIES_FOLDER.glob("*")):
        rows = best_rows(read_results(folder / RESULTS_FILE))
        if has_classes(rows):
            plot_comparison(group_variants(by_class(rows)), folder / "accuracy.png", None, "class", "linear")
        else:
            plot_comparison(group_variants(rows), folder / "accuracy.png", (1, 5), "digits")


if __name__ == "__main__":
    main()
