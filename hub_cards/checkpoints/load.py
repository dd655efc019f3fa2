"""The one loader of checkpoints: what MODEL names on a command line, as one object that is ready to answer.

A repository on the Hub becomes a folder first, its snapshot in the Hub's cache. From there on all checkpoints are folders.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HFValidationError, HTTPError
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from longhand.data import TASKS, Task
from longhand.data.certificates import hash_weights
from longhand.data.families import DECODER, ENCODER
from longhand.data.plugins import require_plugins
from longhand.data.tasks.registry import register_table, task_from_recipe
from longhand.hub_cards.checkpoints.certificate_file import fitting_certificate
from longhand.hub_cards.checkpoints.files import (
    ADAPTER_CONFIG,
    ANSWER_FILES,
    BEST_FOLDER,
    CERTIFICATE_FILE,
    Checkpoint,
    check_side_files,
    check_weights,
    checkpoint_name,
)
from longhand.hub_cards.checkpoints.zoo import is_in_zoo, list_zoo
from longhand.hub_cards.console import one_line
from longhand.hub_cards.files import read_object
from longhand.hub_cards.recipes import RECIPE_FILE, read_recipe
from longhand.modeling.inputs import TaskConfig

ADAPTER_WEIGHTS = "adapter_model.safetensors"
WEIGHTS = "*.safetensors"


class OtherModel(ValueError):
    """A model of no family of this package.

    Attributes:
        pretrained: what other tools load it by: a folder or a Hub id; an adapter follows its base as `,peft=ADAPTER`.
    """

    def __init__(self, pretrained: str, model_type: str):
        super().__init__(f"{pretrained} is a {model_type!r} model, and no checkpoint of this package")
        self.pretrained, self.model_type = pretrained, model_type


def load_checkpoint(
    source: str, revision: str | None = None, task: str | None = None, trust_remote_code: bool = False
) -> Checkpoint:
    """Load a folder or a Hub repository, onto the accelerator if there is one. An adapter is merged into its base.

    Args:
        source: folder or `user/name`.
        revision: branch, tag or commit on the Hub.
        task: name of the task, for a checkpoint that has no recipe and whose configuration names no task; its format is
            then the default. Or a part of the checkpoint's task, to be tested alone.
        trust_remote_code: run the copies, beside the checkpoint, of plugins that it needs and that are not loaded.

    Raises:
        OtherModel: it is a model of others.
        ValueError: `source` is neither, is damaged, its task is unknown, or it needs a plugin that is not loaded.
    """
    folder = fetch(source, revision)
    recipe = read_recipe(folder / RECIPE_FILE) if (folder / RECIPE_FILE).is_file() else {}
    if (folder / ADAPTER_CONFIG).is_file():
        checkpoint = _load_adapted(source, folder, recipe, task, trust_remote_code)
    else:
        checkpoint = _load_whole(source, folder, recipe, task, trust_remote_code)
    weights = hash_weights(checkpoint.model)
    certificate, fault = None, ""
    try:
        certificate = fitting_certificate(folder, weights, checkpoint.own_task or checkpoint.task)
    except (ValueError, OSError) as error:
        fault = one_line(error)
    return replace(checkpoint, weights=weights, certificate=certificate, fault=fault)


def fetch(source: str, revision: str | None = None) -> Path:
    """Return the folder of a checkpoint; for a repository, its snapshot in the Hub's cache, after a download.

    Without the Hub, such as with HF_HUB_OFFLINE=1, the snapshot has what is cached.

    Raises:
        OtherModel: it is a model of others, whose weights are not downloaded.
        ValueError: `source` is neither a folder nor a repository, or its weights are missing or damaged.
    """
    folder = Path(source)
    if is_folder := folder.is_dir():
        if revision is not None:
            raise ValueError(f"--revision {revision} is for a repository on the Hub, but {source} is a folder")
    else:
        folder = _snapshot(
            source, revision, [*(name for name in ANSWER_FILES if name != WEIGHTS), RECIPE_FILE, CERTIFICATE_FILE]
        )
    config = folder / "config.json"
    if not config.is_file() and not (folder / ADAPTER_CONFIG).is_file():
        raise ValueError(f"{source} is not a checkpoint: it holds no config.json" + ("" if is_folder else f" in {folder}"))
    check_side_files(folder)
    if config.is_file() and not (folder / RECIPE_FILE).is_file():
        model_type = read_object(config).get("model_type")
        classes: list[Any] = [DECODER.model_class, ENCODER.model_class]
        if isinstance(model_type, str) and model_type not in {one.config_class.model_type for one in classes}:
            raise OtherModel(source, model_type)
    if not is_folder:
        _snapshot(source, revision, [WEIGHTS])
    if config.is_file():
        check_weights(folder)
    return folder


def _snapshot(source: str, revision: str | None, patterns: list[str]) -> Path:
    """Download files of a repository into the Hub's cache, or find them there; return the folder that holds them."""
    elsewhere = [f"{BEST_FOLDER}/*", "checkpoint-*/*"]
    try:
        place = snapshot_download(source, revision=revision, allow_patterns=patterns, ignore_patterns=elsewhere)
    except HFValidationError as error:
        what = "it is a file" if Path(source).exists() else "there is no such folder"
        raise ValueError(f"MODEL {source!r} is neither a folder nor a repository: {what}, and {one_line(error)}") from error
    except (HTTPError, OSError) as error:
        close = get_close_matches(source, list_zoo(), n=3)
        meant = f"did you mean {' or '.join(close)} of eval.py --list? " if close else ""
        raise ValueError(
            f"MODEL {source!r}: {meant}there is no such folder, and {constants.ENDPOINT} does not give it: {one_line(error)}"
        ) from error
    return Path(place)


