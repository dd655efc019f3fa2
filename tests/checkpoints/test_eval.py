import errno
import io
import json
import os
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants, hf_hub_download, snapshot_download
from refusals import refusal as refused
from safetensors.torch import load_file, save_file
from small_language_models import save_random_model
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

from longhand import eval as evaluation
from longhand.data import Addition, Remainder
from longhand.data.batches import check_lengths
from longhand.eval import parse_arguments
from longhand.hub_cards.checkpoints import load as loading
from longhand.hub_cards.checkpoints.checkpoint import Checkpoint
from longhand.hub_cards.checkpoints.load import zoo
from longhand.hub_cards.evaluation import budget
from longhand.hub_cards.evaluation import measure as measuring
from longhand.hub_cards.recipes import read_recipe, write_recipe
from longhand.hub_cards.research.__main__ import main as run_study
from longhand.hub_cards.result_rows import read_results
from longhand.modeling import (
    CoupledGPTConfig,
    CoupledGPTForCausalLM,
    PairwiseBertConfig,
    PairwiseBertForTokenClassification,
)


def measure(model, lengths, task=None, name="x", **options):
    """Rows of a model that is in no folder."""
    checkpoint = Checkpoint(name, Path(), "folder", model, None, task or Addition(), None, {}, "0")
    return measuring.evaluate_lengths(checkpoint, check_lengths(model, checkpoint.task, lengths), **options)


@pytest.fixture(scope="module")
def half_right(main_job):
    """The main job's model, damaged until it is wrong about some sums of 5 digits."""
    for scale in range(1, 100):
        model = CoupledGPTForCausalLM.from_pretrained(main_job).eval()
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in model.model.layers.parameters():
                parameter += 0.01 * scale * parameter.std(correction=0) * torch.randn_like(parameter)
        (row,) = measure(model, [(5, 5)], num_samples=60)
        if row["exact_match"] < 0.9:
            return model


def refusal(capsys, *arguments):
    return refused(capsys, evaluation.main, *arguments)


@pytest.mark.parametrize("question", ["653+49", "5+99999999999999999999", "12+ 34="])
def test_ask_prints_the_sum(main_job, capsys, question):
    evaluation.main([str(main_job), "--ask", question])
    first, second = question.rstrip("=").split("+")
    assert capsys.readouterr().out.strip() == str(int(first) + int(second))


def test_a_question_too_long_for_an_argument_is_read_from_standard_input(main_job, capsys, monkeypatch):
    first, second = int("73" * 100), int("95" * 100)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{first}+{second}\n"))
    evaluation.main([str(main_job), "--ask", "-"])
    assert int(capsys.readouterr().out) == first + second


@pytest.mark.parametrize("task", [Addition(), Addition(zero_padding=False)])
def test_teacher_forcing_counts_the_same_event_as_generation(main_job, half_right, task):
    # Without padding, the model is right only where the sum has a carry out: it was trained to write the leading zero.
    model = half_right if task.zero_padding else CoupledGPTForCausalLM.from_pretrained(main_job, prompt_format=None).eval()
    rows = {}
    for decode in ("teacher_forced", "generate"):
        lengths = [(2, 2), (5, 5), (7, 3)]
        rows[decode] = measure(model, lengths, task, num_samples=60, decode=decode, split="validation")
    forced, generated = ([row["exact_match"] for row in rows[decode]] for decode in ("teacher_forced", "generate"))
    assert forced == generated
    assert 0 < sum(forced) < len(forced)


def test_results_do_not_depend_on_the_batch_size(half_right, monkeypatch):
    def accuracy():
        (row,) = measure(half_right, [(6, 6)], num_samples=50)
        return row["exact_match"], row["token_accuracy"]

    whole = accuracy()
    monkeypatch.setattr(budget, "CACHED_TOKENS", 1)
    assert accuracy() == whole


def test_command_writes_rows_table_and_plot(main_job, tmp_path, capsys):
    evaluation.main([str(main_job), "--lengths", "10:30:10", "--num_samples", "20", "--output_dir", str(tmp_path)])
    rows = read_results(tmp_path / "results.jsonl")
    assert [row["length"] for row in rows] == [10, 20, 30]
    assert {"model", "task", "length", "num_samples", "seed", "decode", "exact_match", "token_accuracy", "seconds"} <= set(
        rows[0]
    )
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert "1.0000  0.8389 to 1.0000" in capsys.readouterr().out


