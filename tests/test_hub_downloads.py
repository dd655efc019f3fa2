"""What was pushed is read again, through cuts and by other libraries."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from publishing_subjects import CONFIGURATIONS, NUM_SAMPLES, held

from longhand.data import load_task_dataset
from longhand.hub_cards.evaluation.results import read_results
from longhand.hub_cards.publishing.dataset import push_dataset
from longhand.hub_cards.publishing.publications import push_model

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


def files_below(folder: Path) -> dict[str, bytes]:
    links = {path for path in folder.rglob("snapshots/*/*") if path.is_file()}
    return {path.name: path.read_bytes() for path in links}


def test_a_download_that_is_cut_off_goes_on_where_it_stopped(hub, api, adder, tmp_path):
    push_model(adder, "user/adder", api=api)
    files = held(hub)
    hub.fail("GET", "/resolve/.*/model.safetensors", kind="cut", times=3)
    api.snapshot_download("user/adder", cache_dir=tmp_path / "cache")
    assert hub.faults[0].times == 0
    found = files_below(tmp_path / "cache")
    assert {name: found[name] for name in files} == files


def test_a_truncated_download_is_an_error_and_leaves_no_half_file(hub, api, adder, tmp_path):
    push_model(adder, "user/adder", api=api)
    files = held(hub)
    hub.fail("GET", "/resolve/.*/model.safetensors", kind="truncated", times=10_000)
    with pytest.raises(OSError):
        api.hf_hub_download("user/adder", "model.safetensors", cache_dir=tmp_path / "cache")
    assert files_below(tmp_path / "cache") == {}
    hub.faults.clear()
    file = api.hf_hub_download("user/adder", "model.safetensors", cache_dir=tmp_path / "cache")
    assert Path(file).read_bytes() == files["model.safetensors"]


@pytest.mark.thorough
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
