"""A checkpoint: the object that it becomes when it is loaded, and the files of its folder.

`certificate_file.py` writes and reads the certificate in it.
"""

# Used by: hub_cards/checkpoints, eval.py, hub_cards/evaluation, hub_cards/page, hub_cards/publishing, hub_cards/research,
# hub_cards/research/gpu, hub_cards/research/theories, hub_cards/training, train.py. Changed freely.

import copy
import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.dynamic_module_utils import custom_object_save

from longhand.data.families import Question
from longhand.data.proofs.check import Check
from longhand.data.tasks.plugins import PLUGINS, named_plugins
from longhand.data.tasks.task import Task
from longhand.hub_cards.recipes import RECIPE_FILE, Recipe
from longhand.hub_cards.result_rows import RESULTS_FILE, Row, read_results
from longhand.modeling.pretrained import CERTIFICATE_FILE as CERTIFICATE_FILE

VERIFIER_FILE = "verify_certificate.py"
PLOT_FILE = "accuracy.png"
CARD_FILE = "README.md"
RESTARTS_FILE = "restarts.jsonl"
"""The seeds of a run that were given up, a row for each; see `longhand.hub_cards.training.run_folder.GivenUp`."""
BEST_FOLDER = "best"
ADAPTER_CONFIG = "adapter_config.json"
STRUCTURE_CONFIG = "structure_config.json"
"""What `save_structure` writes beside a model of others."""
ANSWER_FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    ADAPTER_CONFIG,
    "tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "*.py",
    "custom_generate/*.py",
)
"""The files of a checkpoint that decide an answer: transformers reads them or runs them."""

OUTPUTS = {"return_dict": True, "output_attentions": False, "output_hidden_states": False}
"""Settings of a configuration that say what a model returns, as this package reads it; loading sets them."""


BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
"""What a progress bar shows."""

PATIENCE = 2.0
"""Seconds without a progress bar."""

MOST_TOKENS_AT_ONCE = 100_000
"""Tokens of a batch of questions with their responses."""


class RefusedQuestion(ValueError):
    """A question that is not of the task's form.

    Attributes:
        question: as it was asked.
    """

    def __init__(self, message: str, question: str):
        super().__init__(message)
        self.question = question


def is_certified(certificate: Mapping[str, object] | None) -> bool:
    """Whether there is a certificate, and it says that every length is proved; that of single lengths says no such thing."""
    return certificate is not None and certificate.get("certified") is True


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model with all that its folder says of it. Nothing is read again by the name that the user gave.

    Attributes:
        name: how results refer to it: a Hub id, the name of a folder, or for `best` that of its run too.
        folder: where its files are; for a repository, its snapshot in the Hub's cache.
        kind: `"folder"`, `"zoo"` (comes with the package) or `"hub"`.
        task: the task whose problems it is tested on.
        own_task: the task that its recipe, or else its configuration, names, of which `task` may be a part; None if neither
            names one.
        recipe: the arguments that made it; empty if it has no recipe.
        weights: `hash_weights` of the model.
        certificate: what certificate.json in its folder states, see `read_stated`; None if there is none, or if it has a
            `fault`.
        fault: why its certificate.json is not of this checkpoint; empty otherwise.
        check: what this process found in a check of it, to make it once; None if it was not checked.
        rows: results of the last checkpoint, as `read_checkpoint` finds them; empty if it was not evaluated.
        best_rows: results of the checkpoint in `best`; empty if that is spare.
        spare_best: why `best` is not published: it adds nothing to the last checkpoint. None if it adds something or is
            missing.
    """

    name: str
    folder: Path
    kind: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: Task
    own_task: Task | None
    recipe: Recipe
    weights: str
    certificate: dict[str, Any] | None = None
    fault: str = ""
    check: Check | None = None
    rows: list[Row] = field(default_factory=list)
    best_rows: list[Row] = field(default_factory=list)
    spare_best: str | None = None

    @property
    def trained_lengths(self) -> tuple[int, int] | None:
        """The shortest and longest trained operand in digits; None if the recipe names none, as that of a construction."""
        return (self.recipe["min_length"], self.recipe["max_length"]) if "min_length" in self.recipe else None

    @property
    def run_seconds(self) -> float | None:
        """Seconds of its training and first evaluation, as train.py notes them for the last checkpoint and for `best`."""
        file = (self.folder.parent if is_best(self.folder) else self.folder) / RESULTS_FILE
        rows = read_results(file) if file.is_file() else []
        return rows[0].get("run_seconds") if rows else None

    def answer(self, question: str) -> str:
        """Return the model's answer to a question, see `Family.answer`."""
        part = self.task.part_of(question)
        part.check_question(bare(question))
        return self.task.family.answer(part, self.model, self.tokenizer, question)

    def answers(self, questions: Sequence[str]) -> list[str]:
        """Return the model's answers to questions of any lengths, those of one layout in one batch.

        A terminal shows a progress bar if it takes long. The time is linear in the tokens of questions and responses, and
        quadratic in a question's tokens without a window.

        Raises:
            RefusedQuestion: a question is not of the task's form; the message says which one. No question is answered then.
            ValueError: as `Family.check_answers`, `Family.encode` and `Family.answers`.
        """
        for part in self.task.parts:
            self.task.family.check_answers(part, self.model)
        family, layouts = self.task.family, dict[tuple[object, ...], tuple[Task, list[int], list[Question]]]()
        # A question is read, and answered: two steps.
        steps, many = 2 * len(questions), f"{len(questions):,} questions"
        with tqdm(total=steps, desc=many, bar_format=BAR, delay=PATIENCE, disable=None, leave=False) as bar:
            for place, text in enumerate(questions):
                try:
                    part = self.task.part_of(text)
                    part.check_question(bare(text))
                    question = family.read(part, self.model, text)
                except ValueError as error:
                    which = f"question {place + 1} of {len(questions)}: " if len(questions) > 1 else ""
                    raise RefusedQuestion(f"{which}{error}", text) from error
                _, places, read = layouts.setdefault((part.name, *question.layout), (part, [], []))
                places.append(place)
                read.append(question)
                bar.update()
            batches = [
                (part, places, family.encode(part, self.model, self.tokenizer, read))
                for part, places, read in layouts.values()
            ]
            answers = [""] * len(questions)
            for part, places, encoded in batches:
                written: list[str] = []
                for batch in encoded.split(MOST_TOKENS_AT_ONCE):
                    written += family.answers(part, self.model, self.tokenizer, batch)
                    bar.update(len(batch.input_ids))
                for place, answer in zip(places, written, strict=True):
                    answers[place] = answer
        return answers

    def by_part(self) -> list["Checkpoint"]:
        """Return the checkpoint for each part of its task, to be tested on it."""
        return [replace(self, task=part) for part in self.task.parts]


