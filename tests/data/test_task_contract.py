"""What every task promises, in every format: answers, texts, splits, lengths, questions, refusals and labels."""

import re
from dataclasses import fields
from math import log

import numpy as np
import pytest
from cases import in_turn
from faults import truth
from neighbourhood_search import listed_neighbourhoods, neighbourhoods
from task_subjects import ENCODER_FORMATS, FORMATS, FURTHER_FORMATS, described, draw_group, question_of, text_of

from longhand.data import SPLITS, TASKS, CouplingCollator, EvaluationBatches, MultiOperandAddition, Parity, make_generator
from longhand.data.collator import IGNORED
from longhand.data.columns import example_columns
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.registry import find_task
from longhand.data.tasks.task import Task
from longhand.hub_cards.checkpoints.checkpoint import bare
from longhand.hub_cards.evaluation.other_models import problem_texts
from longhand.modeling.inputs import PromptFormats
from longhand.modeling.vocabulary import EQUALS, FIRST_HINT, PAD

ALL = [*FORMATS, *ENCODER_FORMATS, *FURTHER_FORMATS]
SINGLE = [task for task in ALL if len(task.parts) == 1]
DECODERS = [task for task in SINGLE if isinstance(task, DecoderTask)]
every_task = pytest.mark.parametrize("task", SINGLE, ids=described)
every_decoder = pytest.mark.parametrize("task", DECODERS, ids=described)


def named(value: Task | int | str) -> str:
    return described(value) if isinstance(value, Task) else str(value)


def right_answer(task, question: str) -> str | None:
    return truth.answer(question=question, **task.describe())


def longest(task, length: int) -> int:
    """This length, or the longest that the task has room for."""
    length = min(length, getattr(task, "max_hints", 10**6) - 1)
    room = getattr(task, "field_width", None)
    return length if room is None else min(length, room - task.needed_field(0))


@pytest.mark.parametrize(("task", "length"), in_turn(SINGLE, [1, 2, 5, 40]), ids=named)
def test_answers_are_those_of_python_and_prompts_those_of_their_questions(task, length):
    digits, lengths = draw_group(task, longest(task, length), 30)
    columns = example_columns(task, digits, lengths, make_generator(0))
    rows = columns.select(["prompt", "completion", "answer", "operand_lengths"]).to_pylist()
    for row, own in zip(rows, lengths.tolist(), strict=True):
        question = question_of(task, row["prompt"])
        right = right_answer(task, question)
        assert right is None or row["answer"] == right
        assert question_of(task, task.prompt(question)) == question
        if isinstance(task, DecoderTask):
            assert row["prompt"] == task.prompt(question) == task.prompt(f" {question} =")
            assert row["answer"] == task.reader.read(row["completion"])
            assert row["operand_lengths"] == [size for size in own if size]


@pytest.mark.parametrize(("task", "split"), in_turn(SINGLE, SPLITS), ids=named)
def test_rows_ask_questions_of_the_task_and_have_their_answers(task, split):
    """In the splits of a dataset; training may draw more by an option, and evaluation does not."""
    kind = find_task(task.name)
    drawn = task if split == "train" and task == kind() else task.for_evaluation
    for seed, length in enumerate((8, 12)):
        digits, lengths = draw_group(drawn, longest(drawn, length), 40, split, seed)
        columns = example_columns(drawn, digits, lengths, make_generator(seed))
        for row in columns.select(["prompt", "answer"]).to_pylist():
            question = question_of(drawn, row["prompt"])
            drawn.part_of(question).check_question(bare(question))
            assert row["answer"] == right_answer(drawn, question), question


@every_task
def test_problems_of_mixed_sizes_are_questions_of_many_sizes_and_of_their_split(task):
    if not task.prompts_tell_sizes:
        pytest.skip("its prompts do not say how wide a board is")
    drawn, sizes, count = task.for_evaluation, set(), 0
    for part, digits, lengths in drawn.draw_mixed(make_generator(0), 30, longest(task, 8), "test"):
        assert set(part.split_of(digits, lengths).tolist()) <= {-1, SPLITS.index("test")}
        questions, answers = problem_texts(part, digits, lengths)
        for question, answer in zip(questions, answers, strict=True):
            asked = question_of(part, part.prompt(question) if part.sign else question)
            assert answer == right_answer(part, asked)
            sizes.add(tuple(map(len, re.split("[-+*/>,?&=]", asked))))
            count += 1
    assert count == 30 and len(sizes) >= 5


