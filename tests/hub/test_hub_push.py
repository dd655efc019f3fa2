"""A push of a checkpoint: one complete commit, whatever fails on the way; and what was pushed, read by other libraries."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from huggingface_hub import HfApi
from publishing_subjects import CONFIGURATIONS, NUM_SAMPLES, change_a_weight, held, make_best, measure, model_files

from longhand.data import load_task_dataset
from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints.checkpoint import hash_files
from longhand.hub_cards.checkpoints.load import read_checkpoint
from longhand.hub_cards.publishing.commits import CannotPush
from longhand.hub_cards.publishing.dataset import push_dataset
from longhand.hub_cards.publishing.publications import push_model
from longhand.hub_cards.result_rows import read_results


def test_the_checkpoint_travels_without_training_states_and_pickles_and_comes_back(hub, api, folder, tmp_path):
    renamed = folder.rename(tmp_path / "renamed")
    (renamed / "checkpoints" / "checkpoint-10").mkdir(parents=True)
    (renamed / "checkpoints" / "checkpoint-10" / "optimizer.pt").write_bytes(b"moments")
    for name in ("trainer_state.json", "training_args.bin"):
        (renamed / name).write_bytes(b"{}")
    push_model(renamed, "user/adder", api=api)
    assert held(hub) == model_files(renamed, "user/adder")
    named = {"config.json", "model.safetensors", "tokenizer.json", "recipe.yaml", "results.jsonl", "README.md"}
    assert named | {"modeling_coupled_gpt.py", "coupling.py"} <= set(held(hub))
    assert not {"trainer_state.json", "training_args.bin", "checkpoints/checkpoint-10/optimizer.pt"} & set(held(hub))
    assert b"user/adder" in held(hub)["README.md"] and not (renamed / "README.md").exists()
    api.snapshot_download("user/adder", local_dir=(downloaded := tmp_path / "other-name"))
    assert not push_model(downloaded, "user/adder", api=api).is_new


def test_a_best_checkpoint_that_adds_nothing_is_left_out(hub, api, folder):
    make_best(folder)
    measure(folder, {5: 0.95}, {5: 0.625})
    push_model(folder, "user/adder", api=api)
    assert "best/model.safetensors" in held(hub) and b"| 5 | 0.6250 |" in held(hub)["README.md"]
    shutil.copy(folder / "model.safetensors", folder / "best")
    measure(folder, {5: 0.95}, {5: 0.625})
    push_model(folder, "user/adder", api=api)
    assert not any(path.startswith("best/") for path in held(hub))
    assert b"0.6250" not in held(hub)["README.md"] and b"`best/` is left out" in held(hub)["README.md"]
    assert [row["model"] for row in map(json.loads, held(hub)["results.jsonl"].splitlines())] == ["adder"]
    assert len(read_results(folder / "results.jsonl")) == 2


FAULTS = {
    "busy": ("POST", "/commit/", {"status": 429}),
    "commit lost in the middle": ("POST", "/commit/", {"kind": "cut"}),
    "upload": ("PUT", "/large/", {"kind": "cut"}),
    "everything": ("GET", "/api/", {"status": 503}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_push_that_fails_changes_nothing_and_the_same_push_goes_on(hub, api, folder, name):
    push_model(folder, "user/adder", api=api)
    before = held(hub)
    change_a_weight(folder)
    (folder / "results.jsonl").unlink()
    method, path, options = FAULTS[name]
    hub.fail(method, path, times=10_000, **options)
    with pytest.raises(CannotPush, match=r"^[^\n]*$"):
        push_model(folder, "user/adder", api=api)
    assert held(hub) == before
    hub.faults.clear()
    push_model(folder, "user/adder", api=api)
    assert held(hub) == model_files(folder, "user/adder") and "results.jsonl" in before


def test_a_commit_of_another_at_the_same_moment_is_not_lost(hub, api, folder, monkeypatch):
    push_model(folder, "user/adder", api=api)
    repository, create = hub.repositories["model", "user/adder"], HfApi.create_commit

    def create_commit(self, *arguments, **options):
        repository.commit("main", "other", {**repository.head.files, "notes.md": b"mine"})
        return create(self, *arguments, **options)

    (folder / "results.jsonl").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(HfApi, "create_commit", create_commit)
        with pytest.raises(CannotPush):
            push_model(folder, "user/adder", api=api)
    assert repository.head.title == "other"
    push_model(folder, "user/adder", api=api)
    assert held(hub) == model_files(folder, "user/adder") | {"notes.md": b"mine"}


def test_a_model_of_the_package_is_pushed_with_its_code_which_its_certificate_names(at_home, tmp_path):
    command.main(["model", "copy", "user/mine", "--yes"])
    files = held(at_home, "user/mine")
    for path, content in files.items():
        (tmp_path / path).write_bytes(content)
    certificate = read_checkpoint(tmp_path).certificate
    assert certificate["certified"] and certificate["files"] == hash_files(tmp_path)
    assert {"modeling_coupled_gpt.py", "verify_certificate.py"} <= set(files) and b"auto_map" in files["config.json"]
    assert b"**Certified.**" in files["README.md"]
    assert b'from_pretrained("user/mine", trust_remote_code=True)' in files["README.md"]


WITH_OTHER_LIBRARIES = """
import json
from datasets import load_dataset
from huggingface_hub import constants
from longhand import eval
from longhand.data import collate_rows
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer
for name, model_class in (("adder", AutoModelForCausalLM), ("reader", AutoModelForTokenClassification)):
    eval.main([f"user/{name}", "--lengths", "4", "--num_samples", "10", "--output_dir", name])
    model = model_class.from_pretrained(f"user/{name}", revision="main")
    assert type(model).__module__.startswith("longhand.modeling."), type(model)
    assert AutoConfig.from_pretrained(f"user/{name}").to_dict() == model.config.to_dict()
    assert AutoTokenizer.from_pretrained(f"user/{name}")("12+34").input_ids
