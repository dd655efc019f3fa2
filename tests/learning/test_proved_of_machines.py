"""What is called proved of a machine: it holds for every number, and follows from the table, whatever a folder says."""

import json
import operator
import random
import re
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest
from cases import all_but, drawn, in_turn
from certificate_subjects import change_json
from publishing_subjects import model_card

from longhand import eval as evaluation
from longhand.data import ColumnTask, learn_task
from longhand.data.learning.example_files import Example
from longhand.data.learning.examples import learn_task_from_examples
from longhand.data.learning.machine_task import build, pass_of, with_states
from longhand.data.learning.machines import Machine
from longhand.data.learning.proof import NOTHING_PROVED, linear_in_table, proved_of
from longhand.data.learning.questions.functions import Refused
from longhand.data.learning.questions.words import DIGITS, Words, number_as_text
from longhand.data.proofs import hash_weights
from longhand.data.tasks.column_task import tables_of, task_of_table
from longhand.data.tasks.registry import TASKS
from longhand.hub_cards.recipes import write_recipe
from longhand.hub_cards.result_rows import write_results
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.transducer import Transducer, table_of

FUNCTIONS = {
    "sums": lambda a, b: a + b,
    "differences": lambda a, b: max(a, b) - min(a, b) if a >= b else 0,
    "more": lambda a: 2 * a + 1,
    "quotients": lambda a: a // 2,
    "larger": lambda a, b: max(a, b),
    "weighted": lambda a, b: a + 2 * b,
}
"""Functions of numbers, some of which are linear."""


def padded(function, base: int, width: int | None, modulus: int | None = None) -> list[Example]:
    """Examples whose operands are padded to one width, or each question's to a width of its own."""
    generator, alphabet = random.Random(base), DIGITS[:base]
    operands = function.__code__.co_argcount
    examples = []
    for _ in range(1200):
        columns = width or generator.randint(1, 8)
        # As wide as the field, or too short to fill it with what they give.
        digits = columns if modulus or not width else columns - 2
        numbers = [generator.randrange(base ** generator.randint(1, digits)) for _ in range(operands)]
        value = function(*numbers) % (modulus or base**99)
        question = "+".join(number_as_text(number, alphabet).rjust(columns, "0") for number in numbers)
        examples.append(Example(question, number_as_text(value, alphabet)))
    return examples


def holds_for_wide_operands(sentence: str, task: ColumnTask, count: int = 50) -> bool:
    """Whether a task answers as a sentence says, for operands of different widths and in Python's arithmetic."""
    formula = sentence.removeprefix("the machine is ").partition(" for numbers")[0]
    factors = [int(factor) for factor in re.findall(r"(-?\d+) [a-z]", formula)]
    constant, base = int(formula.rpartition("+")[2]), len(task.alphabet)
    generator = random.Random(1)
    for _ in range(count):
        numbers = [
            generator.choice((base**width - 1, generator.randrange(base**width)))
            for width in (generator.choice((1, 2, 7, 40)) for _ in factors)
        ]
        texts = [number_as_text(number, task.alphabet) for number in numbers]
        right = sum(factor * number for factor, number in zip(factors, numbers, strict=True)) + constant
        if int(task.answer_to(task.sign.join(texts)), base) != right:
            return False
    return True


@pytest.mark.parametrize("width", [None, 6])
@pytest.mark.parametrize(("name", "base"), in_turn(FUNCTIONS, (2, 3, 4)))
def test_what_padded_examples_prove_holds_for_numbers_of_every_width(name, base, width):
    try:
        task, report = learn_task_from_examples(padded(FUNCTIONS[name], base, width), base=base)
    except Refused:
        return
    assert report.proved == proved_of(task)
    if report.proved != NOTHING_PROVED:
        assert holds_for_wide_operands(report.proved, task)


@pytest.mark.parametrize("base", all_but([4], [2, 4]))
@pytest.mark.parametrize("width", [None, 6])
def test_padded_sums_are_sums_and_those_that_wrap_round_are_not(base, width):
    task, report = learn_task_from_examples(padded(FUNCTIONS["sums"], base, width), base=base)
    highest = task.alphabet[-1]
    assert report.proved != NOTHING_PROVED and task.answer_to(f"{highest * 9}+1") == "1" + "0" * 9
    assert "as they are written" not in report.found
    task, report = learn_task_from_examples(padded(FUNCTIONS["sums"], base, 6, base**6), base=base)
    assert report.proved == NOTHING_PROVED and task.answer_to(f"{highest * 9}+1") == "0"
    assert "as they are written" in report.found


