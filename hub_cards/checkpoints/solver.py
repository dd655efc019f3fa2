"""A model that is asked in Python: `longhand.load("addition")("653+49")` is `"702"`."""

# Used by: eval.py, hub_cards/research/theories. Changed freely.

import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, overload

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from longhand.data.tasks.registry import task_from_recipe
from longhand.hub_cards.checkpoints.certificate_file import proves
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint, RefusedQuestion, bare, is_best
from longhand.hub_cards.checkpoints.load import (
    SENTENCE,
    ZOO_FOLDER,
    OtherWithStructure,
    list_zoo,
    load_checkpoint,
    locate,
)
from longhand.hub_cards.recipes import RECIPE_FILE, read_recipe
from longhand.hub_cards.result_rows import MIXED, RESULTS_FILE, read_results

logger = logging.get_logger(__name__)

if TYPE_CHECKING:
    from longhand.hub_cards.checkpoints.language_model import LanguageModel

MOST_NAMES = 3
"""Names of models in a refusal."""


class Solver:
    """A checkpoint that answers questions as a person writes them. `load` makes one.

    Attributes:
        checkpoint: all that its folder says of it.
        name: the name of its folder, or its Hub id.
        model, tokenizer: as `from_pretrained` gives them; the model is on the first GPU of CUDA if there is one.
        certificate: what its certificate.json states, if it is of these weights; None if there is none.
    """

    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint = checkpoint

    @property
    def name(self) -> str:
        return self.checkpoint.name

    @property
    def model(self) -> PreTrainedModel:
        return self.checkpoint.model

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self.checkpoint.tokenizer

    @property
    def certificate(self) -> dict | None:
        return self.checkpoint.certificate

    @property
    def example_question(self) -> str:
        """A question that the model answers."""
        return self.checkpoint.task.example_question

    def __repr__(self) -> str:
        return f"Solver({self.name!r}, task {self.checkpoint.task.name!r}, such as {self.example_question!r})"

    # A text is an iterable of texts too; the first signature is the one for it.
    @overload
    def __call__(self, questions: str) -> str: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, questions: Iterable[str]) -> list[str]: ...

    def __call__(self, questions: str | Iterable[str]) -> str | list[str]:
        """Answer one question, or any number of questions of any lengths in batches.

        Args:
            questions: a text such as `"653+49"`, or texts.

        Returns:
            The answer, or the answers in the order of the questions.

        Raises:
            TypeError: a question is no text.
            ValueError: a question is not of the task's form, or too long for the model. No question is answered then. The
                message names shipped models that would take it.
        """
        texts, is_one = self._texts(questions)
        answers = self._answers(texts)
        return answers[0] if is_one else answers

    def _answers(self, texts: list[str]) -> list[str]:
        return answers_of(self.checkpoint, texts)

    def _texts(self, questions: str | Iterable[str]) -> tuple[list[str], bool]:
        """Return questions as a list, and whether they are one; raise TypeError if one is no text."""
        is_one = isinstance(questions, str)
        # Bytes are numbers one by one, and a mapping is its keys.
        if not is_one and (not isinstance(questions, Iterable) or isinstance(questions, bytes | Mapping)):
            raise TypeError(
                f"questions must be a text such as {self.example_question!r} or a list of texts, got {questions!r}"
            )
        texts = [questions] if isinstance(questions, str) else list(questions)
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(
                    f"a question must be a text such as {self.example_question!r}, got {text!r} (question {place + 1})"
                )
        return texts, is_one


class LanguageSolver(Solver):
    """A language model of others with structure, that answers questions about numbers in sentences.

    It has no checkpoint of this package, and nothing is proved of it.
    """

    def __init__(self, other: "LanguageModel"):
        self.other = other

    @property
    def name(self) -> str:
        return self.other.name

    @property
    def model(self) -> PreTrainedModel:
        return self.other.model

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self.other.tokenizer

    @property
    def certificate(self) -> None:
        return None

    @property
    def example_question(self) -> str:
        return SENTENCE

    def __repr__(self) -> str:
        return f"Solver({self.name!r}, numbers in sentences, such as {self.example_question!r})"

    def _answers(self, texts: list[str]) -> list[str]:
        return self.other.answers(texts)


