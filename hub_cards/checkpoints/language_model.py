"""A language model that answers questions about numbers in sentences: `longhand.load(folder)("What is 653 + 49?")`.

The folder or repository holds what `save_structure` writes, with the rule `NumbersInText`, and a tokenizer; and either the
whole model (`save_pretrained`), or an adapter of PEFT, whose base model is found by the name that the adapter gives, or in a
folder of this name within.
"""

# Used by: solver.py, eval.py. Changed freely.

import re
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file, logging

from longhand.hub_cards.checkpoints.checkpoint import ADAPTER_CONFIG, checkpoint_name
from longhand.hub_cards.checkpoints.load import evaluation_device
from longhand.hub_cards.commands import read_object
from longhand.modeling.numbers_in_text import NumbersInText
from longhand.modeling.structured_models import with_structure

logger = logging.get_logger(__name__)

ANSWERED_AT_ONCE = 32
"""Questions of a batch."""

SPARE = 8
"""Tokens of an answer beside its digits and their copy."""

NOT_WHOLE = re.compile(
    r"""
    (?<![0-9.,])0[0-9]+                                                        # zeros at the front
    | (?<![0-9])[0-9]*\.[0-9]+                                                 # a point
    | [0-9]+(?:[,_'\N{RIGHT SINGLE QUOTATION MARK}\xa0\u2009\u202f][0-9]+)+     # groups of digits
    | [0-9]+[eE][-+]?[0-9]+                                                    # an exponent
    | (?<![0-9])0[xXbBoO][0-9a-fA-F]+                                          # another base
    | [0-9]+[kKM]\b                                                            # thousands, millions
    | (?:^\s*|[^\w\s)\]]\s*|[^\W\d]\s+)([-\N{MINUS SIGN}\N{EN DASH}][0-9]+)  # a minus that subtracts from no number
    """,
    re.VERBOSE,
)
"""A number that is not its digits alone, as people write it: what the model reads are digits."""


def find_not_whole(text: str) -> str | None:
    """Return the first number of a text that is not whole or not in the digits 0 to 9; None if there is none."""
    if found := NOT_WHOLE.search(text):
        return found[1] or found[0]
    return next((character for character in text if is_other_number(character)), None)


def is_other_number(character: str) -> bool:
    """Whether a character is a digit of another script, a power or a fraction; number words of Chinese are letters."""
    return character.isnumeric() and not character.isalpha() and not character.isascii()


class LanguageModel:
    """A language model with structure that answers questions about numbers. `load_language_model` makes one.

    Attributes:
        name: its folder or repository.
        model: with structure; an adapter of PEFT stands around it.
        tokenizer: its tokenizer.
        rule: what derives structure from the text.
    """

    def __init__(self, name: str, model: Any, tokenizer: PreTrainedTokenizerBase, rule: NumbersInText):
        self.name, self.model, self.tokenizer, self.rule = name, model, tokenizer, rule

    def answers(self, questions: list[str]) -> list[str]:
        """Return what the model answers to each question, the number as people read it.

        A warning tells if a number has more digits than the rule spreads over ids: the ids of the others are larger than any
        that training on shorter numbers saw.

        Raises:
            ValueError: a question is empty; a number of it is not whole, is negative or begins with zeros; the tokenizer
                does not know a word; or the marker stands within. No question is answered then.
        """
        for question in questions:
            if not question.strip():
                raise ValueError("a question must have words or numbers, got an empty one")
            if (number := find_not_whole(question)) is not None:
                raise ValueError(
                    "numbers must be whole, not negative, without zeros at the front and in digits 0 to 9 alone, got "
                    f"{number!r} in {question!r:.80}"
                )
            self._check_words(question)
        digits = max((len(number) for question in questions for number in re.findall(r"\d+", question)), default=0)
        if digits > self.rule.spread:
            logger.warning(
                f"{self.name}: a number has {digits} digits, more than the {self.rule.spread} that its rule spreads over "
                "position ids, so its answer may be wrong"
            )
        answers: list[str] = []
        for first in range(0, len(questions), ANSWERED_AT_ONCE):
            answers += self._answer(questions[first : first + ANSWERED_AT_ONCE])
        return answers

    @torch.no_grad()
    def _answer(self, questions: list[str]) -> list[str]:
        prompts = [self._prompt(question) for question in questions]
        longest = max(map(len, prompts))
        # Padding stands on the left; its token is hidden by the mask.
        inputs = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        device = self.model.device
        digits = max((len(number) for question in questions for number in re.findall(r"\d+", question)), default=0)
        written = self.model.generate(
            input_ids=torch.tensor(inputs, device=device),
            attention_mask=torch.tensor(mask, device=device),
            max_new_tokens=2 * digits + SPARE,
            do_sample=False,
            eos_token_id=self.tokenizer.eos_token_id,
            pad_token_id=self.tokenizer.eos_token_id,
        )
        return [self._read(row[longest:]) for row in written.tolist()]

    def _check_words(self, question: str) -> None:
        """Refuse words that the tokenizer does not know: the model would take them all for the same."""
        unknown = self.tokenizer.unk_token_id
        if unknown is None or unknown not in self.tokenizer(question, add_special_tokens=False)["input_ids"]:
            return
        words = [
            word
            for word in re.findall(r"\w+|[^\w\s]+", question)
            if unknown in self.tokenizer(word, add_special_tokens=False)["input_ids"]
        ]
        raise ValueError(f"{self.name} knows no {' and no '.join(map(repr, words))}, got {question!r:.80}")

    def _prompt(self, question: str) -> list[int]:
        """Return the tokens of a question and the marker, which must not be in the question."""
        marker, tokens = list(self.rule.marker), self._question(question)
        if any(tokens[place : place + len(marker)] == marker for place in range(len(tokens))):
            raise ValueError(f"{self.tokenizer.decode(marker)!r} is where the answer begins, got it in {question!r:.80}")
        return tokens + marker

    def _question(self, question: str) -> list[int]:
        """Return the tokens of a question, in the chat template if the marker is what this puts before an answer."""
        tokenizer: Any = self.tokenizer
        if getattr(tokenizer, "chat_template", None):
            message = [{"role": "user", "content": question}]
            text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
            if tuple(tokens[-len(self.rule.marker) :]) == self.rule.marker:
                return tokens[: -len(self.rule.marker)]
        return tokenizer(question, add_special_tokens=False)["input_ids"]

    def _read(self, tokens: list[int]) -> str:
        """Return the number that was written: behind the separator, or else ones first; without one, the text.

        Differences are written with as many digits as their numbers have, so that zeros may stand at the front.
        """
        values = {token: str(digit) for digit, token in enumerate(self.rule.digits)}
        text = "".join(values.get(token, "=" if token == self.rule.separator else " ") for token in tokens)
        if found := re.match(r"\d+=(\d+)", text):
            return found[1].lstrip("0") or "0"
        if self.rule.separator is None and (found := re.match(r"\d+", text)):
            return found[0][::-1].lstrip("0") or "0"
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True)).strip()


