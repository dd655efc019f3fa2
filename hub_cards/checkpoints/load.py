"""The one loader of checkpoints: what MODEL names on a command line, as one object that is ready to answer.

A repository on the Hub becomes a folder first, its snapshot in the Hub's cache. From there on all checkpoints are folders.

The zoo has the checkpoints that come with this package, in folders `hub_cards/zoo/NAME` that are named as recipes.
They hold what a finished run leaves, but for the code that travels with checkpoints: here the package is the code.
"""

# Used by: language_model.py, solver.py, eval.py, hub_cards, hub_cards/evaluation, hub_cards/page, hub_cards/publishing,
# hub_cards/research, hub_cards/research/gpu, hub_cards/research/theories, hub_cards/training, train.py. Changed freely.

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, HTTPError, RevisionNotFoundError
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from longhand.data.proofs.certificate import hash_weights
from longhand.data.tasks.plugins import require_plugins
from longhand.data.tasks.registry import TASKS, register_table, task_from_recipe, task_named
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.certificate_file import copy_verifier, read_certificate, with_certificate
from longhand.hub_cards.checkpoints.checkpoint import (
    ADAPTER_CONFIG,
    ANSWER_FILES,
    BEST_FOLDER,
    CERTIFICATE_FILE,
    OUTPUTS,
    STRUCTURE_CONFIG,
    Checkpoint,
    checkpoint_name,
    hash_files,
    is_certified,
    save_code,
)
from longhand.hub_cards.checkpoints.covered_files import imported_files
from longhand.hub_cards.commands import command_of, one_line, read_object, write_atomically
from longhand.hub_cards.recipes import RECIPE_FILE, learned_facts, list_recipes, read_recipe
from longhand.hub_cards.result_rows import RESULTS_FILE, read_results
from longhand.modeling import CoupledGPTConfig, PairwiseBertConfig
from longhand.modeling.checks import check_integer
from longhand.modeling.inputs import TaskConfig

WEIGHTS = "*.safetensors"
ZOO_FOLDER = Path(__file__).parents[1] / "zoo"
LANGUAGE_MODELS_FOLDER = Path(__file__).parents[1] / "language_models"

LANGUAGE_MODELS = {"sums-in-sentences": "sums in a dozen sentences, by a small Llama; nothing is proved of it"}
"""The shipped models of others with structure: name, and what each does. They have no recipe and no task of this package."""


SENTENCE = "What is 653 + 49?"
"""A question to a language model."""


def list_zoo() -> list[str]:
    """Return the names of all checkpoints of the zoo, which are models of this package."""
    return sorted(file.parent.name for file in ZOO_FOLDER.glob("*/config.json"))


def zoo(name: str) -> str:
    """Return the folder of a shipped model, for `from_pretrained`: of a checkpoint of the zoo, or of a language model.

        AutoModelForCausalLM.from_pretrained(longhand.zoo("addition"))

    Raises:
        ValueError: there is no such model.
    """
    if name in LANGUAGE_MODELS:
        return str(LANGUAGE_MODELS_FOLDER / name)
    if name not in (names := list_zoo()):
        close = get_close_matches(str(name), [*names, *LANGUAGE_MODELS], n=3)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise ValueError(f"the zoo has no checkpoint {name!r}: {hint}choose one of {', '.join([*names, *LANGUAGE_MODELS])}")
    return str(ZOO_FOLDER / name)


def locate(source: str) -> str:
    """Return the folder of the zoo if a checkpoint is named so, else the name itself: of another folder, or on the Hub.

    A folder of that name in the working directory comes first if it holds a checkpoint. If there is such a
    folder, one line says which of the two is taken.
    """
    if source not in (*list_zoo(), *LANGUAGE_MODELS):
        return source
    if Path(source, "config.json").is_file():
        print(f"note: {source} is a folder here; the checkpoint {source} of the zoo is {zoo(source)}", file=sys.stderr)
        return source
    if Path(source).is_dir():
        print(f"note: the folder {source} holds no checkpoint; that of the zoo is taken, {zoo(source)}", file=sys.stderr)
    return zoo(source)


