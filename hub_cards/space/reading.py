"""What a model does with one question: its tokens and their ids, its answer, and what each token of the answer sees."""

import copy
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from longhand.data import Task
from longhand.hub_cards.checkpoints.files import Checkpoint
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.evaluation.measure import check_lengths
from longhand.hub_cards.evaluation.passes import passes_of
from longhand.modeling.coupling import plan_position_ids
from longhand.modeling.parallel_decoding import parallel_greedy
from longhand.modeling.vocabulary import ENCODER_TOKENS, STATES

MOST_TOKENS = 30_000
"""Tokens of a question and its response together: seconds on two cores."""

MOST_DRAWN = 500
"""Tokens of an answer that is drawn."""

MOST_LABELLED = 120
"""Tokens of a question whose labels are drawn after each pass of an encoder."""

MOST_SEEN = 16
"""Tokens that a drawing says a token sees, those with the most attention. A window leaves fewer."""

MOST_TIMED = 101_000
"""Tokens of a response that is timed: sums of numbers of 100,000 digits have so many, and take seconds on two cores."""


@dataclass(frozen=True)
class Sight:
    """What a model looked at when it wrote a token.

    Attributes:
        written: place of the token.
        query: place of the token before it, which does the looking.
        keys: places of the tokens that it sees.
        weights: attention in percent, a row for each head of each layer, a column for each of `keys`.
        hidden: how many more tokens it sees, with less attention.
    """

    written: int
    query: int
    keys: list[int]
    weights: list[list[int]]
    hidden: int


