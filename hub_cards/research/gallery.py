"""The gallery: every task, its tokens, what a model sees of them, its dataset, and how far its recipes reach."""

# Used by: pages.py, ship.py. Changed freely.

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from pandas import Series
from safetensors import safe_open

from longhand.data.tasks.registry import TASKS, task_from_recipe
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.certificate_kinds import read_stated
from longhand.hub_cards.checkpoints.checkpoint import CERTIFICATE_FILE, is_certified
from longhand.hub_cards.checkpoints.length_certificate import ranges
from longhand.hub_cards.checkpoints.load import ZOO_FOLDER, list_zoo
from longhand.hub_cards.publishing.dataset import COLUMNS
from longhand.hub_cards.publishing.examples import ENVIRONMENT, about, count, example_row, family_card
from longhand.hub_cards.recipes import RECIPE_FILE, list_recipes, read_recipe
from longhand.hub_cards.research.study import list_studies, load_study
from longhand.hub_cards.research.study_pages import PROVED_TABLE, fitting, read_shipped_lengths, read_study
from longhand.hub_cards.research.tables import TableLine, render_table
from longhand.hub_cards.research.theories.answers import RESULTS as ANSWERS
from longhand.hub_cards.result_rows import RESULTS_FILE, Row, read_results
from longhand.hub_cards.training.arguments import Run, parse_run

GALLERY = Path(__file__).parents[1] / "GALLERY.md"

SIZES = (2, 4)
"""The sizes of the problems that are shown."""

PAPERS = "paper-"
"""Names of recipes of the papers' own sizes begin with this. Training them needs a GPU."""

TESTING = {"seed", "data_seed", "validation_lengths", "validation_samples", "test_lengths", "test_samples"}
"""A run that differs from its recipe in these arguments only, and in `max_steps`, says how far the recipe reaches."""


def reached() -> dict[str, str]:
    """How far every recipe reaches that was trained for a study, in words, by the recipe's name."""
    found: dict[str, str] = {}
    for study in map(load_study, list_studies()):
        tests, checks = read_study(study)
        fits = fitting(study, tests)
        for run in study.runs:
            variant = run.name.rpartition("-seed")[0]
            changed = set(run.arguments) - TESTING
            if variant not in fits.index or not changed <= {"max_steps"} or (changed and run.recipe in found):
                continue
            said = f"{fits['reach'][variant]} ({count(fits['seeds'][variant], 'run')})"
            certified = checks.loc[checks["variant"] == variant].get("certified", Series(dtype=bool))
            if certified.any():
                said = f"**every size, proved** ({certified.sum()} of {count(len(certified), 'run')})"
            found[run.recipe] = f"{said}, in {run.arguments['max_steps']:,} steps" if changed else said
    proved = ranges(row["length"] for row in read_shipped_lengths() if row["verdict"] == "proved")
    samples = f"; by samples {found[PROVED_TABLE]}" if PROVED_TABLE in found else ""
    found[PROVED_TABLE] = f"**{proved}, proved** (the shipped table){samples}"
    return found


def proved_for(folder: Path) -> str:
    """For which sizes the certificate of a shipped model says that it is right, in words."""
    if not (folder / CERTIFICATE_FILE).is_file():
        return "nothing"
    certificate = read_stated(folder / CERTIFICATE_FILE)
    if is_certified(certificate):
        return "every size"
    proved = [verdict["length"] for verdict in certificate.get("lengths", ()) if verdict["verdict"] == "proved"]
    return f"sizes {ranges(proved)}" if proved else "nothing"


def shipped_line(name: str, speed: Row | None) -> TableLine:
    """A line of the table of shipped models."""
    folder = ZOO_FOLDER / name
    recipe = read_recipe(folder / RECIPE_FILE)
    task = task_from_recipe(recipe)
    with safe_open(folder / "model.safetensors", "pt") as weights:
        parameters = sum(math.prod(weights.get_slice(key).get_shape()) for key in weights.keys())  # noqa: SIM118
    seconds = read_results(folder / RESULTS_FILE)[0].get("run_seconds")
    return {
        "model": f"`{name}`",
        "question": f"`{task.example_question}`",
        "parameters": f"{parameters:,}",
        "trained on": f"{recipe['min_length']} to {recipe['max_length']}",
        "proved for": proved_for(folder),
        "seconds to train": f"{seconds:,.0f}" if seconds else "",
        "answers a second": f"{speed['answers_per_second']:,}" if speed else "",
    }


def shipped_table(names: Sequence[str]) -> str:
    """The table of these shipped models."""
    speeds = {row["model"]: row for row in read_results(ANSWERS)}
    machine = next(iter(speeds.values()))["hardware"]
    sizes = "Sizes are digits, symbols, or rows and columns; every size ends at the limit that the certificate states."
    note = f"{sizes} Answers are to 1,000 questions, in CPU seconds ({machine})."
    return render_table([shipped_line(name, speeds.get(name)) for name in names], note)


def problems(task: Task) -> str:
    """A list of problems of every part of a task."""
    rows = [example_row(task, part, size) for part, size in product(task.parts, SIZES)]
    lines = ("- `{prompt}` gives `{completion}`; answer `{answer}`\n".format(**row) for row in rows)
    return "".join(lines)


def alike_recipes(runs: Mapping[str, Run], reach: Mapping[str, str]) -> dict[tuple[str, str], list[str]]:
    """The names of recipes by the sizes that they are trained on, in words, and how far they reach."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, run in runs.items():
        trained = run.task.describe_lengths(run.data.min_length, run.data.max_length)
        found.setdefault((trained, reach.get(name, "not measured by size")), []).append(f"`{name}`")
    return found


def render() -> str:
    """The whole page."""
    runs = {name: parse_run([name, "--use_cpu", "True"]) for name in list_recipes()}
    columns = {name: list(example_row(task := TASKS[name](), task.parts[0], SIZES[0])) for name in TASKS}
    common = [column for column in next(iter(columns.values())) if all(column in names for names in columns.values())]
    reach, tasks = reached(), []
    for name in TASKS:
        own = {recipe: run for recipe, run in runs.items() if run.task.name == name}
        local = {recipe: run for recipe, run in own.items() if not recipe.startswith(PAPERS)}
        drawn = [(recipe, run.task, family_card(run.task).draw_sight(run.task, run.config)) for recipe, run in local.items()]
        recipe, task, drawing = next((found for found in drawn if found[2]), (None, TASKS[name](), None))
        # Certified ones come first: the page asks the first one.
        held = [shipped for shipped in list_zoo() if shipped in own]
        certified = [shipped for shipped in held if own[shipped].recipe["until_certified"]]
        held = [*certified, *(shipped for shipped in held if shipped not in certified)]
        tasks.append(
            {
                "task": task,
                "about": about(task),
                "problems": problems(task.for_evaluation),
                "recipe": recipe,
                "drawing": drawing or family_card(task).draw(task),
                "columns": [column for column in columns[name] if column not in {*common, "query_length"}],
                "recipes": alike_recipes(local, reach),
                "shipped": held,
                "papers": [recipe for recipe in own if recipe not in local],
            }
        )
    page = ENVIRONMENT.get_template("gallery.md").render(
        tasks=tasks, common=common, meanings=COLUMNS, shipped=shipped_table(list_zoo())
    )
    return f"{page.rstrip()}\n"
