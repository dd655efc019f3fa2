"""Tasks of the decoder: a query, then a response that is written token by token, with a coupling rule that reads both."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from longhand.data.certificates.neighbourhoods import CoveringNeighbourhoods, CoveringProblems
from longhand.data.collator import CouplingCollator
from longhand.data.formatting import Examples
from longhand.data.metrics import response_matches, response_tokens
from longhand.data.tasks.task import Task
from longhand.data.tokenization import build_tokenizer, check_characters
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.coupling import ANY_TASK
from longhand.modeling.pair_maps import Window
from longhand.modeling.vocabulary import ALL_TOKENS, BOS, SEPARATE_EOS, TOKENS


@dataclass(frozen=True)
class DecoderTask(Task):
    """Base of the tasks that a CoupledGPT learns.

    Attributes:
        vocab_size: tokens of a model's vocabulary, the first ones of `vocabulary.ALL_TOKENS`.
    """

    model_class = CoupledGPTForCausalLM
    auto_class = AutoModelForCausalLM
    logits_matches = staticmethod(response_matches)
    right_tokens = staticmethod(response_tokens)
    forward_options: ClassVar[dict[str, Any]] = {"use_cache": False}
    tokens = ALL_TOKENS
    vocab_size: ClassVar[int] = len(TOKENS)

    separate_eos: bool = field(default=False, metadata={"help": "end sequences with a token of their own, not `$`"})

    @property
    @abstractmethod
    def coupling(self) -> str:
        """Name of the coupling rule for this format."""

    @property
    def couplings(self) -> tuple[str, ...]:
        """Names of all coupling rules that read this format, `coupling` first; those of `ANY_TASK` read every format."""
        return (self.coupling,)

    @property
    def writes_whole_response(self) -> bool:
        """Whether a model learns every token of its response; else it must be given some and cannot decode on its own."""
        return True

    @property
    def end_token(self) -> int:
        return SEPARATE_EOS if self.separate_eos else BOS

    @property
    def config_options(self):
        return {"vocab_size": self.vocab_size, "eos_token_id": self.end_token}

    def check_config(self, config):
        if config.coupling not in (*self.couplings, *ANY_TASK):
            raise ValueError(
                f"was made for the coupling rule {config.coupling!r}, "
                f"but its recipe's format has {' or '.join(map(repr, self.couplings))}"
            )
        if config.vocab_size < self.vocab_size:
            raise ValueError(
                f"has a vocabulary of {config.vocab_size} tokens, but the task {self.name!r} needs {self.vocab_size}"
            )

    def check_inputs(self, model, batch):
        model.model.position_encoding.check(batch["position_ids"])

    @property
    def answers_questions(self):
        return self.writes_whole_response

    def check_generation(self):
        if not self.writes_whole_response:
            raise ValueError(
                f"a model of the task {self.name!r} with tokens in the response that are not supervised cannot write it: "
                "there is no answer to a question and no --decode generate, choose --decode teacher_forced"
            )

    def collator(self, config):
        return CouplingCollator.for_evaluation(config)

    def tokenizer(self):
        return build_tokenizer(self.end_token, self.vocab_size)

    def answer(self, model, tokenizer, question):
        """By greedy decoding."""
        self.check_generation()
        check_characters("".join(question.split()), model.config.vocab_size)
        prompt = self.prompt(question)
        inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
        with torch.inference_mode():
            output = model.generate(**inputs, do_sample=False)
        response = output[0, inputs["input_ids"].shape[1] :]
        return self.read_answer(tokenizer.decode(response, skip_special_tokens=True))

    @abstractmethod
    def format(self, digits: np.ndarray, lengths: np.ndarray) -> Examples:
        """Writes problems, (count, operands, width) digits with the ones first, and their answers as tokens."""

    def examples(self, generator, lengths, split):
        return self.format(self.draw(generator, lengths, split), lengths)

    def drawn_lengths(self, digits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Lengths (count, operands) with which `draw` would draw these operands; they differ where a format pads."""
        return lengths

    def covering_problems(self, window: Window, layers: int) -> CoveringProblems:
        """Problems that hold every neighbourhood, and with it every right next token, that the format allows.

        A neighbourhood is what a response token sees after a correct prefix: within the window (see `pair_maps`) directly,
        and so on through every layer.

        Raises:
            ValueError: they are not known, or no model of such a window can be right.
        """
        raise ValueError(f"the neighbourhoods of the task {self.name!r} have not been worked out")

    def covering_neighbourhoods(self, window: Window, layers: int) -> CoveringNeighbourhoods | None:
        """In place of covering problems, for tasks where neighbourhoods are easier to list than problems that hold them.

        Raises:
            ValueError: they are not known for this window.
        """
        return None

    def vary(self, generator: np.random.Generator, digits: np.ndarray, max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """Problems of one group that hold the neighbourhoods of these covering problems, each in its place.

        Args:
            digits: (count, operands, width), one group.
            max_length: longest operand of the variations.

        Returns:
            Digits and lengths (count, operands).
        """
        return digits, np.full(digits.shape[:2], digits.shape[2])
