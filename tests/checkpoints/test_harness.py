"""Task files for lm-evaluation-harness: what is written, what is refused, and that the harness counts as eval.py does."""

import importlib.util
import json
import re
import shlex

import numpy as np
import pytest
import yaml
from cases import all_but
from refusals import refusal
from small_language_models import save_random_model
from transformers import pipeline

import longhand
from longhand import eval as evaluation
from longhand.data import TASKS, EvaluationBatches, build_task, make_generator
from longhand.data.tasks.column_task import ColumnTask
from longhand.hub_cards import harness
from longhand.hub_cards.evaluation.other_models import SPARE_TOKENS, TextSearch, load_language_model
from longhand.hub_cards.evaluation.reading import is_exact, is_lenient_match, process_results
from longhand.hub_cards.harness import text_problems
from longhand.modeling.vocabulary import decode

METRICS = ("exact_match", "lenient_match")


class Loader(yaml.SafeLoader):
    """Reads `!function` as text."""


Loader.add_constructor("!function", lambda loader, node: node.value)


def read_rows(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("harness")
    harness.main([str(folder), "--lengths", "2", "5", "--num_samples", "12", "--seed", "3"])
    return folder


@pytest.mark.parametrize("name", [name for name, kind in TASKS.items() if len(kind().parts) == 1])
def test_a_task_file_reads_the_problems_of_eval(folder, name):
    task = TASKS[name]().for_evaluation
    config = yaml.load((folder / f"longhand_{name}_5.yaml").read_text(), Loader)
    files = config["dataset_kwargs"]["data_files"]
    for split, count in (("test", 12), ("train", 16)):
        problems = zip(*text_problems(task, task.operand_lengths(5), count, 3, split), strict=True)
        with open(files[split], encoding="utf-8") as file:
            assert [json.loads(line) for line in file] == [
                {"prompt": prompt, "answer": answer} for prompt, answer in problems
            ]
    longest = max(len(row["answer"]) for row in read_rows(folder / "data" / f"longhand_{name}_5-test.jsonl"))
    assert config["generation_kwargs"] == {"until": [], "do_sample": False, "max_gen_toks": longest + SPARE_TOKENS}
    assert config["process_results"] == "reading.process_results"


def test_the_copied_reading_stands_alone(folder):
    spec = importlib.util.spec_from_file_location("copied_reading", folder / "reading.py")
    reading = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reading)
    scores = reading.process_results({"prompt": "653+49=", "answer": "702"}, ["\nIt is 702.\n12+3=15"])
    assert scores == {"exact_match": 0.0, "lenient_match": 1.0}


