"""The arguments of a training run: a recipe and a command line become one checked `Run`.

An argument is one field of a dataclass: its type, default, meaning and bounds give the command line, the help and the
checks.
"""

import argparse
import difflib
import inspect
import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from huggingface_hub.errors import StrictDataclassError, StrictDataclassFieldValidationError
from transformers import HfArgumentParser, PreTrainedConfig, TrainingArguments
from transformers.hf_argparser import string_to_bool
from transformers.trainer_utils import IntervalStrategy
from transformers.utils.chat_template_utils import parse_google_format_docstring

from longhand.data.families import PositionArguments
from longhand.data.formatting import Batch
from longhand.data.proofs.check import LARGEST_RATIO, ROUNDING_FACTOR
from longhand.data.tasks.column_task import MEANING, ColumnTask
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.plugins import PACKAGE, Plugin, load_plugin, require_plugins
from longhand.data.tasks.registry import TASKS, find_task, task_named
from longhand.data.tasks.settling_columns import SETTLING
from longhand.data.tasks.task import Task
from longhand.data.tasks.written_states import STATES, own_layout
from longhand.hub_cards.commands import OneLineParser, one_line
from longhand.hub_cards.recipes import Recipe, is_repository, know_table, learned_facts, load_recipe
from longhand.hub_cards.training.encodings import encoding_faults, fit_encoding, hint
from longhand.hub_cards.training.launcher import (
    DIVIDING_ARGUMENTS,
    join_launched,
    launched_arguments,
    refuse_dividing,
)
from longhand.modeling.position_encodings import POSITION_ENCODINGS

if TYPE_CHECKING:
    from longhand.data.learning.report import Learned

DEFAULT_RECIPE = "addition"
CHECKPOINTS_FOLDER = "checkpoints"
BEST = "eval_generalization"
"""The metric of the best checkpoint: exact match beyond the trained sizes, among equals the share of right tokens; or the
loss, negative, see `metric_for_best_model`."""
UNSET = "unset"
"""As the value on a command line: what a recipe gives is taken back, and the argument's own default holds."""

_BOUNDS = {"least": ("at least", operator.ge), "most": ("at most", operator.le)}
_BOUNDS |= {"above": ("above", operator.gt), "below": ("below", operator.lt)}
_LARGEST = 1e12
LARGEST_SEED = 2**32 - 1


def argument(
    default: object, meaning: str, private: bool = False, needs: Mapping[str, object] | None = None, **bounds: float
) -> Any:
    """Return the field of an argument.

    Args:
        needs: the values that other arguments must have if this one is set.
        private: whether the argument says where a run is made or followed, and nothing of its weights and results. Recipes
            and cards leave it out.
        bounds: `least`, `most`, `above` or `below`, of its value or of each of its values.
    """
    limits = "".join(f"; {_BOUNDS[name][0]} {bound}" for name, bound in bounds.items())
    metadata = {"help": f"{meaning}{limits}", "private": private, "needs": needs or {}, "bounds": bounds}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _default(option: Field) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def usual(
    default: object, meaning: str, private: bool = False, needs: Mapping[str, object] | None = None, **bounds: float
) -> Any:
    """Return the field of an argument whose default recipes leave out; see `argument`."""
    option = argument(default, meaning, private, needs, **bounds)
    option.metadata = {**option.metadata, "usual": True}
    return option


def of_trainer(name: str, meaning: str, private: bool = False, **bounds: float) -> Any:
    """Return the field of an argument that keeps the default of `TrainingArguments`; recipes leave this value out."""
    return usual(_default(TrainingArguments.__dataclass_fields__[name]), meaning, private, None, **bounds)


@dataclass
class DataArguments:
    """The problems that are trained, validated and tested. Lengths are digits of the operands."""

    _argument_group_name: ClassVar[str] = "data and lengths"

    task: str = argument("addition", "name of the task")
    min_length: int = argument(1, "digits of the shortest trained operand", least=1)
    max_length: int = argument(30, "digits of the longest trained operand", least=1)
    num_train_samples: int | None = argument(None, "problems of a fixed training set; unset, every batch is new", least=1)
    batching: Literal["one_length", "mixed"] = argument(
        "one_length", "lengths in a batch: one, or drawn for each problem and padded, as in paper 1's code"
    )
    validation_lengths: list[int] = argument([30, 60, 100], "digits of operands, validated during training", least=1)  # noqa: RUF009
    validation_samples: int = argument(100, "problems of each validated length", least=1)
    test_lengths: list[int] = argument([30, 60, 100, 200], "digits of operands, tested at the end", least=1)  # noqa: RUF009
    test_samples: int = argument(200, "problems of each tested length", least=1)


