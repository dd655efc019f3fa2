"""What a training run can be told: the fields of its arguments, and the parser that is made of them.

An argument is one field of a dataclass: its type, default, meaning and bounds give the command line, the help and the
checks. `arguments.py` reads them.
"""

# Used by: arguments.py, trainer.py, hub_cards/publishing, hub_cards/research, train.py. Changed freely.

import argparse
import inspect
import json
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import Field, dataclass, fields, make_dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, cast

from transformers import HfArgumentParser, TrainingArguments
from transformers.hf_argparser import string_to_bool
from transformers.utils.chat_template_utils import parse_google_format_docstring

from longhand.data.proofs.check import ROUNDING_FACTOR
from longhand.data.proofs.provable import LARGEST_RATIO
from longhand.data.tasks.task import Task
from longhand.hub_cards.options import BOUNDS, NumbersAction, OneLineParser, check_bounds, default_of, numbers_of, option
from longhand.hub_cards.training.launcher import DIVIDING_ARGUMENTS, refuse_dividing

UNSET = "unset"
"""As the value on a command line: what a recipe gives is taken back, and the argument's own default holds."""

LARGEST_SEED = 2**32 - 1


def argument(
    default: object, meaning: str, private: bool = False, needs: Mapping[str, object] | None = None, **about: Any
) -> Any:
    """Return the field of an argument.

    Args:
        needs: the values that other arguments must have if this one is set.
        private: whether the argument says where a run is made or followed, and nothing of its weights and results. Recipes
            and cards leave it out.
        about: `usual`, whether recipes leave its default out; and bounds, as of `option`.
    """
    limits = "".join(f"; {BOUNDS[name][0]} {bound}" for name, bound in about.items() if name in BOUNDS)
    return option(f"{meaning}{limits}", default, private=private, needs=needs or {}, **about)


def of_trainer(name: str, meaning: str, private: bool = False, **bounds: float) -> Any:
    """Return the field of an argument that keeps the default of `TrainingArguments`; recipes leave this value out."""
    default = default_of(TrainingArguments.__dataclass_fields__[name])
    return argument(default, meaning, private, None, usual=True, **bounds)


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


LISTS_OF_LENGTHS = ("validation_lengths", "test_lengths")
"""Arguments that are lists of lengths, in the form that all commands take, see `NumbersAction`."""


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
    practise_worst: int | None = argument(
        None,
        "at every validation, search the trained sizes for so many problems with the lowest leads; until the next one, they "
        "are one batch in four",
        needs={"num_train_samples": None, "dataloader_num_workers": 0},
        usual=True,
        least=1,
        most=1000,
    )
    sharper_scores: float | None = argument(
        None,
        "by how much the factors of the scores are multiplied in the course of training, evenly between a quarter and three "
        "quarters of the steps; for a decoder with qk_norm",
        usual=True,
        above=1,
        most=100,
    )
    test_worst: float | None = argument(
        None, "seconds to search each tested length of the finished model for the worst problem", usual=True, above=0
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
    torch_compile_mode: Literal["default", "reduce-overhead", "max-autotune"] | None = of_trainer(
        "torch_compile_mode",
        "how to compile it: reduce-overhead captures the kernels of a step in graphs of CUDA, one for each shape of a batch",
    )
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
    seconds: float = argument(60.0, "seconds of processor time in which the task must be found", private=True, above=0)
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
    options = []
    for declared in map(copy, fields(config_class)):
        if declared.name in meanings and declared.name not in given:
            declared.metadata = MappingProxyType({"help": meanings[declared.name]})
            options.append((declared.name, config_class.__annotations__[declared.name], declared))
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
        # As in transformers, a script may give a value again to change what it begins with. A list of lengths is refused:
        # two of them could be meant as one.
        self.register("action", None, argparse._StoreAction)
        for kind in kinds:
            inherited = TrainingArguments.__dataclass_fields__
            self.fields |= {field.name: field for field in fields(kind) if inherited.get(field.name) is not field}
            self._add_dataclass_arguments(cast(Any, kind))
        for action in self._actions:
            if action.type is string_to_bool:
                action.type = truth_value

    @staticmethod
    def _parse_dataclass_field(parser, field):
        if field is TrainingArguments.__dataclass_fields__.get(field.name):
            return
        if field.name in LISTS_OF_LENGTHS:
            meaning = field.metadata["help"].replace("%", "%%")
            parser.add_argument(
                f"--{field.name}", action=NumbersAction, type=numbers_of, default=default_of(field), help=meaning
            )
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
            self.refuse_unknown(name)
        values, faults = vars(given), []
        check_bounds(self.fields.values(), values)
        for declared in self.fields.values():
            for name, value in declared.metadata.get("needs", {}).items():
                if values[declared.name] and values[name] != value:
                    needed = UNSET if value is None else value
                    faults.append(f"{declared.name} needs {name} {needed}, got {values[name]}")
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

    _types: ClassVar = {int: "INTEGER", float: "NUMBER", numbers_of: "INTEGER", truth_value: "{True,False}"}
    _types |= {json.loads: "JSON"}

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=6, width=118)

    def _format_action_invocation(self, action):
        legal = f"{{{','.join(map(str, action.choices))}}}" if action.choices else self._types.get(action.type, "TEXT")
        is_list = action.nargs == "+" or isinstance(action, NumbersAction)
        return f"{action.option_strings[0]} {legal}{' [...]' if is_list else ''}"

    def _get_help_string(self, action):
        value = action.default
        shown = UNSET if value is None else " ".join(map(str, value)) if isinstance(value, list) else value
        return f"{action.help.rstrip('.')} (default: {str(shown).replace('%', '%%')})"
