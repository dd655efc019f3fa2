"""The verifier of certificates, numpy alone: what it reads, and what of it is refused, by the package too or by itself."""

import json
import math
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import pytest
import torch
from certificate_subjects import change_json, load, swap_digits
from publishing_subjects import model_card, model_files
from safetensors.torch import load_file, save_file
from test_settling import GRIDS, PRODUCTS, SUMS, build

from longhand import eval as evaluation
from longhand import train
from longhand.data import Copy
from longhand.data.certificates import Certificate, certify, verify_certificate
from longhand.data.certificates.verify_certificate import Refused, find_task, list_neighbourhoods, read_checkpoint, verify
from longhand.hub_cards.checkpoints.checkpoint import VERIFIER, hash_files
from longhand.hub_cards.checkpoints.load import unpack

BLOCKED = ("torch", "transformers", "safetensors", "tokenizers", "longhand", "yaml")


def verified_alone(folder: Path) -> None:
    """Run the command on the card where numpy is all that is installed, and compare what it prints with the certificate."""
    assert f"`python {VERIFIER.name} .`" in model_card(folder)
    assert (folder / VERIFIER.name).read_bytes() == VERIFIER.read_bytes()
    script = f"import runpy, sys; sys.modules |= dict.fromkeys({BLOCKED}); sys.argv = ['verify', '.']; "
    script += "runpy.run_path('verify_certificate.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-c", script], cwd=folder, capture_output=True, text=True, timeout=300)
    certificate = json.loads((folder / "certificate.json").read_text())
    assert done.returncode == 0 and done.stderr == ""
    assert f"VERIFIED. {certificate['statement']}" in done.stdout
    assert f"neighbourhoods  {certificate['neighbourhoods']:,}" in done.stdout
    assert all(f"{digest}  {name}" in done.stdout for name, digest in certificate["files"].items())
    assert VERIFIER.name not in certificate["files"]


def forge(folder: Path) -> None:
    """Make a certificate name the files as they are."""
    change_json(folder / "certificate.json", files=hash_files(folder))


def refused_by_both(folder: Path) -> str:
    """What the verifier says; the package does not certify the folder either."""
    with pytest.raises(Refused) as reason, np.errstate(all="ignore"):
        verify(folder)
    with pytest.raises(SystemExit) as stop:
        evaluation.main([str(folder), "--certify", "--output_dir", str(folder.parent / "out")])
    assert stop.value.code in (1, 2)
    return str(reason.value)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A certified decoder, which is checked in a moment, and a certified encoder."""
    place = tmp_path_factory.mktemp("runs")
    train.main(["copy", "--test_lengths", "10", "--test_samples", "5", "--output_dir", str(place / "copy")])
    return {"copy": place / "copy", "grids": unpack("encoder-multiplication-grid", place)}


@pytest.fixture
def copied(folders, tmp_path):
    """Make a copy of a folder, without results, which are of these weights alone."""
    ignored = shutil.ignore_patterns("best", "results.jsonl")
    return lambda name: Path(shutil.copytree(folders[name], tmp_path / name, ignore=ignored))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["copy", "addition-tiny", "division", "minesweeper"])
def test_a_checkpoint_is_verified_by_the_file_beside_it_with_numpy_alone(name, folders, tmp_path):
    verified_alone(folders.get(name) or unpack(name, tmp_path))


def in_tensors(seed: int):
    """Add noise, three times as large as the weights are, to one tensor; or put one nan in it."""

    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        names = [name for name, weight in sorted(weights.items()) if weight.ndim > 1]
        name, generator = names[seed % len(names)], torch.Generator().manual_seed(seed)
        noise = 3 * weights[name].std() * torch.randn(weights[name].shape, generator=generator)
        if seed >= len(names):
            noise.view(-1)[int(torch.randint(noise.numel(), (1,), generator=generator))] = math.nan
        weights[name] += noise
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def without_a_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights[sorted(weights)[3]]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def in_file(name: str, **changes):
    return lambda folder: change_json(folder / name, **changes)


def with_file(name: str):
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")

    return change


def double_key(folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(file.read_text().replace("{", '{"use_cache": false,', 1))


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])


def changed_code(folder: Path) -> None:
    file = folder / "relations.py"
    file.write_text(file.read_text() + "# changed")


CODE_ELSEWHERE = {"AutoModelForCausalLM": "evil/repo--modeling.Model"}
DAMAGES = [
    *(("copy", in_tensors(seed), "") for seed in (0, 3, 11)),
    *(("grids", in_tensors(seed), "") for seed in (0, 9)),
    ("copy", without_a_tensor, "model.safetensors"),
    ("copy", swap_digits, "tokenizer.json"),
    ("copy", in_file("tokenizer.json", normalizer={"type": "Lowercase"}), "tokenizer.json: normalizer"),
    *(("copy", in_file("config.json", **{name: value}), f"config.json: {name} {value!r}") for name, value in {
        "norm_placement": "post", "windowed": False, "coupling": "reverse", "norm_eps": 1e3, "vocab_size": 22,
    }.items()),
    ("copy", in_file("config.json", eos_token_id=18), "eos_token"),
    ("copy", in_file("config.json", num_attention_heads=1, head_dim=32), "model.safetensors"),
    *(("copy", in_file("generation_config.json", **{name: value}), f"generation_config.json: {name} {value!r}")
      for name, value in {"suppress_tokens": [7], "repetition_penalty": 5.0, "max_new_tokens": 3, "num_beams": 2}.items()),
    ("grids", in_file("config.json", num_attention_heads=3), "model.safetensors"),
    *(("grids", in_file("config.json", **{name: value}), f"config.json: {name}") for name, value in {
        "layer_norm_eps": 1e3, "pair_maps": ["coupled"], "sink": False, "id2label": dict(enumerate("0123456798_?")),
    }.items()),
]  # fmt: skip
"""Folders, what is changed in them, and what is in the verifier's refusal."""