@dataclass
class RunArguments(TrainingArguments):
    """`transformers.TrainingArguments` with this project's defaults and a global batch size.

    The arguments that are named here are those that a run takes; others of `TrainingArguments` are refused.
    """

    _argument_group_name: ClassVar[str] = "training"

    output_dir: str | None = argument(None, "folder of the run; unset, outputs/RECIPE", private=True)
    resume: bool = argument(False, "continue a run that was cut off, from its last checkpoint", private=True)
    dry_run: bool = argument(
        False, "say what the run would do, refuse what it would refuse, and write nothing", private=True
    )
    until_certified: bool = argument(
        False,
        "stop at the first validation at which the model is certified; practise what fails until then, and begin again "
        "with the next seed where that does not become less",
        needs={"num_train_samples": None, "dataloader_num_workers": 0},
    )
    practise_worst: int | None = usual(
        None,
        "at every validation, search the trained sizes for so many problems with the lowest leads; until the next one, they "
        "are one batch in four",
        needs={"num_train_samples": None, "dataloader_num_workers": 0},
        least=1,
        most=1000,
    )
    sharper_scores: float | None = usual(
        None,
        "by how much the factors of the scores are multiplied in the course of training, evenly between a quarter and three "
        "quarters of the steps; for a decoder with qk_norm",
        above=1,
        most=100,
    )
    test_worst: float | None = usual(
        None, "seconds to search each tested length of the finished model for the worst problem", above=0
    )
    certified_ratio: float = argument(
        float(ROUNDING_FACTOR),
        "lead over rounding bound at which until_certified stops",
        least=ROUNDING_FACTOR,
        most=LARGEST_RATIO,
    )
    max_steps: int = argument(1000, "optimizer steps", least=1)
    batch_size: int = argument(256, "examples of one optimizer step, over all processes and accumulated parts", least=1)
    gradient_accumulation_steps: int = of_trainer("gradient_accumulation_steps", "parts of a batch", least=1)
    seed: int = argument(0, "seed of the model's initial weights", least=0, most=LARGEST_SEED)
    data_seed: int = argument(0, "seed of the training data and validation problems", least=0, most=LARGEST_SEED)
    learning_rate: float = argument(1e-3, "largest learning rate", above=0)
    muon_learning_rate: float | None = argument(
        None, "largest learning rate of Muon for the matrices of layers; unset, `optim` trains them too", above=0
    )
    lr_scheduler_type: str = argument(
        "cosine_with_min_lr", "name of the schedule of the learning rate, see transformers.SchedulerType"
    )
    lr_scheduler_kwargs: dict = argument({"min_lr_rate": 0.1}, "arguments of the schedule, as JSON")  # noqa: RUF009
    decay_steps: int | None = argument(
        None, "steps of the schedule, if fewer than max_steps; the learning rate then stays at its last value", least=1
    )
    warmup_steps: float = argument(0.01, "steps of warm-up, or below 1 their share of the schedule's steps", least=0)
    optim: str = of_trainer("optim", "name of the optimizer, see transformers.training_args.OptimizerNames")
    weight_decay: float = of_trainer("weight_decay", "weight decay of matrices", least=0)
    adam_beta1: float = of_trainer("adam_beta1", "first beta of AdamW", least=0, below=1)
    adam_beta2: float = argument(0.95, "second beta of AdamW", least=0, below=1)
    adam_epsilon: float = of_trainer("adam_epsilon", "epsilon of AdamW", above=0)
    max_grad_norm: float = of_trainer("max_grad_norm", "norm to which gradients are clipped; 0 clips none", least=0)
    eval_steps: int = argument(500, "steps between validations; each also saves a checkpoint", least=1)
    metric_for_best_model: Literal["exact_match", "loss"] = argument(
        "exact_match",
        "what chooses the best checkpoint: mean `exact_match` at validation_lengths beyond max_length, or `loss` at the "
        "longest (as in paper 1's code)",
    )
    save_total_limit: int | None = argument(2, "checkpoints kept, the best one among them", least=1)
    logging_steps: float = argument(100, "steps between logged losses, or below 1 their share of all steps", above=0)
    bf16: bool = of_trainer("bf16", "compute in bfloat16 where autocast does")
    fp16: bool = of_trainer("fp16", "compute in float16 where autocast does, on a GPU")
    tf32: bool | None = of_trainer("tf32", "multiply float32 matrices in TF32, on a GPU")
    gradient_checkpointing: bool = of_trainer("gradient_checkpointing", "compute layers again in the backward pass")
    torch_compile: bool = of_trainer("torch_compile", "compile the model")
    full_determinism: bool = of_trainer(
        "full_determinism", "deterministic kernels alone, with which a run on a GPU can be repeated and resumed bit for bit"
    )
    use_cpu: bool = of_trainer("use_cpu", "train on the CPU")
    dataloader_num_workers: int = of_trainer("dataloader_num_workers", "processes that draw batches", least=0)
    ddp_backend: str | None = of_trainer("ddp_backend", "how several processes exchange gradients", private=True)
    ddp_timeout: int = of_trainer("ddp_timeout", "seconds that processes wait for each other", private=True, least=1)
    disable_tqdm: bool | None = of_trainer("disable_tqdm", "show no progress bar", private=True)
    report_to: str = argument("none", "what follows the run, such as tensorboard or wandb", private=True)
    run_name: str | None = of_trainer("run_name", "name of the run there", private=True)