def is_in_zoo(folder: Path | str) -> bool:
    """Whether a folder is one of the zoo. Nothing is written into it, except by `longhand.hub_cards.research.ship`."""
    return Path(folder).resolve().parent in (ZOO_FOLDER.resolve(), LANGUAGE_MODELS_FOLDER.resolve())


def describe_zoo() -> str:
    """Return a line for each checkpoint of the zoo: its name, a question, and what it does."""
    lines = []
    for name in list_zoo():
        recipe = read_recipe(ZOO_FOLDER / name / RECIPE_FILE)
        lines.append((name, str(task_from_recipe(recipe).example_question), recipe.get("description", "")))
    lines += [(name, SENTENCE, about) for name, about in LANGUAGE_MODELS.items()]
    widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1)]
    return "\n".join(f"{name:{widths[0]}}  {question:{widths[1]}}  {about}" for name, question, about in lines)


class OtherModel(ValueError):
    """A model of no family of this package.

    Attributes:
        pretrained: what other tools load it by: a folder or a Hub id.
    """

    def __init__(self, pretrained: str, kind: str):
        super().__init__(f"{pretrained} is {kind}, and no checkpoint of this package")
        self.pretrained = pretrained


class OtherWithStructure(OtherModel):
    """A model of others with structure. Other tools load it without its structure, and so as another model."""

    def __init__(self, pretrained: str):
        super().__init__(
            pretrained, f"a model of others with structure ({STRUCTURE_CONFIG}), which answers questions in sentences alone"
        )


