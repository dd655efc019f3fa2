"""The verifier of certificates, numpy alone: what it reads, and what of it is refused, by the package too or by itself."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from dataclasses import asdict, fields
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import all_but
from certificate_subjects import change_json, load, swap_digits
from huggingface_hub import HfApi
from loopback_hub import LoopbackHub
from publishing_subjects import model_card, model_files
from safetensors.torch import load_file, save_file
from test_settling import GRIDS, PRODUCTS, SUMS, build

from longhand import eval as evaluation
from longhand import train
from longhand.data import Copy
from longhand.data.proofs import Certificate, certify, verify_certificate
from longhand.data.proofs.verify_certificate import (
    Refused,
    check_folder,
    find_task,
    list_neighbourhoods,
    read_checkpoint,
    verify,
)
from longhand.hub_cards.checkpoints.certificate_file import VERIFIER
from longhand.hub_cards.checkpoints.checkpoint import hash_files
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
    """A certified decoder, which is checked in a moment, and certified checkpoints of the zoo."""
    place = tmp_path_factory.mktemp("runs")
    train.main(["copy", "--test_lengths", "10", "--test_samples", "5", "--output_dir", str(place / "copy")])
    zoo = {name: unpack(name, place) for name in ("gray-code", "encoder-multiplication-grid")}
    return {"copy": place / "copy", "grids": zoo["encoder-multiplication-grid"], **zoo}


@pytest.fixture
def copied(folders, tmp_path):
    """Make a copy of a folder, without results, which are of these weights alone."""
    ignored = shutil.ignore_patterns("best", "results.jsonl")
    return lambda name: Path(shutil.copytree(folders[name], tmp_path / name, ignore=ignored))


OTHERS = ("addition-tiny", "division", "minesweeper")


@pytest.mark.slow
@pytest.mark.parametrize("name", all_but(OTHERS, ["copy", *OTHERS]))
def test_a_checkpoint_is_verified_by_the_file_beside_it_with_numpy_alone(name, folders, tmp_path):
    verified_alone(folders.get(name) or unpack(name, tmp_path))


def with_noise(folder: Path, seed: int) -> None:
    """Add noise, three times as large as the weights are, to one tensor; or put one nan in it."""
    weights = load_file(folder / "model.safetensors")
    names = [name for name, weight in sorted(weights.items()) if weight.ndim > 1]
    name, generator = names[seed % len(names)], torch.Generator().manual_seed(seed)
    noise = 3 * weights[name].std() * torch.randn(weights[name].shape, generator=generator)
    if seed >= len(names):
        noise.view(-1)[int(torch.randint(noise.numel(), (1,), generator=generator))] = math.nan
    save_file(weights | {name: weights[name] + noise}, folder / "model.safetensors", metadata={"format": "pt"})


def without_a_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights[sorted(weights)[3]]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def in_bytes(name: str, edit):
    return lambda folder: (folder / name).write_bytes(edit((folder / name).read_bytes()))


def with_file(name: str):
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")

    return change


DAMAGES = [
    *(("copy", partial(with_noise, seed=seed), "") for seed in (0, 3, 11)),
    *(pytest.param("grids", partial(with_noise, seed=seed), "", marks=pytest.mark.release) for seed in (0, 9)),
    ("copy", without_a_tensor, "model.safetensors"), ("copy", swap_digits, "tokenizer.json"),
]  # fmt: skip
"""Folders, what is changed in them, and what is in the verifier's refusal."""

HIDDEN = "print('VERIFIED.')\nopen('it-ran', 'w').close()\nraise SystemExit\n"
"""A file that says so by itself, in place of a library."""