@dataclass
class Learning:
    """A column task that is found, not written: from a function, or from examples alone."""

    _argument_group_name: ClassVar[str] = "a task that is found"

    function: str | None = argument(
        None,
        "a function as `lambda a, b: ...`, FILE.py or FILE.py:NAME; the task is the machine that computes it",
        private=True,
    )
    examples: str | None = argument(
        None,
        "file of questions and answers (.jsonl or .csv); the task is the machine that agrees with all of them, or they test "
        "the task of --function or --plugin",
        private=True,
    )
    name: str | None = argument(None, "name of the task that is found, and of the run's folder", private=True)
    base: int = argument(10, "base of the numbers", private=True, least=2, most=36)
    alphabet: str | None = argument(None, "symbols of texts, such as abc", private=True)
    domain: str | None = argument(
        None, "regular expression of the texts that the function takes, such as [0-9]{8,19}", private=True
    )
    seconds: float = argument(
        60.0,
        "seconds of processor time in which the task must be found, or twice as many by the clock",
        private=True,
        above=0,
    )
    complete: bool = argument(
        False, "fill entries that no example reaches, if all others fit a linear function", private=True
    )
    drop_wrong: int = argument(0, "examples that may be left out since they contradict the others", private=True, least=0)
    private_source: bool = argument(
        False, "keep the function's docstring and source out of the card and the recipe", private=True
    )
    write_plugin: str | None = argument(
        None, "write the task as a file of Python, to read and change, and stop", private=True
    )


OF_ONE = {"complete": ("examples",), "drop_wrong": ("examples",), "domain": ("function",), "private_source": ("function",)}
"""Arguments that are for one of two ways to find a task."""

PUSHED = {"push_to_hub": True}


@dataclass
class Publishing:
    """Where a finished run goes on the Hub. Trainer itself would push every checkpoint, with a card of its own."""

    _argument_group_name: ClassVar[str] = "publishing"

    push_to_hub: bool = argument(False, "push the finished run to the Hub, once", private=True)
    hub_model_id: str | None = argument(
        None, "USER/NAME of the repository; unset, the name of the run's folder", private=True, needs=PUSHED
    )
    hub_private_repo: bool = argument(False, "make the repository private", private=True, needs=PUSHED)
    hub_revision: str | None = argument(None, "branch to push to; unset, main", private=True, needs=PUSHED)
    hub_token: str | None = argument(None, "token of the Hub; unset, the one that is logged in", private=True, needs=PUSHED)


PRIVATE_ARGUMENTS = frozenset(
    option.name for kind in (RunArguments, Publishing) for option in fields(kind) if option.metadata.get("private")
)
"""Arguments that say where a run was made, followed or pushed to. They decide neither weights nor results."""


def model_arguments(task: Task) -> type:
    """Return a dataclass of what a recipe may set of a model's configuration: what its docstring describes.

    What follows from the task is left out.
    """
    config_class: Any = task.family.model_class.config_class
    meanings = parse_google_format_docstring(inspect.getdoc(config_class) or "")[1] or {}
    given = task.family.config_options(task)
    options = [
        (option.name, config_class.__annotations__[option.name], argument(_default(option), meanings[option.name]))
        for option in fields(config_class)
        if option.name in meanings and option.name not in given
    ]
    return make_dataclass("ModelArguments", options, namespace={"_argument_group_name": "model"})


