"""Publish all of this package's work in one go: page, models, datasets, metric, decoding, and a collection that joins them.

Each repository gets one commit or none, in turn, and the collection what it lacks. So a push that was cut off goes on where
it was: the same command again sends nothing twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import Collection, HfApi

from longhand.data import TASKS, load_task_dataset
from longhand.hub_cards.checkpoints.files import folder_bytes
from longhand.hub_cards.checkpoints.folder import unpack
from longhand.hub_cards.checkpoints.zoo import list_zoo
from longhand.hub_cards.publishing.card_updates import PushedResults
from longhand.hub_cards.publishing.commits import check_push, retry
from longhand.hub_cards.publishing.dataset_files import GeneratedDataset
from longhand.hub_cards.publishing.page import page_publication
from longhand.hub_cards.publishing.push import (
    METRIC_FOLDER,
    Publication,
    dataset_publication,
    decoding_publication,
    metric_publication,
    model_publication,
    publish,
)
from longhand.hub_cards.publishing.wording import sentence
from longhand.hub_cards.recipes import RECIPE_FILE, read_recipe

TITLE = "longhand: arithmetic that is right at every length"
DESCRIPTION = "Small transformers that are proved to calculate exactly at every length; their problems, metric and decoding."
"""Of the collection; the Hub takes up to 150 characters."""

SHORT, LONG = "short", "long"
"""Configurations of every dataset: problems of trained sizes, and test problems far beyond them."""

NUM_SAMPLES = {SHORT: {"train": 200_000, "validation": 2000, "test": 10_000}, LONG: {"test": 2000}}
"""Rows of the splits of each configuration."""

_USUAL = ((1, 30), (31, 300))
_STRINGS, _ENCODERS = ((2, 30), (31, 300)), ((1, 10), (1, 100))
SIZES = {
    "addition_scratchpad": ((1, 10), (11, 50)),
    "calculator": ((1, 10), (11, 30)),
    "copy": _STRINGS,
    "encoder_addition": _ENCODERS,
    "encoder_multiplication": _ENCODERS,
    "encoder_multiplication_grid": ((1, 10), (11, 30)),
    "index_hinted_addition": ((1, 30), (31, 200)),
    "minesweeper": ((5, 9), (10, 40)),
    "multiplication_scratchpad": ((1, 10), (11, 30)),
    "parity": ((10, 40), (41, 300)),
    "reverse": _STRINGS,
}
"""Shortest and longest size of both configurations, where they are not the usual ones. There are too few shorter strings
for three splits; encoders' numbers are uniform below 10 to the power of the longest."""


SAMPLED = 200
"""Rows of a split from which the size of a dataset is estimated."""


@dataclass(frozen=True)
class Item:
    """One repository of the collection.

    Attributes:
        repo_id: `user/name`.
        kind: one of `commits.KINDS`.
        about: what it is, in one line.
        make: the publication, checked; a model is certified again, which may take a minute.
        size: its bytes, about.
    """

    repo_id: str
    kind: Literal["model", "dataset", "space"]
    about: str
    make: Callable[[], Publication]
    size: Callable[[], int]


def list_items(user: str, place: Path) -> list[Item]:
    """All repositories of the collection.

    Args:
        user: who they belong to on the Hub.
        place: an empty folder, which must last as long as the items.
    """
    if "/" in user:
        raise ValueError(f"USER must be the name of a user or an organization on the Hub, got {user!r}")
    page, metric, decoding = f"{user}/longhand", f"{user}/{METRIC_FOLDER.name}", f"{user}/parallel-greedy"
    items = [
        _item(page, "space", "A page to ask the models, and to see what they see", partial(page_publication, page)),
        _item(metric, "space", "Exact match in all and by length, for evaluate.load", partial(metric_publication, metric)),
        _item(decoding, "model", "Greedy decoding in parallel, for generate()", partial(decoding_publication, decoding)),
    ]
    for name in list_zoo():
        folder = unpack(name, place)
        recipe = read_recipe(folder / RECIPE_FILE)
        repo_id, dataset = f"{user}/longhand-{name}", dataset_name(user, recipe["task"])
        make = partial(model_publication, folder, repo_id, dataset)
        items.append(Item(repo_id, "model", sentence(recipe["description"]), make, partial(folder_bytes, folder)))
    for task in own_tasks():
        repo_id, problems = dataset_name(user, task), GeneratedDataset(task, configurations(task), NUM_SAMPLES[SHORT])
        make = partial(dataset_publication, problems, repo_id)
        items.append(Item(repo_id, "dataset", describe_dataset(task), make, partial(estimate, task, place)))
    return items


