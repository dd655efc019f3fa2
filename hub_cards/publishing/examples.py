"""Drawings of an example problem, and questions, on the cards of each family of models."""

# Used by: cards.py, dataset.py, publications.py, hub_cards/research. Changed freely.

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import Environment, FileSystemLoader
from transformers import PreTrainedConfig

from longhand.data.collator import IGNORED
from longhand.data.columns import example_columns
from longhand.data.families import DECODER
from longhand.data.formatting import Examples, LabelledTokens
from longhand.data.splits import make_generator
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.data.tasks.task import Task
from longhand.modeling.coupling import CouplingRule, plan_position_ids
from longhand.modeling.encoder_maps import GRID, derive_pair_map, virtual_indices
from longhand.modeling.relations import NOT_RELATED, Window, coupled_pair_map
from longhand.modeling.settling import answer_relations, find_answers, find_labels
from longhand.modeling.vocabulary import PAD, decode

TEMPLATES = Path(__file__).parent / "templates"
ENVIRONMENT = Environment(loader=FileSystemLoader(TEMPLATES))

EXAMPLE_LENGTH = 3
"""Digits of the operands in the example."""

TOKENS_PER_LINE = 36


class FamilyCard(ABC):
    """The drawing of a problem and the question to a model on cards, which depend on the family."""

    @abstractmethod
    def draw(self, task: Task, config: PreTrainedConfig | None = None) -> str:
        """A problem as an indented block: its tokens, and below them what the model adds to them or answers.

        Args:
            config: of the model; without it, the drawing is for a dataset.
        """

    @abstractmethod
    def draw_sight(self, task: Task, config: PreTrainedConfig) -> str | None:
        """The same problem, with what one token sees under the window of a model; None if the model has no window."""

    @abstractmethod
    def ideas(self, task: Task, config: PreTrainedConfig | None = None) -> list[str]:
        """Tags of the papers' ideas, for cards. A baseline has none.

        Args:
            config: of the model; without it, the tags are for a dataset, whose position ids may be coupled.
        """

    @abstractmethod
    def rule_on_card(self, task: Task) -> str | None:
        """The rule that gives position ids to the rows of a dataset, for its card; None if the card explains labels."""

    @abstractmethod
    def ask(self, task: Task) -> tuple[str, list[str]]:
        """The prompt of a question, and lines of Python that print the model's answer to its tokens, `inputs`."""


class DecoderCard(FamilyCard):
    """Tokens over their position ids; the response is generated."""

    def draw(self, task, config=None):
        return draw_ids(task, (config or task).rule, as_columns=config is None)

    def draw_sight(self, task, config):
        if not (config.position_encoding == "pairwise" and config.windowed):
            return None
        return draw_ids(task, config.rule, config.relation_range or config.rule.relations)

    def ideas(self, task, config=None):
        is_coupled = (config or task).coupling != "sequential"
        return ["position-coupling"] if is_coupled and (config is None or config.position_encoding != "none") else []

    def rule_on_card(self, task):
        return task.coupling

    def ask(self, task):
        task = task.parts[0]
        query, response = decoder_example(task)
        return query[1:], [
            "output = model.generate(**inputs, do_sample=False)",
            'response = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)',
            f"print({task.reader.code('response')})  # right is {task.reader.read(response)}",
        ]


class EncoderCard(FamilyCard):
    """Tokens over their labels, some of which are the answer."""

    def draw(self, task, config=None):
        return draw_labels(task)

    def draw_sight(self, task, config):
        return draw_labels(task, config) if config.windowed else None

    def ideas(self, task, config=None):
        return ["structural-symmetry"]

    def rule_on_card(self, task):
        return None

    def ask(self, task):
        task = task.parts[0]
        prompt = "".join(token for token, _ in encoder_example(task.for_evaluation))
        places, right = encoder_answer(task.for_evaluation)
        at_end = places == list(range(len(prompt) - len(places), len(prompt)))
        index = f"-{len(places)}:" if at_end else str(places)
        return prompt, [
            f"labels = model(**inputs).logits[0, {index}].argmax(-1)",
            'answer = "".join(model.config.id2label[label] for label in labels.tolist())',
            f"print({task.reader.code('answer')})  # right is {task.reader.read(right)}",
        ]