for repository, configuration in (("sums", None), ("sums", "plain"), ("labelled", "all")):
    stream = load_dataset(f"user/{repository}", configuration, split="test", streaming=True)
    with open(f"{repository}-{configuration}.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\\n" for row in stream)
loss = model(**collate_rows(list(stream))).loss
assert loss > 0
for offline in (False, True):
    constants.HF_HUB_OFFLINE = offline
    eval.main(["user/adder", "--ask", "12+34"])
"""


@pytest.mark.release
def test_eval_and_load_dataset_read_what_was_pushed(hub, api, adder, small_encoder, tmp_path):
    push_model(adder, "user/adder", api=api)
    push_model(small_encoder, "user/reader", api=api)
    push_dataset("addition", "user/sums", CONFIGURATIONS, num_samples=NUM_SAMPLES, seed=3, api=api)
    labelled = {"max_length": 4, "field_width": 6, "sampling": "shifted"}
    push_dataset("encoder_addition", "user/labelled", {"all": labelled}, num_samples=NUM_SAMPLES, seed=3, api=api)
    environment = os.environ | hub.environment(tmp_path / "home", token="secret")
    command = [sys.executable, "-c", WITH_OTHER_LIBRARIES]
    done = subprocess.run(command, env=environment, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.endswith("\n46\n46\n")
    for name, exact_match in (("adder", 1.0), ("reader", 0.0)):
        (result,) = read_results(tmp_path / name / "results.jsonl")
        assert (result["model"], result["exact_match"]) == (f"user/{name}", exact_match)
    written = {
        "sums-None": ("addition", CONFIGURATIONS["short"]),
        "sums-plain": ("addition", CONFIGURATIONS["plain"]),
        "labelled-all": ("encoder_addition", labelled),
    }
    for file, (task, arguments) in written.items():
        made = load_task_dataset(task, split="test", num_samples=10, seed=3, streaming=True, **arguments)
        read = [json.loads(line) for line in (tmp_path / f"{file}.jsonl").read_text().splitlines()]
        assert read == [json.loads(json.dumps(row)) for row in made] and len(read) == 10
