"""What was pushed is read again, through cuts and by other libraries."""

import json
import os
import subprocess
import sys

import pytest
from publishing_subjects import CONFIGURATIONS, NUM_SAMPLES

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