_DECODER_CARD = DecoderCard()
_ENCODER_CARD = EncoderCard()


def family_card(task: Task) -> FamilyCard:
    """The drawings and questions of the task's family."""
    return _DECODER_CARD if task.family is DECODER else _ENCODER_CARD


def snippet(task: Task, source: str) -> str:
    """Python that loads a model, asks it a question and prints the answer.

    Args:
        source: repository or folder of the model, which takes its code along.
    """
    prompt, answering = family_card(task).ask(task)
    return ENVIRONMENT.get_template("snippet.md").render(task=task, source=source, prompt=prompt, answering=answering)


def about(task: Task) -> str:
    """What a task is, in a sentence or two: how its docstring begins."""
    return " ".join((type(task).__doc__ or "").split("\n\n")[0].split())


def example_row(task: Task, part: Task, size: int) -> dict[str, Any]:
    """A question of a part of a task, as the row of a dataset."""
    lengths, generator = np.array([part.operand_lengths(size)]), make_generator("gallery", part.name, size)
    digits = part.draw_operands(generator, lengths)
    return example_columns(part, digits, lengths, generator, task).to_pylist()[0]


def describe_response(task: Any) -> str:
    """What the response of a column task holds, for a reader of its raw text."""
    passes = task.transducer.passes
    parts = []
    for place, table_pass in enumerate(passes):
        order = "the ones first" if table_pass.direction == "ones_first" else "in the order of reading"
        word = "behind the question" if place == 0 else "behind a `>`"
        more = f" and {table_pass.flush} more" if table_pass.flush else ""
        parts.append(f"{word} a symbol for each column{more}, {order}")
    answer = "the last symbol is the answer" if task.answer == "last" else "the last word is the answer"
    states = "; the words before the last one are states of the machine, one symbol each" if len(passes) > 1 else ""
    return f"{'; then '.join(parts)}; {answer}{states}"


def count(number: int, noun: str) -> str:
    """The number and the noun, in the plural if needed, such as "2 layers"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def decoder_example(task: DecoderTask) -> tuple[str, str]:
    """Query and right response of the example, as text from the `$` to the last token before the end token."""
    examples = _decoder_tokens(task)
    tokens, query_length = examples.tokens[0], examples.query_lengths[0]
    response = decode(tokens[query_length:], task.tokens)
    return decode(tokens[:query_length], task.tokens), response.removesuffix("$").removesuffix("<eos>")


def _decoder_tokens(task: DecoderTask) -> Examples:
    """The example, a question of the task, which depends on the task alone."""
    task = task.for_evaluation
    operands = np.array([task.operand_lengths(EXAMPLE_LENGTH)])
    return task.examples(make_generator("card", task.name, EXAMPLE_LENGTH), operands, "train")


def draw_ids(task: Any, coupling: str | CouplingRule, window: Window | None = None, as_columns: bool = False) -> str:
    """The example's tokens over their position ids by a coupling rule, one line for each level, as an indented block.

    There is an example of each part of the task. A level at which no token has an id is left out.

    Args:
        window: the relations that a model sees (see `pair_maps`); a last line then marks by `^` what one token of the
            response sees, marked `?`, which sees the most.
        as_columns: whether several levels have the numbers that the columns of a dataset have, from 0 on.
    """
    if len(task.parts) > 1:
        return "\n\n".join(draw_ids(part, coupling, window, as_columns) for part in task.parts)
    examples = _decoder_tokens(task)
    tokens, first = examples.tokens[0][examples.tokens[0] != PAD], int(examples.query_lengths[0])
    query = torch.from_numpy(tokens[:first].astype(np.int64)).unsqueeze(0)
    levels = plan_position_ids(coupling, query, len(tokens))[0]
    used = [level for level in range(len(levels)) if levels[level].any()]
    columns = [[task.tokens[token], *map(str, ids)] for token, ids in zip(tokens, levels[used].T.tolist(), strict=True)]
    numbered = [f"ids_{level}" if as_columns else f"level {level + 1}" for level in used]
    names = ["tokens", *(["ids"] if len(levels) == 1 else numbered)]
    if window is None:
        return _draw(columns, names)
    ids = levels.unsqueeze(0)
    seen = (coupled_pair_map(ids, ids, window, windowed=True)[0] != NOT_RELATED).tril()
    return _draw(_mark_sight(columns, seen, list(range(first, len(tokens) - 1))), [*names, "sees"])


def _mark_sight(columns: Sequence[Sequence[str]], seen: torch.Tensor, queries: list[int]) -> list[list[str]]:
    """The columns with one cell more: `?` for the query that sees the most, `^` for what it sees.

    Args:
        seen: (queries, keys) bool, of every token.
    """
    chosen = max(queries, key=lambda query: int(seen[query].sum()))
    marks = ["?" if key == chosen else "^" if sees else "" for key, sees in enumerate(seen[chosen].tolist())]
    return [[*column, mark] for column, mark in zip(columns, marks, strict=True)]


def _encoder_tokens(task: EncoderTask) -> LabelledTokens:
    """The example, without text around the numbers."""
    generator = make_generator("card", task.name, EXAMPLE_LENGTH)
    lengths = task.sample_lengths(generator, 1, 1, EXAMPLE_LENGTH)
    return task.write(task.draw(generator, lengths, "train"), *task.layout(lengths))


def encoder_example(task: EncoderTask) -> list[tuple[str, str]]:
    """The example's tokens and their labels, without text around the numbers. The label is `.` if the token has none."""
    examples = _encoder_tokens(task)
    labels = ["." if label == IGNORED else task.labels[label] for label in examples.labels[0].tolist()]
    return list(zip((task.tokens[token] for token in examples.tokens[0].tolist()), labels, strict=True))


