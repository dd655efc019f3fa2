"""Arguments of `load_task_dataset`; the answers in its rows are computed again by Python's integers."""

import re
from dataclasses import fields
from itertools import islice
from typing import get_args

import numpy as np
from faults import truth
from faults.attempts import Finding, Outcome, attempt, check_named, words_of
from faults.inputs import ODD, Input, Kind, choose
from faults.subjects import Subjects

from longhand.data import TASKS, load_task_dataset

SPLITS = ("train", "validation", "test")


def make_dataset(generator: np.random.Generator) -> Input:
    task = choose(generator, *truth.KNOWN)
    given: Input = {"task": task, "max_length": int(generator.integers(3, 9)), "num_samples": int(generator.integers(1, 9))}
    for field in fields(TASKS[task]):
        if generator.random() < 0.3:
            legal = (True, False) if field.type is bool else get_args(field.type) or (1, 2, 3, 5)
            given[field.name] = choose(generator, *(legal if generator.random() < 0.8 else ODD["values"]))
    for name in ("split", "seed", "max_length", "num_samples", "min_length", "num_proc", "other"):
        if generator.random() < 0.12:
            given[name] = choose(generator, *(ODD["values"] if generator.random() < 0.5 else ODD["dataset"][name]))
    return given


def run_dataset(subjects: Subjects, given: Input) -> Outcome:
    """Arguments are refused by name; else every row holds a problem of the lengths asked for and its right answer."""

    def work():
        rows = load_task_dataset(**given, streaming=True)
        splits = rows.values() if isinstance(rows, dict) else [rows]
        return [row for split in splits for row in islice(split, 20)]

    outcome = attempt(work)
    check_named(outcome, *given, *words_of(*given.values()), "min_length")
    for row in outcome.value or ():
        check_row(row, given)
    return outcome


def check_row(row: dict, given: Input) -> None:
    task, prompt = given["task"], row["prompt"]
    prompt = prompt if task in truth.COLUMNS else re.sub(r"[^0-9+*/=>M_-]", "", prompt)
    if task.startswith("encoder"):
        prompt = prompt.replace("_", "")
        if task == "encoder_multiplication_grid":
            first, *others = re.findall("[0-9]+", prompt)
            prompt = f"{first}*{''.join(others)[::-1]}"
    elif given.get("order") == "all_reversed":
        prompt = "+".join(part[::-1] for part in prompt.removesuffix("=").split("+"))
    if (right := truth.answer(question=prompt, **given)) is not None and row["answer"] != right:
        raise Finding(f"a row has a wrong answer, {task}")
    legal = [given["max_length"]]
    if "multiplication" in task:
        legal.append(given.get("multiplier_length") or 3)
    if given.get("sampling") == "shifted":
        # Zeros fill the field.
        legal.append(given.get("field_width") or 2 * given["max_length"])
    # A board may have more rows than columns.
    if task != "minesweeper" and max(row["operand_lengths"]) > max(legal):
        raise Finding(f"a row has other lengths than asked for, {task}")


KINDS = {"dataset": Kind(make_dataset, run_dataset, 3)}
