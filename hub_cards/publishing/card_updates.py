"""Add new results to an existing card, in a checkpoint's folder or on the Hub.

The other direction is here too: results that a repository has already are added to what a push sends to it.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, HfApi, ModelCard, eval_result_entries_to_yaml
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

from longhand.data import TASKS
from longhand.hub_cards.checkpoints.files import BEST_FOLDER, PLOT_FILE
from longhand.hub_cards.checkpoints.folder import CheckpointFolder, read_checkpoint
from longhand.hub_cards.console import one_line
from longhand.hub_cards.evaluation.plots import plot_accuracy, plot_grid
from longhand.hub_cards.evaluation.results import RESULTS_FILE, Row, describe_length, read_results, write_results
from longhand.hub_cards.files import read_text
from longhand.hub_cards.hub import check_repo_id
from longhand.hub_cards.publishing.cards import CARD_FILE, RESULTS_BLOCK, eval_results, results_block
from longhand.hub_cards.publishing.commits import BranchMoved, Push, check_push, commit_files, retry

EVALUATION_FOLDER = ".eval_results"

ATTEMPTS = 5
"""How often results are merged again because others commit at the same moment."""


@dataclass(frozen=True)
class PushedResults:
    """The results that a branch on the Hub holds.

    Attributes:
        head: sha of the branch's last commit; None if there is no repository.
        rows: the rows of its results file.
        datasets: Hub id of the dataset that a task's results are listed under, by task.
    """

    head: str | None = None
    rows: tuple[Row, ...] = ()
    datasets: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CardUpdate:
    """What new results changed in a checkpoint's folder.

    Attributes:
        card: its card.
        changed: paths of the files that were replaced.
    """

    card: Path
    changed: list[str]

    def __str__(self) -> str:
        if not self.changed:
            return f"{self.card}: holds these results already, nothing was changed"
        return f"updated {self.card}: wrote {', '.join(self.changed)}"


def merge_rows(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Rows by checkpoint and size, shortest first. A new row replaces an old row of the same checkpoint, task and size.

    If only the time differs that the measurement took, the old row stays.
    """
    merged: dict[tuple[Any, ...], Row] = {}
    for row in (*old, *new):
        size = row["model"], row["task"], row["length"], row["length_b"]
        if {**merged.get(size, {}), "seconds": row["seconds"]} != row:
            merged[size] = row
    models = list(dict.fromkeys(row["model"] for row in merged.values()))
    return sorted(merged.values(), key=lambda row: (models.index(row["model"]), row["length"], row["length_b"]))


def check_card(target: str | Path, revision: str | None = None, api: HfApi | None = None) -> None:
    """Check, before there are results, that `update_card` will find a card that it can change.

    Raises:
        ValueError, CannotPush: see `update_card`.
    """
    if (folder := Path(target)).is_dir():
        read_checkpoint(folder, _own_name(folder, folder.resolve().name))
        _read_card(folder, str(target))
        return
    repo_id, api = str(target), api or HfApi()
    check_push(repo_id, "model", api)
    _head(api, repo_id, revision)
    with _downloaded(api, repo_id, revision, [CARD_FILE]) as folder:
        _read_card(folder, repo_id)


