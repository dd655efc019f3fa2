"""Coupling rules and encodings from a user's own file travel with a checkpoint."""

import importlib
import json
import subprocess
import sys

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data.families import build_tokenizer
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.position_encodings import POSITION_ENCODINGS

RULE = """
import torch

from longhand.modeling.coupling import Plan, coupling_rule
from longhand.modeling.vocabulary import EQUALS


@coupling_rule(levels=1, capacity=lambda ids: f"queries of {ids - 1} tokens", reads_any_text=True)
def distance_from_equals(input_ids: torch.Tensor, columns: int) -> Plan:
    equals = (input_ids == EQUALS).int().argmax(dim=1, keepdim=True)
    ids = (torch.arange(columns) - equals).abs() + 1
    return Plan(ids.unsqueeze(1), response_length=int(equals.max()) + 1)
"""
ENCODING = '''
from longhand.modeling.position_encodings import LearnedTable, position_encoding


@position_encoding("doubled")
class Doubled(LearnedTable):
    """Twice what the learned table adds."""

    def embed(self, token_embeddings, position_ids):
        return 2 * super().embed(token_embeddings, position_ids) - token_embeddings
'''
ELSEWHERE = """
import sys
sys.modules["longhand"] = None
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, again, output = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
torch.save(model(**AutoTokenizer.from_pretrained(folder)("653+049=", return_tensors="pt")).logits, output)
model.save_pretrained(again)
"""


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """Both plugins imported as a user imports modules of their own; forgotten after the test."""
    for name, text in {"distance_rule": RULE, "doubled_table": ENCODING}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("distance_rule", "doubled_table"):
        importlib.import_module(name)
    yield
    COUPLING_RULES.pop("distance_from_equals", None)
    POSITION_ENCODINGS.pop("doubled", None)
    del sys.modules["distance_rule"], sys.modules["doubled_table"]


def build() -> CoupledGPTForCausalLM:
    torch.manual_seed(0)
    options = {"coupling": "distance_from_equals", "position_encoding": "doubled", "max_position_ids": 40}
    return CoupledGPTForCausalLM(CoupledGPTConfig(**options)).eval()


def test_a_checkpoint_with_plugins_runs_without_them_and_without_this_package(plugins, tmp_path):
    model, tokenizer, folder = build(), build_tokenizer(), tmp_path / "checkpoint"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    script, again = tmp_path / "script.py", tmp_path / "again"
    script.write_text(ELSEWHERE)
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "PATH": ""}
    command = [sys.executable, "-I", script, folder, again, tmp_path / "logits.pt"]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=300, capture_output=True)
    logits = model(**tokenizer("653+049=", return_tensors="pt")).logits
    torch.testing.assert_close(torch.load(tmp_path / "logits.pt"), logits)
    # What was loaded with the code beside it can be saved again, with the same code.
    for name in ("plugin_distance_rule.py", "plugin_doubled_table.py", "with_plugins.py", "config.json"):
        assert (again / name).read_text() == (folder / name).read_text(), name


def test_a_checkpoint_says_which_plugins_it_needs(plugins, tmp_path):
    build().save_pretrained(tmp_path / "checkpoint")
    config = json.loads((tmp_path / "checkpoint" / "config.json").read_text())
    assert config["plugins"] == ["distance_rule.py", "doubled_table.py"]
    assert set(config["auto_map"].values()) == {
        f"with_plugins.{name}" for name in ("CoupledGPTConfig", "CoupledGPTModel", "CoupledGPTForCausalLM")
    }
    rule = COUPLING_RULES.pop("distance_from_equals")
    with pytest.raises((ValueError, StrictDataclassError), match=r"--plugin distance_rule.py doubled_table.py, or trust_r"):
        AutoConfig.from_pretrained(tmp_path / "checkpoint", trust_remote_code=False)
    COUPLING_RULES["distance_from_equals"] = rule


def test_checkpoints_without_plugins_name_none(tmp_path):
    CoupledGPTConfig().save_pretrained(tmp_path)
    assert "plugin" not in (tmp_path / "config.json").read_text()
    assert not (tmp_path / "with_plugins.py").exists()


def test_a_plugin_that_cannot_travel_is_refused(plugins, tmp_path, monkeypatch):
    file = tmp_path / "distance_rule.py"
    file.write_text(RULE.replace("from longhand.modeling.coupling import", "from longhand.modeling import"))
    COUPLING_RULES.pop("distance_from_equals")
    importlib.reload(sys.modules["distance_rule"])
    with pytest.raises(ValueError, match=r"the line 'from longhand\.modeling import .*'; import from the module"):
        build().save_pretrained(tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint" / "config.json").exists()
