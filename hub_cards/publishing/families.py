"""All that a card says differently for each family of models. A new family adds its object to `FAMILY_CARDS`."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from jinja2 import Environment, FileSystemLoader
from transformers import PreTrainedConfig

from longhand.data import Task
from longhand.data.plugins import REGISTRIES
from longhand.hub_cards.publishing.examples import decoder_example, draw_ids, draw_labels, encoder_answer, encoder_example
from longhand.hub_cards.publishing.wording import by_configuration, count
from longhand.modeling.coupling import COUPLING_RULES

TEMPLATES = Path(__file__).parent / "templates"
ENVIRONMENT = Environment(loader=FileSystemLoader(TEMPLATES))


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
        """The name of a result's size if one number says it; `names` are the task's `size_names`."""

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


FAMILY_CARDS: dict[str, FamilyCard] = {"decoder": DecoderCard(), "encoder": EncoderCard()}
"""The cards of the families by `Family.name`."""

REGISTRIES["family card"] = FAMILY_CARDS


def family_card(task: Task) -> FamilyCard:
    """The card of the family that learns the task.

    Raises:
        ValueError: the family has none.
    """
    if (card := FAMILY_CARDS.get(task.family.name)) is None:
        raise ValueError(
            f"models of the family {task.family.name!r} have no card: add one to FAMILY_CARDS in "
            f"hub_cards/publishing/families.py, which has {', '.join(FAMILY_CARDS)}"
        )
    return card