FORGERIES = [
    *(("copy", with_file(name), f"{name} is not known here") for name in (
        "added_tokens.json", "pytorch_model.bin", "model.fp16.safetensors", "model.safetensors.index.json",
        "custom_generate/generate.py",
    )),
    ("copy", with_file("more.py"), "Python files"),
    ("copy", changed_code, "Python files"),
    ("copy", double_key, "config.json: a key stands twice"),
    ("copy", cut, "model.safetensors"),
    ("copy", in_file("config.json", auto_map=CODE_ELSEWHERE), "auto_map"),
    ("copy", in_file("config.json", auto_map={"AutoModel": "other.Model"}), "auto_map"),
    ("copy", in_file("tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling.A", None]}), "auto_map"),
    ("copy", in_file("config.json", tie_word_embeddings=True), "tie_word_embeddings"),
    ("copy", in_file("tokenizer.json", truncation={"max_length": 9}), "tokenizer.json: truncation"),
    ("copy", in_file("tokenizer_config.json", padding_side="right"), "padding_side"),
    ("copy", in_file("tokenizer_config.json", model_max_length=512), "model_max_length"),
    ("copy", in_file("config.json", sparse=True), "config.json: sparse True is not known here"),
    ("copy", in_file("generation_config.json", top_k=1), "generation_config.json: top_k 1 is not known here"),
    ("copy", in_file("config.json", hidden_act="gelu"), "config.json: hidden_act 'gelu'"),
    ("copy", in_file("config.json", num_hidden_layers=2), "config.json: num_hidden_layers 2"),
    ("copy", in_file("config.json", num_hidden_layers=True), "num_hidden_layers True"),
    ("copy", in_file("config.json", transducer={}), "transducer"),
    ("copy", lambda folder: (folder / "generation_config.json").unlink(), "generation_config.json is missing"),
]  # fmt: skip
CLAIMS = [
    ("remark", "exact"), ("wrong", "0"), ("wrong", 1), ("statement", "All."), ("margin", 99.0), ("ratio", 1e5),
    ("ratio", math.nan), ("bound", 1e-6), ("bound", None), ("limits", {}), ("certified", False), ("neighbourhoods", 119),
    ("files", []), ("files", {"config.json": "0"}), ("task", {"task": "sort"}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(DAMAGES)))
