"""Fill the tables of RESULTS.md, COMPARISONS.md and ENCODERS.md from the results files, and draw the pictures of all pages.

python -m longhand.hub_cards.reports           write the pages and the pictures
python -m longhand.hub_cards.reports --check   write nothing; exit with 1 if a page is out of date
"""

import argparse
import re
import sys
from pathlib import Path

from longhand.data import TASKS
from longhand.hub_cards.reports import tables
from longhand.hub_cards.reports.overview import PANELS, plot_addition, plot_tasks
from longhand.hub_cards.reports.plots import plot_accuracy, plot_comparison, plot_cost, plot_grid
from longhand.hub_cards.runs.files import write_atomically
from longhand.hub_cards.runs.recipes import list_recipes, load_recipe
from longhand.hub_cards.runs.results import (
    CERTIFICATES_FILE,
    RESULTS_FILE,
    Row,
    best_rows,
    by_class,
    group_variants,
    has_classes,
    last_rows,
    read_results,
)

HUB_CARDS = Path(__file__).parents[1]
README = HUB_CARDS.parent / "README.md"
RESULTS = HUB_CARDS / "RESULTS.md"
COMPARISONS = HUB_CARDS / "COMPARISONS.md"
ENCODERS = HUB_CARDS / "ENCODERS.md"

FOLDER = HUB_CARDS / "results"
MODELS = FOLDER / "models"
ABLATION = FOLDER / "ablation"
LONG = FOLDER / "long"
GRIDS = FOLDER / "grids"
COMPARED = FOLDER / "comparisons"
ENCODER_STUDIES = FOLDER / "encoders"
ENCODER_PLACES = FOLDER / "encoder_places"
STUDIES = HUB_CARDS / "studies"
COST_FILE = FOLDER / "cost.jsonl"

ADDITION_PICTURE = FOLDER / "accuracy.png"
TASKS_PICTURE = FOLDER / "tasks.png"
COMPARED_TRAINED_SIZES = {"encodings": (1, 30), "formats": (1, 30), "trained-lengths": None, "depth": (1, 10)}
"""The trained sizes of each comparison with a picture; None if its variants differ in them."""

PICTURED_ENCODER_STUDIES = ("addition", "coupled", "multiplication-1", "multiplication-3", "cascades", "windows")

ADDITION = ("addition", "addition-short")
"""Certified recipes with a table of their own for each run."""

RIVALS = ("addition-nope", "addition-ape", "addition-random-start-ape")
"""Recipes whose position ids are not coupled."""

LABELLED_ENCODER_STUDIES = ("multiplication-3", "multiplication-3-windowed")
"""Studies with a second table, of the labels that are right: too few of their whole answers are."""


def model_results() -> dict[str, list[Row]]:
    """Rows of every recipe with results: last checkpoints under its name, best ones under NAME/best."""
    names = (name for recipe in list_recipes() for name in (recipe, f"{recipe}/best"))
    return {name: read_results(file) for name in names if (file := MODELS / name / RESULTS_FILE).exists()}


def certified_recipes() -> list[str]:
    """The recipes whose models were checked for a certificate."""
    return [name for name in list_recipes() if (MODELS / name / CERTIFICATES_FILE).exists()]


def model_blocks() -> dict[str, str]:
    """Tables of the recipes: of each run, or of all certified recipes together."""
    together = [name for name in certified_recipes() if name not in ADDITION]
    blocks = {name: tables.by_length_table(rows) for name, rows in model_results().items() if name not in together}
    blocks |= {
        f"{name}/certificates": tables.certificate_table(read_results(MODELS / name / CERTIFICATES_FILE))
        for name in ADDITION
    }
    return blocks | {"certified": tables.certified_table(["addition-short", *together], MODELS)}


def measurement_blocks() -> dict[str, str]:
    """Tables of speed, cost, very long problems, the ablation, and the ceiling."""
    long = {
        folder.name: [row for file in sorted(folder.glob(f"*/{RESULTS_FILE}")) for row in read_results(file)]
        for folder in sorted(LONG.iterdir())
    }
    return {
        "benchmarks": tables.benchmark_table(read_results(FOLDER / "benchmarks.jsonl")),
        "generation": tables.generation_table(read_results(FOLDER / "generation.jsonl")),
        "cost": tables.cost_table(read_results(COST_FILE)),
        "ablation": tables.ablation_table(read_results(ABLATION / RESULTS_FILE), read_results(ABLATION / CERTIFICATES_FILE)),
        "nope-ceiling": tables.ceiling_table(read_results(STUDIES / "nope_ceiling" / "ceiling.jsonl")),
        **{f"long/{name}": tables.long_table(rows) for name, rows in long.items()},
    }


