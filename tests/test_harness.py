"""Task files for lm-evaluation-harness: what is written, what is refused, and that the harness counts as eval.py does."""

import importlib.util
import json

import pytest
import yaml
from small_language_models import add_without_carries, calculator, save_random_model

from longhand.data import TASKS, Addition
from longhand.data.text import text_problems
from longhand.hub_cards import harness
from longhand.hub_cards.evaluation.language_models import load_language_model, measure_language_model

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
    assert config["generation_kwargs"] == {"until": [], "do_sample": False, "max_gen_toks": longest + 16}
    assert config["process_results"] == "reading.process_results"


def test_the_copied_reading_stands_alone(folder):
    spec = importlib.util.spec_from_file_location("copied_reading", folder / "reading.py")
    reading = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reading)
    scores = reading.process_results({"prompt": "653+49=", "answer": "702"}, ["\nIt is 702.\n12+3=15"])
    assert scores == {"exact_match": 0.0, "lenient_match": 1.0}


def test_sizes_without_problems_are_named_and_left_out(folder, tmp_path, capsys):
    harness.main([str(tmp_path), "--tasks", "minesweeper", "--lengths", "1", "4", "--num_samples", "3"])
    assert "left out: the test split holds no problem" in capsys.readouterr().out
    assert [file.name for file in tmp_path.glob("*.yaml")] == ["longhand_minesweeper_4.yaml"]


def test_problems_may_be_read_from_the_hub(tmp_path):
    harness.main([str(tmp_path), "--tasks", "copy", "--lengths", "4", "--num_samples", "3", "--dataset", "user/sums"])
    config = yaml.load((tmp_path / "longhand_copy_4.yaml").read_text(), Loader)
    assert config["dataset_path"] == "user/sums"
    files = config["dataset_kwargs"]["data_files"]
    assert files["test"] == "data/longhand_copy_4-test.jsonl" and (tmp_path / files["test"]).is_file()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--tasks", "sums"], "task 'sums' is unknown"),
        (["--lengths", "0"], "--lengths must be at least 1, got 0"),
        (["--lengths", "ten"], "ten"),
        (["--num_samples", "0"], "--num_samples must be at least 1"),
        (["--dataset", "sums"], "must be of the form USER/NAME"),
        (["--tasks", "minesweeper", "--lengths", "1"], "nothing was written"),
    ],
)
def test_bad_options_are_refused_in_one_line(tmp_path, capsys, options, expected):
    with pytest.raises(SystemExit) as stop:
        harness.main([str(tmp_path), *options])
    assert stop.value.code == 2 and expected in capsys.readouterr().err


def run_harness(folder, model, tasks, shots=None):
    """What the harness says of a model, or of the model in a folder."""
    lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'lm_eval>=0.4'")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    wrapped = HFLM(**model, device="cpu", batch_size=4)
    return lm_eval.simple_evaluate(wrapped, tasks=tasks, task_manager=manager, num_fewshot=shots, bootstrap_iters=0)


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"prompt": "few_shot", "shots": 3}], ids=["plain", "few_shot"])
@pytest.mark.parametrize("talks", [False, True])
def test_the_harness_counts_as_eval_does(tmp_path, how, talks):
    def reply(prompt):
        return f"\nIt is {add_without_carries(prompt)}.\n1+1=2" if talks else add_without_carries(prompt)

    harness.main([str(tmp_path), "--tasks", "addition", "--lengths", "1", "2", "3", "--num_samples", "40"])
    model = calculator(Addition(), reply, **how)
    done = run_harness(
        tmp_path, {"pretrained": model.model, "tokenizer": model.tokenizer}, ["longhand_addition"], how.get("shots")
    )
    rows, _ = measure_language_model(model, [(1, 1), (2, 2), (3, 3)], num_samples=40)
    for row in rows:
        scores = done["results"][f"longhand_addition_{row['length']}"]
        assert [scores[f"{name},none"] for name in METRICS] == [pytest.approx(row[name]) for name in METRICS]
    assert 0 < rows[1]["lenient_match"] < 1 and (rows[1]["exact_match"] == 0) == talks


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"prompt": "few_shot", "shots": 3}], ids=["plain", "few_shot"])
def test_the_harness_gets_the_outputs_that_eval_gets(tmp_path, how):
    source = save_random_model(tmp_path / "llama", seed=1)
    harness.main([str(tmp_path / "tasks"), "--tasks", "copy", "--lengths", "5", "--num_samples", "10"])
    done = run_harness(tmp_path / "tasks", {"pretrained": str(source)}, ["longhand_copy_5"], how.get("shots"))
    model = load_language_model(str(source), TASKS["copy"](), **how)
    _, problems = measure_language_model(model, [(5,)], num_samples=10)
    samples = done["samples"]["longhand_copy_5"]
    assert [sample["arguments"][0][0] for sample in samples] == [problem["prompt"] for problem in problems]
    theirs = [sample["resps"][0][0].lstrip().split("\n")[0] for sample in samples]
    assert theirs == [problem["output"].lstrip().split("\n")[0] for problem in problems] and any(theirs)
