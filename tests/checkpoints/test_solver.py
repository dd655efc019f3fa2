"""One Python call: every shipped model answers questions of mixed lengths, in any order, as it answers each by itself."""

import io
import random
import shutil
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import drawn

import longhand
from longhand import eval as evaluation
from longhand.data.formatting import Examples
from longhand.data.splits import make_generator
from longhand.hub_cards.checkpoints.load import list_zoo, load_checkpoint, zoo
from longhand.hub_cards.checkpoints.solver import shipped_for
from longhand.hub_cards.evaluation.measure import evaluate_lengths, measure_mixed
from longhand.hub_cards.page.build import LESSONS_FOLDER
from longhand.hub_cards.result_rows import MIXED, write_results
from longhand.modeling.vocabulary import decode


def questions_of(task) -> list[str]:
    """Example questions, and the prompts of test problems of several sizes as questions."""
    texts = [task.example_question] * 2
    for size in ((1,), (2,), (3,), (1, 3), (4, 2)):
        with suppress(ValueError):
            lengths = np.array([task.operand_lengths(*size)] * 2)
            examples = task.examples(make_generator(0, "test"), lengths, "test")
            if isinstance(examples, Examples):
                queries = zip(examples.tokens, examples.query_lengths, strict=True)
                texts += [decode(tokens[1:length], task.tokens) for tokens, length in queries]
    return texts


def is_answered(solver, question: str) -> bool:
    """Whether a person may ask it: a few tasks draw problems that are none, such as an expression that ends with a sign."""
    with suppress(ValueError):
        return bool(solver([question]))
    return False


@pytest.mark.parametrize("name", drawn(list_zoo(), 7))
def test_questions_of_mixed_lengths_have_the_answers_that_each_has_by_itself(name):
    solver = longhand.load(name)
    questions = [question for part in solver.checkpoint.task.parts for question in questions_of(part)]
    questions = [question for question in questions if is_answered(solver, question)]
    random.Random(0).shuffle(questions)
    assert len(questions) > 1 and solver(questions) == [solver(question) for question in questions]
    assert solver([]) == []


def test_sums_of_all_lengths_are_right_in_the_order_of_the_questions():
    draw = random.Random(0)
    pairs = [(draw.randrange(10 ** draw.randint(1, 30)), draw.randrange(10 ** draw.randint(1, 30))) for _ in range(300)]
    answers = longhand.load("addition")(f"{first}+{second}" for first, second in pairs)
    assert answers == [str(first + second) for first, second in pairs]


@pytest.mark.parametrize("digits", [1, 3, 5, 10, 20, 40])
def test_an_answer_is_that_of_decoding_token_by_token(digits):
    """Under a window it is found in parallel, whatever its length."""
    adder, generator = longhand.load("addition"), random.Random(digits)
    questions = ["+".join(str(generator.randrange(10**digits)) for _ in range(2)) for _ in range(5)]
    questions.append(f"{10**digits - 1}+1")
    task = adder.checkpoint.task
    for question in questions:
        prompt = adder.tokenizer([task.prompt(question)], return_tensors="pt")["input_ids"]
        written = adder.model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False)
        text = adder.tokenizer.decode(written[0, prompt.shape[1] :], skip_special_tokens=True)
        assert adder(question) == task.reader.read(text)


def test_a_refused_question_is_named_with_the_models_that_take_it():
    solver = longhand.load("addition")
    with pytest.raises(ValueError, match=r"'653-49'.*subtraction"):
        solver("653-49")
    with pytest.raises(ValueError, match=r"2 of 3.*'3\*4'.*multiplication-1"):
        solver(["1+1", "3*4", "2+2"])
    for name in ("subtraction", "calculator"):
        assert name in shipped_for("653-49") and longhand.load(name)("653-49") == "604"
    for wrong in (653, None, b"1+1", {"1+1": 2}, ["1+1", 653], [b"1+1"]):
        with pytest.raises(TypeError, match="text"):
            solver(wrong)


@pytest.mark.thorough
def test_a_model_that_a_refusal_names_takes_the_question():
    solvers = {name: longhand.load(name) for name in list_zoo()}
    examples = {part.example_question for solver in solvers.values() for part in solver.checkpoint.task.parts}
    changed = {text for example in examples for text in (example[:-1], f"-{example}")}
    signs = {f"12{sign}" for sign in "+-*/,?&|"}
    named = 0
    for question in sorted({*changed, *signs, "+", "1+2-3*4", "1" * 300, "1" * 300 + "+1"}):
        for name in shipped_for(question):
            assert isinstance(solvers[name](question), str), (question, name)
            named += 1
    assert named > len(examples)


def test_what_cannot_be_loaded_is_refused(monkeypatch):
    # Before the Hub is asked again.
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(ValueError, match="did you mean"):
        longhand.load("additoin")
    for wrong in (None, 5, "", b"addition"):
        with pytest.raises(TypeError, match="a name, a folder"):
            longhand.load(wrong)


def test_a_path_is_a_folder_as_a_text_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").symlink_to(longhand.zoo("addition-tiny"))
    assert longhand.load(Path("mine"))("1+2") == longhand.load("mine")("1+2") == "3"


@pytest.mark.parametrize(
    ("models", "questions", "answers"),
    [
        (["addition-tiny"], "653+49\n1+2\n\n", ["702", "3"]),
        (["addition-tiny"], "653+49\r\n1+2\r\n", ["702", "3"]),
        (["addition-tiny"], "", []),
        (["minesweeper"], "M__>__M\nM\n", ["M2112M", "M"]),
        (["addition-tiny", "hex-addition"], "9+1\n", ["addition-tiny\t10", "hex-addition\ta"]),
    ],
)
def test_a_question_a_line_has_an_answer_a_line(models, questions, answers, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(questions))
    evaluation.main([*models, "--ask", "-"])
    assert capsys.readouterr().out.splitlines() == answers


def test_a_model_without_a_certificate_says_so_once_with_its_accuracy_on_mixed_lengths(tmp_path, caplog, capsys):
    folder = shutil.copytree(LESSONS_FOLDER / "addition-no-positions", tmp_path / "unproved")
    checkpoint = load_checkpoint(str(folder))
    (row,) = evaluate_lengths(checkpoint, [(4, 4)], num_samples=40, mixed=[(4, 4)])
    questions = [f"{first}+{second}" for first, second in ((1, 2), (12, 345), (1234, 5))]
    assert 0 < row[MIXED] < 1
    for rows in ([], [row]):
        caplog.clear()
        write_results(rows, folder / "results.jsonl")
        for _ in range(2):
            longhand.load(folder)
        (said,) = [record.message for record in caplog.records if "no certificate" in record.message]
        assert ("not measured" in said) == (not rows) and (f"{100 * row[MIXED]:.1f} %" in said) == bool(rows)
    longhand.load("addition-tiny")
    assert len(caplog.records) == 1
    evaluation.main([str(folder), "--ask", questions[0]])
    assert capsys.readouterr().out.strip() == longhand.load(folder)(questions[0])


def test_all_answers_of_a_proved_model_are_right_on_mixed_lengths():
    checkpoint = load_checkpoint(zoo("encoder-addition-settling"))
    assert measure_mixed(checkpoint, 9, 50, 0) == 1
