"""The loader of checkpoints, and what a checkpoint's folder holds, checked before any of it is shown or published."""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from longhand.data import TASKS, Task
from longhand.data.certificates import hash_weights
from longhand.data.tasks.registry import task_from_recipe
from longhand.hub_cards.runs.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, Adapter, find_adapter
from longhand.hub_cards.runs.certificates import CERTIFICATE_FILE, read_certificate
from longhand.hub_cards.runs.console import one_line
from longhand.hub_cards.runs.files import read_object
from longhand.hub_cards.runs.hub import check_repo_id, find_file, is_passing
from longhand.hub_cards.runs.plugins import require_plugins
from longhand.hub_cards.runs.recipes import RECIPE_FILE, read_recipe
from longhand.hub_cards.runs.results import RESULTS_FILE, Row, read_results
from longhand.modeling.configuration_checks import TaskConfig

PLOT_FILE = "accuracy.png"
BEST_FOLDER = "best"
JSON_FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    "model.safetensors.index.json",
)
TRAINING_ARGUMENTS = "training_args.bin"
"""A pickle that transformers' Trainer leaves beside the weights. It is never published."""

PICKLE_SUFFIXES = (".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth")


@dataclass(frozen=True)
class Checkpoint:
    """A model with what is needed to evaluate it.

    Attributes:
        name: how results refer to it: a Hub id, the name of a folder, or for `best` that of its run too.
        task: the task whose problems it is tested on.
        trained_lengths: shortest and longest trained operand in digits; None if unknown.
        run_seconds: seconds of its training and first evaluation; None if unknown.
        recipe: the arguments that made it; empty if it has no recipe.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: Task
    trained_lengths: tuple[int, int] | None
    run_seconds: float | None
    recipe: dict[str, Any] = field(default_factory=dict)

    def answer(self, question: str, streamer: Any = None) -> str:
        """Return the model's answer to a question, see `Family.answer`."""
        return self.task.family.answer(self.task, self.model, self.tokenizer, question, streamer)


def load_checkpoint(
    source: str, revision: str | None = None, task: str | None = None, trust_remote_code: bool = False
) -> Checkpoint:
    """Load a folder or a Hub repository, onto the accelerator if there is one. An adapter is merged into its base.

    Args:
        source: folder or `user/name`.
        revision: branch, tag or commit on the Hub.
        task: name of the task, for a checkpoint that has no recipe and whose configuration names no task; its format is
            then the default.
        trust_remote_code: run the copies, beside the checkpoint, of plugins that it needs and that are not loaded.

    Raises:
        ValueError: `source` is neither, is damaged, its task is unknown, or it needs a plugin that is not loaded.
    """
    recipe = find_recipe(source, revision)
    if (adapter := find_adapter(source, revision)) is not None:
        return _load_adapted(source, adapter, recipe, task, trust_remote_code)
    _load_plugins(recipe, source, revision, trust_remote_code)
    described, file = describe_task(recipe, source, revision)
    if task is not None and described.get("task", task) != task:
        raise ValueError(
            f"--task {task} is for a checkpoint that names no task: {source} is of task {described['task']!r} ({file})"
        )
    chosen = task or described.get("task")
    if not isinstance(chosen, str) or chosen not in TASKS:
        raise ValueError(f"task of {source}: got {chosen!r}, choose one of {', '.join(TASKS)} with --task")
    try:
        trained = task_from_recipe({**described, "task": chosen})
    except ValueError as error:
        raise ValueError(f"{source}, {file}: {error}") from error
    model = load_model(source, trained, revision)
    tokenizer = _load_tokenizer(source, trained, revision)
    return Checkpoint(
        name=checkpoint_name(source),
        model=model.eval().to("cuda" if torch.cuda.is_available() else "cpu"),
        tokenizer=tokenizer,
        task=trained.for_evaluation,
        trained_lengths=trained_lengths(recipe),
        run_seconds=_run_seconds(Path(source)),
        recipe=recipe,
    )


