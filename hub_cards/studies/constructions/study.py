"""Write a construction, a model whose weights are a proof, as a checkpoint that eval.py evaluates.

python -m longhand.hub_cards.studies constructions addition --max_length 10000 --output_dir outputs/constructed-addition
"""

import argparse
from pathlib import Path

from transformers.utils import logging

from longhand.data import build_tokenizer
from longhand.data.tasks.addition import Addition
from longhand.data.tasks.multi_operand_addition import MultiOperandAddition
from longhand.data.tasks.multiplication import Multiplication
from longhand.hub_cards.runs.console import refusing_in_one_line
from longhand.hub_cards.runs.recipes import RECIPE_FILE, write_recipe
from longhand.hub_cards.studies.constructions.constructions import CONSTRUCTIONS, MAX_BITS, count_heads, count_relus


def construction_task(name: str, operands: int | None) -> Addition | MultiOperandAddition | Multiplication:
    """The task that a construction solves; only the sum of several numbers has `operands`."""
    if operands is not None:
        return MultiOperandAddition(operands=operands)
    return Addition() if name == "addition" else Multiplication()


def construct(name: str, max_length: int, folder: Path, operands: int | None = None) -> None:
    """Build the smallest model for numbers of `max_length` digits; write it to `folder` with its tokenizer and recipe.

    Raises:
        ValueError: a value is not legal, or `folder` is not empty.
    """
    if max_length < 1:
        raise ValueError(f"--max_length must be at least 1, got {max_length}")
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"--output_dir {folder} is not empty: choose another folder")
    construction = CONSTRUCTIONS[name]
    if max_length > (longest := construction.capacity(MAX_BITS)):
        raise ValueError(f"--max_length must be at most {longest}, got {max_length}")
    options = {}
    if name == "multi-operand-addition":
        options["operands"] = operands = 3 if operands is None else operands
    elif operands is not None:
        raise ValueError(f"--operands is an option of multi-operand-addition only, got {operands} for {name}")
    task = construction_task(name, operands)
    bits = construction.bits(max_length)
    model = construction.build(bits, **options)
    capacity = construction.capacity(bits)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--output_dir {folder} cannot be made: {error}") from error
    model.save_pretrained(folder)
    build_tokenizer(task.end_token).save_pretrained(folder)
    description = f"{construction.statement}; built, not trained; exact up to {capacity} digits"
    command = f"python -m longhand.hub_cards.studies constructions {name} --max_length {capacity}"
    command += "".join(f" --{option} {value}" for option, value in options.items())
    recipe = {"recipe": folder.name, "description": description, "command": command, **task.describe()}
    write_recipe(recipe, folder / RECIPE_FILE)
    print(
        f"wrote {folder}: {construction.statement}; up to {capacity:,} digits, {model.num_parameters():,} parameters, "
        f"{count_heads(model)} heads, {count_relus(model)} ReLUs"
    )
    print(f"next: python eval.py {folder} --lengths {max_length}")


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m longhand.hub_cards.studies constructions",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    statements = "\n".join(f"{name}: {construction.statement}" for name, construction in CONSTRUCTIONS.items())
    parser.add_argument("name", choices=CONSTRUCTIONS, help=statements)
    parser.add_argument("--max_length", type=int, default=100, help="digits of the longest operand (default %(default)s)")
    parser.add_argument("--operands", type=int, help="of multi-operand-addition, 2 to 10 (default 3)")
    parser.add_argument("--output_dir", type=Path, help="an empty or new folder; default: outputs/constructed-NAME")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Write the construction; bad input ends with one line and exit status 2."""
    options = parse_arguments(arguments)
    logging.disable_progress_bar()
    folder = options.output_dir or Path("outputs", f"constructed-{options.name}")
    with refusing_in_one_line():
        construct(options.name, options.max_length, folder, options.operands)


if __name__ == "__main__":
    main()