def load_checkpoint(
    source: str, revision: str | None = None, task: str | None = None, trust_remote_code: bool = False
) -> Checkpoint:
    """Load a folder or a Hub repository, onto the accelerator if there is one.

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
    folder = _fetch(source, revision)
    recipe = read_recipe(folder / RECIPE_FILE) if (folder / RECIPE_FILE).is_file() else {}
    with _loading(source, "config.json"):
        config: Any = AutoConfig.from_pretrained(folder)
        named = getattr(config, "task", None) or {}
        if table := getattr(config, "transducer", None):
            # A task that travels as a table needs no plugin.
            register_table(str(named.get("task")), table, learned_facts(recipe))
    if not table:
        advice = "read it, then pass --plugin {} (or --trust_remote_code to run the copy beside the checkpoint)"
        fetch = folder.joinpath if trust_remote_code else None
        require_plugins(recipe, source, lambda name: advice.format(folder / name), fetch)
    if getattr(config, "lacks_plugins", False):
        with _loading(source, "config.json"):
            # The plugins are loaded by now, or the model cannot be made.
            config = AutoConfig.from_pretrained(folder)
            config.check_known()
    if getattr(config, "takes_structure", False):
        raise ValueError(
            f"{source} is a model of structure of your own ('given'), which no task gives: load it by from_pretrained, and "
            "call it with its position_ids or pair_map, as hub_cards/STRUCTURE.md shows"
        )
    described, file = (recipe, RECIPE_FILE) if "task" in recipe else (recipe | named, "config.json")
    chosen = described.get("task", task)
    if not isinstance(chosen, str) or task_named(chosen) is None:
        raise ValueError(
            f"task of {source}: got {chosen!r}, choose one of {', '.join(TASKS)} with --task, or in a {RECIPE_FILE} with "
            "`task: NAME`"
        )
    with _loading(source, file):
        trained = task_from_recipe({**described, "task": chosen})
        for name in {"min_length", "max_length"} & set(recipe):
            check_integer(name, recipe[name], 1)
    parts = {part.name: part for part in (trained, *trained.parts)}
    if task is not None and task not in parts:
        raise ValueError(
            f"--task {task} is for a checkpoint that names no task: {source} is of task {described['task']!r} ({file})"
        )
    model = _load_model(source, folder, config, trained)
    checkpoint = Checkpoint(
        name=checkpoint_name(source),
        folder=folder,
        kind="hub" if not Path(source).is_dir() else "zoo" if is_in_zoo(folder) else "folder",
        model=model.eval().to(evaluation_device()),
        tokenizer=_load_tokenizer(source, folder, trained),
        task=parts[task or chosen].for_evaluation,
        own_task=trained if "task" in described else None,
        recipe=recipe,
        weights=hash_weights(model),
    )
    return with_certificate(checkpoint)


def load_both(folder: Path) -> tuple[Checkpoint, Checkpoint | None]:
    """Load the last checkpoint of a run, and the best one if there is one.

    Raises:
        ValueError: see `load_checkpoint`.
    """
    best = folder / BEST_FOLDER
    return load_checkpoint(str(folder)), load_checkpoint(str(best)) if best.is_dir() else None


def read_checkpoint(folder: Path) -> Checkpoint:
    """Load the checkpoints of a folder, and check that all that stands beside them belongs to them.

    Raises:
        ValueError: see `load_checkpoint` and `complete_checkpoint`.
    """
    return complete_checkpoint(*load_both(folder))


def complete_checkpoint(last: Checkpoint, best: Checkpoint | None) -> Checkpoint:
    """Return the last checkpoint of a folder with its results, after checks that all that stands there belongs to it.

    Args:
        best: the one in `best` in the folder.

    Raises:
        ValueError: the folder, or `best` in it, lacks what others need to load it, or has results of other weights or a
            certificate that does not fit (`read_certificate`).
    """
    folder = last.folder
    _check_loadable(folder)
    # Configurations name their code by themselves. The file does not where the code was left out.
    last.model.config.auto_map = read_object(folder / "config.json").get("auto_map")
    certificate, spare, file = read_certificate(last), None, folder / RESULTS_FILE
    rows, best_rows = read_results(file) if file.is_file() else [], []
    measured = {"the folder": (last.weights, rows)}
    if best is not None:
        _check_loadable(best.folder)
        best_rows = [row for row in rows if row["model"].endswith(f"/{BEST_FOLDER}")]
        rows = [row for row in rows if row not in best_rows]
        measured = {"the folder": (last.weights, rows), BEST_FOLDER: (best.weights, best_rows)}
        if best.weights == last.weights:
            spare = "the last checkpoint has the same weights"
        elif is_certified(certificate):
            spare = "the last checkpoint is certified"
    for name, (weights, named_rows) in measured.items():
        if any(row.get("weights") != weights for row in named_rows):
            raise ValueError(
                f"{file} is of another checkpoint: {name} has other weights or another configuration; remove the file, or "
                "take that of a new evaluation"
            )
    task = last.own_task
    assert task is not None, "a checkpoint whose recipe and configuration name no task was not loaded above"
    best_rows = [] if spare else best_rows
    return replace(
        last,
        name=folder.resolve().name,
        task=task,
        certificate=certificate,
        rows=rows,
        best_rows=best_rows,
        spare_best=spare,
    )


def _check_loadable(folder: Path) -> None:
    """Raise ValueError if others could not load the checkpoint: tokenizer and code must stand beside the weights."""
    with _loading(str(folder), "auto_map in config.json"):
        # An entry may be several names, and null where there is no such class.
        entries = (read_object(folder / "config.json").get("auto_map") or {}).values()
        names = [name for entry in entries for name in (entry if isinstance(entry, list) else [entry]) if name]
        modules = {f"{name.rpartition('--')[2].partition('.')[0]}.py" for name in names}
    held = {file.name for file in folder.iterdir() if file.is_file()}
    code = {name: (folder / name).read_bytes() for name in held if name.endswith(".py")}
    imported = sorted({name for module in modules for name in imported_files(module, code)})
    if missing := [repr(name) for name in ("tokenizer.json", *imported) if name not in held]:
        raise ValueError(
            f"{folder} is incomplete: it lacks {', '.join(missing)} (config.json names the code); save model and tokenizer "
            "into it again"
        )


MODEL_TYPES = (CoupledGPTConfig.model_type, PairwiseBertConfig.model_type)
"""The model types of this package's configurations."""