def update_card(
    target: str | Path,
    rows: list[Row],
    *,
    dataset: str | None = None,
    revision: str | None = None,
    commit_message: str = "New results",
    api: HfApi | None = None,
) -> CardUpdate | Push:
    """Merge new results into a checkpoint's results file and plot, and into its card's tables and metadata.

    The rest of the card stays as it is.

    Args:
        target: a checkpoint's folder, or a repository `user/name` on the Hub, which is changed in one commit.
        rows: results of one checkpoint, as `evaluate_lengths` gives them.
        dataset: Hub id of a dataset of the task; default: the dataset that the card names. With it, a file in
            `.eval_results` lists the results under that dataset too. Each entry says that its problems were drawn, not taken
            from the dataset's rows.
        revision: branch on the Hub.

    Returns:
        What was changed in the folder, or the outcome of the push.

    Raises:
        ValueError: there are no rows; they are of several checkpoints, of another task or of other weights; the card is not
            readable or has no results block; or `revision` is no branch.
        OSError: a file of the folder cannot be written.
        CannotPush: the Hub does not accept the commit; nothing was changed there.
    """
    if not rows or len({(row["model"], row.get("weights")) for row in rows}) > 1:
        raise ValueError(f"rows must be of one checkpoint, got {sorted({row['model'] for row in rows}) or 'none'}")
    if rows[0].get("weights") is None:
        raise ValueError("rows must have the hash of the weights that they were measured on, `weights`: see `hash_weights`")
    if dataset is not None:
        check_repo_id(dataset)
    if (folder := Path(target)).is_dir():
        return CardUpdate(folder / CARD_FILE, _replace(folder, _updated_files(folder, rows, folder.resolve().name, dataset)))
    repo_id = str(target)
    check_repo_id(repo_id)
    hub = api or HfApi()

    def attempt() -> Push:
        head = _head(hub, repo_id, revision)
        with _downloaded(hub, repo_id, head) as downloaded:
            files = _updated_files(downloaded, rows, repo_id, dataset)
        return commit_files(files, repo_id, "model", commit_message=commit_message, revision=revision, onto=head, api=hub)

    return retry_if_branch_moved(attempt)


def _replace(folder: Path, files: dict[str, bytes]) -> list[str]:
    """Replace what differs from these files, after all of them are written, so that a full disk changes nothing.

    Returns:
        The paths that were replaced.

    Raises:
        ValueError: a folder is in the place of a file, or the folder of a file is elsewhere.
        OSError: a file cannot be written.
    """
    changed = [
        path for path, content in files.items() if not (own := folder / path).is_file() or own.read_bytes() != content
    ]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".card-") as place:
        for path in changed:
            if (folder / path).is_dir() or not (folder / path).parent.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{folder / path} is a folder, or in a folder elsewhere: remove it")
            (Path(place) / path).parent.mkdir(exist_ok=True)
            (Path(place) / path).write_bytes(files[path])
        for path in changed:
            (folder / path).parent.mkdir(exist_ok=True)
            os.replace(Path(place) / path, folder / path)
    return changed


