"""Studies as data: which runs are compared, from one YAML file for each study.

A file `hub_cards/studies/NAME.yaml` holds:

    question: what the study asks, in one sentence
    recipe: the recipe that all runs begin with
    arguments: arguments of train.py for all runs
    variants: by name, the arguments in which a variant differs; `recipe` among them takes another recipe
    seeds: the seeds of each variant, for the initial weights and for the data
    xlabel: what the sizes are, for the picture
    lengths: the sizes that the table shows; without them, all sizes
"""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from longhand.hub_cards.runs.recipes import load_recipe, read_recipe

STUDIES_FOLDER = Path(__file__).parents[1] / "studies"
RUNS_FILE = "runs.jsonl"
"""What was trained for a study: a row for each run, with its name and arguments."""


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
        name: VARIANT-seedN, which is also the name of its folder and of its results.
        recipe: the recipe that it begins with.
        arguments: what it gives train.py besides; lists, numbers, words or mappings.
    """

    name: str
    recipe: str
    arguments: dict[str, Any]

    def command(self, folder: Path) -> list[str]:
        """Return the words that follow `python train.py`, for a run into a folder."""
        words = [self.recipe]
        for name, value in self.arguments.items():
            values = value if isinstance(value, list) else [value]
            words += [f"--{name}", *(json.dumps(one) if isinstance(one, dict) else str(one) for one in values)]
        return [*words, "--output_dir", str(folder)]

    @property
    def record(self) -> dict[str, Any]:
        """The run as a row of `RUNS_FILE`."""
        return {"model": self.name, "recipe": self.recipe, "arguments": self.arguments}


@dataclass(frozen=True)
class Study:
    """A study as its file describes it; the module's docstring says what the fields mean."""

    name: str
    question: str
    recipe: str
    variants: dict[str, dict[str, Any]]
    arguments: dict[str, Any] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=lambda: [0])
    xlabel: str = "digits"
    lengths: list[int] | None = None

    @property
    def runs(self) -> list[StudyRun]:
        """All runs, the first seed of every variant before the second."""
        return [self._run(variant, seed) for seed in self.seeds for variant in self.variants]

    def _run(self, variant: str, seed: int) -> StudyRun:
        arguments = {**self.arguments, **self.variants[variant], "seed": seed, "data_seed": seed}
        return StudyRun(f"{variant}-seed{seed}", arguments.pop("recipe", self.recipe), arguments)

    def setting(self, variant: str, argument: str) -> Any:
        """Return an argument of a variant as its command gives it, else as its recipe does; None if neither does."""
        run = self._run(variant, self.seeds[0])
        return {**load_recipe(run.recipe), **run.arguments}.get(argument)

    def trained_sizes(self, variant: str) -> tuple[int, int]:
        """Return the shortest and longest size that a variant is trained on."""
        return self.setting(variant, "min_length") or 1, self.setting(variant, "max_length")


def list_studies() -> list[str]:
    """Return the names of all studies."""
    return sorted(file.stem for file in STUDIES_FOLDER.glob("*.yaml"))


def load_study(name: str) -> Study:
    """Return the study of that name.

    Raises:
        ValueError: its file lacks a field, or has one that no study has.
    """
    file = STUDIES_FOLDER / f"{name}.yaml"
    values = read_recipe(file)
    known = {option.name for option in fields(Study)} - {"name"}
    if unknown := sorted(set(values) - known):
        raise ValueError(f"{file} has the unknown field {unknown[0]!r}: legal are {', '.join(sorted(known))}")
    if missing := sorted({"question", "recipe", "variants"} - set(values)):
        raise ValueError(f"{file} lacks the field {missing[0]!r}")
    variants = {variant: changes or {} for variant, changes in values.pop("variants").items()}
    return Study(name=name, variants=variants, **values)