def test_sizes_without_problems_are_left_out(tmp_path):
    harness.main([str(tmp_path), "--tasks", "minesweeper", "--lengths", "1", "4", "--num_samples", "3"])
    assert [file.name for file in tmp_path.glob("*.yaml")] == ["longhand_minesweeper_4.yaml"]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The task of a certified adder in its own format."""
    place = tmp_path_factory.mktemp("own")
    harness.main([str(place), "--model", "addition-tiny", "--lengths", "3", "6", "--num_samples", "8"])
    return place


def test_a_model_of_the_package_answers_the_tasks_in_its_own_format_and_no_others(own, tmp_path):
    assert [file.name for file in sorted(own.glob("*.yaml"))] == [f"longhand_own_addition_{size}.yaml" for size in (3, 6)]
    config = yaml.load((own / "longhand_own_addition_6.yaml").read_text(), Loader)
    # The tag of what every language model reads is another one.
    assert config["tag"] == ["longhand_own", "longhand_own_addition"]
    rows = read_rows(own / "data" / "longhand_own_addition_6-test.jsonl")
    harness.main([str(tmp_path), "--tasks", "addition", "--lengths", "6", "--num_samples", "8"])
    others = read_rows(tmp_path / "data" / "longhand_addition_6-test.jsonl")
    adder = pipeline("text-generation", longhand.zoo("addition-tiny"))
    limit = config["generation_kwargs"]["max_gen_toks"]
    written = [adder(row["prompt"], return_full_text=False, max_new_tokens=limit)[0]["generated_text"] for row in rows]
    scored = [process_results(row, [text]) for row, text in zip(rows, written, strict=True)]
    assert scored == [{"exact_match": 1.0, "lenient_match": 1.0}] * 8
    assert not any(process_results(row, [text])["exact_match"] for row, text in zip(others, written, strict=True))


@pytest.mark.slow
def test_the_harness_scores_a_certified_model_as_right(own):
    done = run_harness(own, {"pretrained": longhand.zoo("addition-tiny")}, ["longhand_own_addition_6"])
    assert {sample["exact_match"] for sample in done["samples"]["longhand_own_addition_6"]} == {1.0}


def test_problems_may_be_read_from_the_hub(tmp_path):
    harness.main([str(tmp_path), "--tasks", "copy", "--lengths", "4", "--num_samples", "3", "--dataset", "user/sums"])
    config = yaml.load((tmp_path / "longhand_copy_4.yaml").read_text(), Loader)
    assert config["dataset_path"] == "user/sums"
    files = config["dataset_kwargs"]["data_files"]
    assert files["test"] == "data/longhand_copy_4-test.jsonl" and (tmp_path / files["test"]).is_file()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--tasks", "sums"], "sums"),
        (["--lengths", "0"], "--lengths"),
        (["--lengths", "ten"], "ten"),
        (["--num_samples", "0"], "--num_samples"),
        (["--dataset", "sums"], "sums"),
        (["--tasks", "minesweeper", "--lengths", "1"], "--lengths"),
        (["--tasks", "addition", "--model", "addition-tiny"], "--model"),
        (["--model", "encoder-addition-settling"], "writes no text"),
    ],
)
def test_bad_options_are_refused_in_one_line(tmp_path, capsys, options, named):
    assert named in refusal(capsys, harness.main, tmp_path, *options)


def run_harness(folder, model, tasks, shots=None):
    """What the harness says of a model, or of the model in a folder."""
    lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'lm_eval>=0.4'")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    wrapped = HFLM(**model, device="cpu", batch_size=4)
    return lm_eval.simple_evaluate(wrapped, tasks=tasks, task_manager=manager, num_fewshot=shots, bootstrap_iters=0)


@pytest.mark.slow
@pytest.mark.parametrize("shots", all_but([None], [None, 3]))
def test_the_harness_reads_the_problems_and_the_answers_as_we_do(tmp_path, shots):
    source = save_random_model(tmp_path / "llama", seed=1)
    harness.main([str(tmp_path / "tasks"), "--tasks", "copy", "--lengths", "5", "--num_samples", "10"])
    done = run_harness(tmp_path / "tasks", {"pretrained": str(source)}, ["longhand_copy_5"], shots)
    prompts, answers = text_problems(TASKS["copy"](), (5,), 10, 0, "test")
    samples = done["samples"]["longhand_copy_5"]
    assert [sample["arguments"][0][0].split("\n")[-1] for sample in samples] == prompts
    for sample, answer in zip(samples, answers, strict=True):
        assert {name: sample[name] for name in METRICS} == process_results({"answer": answer}, sample["resps"][0])


@pytest.mark.parametrize(
    ("output", "strict", "lenient"),
    [
        ("702", True, True),
        (" 702 \n12+3=15", True, True),
        ("\n\n702", True, True),
        ("702.", False, True),
        ("702, and 12+3=15", False, True),
        ("653+49=702", False, True),
        ("653 + 49 = 702\n12+3=15", False, True),
        ("The answer is **702**.", False, True),
        ("First 3+9=12.\nSo the sum is \\boxed{702}", False, False),
        ("<think>653 and 49 is 701</think>\n\n702", True, True),
        ("<think>so 653 and 49 is 702", False, False),
        ("-702", False, False),
        ("702.5", False, False),
        ("7,02", False, False),
        ("0702", False, False),
        ("7020", False, False),
        ("x702", False, False),
        ("", False, False),
        ("no idea", False, False),
        ("703\n702", False, False),
        ("702 or 703", False, True),
    ],
)
def test_how_answers_are_read(output, strict, lenient):
    assert is_exact(output, "702") == strict
    assert is_lenient_match(output, "702") == lenient


def test_commas_between_thousands_are_left_out():
    assert is_lenient_match("The sum is 1,234,567.", "1234567") and not is_exact("1,234,567", "1234567")
    assert not is_lenient_match("1,234,56", "123456")


@pytest.mark.parametrize(("output", "right"), [("M2112M", True), ("It is M2112M.", True), ("M2112", False), ("2112", False)])
def test_an_answer_with_other_characters_is_read_as_a_word(output, right):
    assert is_lenient_match(output, "M2112M") == right


@pytest.mark.parametrize("written", ["-1604", "-1,604", "49-1653=-1604", "-1604, and 1-2=-1"])
def test_a_negative_answer_is_read_with_its_sign(written):
    assert is_lenient_match(written, "-1604") and not is_lenient_match(written.replace("-", ""), "-1604")


def test_zeros_in_front_of_a_string_are_part_of_it():
    assert is_lenient_match("062", "062") and not is_lenient_match("62", "062")


NUMBERS = [name for name, kind in TASKS.items() if len(kind().parts) == 1 and not issubclass(kind, ColumnTask)]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_question_in_text_is_the_problem_that_our_own_models_are_given(name):
    task = TASKS[name]().for_evaluation
    lengths = task.operand_lengths(6)
    prompts, answers = text_problems(task, lengths, 20, 3, "test")
    batches = EvaluationBatches(task, lengths, 20, 3, "test", 20, collator=lambda examples, generator: examples)
    examples, _ = batches.global_batch(0)
    assert len(set(prompts)) > 2 and len(prompts) == len(answers) == 20
    assert all(prompt.endswith("=") for prompt in prompts)
    if task.family.name == "decoder":
        queries = [decode(row[1:end]) for row, end in zip(examples.tokens, examples.query_lengths, strict=True)]
        assert list(map(task.prompt, prompts)) == queries
    if sign := task.sign:
        numbers = [list(map(int, prompt[:-1].split(sign))) for prompt in prompts]
        assert not any(re.search(r"(?<!\d)0\d", prompt) for prompt in prompts)
        combine = {"+": sum, "-": lambda pair: pair[0] - pair[1], "*": lambda pair: pair[0] * pair[1]}
        combine["/"] = lambda pair: "{} remainder {}".format(*divmod(*pair))
        assert answers == [str(combine[sign](problem)) for problem in numbers]


@pytest.mark.parametrize("words", [[], ["--task", "copy", "--revision", "main"]])
def test_a_model_of_others_gets_the_command_that_measures_it(words, hub, tmp_path, capsys):
    """A name without a user, such as `gpt2`, is one of the Hub's too. The first half of the command runs here."""
    folder = save_random_model(tmp_path / "llama")
    said = refusal(capsys, evaluation.main, folder, "--lengths", "2,5", "--num_samples", "3", *words[:2])
    written, measured = said.partition("problems: ")[2].split(" && ")
    task = "copy" if words else "addition"
    assert f"pretrained={folder} " in measured and measured.endswith(f"longhand_{task}")
    words = shlex.split(written)[3:]
    harness.main([str(tmp_path / "tasks"), *words[1:]])
    assert sorted(file.name for file in (tmp_path / "tasks").glob("*.yaml")) == [f"longhand_{task}_{n}.yaml" for n in (2, 5)]


