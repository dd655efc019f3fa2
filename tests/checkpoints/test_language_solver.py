"""longhand.load of a language model of others with structure: whole, or as an adapter."""

import random
from functools import cache

import pytest
import torch
from structured_subjects import in_pairs
from test_numbers_in_text import CHAT, SINGLE
from transformers import LlamaConfig, LlamaForCausalLM

import longhand
from longhand.eval import main as evaluate
from longhand.hub_cards.checkpoints.language_model import LanguageModel, logger
from longhand.hub_cards.checkpoints.load import LANGUAGE_MODELS
from longhand.hub_cards.checkpoints.solver import LanguageSolver
from longhand.modeling.numbers_in_text import NumbersInText

QUESTIONS = ["What is 653 + 49?", "Add 7 to 12345, please."]


def small(tokenizer, **options):
    """A Llama with random weights and tables."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": None, "bos_token_id": None}
    base = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.3, **sizes, **ends))
    if not options:
        return base.eval()
    model = longhand.with_structure(base, **options)
    torch.nn.init.normal_(model.structure.table)
    return model.eval()


@pytest.mark.parametrize(("kind", "chat"), [("whole", True), ("adapter", False), ("adapter with its base", True)])
def test_a_folder_answers_as_its_model(kind, chat, tmp_path, capsys, caplog):
    tokenizer = SINGLE["digits"]()
    tokenizer.chat_template = CHAT if chat else None
    rule = longhand.numbers_in_text(tokenizer, marker=None if chat else "<answer>", separator="=")
    folder = tmp_path / "saved"
    if kind == "whole":
        model = small(tokenizer, rule=rule)
        model.save_pretrained(folder)
    else:
        peft = pytest.importorskip("peft")
        base = folder / "base" if kind == "adapter with its base" else tmp_path / "base"
        small(tokenizer).save_pretrained(base)
        structured = small(tokenizer, rule=rule)
        options = {"target_modules": ["q_proj"], "modules_to_save": ["structure"], "init_lora_weights": False}
        model = peft.get_peft_model(structured, peft.LoraConfig(r=2, **options)).eval()
        model.peft_config["default"].base_model_name_or_path = "base" if kind == "adapter with its base" else str(base)
        with torch.no_grad():
            structured.structure.modules_to_save["default"].table.mul_(-1)
        model.save_pretrained(folder)
        structured.save_structure(folder)
    tokenizer.save_pretrained(folder)
    logger.warning_once.cache_clear()
    solver = longhand.load(folder)
    expected = LanguageModel("", model, tokenizer, rule)
    evaluate([str(folder), "--ask", QUESTIONS[0]])
    written = capsys.readouterr()
    assert written.out == expected.answers(QUESTIONS[:1])[0] + "\n"
    assert caplog.text.count("has no certificate") == 1, "it is said once"
    assert solver(QUESTIONS) == expected.answers(QUESTIONS) and solver(QUESTIONS[0]) == expected.answers(QUESTIONS[:1])[0]
    assert solver(QUESTIONS)[0].startswith(solver(QUESTIONS[0])), "padding changes no answer, but more tokens are asked for"
    assert isinstance(solver, LanguageSolver) and solver.name == "saved" and solver.certificate is None
    assert solver.model.get_base_model().structure_rule == rule if kind != "whole" else solver.model.structure_rule == rule


def test_answers_are_read_as_people_read_numbers():
    tokenizer = SINGLE["digits"]()
    copied = longhand.numbers_in_text(tokenizer, marker="<answer>", separator="=")
    plain = longhand.numbers_in_text(tokenizer, marker="<answer>")
    for rule, written, expected in (
        (copied, "207=702<end>", "702"),
        (copied, "00=00", "0"),
        (plain, "400<end>", "4"),
        (plain, "207<end>653", "702"),
        (copied, "no number<end>", "no number"),
        (copied, "207 is it", "207 is it"),
    ):
        tokens = tokenizer(written, add_special_tokens=False)["input_ids"]
        model = LanguageModel("", None, tokenizer, rule)
        assert model._read(tokens) == expected


@cache
def asked_in_sentences() -> LanguageModel:
    """A small model that has learned nothing, with the rule of numbers in text."""
    tokenizer = SINGLE["digits"]()
    rule = longhand.numbers_in_text(tokenizer, marker="<answer>")
    return LanguageModel("", small(tokenizer, rule=rule), tokenizer, rule)


@pytest.mark.parametrize(
    "number",
    [
        *("007", "3.5", "2.5e3", ".5", "1,000", "1,000,000", "1_000", "1'000", "1\u202f000", "1\u00a0000"),
        *("1e5", "1E5", "2e-3", "1e+5", "0x1f", "0xff", "0b101", "0o17", "5k", "3M", "7\u00b2", "\u00bd", "\u0663"),
        *("-5", "(-5)", "[-5]", ":-5", "1 + -5", "\u22125", "\u20135", "1<answer>2"),
    ],
)
def test_numbers_that_no_digits_in_columns_say_are_refused_in_a_line(number):
    with pytest.raises(ValueError, match=r"numbers must be|answer begins") as refusal:
        asked_in_sentences().answers([f"What is {number} + 3?"])
    assert "\n" not in str(refusal.value)


def test_numbers_beside_signs_and_letters_are_answered():
    whole = ["What is 10-5, in room B-5, on page 7.", "x7 (12)", "653 - 49 and 653-49: 0+0=", "no number"]
    whole += ["the 2nd of 3x4", "5 km, then 7", "a 5e, an e5 and 1, 2 and 3.", "it's '7'", "10\u20135"]
    assert len(asked_in_sentences().answers(whole)) == len(whole)


def test_structure_that_answers_no_questions_is_refused(tmp_path):
    tokenizer = SINGLE["digits"]()
    small(tokenizer, rule=in_pairs, num_relations=2).save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match="trust_remote_code"):
        longhand.load(tmp_path / "other")
    with pytest.raises(ValueError, match="NumbersInText"):
        longhand.load(tmp_path / "other", trust_remote_code=True)
    small(tokenizer).save_pretrained(tmp_path / "none")
    with pytest.raises(ValueError, match="no checkpoint of this package"):
        longhand.load(tmp_path / "none")
    small(tokenizer, rule=in_pairs, num_relations=2).save_structure(tmp_path / "structure alone")
    with pytest.raises(ValueError, match="has structure and no model") as refusal:
        longhand.load(tmp_path / "structure alone")
    assert "\n" not in str(refusal.value)
    with pytest.raises(TypeError, match="text"):
        LanguageSolver(LanguageModel("", None, tokenizer, NumbersInText(range(10), [11])))([1])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("question", "named"), [("add 653 and zyx 49", "'zyx'"), ("add 653 ~~ 49", "'~~'"), ("", "empty"), (" \n", "empty")]
)
def test_what_the_model_cannot_tell_apart_is_refused_in_a_line(question, named):
    tokenizer = SINGLE["words"]()
    rule = longhand.numbers_in_text(tokenizer, marker=" books ")
    with pytest.raises(ValueError, match=named):
        LanguageModel("", None, tokenizer, rule).answers([question])


def test_numbers_with_ids_that_no_training_saw_are_told(caplog):
    tokenizer = SINGLE["digits"]()
    rule = longhand.numbers_in_text(tokenizer, marker="<answer>", spread=6)
    model = LanguageModel("reader", small(tokenizer, rule=rule), tokenizer, rule)
    model.answers(["add 654321 and 5"])
    assert caplog.text == ""
    model.answers(["add 5 and 7654321"])
    assert "7 digits" in caplog.text


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_a_shipped_language_model_answers_in_one_call(name, capsys):
    solver = longhand.load(name)
    assert solver(solver.example_question) == "702"
    draws = random.Random(0)
    pairs = [(draws.randrange(10**digits), draws.randrange(10**digits)) for digits in (5, 10, 20, 50, 100, 100)]
    assert solver([f"In 12 weeks we add {a} to {b}." for a, b in pairs]) == [str(a + b) for a, b in pairs]
    evaluate(["--ask", solver.example_question, name])
    assert capsys.readouterr().out.strip() == "702"
    question = ["--ask", solver.example_question]
    for words, said in (
        ([name, "--certify"], "structure_config.json"),
        ([name, "--lengths", "3"], "structure_config.json"),
        ([name, "--worst", "1", "--lengths", "3"], "structure_config.json"),
        ([name, "addition", *question], "ask it alone"),
        (["addition", name, *question], "ask it alone"),
        ([name, *question, "--task", "subtraction"], "task 'subtraction'"),
    ):
        with pytest.raises(SystemExit):
            evaluate(words)
        refusal = capsys.readouterr().err
        assert said in refusal and "lm_eval" not in refusal
    for options in ({"task": "addition"}, {"revision": "main"}):
        with pytest.raises(ValueError, match=r"addition|main"):
            longhand.load(name, **options)
    with pytest.raises(SystemExit):
        evaluate(["--list"])
    assert name in capsys.readouterr().out
