"""Language models of others: our problems as a person writes them, and the worst one that a search finds.

The search is that of `worst.py`. A problem is called wrong only if the lenient reading (`reading.py`) finds no right answer
in what the model wrote by greedy decoding.
"""

# Used by: measure.py, eval.py, hub_cards. Changed freely.

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from longhand.data.collator import IGNORED
from longhand.data.columns import example_columns
from longhand.data.formatting import Batch
from longhand.data.proofs.worst import ProblemSearch, lowest_leads
from longhand.data.splits import make_generator
from longhand.data.tasks.column_task import ColumnTask
from longhand.data.tasks.reader import write_questions
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.load import evaluation_device
from longhand.hub_cards.commands import one_line
from longhand.hub_cards.evaluation.reading import is_lenient_match

SPARE_TOKENS = 64
"""Tokens that a model may write beyond one for each character of the longest answer: no tokenizer cuts digits further, and a
model may begin with a sentence."""

TEXTS_AT_ONCE = 16
"""Problems that a language model is given at once."""


def problem_texts(
    task: Task, digits: np.ndarray, lengths: np.ndarray, in_format: bool = False
) -> tuple[list[str], list[str]]:
    """Prompts such as `653+49=` and answers such as `702` of problems.

    Numbers have no zeros in front, no hints and no padding, whatever the task's format. A task whose questions are not
    numbers gives its own prompts, the column `prompt` of its datasets. Answers are the column `answer`.

    Args:
        digits, lengths: as `Task.draw` returns and takes them.
        in_format: give them in the task's format, the columns `prompt` and `completion`, as its models read and write them.

    Raises:
        ValueError: a problem is not legal, or the format ends below these lengths.
    """
    columns = example_columns(task, digits, lengths)
    if in_format:
        return columns["prompt"].to_pylist(), columns["completion"].to_pylist()
    sign = task.sign
    if not sign or isinstance(task, ColumnTask):
        return columns["prompt"].to_pylist(), columns["answer"].to_pylist()
    return [f"{question}=" for question in write_questions(digits, sign)], columns["answer"].to_pylist()


def load_language_model(
    source: str, revision: str | None, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model and its tokenizer by transformers, onto the first GPU if there is one.

    Raises:
        ValueError: one of them is missing or cannot be loaded; the message says which.
    """
    loaded = []
    for kind, loader in (("tokenizer", AutoTokenizer), ("causal language model", AutoModelForCausalLM)):
        try:
            loaded.append(loader.from_pretrained(source, revision=revision, trust_remote_code=trust_remote_code))
        except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
            missing = f"{source} has no {kind} that transformers loads"
            raise ValueError(f"--worst asks a model by its text: {missing}: {one_line(error)}") from error
    tokenizer, model = loaded
    # In a folder without files of a tokenizer, transformers makes one that knows no character.
    tokens = [tokenizer(character, add_special_tokens=False)["input_ids"] for character in "0123456789"]
    if not all(tokens) or max(chain.from_iterable(tokens)) >= model.get_input_embeddings().num_embeddings:
        raise ValueError(f"--worst asks a model by its text: {source} has no tokenizer that reads digits into its tokens")
    return model.eval().to(evaluation_device()), cast(PreTrainedTokenizerBase, tokenizer)


class TextSearch(ProblemSearch):
    """A search among the problems of one size for a language model of others."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        task: Task,
        operands: tuple[int, ...],
        generator: np.random.Generator,
    ):
        """
        Raises:
            ValueError: the model cannot take so many tokens.
        """
        self.model, self.tokenizer = model, tokenizer
        super().__init__(task, operands, generator)

    def _count_at_once(self, digits: np.ndarray) -> int:
        prompts, answers = problem_texts(self.task, digits, self._lengths(1))
        needed = len(self.tokenizer(prompts[0])["input_ids"]) + len(answers[0]) + SPARE_TOKENS
        most = getattr(self.model.config, "max_position_embeddings", None)
        if most is not None and needed > most:
            raise ValueError(f"a problem of the size {self.operands} takes up to {needed} tokens, the model takes {most}")
        return TEXTS_AT_ONCE

    def _batch(self, digits: np.ndarray) -> Batch:
        """Prompts with their right answers, padded on the right, where the answers alone are labelled."""
        rows, labels = [], []
        for prompt, answer in zip(*problem_texts(self.task, digits, self._lengths(len(digits))), strict=True):
            given = self.tokenizer(prompt)["input_ids"]
            right = self.tokenizer(answer, add_special_tokens=False)["input_ids"]
            rows.append(torch.tensor([*given, *right]))
            labels.append(torch.tensor([IGNORED] * len(given) + right))
        present = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        return {
            "input_ids": pad_sequence(rows, batch_first=True),
            "attention_mask": present,
            "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
        }

    def _leads(self, batch: Batch) -> np.ndarray:
        input_ids, present = batch["input_ids"].to(self.model.device), batch["attention_mask"].to(self.model.device)
        with torch.no_grad():
            logits = self.model(input_ids=input_ids, attention_mask=present).logits.double().cpu()
        return lowest_leads(logits, batch["labels"], ahead=1).numpy()

    def ask(self, digits: np.ndarray) -> tuple[str, str] | None:
        prompts, answers = problem_texts(self.task, digits[None], self._lengths(1))
        given = self.tokenizer(prompts[0], return_tensors="pt").to(self.model.device)
        pad = self.tokenizer.pad_token_id
        with torch.no_grad():
            said = cast(Any, self.model).generate(
                input_ids=given["input_ids"],
                attention_mask=given["attention_mask"],
                do_sample=False,
                num_beams=1,
                # What the model's own generation_config may change in greedy decoding.
                repetition_penalty=1.0,
                no_repeat_ngram_size=0,
                max_new_tokens=len(answers[0]) + SPARE_TOKENS,
                pad_token_id=0 if pad is None else pad,
            )
        written = cast(str, self.tokenizer.decode(said[0, given["input_ids"].shape[1] :], skip_special_tokens=True))
        return None if is_lenient_match(written, answers[0]) else (written, answers[0])

    def text(self, digits: np.ndarray) -> str:
        return problem_texts(self.task, digits[None], self._lengths(1))[0][0]


def worst_texts(source: str, task: Task, lengths: Iterable[int], seconds: float, seed: int, **how: Any) -> Iterator[str]:
    """Yield a line for each size: the worst problem of a language model of others, what it wrote, and what is right.

    Args:
        source: a folder or a Hub id.
        seconds: for each size.
        how: see `load_language_model`.

    Raises:
        ValueError: the model or its tokenizer cannot be loaded, or a size does not fit it.
    """
    model, tokenizer = load_language_model(source, **how)
    for part in task.for_evaluation.parts:
        for length in lengths:
            operands = part.operand_lengths(length)
            search = TextSearch(model, tokenizer, part, operands, make_generator("worst", part.name, *operands, seed))
            found = search.find(time.perf_counter() + seconds)
            lead = "" if found.lead is None else f", lowest lead {found.lead:.2f}"
            asked = f"{part.name}, {length}: {{}}, in {search.tried:,} tried{lead}"
            if found.answer is None:
                yield asked.format("none found") + f", of {found.problem}"
            else:
                yield asked.format(f"wrong: {found.problem} answered {found.answer!r}, right is {found.right}")