def test_unequal_lengths_give_a_grid(main_job, tmp_path):
    arguments = ["--lengths", "2,40", "--lengths_b", "3,50,7", "--num_samples", "5", "--output_dir", str(tmp_path)]
    evaluation.main([str(main_job), *arguments])
    rows = read_results(tmp_path / "results.jsonl")
    assert {(row["length"], row["length_b"]) for row in rows} == {(a, b) for a in (2, 40) for b in (3, 50, 7)}
    assert all(row["exact_match"] == 1 for row in rows)
    assert (tmp_path / "accuracy.png").exists()


def variant_of_tiny(folder, noise=0.0, **changes):
    """A copy of the smallest shipped model, with other weights and another recipe."""
    shutil.copytree(zoo("addition-tiny"), folder)
    (folder / "certificate.json").unlink()
    if noise:
        weights = load_file(folder / "model.safetensors")
        torch.manual_seed(0)
        for name in weights:
            weights[name] = weights[name] + noise * torch.randn_like(weights[name])
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    recipe = read_recipe(folder / "recipe.yaml")
    write_recipe({**recipe, **changes}, folder / "recipe.yaml")
    return str(folder)


MEASURED = ("--lengths", "3,4", "--num_samples", "5")


def test_checkpoints_that_differ_in_their_seeds_alone_give_a_median(tmp_path, capsys):
    folders = [variant_of_tiny(tmp_path / f"tiny-seed{seed}", 0.01 * seed, seed=seed, data_seed=seed) for seed in (0, 1, 2)]
    evaluation.main([*folders, *MEASURED, "--output_dir", str(tmp_path / "out")])
    assert re.search(r"median exact match .*checkpoints\n3 .* 3\n4 .* 3\n", capsys.readouterr().out)
    assert len({row["model"] for row in read_results(tmp_path / "out" / "results.jsonl")}) == 3