def _load_whole(source: str, folder: Path, recipe: dict[str, Any], task: str | None, trust_remote_code: bool) -> Checkpoint:
    with _loading(source, "config.json"):
        config: Any = AutoConfig.from_pretrained(folder)
        named = getattr(config, "task", None) or {}
        if table := getattr(config, "transducer", None):
            # A task that travels as a table needs no plugin.
            register_table(str(named.get("task")), table)
    if not table:
        _load_plugins(recipe, source, folder, trust_remote_code)
    described, file = (recipe, RECIPE_FILE) if "task" in recipe else (recipe | named, "config.json")
    chosen = described.get("task", task)
    if not isinstance(chosen, str) or chosen not in TASKS:
        raise ValueError(
            f"task of {source}: got {chosen!r}, choose one of {', '.join(TASKS)} with --task, or in a {RECIPE_FILE} with "
            "`task: NAME`"
        )
    try:
        trained = task_from_recipe({**described, "task": chosen})
    except ValueError as error:
        raise ValueError(f"{source}, {file}: {error}") from error
    parts = {part.name: part for part in (trained, *trained.parts)}
    if task is not None and task not in parts:
        raise ValueError(
            f"--task {task} is for a checkpoint that names no task: {source} is of task {described['task']!r} ({file})"
        )
    model = _load_model(source, folder, config, trained)
    return Checkpoint(
        name=checkpoint_name(source),
        folder=folder,
        kind="hub" if not Path(source).is_dir() else "zoo" if is_in_zoo(folder) else "folder",
        model=model.eval().to("cuda" if torch.cuda.is_available() else "cpu"),
        tokenizer=_load_tokenizer(source, folder, trained),
        task=parts[task or chosen].for_evaluation,
        own_task=trained if "task" in described else None,
        recipe=recipe,
        weights="",
    )


def _load_adapted(source: str, folder: Path, own: dict[str, Any], task: str | None, trust_remote_code: bool) -> Checkpoint:
    """Load the base of an adapter of PEFT, such as LoRA, and merge the adapter into it. The task is the base's.

    Args:
        own: the adapter's recipe; empty if it has none.
    """
    named = read_object(folder / ADAPTER_CONFIG)
    place, revision = named.get("base_model_name_or_path"), named.get("revision")
    if not isinstance(place, str) or not place:
        raise ValueError(f"{source}, {ADAPTER_CONFIG}: base_model_name_or_path must be a folder or USER/NAME, got {place!r}")
    if (folder / "config.json").is_file():
        raise ValueError(f"{source} holds a checkpoint and an adapter (config.json, {ADAPTER_CONFIG}): keep one of them")
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ValueError(f"{source} is an adapter without {ADAPTER_WEIGHTS}: other formats of weights are not read")
    if find_spec("peft") is None:
        raise ValueError(f"{source} is an adapter of PEFT, which is not installed: pip install peft")
    try:
        base = load_checkpoint(place, revision, task, trust_remote_code)
        if (base.folder / ADAPTER_CONFIG).is_file():
            raise ValueError(f"{place} is an adapter itself")
        trained = base.own_task or base.task
        if "task" in own and (wanted := task_from_recipe(base.recipe | own)) != trained:
            raise ValueError(f"its {RECIPE_FILE} names the task {wanted.describe()}, its base {trained.describe()}")
    except OtherModel as error:
        raise OtherModel(f"{error.pretrained},peft={source}", error.model_type) from error
    except ValueError as error:
        raise ValueError(f"{source} is an adapter of {place}: {error}") from error
    with _loading(source, f"{ADAPTER_CONFIG} or {ADAPTER_WEIGHTS}"), warnings.catch_warnings():
        # PEFT asks for names that transformers is about to change.
        warnings.simplefilter("ignore", FutureWarning)
        model = _merge(folder, base.model).eval()
    _check_finite(source, model)
    kind = "folder" if Path(source).is_dir() else "hub"
    recipe = {name: value for name, value in base.recipe.items() if name not in ("min_length", "max_length")} | own
    return replace(base, name=checkpoint_name(source), folder=folder, kind=kind, model=model, recipe=recipe)


