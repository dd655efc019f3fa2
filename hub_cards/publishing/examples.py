"""Texts and drawings of an example problem on the cards of each family of models."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jinja2 import Environment, FileSystemLoader
from transformers import PreTrainedConfig

from longhand.data import Task, make_generator
from longhand.data.collator import IGNORED
from longhand.data.formatting import Examples, LabelledTokens
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.modeling.coupling import COUPLING_RULES, CouplingRule, plan_position_ids
from longhand.modeling.encoder_maps import derive_pair_map, virtual_indices
from longhand.modeling.relations import NOT_RELATED, Window, coupled_pair_map
from longhand.modeling.settling import answer_relations, find_labels
from longhand.modeling.vocabulary import PAD, decode

TEMPLATES = Path(__file__).parent / "templates"
ENVIRONMENT = Environment(loader=FileSystemLoader(TEMPLATES))

EXAMPLE_LENGTH = 3
"""Digits of the operands in the example."""

TOKENS_PER_LINE = 36


class FamilyCard(ABC):
    """The parts of a model's card and of a dataset's card that depend on the family.

    Attributes:
        exact_match: when a problem counts as exactly right.
        decodes: whether results say how the response was decoded.
        usage_note: another way to use a model; `{source}` stands for its repository or folder.
    """

    exact_match: ClassVar[str]
    decodes: ClassVar[bool]
    usage_note: ClassVar[str] = ""

    @abstractmethod
    def ideas(self, task, config: PreTrainedConfig | None = None) -> list[str]:
        """Tags of the papers' ideas. A baseline has none.

        Args:
            config: of the model; without it, the tags are for a dataset.
        """

    @abstractmethod
    def draw(self, task, config: PreTrainedConfig | None = None) -> str:
        """A problem as an indented block: its tokens, and below them what the model adds to them or answers.

        Args:
            config: of the model; without it, the drawing is for a dataset.
        """

    def draw_sight(self, task, config: PreTrainedConfig) -> str | None:
        """The same problem, with what one token sees under the window of a model; None if the model has no window."""
        return None

    @abstractmethod
    def ask(self, task) -> tuple[str, list[str]]:
        """The prompt of a question, and lines of Python that print the model's answer to its tokens, `inputs`."""

    @abstractmethod
    def size_name(self, names: tuple[str, str]) -> str:
        """The name of a result's size if both sizes are equal; `names` are the task's `size_names`."""

    @abstractmethod
    def limits(self, config: PreTrainedConfig) -> list[str]:
        """What a model of this configuration cannot do, a sentence each."""

    @abstractmethod
    def dataset_columns(self, task) -> str:
        """What a dataset gives for the tokens, in a few words."""

    @abstractmethod
    def dataset_note(self, tasks: dict[str, Task]) -> str:
        """What the columns of a dataset mean, before the drawing.

        Args:
            tasks: by the names of the dataset's configurations.
        """

    def introduction(self, task, config: PreTrainedConfig, parameters: int) -> str:
        """What the model is, how it reads a problem, and a drawing of a problem, from `FAMILY_introduction.md`."""
        template = ENVIRONMENT.get_template(f"{task.family.name}_introduction.md")
        values = {"ideas": self.ideas(task, config), "drawing": self.draw(task, config), "rules": COUPLING_RULES}
        return template.render(task=task, config=config, parameters=parameters, count=count, **values).rstrip()

    def snippet(self, task, source: str, shipped: bool = False) -> str:
        """Python that loads the model, asks it a question and prints the answer.

        Args:
            source: repository or folder of the model, which takes its code along.
            shipped: whether `source` is a name of the zoo instead. Then the code is this package.
        """
        prompt, answering = self.ask(task)
        where = f'longhand.zoo("{source}")' if shipped else f'"{source}", trust_remote_code=True'
        imports = [*task.parts[0].reader.imports, *["longhand"] * shipped]
        values = {"task": task, "imports": imports, "where": where, "prompt": prompt, "answering": answering}
        return ENVIRONMENT.get_template("snippet.md").render(**values)


class DecoderCard(FamilyCard):
    exact_match = "every token of the response and its end are right"
    decodes = True
    usage_note = (
        '`pipeline("text-generation", "{source}", trust_remote_code=True)` works too. It writes at most 256\n'
        "tokens unless it is called with a larger `max_new_tokens`."
    )

    def ideas(self, task, config=None):
        return ["position-coupling"] if self._is_coupled(task, config) else []

    def _is_coupled(self, task, config: PreTrainedConfig | None = None) -> bool:
        """Whether the position ids are coupled: the ids that a model reads or, without a configuration, a dataset's ids."""
        return (config or task).coupling != "sequential" and (config is None or config.position_encoding != "none")

    def draw(self, task, config=None):
        return draw_ids(task, (config or task).rule)

    def draw_sight(self, task, config):
        if not (config.position_encoding == "pairwise" and config.windowed):
            return None
        return draw_ids(task, config.rule, config.relation_range or config.rule.relations)

    def ask(self, task):
        task = task.parts[0]
        query, response = decoder_example(task)
        return query[1:], [
            "output = model.generate(**inputs, do_sample=False)",
            'response = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)',
            f"print({task.reader.code('response')})  # right is {task.reader.read(response)}",
        ]

    def size_name(self, names):
        return " = ".join(dict.fromkeys(names))

    def limits(self, config):
        limits = []
        if config.position_encoding == "learned":
            longest = config.rule.capacity(config.max_position_ids)
            table = f"Its learned table has {config.max_position_ids:,} position ids"
            limits.append(f"{table}: the longest that fits is {longest}. It refuses more.")
        if not (config.position_encoding == "pairwise" and config.windowed):
            limits.append("It has no window: time and memory grow with the response's length times the sequence's length.")
        return limits

    def dataset_columns(self, task):
        return "coupled position ids" if self._is_coupled(task) else "position ids"

    def dataset_note(self, tasks):
        rules = by_configuration({name: f"`{task.coupling}`" for name, task in tasks.items()}, tasks)
        if self._is_coupled(next(iter(tasks.values()))):
            note = f"Position ids follow the coupling rule {rules}. They are the smallest that it allows."
            return f"{note}\n0 marks a token without an id:"
        return f"Position ids are ordinary ones, not coupled: the rule {rules} counts the tokens of the text."


