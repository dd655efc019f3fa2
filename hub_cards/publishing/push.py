"""Pushes of checkpoints, generated datasets and the metric to the Hub, each as one commit."""

import re
import shlex
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from longhand.data import SPLITS, TASKS, load_task_dataset
from longhand.hub_cards.publishing.card_updates import (
    EVALUATION_FOLDER,
    PushedResults,
    add_pushed,
    evaluation_files,
    read_filed,
    read_pushed,
    repeat_where_moved,
    results_files,
)
from longhand.hub_cards.publishing.cards import CARD_FILE, render_card
from longhand.hub_cards.publishing.commits import STATIC_FILES, Files, Push, check_push, check_repo_id, commit_files
from longhand.hub_cards.publishing.dataset_cards import render_dataset_card
from longhand.hub_cards.reports.results import CERTIFICATES_FILE, RESULTS_FILE
from longhand.hub_cards.runs.checkpoints import BEST_FOLDER, CERTIFICATE_FILE, CheckpointFolder, read_checkpoint
from longhand.hub_cards.runs.recipes import RECIPE_FILE

MODEL_FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer*.json",
    "special_tokens_map.json",
    "*.py",
    "*.png",
    RECIPE_FILE,
    RESULTS_FILE,
    CERTIFICATE_FILE,
    CERTIFICATES_FILE,
    CARD_FILE,
)
"""What of a checkpoint's folder, and of `best` in it, is published. Training states and all else stay at home."""

DATASET_FILE = rf"[^/]+/({'|'.join(SPLITS)})-\d{{5}}-of-\d{{5}}\.parquet"
"""Paths of the files that a dataset is published in, as a regular expression."""

ROWS_PER_FILE = 500_000

METRIC_FOLDER = Path(__file__).parents[1] / "metrics" / "exact_match_by_length"


def is_model_file(path: str) -> bool:
    """Whether a path in a repository is one that pushing a model writes."""
    folder, _, name = path.rpartition("/")
    if folder == EVALUATION_FOLDER:
        # Files of other datasets there may be anybody's.
        return name.endswith(".yaml") and name.removesuffix(".yaml") in TASKS
    return folder in ("", BEST_FOLDER) and any(fnmatch(name, pattern) for pattern in MODEL_FILES)


def is_dataset_file(path: str) -> bool:
    """Whether a path in a repository is one that pushing a dataset writes."""
    return path == CARD_FILE or re.fullmatch(DATASET_FILE, path, re.ASCII) is not None


def is_metric_file(path: str) -> bool:
    """Whether a path in a repository is one that pushing the metric writes."""
    return path in (CARD_FILE, "requirements.txt", *STATIC_FILES) or ("/" not in path and path.endswith(".py"))


def model_files(folder: Path, repo_id: str, dataset: str | None = None) -> Files:
    """What of a checkpoint's folder is published, by its path, the card rendered anew for the repository.

    Raises:
        ValueError: a file is a link that leaves the folder; or see `render_model_card`.
    """
    return checkpoint_files(_read_for_push(folder, repo_id, dataset), repo_id, dataset, PushedResults())


def _read_for_push(folder: Path, repo_id: str, dataset: str | None) -> CheckpointFolder:
    for name in (repo_id, *([] if dataset is None else [dataset])):
        check_repo_id(name)
    published_files(folder)
    return read_checkpoint(folder)


def published_files(folder: Path) -> Files:
    """The files of a checkpoint's folder that are published, by their path.

    Raises:
        ValueError: one is a link that leaves the folder.
    """
    found = [file for place in (folder, folder / BEST_FOLDER) for file in sorted(place.glob("*")) if file.is_file()]
    files: Files = {path: file for file in found if is_model_file(path := file.relative_to(folder).as_posix())}
    for path, file in files.items():
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ValueError(
                f"{path} in {folder} is a link to {file.resolve()}, outside the folder: put a copy there instead"
            )
    return files


def checkpoint_files(checkpoint: CheckpointFolder, repo_id: str, dataset: str | None, pushed: PushedResults) -> Files:
    """As `model_files`, with the results that the repository has already of the same weights.

    Where they are filed under a dataset, in the folder or in the repository, they are so again.
    """
    folder, task = checkpoint.folder, checkpoint.task.name
    added = add_pushed(checkpoint, pushed.rows)
    files = published_files(folder)
    if added is not checkpoint:
        files |= results_files(added)
    files |= evaluation_files(added, dataset or read_filed(folder).get(task) or pushed.datasets.get(task))
    return files | {CARD_FILE: render_card(added, repo_id, dataset).encode()}


def check_dataset(
    task: str, repo_id: str, configurations: dict[str, dict[str, Any]], num_samples: dict[str, int], seed: int
) -> None:
    """Raises ValueError where the arguments of `dataset_files` are not legal, without making anything."""
    check_repo_id(repo_id)
    if not configurations:
        raise ValueError("configurations must name at least one, got none")
    for name, arguments in configurations.items():
        # It becomes a folder beside the card: never a path that leads elsewhere.
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII) or name == CARD_FILE:
            raise ValueError(
                "a configuration's name must be of letters, digits, `.`, `_` and `-`, the first no sign, and not "
                f"{CARD_FILE}, got {name!r}"
            )
        load_task_dataset(task, split=None, num_samples=num_samples, seed=seed, streaming=True, **arguments)


