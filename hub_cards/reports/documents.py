"""Fill the tables of RESULTS.md, COMPARISONS.md and ENCODERS.md from the results files, and draw the pictures of all pages.

python -m longhand.hub_cards.reports           write the pages and the pictures
python -m longhand.hub_cards.reports --check   write nothing; exit with 1 if a page is out of date
"""

import argparse
import re
import sys
from itertools import chain
from pathlib import Path

from longhand.data import TASKS
from longhand.hub_cards.reports import tables
from longhand.hub_cards.reports.overview import plot_addition, plot_tasks
from longhand.hub_cards.reports.plots import OPERANDS, plot_accuracy, plot_comparison, plot_cost, plot_grid
from longhand.hub_cards.reports.studies import draw_study, study_table
from longhand.hub_cards.runs.files import write_atomically
from longhand.hub_cards.runs.recipes import list_recipes, load_recipe
from longhand.hub_cards.runs.results import (
    CERTIFICATES_FILE,
    RESULTS_FILE,
    Row,
    best_rows,
    by_class,
    group_variants,
    last_rows,
    read_results,
)
from longhand.hub_cards.runs.studies import STUDIES_FOLDER as STUDIES
from longhand.hub_cards.runs.studies import load_study

HUB_CARDS = Path(__file__).parents[1]
README = HUB_CARDS.parent / "README.md"
RESULTS = HUB_CARDS / "RESULTS.md"
COMPARISONS = HUB_CARDS / "COMPARISONS.md"
ENCODERS = HUB_CARDS / "ENCODERS.md"
FOLDER = HUB_CARDS / "results"

CASCADES = "columns of the longest cascade of carries"
COMPARED = {
    "ablation": ((1, 30), OPERANDS),
    "comparisons/encodings": ((1, 30), OPERANDS),
    "comparisons/formats": ((1, 30), OPERANDS),
    "comparisons/trained-lengths": (None, OPERANDS),
    "comparisons/depth": ((1, 10), OPERANDS),
    "encoders/addition": ((1, 5), "digits"),
    "encoders/coupled": ((1, 5), "digits"),
    "encoders/multiplication-1": ((1, 5), "digits"),
    "encoders/multiplication-3": ((1, 5), "digits"),
    "encoders/windows": (None, CASCADES),
    "encoders/cascades": (None, CASCADES),
}
"""The comparisons with a picture: their trained sizes, None if variants differ in them, and the name of the x axis."""

ADDITION = ("addition", "addition-short")
"""Certified recipes with a table of their own for each run."""

RIVALS = ("addition-nope", "addition-ape", "addition-random-start-ape")
"""Recipes whose position ids are not coupled."""

LABELLED_ENCODER_STUDIES = ("multiplication-3", "multiplication-3-windowed")
"""Studies with a second table, of the labels that are right: too few of their whole answers are."""


def read_rows(folder: str, file: str = RESULTS_FILE) -> list[Row]:
    """Return the rows of a file in a folder of `hub_cards/results`."""
    return read_results(FOLDER / folder / file)


def read_each(pattern: str) -> dict[str, list[Row]]:
    """Return the rows of all results files that fit a pattern, by the name of their folder."""
    return {file.parent.name: read_results(file) for file in sorted(FOLDER.glob(f"{pattern}/{RESULTS_FILE}"))}


def read_long(kind: str) -> list[Row]:
    """Return the rows of very long problems, of `constructed` or `trained` models."""
    return list(chain.from_iterable(read_each(f"long/{kind}/*").values()))


def model_results() -> dict[str, list[Row]]:
    """Return the rows of every recipe with results: last checkpoints under its name, best ones under NAME/best."""
    names = (name for recipe in list_recipes() for name in (recipe, f"{recipe}/best"))
    return {name: read_rows(f"models/{name}") for name in names if (FOLDER / "models" / name / RESULTS_FILE).exists()}


def certified_recipes() -> list[str]:
    """Return the recipes whose models were checked for a certificate."""
    return [name for name in list_recipes() if (FOLDER / "models" / name / CERTIFICATES_FILE).exists()]


def model_blocks() -> dict[str, str]:
    """Return the tables of the recipes: of each run, or of all certified recipes together."""
    together = [name for name in certified_recipes() if name not in ADDITION]
    checks = {f"{name}/certificates": read_rows(f"models/{name}", CERTIFICATES_FILE) for name in ADDITION}
    return {
        **{name: tables.by_length_table(rows) for name, rows in model_results().items() if name not in together},
        **{name: tables.certificate_table(rows) for name, rows in checks.items()},
        "certified": tables.certified_table(["addition-short", *together], FOLDER / "models"),
    }


def measurement_blocks() -> dict[str, str]:
    """Return the tables of speed, cost, faults, very long problems, the ablation, and the ceiling."""
    return {
        "benchmarks": tables.benchmark_table(read_rows("", "benchmarks.jsonl")),
        "generation": tables.generation_table(read_rows("", "generation.jsonl")),
        "faults/fuzz": tables.fuzz_table(read_rows("faults", "fuzz.jsonl")),
        "faults/kills": tables.kills_table(read_rows("faults", "kills.jsonl")),
        "cost": tables.cost_table(read_rows("", "cost.jsonl")),
        "ablation": tables.ablation_table(read_rows("ablation"), read_rows("ablation", CERTIFICATES_FILE)),
        "nope-ceiling": tables.ceiling_table(read_results(STUDIES / "nope_ceiling" / "ceiling.jsonl")),
        **{f"long/{kind}": tables.long_table(read_long(kind)) for kind in ("constructed", "trained")},
    }