def comparison_blocks() -> dict[str, str]:
    """Tables of encodings, formats, trained lengths and depth, and of all tasks."""
    compared = {folder.name: read_results(folder / RESULTS_FILE) for folder in sorted(COMPARED.iterdir())}
    tasks = tables.tasks_table(
        compared.pop("tasks"), compared["encodings"], lambda recipe: tables.window_cell(recipe, MODELS)
    )
    return {"studies/tasks": tasks, **{f"studies/{name}": tables.variants_table(rows) for name, rows in compared.items()}}


def encoder_blocks() -> dict[str, str]:
    """Tables of the second family and of its theory."""
    studies = {folder.name: read_results(folder / RESULTS_FILE) for folder in sorted(ENCODER_STUDIES.iterdir())}
    return {
        **{f"encoders/{name}": tables.encoder_table(best_rows(rows)) for name, rows in studies.items()},
        **{
            f"encoders/{name}/labels": tables.encoder_table(last_rows(studies[name]), "token_accuracy")
            for name in LABELLED_ENCODER_STUDIES
        },
        "encoder-places": tables.places_table(read_results(ENCODER_PLACES / "places.jsonl")),
        "encoder-positions": tables.positions_table(read_results(ENCODER_PLACES / "positions.jsonl")),
        "ring": tables.ring_table(read_results(STUDIES / "ring" / "losses.jsonl")),
        "complexity": tables.complexity_table(read_results(STUDIES / "complexity" / "distributions.jsonl")),
    }


def all_blocks() -> dict[str, str]:
    """Every table that a page can hold, by the name of its block."""
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
    very_long = [row for file in sorted(LONG.glob(f"trained/*/{RESULTS_FILE}")) for row in read_results(file)]
    rivals = [row for name in RIVALS for row in results[name]]
    certified = results["addition"] + very_long
    plot_addition(certified, results["addition-absolute"], rivals, trained_sizes("addition"), ADDITION_PICTURE)
    absolute = {
        name.removesuffix("--coupled"): rows
        for name, rows in group_variants(best_rows(read_results(COMPARED / "tasks" / RESULTS_FILE))).items()
        if name.endswith("--coupled")
    }
    recipes = [panel.recipe for panel in PANELS]
    windows, sizes = {name: results[name] for name in recipes}, {name: trained_sizes(name) for name in recipes}
    plot_tasks(windows, certified_recipes(), absolute, sizes, TASKS_PICTURE)


def draw_comparisons() -> None:
    """Draw the other pictures of the pages, except for the pictures of `hub_cards/studies`."""
    plot_cost(read_results(COST_FILE), COST_FILE.with_suffix(".png"))
    size_names = TASKS["addition"].size_names
    absolute = read_results(MODELS / "addition-absolute" / RESULTS_FILE)
    picture = MODELS / "addition-absolute" / "accuracy.png"
    plot_accuracy(absolute, picture, trained_sizes("addition-absolute"), size_names, seeds=True)
    plot_comparison(group_variants(read_results(ABLATION / RESULTS_FILE)), ABLATION / "accuracy.png", (1, 30))
    for folder in sorted(GRIDS.iterdir()):
        rows = read_results(folder / RESULTS_FILE)
        plot_grid(rows, folder / "accuracy.png", trained_sizes(folder.name), TASKS[rows[0]["task"]].size_names)
    for name, sizes in COMPARED_TRAINED_SIZES.items():
        rows = best_rows(read_results(COMPARED / name / RESULTS_FILE))
        plot_comparison(group_variants(rows), COMPARED / name / "accuracy.png", sizes)
    for name in PICTURED_ENCODER_STUDIES:
        rows = best_rows(read_results(ENCODER_STUDIES / name / RESULTS_FILE))
        picture = ENCODER_STUDIES / name / "accuracy.png"
        if has_classes(rows):
            plot_comparison(group_variants(by_class(rows)), picture, None, "columns of the longest cascade of carries")
        else:
            plot_comparison(group_variants(rows), picture, (1, 5), "digits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    check = parser.parse_args().check
    blocks = all_blocks()
    before = {file: file.read_text(encoding="utf-8") for file in (RESULTS, COMPARISONS, ENCODERS)}
    after = {file: render(text, blocks) for file, text in before.items()}
    if check:
        sys.exit(before != after)
    for file, text in after.items():
        write_atomically(file, text)
    draw_overview()
    draw_comparisons()