def truth_value(text: str | bool) -> bool:
    """Read True or False, as transformers does: also yes and no, t and f, y and n, 1 and 0."""
    try:
        return string_to_bool(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"must be True or False, got {text!r}") from error


class Parser(OneLineParser, HfArgumentParser):
    """Parser of dataclasses that raises ValueError, in one line, instead of printing a usage of several screens."""

    def __init__(self, kinds: Iterable[type], **options: object):
        self.fields: dict[str, Field] = {}
        super().__init__((), allow_abbrev=False, add_help=False, formatter_class=_Formatter, **options)
        for kind in kinds:
            inherited = TrainingArguments.__dataclass_fields__
            self.fields |= {one.name: one for one in fields(kind) if inherited.get(one.name) is not one}
            self._add_dataclass_arguments(cast(Any, kind))
        for action in self._actions:
            if action.type is string_to_bool:
                action.type = truth_value

    @staticmethod
    def _parse_dataclass_field(parser, field):
        if field is TrainingArguments.__dataclass_fields__.get(field.name):
            return
        shown = copy(field)
        shown.metadata = {"help": field.metadata.get("help", "").replace("%", "%%")}
        if shown.type is dict:
            shown.type = json.loads
        HfArgumentParser._parse_dataclass_field(parser, shown)
        if field.default is True:
            parser._option_string_actions[f"--no_{field.name}"].help = argparse.SUPPRESS

    def read(self, words: list[str]) -> dict[str, Any]:
        """Return the values of all arguments; `set_defaults` has given those of a recipe.

        Raises:
            ValueError: an argument is unknown, has a value of the wrong type or out of bounds, or needs another one.
        """
        given, unknown = self.parse_known_args(words)
        if unknown:
            name = unknown[0].partition("=")[0]
            if dividing := DIVIDING_ARGUMENTS.get(name.removeprefix("--")):
                refuse_dividing(dividing)
            close = difflib.get_close_matches(name, self._option_string_actions, n=3)
            raise ValueError(f"unknown argument {name!r}" + (f": did you mean {' or '.join(close)}?" if close else ""))
        values, faults = vars(given), []
        for option in self.fields.values():
            _check_bounds(option, values[option.name])
            for name, value in option.metadata.get("needs", {}).items():
                if values[option.name] and values[name] != value:
                    needed = UNSET if value is None else value
                    faults.append(f"{option.name} needs {name} {needed}, got {values[name]}")
        if faults:
            raise ValueError("; ".join(faults))
        return values

    def make(self, kind: type, values: dict[str, Any]) -> Any:
        """Return a dataclass of the parser with these values."""
        return kind(
            **{option.name: values[option.name] for option in fields(kind) if self.fields.get(option.name) is option}
        )


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Shows the type or the legal values of an argument, and below them its meaning and its value."""

    _types: ClassVar = {int: "INTEGER", float: "NUMBER", truth_value: "{True,False}", json.loads: "JSON"}

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=6, width=118)

    def _format_action_invocation(self, action):
        legal = f"{{{','.join(map(str, action.choices))}}}" if action.choices else self._types.get(action.type, "TEXT")
        return f"{action.option_strings[0]} {legal}{' [...]' if action.nargs == '+' else ''}"

    def _get_help_string(self, action):
        value = action.default
        shown = UNSET if value is None else " ".join(map(str, value)) if isinstance(value, list) else value
        return f"{action.help.rstrip('.')} (default: {str(shown).replace('%', '%%')})"


def _check_bounds(option: Field, value: object) -> None:
    """Raise ValueError if a value breaks a bound of its argument, or is infinite, NaN or very large."""
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int | float):
            for name, bound in option.metadata.get("bounds", {}).items():
                words, holds = _BOUNDS[name]
                if not holds(number, bound):
                    raise ValueError(f"{option.name} must be {words} {bound}, got {value}")
            if not abs(number) < _LARGEST:
                raise ValueError(f"{option.name} must be a number below {_LARGEST:.0e}, got {value}")


@dataclass(frozen=True)
class Given:
    """The arguments of a recipe, a command line and a launcher; typed, not yet checked against each other.

    The command line wins over the recipe.

    Attributes:
        name: the recipe's name.
        task: class of the task.
        model: dataclass of what may be set of the model's configuration.
        values: the values of all arguments.
        found: the task, if it was found, and what is known of it.
        facts: what is known of a machine that was found, now or for an earlier run; empty for other tasks.
    """

    name: str
    description: str
    plugins: tuple[Plugin, ...]
    task: type[Task]
    model: type
    parser: Parser
    values: dict[str, Any]
    found: "Learned | None"
    facts: dict[str, str]


@dataclass(frozen=True)
class Asked:
    """What a command line says before it is known which arguments there are.

    Attributes:
        source: a recipe's name, file, folder or repository.
        plugins: files of plugins.
        task, write_states: what takes the place of the recipe's; None if nothing is said.
        encoding: a position encoding, with all that goes with it; None for the recipe's.
        learning: of a task that is to be found.
        words: all others.
    """

    source: str
    plugins: list[str]
    task: str | None
    write_states: bool | None
    encoding: str | None
    learning: Learning
    words: list[str]

    @classmethod
    def of(cls, arguments: list[str]) -> "Asked":
        """Read a command line.

        Raises:
            ValueError: there is no such recipe, or what is said of a task that is to be found is not legal.
        """
        source = DEFAULT_RECIPE
        if arguments and not arguments[0].startswith("-"):
            source, *arguments = arguments
            if is_repository(source):
                # Only a download needs what loads checkpoints.
                from longhand.hub_cards.checkpoints.load import fetch_recipe

                source = fetch_recipe(source)
        parser = Parser((Learning,))
        parser.add_argument("--plugin", nargs="+", action="extend", default=[])
        parser.add_argument("--task")
        parser.add_argument("--write_states", nargs="?", const=True, type=truth_value)
        parser.add_argument("--encoding")
        chosen, words = parser.parse_known_args(arguments)
        return cls(
            source=source,
            plugins=chosen.plugin,
            task=chosen.task,
            write_states=chosen.write_states,
            encoding=chosen.encoding,
            learning=_learning(chosen),
            words=words,
        )


@dataclass(frozen=True)
class Source:
    """A recipe and plugins.

    Attributes:
        file: the recipe's name, file or folder.
        name, description: of the recipe.
        arguments: what the recipe says of training.
        facts: what is known of a machine that was found for an earlier run.
        plugins: those that the command line names.
        needed: those that the recipe needs.
    """

    file: str
    name: str
    description: str
    arguments: Recipe
    facts: dict[str, str]
    plugins: list[Plugin]
    needed: list[Plugin]

    @classmethod
    def of(cls, asked: Asked) -> "Source":
        """Load plugins and the recipe, and make the tasks known that they define.

        Raises:
            ValueError: there is no such recipe or plugin, the recipe needs others, or its table is not legal.
        """
        plugins = [load_plugin(file) for file in asked.plugins]
        recipe = load_recipe(asked.source)
        needed = require_plugins(recipe, f"the recipe {asked.source}", lambda name: "read it, then pass it with --plugin")
        recipe.pop("plugin", None)
        name, description = recipe.pop("recipe", Path(asked.source).stem), recipe.pop("description", "")
        # How a construction was built says nothing of how to train.
        recipe.pop("command", None)
        facts = learned_facts(recipe) or {}
        if recipe.pop("learned", None):
            know_table(asked.source, recipe, facts)
        return cls(asked.source, name, description, recipe, facts, plugins, needed)


@dataclass(frozen=True)
class Subject:
    """What a run trains.

    Attributes:
        task: its name.
        run: the name of the run.
        description: of the run.
        facts: what is known of a machine that was found.
        found: the task, if it was found for this run.
    """

    task: str
    run: str
    description: str
    facts: dict[str, str]
    found: "Learned | None" = None

    def with_states(self) -> "Subject":
        """The task that writes its states too. A run that has the name of the task has the name of this one.

        Raises:
            ValueError: the task is no column task.
        """
        task = STATES + self.task
        if task_named(task) is None:
            raise ValueError(f"--write_states is for column tasks, and {self.task!r} is none")
        return replace(self, task=task, run=task if self.run == self.task else self.run)


def found_subject(asked: Asked, source: Source) -> Subject | None:
    """The task behind a function or examples, found now; None if none is asked for.

    Raises:
        ValueError: it cannot be found, or the recipe is not of a column task.
    """
    if not (asked.learning.function or asked.learning.examples):
        return None
    from longhand.hub_cards.training.found_task import find_asked

    _check_column_recipe(source.file, source.arguments, asked.task)
    settles = str(source.arguments["task"]).startswith(SETTLING)
    if settles and asked.write_states:
        raise ValueError(f"--write_states writes a pass more, and the encoder of {source.file} makes one: use columns")
    # An encoder that settles makes one pass.
    found = find_asked(asked.learning, False if settles else asked.write_states)
    task = (SETTLING if settles else "") + found.task.name
    described = found.report.facts.get(MEANING, "").partition("\n")[0].rstrip(".") or found.report.source
    description = f"{described}, as a machine that was found: {found.report.found}"
    return Subject(task, task, description, found.report.facts, found)


def own_subject(asked: Asked, source: Source) -> Subject | None:
    """The one column task of the plugins, in the place of a recipe's; None if there is none, or another is asked for.

    Raises:
        ValueError: the task disagrees with the examples that are given.
    """
    own = None if asked.task else _own_column_task(source.arguments, source.plugins)
    if own is None:
        return None
    from longhand.hub_cards.training.found_task import test_by_examples

    kind, states = find_task(own), asked.write_states
    test_by_examples(kind, asked.learning)
    if states is None and issubclass(kind, ColumnTask):
        states = own_layout(kind).states
    subject = Subject(own, own, source.description, source.facts)
    return subject.with_states() if states else subject


def named_subject(asked: Asked, source: Source) -> Subject:
    """The task that the command line names, or the recipe.

    Raises:
        ValueError: as `Subject.with_states`.
    """
    task = str(asked.task or source.arguments.get("task", DataArguments.task))
    subject = Subject(task, source.name, source.description, source.facts)
    return subject.with_states() if asked.write_states else subject


def read_arguments(arguments: list[str]) -> Given:
    """Read a recipe and a command line.

    Raises:
        ValueError: a recipe, plugin, task or argument is unknown, or a value has the wrong type; or the launcher sets
            something else.
    """
    asked = Asked.of(arguments)
    source = Source.of(asked)
    subject = own_subject(asked, source) or found_subject(asked, source) or named_subject(asked, source)
    return _read_values(asked, source, subject)


def _read_values(asked: Asked, source: Source, subject: Subject) -> Given:
    """Read the values of the arguments that a task has; those of the command line win over the recipe's.

    Raises:
        ValueError: as `read_arguments`.
    """
    task = find_task(subject.task)
    model, own = model_arguments(task()), task.family.training_arguments
    title = f"{subject.run}: {subject.description or 'a recipe without description'}"
    kinds = (task, DataArguments, model, *filter(None, [own]), RunArguments, Publishing)
    kinds += (Learning,) if issubclass(task, ColumnTask) else ()
    parser = Parser(kinds, usage=argparse.SUPPRESS, description=title)
    parser._optionals.title = f"format of the task {task.name}"
    words, unset = _take_unset(asked.words)
    recipe = {name: value for name, value in source.arguments.items() if value is not None and name not in unset}
    try:
        parser.set_defaults(**parser.read(_words(recipe)))
    except ValueError as error:
        raise ValueError(f"the recipe {source.file}: {error}") from error
    # Values of the recipe win over those that the task's search suggests.
    suggested = parser.make(task, parser.read(words)).suggested_arguments
    parser.set_defaults(**{name: value for name, value in suggested.items() if name not in recipe})
    if asked.encoding is not None:
        parser.set_defaults(**_fitting_encoding(asked.encoding, subject, parser, task, words))
    values = join_launched(parser.read(words), launched_arguments(os.environ), recipe, words) | {"task": task.name}
    given_range = any(word.startswith("--relation_range") for word in words)
    if "relation_range" in values and not given_range and not _reads_relations(values.get("position_encoding")):
        # The recipe's is for its own encoding. One that the command line gives is refused by the configuration.
        values["relation_range"] = None
    if issubclass(task, ColumnTask):
        values |= vars(asked.learning)
    plugins = tuple(dict.fromkeys([*source.plugins, *source.needed]))
    return Given(
        name=subject.run,
        description=subject.description,
        plugins=plugins,
        task=task,
        model=model,
        parser=parser,
        values=values,
        found=subject.found,
        facts=subject.facts,
    )


def _fitting_encoding(encoding: str, subject: Subject, parser: Parser, task: type[Task], words: list[str]) -> dict[str, Any]:
    """Return the values that go with a position encoding, see `fit_encoding`.

    Raises:
        ValueError: the models of the task have no such encodings, or the command line says another one.
    """
    if task.family.training_arguments is not PositionArguments:
        raise ValueError(f"--encoding is for decoders, and {subject.run} is a recipe of the family {task.family.name}")
    if any(word.partition("=")[0] == "--position_encoding" for word in words):
        raise ValueError("--encoding sets position_encoding and what goes with it: leave out --position_encoding")
    values = parser.read(words)
    return fit_encoding(encoding, cast(DecoderTask, parser.make(task, values)), values)


def _reads_relations(position_encoding: object) -> bool:
    """Whether an encoding reads relations of ids, so that a `relation_range` says something; True for no decoder."""
    encoding = POSITION_ENCODINGS.get(str(position_encoding))
    return encoding is None or (encoding.uses_pair_map and not encoding.reads_token_distances)


def _learning(chosen: argparse.Namespace) -> Learning:
    """Return what the command line says of a task that is to be found.

    Raises:
        ValueError: a value is out of bounds, or an argument is given that is not used.
    """
    learning = Learning(**{option.name: getattr(chosen, option.name) for option in fields(Learning)})
    for option in fields(Learning):
        value = getattr(learning, option.name)
        _check_bounds(option, value)
        of = OF_ONE.get(option.name, ("function", "examples"))
        needed = "function" if learning.function else "examples" if learning.examples else None
        if value != _default(option) and needed not in of:
            raise ValueError(f"--{option.name} needs {' or '.join(f'--{one}' for one in of)}")
    if learning.base != 10 and (learning.alphabet or learning.domain):
        raise ValueError("--base is for numbers, and --alphabet and --domain are for texts: give one of them")
    return learning


def _check_column_recipe(source: str, recipe: Mapping[str, object], task: str | None) -> None:
    """Raise ValueError unless a recipe is of a column task, in whose place the task that is found comes."""
    kind = task_named(str(recipe.get("task")))
    if task or kind is None or not issubclass(kind, ColumnTask):
        raise ValueError(
            f"--function and --examples need a recipe of column tasks, such as columns, and no --task; got {task or source}"
        )


def _take_unset(words: list[str]) -> tuple[list[str], set[str]]:
    """Return a command line without the arguments whose value is `unset`, and the names of these arguments."""
    kept: list[str] = []
    unset = set()
    for word in words:
        name, _, value = word.partition("=")
        if name.startswith("--") and value == UNSET:
            unset.add(name.removeprefix("--"))
        elif word == UNSET and kept and kept[-1].startswith("--"):
            unset.add(kept.pop().removeprefix("--"))
        else:
            kept.append(word)
    return kept, unset


def _own_column_task(recipe: Recipe, plugins: list[Plugin]) -> str | None:
    """Return the one column task that plugins define, which takes the place of a recipe's column task; None if none does."""
    name = str(recipe.get("task"))
    kind = task_named(name)
    if kind is None or not issubclass(kind, ColumnTask):
        return None
    modules = [f"{PACKAGE}.{Path(plugin.name).stem}" for plugin in plugins]
    own = [own for own, task in TASKS.items() if task.__module__ in modules and issubclass(task, ColumnTask)]
    prefix = next((prefix for prefix in (SETTLING, STATES) if name.startswith(prefix)), "")
    return prefix + own[0] if len(own) == 1 else None


