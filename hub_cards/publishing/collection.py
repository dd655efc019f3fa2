"""Publish all of this package's work in one go: page, models, datasets, metric, decoding, and a collection that joins them.

Each repository gets one commit or none, in turn; then the collection gets the repositories that it lacks. After a push was
cut off, the same command continues and sends nothing twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import Collection, HfApi

from longhand.data import SPLITS, TASKS
from longhand.data.builder import shortest_length
from longhand.hub_cards.checkpoints.folder import unpack
from longhand.hub_cards.checkpoints.zoo import list_zoo, zoo
from longhand.hub_cards.console import one_line
from longhand.hub_cards.publishing.cards import sentence
from longhand.hub_cards.publishing.commits import check_owner, refusing
from longhand.hub_cards.publishing.dataset import GeneratedDataset, dataset_publication
from longhand.hub_cards.publishing.publications import (
    METRIC_FOLDER,
    Publication,
    decoding_publication,
    metric_publication,
    model_publication,
    page_publication,
    publish,
)
from longhand.hub_cards.recipes import RECIPE_FILE, read_recipe

TITLE = "longhand: arithmetic that is right at every length"
DESCRIPTION = "Small transformers that are proved to calculate exactly at every length; their problems, metric and decoding."
"""Description of the collection. The Hub allows 150 characters."""

SHORT, LONG = "short", "long"
"""Configurations of every dataset: problems of trained sizes, and test problems far beyond them."""

NUM_SAMPLES = {SHORT: {"train": 200_000, "validation": 2000, "test": 10_000}, LONG: {"test": 2000}}
"""Rows of the splits of each configuration."""

LONGEST, LONGEST_TESTED = 30, 300
"""Longest problems of both configurations of a task that has no sizes of its own."""

_ENCODERS = ((1, 10), (1, 100))
SIZES = {
    "addition_scratchpad": ((1, 10), (11, 50)),
    "calculator": ((1, 10), (11, 30)),
    "encoder_addition": _ENCODERS,
    "encoder_multiplication": _ENCODERS,
    "encoder_multiplication_grid": ((1, 10), (11, 30)),
    "index_hinted_addition": ((1, 30), (31, 200)),
    "minesweeper": ((5, 9), (10, 40)),
    "multiplication_scratchpad": ((1, 10), (11, 30)),
    "parity": ((10, 40), (41, 300)),
}
"""Shortest and longest size of both configurations, where they are not the usual ones of `sizes`. Encoders' numbers are
uniform below 10 to the power of the longest."""


@dataclass(frozen=True)
class Item:
    """One repository of the collection.

    Attributes:
        repo_id: `user/name`.
        type: one of `commits.TYPES`.
        about: its contents, in one line.
        make: the publication, checked; a model is certified again, which may take a minute.
    """

    repo_id: str
    type: Literal["model", "dataset", "space"]
    about: str
    make: Callable[[], Publication]


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
        Item(page, "space", "A page to ask the models, and to see what they see", partial(page_publication, page)),
        Item(metric, "space", "Exact match in all and by length, for evaluate.load", partial(metric_publication, metric)),
        Item(decoding, "model", "Greedy decoding in parallel, for generate()", partial(decoding_publication, decoding)),
    ]
    for name in list_zoo():
        recipe, repo_id = read_recipe(Path(zoo(name)) / RECIPE_FILE), f"{user}/longhand-{name}"
        make = partial(zoo_publication, name, place, repo_id, dataset_name(user, recipe["task"]))
        items.append(Item(repo_id, "model", sentence(recipe["description"]), make))
    for task in own_tasks():
        repo_id, problems = dataset_name(user, task), GeneratedDataset(task, configurations(task), NUM_SAMPLES[SHORT])
        items.append(Item(repo_id, "dataset", describe_dataset(task), partial(dataset_publication, problems, repo_id)))
    return items


def zoo_publication(name: str, place: Path, repo_id: str, dataset: str) -> Publication:
    """A checkpoint of the zoo, with the code that runs it; see `model_publication`."""
    return model_publication(unpack(name, place), repo_id, dataset)


def own_tasks() -> list[str]:
    """The names of the tasks of this package, without plugins."""
    return [name for name, task in TASKS.items() if task.__module__.startswith("longhand.")]


def dataset_name(user: str, task: str) -> str:
    """The repository of a task's dataset."""
    return f"{user}/longhand-{task.replace('_', '-')}-problems"


@cache
def sizes(task: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shortest and longest size of both configurations. The shortest is the least of which every split holds problems."""
    if task in SIZES:
        return SIZES[task]
    shortest = max(shortest_length(TASKS[task](), split, 1, LONGEST) for split in SPLITS)
    return (shortest, LONGEST), (LONGEST + 1, LONGEST_TESTED)


def configurations(task: str) -> dict[str, dict[str, Any]]:
    """The configurations of a task's dataset, as arguments of `load_task_dataset`."""
    return {
        name: {"min_length": shortest, "max_length": longest, "num_samples": counts}
        for (name, counts), (shortest, longest) in zip(NUM_SAMPLES.items(), sizes(task), strict=True)
    }


def describe_dataset(task: str) -> str:
    """The problems of a task's dataset, in one line."""
    short, long = (TASKS[task]().describe_lengths(*own) for own in sizes(task))
    return f"Problems of the task {task}: {short}, and tests with {long}"


def describe_items(items: Sequence[Item]) -> str:
    """A line for each item: what it is and where it goes."""
    width = max(len(item.repo_id) for item in items)
    lines = [f"{item.type:<8}{item.repo_id:<{width}}  {item.about}" for item in items]
    return "\n".join([*lines, f"{len(items)} repositories, and a collection that joins them"])


def push_items(
    items: Sequence[Item], user: str, private: bool = False, api: HfApi | None = None
) -> tuple[Collection, dict[str, str]]:
    """Push all items in turn and join them in a collection. If an item is refused, the others are still pushed.

    Returns:
        The collection, and why an item was not pushed by its repository.

    Raises:
        CannotPush: the token may not write to the user's repositories, or the Hub refuses the collection. What was pushed
            before stays; the same call goes on from there.
    """
    check_owner(user, api or HfApi())
    refused: dict[str, str] = {}
    for item in items:
        try:
            print(publish(item.make(), private=private, api=api), flush=True)
        except ValueError as error:
            refused[item.repo_id] = one_line(error)
            print(f"{item.repo_id}: not pushed: {refused[item.repo_id]}", flush=True)
    pushed = [item for item in items if item.repo_id not in refused]
    with refusing(f"the collection of {user}"):
        return join(pushed, user, private, api or HfApi()), refused


def join(items: Sequence[Item], user: str, private: bool, api: HfApi) -> Collection:
    """Put the items into the user's collection of this package, which is made if there is none. Other items stay."""
    own = (one.slug for one in api.list_collections(owner=user) if one.title == TITLE)
    if (slug := next(own, None)) is None:
        made = api.create_collection(TITLE, namespace=user, description=DESCRIPTION, private=private, exists_ok=True)
        slug = made.slug
    collection = api.get_collection(slug)
    joined = {(item.item_type, item.item_id) for item in collection.items}
    for item in items:
        if (item.type, item.repo_id) not in joined:
            collection = api.add_collection_item(slug, item.repo_id, item.type, note=item.about, exists_ok=True)
    return collection
