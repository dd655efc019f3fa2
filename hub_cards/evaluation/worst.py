"""The worst problem of a size: the one that a model gets wrong, or is nearest to getting wrong, that a search finds.

A score on drawn problems says little about the others. The search starts from drawn problems, keeps those whose lowest lead
is least, and changes them: a column is taken from another problem, or repeated in the columns after it, as carries ask for.
A problem is called wrong only if the model was asked: a decoder by greedy decoding, an encoder by its own passes.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longhand.data.certificates import LengthProver
from longhand.data.collator import IGNORED
from longhand.data.families import to_device
from longhand.data.metrics import generated_matches
from longhand.data.splits import make_generator
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint

KEPT = 16
"""Problems with the lowest leads that are changed."""

TRIED = 64
"""Problems that are tried at once, if their responses are short."""

TOKENS_AT_ONCE = 4096
"""Most tokens of all responses that are tried at once."""


@dataclass(frozen=True)
class Worst:
    """What a search found at one size.

    Attributes:
        tried: how many problems the model was given, or None if it was proved that none is wrong.
        lead: the lowest lead of a right token, by the logits behind a right beginning; below 0 if the problem is wrong.
        problem: the problem with this lead, as the model reads it.
        answer, right: what the model writes, and what is right; both None if no problem is wrong.
    """

    tried: int | None
    lead: float | None
    problem: str | None
    answer: str | None = None
    right: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What a row of results.jsonl holds."""
        return {
            "worst_tried": self.tried,
            "worst_lead": self.lead,
            "worst_problem": self.problem,
            "worst_answer": self.answer,
            "worst_right": self.right,
        }


def find_worst(checkpoint: Checkpoint, operands: tuple[int, ...], seconds: float, seed: int = 0) -> Worst:
    """Search for a problem of a size that the model gets wrong, until one is found or the time is over.

    Where one length can be proved (`LengthProver`), half of the time is for that.

    Args:
        checkpoint: of one task, see `Checkpoint.by_part`.
        operands: digits of every operand, as `check_lengths` returns them.
    """
    until = time.perf_counter() + seconds
    length = checkpoint.task.size(operands)[0]
    if operands == checkpoint.task.operand_lengths(length):
        try:
            found = LengthProver(checkpoint.model, checkpoint.task).verdict(length, seconds / 2)
        except ValueError:
            pass
        else:
            if found.verdict == "refuted":
                return Worst(found.cases, found.lead, found.problem, found.answer, found.right)
            if found.verdict == "proved":
                return Worst(None, found.lead, None)
    return _Search(checkpoint, operands, seed).run(until)


