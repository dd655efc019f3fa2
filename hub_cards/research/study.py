"""Studies as data: which runs are compared, from one YAML file for each study.

A file `hub_cards/research/studies/NAME.yaml`, or a file of one's own anywhere, holds:

    question: what the study asks, in one sentence
    recipe: the recipe that all runs begin with
    arguments: arguments of train.py for all runs; null takes back what the recipe gives
    variants: by name, the arguments in which a variant differs; `recipe` among them takes another recipe
    seeds: the seeds of each variant, for the initial weights and for the data
    evaluate: by name, options of eval.py that measure more of a finished run, such as {certify: true}; a list of them for
        several measurements under one name. `variants` and `seeds` among them name the runs that are measured; without
        them, all are. `checkpoint: best` measures the checkpoint that the validations chose, in place of the last one
    xlabel: what the sizes are, for the picture
    lengths: the sizes that the table shows; without them, all sizes
    validations: true keeps what the validations of the runs measured, for a picture of accuracy over checkpoints

`recipe` and `variants` are needed. Files that `recipe` and `plugin` name are looked for beside the study's file first.
"""

# Used by: hub_cards/research, hub_cards/research/gpu, hub_cards/research/papers, hub_cards/research/theories. Changed
# freely.

import hashlib
import json
import re
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path

import torch

from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.checkpoint import BEST_FOLDER
from longhand.hub_cards.recipes import Recipe, load_recipe, read_settings
from longhand.hub_cards.result_rows import (
    ATTENTION_FILE,
    CERTIFICATES_FILE,
    PLACES_FILE,
    POSITION_MAPS_FILE,
    RESULTS_FILE,
)
from longhand.hub_cards.training.arguments import Run, parse_run
from longhand.hub_cards.training.fields import UNSET

STUDIES_FOLDER = Path(__file__).parent / "studies"
STUDY_RESULTS = Path(__file__).parents[1] / "results" / "studies"
"""Holds a folder of results for each study."""

RUNS_FILE = "runs.jsonl"
"""The runs of a study: a row for each run, with its name and arguments, those of its recipe among them."""

SET_BY_RUN = ("seed", "data_seed", "output_dir", "resume")
"""Arguments of train.py that a study gives each of its runs."""

OF_STUDY = ("variants", "seeds", "checkpoint")
"""Options of a measurement that are none of eval.py."""

WRITTEN = {
    "attentions": ATTENTION_FILE,
    "certify": CERTIFICATES_FILE,
    "output_places": PLACES_FILE,
    "position_maps": POSITION_MAPS_FILE,
}
"""Options of eval.py that write another file than `RESULTS_FILE`."""