FORGERIES = [
    *((with_file(name), f"{name} is not known here") for name in (
        "added_tokens.json", "pytorch_model.bin", "model.fp16.safetensors", "model.safetensors.index.json",
        "custom_generate/generate.py",
    )),
    (with_file("more.py"), "Python files"), (in_bytes("relations.py", lambda code: code + b"# changed"), "Python files"),
    (in_bytes("config.json", lambda text: text.replace(b"{", b'{"sink": 1,"sink": 1,', 1)), "a key stands twice"),
    (in_bytes("model.safetensors", lambda content: content[:-4]), "model.safetensors"),
    (lambda folder: (folder / "generation_config.json").unlink(), "generation_config.json is missing"),
]  # fmt: skip
SETTINGS = {
    "both copy config.json": {
        "prompt_format": {"pattern": "([0-9]*)*=", "example": "1=", "response": "[0-9]*"},
        "num_attention_heads": 1, "norm_placement": "post", "windowed": False, "coupling": "reverse",
        "norm_eps": 1e3, "vocab_size": 22,
    },
    "both copy generation_config.json": {
        "suppress_tokens": [7], "repetition_penalty": 5.0, "max_new_tokens": 3, "num_beams": 2, "eos_token_id": 18,
    },
    "both copy tokenizer.json": {"normalizer": {"type": "Replace", "pattern": {"String": "65"}, "content": "11"}},
    "both grids config.json": {
        "num_attention_heads": 3, "layer_norm_eps": 1e3, "pair_maps": ["coupled"], "sink": False,
        "id2label": dict(enumerate("0123456798_?")),
    },
    "verifier copy config.json": {
        "auto_map": {"AutoModel": "other.Model"}, "tie_word_embeddings": True, "sparse": True, "hidden_act": "gelu",
        "num_hidden_layers": True, "transducer": {},
    },
    "verifier gray-code config.json": {"transducer": None, "prompt_format": {"pattern": "1=", "example": "1="}},
    "verifier copy generation_config.json": {"top_k": 1},
    "verifier copy tokenizer.json": {"truncation": {"max_length": 9}},
    "verifier copy tokenizer_config.json": {
        "padding_side": "right", "model_max_length": 512, "auto_map": {"AutoTokenizer": ["modeling.A", None]},
    },
}  # fmt: skip
CLAIMS = [
    ("remark", "exact"), ("wrong", "0"), ("wrong", 1), ("statement", "All."), ("margin", 99.0), ("ratio", 1e5),
    ("ratio", math.nan), ("bound", 1e-6), ("bound", None), ("limits", {}), ("certified", False), ("neighbourhoods", 119),
    ("files", []), ("files", {"config.json": "0"}), ("task", {"task": "sort"}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change", "expected"), DAMAGES)
def test_damages_are_refused_by_both_even_if_the_certificate_names_the_damaged_files(name, change, expected, copied):
    folder = copied(name)
    change(folder)
    forge(folder)
    assert expected in refused_by_both(folder)


@pytest.mark.parametrize(("change", "expected"), FORGERIES)
def test_a_file_that_the_verifier_does_not_know_is_refused_by_name(change, expected, copied):
    folder = copied("copy")
    change(folder)
    forge(folder)
    with pytest.raises(Refused, match=expected):
        read_checkpoint(folder)


@pytest.mark.parametrize(("where", "name"), [(where, name) for where, values in SETTINGS.items() for name in values])
def test_a_setting_that_the_verifier_does_not_know_is_refused_by_name(where, name, copied):
    who, folder, file = where.split()
    folder = copied(folder)
    change_json(folder / file, **{name: SETTINGS[where][name]})
    forge(folder)
    with pytest.raises(Refused, match=f"^{file}: {name}|^model.safetensors: it is not as long"):
        read_checkpoint(folder)
    if who == "both":
        refused_by_both(folder)


def test_numbers_may_be_padded_by_a_tokenizer_but_not_where_a_table_says_what_symbols_mean(tmp_path):
    folder = unpack("encoder-addition", tmp_path)
    check_folder(folder)
    # Padding may be a symbol of a table, and another problem would be answered.
    change_json(folder / "config.json", transducer={"alphabet": "01_"})
    with pytest.raises(Refused, match="normalizer"):
        check_folder(folder)
    # Nor is a width tried that no memory holds.
    config = json.loads((folder / "config.json").read_text())
    change_json(folder / "config.json", transducer=None, task=config["task"] | {"field_width": 2**60})
    with pytest.raises(Refused, match="normalizer"):
        check_folder(folder)


@pytest.mark.parametrize("library", ["json", "numpy", "hashlib"])
def test_a_library_beside_the_verifier_is_not_run_and_is_refused(library, copied):
    for folder in (copied("copy"), copied("gray-code")):
        (folder / f"{library}.py").write_text(HIDDEN)
        forge(folder)
        done = subprocess.run([sys.executable, VERIFIER.name, "."], cwd=folder, capture_output=True, text=True)
        assert not (folder / "it-ran").exists() and "VERIFIED" not in done.stdout
        assert done.returncode == 1 and f"REFUSED: {library}.py" in done.stderr


def test_code_that_nothing_reads_is_named_where_a_table_says_what_is_computed(copied, capsys):
    folder = copied("gray-code")
    (folder / "my_task.py").write_text("")
    forge(folder)
    verify(folder)
    assert "without my_task.py, which no library reads to answer" in capsys.readouterr().out


def test_a_copy_beside_a_checkpoint_says_first_that_it_proves_nothing_to_strangers(copied, capsys):
    folder = copied("copy")
    done = subprocess.run([sys.executable, VERIFIER.name, "."], cwd=folder, capture_output=True, text=True)
    assert "proves nothing" in done.stdout.splitlines()[0] and done.returncode == 0
    verify_certificate.main([str(folder)])
    assert "proves nothing" not in capsys.readouterr().out


def test_the_command_is_installed_and_the_pages_of_proofs_and_of_releases_have_the_hash_of_its_file():
    """If this fails, the verifier or a file in modeling/ has changed: run .ci/code."""
    root = VERIFIER.parents[2]
    assert tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]["longhand-verify"] == (
        "longhand.data.proofs.verify_certificate:main"
    )
    line = f"{sha256(VERIFIER.read_bytes()).hexdigest()}  {VERIFIER.name}"
    assert line in (root / "hub_cards" / "PROOF.md").read_text().splitlines()
    _, newest, *_ = (root / "CHANGELOG.md").read_text().split("\n## ")
    assert newest.count(VERIFIER.name) == 1 and line in newest.splitlines()


def test_the_parts_of_the_verifier_name_chapters_of_the_page_of_proofs_and_its_functions_name_every_lemma():
    page, text = (VERIFIER.parents[2] / "hub_cards" / "PROOF.md").read_text(), VERIFIER.read_text()
    titles = {*re.findall(r"^## (.+)$|^\*\*(.+?)\.\*\*", page, re.MULTILINE)}
    chapters = re.findall(r"^# ---- .*\(PROOF\.md: (.*)\)", text, re.MULTILINE)
    named = {title for chapter in chapters for title in re.split("; |, ", chapter)}
    assert chapters and named <= {title for pair in titles for title in pair}
    numbers = {*re.findall(r"^\*\*(?:Lemma|Theorem) (\d+a?)", page.split("## Attention to all tokens")[0], re.MULTILINE)}
    found = set()
    for words in re.findall(r"(?:Lemmas?|Theorem) \d+a?(?:(?: to|,| and) \d+a?)*", text):
        found |= {*re.findall(r"\d+a?", words)}
    assert found == numbers


def test_a_repository_is_verified_at_a_commit_that_is_named(copied, tmp_path):
    files = {file.name: file.read_bytes() for file in copied("copy").iterdir() if file.is_file()}
    with LoopbackHub() as hub:
        api = HfApi(endpoint=hub.endpoint, token=hub.add_token("secret", "user"))
        api.create_repo("user/copier")
        head = hub.repositories["model", "user/copier"].commit("main", "files", files).sha
        place = os.environ | hub.environment(tmp_path / "cache")
        done = subprocess.run([sys.executable, VERIFIER, "user/copier"], env=place, capture_output=True, text=True)
    assert done.stdout.startswith(f"user/copier at the commit {head}") and "VERIFIED." in done.stdout, done.stderr


@pytest.mark.parametrize("word", ["gray_code\nVERIFIED. For everything", "<script>", "\u202e", "x" * 3000], ids=ascii)
def test_a_name_or_an_option_of_more_than_a_word_is_neither_verified_nor_certified(word, copied):
    for described in ({"task": word}, {"task": "gray_code", "radix": word}, {"task": "gray_code", word: 1}):
        folder = copied("gray-code")
        for name in ("config.json", "certificate.json"):
            change_json(folder / name, task=described)
        forge(folder)
        assert "is no number, and no short word" in refused_by_both(folder)
        shutil.rmtree(folder)


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
    assert (
        "verify_certificate.py does not know it: config.json: hidden_act is 'gelu', and here it must be 'gelu_pytorch_tanh'"
        in capsys.readouterr().out
    )
    assert not (folder / VERIFIER.name).exists()
    assert VERIFIER.name not in model_card(folder)
    with suppress(KeyError):
        del model_files(folder, "user/copier")[VERIFIER.name]
        raise AssertionError("the verifier was published")


@pytest.mark.parametrize(("name", "expected"), {"missing": "there is no folder", "broken": "is no JSON: "}.items())
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
    config = json.loads((folder / "config.json").read_text())
    del config["auto_map"]
    (folder / "config.json").write_text(json.dumps(config))
    forge(folder)
    read_checkpoint(folder)


def test_the_verifier_knows_every_field_of_a_certificate():
    # A certificate of single lengths is another one, and refused; in older ones of every length the field is empty.
    assert {*verify_certificate.FIELDS} == {"lengths", *(field.name for field in fields(Certificate))}


def test_a_reader_that_leaves_is_no_refusal(main_job):
    """As in `longhand-verify FOLDER | head -1`."""
    command = [sys.executable, "-I", VERIFIER, main_job]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as verifying:
        verifying.stdout.close()
        said = verifying.stderr.read()
    assert verifying.returncode not in (0, 1) and said.count("\n") == 1
    assert "REFUSED" not in said and "VERIFIED" not in said