def encoder_answer(task: EncoderTask) -> tuple[list[int], str]:
    """The places of the example's tokens at which the answer is read, most significant digit first, and its labels."""
    examples = _encoder_tokens(task)
    places = np.where(examples.labels == IGNORED, IGNORED, np.arange(examples.labels.shape[1]))
    (labels, kept), (places, _) = (task.answer_labels(examples.tokens, values) for values in (examples.labels, places))
    return places[kept].tolist(), "".join(task.labels[label] for label in labels[kept])


def draw_labels(task: Any, config: PreTrainedConfig | None = None) -> str:
    """The example's tokens over their labels, as an indented block.

    Args:
        task: an `EncoderTask`.
        config: of a model with a window; a last line then marks by `^` what one labelled token sees in one layer,
            marked `?`, which sees the most.
    """
    if len(task.parts) > 1:
        return "\n\n".join(draw_labels(part, config) for part in task.parts)
    columns = encoder_example(task.drawn_on_cards)
    if config is None:
        return _draw(columns, ["input", "label"])
    tokens = torch.tensor([[task.tokens.index(token) for token, _ in columns]])
    if task.transducer or config.pair_maps == [GRID]:
        answers = find_labels(task.transducer, tokens) if task.transducer else find_answers(GRID, tokens, (), 0)
        seen = answer_relations(answers, tokens.shape)[0] != NOT_RELATED
    else:
        limits = (config.relation_range, config.windowed, config.max_multiplier_length)
        seen = derive_pair_map(config.pair_maps[0], tokens, virtual_indices(tokens), *limits)[0] != NOT_RELATED
    labelled = [place for place, (_, label) in enumerate(columns) if label != "."]
    return _draw(_mark_sight(columns, seen, labelled), ["input", "label", "sees"])


def _draw(columns: Sequence[Sequence[str]], names: list[str]) -> str:
    """Columns of cells side by side, a name before each line, in blocks as wide as a page."""
    width = max(len(cell) for column in columns for cell in column)
    blocks = []
    for start in range(0, len(columns), TOKENS_PER_LINE):
        lines = zip(names, *columns[start : start + TOKENS_PER_LINE], strict=True)
        # A line of marks may be empty in one of several blocks.
        filled = ((name, cells) for name, *cells in lines if any(cells))
        texts = (f"    {name:<8}{' '.join(cell.rjust(width) for cell in cells)}" for name, cells in filled)
        blocks.append("\n".join(text.rstrip() for text in texts))
    return "\n\n".join(blocks)
