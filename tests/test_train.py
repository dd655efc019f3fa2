import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from longhand import train
from longhand.hub_cards.arguments import parse_run
from longhand.hub_cards.recipes import MODELS_FOLDER, list_recipes, write_recipe
from longhand.hub_cards.results import read_results

SMALL = [
    "addition",
    "--hidden_size",
    "16",
    "--intermediate_size",
    "32",
    "--batch_size",
    "8",
    "--max_length",
    "3",
    "--validation_lengths",
    "3",
    "4",
    "--validation_samples",
    "4",
    "--test_lengths",
    "4",
    "--test_samples",
    "4",
    "--max_steps",
    "20",
    "--eval_steps",
    "5",
]
LEARNED = ["--position_encoding", "learned", "--random_start", "--wrap_position_ids"]


def start(arguments, folder, launcher=(sys.executable, "-m", "longhand.train")):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*launcher, *arguments, "--output_dir", str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def refusal(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        train.main(list(map(str, arguments)))
    assert stop.value.code == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: ")
    return message


def test_main_job_is_exact_far_beyond_its_trained_lengths(main_job):
    rows = {(row["model"], row["length"]): row["exact_match"] for row in read_results(main_job / "results.jsonl")}
    assert rows == {(model, length): 1.0 for model in ("addition", "addition/best") for length in (30, 200)}


def test_finished_folder_holds_last_and_best_checkpoint_results_plot_and_recipe(main_job):
    checkpoint = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "recipe.yaml"}
    names = {path.name for path in main_job.iterdir()}
    assert checkpoint | {"results.jsonl", "accuracy.png", "best"} <= names
    assert checkpoint <= {path.name for path in (main_job / "best").iterdir()}
    assert not names & {"checkpoints", ".partial"}


def test_killed_run_resumes_bit_for_bit(tmp_path):
    arguments = [*SMALL, *LEARNED, "--max_steps", "300", "--eval_steps", "20", "--num_train_samples", "500"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(arguments, whole))
    process = start(arguments, killed)
    deadline = time.monotonic() + 120
    while not (killed / "checkpoints" / "checkpoint-20" / "trainer_state.json").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "model.safetensors").exists()
    killed = killed.rename(tmp_path / "moved")
    output = finish(start([*arguments, "--resume"], killed))
    assert "checkpoint-" in output
    assert (whole / "model.safetensors").read_bytes() == (killed / "model.safetensors").read_bytes()
    assert (whole / "best" / "model.safetensors").read_bytes() == (killed / "best" / "model.safetensors").read_bytes()


def test_two_processes_train_as_one(tmp_path):
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1",
                "--mixed_precision", "no", "--dynamo_backend", "no", "-m", "longhand.train"]  # fmt: skip
    finish(start([*SMALL, *LEARNED], tmp_path / "one"))
    finish(start([*SMALL, *LEARNED], tmp_path / "two", launcher))
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)


def test_accumulation_does_not_change_the_global_batch(tmp_path):
    for parts in ("1", "4"):
        train.main([*SMALL, *LEARNED, "--gradient_accumulation_steps", parts, "--output_dir", str(tmp_path / parts)])
    one, four = (load_file(tmp_path / parts / "model.safetensors") for parts in ("1", "4"))
    for name in one:
        torch.testing.assert_close(one[name], four[name], rtol=1e-3, atol=1e-4)


def test_workers_that_load_data_change_nothing(tmp_path):
    for workers in ("0", "2"):
        train.main([*SMALL, *LEARNED, "--dataloader_num_workers", workers, "--output_dir", str(tmp_path / workers)])
    none, two = ((tmp_path / workers / "model.safetensors").read_bytes() for workers in ("0", "2"))
    assert none == two


def test_seeds_of_model_and_data_are_separate(tmp_path):
    def weights(**seeds):
        folder = tmp_path / "-".join(f"{name}{value}" for name, value in seeds.items())
        options = [word for name, value in seeds.items() for word in (f"--{name}", str(value))]
        train.main([*SMALL, "--max_steps", "2", *options, "--output_dir", str(folder)])
        return (folder / "model.safetensors").read_bytes()

    reference = weights(seed=1, data_seed=1)
    assert weights(seed=1, data_seed=2) != reference != weights(seed=2, data_seed=1)
    run = parse_run([*SMALL, "--seed", "1", "--data_seed", "2", "--output_dir", str(tmp_path / "new")])
    other = parse_run([*SMALL, "--seed", "2", "--data_seed", "2", "--output_dir", str(tmp_path / "new")])
    first, second = train.make_trainer(run), train.make_trainer(other)
    assert torch.equal(first.train_dataset[0]["input_ids"], second.train_dataset[0]["input_ids"])
    assert not torch.equal(first.model.lm_head.weight, second.model.lm_head.weight)