def _item(repo_id: str, kind: Literal["model", "space"], about: str, make: Callable[[], Publication]) -> Item:
    """An item whose files are small and soon made."""

    def size() -> int:
        files = make().make_files(Path(), PushedResults()).values()
        return sum(len(file) if isinstance(file, bytes) else file.stat().st_size for file in files)

    return Item(repo_id, kind, about, make, size)


def own_tasks() -> list[str]:
    """The names of the tasks of this package, without plugins."""
    return [name for name, task in TASKS.items() if task.__module__.startswith("longhand.")]


def dataset_name(user: str, task: str) -> str:
    """The repository of a task's dataset."""
    return f"{user}/longhand-{task.replace('_', '-')}-problems"


def configurations(task: str) -> dict[str, dict[str, Any]]:
    """The configurations of a task's dataset, as arguments of `load_task_dataset`."""
    sizes = zip(NUM_SAMPLES.items(), SIZES.get(task, _USUAL), strict=True)
    return {
        name: {"min_length": shortest, "max_length": longest, "num_samples": counts}
        for (name, counts), (shortest, longest) in sizes
    }


def describe_dataset(task: str) -> str:
    """What a task's dataset holds, in one line."""
    short, long = (TASKS[task]().describe_lengths(*sizes) for sizes in SIZES.get(task, _USUAL))
    return f"Problems of the task {task}: {short}, and tests with {long}"


def estimate(task: str, place: Path) -> int:
    """The bytes of a task's dataset, from a few rows of each split."""
    total = 0.0
    for name, arguments in configurations(task).items():
        for split, count in arguments["num_samples"].items():
            some = arguments | {"num_samples": SAMPLED, "split": split, "cache_dir": str(place / "cache")}
            rows = load_task_dataset(task, **some)
            file = place / f"{task}-{name}-{split}.parquet"
            rows.to_parquet(file)
            total += file.stat().st_size * count / SAMPLED
    return round(total)


def describe_items(items: Sequence[Item]) -> str:
    """A line for each item: about how many bytes it has, what it is and where it goes; the sum in the last line."""
    sizes = [item.size() for item in items]
    width = max(len(item.repo_id) for item in items)
    lines = [
        f"{size:>14,}  {item.kind:<8}{item.repo_id:<{width}}  {item.about}" for item, size in zip(items, sizes, strict=True)
    ]
    last = f"{sum(sizes):>14,}  bytes, about, in {len(items)} repositories, and a collection that joins them"
    return "\n".join([*lines, last])


def push_items(items: Sequence[Item], user: str, private: bool = False, api: HfApi | None = None) -> Collection:
    """Push all items in turn, once it is known that the Hub takes them, and join them in a collection.

    Raises:
        ValueError, CannotPush: see `push_model`. What was pushed before stays; the same call goes on from there.
    """
    for item in items:
        check_push(item.repo_id, item.kind, api, private=private)
    for item in items:
        print(publish(item.make(), private=private, api=api), flush=True)
    return join(items, user, private, api)


def join(items: Sequence[Item], user: str, private: bool = False, api: HfApi | None = None) -> Collection:
    """Put the items into the user's collection of this package, which is made if there is none. Others in it stay.

    Raises:
        CannotPush: the Hub refuses, or every attempt failed.
    """
    hub = api or HfApi()

    def attempt() -> Collection:
        # Asked anew in every attempt: an earlier one may have been heard, and only its answer lost.
        own = (one.slug for one in hub.list_collections(owner=user) if one.title == TITLE)
        if (slug := next(own, None)) is None:
            made = hub.create_collection(TITLE, namespace=user, description=DESCRIPTION, private=private, exists_ok=True)
            slug = made.slug
        collection = hub.get_collection(slug)
        joined = {(item.item_type, item.item_id) for item in collection.items}
        for item in items:
            if (item.kind, item.repo_id) not in joined:
                collection = hub.add_collection_item(slug, item.repo_id, item.kind, note=item.about, exists_ok=True)
        return collection

    return retry(attempt, f"the collection of {user}")