def lacks_code(folder: Path) -> bool:
    """Whether a folder is a checkpoint as the zoo has it, or a copy of such a one, which this package alone can run."""
    if is_in_zoo(folder):
        return True
    with suppress(ValueError):
        config = read_object(folder / "config.json")
        return config.get("model_type") in MODEL_TYPES and "auto_map" not in config
    return False


def unpack(name: str, place: Path) -> Path:
    """Write a checkpoint of the zoo as its run left it, with the code that runs it where this package is not installed.

    Args:
        name: of the zoo, or the folder of a copy.
        place: an existing folder; the checkpoint's folder is made in it.

    Returns:
        The checkpoint's folder. If it has a certificate, this names the code too, and the verifier stands beside it.
    """
    source = Path(name) if Path(name).is_dir() else Path(zoo(name))
    checkpoint = load_checkpoint(str(source))
    folder = Path(shutil.copytree(source, place / source.resolve().name))
    save_code(checkpoint.model.config, checkpoint.task, folder)
    if (folder / CERTIFICATE_FILE).is_file():
        certificate = read_object(folder / CERTIFICATE_FILE) | {"files": hash_files(folder)}
        write_atomically(folder / CERTIFICATE_FILE, json.dumps(certificate, indent=2) + "\n")
        copy_verifier(folder)
    return folder


def _fetch(source: str, revision: str | None) -> Path:
    """Return the folder of a checkpoint; for a repository, its snapshot in the Hub's cache, after a download.

    Without the Hub, such as with HF_HUB_OFFLINE=1, the snapshot has what is cached.

    Raises:
        OtherModel: it is a model of others, whose weights are not downloaded.
        ValueError: `source` is neither a folder nor a repository, or it holds an adapter or no model.
    """
    folder = Path(source)
    if is_folder := folder.is_dir():
        if revision is not None:
            raise ValueError(f"--revision {revision} is for a repository on the Hub, but {source} is a folder")
    else:
        small = [*(name for name in ANSWER_FILES if name != WEIGHTS), RECIPE_FILE, CERTIFICATE_FILE, RESULTS_FILE]
        folder = _snapshot(source, revision, [*small, STRUCTURE_CONFIG])
    if (folder / STRUCTURE_CONFIG).is_file():
        raise OtherWithStructure(source)
    if (folder / ADAPTER_CONFIG).is_file():
        raise ValueError(
            f"{source} is an adapter of PEFT: save the merged model and its tokenizer in a folder of their own, such as "
            f"PeftModel.from_pretrained(base, {source!r}).merge_and_unload().save_pretrained('merged')"
        )
    if not (config := folder / "config.json").is_file():
        raise ValueError(f"{source} is not a checkpoint: it holds no config.json")
    if not (folder / RECIPE_FILE).is_file():
        stated = read_object(config)
        model_type, classes = stated.get("model_type"), stated.get("architectures") or []
        if isinstance(model_type, str) and model_type not in MODEL_TYPES:
            # Code that travels with a model has classes that transformers does not list.
            writers = {name for name in classes if str(name).endswith(("ForCausalLM", "LMHeadModel"))}
            if classes and not writers and not set(classes) & {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()}:
                raise ValueError(
                    f"{source} is a {model_type!r} model ({classes[0]}), and no checkpoint of this package: of the models "
                    "of others, only causal language models answer questions"
                )
            raise OtherModel(source, f"a {model_type!r} model")
    if not is_folder:
        _snapshot(source, revision, [WEIGHTS])
    return folder