@every_decoder
def test_a_text_is_prompt_response_and_end_and_the_response_is_what_counts(task):
    lengths = task.operand_lengths(4)
    collator = CouplingCollator("sequential", 1300)
    batch = EvaluationBatches(task, lengths, 20, 0, "test", 20, collator=collator)[0]
    for tokens, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        text = text_of(task, tokens)
        query = text.index("=") + 1
        assert task.prompt(question_of(task, text[1:query])) == text[1:query] and text[0] == "$"
        counted = getattr(task, "supervise_hints", True)
        expected = [token if token != PAD and (counted or token < FIRST_HINT) else IGNORED for token in tokens]
        assert labels == [IGNORED] * query + expected[query:]
        assert [token for token in tokens if token != PAD][-1] == task.end_token
    first = (batch["input_ids"] == EQUALS).int().argmax(1).min()
    assert batch["logits_to_keep"] == batch["input_ids"].shape[1] - first


@every_task
def test_splits_share_no_short_problem_and_an_unknown_split_is_refused(task):
    symbols = 2 if task.name == "minesweeper" else len(getattr(task, "alphabet", "")) or getattr(task, "symbols", 10)
    size = 4 if task.name == "minesweeper" else max(2, round(3 / log(symbols, 10)))
    drawn = []
    for split in SPLITS:
        digits, lengths = draw_group(task.for_evaluation, size, 300, split)
        assert set(task.split_of(digits, lengths).tolist()) <= {-1, SPLITS.index(split)}
        width = np.zeros((*digits.shape[:2], 100), dtype=np.uint8)
        width[..., : digits.shape[2]] = digits
        own = task.split_of(digits, lengths) >= 0
        drawn.append({(bytes(row), *own) for row, own in zip(width[own], lengths[own].tolist(), strict=True)})
    assert not (drawn[0] & drawn[1] or drawn[0] & drawn[2] or drawn[1] & drawn[2])
    with pytest.raises(ValueError, match=f"'dev'.*{', '.join(SPLITS)}"):
        task.draw(make_generator(0), lengths, "dev")


@every_task
def test_lengths_of_a_group_are_sampled_lengths_of_that_group(task):
    if task.name == "addition_scratchpad" or getattr(task, "sampling", "") in getattr(task, "class_samplings", ()):
        pytest.skip("lengths of this sampling have a distribution of their own, with tests of its own")
    low = 1 if task.family.name == "encoder" else 2
    sampled = task.sample_lengths(make_generator(0), 40_000, low, low + 2)
    assert sampled[sampled > 0].min() >= min(low, sampled[0, -1]) and sampled.max() <= low + 2
    groups = task.group(sampled)
    group = groups[sampled.max(axis=1).argmax()]
    given = sampled[groups == group]
    drawn = task.group_lengths(make_generator(1), given[0], len(given), low)
    assert (task.group(drawn) == group).all()
    rows, counts = np.unique(given, axis=0, return_counts=True)
    again = np.array([(drawn == row).all(axis=1).sum() for row in rows])
    assert again.sum() == len(drawn) and (np.abs(again - counts) <= 6 * np.sqrt(2 * counts) + 6).all()


@every_task
def test_same_seed_same_problems(task):
    first, again, other = (draw_group(task, longest(task, 5), 50, seed=seed) for seed in (0, 0, 1))
    assert all(map(np.array_equal, first, again)) and not all(map(np.array_equal, first, other))