def _load_adapted(
    source: str, adapter: Adapter, own: dict[str, Any], task: str | None, trust_remote_code: bool
) -> Checkpoint:
    """Load the base of an adapter and merge the adapter into it. The task is the base's.

    Args:
        own: the adapter's recipe; empty if it has none.
    """
    try:
        if (adapter_of_adapter := find_adapter(adapter.base, adapter.base_revision)) is not None:
            raise ValueError(f"that is an adapter of {adapter_of_adapter.base} itself")
        where = (adapter.base, adapter.base_revision)
        made, _ = describe_task(find_recipe(*where), *where)
        base = load_checkpoint(*where, task or made.get("task", own.get("task")), trust_remote_code)
        made |= {"task": base.task.name}
        if "task" in own and (wanted := task_from_recipe(made | own)) != (trained := task_from_recipe(made)):
            raise ValueError(f"its {RECIPE_FILE} names the task {wanted.describe()}, its base {trained.describe()}")
    except ValueError as error:
        raise ValueError(f"{source} is an adapter of {adapter.base}: {error}") from error
    return replace(
        base,
        name=checkpoint_name(source),
        model=merge_adapter(source, adapter, base.model),
        trained_lengths=trained_lengths(own),
        run_seconds=_run_seconds(Path(source)),
        recipe=base.recipe | own,
    )


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
    if isinstance(model.config, TaskConfig):
        # Checkpoints from before these fields check prompts too.
        model.config.update(task.family.format_options(task))
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


def _load_tokenizer(source: str, task: Task, revision: str | None = None) -> PreTrainedTokenizerBase:
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


def find_recipe(source: str, revision: str | None) -> dict[str, Any]:
    """Return the recipe of a folder or repository; empty if it has none.

    Raises:
        ValueError: `source` is neither, or its weights are missing or damaged.
    """
    folder = Path(source)
    if folder.is_dir():
        if revision is not None:
            raise ValueError(f"--revision {revision} is for a repository on the Hub, but {source} is a folder")
        if (folder / "config.json").is_file():
            check_weights(folder)
        elif not (folder / ADAPTER_CONFIG).is_file():
            raise ValueError(f"{source} is not a checkpoint: it holds no config.json")
        check_side_files(folder)
        return read_recipe(folder / RECIPE_FILE) if (folder / RECIPE_FILE).is_file() else {}
    check_repository(source, revision)
    try:
        return read_recipe(Path(hf_hub_download(source, RECIPE_FILE, revision=revision)))
    except RemoteEntryNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"MODEL {source!r} cannot be read from the Hub: {one_line(error)}") from error


def _load_plugins(recipe: dict[str, Any], source: str, revision: str | None, trust_remote_code: bool) -> None:
    folder = Path(source)

    def advise(name: str) -> str:
        if folder.is_dir():
            return (
                f"read it, then pass --plugin {folder / name} (or --trust_remote_code to run the copy beside the checkpoint)"
            )
        return "read it on the Hub, then pass --trust_remote_code to run that copy (or --plugin with a copy of your own)"

    def fetch(name: str) -> Path:
        try:
            return folder / name if folder.is_dir() else Path(hf_hub_download(source, name, revision=revision))
        except OSError as error:
            raise ValueError(f"{source} lacks its plugin {name}: {one_line(error)}") from error

    require_plugins(recipe, source, advise, fetch if trust_remote_code else None)


_FOUND: set[tuple[str, str, str | None]] = set()
"""Repositories that were asked for in this process: endpoint, name and revision."""


def check_repository(source: str, revision: str | None) -> None:
    """Raise ValueError if what is not a folder is no repository either. Ask the Hub once; a download asks often."""
    api = HfApi()
    if (api.endpoint, source, revision) not in _FOUND:
        _ask_for_repository(api, source, revision)
        _FOUND.add((api.endpoint, source, revision))


