"""Write a construction, a model whose weights are a proof, as a checkpoint that eval.py evaluates.

python -m longhand.hub_cards.research constructions addition --max_length 10000 --output_dir outputs/constructed-addition

long.jsonl holds what eval.py measures at 10,000 digits.
"""

import argparse
from pathlib import Path

from longhand.data import task_from_recipe
from longhand.data.checks import check_integer
from longhand.hub_cards.recipes import RECIPE_FILE, write_recipe
from longhand.hub_cards.research.constructions.constructions import CONSTRUCTIONS, MAX_BITS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the study."""
    statements = "\n".join(f"{name}: {construction.statement}" for name, construction in CONSTRUCTIONS.items())
    parser.add_argument("name", choices=CONSTRUCTIONS, help=statements)
    parser.add_argument("--max_length", type=int, default=100, help="digits of the longest operand (default %(default)s)")
    default = "an empty or new folder; default: outputs/constructed-NAME"
    parser.add_argument("--output_dir", type=Path, dest="folder", metavar="OUTPUT_DIR", help=default)


def run(name: str, max_length: int, folder: Path | None = None) -> None:
    """Build the smallest model for numbers of `max_length` digits; write it to a folder with its tokenizer and recipe.

    Args:
        name: in `CONSTRUCTIONS`.
        folder: an empty or new one; None is outputs/constructed-NAME.

    Raises:
        ValueError: a value is not legal, or the folder is not empty.
    """
    folder = folder or Path("outputs", f"constructed-{name}")
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"--output_dir {folder} is not empty: choose another folder")
    construction = CONSTRUCTIONS[name]
    check_integer("--max_length", max_length, 1, construction.capacity(MAX_BITS))
    bits = construction.bits(max_length)
    model, capacity = construction.build(bits), construction.capacity(bits)
    # The rule of every construction has the name of its task.
    task = task_from_recipe({"task": model.config.coupling})
    model.config.update(task.family.format_options(task))
    model.save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    description = f"{construction.statement}; built, not trained; exact up to {capacity} digits"
    command = f"python -m longhand.hub_cards.research constructions {name} --max_length {capacity}"
    recipe = {"recipe": folder.name, "description": description, "command": command, **task.describe()}
    write_recipe(recipe, folder / RECIPE_FILE)
    print(f"wrote {folder}: {description}\nnext: python eval.py {folder} --lengths {max_length}")