def bare(question: str) -> str:
    """A question without spaces and the sign at its end."""
    return "".join(question.split()).removesuffix("=")


def checkpoint_name(source: str) -> str:
    """Return a Hub id as it is, a folder's name, or `RUN/best`."""
    folder = Path(source)
    if not folder.is_dir():
        return source
    return "/".join(folder.resolve().parts[-2:]) if is_best(folder) else folder.resolve().name


def file_name(name: str) -> str:
    """Return a checkpoint's name as a part of a file's."""
    return name.replace("/", "--")


def is_best(folder: Path) -> bool:
    """Whether a folder holds the best checkpoint of the run in whose folder it is. A run itself may have that name too."""
    return folder.is_dir() and folder.name == BEST_FOLDER and (folder.parent / RECIPE_FILE).is_file()


def hash_files(folder: Path, patterns: Iterable[str] = ANSWER_FILES) -> dict[str, str]:
    """Return the SHA-256 of files in a folder by name: by default, of those that decide an answer of its checkpoint."""
    found = {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    hashes = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in found - {folder / VERIFIER_FILE}}
    return {file.relative_to(folder).as_posix(): hashes[file] for file in sorted(hashes)}


def save_code(config: PreTrainedConfig, task: Task, folder: Path) -> None:
    """Write a model's configuration and its code into a folder, as `save_pretrained` of the model does."""
    model_class = task.family.model_class
    config.save_pretrained(folder)
    if model_class._auto_class is not None:
        custom_object_save(model_class, folder)


def changed_code(
    folder: Path, paths: Iterable[str], config: PreTrainedConfig, task: Task, recipe: Mapping[str, object]
) -> list[str]:
    """Return the Python files that this version of the package, with the plugins of a recipe, would not save for a model.

    Args:
        paths: the files to look at, in the folder.
        config: the model's configuration.
    """
    plugins = named_plugins(recipe)
    expected = {name: PLUGINS[name].code for name in plugins if name in PLUGINS}
    if getattr(config, "transducer", None):
        # Nothing reads the plugin of a task that travels as a table: it must be the one that the recipe names.
        kept = {name: (folder / name).read_bytes() for name in plugins if (folder / name).is_file()}
        expected |= {name: code for name, code in kept.items() if hashlib.sha256(code).hexdigest() == plugins[name]}
    with tempfile.TemporaryDirectory() as place:
        # Saving makes a configuration name the code.
        save_code(copy.deepcopy(config), task, Path(place))
        expected |= {file.name: file.read_bytes() for file in Path(place).glob("*.py")}
    return [path for path in paths if (folder / path).read_bytes() != expected.get(Path(path).name)]