def comparison_blocks() -> dict[str, str]:
    """Return the tables of encodings, formats, trained lengths and depth, and of all tasks."""
    compared = read_each("comparisons/*")
    tasks = tables.tasks_table(compared.pop("tasks"), compared["encodings"], FOLDER / "models")
    variants = {f"studies/{name}": tables.variants_table(rows) for name, rows in compared.items()}
    own = {f"studies/{name}": study_table(load_study(name), rows) for name, rows in read_each("studies/*").items()}
    return {"studies/tasks": tasks, **variants, **own}


def encoder_blocks() -> dict[str, str]:
    """Return the tables of the second family and of its theory."""
    studies = read_each("encoders/*")
    labelled = {f"{name}/labels": last_rows(studies[name]) for name in LABELLED_ENCODER_STUDIES}
    return {
        **{f"encoders/{name}": tables.encoder_table(best_rows(rows)) for name, rows in studies.items()},
        **{f"encoders/{name}": tables.encoder_table(rows, "token_accuracy") for name, rows in labelled.items()},
        "encoder-settling/certificates": tables.certificate_table(read_rows("studies/encoder-settling", CERTIFICATES_FILE)),
        "encoder-settling/long": tables.long_table(read_rows("studies/encoder-settling", "long.jsonl")),
        "encoder-places": tables.places_table(read_rows("encoder_places", "places.jsonl")),
        "encoder-positions": tables.positions_table(read_rows("encoder_places", "positions.jsonl")),
        "ring": tables.ring_table(read_results(STUDIES / "ring" / "losses.jsonl")),
        "complexity": tables.complexity_table(read_results(STUDIES / "complexity" / "distributions.jsonl")),
    }


def all_blocks() -> dict[str, str]:
    """Return every table that a page can hold, by the name of its block."""
    return model_blocks() | measurement_blocks() | comparison_blocks() | encoder_blocks()


def render(text: str, blocks: dict[str, str]) -> str:
    """The text with every block between `<!-- results NAME -->` and `<!-- end -->` filled with the table NAME."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}{blocks.get(match[2], 'No results yet.')}\n{match[3]}"

    return re.sub(r"(<!-- results (\S+) -->\n).*?(<!-- end -->)", fill, text, flags=re.DOTALL)


def trained_sizes(recipe: str) -> tuple[int, int]:
    """The shortest and longest trained size of a recipe."""
    arguments = load_recipe(recipe)
    return arguments.get("min_length", 1), arguments["max_length"]


def draw_overview() -> None:
    """Draw the two pictures of the README."""
    results = model_results()
    certified = results["addition"] + read_long("trained")
    rivals = [row for name in RIVALS for row in results[name]]
    plot_addition(certified, results["addition-absolute"], rivals, trained_sizes("addition"), FOLDER / "accuracy.png")
    variants = group_variants(best_rows(read_rows("comparisons/tasks")))
    absolute = {name.removesuffix("--coupled"): rows for name, rows in variants.items() if name.endswith("--coupled")}
    sizes = {panel.recipe: trained_sizes(panel.recipe) for panel in tables.PANELS}
    plot_tasks(results, certified_recipes(), absolute, sizes, FOLDER / "tasks.png")


def draw_comparisons() -> None:
    """Draw the other pictures of the pages, except for the pictures of `hub_cards/studies`."""
    plot_cost(read_rows("", "cost.jsonl"), FOLDER / "cost.png")
    picture = FOLDER / "models" / "addition-absolute" / "accuracy.png"
    sizes, names = trained_sizes("addition-absolute"), TASKS["addition"].size_names
    plot_accuracy(read_rows("models/addition-absolute"), picture, sizes, names, seeds=True)
    for recipe, rows in read_each("grids/*").items():
        picture = FOLDER / "grids" / recipe / "accuracy.png"
        plot_grid(rows, picture, trained_sizes(recipe), TASKS[rows[0]["task"]].size_names)
    for name, (trained, xlabel) in COMPARED.items():
        rows = read_rows(name)
        rows = by_class(best_rows(rows) or rows)
        plot_comparison(group_variants(rows), FOLDER / name / "accuracy.png", trained, xlabel)
    for name, rows in read_each("studies/*").items():
        draw_study(load_study(name), rows, FOLDER / "studies" / name / "accuracy.png")


def main(arguments: list[str] | None = None) -> None:
    """Write the pages and their pictures, or compare the pages with the results files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    check = parser.parse_args(arguments).check
    blocks = all_blocks()
    before = {file: file.read_text(encoding="utf-8") for file in (RESULTS, COMPARISONS, ENCODERS)}
    after = {file: render(text, blocks) for file, text in before.items()}
    if check:
        old = [file.name for file in before if before[file] != after[file]]
        if old:
            print(f"out of date: {', '.join(old)}; write them by python -m longhand.hub_cards.reports", file=sys.stderr)
        sys.exit(bool(old))
    for file, text in after.items():
        write_atomically(file, text)
    draw_overview()
    draw_comparisons()
