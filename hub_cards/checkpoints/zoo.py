"""The zoo: certified checkpoints that come with this package, a folder `hub_cards/zoo/NAME` for each, named as its recipe.

A folder holds what a finished run leaves, but for the code that travels with checkpoints: here the package is the code.
"""

import difflib
import sys
from contextlib import suppress
from pathlib import Path

from longhand.data.tasks.registry import task_from_recipe
from longhand.hub_cards.recipes import RECIPE_FILE, list_recipes, read_recipe

ZOO_FOLDER = Path(__file__).parents[1] / "zoo"


def list_zoo() -> list[str]:
    """Return the names of all checkpoints of the zoo."""
    return sorted(file.parent.name for file in ZOO_FOLDER.glob("*/config.json"))


def zoo(name: str) -> str:
    """Return the folder of a checkpoint of the zoo, for `from_pretrained`.

        AutoModelForCausalLM.from_pretrained(longhand.zoo("addition"))

    Raises:
        ValueError: there is no such checkpoint.
    """
    if name not in (names := list_zoo()):
        close = difflib.get_close_matches(str(name), names, n=3)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise ValueError(f"the zoo has no checkpoint {name!r}: {hint}choose one of {', '.join(names)}")
    return str(ZOO_FOLDER / name)


def locate(source: str) -> str:
    """Return the folder of the zoo if a checkpoint is named so, else the name itself: of another folder, or on the Hub.

    A folder of that name in the working directory comes first if it holds a checkpoint. If there is such a
    folder, one line says which of the two is taken.

    Raises:
        ValueError: it is the name of a recipe of which the zoo has no checkpoint.
    """
    if source not in list_zoo():
        if source in list_recipes() and not Path(source).is_dir():
            raise ValueError(
                f"{source} is a recipe, and the package has no checkpoint of it: train it first (python train.py {source}), "
                f"then give the run's folder, such as outputs/{source}"
            )
        return source
    if Path(source, "config.json").is_file():
        print(f"note: {source} is a folder here; the checkpoint {source} of the zoo is {zoo(source)}", file=sys.stderr)
        return source
    if Path(source).is_dir():
        print(f"note: the folder {source} holds no checkpoint; that of the zoo is taken, {zoo(source)}", file=sys.stderr)
    return zoo(source)


def who_answers(question: str) -> list[str]:
    """Return the checkpoints of the zoo, three at most, whose tasks have questions of this form."""
    names = []
    for name in list_zoo():
        with suppress(ValueError):
            task_from_recipe(read_recipe(ZOO_FOLDER / name / RECIPE_FILE)).for_evaluation.part_of(question).prompt(question)
            names.append(name)
    return sorted(names, key=lambda name: name != "calculator")[:3]


def is_in_zoo(folder: Path | str) -> bool:
    """Whether a folder is one of the zoo. Nothing is written into it, except by `longhand.hub_cards.research.ship`."""
    return Path(folder).resolve().parent == ZOO_FOLDER.resolve()


def describe_zoo() -> str:
    """Return a line for each checkpoint of the zoo: its name, a question, and what it does."""
    lines = []
    for name in list_zoo():
        recipe = read_recipe(ZOO_FOLDER / name / RECIPE_FILE)
        lines.append((name, str(task_from_recipe(recipe).example_question), recipe.get("description", "")))
    widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1)]
    return "\n".join(f"{name:{widths[0]}}  {question:{widths[1]}}  {about}" for name, question, about in lines)