def _words(recipe: Recipe) -> list[str]:
    """Return the command line that says what a recipe says."""
    words = []
    for name, value in recipe.items():
        values = value if isinstance(value, list) else [value]
        if not isinstance(name, str) or not values or None in values:
            raise ValueError(f"{name} must have a value, got {value!r}")
        words += [f"--{name}", *(json.dumps(one) if isinstance(one, dict) else str(one) for one in values)]
    return words


@dataclass(frozen=True)
class Run:
    """Everything that a run is made from, checked as far as possible without starting it.

    Attributes:
        folder: where it writes.
        training_collator: makes the inputs for training.
        best_by_loss: whether the loss chooses the best checkpoint, instead of exact match.
        publishing: where the finished run goes on the Hub; None if nowhere.
        recipe: what recipe.yaml says of it: all that decides its weights and results.
        found: the task, if it was found for this run, and what is known of it.
        write_plugin: the file that the task is to be written into; None if the run is to be made.
    """

    name: str
    folder: Path
    task: Task
    config: PreTrainedConfig
    data: DataArguments
    training_collator: Callable[..., Batch]
    training: RunArguments
    best_by_loss: bool
    publishing: Publishing | None
    recipe: Recipe
    plugins: tuple[Plugin, ...]
    found: "Learned | None"
    write_plugin: str | None