@dataclass(frozen=True)
class Reading:
    """A question and what a model made of it.

    Attributes:
        tokens: of query and response, as text; empty if they are not drawn.
        ids: (levels, tokens) position ids, 0 for none, at the levels that the problem has ids at.
        query_length: tokens of the query.
        sights: one for each token of the response.
        num_layers: layers that the rows of a sight's weights are divided among.
        passes: of an encoder that settles: the labels of all tokens after each pass, as text, empty where there is none.
        note: why there is no drawing; empty if there is one.
    """

    question: str
    answer: str
    task: Task
    tokens: tuple[str, ...] = ()
    ids: tuple[tuple[int, ...], ...] = ()
    query_length: int = 0
    sights: tuple[Sight, ...] = ()
    num_layers: int = 1
    passes: tuple[tuple[str, ...], ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Timing:
    """One answer to a random problem of a size.

    Attributes:
        digits: size of the problem.
        tokens: of the response.
        is_right: whether the response is right to the last token.
    """

    digits: int
    tokens: int
    seconds: float
    is_right: bool


class Exhibit:
    """A checkpoint on the page.

    Attributes:
        certificate: what `certificate.json` in its folder says; None if there is none or it is not of these files.
        fault: what is wrong with that file; empty if nothing is.
    """

    def __init__(self, source: str):
        self.checkpoint: Checkpoint = load_checkpoint(source)
        self.name = self.checkpoint.name
        self.task: Any = self.checkpoint.task
        self.model: Any = self.checkpoint.model
        self.certificate, self.fault = self.checkpoint.certificate, self.checkpoint.fault
        # Only this form of attention returns its weights. What a wrong model wrote need not be of the format.
        self.attentive: Any = copy.deepcopy(self.model)
        self.attentive.set_attn_implementation("eager")
        self.attentive.config.prompt_format = None

    @property
    def is_certified(self) -> bool:
        return bool(self.certificate and self.certificate["certified"])

    def accepts(self, question: str) -> bool:
        """Whether a question is of the task's form."""
        try:
            self.task.prompt(question)
        except ValueError:
            return False
        return True

    def read(self, question: str) -> Reading:
        """Answer a question and look at how.

        Raises:
            ValueError: the question is not of the task's form, or too long for the page or for the model.
        """
        if len(question) > MOST_TOKENS:
            raise ValueError(f"the question has {len(question):,} characters, and this page takes {MOST_TOKENS:,} at most")
        task = self.task.part_of(question)
        prompt = self.checkpoint.tokenizer(task.prompt(question), return_tensors="pt")["input_ids"]
        if not self.model.can_generate():
            return self._read_labels(question, task, prompt)
        tokens = prompt.shape[1] + self.model.config.rule.plan(prompt, 1).response_length
        if tokens > MOST_TOKENS:
            raise ValueError(
                f"question and response would take {tokens:,} tokens, and this page takes {MOST_TOKENS:,} at most: "
                "python eval.py --ask takes longer ones"
            )
        response = task.family.respond(task, self.model, self.checkpoint.tokenizer, question)
        answer = task.show_answer(question, task.reader.read(response))
        if tokens > MOST_DRAWN:
            return Reading(
                question, answer, task, note=f"Drawings have {MOST_DRAWN} tokens at most, this one would have {tokens:,}."
            )
        # The tokenizer leaves out the end token, which the model wrote too.
        written = self.checkpoint.tokenizer(response, return_tensors="pt")["input_ids"][:, 1:]
        sequence = torch.cat([prompt, written, torch.tensor([[task.end_token]])], dim=1)[:, :tokens]
        sights = self._sights(sequence, prompt.shape[1])
        if sights is None:
            return Reading(question, answer, task, note="The response is not all text, so it is not drawn.")
        ids = plan_position_ids(self.model.config.rule, prompt, sequence.shape[1])[0]
        # A rule that joins several gives each kind of problem levels of its own.
        used = ids[ids.any(1)]
        return Reading(
            question,
            answer,
            task,
            tuple(self.model.config.tokens[token] for token in sequence[0].tolist()),
            tuple(map(tuple, used.tolist())),
            prompt.shape[1],
            tuple(sights),
            self.model.config.num_hidden_layers,
        )

    def _read_labels(self, question: str, task: Any, prompt: torch.Tensor) -> Reading:
        """Answer by an encoder; of one that settles, with the labels after each pass."""
        answer = self.checkpoint.answer(question)
        if not self.model.config.label_states:
            return Reading(question, answer, task, note="This model labels all tokens at once: no response is drawn.")
        if prompt.shape[1] > MOST_LABELLED:
            note = f"Passes are drawn for {MOST_LABELLED} tokens at most, these would be {prompt.shape[1]:,}."
            return Reading(question, answer, task, note=note)
        passes = passes_of(self.model, prompt.to(self.model.device))
        labels = tuple(tuple(STATES[label] if label >= 0 else "" for label in states[0].tolist()) for states in passes)
        return Reading(question, answer, task, tuple(ENCODER_TOKENS[token] for token in prompt[0].tolist()), passes=labels)

    def _sights(self, sequence: torch.Tensor, query_length: int) -> list[Sight] | None:
        """What each token after the query was written from; None if the model does not write these tokens.

        Args:
            sequence: (1, tokens).
        """
        count = sequence.shape[1] - query_length
        with torch.inference_mode():
            inputs = {"input_ids": sequence.to(self.model.device), "logits_to_keep": count + 1}
            outputs = self.attentive(**inputs, use_cache=False, output_attentions=True)
        if not torch.equal(outputs.logits[0, :-1].argmax(-1).cpu(), sequence[0, query_length:]):
            return None
        weights = torch.cat([layer[0, :, -count - 1 : -1] for layer in outputs.attentions]).float().cpu().numpy()
        sights = []
        for row in range(count):
            strongest = weights[:, row].max(axis=0)
            seen = np.flatnonzero(strongest)
            keys = np.sort(seen[np.argsort(-strongest[seen], kind="stable")[:MOST_SEEN]])
            percent = np.rint(100 * weights[:, row][:, keys]).astype(int).tolist()
            written = query_length + row
            sights.append(Sight(written, written - 1, keys.tolist(), percent, len(seen) - len(keys)))
        return sights

    def time_problem(self, digits: int, part: str) -> Timing:
        """Answer a random problem of this many digits in parallel, and take the time.

        Args:
            part: a name of `sizes`.

        Raises:
            ValueError: the model writes no response, or the size is not legal.
        """
        if not self.model.can_generate():
            raise ValueError(f"a model of the task {self.task.name!r} writes no response, so there is nothing to decode")
        if not 1 <= digits <= self.sizes[part]:
            raise ValueError(f"digits must be 1 to {self.sizes[part]:,} here, got {digits:,}")
        task = self._part(part)
        lengths = np.array([task.operand_lengths(digits)])
        examples = task.examples(np.random.default_rng(), lengths, "test")
        tokens, query = torch.from_numpy(examples.tokens.astype(np.int64)), int(examples.query_lengths[0])
        prompt = tokens[:, :query].to(self.model.device)
        began = time.perf_counter()
        with torch.inference_mode():
            options = {"do_sample": False, "custom_generate": parallel_greedy}
            output = self.model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
        seconds = time.perf_counter() - began
        return Timing(digits, tokens.shape[1] - query, seconds, torch.equal(output.cpu(), tokens))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """By name of each part of the task: the largest size that is timed.

        It is a round number up to 100,000 that the model takes, and whose responses have at most `MOST_TIMED` tokens.
        """
        return {part.name: self._largest(part) for part in self.task.parts}

    def _part(self, name: str) -> Any:
        return next(part for part in self.task.parts if part.name == name)

    def _largest(self, task: Any) -> int:
        largest = 10
        for size in (30, 100, 200, 300, 1000, 3000, 10_000, 30_000, 100_000):
            lengths = task.operand_lengths(min(size, task.most_digits))
            examples = task.examples(np.random.default_rng(0), np.array([lengths]), "train")
            if size > task.most_digits or not self.model.can_generate():
                break
            if examples.tokens.shape[1] - examples.query_lengths[0] > MOST_TIMED:
                break
            try:
                check_lengths(self.model, task, [lengths])
            except ValueError:
                break
            largest = size
        return largest
