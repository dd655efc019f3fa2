"""A recipe and a command line become one checked `Run`; `fields.py` says which arguments there are."""

# Used by: run_folder.py, search_report.py, trainer.py, worst_practice.py, hub_cards, hub_cards/research,
# hub_cards/research/gpu, hub_cards/research/structured, train.py. Changed freely.

import argparse
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from huggingface_hub.errors import StrictDataclassError, StrictDataclassFieldValidationError
from transformers import PreTrainedConfig
from transformers.trainer_utils import IntervalStrategy

from longhand.data.families import PositionArguments
from longhand.data.formatting import Batch
from longhand.data.tasks.column_task import MEANING, SETTLING, STATES, ColumnTask
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.plugins import PACKAGE, Plugin, load_plugin, require_plugins
from longhand.data.tasks.registry import TASKS, find_task, task_named
from longhand.data.tasks.task import Task
from longhand.hub_cards.commands import one_line
from longhand.hub_cards.options import check_bounds
from longhand.hub_cards.recipes import Recipe, is_repository, know_table, learned_facts, load_recipe
from longhand.hub_cards.training.encodings import encoding_faults, fit_encoding, hint
from longhand.hub_cards.training.fields import (
    OF_ONE,
    PRIVATE_ARGUMENTS,
    UNSET,
    DataArguments,
    Learning,
    Parser,
    Publishing,
    RunArguments,
    model_arguments,
    truth_value,
)
from longhand.hub_cards.training.launcher import join_launched, launched_arguments
from longhand.modeling.position_encodings import POSITION_ENCODINGS

if TYPE_CHECKING:
    from longhand.data.learning.report import Learned

DEFAULT_RECIPE = "addition"
CHECKPOINTS_FOLDER = "checkpoints"
LENGTHS = {"validation_lengths", "test_lengths"}
BEST = "eval_generalization"
"""The metric of the best checkpoint: exact match beyond the trained sizes, among equals the share of right tokens; or the
loss, negative, see `metric_for_best_model`."""


@dataclass(frozen=True)
class GivenArguments:
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
    task_name = None if asked.task else _own_column_task(source.arguments, source.plugins)
    if task_name is None:
        return None
    from longhand.hub_cards.training.found_task import test_by_examples

    kind, states = find_task(task_name), asked.write_states
    test_by_examples(kind, asked.learning)
    if states is None and issubclass(kind, ColumnTask):
        from longhand.data.tasks.written_states import own_layout

        states = own_layout(kind).states
    subject = Subject(task_name, task_name, source.description, source.facts)
    return subject.with_states() if states else subject


def named_subject(asked: Asked, source: Source) -> Subject:
    """The task that the command line names, or the recipe.

    Raises:
        ValueError: as `Subject.with_states`.
    """
    task = str(asked.task or source.arguments.get("task", DataArguments.task))
    subject = Subject(task, source.name, source.description, source.facts)
    return subject.with_states() if asked.write_states else subject


def read_arguments(arguments: list[str]) -> GivenArguments:
    """Read a recipe and a command line.

    Raises:
        ValueError: a recipe, plugin, task or argument is unknown, or a value has the wrong type; or the launcher sets
            something else.
    """
    asked = Asked.of(arguments)
    source = Source.of(asked)
    subject = own_subject(asked, source) or found_subject(asked, source) or named_subject(asked, source)
    return _read_values(asked, source, subject)


def _read_values(asked: Asked, source: Source, subject: Subject) -> GivenArguments:
    """Read the values of the arguments that a task has; those of the command line win over the recipe's.

    Raises:
        ValueError: as `read_arguments`.
    """
    task = find_task(subject.task)
    model, family_arguments = model_arguments(task()), task.family.training_arguments
    title = f"{subject.run}: {subject.description or 'a recipe without description'}"
    kinds = (task, DataArguments, model, *filter(None, [family_arguments]), RunArguments, Publishing)
    kinds += (Learning,) if issubclass(task, ColumnTask) else ()
    parser = Parser(kinds, usage=argparse.SUPPRESS, description=title)
    parser._optionals.title = f"format of the task {task.name}"
    words, unset = _take_unset(asked.words)
    recipe = {name: value for name, value in source.arguments.items() if value is not None and name not in unset}
    try:
        parser.set_defaults(**parser.read(_words(recipe)))
    except ValueError as error:
        raise ValueError(f"the recipe {source.file}: {error}") from error
    # Values of the recipe win over those that the task's search suggests; a recipe for any rule knows no rule's lengths.
    suggested = parser.make(task, parser.read(words)).suggested_arguments
    stated = recipe.keys() - LENGTHS if subject.found else recipe.keys()
    parser.set_defaults(**{name: value for name, value in suggested.items() if name not in stated})
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
    return GivenArguments(
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
    check_bounds(fields(Learning), vars(learning))
    for option in fields(Learning):
        value = getattr(learning, option.name)
        if value == "":
            raise ValueError(f"--{option.name} must not be empty")
        of = OF_ONE.get(option.name, ("function", "examples"))
        needed = "function" if learning.function else "examples" if learning.examples else None
        if value != option.default and needed not in of:
            raise ValueError(f"--{option.name} needs {' or '.join(f'--{option_name}' for option_name in of)}")
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
    defined = [task for task in TASKS if TASKS.module_of(task) in modules and issubclass(TASKS[task], ColumnTask)]
    prefix = next((prefix for prefix in (SETTLING, STATES) if name.startswith(prefix)), "")
    return prefix + defined[0] if len(defined) == 1 else None


def _words(recipe: Recipe) -> list[str]:
    """Return the command line that says what a recipe says."""
    words = []
    for name, value in recipe.items():
        values = value if isinstance(value, list) else [value]
        if not isinstance(name, str) or not values or None in values:
            raise ValueError(f"{name} must have a value, got {value!r}")
        words += [f"--{name}", *(json.dumps(item) if isinstance(item, dict) else str(item) for item in values)]
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
        if not option.metadata.get("usual") or values[option.name] != option.default
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
    chosen = {**vars(data), **(vars(positions) if positions else {}), **vars(model)}
    recipe = json.loads(json.dumps({**described, **chosen, **recorded}))
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