@every_decoder
def test_problems_of_two_groups_share_no_batch_unless_they_are_padded(task):
    parts = [draw_group(task, length, 1)[1] for length in (3, 2)]
    width = max(part.shape[1] for part in parts)
    lengths = np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])
    try:
        examples = task.examples(make_generator(0), lengths, "train")
    except ValueError as refused:
        assert {"2", "3"} <= set(re.findall("[0-9]+", str(refused)))
    else:
        assert not examples.same_layout
        for row, query in zip(examples.tokens, examples.query_lengths, strict=True):
            text = text_of(task, row)
            assert text.index("=") + 1 == query and (row[len(text.replace("<eos>", "$")) :] == PAD).all()


WITHOUT_A_LIST = ("index_hinted_addition", "minesweeper", "multiplication")
"""No window can be right, or its own tests have the problems, or two layers, that its certificates need."""

SUMS_OF_MANY = [MultiOperandAddition(operands=count) for count in (3, 5)]
"""Their lists are long; `LISTS` in test_column_tasks.py has the hash of one."""

MALFORMED = ["", " ", "=", "+", "3", "3+", "+4", "3+4+5", "-3+4", "3+-4", "3++4", "3+4==", "3+4=7", "3.0+4", "3 4", "1 2+3",
             "1,000+2", "1_0+2", "0x3+4", "$3+4=", "٣+4", "3\u00a0+4", "3+4;", "1e3+4", "3*4", "3*4*5", "3-4", "6-", "/7",
             "8/7/1", "M_0", "m__>__m", "M__>>__M", "M__>", "!", "1==", "Ā0+Ā1", "3>4", "(3+4)", "3+4\n5"]  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_malformed_questions_are_refused_by_name(name):
    task = TASKS[name]()
    for question in MALFORMED:
        if not truth.is_legal(question=question, **task.describe()):
            with pytest.raises(ValueError, match=re.escape(repr(question))):
                task.prompt(question)
    assert task.prompt(task.example_question) == task.prompt(f"  {task.example_question}\t=\n")


@pytest.mark.parametrize("task", ALL, ids=described)
def test_a_description_makes_the_task_again_and_a_field_of_another_type_is_refused_by_name(task):
    description = task.describe()
    kind = TASKS[description.pop("task")]
    assert kind(**description) == task
    for option in fields(kind):
        odd = {bool: [1, "yes", None], int: [True, 2.5, "3", None, -1], float: [True, "0.2", None, float("nan"), -0.1]}
        for value in odd.get(option.type, ["odd"]):
            with pytest.raises(ValueError, match=f"{option.name}.*{re.escape(repr(value))}"):
                kind(**{option.name: value})


@every_decoder
def test_every_token_of_a_long_problem_sees_what_the_list_for_certificates_holds(task):
    rule = task.rule
    window = (0, 1) if task.name in ("addition", "multi_operand_addition") else rule.relations
    if (
        task.name in WITHOUT_A_LIST
        or task in (Parity(scratchpad=False), *SUMS_OF_MANY)
        or getattr(task, "order", "") == "plain"
    ):
        pytest.skip("no window can be right, or the list is long and has tests of its own")
    listed = set(listed_neighbourhoods(task.covering(window, 1)))
    for length in (1, 3, 12):
        digits, lengths = draw_group(task, length, 60)
        examples = task.format(digits, lengths)
        if examples.same_layout:
            assert neighbourhoods(rule, examples, window) <= listed


@every_decoder
def test_other_windows_and_more_layers_have_no_list(task):
    for window, layers in (((0, 0), 1), ((0, 1), 3), (task.rule.relations[:-1] or (-1, 0), 1), (task.rule.relations, 3)):
        with pytest.raises(ValueError):
            task.covering(window, layers)


@pytest.mark.parametrize("task", [task for kind in TASKS.values() if len((task := kind()).parts) > 1], ids=described)
def test_a_task_of_several_takes_the_prompts_of_each(task):
    assert isinstance(task.prompt_format, PromptFormats)
    for part in task.parts:
        assert task.prompt(part.example_question) == part.prompt(part.example_question)


@pytest.mark.parametrize("name", ["minesweeper", "addition_scratchpad"])
def test_a_size_is_refused_before_a_tuple_of_it_is_made(name):
    with pytest.raises(ValueError, match="from 1 to 2,000"):
        TASKS[name]().operand_lengths(10**11)
