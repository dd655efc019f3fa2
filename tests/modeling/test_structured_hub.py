"""Structure on a Hub: a whole model that is pushed, and tables alone that are uploaded, are the same model again."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from huggingface_hub import create_repo, upload_folder
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
import longhand

folder = sys.argv[1]
sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
torch.manual_seed(0)
plain = LlamaForCausalLM(LlamaConfig(vocab_size=20, **sizes)).eval()
plain.push_to_hub("alice/plain")
tokens, pair_map = torch.arange(12).reshape(2, 6), torch.arange(36).reshape(1, 6, 6) % 3
levels_of_ids = torch.arange(12).reshape(1, 2, 6) % 5 + 1

for kind, options, given in (
    ("map", {"num_relations": 3}, {"pair_map": pair_map}),
    ("levels", {"levels": 2}, {"position_ids": levels_of_ids}),
):
    model = longhand.with_structure(AutoModelForCausalLM.from_pretrained("alice/plain"), **options)
    torch.nn.init.normal_(model.structure.table)
    expected = model(tokens, **given).logits
    assert not torch.equal(expected, plain(tokens).logits)

    model.push_to_hub(f"alice/pushed-{kind}")
    model.save_pretrained(f"{folder}/{kind}", push_to_hub=True, repo_id=f"alice/saved-{kind}")
    model.save_structure(f"{folder}/{kind}-tables")
    create_repo(f"alice/tables-{kind}")
    upload_folder(repo_id=f"alice/tables-{kind}", folder_path=f"{folder}/{kind}-tables")

    for name in (f"alice/pushed-{kind}", f"alice/saved-{kind}", f"alice/tables-{kind}"):
        base = "alice/plain" if "tables" in name else name
        found = longhand.with_structure(AutoModelForCausalLM.from_pretrained(base), name)
        assert torch.equal(found(tokens, **given).logits, expected), name
        assert torch.equal(found(tokens).logits, plain(tokens).logits), name
"""


@pytest.mark.thorough
def test_structure_is_pushed_and_found_on_the_hub(hub, tmp_path):
    environment = {**os.environ, **hub.environment(tmp_path / "home", hub.add_token("writer", "alice"))}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    for repository in hub.repositories.values():
        files = repository.commits[repository.branches["main"]].files
        has_structure = {"structure.safetensors", "structure_config.json"} <= files.keys()
        assert has_structure == (repository.name != "alice/plain"), repository.name