@dataclass(frozen=True)
class Evaluation:
    """One measurement of a finished run by eval.py.

    Attributes:
        name: several measurements may share it; their rows make one table.
        options: of eval.py.
        plugins: files that the run needs.
        checkpoint: the folder of the measured checkpoint in that of the run; "" is the last one.
    """

    name: str
    options: Recipe
    plugins: tuple[str, ...] = ()
    checkpoint: str = ""

    def command(self, run_folder: Path) -> list[str]:
        """Return the words that follow `python eval.py`."""
        words = []
        for name, value in self.options.items():
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [f"--{name}"] if value is True else [f"--{name}", text]
        words += ["--plugin", *self.plugins] if self.plugins else []
        return [str(run_folder / self.checkpoint), *words, "--output_dir", str(self.folder(run_folder))]

    def folder(self, run_folder: Path) -> Path:
        """Return the folder of the measurement. Its name contains the options, so results of different options never mix."""
        measured = [self.options, self.checkpoint] if self.checkpoint else self.options
        digest = hashlib.sha256(json.dumps(measured).encode()).hexdigest()
        return run_folder / "evaluations" / f"{self.name}-{digest[:8]}"

    @property
    def record(self) -> Recipe:
        """The measurement as a row of `RUNS_FILE` holds it."""
        chosen = {"checkpoint": self.checkpoint} if self.checkpoint else {}
        return {"name": self.name, "options": self.options, **chosen}

    def is_done(self, run_folder: Path) -> bool:
        """Whether all is written that the options ask for."""
        files = {WRITTEN[option] for option in self.options if option in WRITTEN} or {RESULTS_FILE}
        return all((self.folder(run_folder) / file).exists() for file in files)


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
        name: VARIANT-seedN, which is also the name of its folder and of its results.
        recipe: the recipe that it begins with.
        arguments: what it gives train.py besides; lists, numbers, words or mappings, None for what it takes back.
        evaluations: what is measured after training, besides what train.py measures.
    """

    name: str
    recipe: str
    arguments: Recipe
    evaluations: tuple[Evaluation, ...] = ()

    def command(self, folder: Path) -> list[str]:
        """Return the words that follow `python train.py`, for a run into a folder."""
        words = [self.recipe]
        for name, value in self.arguments.items():
            values = value if isinstance(value, list) else [UNSET if value is None else value]
            words += [f"--{name}", *(json.dumps(item) if isinstance(item, dict) else str(item) for item in values)]
        return [*words, "--output_dir", str(folder)]

    @property
    def record(self) -> Recipe:
        """The run as a row of `RUNS_FILE`, with the arguments of its recipe: what is measured goes with them."""
        recipe = {name: value for name, value in _recipe(self.recipe).items() if name != "description"}
        trained = {"model": self.name, "recipe": self.recipe, "arguments": {**recipe, **self.arguments}}
        measured = [evaluation.record for evaluation in self.evaluations]
        return {**trained, "evaluations": measured} if measured else trained


@dataclass(frozen=True)
class Study:
    """A study as its file describes it; the module's docstring says what the fields mean."""

    name: str
    recipe: str
    variants: dict[str, Recipe]
    question: str = ""
    arguments: Recipe = field(default_factory=dict)
    seeds: list[int] = field(default_factory=lambda: [0])
    evaluate: dict[str, list[Recipe]] = field(default_factory=dict)
    xlabel: str = "digits"
    lengths: list[int] | None = None
    validations: bool = False

    @property
    def runs(self) -> list[StudyRun]:
        """All runs, the first seed of every variant before the second."""
        return [self._run(variant, seed) for seed in self.seeds for variant in self.variants]

    def _run(self, variant: str, seed: int) -> StudyRun:
        arguments = {**self.arguments, **self.variants[variant], "seed": seed, "data_seed": seed}
        recipe = arguments.pop("recipe", self.recipe)
        plugins = tuple(arguments.get("plugin", ()))
        evaluations = [
            Evaluation(
                name,
                {option: value for option, value in measurement.items() if option not in OF_STUDY},
                plugins,
                measurement.get("checkpoint", ""),
            )
            for name, measurements in self.evaluate.items()
            for measurement in measurements
            if variant in measurement.get("variants", self.variants) and seed in measurement.get("seeds", self.seeds)
        ]
        return StudyRun(f"{variant}-seed{seed}", recipe, arguments, tuple(evaluations))

    def parameters(self, variant: str) -> int:
        """Return the number of parameters of a variant's model."""
        run = self.parse(variant)
        with torch.device("meta"):
            model = run.task.family.model_class(run.config)
        return sum(parameter.numel() for parameter in model.parameters())

    def trained_sizes(self, variant: str) -> tuple[int, int]:
        """Return the shortest and longest size that a variant is trained on; with two sizes, both are trained up to it.

        Numbers that are uniform below 10**n are of size n, as in a test, however few digits a number has. All parts of a
        task are trained on the sizes that are returned.
        """
        run = self.parse(variant)
        shortest, longest = zip(*(_trained_sizes(run, part) for part in run.task.parts), strict=True)
        return max(shortest), min(longest)

    def parse(self, variant: str) -> Run:
        """Return the run of a variant's first seed, parsed; runs for a GPU are parsed on any computer."""
        return _parse(tuple(self._run(variant, self.seeds[0]).command(Path("outputs"))))


def _trained_sizes(run: Run, task: Task) -> tuple[int, int]:
    """`Study.trained_sizes` of one part of a run's task."""
    tested, longest = task.for_evaluation, run.data.max_length
    drawn = task.shortest_lengths(run.data.min_length, longest)[0]
    shortest = max(run.data.min_length, task.size(tuple(drawn.tolist()))[0])
    most = task.size(tuple(task.longest_lengths(longest)[0].tolist()))[1]
    # A test of n digits may have n operands too, and training fewer.
    second = tested.size(tested.operand_lengths(longest))[1]
    return shortest, longest if second <= most else most


@cache
def _recipe(name: str) -> Recipe:
    """Return a recipe; a study of many runs reads it once."""
    return load_recipe(name)


@cache
def _parse(command: tuple[str, ...]) -> Run:
    """Return the run of a command; recipes for a GPU are read on any computer."""
    return parse_run([*command, "--use_cpu", "True"])