def test_checkpoint_that_was_cut_off_is_passed_over(tmp_path):
    good = tmp_path / "checkpoint-5"
    run = parse_run([*SMALL, "--output_dir", str(tmp_path / "run")])
    train.make_trainer(run).model.save_pretrained(good)
    (good / "trainer_state.json").write_text("{}")
    for step, state in ((10, None), (15, '{"global_st')):
        cut = tmp_path / f"checkpoint-{step}"
        cut.mkdir()
        (cut / "model.safetensors").write_bytes((good / "model.safetensors").read_bytes())
        if state:
            (cut / "trainer_state.json").write_text(state)
    truncated = tmp_path / "checkpoint-20"
    truncated.mkdir()
    (truncated / "trainer_state.json").write_text("{}")
    (truncated / "model.safetensors").write_bytes((good / "model.safetensors").read_bytes()[:-8])
    assert train.last_checkpoint(tmp_path) == good


def test_output_folder_of_a_finished_run_is_not_overwritten(main_job, capsys):
    before = {path: path.stat().st_mtime_ns for path in main_job.iterdir()}
    assert "finished run" in refusal(capsys, ["addition", "--output_dir", main_job])
    assert before == {path: path.stat().st_mtime_ns for path in main_job.iterdir()}


def test_unfinished_run_is_continued_only_when_asked_and_only_as_it_was(tmp_path, capsys):
    run = parse_run([*SMALL, "--output_dir", str(tmp_path)])
    write_recipe(run.recipe, tmp_path / "recipe.yaml")
    assert "--resume" in refusal(capsys, [*SMALL, "--output_dir", tmp_path])
    message = refusal(capsys, [*SMALL, "--learning_rate", "0.5", "--resume", "--output_dir", tmp_path])
    assert "learning_rate was 0.004, now 0.5" in message


def test_folder_with_other_files_is_refused(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("precious")
    assert "choose another --output_dir" in refusal(capsys, [*SMALL, "--output_dir", tmp_path])
    assert "no run to continue" in refusal(capsys, [*SMALL, "--resume", "--output_dir", tmp_path / "new"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["adition"], "choose one of addition"),
        (["addition", "--lerning_rate", "1"], "did you mean --learning_rate"),
        (["addition", "--hidden_size", "many"], "invalid int value: 'many'"),
        (["addition", "--norm", "batch"], "'rms', 'layer', 'none'"),
        (["addition", "--task", "division"], "choose one of addition"),
        (["addition", "--order", "backwards"], "'response_reversed', 'all_reversed', 'plain'"),
        (["addition", "--num_attention_heads", "5"], "not a multiple"),
        (["addition", "--hidden_act", "swoosh"], "hidden_act"),
        (["addition", "--learning_rate", "-1"], "learning_rate must be above 0, got -1"),
        (["addition", "--save_steps", "5"], "save_steps cannot be set: it follows from eval_steps"),
        (["addition", "--random_start", "--max_length", "300"], "operands of 200 digits"),
        (["addition", "--lr_scheduler_kwargs", '{"floor": 1}'], "floor"),
        (["addition", "--lr_scheduler_kwargs", "{bad"], "'{bad'"),
        (["addition", "--batch_size", "0"], "batch_size must be at least 1, got 0"),
        (["addition", "--max_length", "0"], "min_length <= max_length"),
        (["addition-absolute", "--test_lengths", "201"], "operands of 200 digits"),
        (["addition-absolute", "--max_length", "201"], "operands of 200 digits"),
        (["addition", "--num_train_samples", "10"], "fill no batch"),
        (["addition", "--gradient_accumulation_steps", "3"], "cannot be divided"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_is_written(arguments, expected, tmp_path, capsys):
    assert expected in refusal(capsys, [*arguments, "--output_dir", tmp_path / "run"])
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    train.claim_folder(parse_run(["addition", "--output_dir", str(tmp_path / "run")]))


@pytest.mark.parametrize("name", list_recipes())
def test_recipe_is_legal_and_is_what_the_run_keeps(name, tmp_path):
    given = yaml.safe_load((MODELS_FOLDER / name / "recipe.yaml").read_text())
    on_cpu = ["--bf16", "False"] if given.get("bf16") else []
    run = parse_run([name, *on_cpu, "--output_dir", str(tmp_path / "run")])
    assert run.name == name
    assert {**given, "bf16": False} == {name: {"bf16": False, **run.recipe}[name] for name in {**given, "bf16": False}}


def test_command_line_overrides_the_recipe_and_a_kept_recipe_runs_again(tmp_path):
    run = parse_run([*SMALL, "--learning_rate", "0.25", "--output_dir", str(tmp_path / "run")])
    assert run.training.learning_rate == 0.25
    (tmp_path / "kept").mkdir()
    write_recipe(run.recipe, tmp_path / "kept" / "recipe.yaml")
    again = parse_run([str(tmp_path / "kept")])
    assert json.dumps(again.recipe) == json.dumps(run.recipe)
    assert again.config.to_dict() == run.config.to_dict()


def test_list_names_every_recipe(capsys):
    train.main(["--list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(list_recipes())


@pytest.mark.parametrize("format", [["--zero_padding", "False"], ["--order", "plain"], ["--separate_eos"]])
def test_every_format_trains_and_is_evaluated(format, tmp_path):
    train.main([*SMALL, *format, "--max_steps", "2", "--output_dir", str(tmp_path / "run")])
    assert Path(tmp_path / "run" / "results.jsonl").exists()
