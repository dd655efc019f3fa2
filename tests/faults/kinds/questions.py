"""Questions, as `--ask` and `Task.prompt` take them."""

import re

import numpy as np
from faults import truth
from faults.attempts import Finding, Outcome, attempt, check_answer, check_named
from faults.inputs import ODD, Input, Kind, choose, number
from faults.subjects import LONGEST, Subjects

from longhand.data import TASKS

ANSWERING = {
    "addition": ("certified", "addition"),
    "multi_operand_addition": ("multi-operand-addition",),
    "multiplication": ("multiplication",),
    "encoder_addition": ("reader",),
}
"""Who answers the questions of a task."""

UNLIMITED = ("addition", "addition_scratchpad", "multi_operand_addition", *truth.STRINGS, *truth.COLUMNS)
"""Tasks that take every question of their form."""


def make_question(generator: np.random.Generator) -> Input:
    task = choose(generator, *truth.KNOWN)
    few, many = truth.OPERANDS.get(task, (2, 2))
    sign = truth.SIGNS.get(task, choose(generator, "+", "=", "_", ">"))
    if task == "minesweeper":
        width, rows = generator.integers(1, 5, size=2)
        text = ">".join("".join(choose(generator, "_", "_", "M") for _ in range(width)) for _ in range(rows))
    elif task in truth.COLUMNS:
        signs, symbols, _ = truth.COLUMNS[task]
        lengths = generator.integers(1, 30, size=2 if signs else 1)
        text = signs[:1].join("".join(choose(generator, *symbols[:16]) for _ in range(length)) for length in lengths)
    elif generator.random() < 0.8:
        text = sign.join(number(generator) for _ in range(generator.integers(few, many + 1)))
    else:
        text = TASKS[task]().example_question
    for _ in range(generator.integers(0, 4)):
        place = int(generator.integers(0, len(text) + 1))
        if generator.random() < 0.3:
            text = text[:place] + text[place + 1 :]
        else:
            text = text[:place] + choose(generator, *ODD["inserted"]) + text[place:]
    return {"task": task, "question": text}


def run_question(subjects: Subjects, given: Input) -> Outcome:
    """A prompt must be refused or hold the question's own numbers; models that are right must answer it rightly."""
    name, question = given["task"], given["question"]
    task, legal = TASKS[name](), truth.is_legal(name, question)
    outcome = attempt(lambda: task.prompt(question))
    numbers = (text.lstrip("0") or "0" for text in re.findall("[0-9]+", question))
    named = (
        *numbers,
        repr(question)[1:-1],
        question[:10] or "''",
        *map(repr, question),
        "multiplier_length",
        truth.SIGNS.get(name, ""),
        name,
    )
    check_named(outcome, *named)
    if outcome.refusal is None and not legal:
        raise Finding("an answer to what is no legal input")
    if outcome.refusal is not None and legal and name in UNLIMITED:
        raise Finding("a legal question is refused")
    for subject in ANSWERING.get(name, ()) if outcome.refusal is None else ():
        answered = attempt(lambda subject=subject: subjects.checkpoint(subject).answer(question))
        if subject == "reader":
            continue
        if answered.refusal is not None and (subject == "certified" or len(question) < LONGEST):
            raise Finding("a legal question is refused")
        check_answer(answered, answered.value, truth.answer(name, question), f", {subject}")
        outcome = answered
    return outcome


KINDS = {"question": Kind(make_question, run_question, 4, "question")}