def list_studies() -> list[str]:
    """Return the names of all studies."""
    return sorted(file.stem for file in STUDIES_FOLDER.glob("*.yaml"))


def is_file(source: str) -> bool:
    """Whether a study is a file of one's own, and not one of this package."""
    return Path(source).suffix in (".yaml", ".yml")


@cache
def load_study(source: str) -> Study:
    """Return the study of that name, or in that file.

    Raises:
        ValueError: the file cannot be read, or a field of it is missing, unknown or of another type.
    """
    file = Path(source) if is_file(source) else STUDIES_FOLDER / f"{source}.yaml"
    if not file.is_file():
        raise ValueError(f"there is no file {file} of a study")
    values = read_settings(file)
    legal = [option for option in fields(Study) if option.name != "name"]
    needed = [option.name for option in legal if option.default is MISSING and option.default_factory is MISSING]
    if faults := [*(name for name in values if name not in {option.name for option in legal})]:
        raise ValueError(
            f"{file}: {faults[0]} is no field of a study: these are {', '.join(option.name for option in legal)}"
        )
    if missing := [name for name in needed if not values.get(name)]:
        raise ValueError(f"{file}: {' and '.join(missing)} must be given")
    mappings = {name: values.get(name) or {} for name in ("variants", "arguments", "evaluate")}
    if wrong := [name for name, value in mappings.items() if not isinstance(value, dict)]:
        raise ValueError(f"{file}: {wrong[0]} must map names to values, got {mappings[wrong[0]]!r}")
    variants = {str(name): beside(file, changes or {}) for name, changes in mappings["variants"].items()}
    if wrong := [name for name in variants if not re.fullmatch(r"[^\s/\\]+", name) or "-seed" in name]:
        raise ValueError(f"{file}: a variant names a folder, so {wrong[0]!r} must have no space, no slash and no '-seed'")
    arguments = beside(file, mappings["arguments"])
    if given := [name for name in SET_BY_RUN for changes in (arguments, *variants.values()) if name in changes]:
        raise ValueError(
            f"{file}: a study sets {given[0]} of each run itself: leave it out; its own seeds are its field seeds"
        )
    seeds, lengths = values.get("seeds", [0]), values.get("lengths", [1])
    for name, numbers in {"seeds": seeds, "lengths": lengths or [1]}.items():
        is_list = isinstance(numbers, list) and numbers and all(type(number) is int and number >= 0 for number in numbers)
        if not is_list or len(set(numbers)) < len(numbers):
            raise ValueError(f"{file}: {name} must be a list of different whole numbers from 0 on, got {numbers!r}")
    values |= {"variants": variants, "arguments": arguments}
    evaluate = {key: named if isinstance(named, list) else [named] for key, named in mappings["evaluate"].items()}
    for key, measurements in evaluate.items():
        for measurement in measurements:
            if not isinstance(measurement, dict):
                raise ValueError(f"{file}: evaluate must map {key} to options of eval.py, got {measurement!r}")
            if (checkpoint := measurement.get("checkpoint", BEST_FOLDER)) != BEST_FOLDER:
                raise ValueError(f"{file}: checkpoint of {key} must be {BEST_FOLDER}, or left out, got {checkpoint!r}")
            for name, legal_values in {"variants": [*variants], "seeds": seeds}.items():
                if unknown := [value for value in measurement.get(name) or () if value not in legal_values]:
                    raise ValueError(
                        f"{file}: {key} measures {name} {unknown[0]!r}, which the study does not have: these are "
                        f"{', '.join(map(str, legal_values))}"
                    )
    recipe = beside(file, {"recipe": values["recipe"]})["recipe"]
    return Study(name=file.stem, **{**values, "evaluate": evaluate, "recipe": recipe})


def beside(file: Path, arguments: Recipe) -> Recipe:
    """Arguments whose recipe and plugins are the files beside a study's file, if there are such files there.

    Raises:
        ValueError: the arguments do not map names to values.
    """
    if not isinstance(arguments, dict):
        raise ValueError(f"{file}: arguments must map names to values, got {arguments!r}")

    def found(name: object) -> str:
        near = file.parent / str(name)
        return str(near) if near.is_file() else str(name)

    placed = {**arguments}
    if "recipe" in placed:
        placed["recipe"] = found(placed["recipe"])
    if plugins := placed.get("plugin"):
        placed["plugin"] = [found(name) for name in (plugins if isinstance(plugins, list) else [plugins])]
    return placed