def retry_if_branch_moved(attempt: Callable[[], Push]) -> Push:
    """The push of an attempt that reads a branch first. The attempt is repeated if others commit in between.

    Others may have added results, which must be kept, or new weights, to which the results read before do not belong.

    Raises:
        BranchMoved: others did so at every attempt.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(BranchMoved):
            return attempt()
    return attempt()


def read_pushed(repo_id: str, revision: str | None = None, api: HfApi | None = None) -> PushedResults:
    """The results that a branch holds. A branch that does not exist yet starts from `main` and has its results.

    Raises:
        ValueError: a file of results is not readable.
        CannotPush: the Hub cannot be reached.
    """
    api = api or HfApi()

    def list_branches() -> dict[str, str]:
        with suppress(RepositoryNotFoundError):
            return {branch.name: branch.target_commit for branch in api.list_repo_refs(repo_id).branches}
        return {}

    branches = retry(list_branches, repo_id)
    if (head := branches.get(revision or "main", branches.get("main"))) is None:
        return PushedResults()
    with _downloaded(api, repo_id, head, [RESULTS_FILE, f"{EVALUATION_FOLDER}/*.yaml"]) as folder:
        return PushedResults(head, tuple(_read_rows(folder)), listed_datasets(folder))


def listed_datasets(folder: Path) -> dict[str, str]:
    """Hub id of the dataset that `.eval_results` in a folder lists a task's results under, by task.

    Raises:
        ValueError: a file there is not a list of results.
    """
    datasets = {}
    for file in sorted((folder / EVALUATION_FOLDER).glob("*.yaml")):
        if file.stem not in TASKS:
            continue
        try:
            check_repo_id(named := yaml.safe_load(read_text(file))[0]["dataset"]["id"])
            datasets[file.stem] = named
        except (yaml.YAMLError, LookupError, TypeError, RecursionError, ValueError) as error:
            raise ValueError(f"{EVALUATION_FOLDER}/{file.name} is not a list of results by dataset: remove it") from error
    return datasets


def add_pushed(checkpoint: CheckpointFolder, rows: Iterable[Row]) -> CheckpointFolder:
    """The checkpoint with the results on the Hub that were measured on its very weights.

    Of two results of one size, the one with more problems is kept; with equally many, the folder's own.
    """
    own, found = [*checkpoint.rows, *checkpoint.best_rows], []
    for row in rows:
        # The repository's name may differ from the folder's. The name of the folder of best checkpoints is the same in both.
        name = checkpoint.name + (f"/{BEST_FOLDER}" if row["model"].endswith(f"/{BEST_FOLDER}") else "")
        if row.get("weights") is not None and row["weights"] == checkpoint.weights.get(name):
            found.append({**row, "model": name})
    merged = merge_rows(own, sorted((*found, *own), key=lambda row: row["num_samples"]))
    return checkpoint if merged == merge_rows(own, []) else _with_results(checkpoint, merged)


def _with_results(checkpoint: CheckpointFolder, rows: list[Row]) -> CheckpointFolder:
    best = f"{checkpoint.name}/{BEST_FOLDER}"
    return replace(
        checkpoint,
        rows=[row for row in rows if row["model"] != best],
        best_rows=[row for row in rows if row["model"] == best],
        has_plot=True,
    )


def results_files(checkpoint: CheckpointFolder) -> dict[str, bytes]:
    """A checkpoint's results file and plot, by file name."""
    rows, task = [*checkpoint.rows, *checkpoint.best_rows], checkpoint.task
    pairs = {(row["length"], row["length_b"]) for row in rows}
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        write_results(rows, scratch / RESULTS_FILE)
        # Lines over one length, or a grid if problems of one length differ in the second.
        if len(pairs) == len({length for length, _ in pairs}):
            plot_accuracy(rows, scratch / PLOT_FILE, checkpoint.trained_lengths, task.size_names)
        else:
            plot_grid(checkpoint.rows or rows, scratch / PLOT_FILE, checkpoint.trained_lengths, task.size_names)
        return {name: (scratch / name).read_bytes() for name in (RESULTS_FILE, PLOT_FILE)}


def evaluation_files(checkpoint: CheckpointFolder, dataset: str | None) -> dict[str, bytes]:
    """The file that lists the last checkpoint's results under a dataset on the Hub, by path. Empty without either.

    It holds exact match by size, as the Hub collects it for a dataset's leaderboard. The note of each entry says that its
    problems were not rows of the dataset.
    """
    if dataset is None or not checkpoint.rows:
        return {}
    several = len(checkpoint.task.parts) > 1
    entries = [
        EvalResultEntry(
            dataset_id=dataset,
            task_id=f"{row['task']}_" * several + f"length_{describe_length(row).replace(', ', 'x')}",
            value=row["exact_match"],
            notes=f"exact match on {row['num_samples']} problems drawn by longhand, not rows of this dataset: seed "
            f"{row['seed']}, {row['decode']}",
        )
        for row in checkpoint.rows
    ]
    listed = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False)
    return {f"{EVALUATION_FOLDER}/{checkpoint.task.name}.yaml": listed.encode()}


@contextmanager
def _downloaded(api: HfApi, repo_id: str, revision: str | None, patterns: list[str] | None = None) -> Iterator[Path]:
    """A folder with files of a revision, downloaded with the waits and retries of a push.

    Raises:
        CannotPush: the Hub cannot be reached.
        ValueError: a file is refused in the block; the repository's name takes the place of the folder's in the message.
    """

    def attempt() -> None:
        try:
            api.snapshot_download(repo_id, revision=revision, local_dir=place, allow_patterns=patterns)
        except LocalEntryNotFoundError as error:
            # The library found no file list on the Hub and no files here. Its cause tells what failed on the Hub.
            raise (error.__cause__ or error) from None

    with tempfile.TemporaryDirectory() as place:
        retry(attempt, repo_id)
        try:
            yield Path(place)
        except ValueError as error:
            raise ValueError(str(error).replace(place, repo_id)) from error