def linear_table(coefficients: tuple[int, ...], constant: int, base: int, write_states: bool) -> Transducer:
    """The table of a linear function, whose states are the carries, with the flush that the largest carry needs."""
    carries, write, following = [constant], list[list[int]](), list[list[int]]()
    for carry in carries:
        totals = [
            carry + sum(map(operator.mul, coefficients, digits)) for digits in product(range(base), repeat=len(coefficients))
        ]
        carries += dict.fromkeys(total // base for total in totals if total // base not in carries)
        write.append([total % base for total in totals])
        following.append([carries.index(total // base) for total in totals])
    operands, flush = len(coefficients), len(number_as_text(max(carries), DIGITS[:base]))
    words = Words(DIGITS[:base], operands, True)
    passes = (pass_of(Machine(write, following), words.alphabet, "ones_first", range(operands), flush),)
    passes = with_states(passes, operands) if write_states else passes
    return tables_of(build("linear", words, "," if operands > 1 else "", "all", passes, "A linear function."))


LINEAR = [((1, 1), 0), ((7,), 3), ((1, 3), 2), ((0, 1), 0)]
"""Coefficients and constants."""


@pytest.mark.parametrize("write_states", [False, True])
@pytest.mark.parametrize("base", [2, 3, 10])
@pytest.mark.parametrize("function", LINEAR)
def test_a_flush_in_which_a_carry_may_be_left_proves_nothing(function, base, write_states):
    table = linear_table(*function, base, write_states)
    coefficients, constant = function
    for flush in range(table.passes[-1].flush + 3):
        changed = replace(table, passes=tuple(replace(own, flush=flush) for own in table.passes))
        # The largest number of one column and of many: its digits say how many columns are flushed at least.
        fits = all(sum(coefficients) * (base**width - 1) + constant < base ** (width + flush) for width in (1, 2, 3, 20))
        found = linear_in_table(changed)
        assert (found is not None) == fits
        if found is not None:
            assert (found.coefficients, found.constant) == function


@pytest.mark.parametrize("table", ["write", "next"])
def test_a_table_with_one_other_entry_proves_nothing(table):
    found = linear_table((1, 2), 0, 3, False)
    (own,) = found.passes
    assert linear_in_table(found) is not None
    for state, row in enumerate(rows := getattr(own, table)):
        for letter, value in enumerate(row):
            changed = [list(other) for other in rows]
            changed[state][letter] = (value + 1) % (3 if table == "write" else len(rows))
            assert linear_in_table(replace(found, passes=(replace(own, **{table: changed}),))) is None


FORGED = "FORGED, proved for every width"


@pytest.fixture(scope="module")
def found_folder(tmp_path_factory):
    """A folder with a machine that was found, and a model that has learned nothing."""
    folder = tmp_path_factory.mktemp("found") / "found_sums"
    learned = learn_task(lambda a, b: a + b, base=2, name="found_sums")
    facts = learned.report.facts | {"meaning": "Sums.", "code": "def f(a, b): ...", "symbols": "A is 10"}
    kind = task_of_table("found_sums", table_of(learned.task.transducer) or {}, facts)
    config = CoupledGPTConfig(
        hidden_size=8,
        num_attention_heads=2,
        intermediate_size=8,
        vocab_size=len(kind().tokens),
        coupling="columns",
        transducer=table_of(kind().transducer),
        position_encoding="pairwise",
        windowed=True,
        task={"task": "found_sums"},
    )
    model = CoupledGPTForCausalLM(config)
    model.save_pretrained(folder)
    kind.family.tokenizer(kind()).save_pretrained(folder)
    write_recipe({**kind().describe(), "learned": facts}, folder / "recipe.yaml")
    yield folder, facts
    TASKS.pop("found_sums", None)


@pytest.mark.parametrize(
    "fact", drawn([None, "source", "machine", "checked", "proved", "symbols", "meaning", "code", "more"], 3)
)
def test_what_a_folder_says_of_a_machine_is_not_repeated_as_proved(fact, found_folder, tmp_path, capsys):
    folder, facts = found_folder
    forged = {**facts, fact: FORGED} if fact else {name: FORGED for name in facts}
    recipe = {"task": "found_sums", "learned": forged}
    write_recipe(recipe, folder / "recipe.yaml")
    with suppress(SystemExit):
        evaluation.main([str(folder), "--certify", "--output_dir", str(tmp_path / "out")])
    shown = capsys.readouterr().out.replace("\n     ", " ")
    change_json(folder / "certificate.json", learned=forged)
    model = evaluation.load_checkpoint(str(folder)).model
    row = {"model": "found_sums", "task": "found_sums", "length": 5, "length_b": 5, "num_samples": 9, "seed": 7}
    row |= {"decode": "teacher_forced", "exact_match": 1.0, "token_accuracy": 1.0, "seconds": 0.1, "hardware": "some CPU"}
    row |= {"worst_tried": None, "worst_lead": None, "worst_problem": None, "worst_answer": None, "worst_right": None}
    write_results([row | {"weights": hash_weights(model), "worst_verdict": "proved"}], folder / "results.jsonl")
    card = model_card(folder)
    for text in (shown, card.partition("recipe.yaml</code>")[0]):
        lines = [line for line in text.splitlines() if "1 a + 1 b + 0 for numbers of every width" in line]
        assert len(lines) == 1 and "proved" in lines[0]
        assert not [line for line in text.splitlines() if "proved" in line.replace(FORGED, "") and FORGED in line]
    assert "none, proved" not in card
    assert json.loads((folder / "certificate.json").read_text())["certified"] is False