def _merge(folder: Path, model: PreTrainedModel) -> PreTrainedModel:
    """Return the model with the changes of an adapter in its own weights; the model given is changed.

    Raises:
        ValueError: the adapter does not fit the model, or cannot be merged into weights.
    """
    import peft
    from peft.tuners.tuners_utils import BaseTuner

    config = peft.PeftConfig.from_pretrained(str(folder))
    config.inference_mode = True
    kind = "CAUSAL_LM" if model.can_generate() else "TOKEN_CLS"
    # PEFT calls a model of any kind FEATURE_EXTRACTION.
    if config.task_type not in (None, "FEATURE_EXTRACTION", kind):
        raise ValueError(f"its task_type is {config.task_type}, but a {type(model).__name__} is for {kind}")
    adapted = peft.get_peft_model(model, config)
    if not isinstance(adapted.base_model, BaseTuner):
        raise ValueError(f"an adapter of the kind {config.peft_type.value} cannot be merged into weights")
    weights = load_file(folder / ADAPTER_WEIGHTS)
    tied = getattr(model.config, "tie_word_embeddings", False)
    if tied and any("embed_tokens" in name or "lm_head" in name for name in weights):
        raise ValueError("it changes embeddings that are tied to the output matrix, so it cannot be merged into weights")
    missing = sorted(peft.get_peft_model_state_dict(adapted, save_embedding_layers=False).keys() - weights.keys())
    unexpected = sorted(peft.set_peft_model_state_dict(adapted, weights).unexpected_keys)
    if missing or unexpected:
        raise ValueError(f"it does not fit its base: weights differ ({', '.join([*missing, *unexpected][:3])}, ...)")
    return adapted.merge_and_unload(safe_merge=True)


def _load_plugins(recipe: dict[str, Any], source: str, folder: Path, trust_remote_code: bool) -> None:
    def advise(name: str) -> str:
        return f"read it, then pass --plugin {folder / name} (or --trust_remote_code to run the copy beside the checkpoint)"

    require_plugins(recipe, source, advise, folder.joinpath if trust_remote_code else None)


def _load_model(source: str, folder: Path, config: PreTrainedConfig, task: Task) -> PreTrainedModel:
    """Load the model of a task, onto the CPU.

    Raises:
        ValueError: it is damaged, or made for another task or format.
    """
    model_class: Any = task.family.model_class
    with _loading(source, "config.json, generation_config.json or the weights"):
        own = model_class.config_class
        if not isinstance(config, own):
            raise ValueError(
                f"it is a {config.model_type!r} model, but the task {task.name!r} is for {own.model_type!r} ones"
            )
        _check_same_task(config, task)
        task.family.check_config(task, config)
        model, report = model_class.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
    lack, more = "lack what config.json names", "hold what config.json does not name"
    for keys, said in (("missing_keys", lack), ("mismatched_keys", lack), ("unexpected_keys", more)):
        if names := sorted(map(str, report[keys])):
            raise ValueError(f"{source} is damaged: its weights files {said} ({', '.join(names)})")
    _check_finite(source, model)
    # A checkpoint may ask for other outputs than those that are read here by name.
    model.config.update({"return_dict": True, "output_attentions": False, "output_hidden_states": False})
    if model.can_generate():
        model.generation_config.return_dict_in_generate = False
    if isinstance(model.config, TaskConfig):
        # Checkpoints from before these fields check prompts too.
        options = task.family.format_options(task)
        model.config.update({name: value for name, value in options.items() if getattr(model.config, name) is None})
    return model


def _check_finite(source: str, model: PreTrainedModel) -> None:
    """Raise ValueError if weights of a model are not finite."""
    if broken := [name for name, weights in model.state_dict().items() if not weights.isfinite().all()]:
        raise ValueError(f"{source} is damaged: weights in .safetensors files are NaN or infinite ({', '.join(broken)})")


def _check_same_task(config: PreTrainedConfig, task: Task) -> None:
    """Raise ValueError if a configuration names another task or format."""
    named, described = getattr(config, "task", None) or {}, task.describe()
    if different := [name for name, value in named.items() if name not in described or described[name] != value]:
        raise ValueError(
            f"config.json is of another task or format ({', '.join(different)}): it names {named}, {RECIPE_FILE} or --task "
            f"names {described}"
        )


def _load_tokenizer(source: str, folder: Path, task: Task) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a task; without one in the folder, it is the task's own.

    Raises:
        ValueError: it is damaged, or made for another task.
    """
    if not (folder / "tokenizer.json").exists():
        return task.family.tokenizer(task)
    with _loading(source, "tokenizer.json or tokenizer_config.json"):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        _check_tokenizer(tokenizer, task)
    return tokenizer


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
def _loading(source: str, files: str) -> Iterator[None]:
    """Raise ValueError that names the checkpoint and these files if they cannot be loaded."""
    try:
        yield
    # Libraries raise whatever their code meets in a damaged file; tokenizers also panics, which is no Exception.
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{source} cannot be loaded: {one_line(error)} ({files})") from error