def _head(api: HfApi, repo_id: str, revision: str | None) -> str:
    """Sha of a branch's last commit.

    Raises:
        ValueError: `revision` is no branch. Results cannot be added to a tag or a commit.
        CannotPush: there is no such repository, or the Hub cannot be reached.
    """
    branches = retry(lambda: api.list_repo_refs(repo_id), repo_id).branches
    commits = {branch.name: branch.target_commit for branch in branches}
    if (name := revision or "main") not in commits:
        raise ValueError(f"revision must be a branch of {repo_id} ({', '.join(commits)}) to add results to it, got {name!r}")
    return commits[name]


def _read_rows(folder: Path) -> list[Row]:
    """The rows of a folder's results file; empty without one."""
    return read_results(folder / RESULTS_FILE) if (folder / RESULTS_FILE).is_file() else []


def _own_name(folder: Path, called: str) -> str:
    """The name of a folder's checkpoint in its results; without results, the name that a download of `called` will have."""
    rows = _read_rows(folder)
    return rows[0]["model"].removesuffix(f"/{BEST_FOLDER}") if rows else called.rpartition("/")[2]


def _updated_files(folder: Path, rows: list[Row], called: str, dataset: str | None) -> dict[str, bytes]:
    """The files that new rows change, by path. The folder itself is not changed.

    Args:
        called: another name that the new rows may have for the checkpoint, besides its name in the folder's results.
    """
    own = _own_name(folder, called)
    # The end of a name does not tell: a repository or a run may have the name of the folder of best checkpoints.
    suffixes = {f"{name}{suffix}": suffix for suffix in (f"/{BEST_FOLDER}", "") for name in (own, called)}
    if (given := rows[0]["model"]) not in suffixes:
        raise ValueError(f"rows are of the checkpoint {given!r}, {called} is {own!r}")
    suffix = suffixes[given]
    checkpoint = read_checkpoint(folder, own)
    if (task := rows[0]["task"]) not in (parts := [part.name for part in checkpoint.task.parts]):
        raise ValueError(f"rows are of the task {task!r}, the checkpoint's is {' or '.join(map(repr, parts))}")
    if rows[0]["weights"] != checkpoint.weights.get(f"{own}{suffix}"):
        raise ValueError(
            f"rows are of another checkpoint: {called}{suffix} has other weights or another configuration than what they "
            "were measured on"
        )
    card = _read_card(folder, called)
    dataset = dataset or named_dataset(card)
    merged = merge_rows(_read_rows(folder), [{**row, "model": f"{own}{suffix}"} for row in rows])
    checkpoint = _with_results(checkpoint, merged)
    card.data["eval_results"] = eval_results(checkpoint, dataset)
    card.data["model_name"] = card.data.get("model_name") or checkpoint.name
    card.text = RESULTS_BLOCK.sub(lambda _: results_block(checkpoint), card.text)
    files = results_files(checkpoint) | evaluation_files(checkpoint, dataset)
    return files | {CARD_FILE: f"{str(card).rstrip()}\n".encode()}


def _read_card(folder: Path, called: str) -> ModelCard:
    file = folder / CARD_FILE
    try:
        card = ModelCard(read_text(file)) if file.is_file() else None
        if card is not None:
            named_dataset(card)
    # The library refuses metadata of wrong types in all these ways; RecursionError is how deep YAML ends.
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise ValueError(f"{called}, {CARD_FILE}: its metadata cannot be used: {one_line(error)}") from error
    if card is None or not RESULTS_BLOCK.search(card.text):
        raise ValueError(
            f"{called} has no card with a results block: write one by `python -m longhand.hub_cards.cards` into the "
            "checkpoint's folder and push that"
        )
    return card


def named_dataset(card: ModelCard) -> str | None:
    """The first dataset that a card names. The Hub takes a name in the place of a list too.

    Raises:
        ValueError: it is no dataset's name.
    """
    given = card.data.get("datasets") or [None]
    named = given[0] if isinstance(given, list) else given
    if named is not None:
        check_repo_id(named)
    return named