def test_different_models_are_compared_by_name(tmp_path, capsys):
    folders = [variant_of_tiny(tmp_path / f"tiny-seed{seed}", 1e-4 * seed, seed=seed, data_seed=seed) for seed in (0, 1)]
    other = variant_of_tiny(tmp_path / "broken", 3.0, learning_rate=0.5)
    evaluation.main([*folders, other, *MEASURED, "--output_dir", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    header, *lines = printed.partition("\n\n")[2].splitlines()[:3]
    assert re.split(r"  +", header.strip()) == ["size", "tiny (median of 2)", "broken"]
    assert [line.split() for line in lines] == [["3", "1.0000", "0.0000"], ["4", "1.0000", "0.0000"]]
    assert "median exact match" not in printed, "the median of different models says nothing"


def test_equal_weights_count_once(tmp_path, capsys):
    folders = [variant_of_tiny(tmp_path / name, noise) for name, noise in (("one", 0), ("same", 0), ("other", 0.01))]
    evaluation.main([*folders, *MEASURED, "--output_dir", str(tmp_path / "out")])
    assert "same has the weights of one: it counts once" in capsys.readouterr().out
    assert {row["model"] for row in read_results(tmp_path / "out" / "results.jsonl")} == {"one", "other"}


def test_evaluations_do_not_replace_each_others_results(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    one, other = variant_of_tiny(tmp_path / "one"), variant_of_tiny(tmp_path / "other", 0.01)
    for words in ([one], [one], [one, "--seed", "3"], [one, "--lengths", "5"], [one, other], [one, "--decode", "generate"]):
        evaluation.main([*words, *(MEASURED[2:] if "--lengths" in words else MEASURED)])
    folders = sorted(folder.name for folder in (tmp_path / "outputs" / "evaluation").iterdir())
    assert folders == ["one", "one+other", "one-2", "one-3", "one-4"], "only the same evaluation again replaces its results"
    assert {row["seed"] for row in read_results(Path("outputs/evaluation/one/results.jsonl"))} == {0}
    before = (tmp_path / "outputs/evaluation/one/results.jsonl").read_bytes()
    asked = ("--lengths", "6", "--output_dir", "outputs/evaluation/one")
    assert "results of another evaluation, which would be lost" in refusal(capsys, one, *asked)
    assert (tmp_path / "outputs/evaluation/one/results.jsonl").read_bytes() == before


def test_the_table_of_a_run_shows_equal_weights_once(tmp_path, capsys):
    row = {"task": "addition", "length": 3, "length_b": 3, "exact_match": 1.0, "token_accuracy": 1.0, "num_samples": 5}
    row |= {"seed": 0, "decode": "teacher_forced", "seconds": 0.1}
    rows = [{**row, "model": name, "weights": "w"} for name in ("run", "run/best")]
    measuring.report(rows, tmp_path, (1, 3))
    printed = capsys.readouterr().out
    assert len(re.findall(r"^run\S* +3 ", printed, flags=re.MULTILINE)) == 1 and "run/best has the weights of run" in printed
    assert read_results(tmp_path / "results.jsonl") == rows


def test_machines_of_one_name_are_no_seeds_of_one_model(tmp_path, capsys):
    for modulus in (7, 9):
        task = Remainder(modulus=modulus)
        folder = tmp_path / f"modulo-{modulus}"
        CoupledGPTForCausalLM(CoupledGPTConfig(**task.family.config_options(task))).save_pretrained(folder)
        task.family.tokenizer(task).save_pretrained(folder)
        write_recipe({"recipe": folder.name, **task.describe(), "min_length": 1, "max_length": 4}, folder / "recipe.yaml")
    folders = [str(tmp_path / f"modulo-{modulus}") for modulus in (7, 9)]
    assert "another step" in refusal(capsys, *folders, "--lengths", "3", "--output_dir", str(tmp_path / "table"))
    assert not (tmp_path / "table").exists()


def test_attention_of_a_construction_is_where_its_proof_says(tmp_path, monkeypatch, capsys):
    """Theorem 5.1: head 1 looks at the next column, head 2 at the same one, both at the beginning."""
    monkeypatch.setattr(budget, "CACHED_TOKENS", 60)
    run_study(["constructions", "addition", "--max_length", "10", "--output_dir", str(tmp_path / "model")])
    evaluation.main([str(tmp_path / "model"), "--lengths", "6", "--attentions", "--output_dir", str(tmp_path / "out")])
    first, second = read_results(tmp_path / "out" / "attention.jsonl")
    assert first["id_below"] > 0.3 and first["id_below"] + first["no_id"] > 0.95
    assert second["same_id"] > 0.3 and second["same_id"] + second["no_id"] > 0.95
    for row in (first, second):
        assert row["num_samples"] == 200
        assert sum(row[name] for name in ("same_id", "id_below", "id_above", "no_id", "others")) == pytest.approx(1)
    assert "id below" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "lengths"), [("10:30:10", [10, 20, 30]), ("3:5", [3, 4, 5]), ("7", [7]), ("30,60,100", [30, 60, 100])]
)
def test_lengths_include_both_ends(text, lengths):
    assert parse_arguments(["model", "--lengths", text]).lengths == lengths


@pytest.mark.parametrize("text", ["", "0:5", "5:1", "1:9:0", "5:1:-1", "1:2:3:4", "3,,4"])
def test_bad_lengths_are_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"10:200:10|--lengths must be at least 1"):
        parse_arguments(["model", f"--lengths={text}"])


def change_json(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    "setting", [{"suppress_tokens": [7]}, {"max_new_tokens": 2}, {"do_sample": True}, {"pad_token_id": 0}]
)
def test_settings_that_change_the_answer_are_refused_by_name(setting, main_job, tmp_path, capsys):
    folder = shutil.copytree(main_job, tmp_path / "adder")
    change_json(folder / "generation_config.json", **setting)
    assert f"generation_config changes how tokens are chosen ({next(iter(setting))}=" in refusal(
        capsys, folder, "--ask", "7+0"
    )


def test_another_task_than_the_recipes_is_refused(main_job, capsys):
    message = refusal(capsys, main_job, "--task", "copy", "--ask", "1011")
    assert "--task copy is for a checkpoint that names no task" in message and "is of task 'addition'" in message


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--lengths", "1:99999999999:1"], "at most 10,000 of them"),
        (["--lengths", "1:200:1", "--lengths_b", "1:51:1"], "10,000 pairs at most, got 10,200"),
        (["--lengths", "99999999999"], "from 1 to 1,000,000, got 99,999,999,999"),
    ],
    ids=str,
)
def test_sizes_beyond_the_machine_are_refused_before_anything_is_made(options, reason, main_job, tmp_path, capsys):
    message = refusal(capsys, main_job, *options, "--output_dir", tmp_path / "out")
    assert reason in message and not (tmp_path / "out").exists()