class EncoderCard(FamilyCard):
    exact_match = "every label of the answer is right, and of the padding before it or the rest of a grid"
    decodes = False

    def ideas(self, task, config=None):
        return ["structural-symmetry"]

    def draw(self, task, config=None):
        return draw_labels(task)

    def draw_sight(self, task, config):
        return draw_labels(task, config) if config.windowed else None

    def ask(self, task):
        prompt = "".join(token for token, _ in encoder_example(task.for_evaluation))
        places, right = encoder_answer(task.for_evaluation)
        tokens = f"-{len(places)}:" if places == [*range(len(prompt))][-len(places) :] else places
        return prompt, [
            f"labels = model(**inputs).logits[0, {tokens}].argmax(-1)",
            'answer = "".join(model.config.id2label[label] for label in labels.tolist())',
            f"print({task.reader.code('answer')})  # right is {task.reader.read(right)}",
        ]

    def size_name(self, names):
        # The second size of an encoder's result may be a class of equally hard problems, which is no number of digits.
        return " = ".join(dict.fromkeys(names)) if names[1].startswith("digits") else names[0]

    def limits(self, config):
        limits = []
        if config.absolute_positions != "none":
            limits.append(f"Its table of positions ends at inputs of {config.max_position_embeddings:,} tokens.")
        if not config.windowed:
            limits.append("It has no window: time and memory grow with the square of the input's length.")
        return limits

    def dataset_columns(self, task):
        return "their labels"

    def dataset_note(self, tasks):
        return (
            "A label is the class of its token: a digit, or 10 for the padding of a field. It is -100 for a\n"
            "token without a label (`.` below):"
        )


_FAMILY_CARDS: dict[str, FamilyCard] = {"decoder": DecoderCard(), "encoder": EncoderCard()}


def family_card(task: Task) -> FamilyCard:
    """The card of the family that learns the task."""
    return _FAMILY_CARDS[task.family.name]


def count(number: int, noun: str) -> str:
    """The number and the noun, in the plural if needed, such as "2 layers"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def by_configuration(values: dict[str, str], configurations: Iterable[str]) -> str:
    """The value that all configurations of a dataset have, or each value with the configurations that have it.

    Args:
        values: a value by the name of its configuration; some configurations may have none.
        configurations: the names of all configurations.
    """
    if len(set(values.values())) == 1 and values.keys() == set(configurations):
        return next(iter(values.values()))
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(f"`{name}`")
    return "; ".join(f"{value} in {', '.join(names)}" for value, names in groups.items())


def decoder_example(task: DecoderTask) -> tuple[str, str]:
    """Query and right response of the example, as text from the `$` to the last token before the end token."""
    examples = _decoder_tokens(task)
    tokens, query_length = examples.tokens[0], examples.query_lengths[0]
    response = decode(tokens[query_length:], task.tokens)
    return decode(tokens[:query_length], task.tokens), response.removesuffix("$").removesuffix("<eos>")


def _decoder_tokens(task: DecoderTask) -> Examples:
    """The example, which depends on the task alone."""
    operands = np.array([task.operand_lengths(EXAMPLE_LENGTH)])
    return task.examples(make_generator("card", task.name, EXAMPLE_LENGTH), operands, "train")


def draw_ids(task: Any, coupling: str | CouplingRule, window: Window | None = None) -> str:
    """The example's tokens over their position ids by a coupling rule, one line for each level, as an indented block.

    There is an example of each part of the task.

    Args:
        window: the relations that a model sees (see `pair_maps`); a last line then marks by `^` what one token of the
            response sees, marked `?`, which sees the most.
    """
    if len(task.parts) > 1:
        return "\n\n".join(draw_ids(part, coupling, window) for part in task.parts)
    examples = _decoder_tokens(task)
    tokens, first = examples.tokens[0][examples.tokens[0] != PAD], int(examples.query_lengths[0])
    query = torch.from_numpy(tokens[:first].astype(np.int64)).unsqueeze(0)
    levels = plan_position_ids(coupling, query, len(tokens))[0]
    columns = [[task.tokens[token], *map(str, ids)] for token, ids in zip(tokens, levels.T.tolist(), strict=True)]
    names = ["tokens", *(["ids"] if len(levels) == 1 else [f"level {level}" for level in range(1, len(levels) + 1)])]
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


def draw_labels(task: EncoderTask, config: Any = None) -> str:
    """The example's tokens over their labels, as an indented block.

    Args:
        config: of a model with a window; a last line then marks by `^` what one labelled token sees in one layer,
            marked `?`, which sees the most.
    """
    columns = encoder_example(task.drawn_on_cards)
    if config is None:
        return _draw(columns, ["input", "label"])
    tokens = torch.tensor([[task.tokens.index(token) for token, _ in columns]])
    if task.transducer:
        seen = answer_relations(find_labels(task.transducer, tokens), tokens.shape)[0] != NOT_RELATED
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
