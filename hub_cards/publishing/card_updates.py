"""New results into a card that is there already, of a checkpoint's folder or of its repository on the Hub; and results that
a repository has already into what is pushed to it.
"""

import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml
from huggingface_hub import EvalResultEntry, HfApi, ModelCard, eval_result_entries_to_yaml
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

from longhand.data import TASKS
from longhand.hub_cards.publishing.cards import CARD_FILE, RESULTS_BLOCK, eval_results, results_block
from longhand.hub_cards.publishing.commits import BranchMoved, Push, check_push, check_repo_id, commit_files, repeat
from longhand.hub_cards.reports.plots import plot_accuracy, plot_grid
from longhand.hub_cards.reports.results import RESULTS_FILE, Row, describe_length, read_results, write_results
from longhand.hub_cards.runs.checkpoints import BEST_FOLDER, PLOT_FILE, CheckpointFolder, read_checkpoint

EVALUATION_FOLDER = ".eval_results"

ATTEMPTS = 5
"""Times that results are merged anew because others commit at the same moment."""


@dataclass(frozen=True)
class PushedResults:
    """Results that a branch on the Hub has.

    Attributes:
        head: sha of the branch's last commit; None where there is no repository.
        rows: of its results file.
        datasets: Hub id of the dataset under which results of a task are filed, by the task.
    """

    head: str | None = None
    rows: tuple[Row, ...] = ()
    datasets: dict[str, str] = field(default_factory=dict)