def load_language_model(
    source: str, revision: str | None, trust_remote_code: bool, task: str | None = None
) -> LanguageModel:
    """Load a language model with structure, and warn that nothing is proved of it.

    Args:
        source: a folder or a repository, of which `load_checkpoint` raises `OtherWithStructure`.
        task: must be None, since sentences say what is asked.

    Raises:
        ValueError: a task is given, its rule is not `NumbersInText`, or something of it is damaged.
        OSError: its base model is not there.
    """
    if task is not None:
        raise ValueError(f"task {task!r} is for a checkpoint of this package: {source} is asked in sentences, leave it out")
    files: dict[str, Any] = {"revision": revision}
    adapter = cached_file(source, ADAPTER_CONFIG, _raise_exceptions_for_missing_entries=False, **files)
    base = source
    if adapter is not None:
        base = read_object(Path(adapter)).get("base_model_name_or_path") or ""
        if not base:
            raise ValueError(f"{ADAPTER_CONFIG} of {source} must name its base_model_name_or_path")
        base = str(Path(source, base)) if Path(source, base).is_dir() else base
    elif cached_file(source, "config.json", _raise_exceptions_for_missing_entries=False, **files) is None:
        raise ValueError(
            f"{source} has structure and no model: load its base by from_pretrained, then with_structure(base, {source!r}), "
            "and save both by save_pretrained"
        )
    verbosity = logging.get_verbosity()
    # Weights of a whole model have the tables, which an Auto class calls unused.
    logging.set_verbosity_error()
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(base, revision=revision if adapter is None else None)
    finally:
        logging.set_verbosity(verbosity)
    model = with_structure(model, source, trust_remote_code=trust_remote_code, **files)
    rule: Any = model.structure_rule
    if not isinstance(rule, NumbersInText):
        found = "no rule" if rule is None else f"the rule {type(rule).__name__}"
        raise ValueError(
            f"{source} has {found}, and a language model answers questions by the rule NumbersInText: load its base by "
            "from_pretrained, then with_structure(base, source)"
        )
    answering: Any = model
    if adapter is not None:
        import peft

        answering = peft.PeftModel.from_pretrained(model, source, **files)
    tokenizer = AutoTokenizer.from_pretrained(source, **files)
    name = checkpoint_name(source)
    logger.warning_once(
        f"{name} has no certificate, so its answers may be wrong, above all to sentences unlike those of its training"
    )
    return LanguageModel(name, answering.eval().to(evaluation_device()), tokenizer, rule)