def change_weight(folder, name, change) -> None:
    """Give a weight the value that a function makes of it; none if that is None."""
    weights = load_file(folder / "model.safetensors")
    weights[name] = change(weights.get(name))
    weights = {name: value for name, value in weights.items() if value is not None}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def cut(file) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def pipe(file) -> None:
    """Whoever opens it for reading waits forever."""
    file.unlink()
    os.mkfifo(file)


def change_order(folder, order) -> None:
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("order: response_reversed", f"order: {order}"))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda folder: cut(folder / "model.safetensors"), "(model.safetensors)"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: cut(folder / "config.json"), "config.json"),
        (lambda folder: change_weight(folder, "lm_head.weight", lambda _: None), "lm_head.weight"),
        (lambda folder: change_weight(folder, "lm_head.weight", lambda own: own * torch.inf), "'NaN or infinite': ['lm_"),
        (lambda folder: change_weight(folder, "extra", lambda _: torch.zeros(2)), "'unexpected_keys': ['extra']"),
        (lambda folder: change_order(folder, "plain"), "'order': 'plain'"),
        (lambda folder: change_order(folder, "backwards"), "order 'backwards' is unknown"),
        *((lambda folder, name=name: pipe(folder / name), name) for name in ("tokenizer.json", "model.safetensors")),
    ],
)
def test_damaged_checkpoints_are_refused(damage, expected, main_job, tmp_path, capsys):
    damage(folder := shutil.copytree(main_job, tmp_path / "damaged"))
    assert expected in refusal(capsys, folder, "--ask", "3+4")


def test_results_of_a_run_are_not_overwritten_and_checkpoints_are_told_apart(main_job, tmp_path, capsys):
    before = (main_job / "results.jsonl").read_bytes()
    assert "choose another folder" in refusal(capsys, main_job, "--lengths", "3", "--output_dir", main_job)
    assert (main_job / "results.jsonl").read_bytes() == before
    copy = shutil.copytree(main_job, tmp_path / "addition")
    assert "one name" in refusal(capsys, main_job, copy, "--lengths", "3")
    assert "one heatmap" in refusal(capsys, main_job, main_job / "best", "--lengths", "3", "--lengths_b", "4")


@pytest.fixture
def asked(hub, tmp_path, monkeypatch):
    """A Hub that the loader asks, with an empty cache."""
    ask = partial(snapshot_download, endpoint=hub.endpoint, cache_dir=tmp_path / "cache", token=False)
    monkeypatch.setattr(loading, "snapshot_download", ask)
    return hub


@pytest.mark.parametrize(
    "source", ["./outputs", "/no/such/folder", "outputs/adition/best", "outputs/adition/", "user/a--b", "notes.txt\t"]
)
def test_what_can_be_no_repository_is_refused_without_asking_the_hub(asked, source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert refusal(capsys, source).startswith(f"error: MODEL {source!r} is neither a folder nor a repository: ")
    assert asked.requests == []


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("additoin", "did you mean addition "),
        ("outputs/adition", "did you mean addition "),
        ("addition-absolute", "python train.py addition-absolute"),
    ],
)
def test_a_name_of_nothing_is_refused_with_what_was_meant(asked, source, meant, capsys):
    message = refusal(capsys, source)
    assert f"MODEL {source!r} is neither a folder nor a repository: " in message and meant in message
    asked.fail("GET", "/api/models", kind="lost", times=10_000)
    assert "the Hub cannot be reached" in refusal(capsys, source)


def test_the_refusal_of_a_long_question_has_its_reason_and_not_all_digits(capsys):
    message = refusal(capsys, "multiplication-1", "--ask", f"{'7' * 20_000}*{'3' * 20_000}")
    assert len(message) < 10_000 and "multiplier_length = 1" in message


def test_a_huge_product_is_refused_before_it_is_calculated(monkeypatch, capsys):
    monkeypatch.setattr("longhand.data.tasks.multiplication_scratchpad.multiply_digits", None)
    assert "1,200,100,003 tokens" in refusal(capsys, "calculator", "--ask", f"{'7' * 20_000}*{'3' * 20_000}")