def test_a_damaged_checkpoint_is_refused_by_both_even_if_its_certificate_names_the_damaged_files(place, copied):
    name, change, expected = DAMAGES[place]
    folder = copied(name)
    change(folder)
    forge(folder)
    assert expected in refused_by_both(folder)


@pytest.mark.parametrize("place", range(len(FORGERIES)))
def test_what_the_verifier_does_not_know_is_refused_by_name(place, copied):
    name, change, expected = FORGERIES[place]
    folder = copied(name)
    change(folder)
    forge(folder)
    with pytest.raises(Refused, match=expected):
        read_checkpoint(folder)


@pytest.mark.parametrize(("field", "value"), CLAIMS)
def test_a_claim_that_is_not_what_is_found_is_refused_by_its_field(field, value, copied):
    folder = copied("copy")
    change_json(folder / "certificate.json", **{field: value})
    with pytest.raises(Refused, match=rf"^certificate\.json.*\b{field}\b"):
        verify(folder)


@pytest.mark.parametrize("task", [SUMS, PRODUCTS, GRIDS], ids=lambda task: task.name)
def test_an_untrained_encoder_is_known_and_refused(task, tmp_path, monkeypatch):
    model = build(task)
    model.config.task, model.config.prompt_format = task.describe(), asdict(task.prompt_format)
    for part in (model, task.family.tokenizer(task)):
        part.save_pretrained(tmp_path)
    claim = {field.name: None for field in fields(Certificate)} | {"certified": True, "task": task.describe(), "limits": {}}
    claim |= {"margin": 1.0, "bound": 0.1, "ratio": 10.0, "statement": "", "proof": [], "failures": [], "weights": ""}
    (tmp_path / "certificate.json").write_text(json.dumps(claim | {"predictions": 1, "wrong": 0}))
    forge(tmp_path)
    some = list_neighbourhoods(find_task(task.describe()))[:100]
    monkeypatch.setattr(verify_certificate, "list_neighbourhoods", lambda task: some)
    with pytest.raises(Refused, match="another token leads"):
        verify(tmp_path)


def test_a_checkpoint_that_the_verifier_does_not_know_has_no_copy_of_it(copied, capsys):
    """Another activation is certified by the package, and not known to the verifier."""
    folder = copied("copy")
    model = load(folder)
    model.config.hidden_act = "gelu"
    assert certify(model, Copy()).certified
    model.save_pretrained(folder)
    evaluation.main([str(folder), "--certify", "--output_dir", str(folder.parent / "out")])
    assert "verify_certificate.py does not know it: config.json: hidden_act 'gelu'" in capsys.readouterr().out
    assert not (folder / VERIFIER.name).exists()
    assert VERIFIER.name not in model_card(folder)
    with suppress(KeyError):
        del model_files(folder, "user/copier")[VERIFIER.name]
        raise AssertionError("the verifier was published")


@pytest.mark.parametrize(("name", "expected"), {"missing": "no certificate.json", "broken": "is no JSON: "}.items())
def test_a_folder_without_a_certificate_is_refused_in_one_line(name, expected, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "certificate.json").write_text("{")
    done = subprocess.run([sys.executable, "-I", VERIFIER, name], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("REFUSED: ") and done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_the_verifier_knows_the_code_that_is_written_beside_checkpoints_and_those_without_code(copied):
    """If this fails, a file in modeling/ has changed: run .ci/code."""
    folder = copied("copy")
    read_checkpoint(folder)
    for file in folder.glob("*.py"):
        file.unlink()
    change_json(folder / "config.json", auto_map=None)
    forge(folder)
    read_checkpoint(folder)


def test_a_configuration_without_the_table_that_the_certificate_states_is_refused(tmp_path):
    folder = unpack("gray-code", tmp_path)
    read_checkpoint(folder)
    change_json(folder / "config.json", transducer=None)
    forge(folder)
    with pytest.raises(Refused, match="transducer"):
        read_checkpoint(folder)


def test_the_verifier_knows_every_field_of_a_certificate():
    assert {*verify_certificate.FIELDS} == {field.name for field in fields(Certificate)}