def parse_run(arguments: list[str]) -> Run:
    """Return the checked run of a recipe and a command line, the latter winning.

    Raises:
        ValueError: a recipe, argument or value is unknown or not legal.
    """
    given = read_arguments(arguments)
    make, values = given.parser.make, given.values
    folder = Path("outputs", given.name) if values["output_dir"] is None else Path(values["output_dir"])
    if not folder.name.strip():
        raise ValueError(f"output_dir must be the name of a folder, got {values['output_dir']!r}")
    task, data, model = make(given.task, values), make(DataArguments, values), make(given.model, values)
    for part in task.parts:
        part.check_worked_examples()
    family = task.family
    positions = family.training_arguments and make(family.training_arguments, values)
    is_decoder = isinstance(positions, PositionArguments)
    faults = encoding_faults(values) if is_decoder else []
    try:
        config = family.model_class.config_class(**{**vars(model), **family.config_options(task, positions)})
    except (StrictDataclassError, ValueError) as error:
        own_words = isinstance(error, StrictDataclassFieldValidationError)
        faults.insert(0, one_line(error if own_words else error.__cause__ or error))
    if faults:
        raise ValueError("; ".join(faults) + (hint(cast(DecoderTask, task), values) if is_decoder else ""))
    recorded = {
        option.name: values[option.name]
        for option in fields(RunArguments)
        if option.name in given.parser.fields and option.name not in PRIVATE_ARGUMENTS
        if not option.metadata.get("usual") or values[option.name] != _default(option)
    }
    training = make(RunArguments, {**values, "output_dir": str(folder / CHECKPOINTS_FOLDER)})
    _check_values(data, training)
    if training.sharper_scores and not getattr(config, "qk_norm", False):
        raise ValueError("sharper_scores multiplies the factors of scores, which only a decoder with --qk_norm True has")
    _derive(training, data)
    collator = family.training_collator(config, positions)
    plugins = {"plugin": {plugin.name: plugin.sha256 for plugin in given.plugins}} if given.plugins else {}
    learned = {"learned": given.facts} if given.facts else {}
    described = {"recipe": given.name, "description": given.description, **plugins, **learned, **task.describe()}
    own = {**vars(data), **(vars(positions) if positions else {}), **vars(model)}
    recipe = json.loads(json.dumps({**described, **own, **recorded}))
    place = make(Publishing, values) if values["push_to_hub"] else None
    return Run(
        name=given.name,
        folder=folder,
        task=task,
        config=config,
        data=data,
        training_collator=collator,
        training=training,
        best_by_loss=values["metric_for_best_model"] == "loss",
        publishing=place,
        recipe=recipe,
        plugins=given.plugins,
        found=given.found,
        write_plugin=values.get("write_plugin"),
    )