@pytest.mark.parametrize(
    ("options", "file", "kept"),
    [
        (["--lengths", "3", "--num_samples", "4"], "results.jsonl", []),
        (["--lengths", "3", "--num_samples", "4"], "accuracy.png", ["results.jsonl"]),
        (["--certify"], "certificate.json", []),
    ],
    ids=["results", "picture", "certificate"],
)
def test_a_full_disk_is_named_with_the_file_and_what_is_kept(options, file, kept, tmp_path, monkeypatch, capsys):
    real = os.replace

    def move(temporary, place):
        if Path(place).name == file:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(temporary, place)

    monkeypatch.setattr(os, "replace", move)
    message = refusal(capsys, "addition-tiny", *options, "--output_dir", tmp_path / "out")
    assert "No space left on device" in message and str(tmp_path / "out" / file) in message
    assert [path.name for path in (tmp_path / "out").glob("*")] == kept


def test_the_weights_of_a_model_of_others_are_not_downloaded(asked, tmp_path, capsys):
    folder = save_random_model(tmp_path / "llama")
    asked.add_repository("gpt2", {file.name: file.read_bytes() for file in folder.iterdir()})
    assert "--model_args pretrained=gpt2 " in refusal(capsys, "gpt2", "--task", "addition")
    assert list((tmp_path / "cache").rglob("*.safetensors")) == []


@pytest.mark.parametrize("fault", ["tokenizer", "code"])
def test_a_checkpoint_on_the_hub_is_loaded_once_and_compared_with_its_certificate(asked, fault, main_job, tmp_path, capsys):
    whole = {file.name: file.read_bytes() for file in main_job.iterdir() if file.is_file()}
    asked.add_repository("user/adder", whole)
    evaluation.main(["user/adder", "--ask", "12+34"])
    out, err = capsys.readouterr()
    assert out.strip() == "46" and "warning" not in err
    assert sum(path.endswith("/resolve/recipe.yaml") for _, path in asked.requests) <= 1
    changed = {
        "tokenizer": {"tokenizer_config.json": b'{"add_prefix_space": true}'},
        "code": {"coupling.py": b"print()"},
    }[fault]
    asked.add_repository("user/changed", whole | changed)
    evaluation.main(["user/changed", "--ask", "12+34"])
    assert "warning: " in capsys.readouterr().err
    if fault == "code":
        message = refusal(capsys, "user/changed", "--certify", "--output_dir", tmp_path / "out")
        assert "did not write for this model" in message and "coupling.py" in message


@pytest.mark.parametrize("cached", [False, True])
def test_without_the_hub_what_is_cached_is_taken(asked, cached, main_job, tmp_path, monkeypatch, capsys):
    """transformers caches the files that it reads, and no recipe."""
    names = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    asked.add_repository("user/adder", {name: (main_job / name).read_bytes() for name in names})
    if cached:
        for name in names:
            hf_hub_download("user/adder", name, endpoint=asked.endpoint, cache_dir=tmp_path / "cache", token=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    if not cached:
        assert "HF_HUB_OFFLINE" in refusal(capsys, "user/adder", "--ask", "12+34")
        return
    evaluation.main(["user/adder", "--ask", "12+34"])
    assert capsys.readouterr().out.strip() == "46"
    next((tmp_path / "cache").rglob("snapshots/*/model.safetensors")).unlink()
    assert ".safetensors" in refusal(capsys, "user/adder", "--ask", "12+34")


def test_operands_beyond_a_learned_table_are_refused_before_any_work(tmp_path, main_job, capsys):
    folder = shutil.copytree(main_job, tmp_path / "learned")
    CoupledGPTForCausalLM(CoupledGPTConfig(position_encoding="learned", max_position_ids=52)).save_pretrained(folder)
    assert "operands of 50 digits" in refusal(capsys, folder, "--lengths", "10,51", "--output_dir", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "operands of 50 digits" in refusal(capsys, folder, "--ask", "1" * 51 + "+1")


def test_task_of_a_checkpoint_that_names_none_must_be_given(main_job, tmp_path, capsys):
    folder = shutil.copytree(main_job, tmp_path / "bare")
    (folder / "recipe.yaml").unlink()
    CoupledGPTConfig.from_pretrained(folder, task=None, prompt_format=None).save_pretrained(folder)
    assert "--task" in refusal(capsys, folder, "--ask", "1+1")
    evaluation.main([str(folder), "--task", "addition", "--ask", "1+1"])
    assert capsys.readouterr().out.strip() == "2"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--lengths", "ten"], "argument --lengths: give numbers such as 3 5"),
        (["--lengths", "3", "--lengths_b", "x"], "argument --lengths_b: give numbers such as 3 5"),
        (["--num_samples", "0"], "--num_samples must be at least 1, got 0"),
        (["--num_sample", "3", "--sead", "1"], "unknown argument '--sead': did you mean --seed"),
        (["--certify", "--ask", "1+1"], "--certify is for a proof: leave it out with --ask"),
        (["--dtype", "bfloat16"], "--dtype is for a check of all neighbourhoods: give --certify too"),
        (["--dtype", "bfloat16", "--certify", "--lengths", "5"], "leave it out with --lengths"),
        (["--worst", "inf"], "--worst must be a number below"),
        (["--ask", "1+1", "--output_dir", "here"], "--output_dir is for results: leave it out with --ask"),
        (["--ask", "1+1", "--lengths", "5"], "--lengths is for measuring accuracy: leave it out with --ask"),
        (["--certify", "--budget", "5"], "--budget is for proofs of single lengths"),
        (["--lengths", "5", "--budget", "5"], "--budget is for proofs of single lengths"),
        (["--certify", "--lengths", "5", "--budget", "0"], "--budget must be above 0, got 0.0"),
        (["--certify", "--num_samples", "5"], "--num_samples is for measuring accuracy: leave it out with --certify"),
        (["--plugin", "missing.py"], "missing.py cannot be read"),
    ],
    ids=str,
)
def test_options_are_checked_before_anything_is_loaded(options, expected, monkeypatch, capsys):
    monkeypatch.setattr(evaluation, "load_checkpoint", None)
    assert expected in refusal(capsys, "user/name", *options)


