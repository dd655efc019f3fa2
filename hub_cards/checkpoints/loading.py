"""The model, the tokenizer and the task of a checkpoint, loaded from files that may be damaged or of another task."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub.errors import HfHubHTTPError, HTTPError
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from longhand.data import Task
from longhand.data.tasks.registry import register_table
from longhand.hub_cards.checkpoints.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, Adapter
from longhand.hub_cards.console import one_line
from longhand.hub_cards.hub import find_file
from longhand.hub_cards.recipes import RECIPE_FILE
from longhand.modeling.configuration_checks import TaskConfig


def merge_adapter(source: str, adapter: Adapter, model: PreTrainedModel) -> PreTrainedModel:
    """Merge an adapter into the model of its base, for evaluation; the model given is changed.

    Raises:
        ValueError: the adapter does not fit the model or is damaged.
    """
    with loading(source, f"{ADAPTER_CONFIG} or {ADAPTER_WEIGHTS}"), warnings.catch_warnings():
        # PEFT asks for names that transformers is about to change.
        warnings.simplefilter("ignore", FutureWarning)
        merged = adapter.merge_into(model).eval()
    check_loaded(source, merged)
    return merged


def describe_task(recipe: dict[str, Any], source: str, revision: str | None = None) -> tuple[dict[str, Any], str]:
    """Return what names a checkpoint's task and format, its recipe or else its configuration, and the name of that file.

    Without a task in either, there is none in what is returned.
    """
    if "task" in recipe:
        return recipe, RECIPE_FILE
    with loading(source, "config.json"):
        named = getattr(AutoConfig.from_pretrained(source, revision=revision), "task", None) or {}
    return recipe | named, "config.json"


def register_own_table(source: str, revision: str | None = None) -> bool:
    """Make the task known that a checkpoint's configuration holds as a table; return False if it holds none.

    Such a checkpoint needs no plugin.

    Raises:
        ValueError: the configuration is damaged.
    """
    with loading(source, "config.json"):
        config = AutoConfig.from_pretrained(source, revision=revision)
        table, task = getattr(config, "transducer", None), getattr(config, "task", None) or {}
        if table is None or not isinstance(task.get("task"), str):
            return False
        register_table(task["task"], table)
    return True


def load_model(source: str, task: Task, revision: str | None = None) -> PreTrainedModel:
    """Load the model of a task from a folder or a Hub repository, onto the CPU.

    Raises:
        ValueError: it is damaged, or made for another task or format.
    """
    model_class: Any = task.family.model_class
    with loading(source, "config.json, generation_config.json or the weights"):
        config, own = AutoConfig.from_pretrained(source, revision=revision), model_class.config_class
        if not isinstance(config, own):
            raise ValueError(
                f"it is a {config.model_type!r} model, but the task {task.name!r} is for {own.model_type!r} ones"
            )
        _check_same_task(config, task)
        task.family.check_config(task, config)
        model, report = model_class.from_pretrained(
            source, revision=revision, use_safetensors=True, output_loading_info=True
        )
    check_loaded(source, model, report)
    if unexpected := sorted(report["unexpected_keys"]):
        listed = ", ".join(unexpected)
        raise ValueError(f"{source} is damaged: its weights files hold what config.json does not name ({listed})")
    # A checkpoint may ask for other outputs than those that are read here by name.
    model.config.update({"return_dict": True, "output_attentions": False, "output_hidden_states": False})
    if model.can_generate():
        model.generation_config.return_dict_in_generate = False
    if isinstance(model.config, TaskConfig):
        # Checkpoints from before these fields check prompts too.
        options = task.family.format_options(task)
        model.config.update({name: value for name, value in options.items() if getattr(model.config, name) is None})
    return model


def check_loaded(source: str, model: PreTrainedModel, report: dict[str, Any] | None = None) -> None:
    """Raise ValueError if weights of a model are missing, do not fit or are not finite.

    Args:
        report: the loading info of `from_pretrained`.
    """
    if report and (missing := sorted(map(str, (*report["missing_keys"], *report["mismatched_keys"])))):
        raise ValueError(f"{source} is damaged: its weights files lack what config.json names ({', '.join(missing)})")
    if broken := [name for name, weights in model.state_dict().items() if not weights.isfinite().all()]:
        raise ValueError(f"{source} is damaged: weights in .safetensors files are NaN or infinite ({', '.join(broken)})")


def load_tokenizer(source: str, task: Task, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a task from a folder or a Hub repository; without one there, it is the task's own.

    Raises:
        ValueError: it is damaged, or made for another task.
    """
    if not Path(source, "tokenizer.json").exists() and find_file(source, "tokenizer.json", revision) is None:
        return task.family.tokenizer(task)
    with loading(source, "tokenizer.json or tokenizer_config.json"):
        tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
        _check_tokenizer(tokenizer, task)
    return tokenizer


def _check_same_task(config: PreTrainedConfig, task: Task) -> None:
    """Raise ValueError if a configuration names another task or format."""
    named, described = getattr(config, "task", None) or {}, task.describe()
    if different := [name for name, value in named.items() if name not in described or described[name] != value]:
        raise ValueError(
            f"config.json is of another task or format ({', '.join(different)}): it names {named}, {RECIPE_FILE} or --task "
            f"names {described}"
        )


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, task: Task) -> None:
    """Raise ValueError unless a tokenizer reads and writes every character, in any company, as the task's own does."""
    own = task.family.tokenizer(task)
    characters = sorted(token for token in own.get_vocab() if len(token) == 1)
    text = "".join([*characters, *np.random.default_rng(0).choice(characters, 2_000)])
    expected, ids = own(text).input_ids, tokenizer(text).input_ids
    if ids != expected or tokenizer.decode(ids, skip_special_tokens=True) != own.decode(ids, skip_special_tokens=True):
        shown = "".join(characters)
        raise ValueError(f"it does not read or write {shown!r} as the task {task.name!r} does: save the tokenizer again")
    # A rule may change a longer text than the one that was tried.
    rules, owns = (_rules(one, set(characters)) for one in (tokenizer, own))
    if different := [name for name in owns if rules[name] != owns[name]]:
        raise ValueError(
            f"its rules are not those of the task {task.name!r} ({', '.join(different)}): without tokenizer.json and "
            "tokenizer_config.json, the task's own tokenizer is used"
        )


def _rules(tokenizer: PreTrainedTokenizerBase, characters: set[str]) -> dict[str, Any]:
    """What a tokenizer does with texts of these characters, without the padding and truncation of a call."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    rules["added_tokens"] = [token["content"] for token in rules["added_tokens"] if characters.issuperset(token["content"])]
    return {name: rule for name, rule in rules.items() if name not in ("padding", "truncation")}


@contextmanager
def loading(source: str, files: str) -> Iterator[None]:
    """Raise ValueError that names the checkpoint and these files if they cannot be loaded."""
    try:
        yield
    # Libraries raise whatever their code meets in a damaged file; tokenizers also panics, which is no Exception.
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        # transformers calls a file missing whose download was cut off.
        chain: list[BaseException] = [error]
        while (before := chain[-1].__cause__ or chain[-1].__context__) is not None:
            chain.append(before)
        cut = next((link for link in chain if isinstance(link, HTTPError) and not isinstance(link, HfHubHTTPError)), None)
        said = one_line(error) if cut is None else f"the download was cut off, try again: {one_line(cut)}"
        raise ValueError(f"{source} cannot be loaded: {said} ({files})") from error