def _derive(training: RunArguments, data: DataArguments) -> None:
    """Set what Trainer reads and no recipe says, since it follows from the arguments and from the number of processes."""
    training.per_device_train_batch_size = training.batch_size // (
        training.world_size * training.gradient_accumulation_steps
    )
    if training.n_gpu > 1:
        # Trainer would divide every batch among all GPUs of this process, which is slow; `train.py` says what does it well.
        training._n_gpu = 1
    training.save_steps = training.eval_steps
    training.eval_strategy = training.save_strategy = IntervalStrategy.STEPS
    training.metric_for_best_model = cast(Any, BEST)
    training.greater_is_better = True
    # Every parameter of every recipe gets a gradient in every step, so that nobody has to look for those that do not.
    training.ddp_find_unused_parameters = False
    # A loss that is not finite ends the run. Trainer would look for one once more, and leave it out of its log.
    training.logging_nan_inf_filter = False


def _check_values(data: DataArguments, training: RunArguments) -> None:
    if data.min_length > data.max_length:
        raise ValueError(f"need min_length <= max_length, got {data.min_length} and {data.max_length}")
    if training.decay_steps and (warmup := training.get_warmup_steps(training.decay_steps)) > training.decay_steps:
        raise ValueError(f"decay_steps must not end before the {warmup} steps of warm-up, got {training.decay_steps}")
    if training.practise_worst and training.eval_steps >= training.max_steps:
        raise ValueError(
            f"practise_worst begins at the first validation, so eval_steps must be below max_steps, got "
            f"{training.eval_steps} and {training.max_steps}"
        )
    if training.fp16 and training.device.type == "cpu":
        raise ValueError("fp16 needs a GPU: on a CPU, use bf16 with use_cpu")
    if (started := int(os.environ.get("WORLD_SIZE") or 1)) > training.world_size:
        raise ValueError(f"the launcher started {started} processes, but torch has no GPUs for them: add --use_cpu True")