def _ask_for_repository(api: HfApi, source: str, revision: str | None) -> None:
    try:
        check_repo_id(source)
    except ValueError as error:
        what = "it is a file" if Path(source).exists() else "there is no such folder"
        raise ValueError(f"MODEL {source!r} is neither a folder nor a repository: {what}, and the {error}") from error
    try:
        api.model_info(source, revision=revision)
    except RevisionNotFoundError as error:
        raise ValueError(f"--revision {revision} is no branch, tag or commit of {source}") from error
    except RepositoryNotFoundError as error:
        raise ValueError(
            f"MODEL {source!r} is neither a folder nor a repository: {api.endpoint} has no such model, or does not show it "
            "to this token"
        ) from error
    except (HTTPError, OfflineModeIsEnabled) as error:
        if isinstance(error, HfHubHTTPError) and is_passing(error.response.status_code):
            return
        cached = (try_to_load_from_cache(source, name, revision=revision) for name in ("config.json", ADAPTER_CONFIG))
        if any(isinstance(file, str) for file in cached):
            return
        raise ValueError(
            f"MODEL {source!r}: there is no such folder, and no such repository in the cache; {api.endpoint} cannot be "
            f"asked: {one_line(error)}"
        ) from error


def _run_seconds(folder: Path) -> float | None:
    """Return what train.py noted in the folder of a run, for its last checkpoint and for `best`."""
    file = (folder.parent if is_best(folder) else folder) / RESULTS_FILE
    rows = read_results(file) if file.is_file() else []
    return rows[0].get("run_seconds") if rows else None


def checkpoint_name(source: str) -> str:
    """Return a Hub id as it is, a folder's name, or `RUN/best`."""
    folder = Path(source)
    if not folder.is_dir():
        return source
    return "/".join(folder.resolve().parts[-2:]) if is_best(folder) else folder.resolve().name