def test_ids_may_start_elsewhere_as_paper_1_fixes_them_in_evaluation(half_right):
    options = {"num_samples": 60}
    (derived,) = measure(half_right, [(5, 5)], **options)
    for decode in ("teacher_forced", "generate", "parallel"):
        (row,) = measure(half_right, [(5, 5)], decode=decode, start=30, **options)
        # Under a window, differences of ids are all that counts.
        assert row["exact_match"] == derived["exact_match"] and row["start"] == 30 and "start" not in derived


def test_a_start_counts_for_a_learned_table_and_is_refused_beyond_it():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "max_position_ids": 20}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(position_encoding="learned", **sizes)).eval()
    seen = []
    model.model.position_encoding.tables[0].register_forward_pre_hook(lambda _, ids: seen.append(ids[0]))
    # The smallest id is that of the response's last digit.
    for decode in ("teacher_forced", "generate"):
        seen.clear()
        measure(model, [(3, 3)], num_samples=2, decode=decode, start=9)
        assert min(int(ids[ids > 0].min()) for ids in seen if (ids > 0).any()) == 9
    with pytest.raises(ValueError, match="got 21"):
        check_lengths(model, Addition(), [(3, 3)], start=17)
    assert check_lengths(model, Addition(), [(3, 3)], start=16)


def test_a_start_is_refused_where_no_ids_could_move(main_job, capsys):
    assert "--start" in refusal(capsys, str(main_job), "--start", "2", "--attentions")
    assert "start" in refusal(capsys, "encoder-addition-settling", "--start", "2", "--lengths", "3")
    assert "--start" in refusal(capsys, str(main_job), "--start", "0")


def test_models_that_no_task_can_ask_are_refused_with_what_they_are(tmp_path, capsys):
    """Of structure of the user's own, of both families, and of others, which write no text."""
    decoder = CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=16, intermediate_size=16, coupling="given"))
    encoder = PairwiseBertForTokenClassification(
        PairwiseBertConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, pair_maps=["given"])
    )
    for model in (decoder, encoder):
        model.save_pretrained(tmp_path / "own")
        for words in (["--ask", "1+1"], ["--lengths", "3"], ["--certify"]):
            assert "structure of your own" in refusal(capsys, tmp_path / "own", *words)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    for kind in (BertForMaskedLM, BertForSequenceClassification):
        kind(BertConfig(**small)).save_pretrained(tmp_path / "other")
        message = refusal(capsys, tmp_path / "other", "--lengths", "3")
        assert kind.__name__ in message and "harness" not in message