def dataset_files(
    task: str, repo_id: str, configurations: dict[str, dict[str, Any]], num_samples: dict[str, int], seed: int, place: Path
) -> Files:
    """Parquet files of every configuration and split, written to a folder, and their card.

    Args:
        configurations: arguments of `load_task_dataset` by the configuration's name; the first is the default one.
        num_samples: examples of each split.
        place: an empty folder.

    Raises:
        ValueError: a name, task, argument or number is not legal; nothing has been made yet.
    """
    check_dataset(task, repo_id, configurations, num_samples, seed)
    files, columns = {}, {}
    for name, arguments in configurations.items():
        made = load_task_dataset(
            task, split=None, num_samples=num_samples, seed=seed, cache_dir=str(place / "cache"), **arguments
        )
        columns[name] = next(iter(made.values())).features
        for split, dataset in made.items():
            parts = -(-len(dataset) // ROWS_PER_FILE)
            for part in range(parts):
                path = f"{name}/{split}-{part:05d}-of-{parts:05d}.parquet"
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                dataset.shard(parts, part, contiguous=True).to_parquet(place / path)
                files[path] = place / path
    card = render_dataset_card(task, repo_id, configurations, num_samples, columns, seed)
    return files | {CARD_FILE: card.encode()}


def metric_files(repo_id: str) -> Files:
    """What of the metric is published, by its path: `evaluate.load` runs the file that has the name of the repository.

    Raises:
        ValueError: the name is not legal, cannot be that of a Python file, or is that of another file of the metric.
    """
    check_repo_id(repo_id)
    name = repo_id.partition("/")[2]
    own, given = f"{METRIC_FOLDER.name}.py", f"{name}.py"
    files: Files = {file.name: file for file in sorted(METRIC_FOLDER.iterdir()) if is_metric_file(file.name)}
    if not re.fullmatch(r"[\w-]+", name) or (given in files and given != own):
        raise ValueError(
            f"repository name {repo_id!r} cannot be that of the metric, whose file is named after it: take one of letters, "
            f"digits, `_` and `-`, such as {METRIC_FOLDER.name}"
        )
    card = files[CARD_FILE].read_text(encoding="utf-8").replace(f"hub_cards/metrics/{METRIC_FOLDER.name}", repo_id)
    files[given] = files.pop(own)
    return files | {CARD_FILE: card.encode()}


def push_metric(
    repo_id: str,
    *,
    private: bool = False,
    revision: str | None = None,
    commit_message: str | None = None,
    api: HfApi | None = None,
) -> Push:
    """Publishes exact match by length as a Space, for `evaluate.load(repo_id)`; see `metric_files` and `push_model`."""
    return commit_files(
        metric_files(repo_id),
        repo_id,
        "space",
        is_ours=is_metric_file,
        commit_message=commit_message or f"Push {METRIC_FOLDER.name}",
        private=private,
        revision=revision,
        api=api,
    )


def push_model(
    folder: Path | str,
    repo_id: str,
    *,
    private: bool = False,
    revision: str | None = None,
    commit_message: str | None = None,
    dataset: str | None = None,
    api: HfApi | None = None,
) -> Push:
    """Publishes a checkpoint's folder, as train.py writes it, with a card for the repository.

    The card is written anew: what was changed in it by hand on the Hub is lost. Results that were added there stay where the
    weights do; those of other weights go with them.

    Args:
        repo_id: `user/name`; made if there is none.
        private: for a repository that has to be made.
        revision: branch, made if there is none; default `main`.
        dataset: Hub id of a dataset of its task, for the card.
        api: the Hub and its token, if not the environment's.

    Raises:
        ValueError: the folder is no checkpoint or holds what is not its own, or a name is not legal.
        CannotPush: the Hub does not take it (see `commit_files`); it holds what it held before.
    """
    checkpoint = _read_for_push(Path(folder), repo_id, dataset)
    check_push(repo_id, "model", api, private=private, revision=revision)

    def attempt() -> Push:
        pushed = read_pushed(repo_id, revision, api)
        return commit_files(
            checkpoint_files(checkpoint, repo_id, dataset, pushed),
            repo_id,
            "model",
            is_ours=is_model_file,
            commit_message=commit_message or f"Push {checkpoint.name}",
            private=private,
            revision=revision,
            onto=pushed.head,
            api=api,
        )

    return repeat_where_moved(attempt)


def push_command(folder: Path, repo_id: str, private: bool = False, revision: str | None = None) -> str:
    """What a person types to push a checkpoint's folder."""
    words = ["python", "-m", "longhand.hub_cards.push", "model", str(folder), repo_id]
    words += ["--private"] * private + (["--revision", revision] if revision else []) + ["--yes"]
    return shlex.join(words)


def push_dataset(
    task: str,
    repo_id: str,
    configurations: dict[str, dict[str, Any]],
    *,
    num_samples: dict[str, int],
    seed: int = 0,
    private: bool = False,
    revision: str | None = None,
    commit_message: str | None = None,
    api: HfApi | None = None,
) -> Push:
    """Generates a dataset and publishes it; see `dataset_files` and `push_model`. What the Hub refuses is not generated."""
    check_dataset(task, repo_id, configurations, num_samples, seed)
    check_push(repo_id, "dataset", api, private=private, revision=revision)
    with tempfile.TemporaryDirectory() as place:
        return commit_files(
            dataset_files(task, repo_id, configurations, num_samples, seed, Path(place)),
            repo_id,
            "dataset",
            is_ours=is_dataset_file,
            commit_message=commit_message or f"Push {task}, seed {seed}",
            private=private,
            revision=revision,
            api=api,
        )


def describe_files(files: Files) -> str:
    """A line for each file: its size in bytes and its path."""
    sizes = {path: len(content) if isinstance(content, bytes) else content.stat().st_size for path, content in files.items()}
    lines = [f"{size:>14,}  {path}" for path, size in sorted(sizes.items())]
    return "\n".join([*lines, f"{sum(sizes.values()):>14,}  bytes in {len(sizes)} files"])