def check_weights(folder: Path) -> None:
    """Raise ValueError if the folder's weights are missing, truncated or not in safetensors format."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} is not a checkpoint: it holds no .safetensors file")
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is not a regular file")
        try:
            with safe_open(file, framework="pt") as weights:
                weights.keys()
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is truncated or damaged ({error}): download or save it again") from error


def check_side_files(folder: Path) -> None:
    """Raise ValueError if a file beside the weights is no file, or not the JSON object that it must be.

    A file that is missing is legal.
    """
    for name in JSON_FILES:
        if os.path.lexists(folder / name):
            read_object(folder / name)
    for name in (RECIPE_FILE, RESULTS_FILE, CERTIFICATE_FILE, PLOT_FILE, "README.md"):
        if os.path.lexists(folder / name) and not (folder / name).is_file():
            raise ValueError(f"{folder / name} is not a regular file: remove it")
    for name in (BEST_FOLDER, ".eval_results"):
        if os.path.lexists(folder / name) and not (folder / name).is_dir():
            raise ValueError(f"{folder / name} is not a folder: remove it")


def trained_lengths(recipe: dict[str, Any]) -> tuple[int, int] | None:
    """Return the shortest and longest trained operand in digits; None if a recipe names none, as that of a construction."""
    if not {"min_length", "max_length"} <= set(recipe):
        return None
    return recipe["min_length"], recipe["max_length"]


@dataclass(frozen=True)
class CheckpointFolder:
    """What the card of a folder's model needs: the model's facts, and what was measured and proved of it.

    Attributes:
        name: how its results refer to it.
        parameters: number of weights.
        recipe: the arguments that made it; empty if it has no recipe.
        rows: results of the last checkpoint; empty if it was not evaluated.
        best_rows: results of the checkpoint in `best`.
        certificate: the fields of `Certificate`; None if there is none.
        weights: `hash_weights` of its model, and of that in `best` if there is one, by how results refer to them.
        has_plot: whether there is a plot of its results.
    """

    folder: Path
    name: str
    config: PreTrainedConfig
    task: Task
    parameters: int
    recipe: dict[str, Any]
    rows: list[Row]
    best_rows: list[Row]
    certificate: dict[str, Any] | None
    weights: dict[str, str]
    has_plot: bool

    @property
    def trained_lengths(self) -> tuple[int, int] | None:
        """Shortest and longest trained operand in digits; None if unknown, or for a model that was built, not trained."""
        return trained_lengths(self.recipe)

    @property
    def spare_best(self) -> str | None:
        """Why `best` is not published: it adds nothing to the last checkpoint. None if it adds something or is missing."""
        last, *best = self.weights.values()
        if best == [last]:
            return "the last checkpoint has the same weights"
        if best and self.certificate is not None and self.certificate["certified"]:
            return "the last checkpoint is certified"
        return None

    def without_best(self) -> "CheckpointFolder":
        """The same, as if `best` were not there."""
        return replace(self, best_rows=[], weights={self.name: self.weights[self.name]})


def is_best(folder: Path) -> bool:
    """Whether a folder holds the best checkpoint of the run in whose folder it is. A run itself may have that name too."""
    return folder.is_dir() and folder.name == BEST_FOLDER and (folder.parent / RECIPE_FILE).is_file()


def read_checkpoint(folder: Path, name: str | None = None) -> CheckpointFolder:
    """Load the checkpoints of a folder, and check that all that stands beside them belongs to them.

    Args:
        name: how its results refer to it, if that is known; by default the name that they give these weights, since a
            folder may be renamed, else the folder's own name.

    Raises:
        ValueError: the folder, or `best` in it, is no checkpoint of this package or damaged, or holds pickles, results of
            another checkpoint or a certificate that does not fit (`read_certificate`); or it needs a plugin that is not
            loaded.
    """
    if (folder / ADAPTER_CONFIG).is_file():
        raise ValueError(
            f"{folder} is an adapter, which has no card here: push it by PEFT's push_to_hub, or save the merged model, "
            f"load_checkpoint({str(folder)!r}).model, and its tokenizer into another folder"
        )
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} is not a checkpoint: it holds no config.json")
    check_pickles(folder)
    check_weights(folder)
    check_side_files(folder)
    recipe = read_recipe(folder / RECIPE_FILE) if (folder / RECIPE_FILE).is_file() else {}
    require_plugins(recipe, str(folder), lambda plugin: f"read it, then pass --plugin {folder / plugin}")
    described, named_by = describe_task(recipe, str(folder))
    if "task" not in described:
        raise ValueError(
            f"{folder} does not say what task the model is for: write a {RECIPE_FILE} with `task: NAME`, one of "
            f"{', '.join(TASKS)}"
        )
    task = _read_task(described, folder / named_by)
    model = _load_published(folder, task)
    own = hash_weights(model)
    name = name or _measured_name(folder, own) or folder.resolve().name
    weights = {name: own}
    if (best := folder / BEST_FOLDER).is_dir():
        check_side_files(best)
        weights[f"{name}/{BEST_FOLDER}"] = hash_weights(best_model := _load_published(best, task))
        _check_best(best, task, weights)
        read_certificate(best, best_model, task)
    rows = _read_rows(folder, task, weights)
    return CheckpointFolder(
        folder=folder,
        name=name,
        config=model.config,
        task=task,
        parameters=model.num_parameters(),
        recipe=recipe,
        rows=[row for row in rows if not row["model"].endswith(f"/{BEST_FOLDER}")],
        best_rows=[row for row in rows if row["model"].endswith(f"/{BEST_FOLDER}")],
        certificate=read_certificate(folder, model, task),
        weights=weights,
        has_plot=(folder / PLOT_FILE).is_file(),
    )


def _measured_name(folder: Path, weights: str) -> str | None:
    """Return how the results in a folder refer to these weights, those of its last checkpoint; None if they do not."""
    file = folder / RESULTS_FILE
    rows = read_results(file) if file.is_file() else []
    named = [row["model"] for row in rows if row.get("weights") == weights]
    return next((name for name in named if not name.endswith(f"/{BEST_FOLDER}")), None)


def _load_published(folder: Path, task: Task) -> PreTrainedModel:
    model = load_model(str(folder), task)
    check_loadable(folder, model.config)
    _load_tokenizer(str(folder), task)
    return model


def _check_best(folder: Path, task: Task, weights: dict[str, str]) -> None:
    """Raise ValueError if something beside the weights of `best` is of another checkpoint."""
    if (file := folder / RECIPE_FILE).is_file() and (own := _read_task(read_recipe(file), file)) != task:
        raise ValueError(f"{folder} is of another task ({own.describe()}), the recipe's is {task.describe()}")
    _read_rows(folder, task, weights)


def _read_task(recipe: dict[str, Any], file: Path) -> Task:
    """Return the task that a recipe names, after a check of all else that a card reads from it."""
    if not isinstance(description := recipe.get("description", ""), str):
        raise ValueError(f"{file}: description must be text, got {description!r}")
    for argument in ("min_length", "max_length"):
        # Not isinstance: True is an int.
        if type(digits := recipe.get(argument, 1)) is not int:
            raise ValueError(f"{file}: {argument} must be a whole number of digits, got {digits!r}")
    try:
        return task_from_recipe(recipe)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def check_pickles(folder: Path) -> None:
    """Raise ValueError if a file that would be published can run code when it is loaded."""
    files = [*sorted(folder.glob("*")), *sorted((folder / BEST_FOLDER).glob("*"))]
    if pickles := [file for file in files if file.suffix in PICKLE_SUFFIXES and file != folder / TRAINING_ARGUMENTS]:
        listed = ", ".join(str(file.relative_to(folder)) for file in pickles)
        raise ValueError(f"{folder} holds pickles ({listed}): only safetensors are published, remove them first")


def check_loadable(folder: Path, config: PreTrainedConfig) -> None:
    """Raise ValueError if others could not load the checkpoint: tokenizer and code must stand beside the weights."""
    auto_map = getattr(config, "auto_map", None) or {}
    if not isinstance(auto_map, dict):
        raise ValueError(f"{folder}, config.json: auto_map must map Auto classes to names, got {auto_map!r}")
    # An entry may be several names, and null where there is no such class.
    names = [
        name for entry in auto_map.values() for name in (entry if isinstance(entry, list) else [entry]) if name is not None
    ]
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"(\S+--)?\w+\.\w+", name):
            raise ValueError(f"{folder}, config.json: auto_map must name classes as 'module.Class', got {name!r}")
    modules = sorted({f"{name.rpartition('--')[2].partition('.')[0]}.py" for name in names})
    if missing := [name for name in ("tokenizer.json", *modules) if not os.path.isfile(folder / name)]:
        raise ValueError(
            f"{folder} is incomplete: it lacks {', '.join(missing)} (config.json names the code); save model and tokenizer "
            "into it again"
        )


def _read_rows(folder: Path, task: Task, weights: dict[str, str]) -> list[Row]:
    file, (name, *_) = folder / RESULTS_FILE, weights
    if not file.is_file():
        return []
    rows = read_results(file)
    if strangers := sorted({row["model"] for row in rows} - {name, f"{name}/{BEST_FOLDER}"}):
        raise ValueError(
            f"{file} is of another checkpoint ({', '.join(strangers)}, not {name}): evaluate this one with eval.py, or give "
            "the folder the name that it was evaluated under"
        )
    if other := sorted({row["task"] for row in rows} - {task.name}):
        raise ValueError(f"{file} is of another task ({', '.join(other)}), the recipe's is {task.name!r}")
    if stale := sorted({row["model"] for row in rows if "weights" in row and row["weights"] != weights.get(row["model"])}):
        raise ValueError(
            f"{file} is of another checkpoint, what it calls {' and '.join(stale)} had other weights or another "
            "configuration: remove it and evaluate again with eval.py"
        )
    return rows