def say_unproved(checkpoint: Checkpoint) -> None:
    """Warn, once for each model, that nothing proves its answers, and tell how often they were right on mixed lengths."""
    if checkpoint.certificate is None or not proves(checkpoint.certificate):
        told = mixed_accuracies(checkpoint) or [
            "not measured on operands of mixed lengths (eval.py MODEL --mixed measures it)"
        ]
        logger.warning_once(f"{checkpoint.name} has no certificate, so its answers may be wrong: {'; '.join(told)}")


def mixed_accuracies(checkpoint: Checkpoint) -> list[str]:
    """How many answers were right where operands have mixed lengths, in words, from the results beside a checkpoint."""
    folder = checkpoint.folder.parent if is_best(checkpoint.folder) else checkpoint.folder
    try:
        rows = read_results(folder / RESULTS_FILE) if (folder / RESULTS_FILE).is_file() else []
    except ValueError:
        return []
    parts = {part.name: part for part in checkpoint.task.parts}
    mixed_rows = [row for row in rows if row["task"] in parts and row.get("weights") == checkpoint.weights and MIXED in row]
    # The smallest size and the largest one tell enough.
    return [
        f"of {row['num_samples']:,} problems of mixed lengths, {parts[row['task']].describe_lengths(1, row['length'])}, "
        f"{100 * row[MIXED]:.1f} % were right"
        for row in mixed_rows
        if row in (mixed_rows[0], mixed_rows[-1])
    ]


def answers_of(checkpoint: Checkpoint, questions: list[str]) -> list[str]:
    """`Checkpoint.answers`; the refusal of a question names shipped models that would take it."""
    try:
        return checkpoint.answers(questions)
    except RefusedQuestion as error:
        if not (names := shipped_for(error.question)):
            raise
        raise RefusedQuestion(f"{error}; shipped models that take it: {', '.join(names)}", error.question) from error


def shipped_for(question: str) -> list[str]:
    """The names of a few shipped models that take a question."""
    names = []
    for name in list_zoo():
        task = task_from_recipe(read_recipe(ZOO_FOLDER / name / RECIPE_FILE))
        with suppress(ValueError):
            part = task.part_of(question)
            part.check_question(bare(question))
            if part.prompt_fault(part.prompt(question)) is None:
                names.append(name)
    # A name that is longer than another is of a variant.
    return sorted(names, key=len)[:MOST_NAMES]


def load(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    task: str | None = None,
    trust_remote_code: bool = False,
) -> Solver:
    """Load a model to ask it questions.

        solver = longhand.load("addition")
        solver("653+49")                          # "702"
        solver(["653+49", "12345678+1"])          # ["702", "12345679"]

    `transformers.pipeline` is for raw text, such as `653+049=`, in the model's own format.

    Args:
        source: a shipped model's name (`python eval.py --list`), a folder, or a repository of the Hub; also of a language
            model of others with the rule `NumbersInText`, whole or as an adapter, which is asked in sentences.
        revision: branch, tag or commit on the Hub.
        task: the task of a checkpoint that names none, or one of several tasks.
        trust_remote_code: run the plugins that stand beside the checkpoint, if it needs any.

    Raises:
        TypeError: `source` is no text and no path.
        ValueError: `source` is none of these, is damaged, or is a model of no family of this package.
    """
    if not isinstance(source, str | os.PathLike) or not str(source):
        raise TypeError(f"a model is a name, a folder or a repository, such as 'addition', got {source!r}")
    place = locate(os.fspath(source))
    try:
        checkpoint = load_checkpoint(place, revision, task, trust_remote_code)
    except OtherWithStructure:
        from longhand.hub_cards.checkpoints.language_model import load_language_model

        return LanguageSolver(load_language_model(place, revision, trust_remote_code, task))
    if checkpoint.fault:
        warnings.warn(checkpoint.fault, stacklevel=2)
    say_unproved(checkpoint)
    return Solver(checkpoint)