def merge_rows(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Rows by checkpoint and size, shortest first; a new one takes the place of an old one."""
    merged = {(row["model"], row["length"], row["length_b"]): row for row in (*old, *new)}
    models = list(dict.fromkeys(row["model"] for row in merged.values()))
    return sorted(merged.values(), key=lambda row: (models.index(row["model"]), row["length"], row["length_b"]))


def check_card(target: str | Path, revision: str | None = None, api: HfApi | None = None) -> None:
    """Looks, before there are results, whether `update_card` would find a card that it may change.

    Raises:
        ValueError, CannotPush: see `update_card`.
    """
    if Path(target).is_dir():
        read_checkpoint(Path(target), _own_name(Path(target), Path(target).resolve().name))
        _read_card(Path(target), str(target))
        return
    repo_id, api = str(target), api or HfApi()
    check_push(repo_id, "model", api)
    _head(api, repo_id, revision)
    with tempfile.TemporaryDirectory() as place:
        _download(api, repo_id, revision, Path(place), [CARD_FILE])
        _read_card(Path(place), repo_id)


def update_card(
    target: str | Path,
    rows: list[Row],
    *,
    dataset: str | None = None,
    revision: str | None = None,
    commit_message: str = "New results",
    api: HfApi | None = None,
) -> Path | Push:
    """Merges new results into a checkpoint's results file, plot, card's table and metadata; all else of the card stays.

    Args:
        target: a checkpoint's folder, or a repository `user/name` on the Hub, where all is one commit.
        rows: of one checkpoint, as `evaluate_lengths` gives them.
        dataset: Hub id of a dataset of the task, by default the one that the card names; with it, `.eval_results` files the
            results under it too, with the note that their problems were drawn, not taken from its rows.
        revision: branch on the Hub.

    Returns:
        The card's file, or how the push ended.

    Raises:
        ValueError: there are no rows, they are of another task, of other weights or of several checkpoints, the card has no
            results block, or `revision` is no branch.
        CannotPush: the Hub does not take it; nothing was changed there.
    """
    if not rows or len({(row["model"], row.get("weights")) for row in rows}) > 1:
        raise ValueError(f"rows must be of one checkpoint, got {sorted({row['model'] for row in rows}) or 'none'}")
    if rows[0].get("weights") is None:
        raise ValueError("rows must have the hash of the weights that they were measured on, `weights`: see `hash_weights`")
    if dataset is not None:
        check_repo_id(dataset)
    if Path(target).is_dir():
        folder = Path(target)
        for path, content in _updated_files(folder, rows, folder.resolve().name, dataset).items():
            partial = folder / f".{Path(path).name}.partial"
            partial.write_bytes(content)
            (folder / path).parent.mkdir(exist_ok=True)
            partial.replace(folder / path)
        return folder / CARD_FILE
    repo_id = str(target)
    check_repo_id(repo_id)
    api = api or HfApi()
    return repeat_where_moved(lambda: _update_on_hub(repo_id, rows, dataset, revision, commit_message, api))


def repeat_where_moved(attempt: Callable[[], Push]) -> Push:
    """The push that an attempt makes, which reads a branch first, repeated while others commit in between.

    What they wrote may be results, to be kept, or weights, of which results that were read before are not.

    Raises:
        BranchMoved: they did so every time.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(BranchMoved):
            return attempt()
    return attempt()


def read_pushed(repo_id: str, revision: str | None = None, api: HfApi | None = None) -> PushedResults:
    """The results that a branch holds; those of `main` for a branch that is still to be made, which begins there.

    Raises:
        ValueError: a file of results is not readable.
        CannotPush: the Hub stays away.
    """
    api = api or HfApi()

    def list_branches() -> dict[str, str]:
        with suppress(RepositoryNotFoundError):
            return {branch.name: branch.target_commit for branch in api.list_repo_refs(repo_id).branches}
        return {}

    branches = repeat(list_branches, repo_id)
    if (head := branches.get(revision or "main", branches.get("main"))) is None:
        return PushedResults()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _download(api, repo_id, head, folder, [RESULTS_FILE, f"{EVALUATION_FOLDER}/*.yaml"])
        rows = read_results(folder / RESULTS_FILE) if (folder / RESULTS_FILE).is_file() else []
        return PushedResults(head, tuple(rows), read_filed(folder))


def read_filed(folder: Path) -> dict[str, str]:
    """Hub id of the dataset under which a folder files results of a task, by the task.

    Raises:
        ValueError: such a file is not one of results.
    """
    datasets = {}
    for file in sorted((folder / EVALUATION_FOLDER).glob("*.yaml")):
        if file.stem not in TASKS:
            continue
        try:
            datasets[file.stem] = yaml.safe_load(file.read_text(encoding="utf-8"))[0]["dataset"]["id"]
        except (yaml.YAMLError, LookupError, TypeError) as error:
            raise ValueError(f"{EVALUATION_FOLDER}/{file.name} is not a list of results by dataset: remove it") from error
    return datasets


def add_pushed(checkpoint: CheckpointFolder, rows: Iterable[Row]) -> CheckpointFolder:
    """The checkpoint with those results on the Hub too that are of its very weights.

    Of two results of one size, that of more problems is kept; of as many, the folder's own.
    """
    own, found = [*checkpoint.rows, *checkpoint.best_rows], []
    for row in rows:
        # A repository may have another name than the folder, not the folder of best checkpoints in it.
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
    """Results file and plot of what was measured of a checkpoint, by their names."""
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        write_results([*checkpoint.rows, *checkpoint.best_rows], scratch / RESULTS_FILE)
        _plot(checkpoint, scratch / PLOT_FILE)
        return {name: (scratch / name).read_bytes() for name in (RESULTS_FILE, PLOT_FILE)}


def evaluation_files(checkpoint: CheckpointFolder, dataset: str | None) -> dict[str, bytes]:
    """The file that files the last checkpoint's results under a dataset on the Hub, by its path; none without them."""
    if dataset is None or not checkpoint.rows:
        return {}
    entries = eval_result_entries_to_yaml(_entries(checkpoint, dataset))
    path = f"{EVALUATION_FOLDER}/{checkpoint.task.name}.yaml"
    return {path: yaml.safe_dump(entries, sort_keys=False).encode()}


def _update_on_hub(
    repo_id: str, rows: list[Row], dataset: str | None, revision: str | None, commit_message: str, api: HfApi
) -> Push:
    """One attempt, on top of what the branch holds now."""
    head = _head(api, repo_id, revision)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _download(api, repo_id, head, folder)
        return commit_files(
            dict(_updated_files(folder, rows, repo_id, dataset)),
            repo_id,
            "model",
            is_ours=lambda path: False,
            commit_message=commit_message,
            revision=revision,
            create=False,
            onto=head,
            api=api,
        )


def _download(api: HfApi, repo_id: str, revision: str | None, folder: Path, patterns: list[str] | None = None) -> None:
    """Files of a revision into an empty folder; waits and tries again as a push does."""

    def attempt() -> None:
        try:
            api.snapshot_download(repo_id, revision=revision, local_dir=folder, allow_patterns=patterns)
        except LocalEntryNotFoundError as error:
            # Where the Hub cannot list its files, the library looks for them here: what kept it from listing says more.
            raise (error.__cause__ or error) from None

    repeat(attempt, repo_id)


def _head(api: HfApi, repo_id: str, revision: str | None) -> str:
    """Sha of a branch's last commit.

    Raises:
        ValueError: `revision` is no branch: results cannot be added to a tag or a commit.
        CannotPush: there is no such repository, or the Hub stays away.
    """
    branches = repeat(lambda: api.list_repo_refs(repo_id), repo_id).branches
    commits = {branch.name: branch.target_commit for branch in branches}
    if (name := revision or "main") not in commits:
        raise ValueError(f"revision must be a branch of {repo_id} ({', '.join(commits)}) to add results to it, got {name!r}")
    return commits[name]


def _own_name(folder: Path, called: str) -> str:
    """How the results in a folder refer to its checkpoint; where it has none yet, as a download of `called` will do."""
    rows = read_results(folder / RESULTS_FILE) if (folder / RESULTS_FILE).is_file() else []
    return rows[0]["model"].removesuffix(f"/{BEST_FOLDER}") if rows else called.rpartition("/")[2]


def _updated_files(folder: Path, rows: list[Row], called: str, dataset: str | None) -> dict[str, bytes]:
    """The files that new rows change, by their names; the folder stays as it is.

    Args:
        called: how the new rows may refer to the checkpoint, apart from the name that its results have already.
    """
    before = read_results(folder / RESULTS_FILE) if (folder / RESULTS_FILE).is_file() else []
    own = _own_name(folder, called)
    # Not by its end alone: the name of a repository or a run may be that of the folder of best checkpoints.
    suffixes = {f"{name}{suffix}": suffix for suffix in (f"/{BEST_FOLDER}", "") for name in (own, called)}
    if (given := rows[0]["model"]) not in suffixes:
        raise ValueError(f"rows are of the checkpoint {given!r}, {called} is {own!r}")
    suffix = suffixes[given]
    checkpoint = read_checkpoint(folder, own)
    if (task := rows[0]["task"]) != checkpoint.task.name:
        raise ValueError(f"rows are of the task {task!r}, the checkpoint's is {checkpoint.task.name!r}")
    if rows[0]["weights"] != checkpoint.weights.get(f"{own}{suffix}"):
        raise ValueError(
            f"rows are of another checkpoint: {called}{suffix} has other weights or another configuration than what they "
            "were measured on"
        )
    card = _read_card(folder, called)
    dataset = dataset or (card.data.datasets or [None])[0]
    merged = merge_rows(before, [{**row, "model": f"{own}{suffix}"} for row in rows])
    checkpoint = _with_results(checkpoint, merged)
    files = results_files(checkpoint) | evaluation_files(checkpoint, dataset)
    return files | {CARD_FILE: _updated_card(card, checkpoint).encode()}


def _updated_card(card: ModelCard, checkpoint: CheckpointFolder) -> str:
    card.data.eval_results = eval_results(checkpoint)
    card.data.model_name = card.data.model_name or checkpoint.name
    card.text = RESULTS_BLOCK.sub(lambda _: results_block(checkpoint), card.text)
    return str(card).rstrip() + "\n"


def _read_card(folder: Path, called: str) -> ModelCard:
    file = folder / CARD_FILE
    card = ModelCard(file.read_text(encoding="utf-8")) if file.is_file() else None
    if card is None or not RESULTS_BLOCK.search(card.text):
        raise ValueError(
            f"{called} has no card with a results block: write one by `python -m longhand.hub_cards.cards` into the "
            "checkpoint's folder and push that"
        )
    return card


def _plot(checkpoint: CheckpointFolder, file: Path) -> None:
    rows = [*checkpoint.rows, *checkpoint.best_rows]
    pairs = {(row["length"], row["length_b"]) for row in rows}
    names = checkpoint.task.size_names
    if len(pairs) == len({length for length, _ in pairs}):
        plot_accuracy(rows, file, checkpoint.trained_lengths, names)
    else:
        plot_grid(checkpoint.rows or rows, file, checkpoint.trained_lengths, names)


def _entries(checkpoint: CheckpointFolder, dataset: str) -> list[EvalResultEntry]:
    """Exact match by size, as the Hub collects it for a dataset's leaderboard; says that its rows were not those tested."""
    return [
        EvalResultEntry(
            dataset_id=dataset,
            task_id=f"length_{describe_length(row).replace(', ', 'x')}",
            value=row["exact_match"],
            notes=f"exact match on {row['num_samples']} problems drawn by longhand, not rows of this dataset: seed "
            f"{row['seed']}, {row['decode']}",
        )
        for row in checkpoint.rows
    ]