class _Search:
    """A search among the problems of one size."""

    def __init__(self, checkpoint: Checkpoint, operands: tuple[int, ...], seed: int):
        # A task of either family, with the vocabulary or the labels of that family.
        self.task: Any = checkpoint.task
        self.model: Any = checkpoint.model
        self.operands = operands
        self.family = self.task.family
        self.collator = self.family.collator(self.model.config)
        self.generator = make_generator("worst", self.task.name, *operands, seed)
        self.tried = 0

    def run(self, until: float) -> Worst:
        """Search until a time, or until a wrong problem is found."""
        digits, batch = self._written(self._draw(1))
        size = max(2, min(TRIED, TOKENS_AT_ONCE // max(1, int((batch["labels"] != IGNORED).sum()))))
        best, leads = digits[:0], np.zeros(0)
        while True:
            digits = self._draw(size) if not len(best) else self._changed(best, size)
            digits, batch = self._written(digits)
            if not len(digits):
                continue
            found = self._leads(batch)
            self.tried += len(digits)
            for row in np.argsort(found, kind="stable"):
                if found[row] > 0:
                    break
                if worst := self._ask(digits[row], float(found[row])):
                    return worst
            every, all_leads = np.concatenate([best, digits]), np.concatenate([leads, found])
            _, distinct = np.unique(every.reshape(len(every), -1), axis=0, return_index=True)
            order = distinct[np.argsort(all_leads[distinct], kind="stable")][:KEPT]
            best, leads = every[order], all_leads[order]
            if time.perf_counter() > until:
                lead = float(leads[0])
                return Worst(self.tried, lead if math.isfinite(lead) else None, self._text(best[0]))

    def _lengths(self, count: int) -> np.ndarray:
        return np.tile(np.array(self.operands), (count, 1))

    def _draw(self, count: int) -> np.ndarray:
        return self.task.draw_operands(self.generator, self._lengths(count))

    def _changed(self, digits: np.ndarray, count: int) -> np.ndarray:
        """Changes of problems: half take some columns of others, which are drawn or kept; half repeat a column."""
        generator, width = self.generator, digits.shape[2]
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

    def _written(self, digits: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """The problems that are legal, and their batch."""
        try:
            return digits, self._batch(digits)
        except ValueError:
            legal = np.array([self._is_legal(digits[row : row + 1]) for row in range(len(digits))])
            return digits[legal], self._batch(digits[legal]) if legal.any() else {}

    def _is_legal(self, digits: np.ndarray) -> bool:
        try:
            self._batch(digits)
        except ValueError:
            return False
        return True

    def _batch(self, digits: np.ndarray) -> dict[str, Any]:
        return self.collator(self.family.written(self.task, digits, self._lengths(len(digits))))

    def _leads(self, batch: dict[str, Any]) -> np.ndarray:
        """The lowest lead of each problem, (count,)."""
        with torch.inference_mode():
            inputs = {name: value for name, value in to_device(batch, self.model.device).items() if name != "labels"}
            logits = self.model(**inputs, **self.family.forward_options).logits.double().cpu()
        return lowest_leads(logits, batch["labels"], self.family.ahead).numpy()

    def _ask(self, digits: np.ndarray, lead: float) -> Worst | None:
        """Ask the model one problem."""
        batch = self._batch(digits[None])
        answer_length = self.task.answer_length(self.operands)
        with torch.inference_mode():
            if self.model.can_generate():
                matches = generated_matches(self.model, batch, answer_length)
            else:
                matches = self.family.forward_matches(self.model, batch, answer_length)
        if matches[0, 0]:
            return None
        answer, right = self._answers(batch)
        return Worst(self.tried, lead, self._text(digits), answer, right)

    def _answers(self, batch: dict[str, Any]) -> tuple[str, str]:
        """What the model writes, and what is right, as text."""
        labels = batch["labels"][0]
        supervised = labels != IGNORED
        with torch.inference_mode():
            if self.model.can_generate():
                names, query = self.task.tokens, batch["input_ids"][:, : int(supervised.int().argmax())]
                given = query.to(self.model.device)
                said = self.model.generate(given, attention_mask=torch.ones_like(given), do_sample=False)
                written = said[0, query.shape[1] :].tolist()
            else:
                names = self.task.labels
                inputs = {name: value for name, value in to_device(batch, self.model.device).items() if name != "labels"}
                written = self.model(**inputs).logits[0].argmax(-1).cpu()[supervised].tolist()
        answer, right = ("".join(names[token] for token in tokens) for tokens in (written, labels[supervised].tolist()))
        return answer, right

    def _text(self, digits: np.ndarray) -> str:
        """A problem as the model reads it."""
        batch = self._batch(digits[None])
        tokens = batch["input_ids"][0].tolist()
        if self.model.can_generate():
            tokens = tokens[1 : int((batch["labels"][0] != IGNORED).int().argmax())]
        return "".join(self.task.tokens[token] for token in tokens)


def lowest_leads(logits: Tensor, labels: Tensor, ahead: int) -> Tensor:
    """The lowest lead of a right token in each row, (count,); logits and labels are as for `metrics.right_tokens`."""
    labels = labels[:, labels.shape[1] - logits.shape[1] + ahead :]
    logits, supervised = logits[:, : logits.shape[1] - ahead], labels != IGNORED
    right = labels.clamp(min=0).unsqueeze(-1).long()
    others = logits.scatter(-1, right, -math.inf).amax(-1)
    leads = logits.gather(-1, right).squeeze(-1) - others
    return torch.where(leads.isnan(), -math.inf, leads).masked_fill(~supervised, math.inf).amin(1)
