"""The worst problem of a size: the one that a model gets wrong, or is nearest to getting wrong, that a search finds.

A score on drawn problems says little about the others. The search starts from drawn problems, keeps those whose lowest lead
is least, and changes them: a column is taken from another problem, or repeated in the columns after it, as carries ask for.
What it reports the model was asked: a decoder by greedy decoding, an encoder by its own passes.
"""

# Used by: hub_cards/checkpoints, hub_cards/evaluation, hub_cards/training. Changed freely.

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from longhand.data.batches import evaluation_draw
from longhand.data.collator import IGNORED
from longhand.data.families import greedy_options, to_device
from longhand.data.formatting import Batch
from longhand.data.splits import SPLITS, make_generator
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.data.tasks.task import Task
from longhand.modeling import CoupledGPTForCausalLM

KEPT = 16
"""Problems with the lowest leads that are changed."""

TRIED = 64
"""Problems that are tried at once, if their responses are short."""

TOKENS_AT_ONCE = 4096
"""Most tokens of all responses that are tried at once."""


@dataclass(frozen=True)
class Worst:
    """What a search, or a proof, found at one size.

    Attributes:
        verdict: "proved" if no problem is wrong, "refuted" if one is, and "searched" if none was found.
        tried: how many problems the model was given, or, of a proof, how many cases were bounded.
        lead: the lowest lead of a right token, by the logits behind a right beginning; None if it is not known.
        problem: the problem with this lead, as the model reads it; None if it was proved that no problem is wrong.
        answer, right: what the model writes, and what is right; both None unless a problem is wrong.
    """

    verdict: Literal["searched", "proved", "refuted"]
    tried: int
    lead: float | None
    problem: str | None
    answer: str | None = None
    right: str | None = None

    @property
    def fields(self) -> dict[str, object]:
        """What a row of results.jsonl holds."""
        return {
            "worst_verdict": self.verdict,
            "worst_tried": self.tried,
            "worst_lead": self.lead,
            "worst_problem": self.problem,
            "worst_answer": self.answer,
            "worst_right": self.right,
        }


def find_wrong(
    model: PreTrainedModel, task: Task, operands: tuple[int, ...], seconds: float, num_samples: int
) -> Worst | None:
    """Ask a model drawn problems of a size, and search for a wrong one for some seconds more; None if none is found.

    Args:
        operands: digits of every operand, as `check_lengths` returns them.
    """
    return search_wrong(model, task, operands, time.perf_counter() + seconds, 0, "test", num_samples)[1]


def search_wrong(
    model: PreTrainedModel,
    task: Task,
    operands: tuple[int, ...],
    until: float,
    seed: int,
    split: str,
    num_samples: int,
) -> tuple["WorstSearch", Worst | None]:
    """A search from the problems of an evaluation on, until one is wrong or a time is over; and the problem if one is."""
    search = WorstSearch(model, task, operands, make_generator("worst", task.name, *operands, seed))
    generator, lengths = evaluation_draw(task, operands, num_samples, seed, split)
    drawn = task.draw(generator, lengths, split)
    for first in range(0, num_samples, search.at_once):
        if wrong := search.ask_wrong(*search.go_on(drawn[first : first + search.at_once])):
            return search, wrong
    return search, search.find_wrong(until)