def _snapshot(source: str, revision: str | None, patterns: list[str]) -> Path:
    """Download files of a repository into the Hub's cache, or find them there; return the folder that holds them."""
    elsewhere = [f"{BEST_FOLDER}/*", "checkpoint-*/*"]
    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=patterns, ignore_patterns=elsewhere))
    except (HFValidationError, HTTPError, OSError) as error:
        if any(isinstance(raised, RevisionNotFoundError) for raised in (error, error.__cause__)):
            raise ValueError(f"--revision {revision}: the repository {source} has no such branch, tag or commit") from error
        close = get_close_matches(source, [*list_zoo(), *LANGUAGE_MODELS], n=3)
        meant = f"did you mean {' or '.join(close)} of {command_of('eval')} --list? " if close else ""
        if source in list_recipes():
            meant = f"it is a recipe, train it first: {command_of('train')} {source}. "
        answers = [getattr(raised, "response", None) for raised in (error, error.__cause__)]
        answered = any(answer is not None and answer.status_code < 500 for answer in answers)
        missing = answered or isinstance(error, HFValidationError)
        fault = "neither a folder nor a repository" if missing else "no folder, and the Hub cannot be reached"
        raise ValueError(f"MODEL {source!r} is {fault}: {meant}{one_line(error)}") from error


def fetch_recipe(source: str) -> str:
    """The folder of a repository's recipe and configuration, after a download; see `recipes.is_repository`.

    Raises:
        ValueError: there is no such repository.
    """
    return str(_snapshot(source, None, [RECIPE_FILE, "config.json"]))


def evaluation_device() -> str:
    """Where models are evaluated: on the first GPU of CUDA, if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _load_model(source: str, folder: Path, config: PreTrainedConfig, task: Task) -> PreTrainedModel:
    """Load the model of a task, onto the CPU.

    Raises:
        ValueError: it is damaged, or made for another task or format.
    """
    model_class: Any = task.family.model_class
    for file in sorted(filter(Path.is_file, folder.glob(WEIGHTS))):
        with _loading(source, file.name), safe_open(file, "pt"):
            pass
    with _loading(source, "config.json, generation_config.json or the .safetensors files"):
        config_class = model_class.config_class
        if not isinstance(config, config_class):
            raise ValueError(
                f"it is a {config.model_type!r} model, but the task {task.name!r} is for {config_class.model_type!r} ones"
            )
        named, described = getattr(config, "task", None) or {}, task.describe()
        if different := [name for name, value in named.items() if name not in described or described[name] != value]:
            raise ValueError(
                f"config.json is of another task or format ({', '.join(different)}): it names {named}, {RECIPE_FILE} or "
                f"--task names {described}"
            )
        task.family.check_config(task, config)
        model, report = model_class.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
        report["NaN or infinite"] = [name for name, weights in model.state_dict().items() if not weights.isfinite().all()]
        if faults := {fault: sorted(map(str, names)) for fault, names in report.items() if names}:
            raise ValueError(f"its weights are damaged: {faults}")
    # A checkpoint may ask for other outputs than those that are read here by name.
    model.config.update(OUTPUTS)
    if task.family.writes:
        model.generation_config.return_dict_in_generate = False
    if isinstance(model.config, TaskConfig):
        # Checkpoints from before these fields check prompts too.
        options = task.family.format_options(task)
        model.config.update({name: value for name, value in options.items() if getattr(model.config, name) is None})
    return model


def _load_tokenizer(source: str, folder: Path, task: Task) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a task; without one in the folder, it is the task's own.

    Raises:
        ValueError: it is damaged, or does not read and write texts as the task's own does.
    """
    expected = task.family.tokenizer(task)
    if not (folder / "tokenizer.json").exists():
        return expected
    characters = {token for token in expected.get_vocab() if len(token) == 1}
    text = "".join(sorted(characters))
    with _loading(source, "tokenizer.json or tokenizer_config.json"):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        legal = [expected, *task.family.older_tokenizers(task)]
        found = tokenizer(text).input_ids, _rules(tokenizer, characters)
        if found not in [
            (legal_tokenizer(text).input_ids, _rules(legal_tokenizer, characters)) for legal_tokenizer in legal
        ]:
            raise ValueError(
                f"it does not read and write as the task {task.name!r} does: without tokenizer.json and "
                "tokenizer_config.json, the task's own tokenizer is used"
            )
    return tokenizer


def _rules(tokenizer: PreTrainedTokenizerBase, characters: set[str]) -> dict[str, object]:
    """The rules by which a tokenizer reads texts of these characters, without the padding and truncation of a call."""
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