@pytest.mark.parametrize("task", ["addition", "copy"])
def test_the_worst_problem_of_a_model_of_others_was_asked_by_greedy_decoding(task, tmp_path, capsys):
    folder = save_random_model(tmp_path / "llama")
    evaluation.main([str(folder), "--task", task, "--lengths", "2,3", "--worst", "0.5"])
    lines = capsys.readouterr().out.splitlines()
    writer = pipeline("text-generation", str(folder))
    assert [line.partition(":")[0] for line in lines] == [f"{task}, 2", f"{task}, 3"]
    for line in lines:
        problem, answered, right = re.fullmatch(
            r"[^:]*: wrong: (\S+) answered (.*), right is (\S+), in .* tried.*", line
        ).groups()
        written = writer(problem, return_full_text=False, max_new_tokens=len(right) + SPARE_TOKENS, do_sample=False)
        assert repr(written[0]["generated_text"]) == answered and not is_lenient_match(written[0]["generated_text"], right)
        assert task != "addition" or int(right) == sum(map(int, problem[:-1].split("+")))


def test_leads_of_texts_do_not_depend_on_their_padding(tmp_path):
    model, tokenizer = load_language_model(str(save_random_model(tmp_path / "llama")), None, False)
    search = TextSearch(model, tokenizer, build_task("addition"), (4, 2), make_generator(0))
    digits, leads = search.go_on()
    alone = [search._leads(search._batch(digits[row : row + 1]))[0] for row in range(len(digits))]
    np.testing.assert_allclose(leads, alone, atol=1e-4)
    assert len({len(search.tokenizer(search.text(one))["input_ids"]) for one in digits}) > 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--num_samples", "5"], "--num_samples"),
        (["--decode", "generate"], "--decode"),
        (["--output_dir", "elsewhere"], "--output_dir"),
        (["--lengths", "400"], "512"),
        (["--task", "sums"], "sums"),
    ],
)
def test_what_a_search_of_a_model_of_others_cannot_use_is_named(words, named, tmp_path, capsys):
    assert named in refusal(capsys, evaluation.main, save_random_model(tmp_path / "llama"), "--worst", "1", *words)


def test_a_model_of_others_without_a_tokenizer_is_refused(tmp_path, capsys):
    folder = save_random_model(tmp_path / "llama")
    for file in folder.glob("*token*"):
        file.unlink()
    assert "tokenizer" in refusal(capsys, evaluation.main, folder, "--worst", "1")