class ProblemSearch(ABC):
    """A search among the problems of one size. The same generator and weights find the same problems.

    Attributes:
        tried: how many problems were tried.
        digits: (kept at most, operands, width) the problems with the lowest leads, the lowest first.
        leads: (kept at most,) the lowest lead of a right token in each.
        at_once: how many problems are tried at once.
    """

    def __init__(
        self,
        task: Task,
        operands: tuple[int, ...],
        generator: np.random.Generator,
        kept: int = KEPT,
        split: str | None = None,
    ):
        """
        Args:
            operands: digits of every operand.
            kept: how many problems are kept, `KEPT` or more; `KEPT` of them are changed.
            split: the split that all problems belong to; None for any.
        """
        self.task, self.operands, self.generator, self.kept, self.split = task, operands, generator, kept, split
        self.tried = 0
        drawn = self._draw(1)
        self.at_once = self._count_at_once(drawn)
        self.digits, self.leads = drawn[:0], np.zeros(0)

    @abstractmethod
    def _count_at_once(self, digits: np.ndarray) -> int:
        """How many problems are tried at once, from one of them (1, operands, width)."""

    @abstractmethod
    def _batch(self, digits: np.ndarray) -> Batch:
        """What the model is given for problems (count, operands, width).

        Raises:
            ValueError: a problem is not legal.
        """

    @abstractmethod
    def _leads(self, batch: Batch) -> np.ndarray:
        """The lowest lead of a right token of each problem, (count,)."""

    @abstractmethod
    def ask(self, digits: np.ndarray) -> tuple[str, str] | None:
        """Ask the model one problem (operands, width); return what it writes and what is right, None if it is right."""

    @abstractmethod
    def text(self, digits: np.ndarray) -> str:
        """A problem (operands, width) as the model reads it."""

    def find_wrong(self, until: float) -> Worst | None:
        """Go on until a problem is wrong or a time is over; what was begun then is finished."""
        while time.perf_counter() < until or not len(self.digits):
            if wrong := self.ask_wrong(*self.go_on()):
                return wrong
        return None

    def find(self, until: float) -> Worst:
        """As `find_wrong`; if no problem is wrong, the one with the lowest lead."""
        if wrong := self.find_wrong(until):
            return wrong
        # The problem nearest to being wrong is asked too, though its lead says that it is right.
        return self._found(self.digits[0], self.leads[0], self.ask(self.digits[0]))

    def ask_wrong(self, digits: np.ndarray, leads: np.ndarray) -> Worst | None:
        """Ask the model the problems that seem to be wrong, the lowest leads first; return the first that is wrong."""
        for problem, lead in zip(digits[leads <= 0], leads[leads <= 0], strict=True):
            if said := self.ask(problem):
                return self._found(problem, lead, said)
        return None

    def _found(self, digits: np.ndarray, lead: float, said: tuple[str, str] | None) -> Worst:
        known = float(lead) if math.isfinite(lead) else None
        if said is None:
            return Worst("searched", self.tried, known, self.text(digits))
        return Worst("refuted", self.tried, known, self.text(digits), *said)

    def go_on(self, digits: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Try some problems more: these, or drawn ones at first, then changes of those that are kept.

        Returns:
            The problems (count, operands, width) and their lowest leads (count,), the lowest first.
        """
        if digits is None:
            digits = self._changed(self.digits[:KEPT]) if len(self.digits) else self._draw(self.at_once)
        digits, batch = self._legal(digits)
        if not len(digits):
            return digits, np.zeros(0)
        leads = self._leads(batch)
        self.tried += len(digits)
        order = np.argsort(leads, kind="stable")
        digits, leads = digits[order], leads[order]
        every, every_lead = np.concatenate([self.digits, digits]), np.concatenate([self.leads, leads])
        _, distinct = np.unique(every.reshape(len(every), -1), axis=0, return_index=True)
        best = distinct[np.argsort(every_lead[distinct], kind="stable")][: self.kept]
        self.digits, self.leads = every[best], every_lead[best]
        return digits, leads

    def _lengths(self, count: int) -> np.ndarray:
        return np.tile(np.array(self.operands), (count, 1))

    def _draw(self, count: int) -> np.ndarray:
        if self.split is None:
            return self.task.draw_operands(self.generator, self._lengths(count))
        return self.task.draw(self.generator, self._lengths(count), self.split)

    def _changed(self, digits: np.ndarray) -> np.ndarray:
        """Changes of problems: half take some columns of others, which are drawn or kept; half repeat a column."""
        generator, width, count = self.generator, digits.shape[2], self.at_once
        changed = digits[generator.integers(0, len(digits), count)].copy()
        others = self._draw(count)
        kept = generator.random(count) < 0.5
        others[kept] = digits[generator.integers(0, len(digits), int(kept.sum()))]
        shortest = min(self.operands)
        for row in range(count):
            first, last = np.sort(generator.integers(0, width, 2))
            if generator.random() < 0.5 and shortest > 1:
                # The top digits stay, which may not be 0.
                first, last = np.sort(generator.integers(0, shortest - 1, 2))
                changed[row, :, first : last + 1] = changed[row, :, first : first + 1]
            elif generator.random() < 0.5:
                changed[row, :, first : last + 1] = others[row, :, first : last + 1]
            else:
                operand = generator.integers(0, changed.shape[1])
                changed[row, operand, first] = others[row, operand, first]
        return changed

    def _legal(self, digits: np.ndarray) -> tuple[np.ndarray, Batch]:
        """The problems that are questions of the task and belong to the split, and their batch."""
        digits = digits[self.task.are_questions(digits, self._lengths(len(digits)))]
        if self.split is not None:
            split = self.task.split_of(digits, self._lengths(len(digits)))
            digits = digits[(split < 0) | (split == SPLITS.index(self.split))]
        try:
            return digits, self._batch(digits) if len(digits) else {}
        except ValueError:
            legal = np.array([self._is_legal(digits[row : row + 1]) for row in range(len(digits))])
            return digits[legal], self._batch(digits[legal]) if legal.any() else {}

    def _is_legal(self, digits: np.ndarray) -> bool:
        try:
            self._batch(digits)
        except ValueError:
            return False
        return True


class WorstSearch(ProblemSearch):
    """A search among the problems of one size for a model of this package."""

    def __init__(
        self,
        model: PreTrainedModel,
        task: Task,
        operands: tuple[int, ...],
        generator: np.random.Generator,
        kept: int = KEPT,
        split: str | None = None,
    ):
        self.model, self.family = model, task.family
        self.own_task = cast(DecoderTask | EncoderTask, task)
        self.collator = self.family.collator(model.config)
        super().__init__(task, operands, generator, kept, split)

    def _count_at_once(self, digits: np.ndarray) -> int:
        response = int((self._batch(digits)["labels"] != IGNORED).sum())
        return max(2, min(TRIED, TOKENS_AT_ONCE // max(1, response)))

    def _batch(self, digits: np.ndarray) -> Batch:
        return self.collator(self.own_task.written(digits, self._lengths(len(digits))))

    def _logits(self, batch: Batch) -> Tensor:
        inputs = {name: value for name, value in to_device(batch, self.model.device).items() if name != "labels"}
        with torch.no_grad():
            return self.model(**inputs, **self.family.forward_options).logits.cpu()

    def _leads(self, batch: Batch) -> np.ndarray:
        return lowest_leads(self._logits(batch).double(), batch["labels"], self.family.ahead).numpy()

    def ask(self, digits: np.ndarray) -> tuple[str, str] | None:
        """As `ProblemSearch.ask`. A model that is given a part of the response (`Task.answers_questions`) is asked by a
        forward pass, as an encoder is.
        """
        batch = self._batch(digits[None])
        labels = batch["labels"][0]
        supervised = labels != IGNORED
        right = labels[supervised].tolist()
        if self.family.ahead and self.task.answers_questions:
            written = self._generate(batch["input_ids"][:, : int(supervised.int().argmax())])
        else:
            logits = self._logits(batch)[0]
            kept = supervised[len(supervised) - len(logits) + self.family.ahead :]
            written = logits[: len(logits) - self.family.ahead].argmax(-1)[kept].tolist()
        if written == right:
            return None
        names = self.own_task.written_names
        return _spelled(written, names), _spelled(right, names)

    def _generate(self, query: Tensor) -> list[int]:
        """What the model writes to a query (1, tokens) by greedy decoding."""
        model = cast(CoupledGPTForCausalLM, self.model)
        given = query.to(model.device)
        with torch.no_grad():
            written = model.generate(given, attention_mask=torch.ones_like(given), **greedy_options(model))
        return written[0, query.shape[1] :].tolist()

    def text(self, digits: np.ndarray) -> str:
        """As `ProblemSearch.text`, without the token at the beginning."""
        batch = self._batch(digits[None])
        query = batch["input_ids"][0]
        if self.family.ahead:
            query = query[1 : int((batch["labels"][0] != IGNORED).int().argmax())]
        return _spelled(query.tolist(), self.own_task.tokens)


def _spelled(tokens: list[int], names: tuple[str, ...]) -> str:
    """Tokens as text. A model may have more tokens than the task has names."""
    return "".join(names[token] if token < len(names) else f"[{token}]" for token in tokens)


def lowest_leads(logits: Tensor, labels: Tensor, ahead: int) -> Tensor:
    """The lowest lead of a right token in each row, (count,); logits and labels are as for `metrics.right_tokens`."""
    labels = labels[:, labels.shape[1] - logits.shape[1] + ahead :]
    logits, supervised = logits[:, : logits.shape[1] - ahead], labels != IGNORED
    right = labels.clamp(min=0).unsqueeze(-1).long()
    others = logits.scatter(-1, right, -math.inf).amax(-1)
    leads = logits.gather(-1, right).squeeze(-1) - others
    return torch.where(leads.isnan(), -math.inf, leads).masked_fill(~supervised, math.inf).amin(1)
