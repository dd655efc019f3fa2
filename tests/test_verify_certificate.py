"""The verifier of certificates, numpy alone: it agrees with the package, and refuses what the package refuses."""

import json
import math
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, fields
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from certificate_subjects import change_json, load, swap_digits, untrained
from publishing_subjects import model_card, model_files
from safetensors.torch import load_file, save_file
from test_certificates import certifiable
from test_column_tasks import Backwards, Differences
from test_settling import GRIDS, MAPS, PRODUCTS, SUMS, build, lively

from longhand import eval as evaluation
from longhand import train
from longhand.data import (
    Addition,
    AdditionScratchpad,
    Calculator,
    ColumnTask,
    Copy,
    Division,
    Minesweeper,
    MultiOperandAddition,
    Multiplication,
    MultiplicationScratchpad,
    Parity,
    Reverse,
    SignedSubtraction,
    Subtraction,
)
from longhand.data.certificates import Certificate, Check, certify, coverings, verify_certificate
from longhand.data.certificates.certificate import _conclude, longest_operands
from longhand.data.certificates.network_rounding import DecoderRounding, EncoderRounding
from longhand.data.certificates.verify_certificate import (
    RELATED,
    SINK,
    TOKENS,
    Network,
    Refused,
    bound_leads,
    check_arithmetic,
    find_task,
    list_neighbourhoods,
    read_checkpoint,
    rename,
    verify,
)
from longhand.data.tasks import column_task
from longhand.data.tasks.column_task import ColumnPass
from longhand.data.tasks.covering import CoveringCases
from longhand.data.tasks.registry import build_task
from longhand.hub_cards.checkpoints.checkpoint import VERIFIER, hash_files
from longhand.hub_cards.checkpoints.load import unpack
from longhand.modeling.transducer import table_of
from longhand.modeling.vocabulary import BOS, PAD

BLOCKED = ("torch", "transformers", "safetensors", "tokenizers", "longhand", "yaml")


class HexAddition(ColumnTask):
    """Sums in base 16."""

    name, operands, sign, alphabet, flush = "hex_sums", 2, "+", "0123456789abcdef", 1

    def step(self, state, symbols):
        total = sum(symbols) + state
        return total % 16, total // 16


class Difference(ColumnTask):
    """Differences of two numbers in base 3, as if a borrow out of the top were free, and then what is missing to 0."""

    name, operands, sign, alphabet = "differences", 2, "-", "012"
    passes = (
        ColumnPass(lambda borrow, pair: ((pair[0] - pair[1] - borrow) % 3, int(pair[0] < pair[1] + borrow))),
        ColumnPass(lambda borrow, row: (-(row[0] + borrow) % 3, int(row[0] + borrow > 0)), reads=(2,), flush=1),
    )


FORMATS = [
    *(
        Addition(),
        Addition(order="all_reversed", separate_eos=True),
        Addition(zero_padding=False),
        Addition(zero_padding=False, order="all_reversed", separate_eos=True),
        MultiOperandAddition(operands=2),
        Subtraction(),
        Copy(),
    ),
    *(Reverse(separate_eos=True), Parity(), Minesweeper(), AdditionScratchpad(), Multiplication(multiplier_length=1)),
    Division(),
    SignedSubtraction(),
    HexAddition(),
    Difference(),
    Differences(),
    Backwards(),
    pytest.param(MultiOperandAddition(), marks=pytest.mark.slow),
    pytest.param(MultiplicationScratchpad(), marks=pytest.mark.slow),
    pytest.param(Calculator(), marks=pytest.mark.slow),
]
SIZES = {
    (6217, "8c0a1b8d4c980e4c"): Addition(),
    (6217, "4286c56f432e4d78"): Addition(order="all_reversed", separate_eos=True),
    (7514, "5b251445a73d55ba"): Addition(zero_padding=False),
    (7514, "954cccc892db1a40"): Addition(zero_padding=False, order="all_reversed", separate_eos=True),
    (6107, "7e983f42bcfc0700"): MultiOperandAddition(operands=2),
    (145423, "cc51cedc65ce1f68"): MultiOperandAddition(),
    (20200, "1bf6651b149aabee"): Subtraction(),
    (20528, "02ef7e507aa828a1"): SignedSubtraction(),
    (120, "5f13025bffa8e2fd"): Copy(),
    (8, "572c74974f2e44a4"): Parity(),
    (2405, "92d1a822f76639e8"): Minesweeper(),
    (5625, "c84aa9439e36ea4e"): Division(),
    (6156, "0df5d812dff0eed2"): AdditionScratchpad(),
    (98487, "2222b49604d6af65"): MultiplicationScratchpad(),
    (125171, "d0560064697401e3"): Calculator(),
    (124740, "9aee4b0d0e620cf0"): Multiplication(multiplier_length=1),
    (1720300, "e96cbe5010ae2f00"): Multiplication(multiplier_length=2),
    (73108, "e17a749ca07af26b"): SUMS,
    (13620, "3d66aba86f604188"): PRODUCTS,
    (31976, "e8160c6930dcb7b3"): GRIDS,
}
"""Tasks by the sizes and the beginnings of the SHA-256 of their lists, as they were when people had worked them out."""

every_encoder = pytest.mark.parametrize("task", [SUMS, PRODUCTS, GRIDS], ids=["sums", "products", "grids"])
every_format = pytest.mark.parametrize("task", FORMATS, ids=lambda task: f"{task.name} {task.describe()}"[:60])


def model_of(task, **options):
    coupling = "multiplication_by_digits" if task.name == "multiplication" else task.couplings[0]
    return untrained(task, coupling=coupling, eos_token_id=task.end_token, **options)


def listed_by_package(task) -> set[bytes]:
    """The neighbourhoods of the package's covering, each with what is right next, in the form of `list_neighbourhoods`."""
    model, found = model_of(task), set()
    beginning = len(find_task(task.describe(), table_of(getattr(task, "transducer", None))).window)
    for covered in coverings(model, task):
        for batch in covered.batches:
            codes = np.where(batch.keys == PAD, 0, RELATED * (batch.relations + 1) + batch.keys)
            codes = np.column_stack([codes, np.full(len(codes), RELATED * (beginning + 1) + BOS)])
            found |= as_set(batch.tokens, batch.right, codes)
    return found


def as_set(own, right, codes) -> set[bytes]:
    """Neighbourhoods, with keys in any order, as values."""
    rows = np.column_stack([own, right, codes]).astype(np.int32)
    rows[:, :2] += 1
    rows[:, 2:].sort()
    return {row[row > 0].tobytes() for row in np.unique(rows, axis=0)}


def rows_of_cases(covered: CoveringCases) -> np.ndarray:
    """The cases of encoders in the form of `list_neighbourhoods`."""
    cases = covered.cases
    own = cases.tokens + len(TOKENS) * (cases.states + 1)
    codes = RELATED * (cases.relations + 1) + cases.keys + len(TOKENS) * (cases.key_states + 1)
    sink = torch.full((covered.count, 1), RELATED * (int(cases.relations.max()) + 2) + SINK)
    rows = [own.unsqueeze(1), covered.right.unsqueeze(1), codes.where(cases.relations >= 0, 0), sink]
    return torch.cat(rows, dim=1).numpy()


@lru_cache
def found_by_verifier(task) -> np.ndarray:
    return list_neighbourhoods(find_task(task.describe(), table_of(getattr(task, "transducer", None))))


@every_format
def test_both_list_the_same_neighbourhoods(task):
    rows = found_by_verifier(task)
    mine = as_set(rows[:, 0], rows[:, 1], rows[:, 2:])
    assert len(mine) == len(rows)
    assert mine == listed_by_package(task)


@pytest.mark.parametrize(("count", "digest"), SIZES, ids=lambda value: "")
def test_lists_have_the_size_and_the_hash_of_those_that_were_worked_out_by_hand(count, digest):
    task = SIZES[count, digest]
    rows = found_by_verifier(task)
    assert (len(rows), sha256(rows.astype("<u2").tobytes()).hexdigest()[:16]) == (count, digest)


@torch.inference_mode()
@every_encoder
def test_both_list_the_same_cases_of_encoders_that_settle_and_find_the_same_leads(task):
    covered = task.covering(MAPS[task][1], 1)
    rows, theirs = found_by_verifier(task), rows_of_cases(covered)
    mine = as_set(rows[:, 0], rows[:, 1], rows[:, 2:])
    assert len(mine) == len(rows) and mine == as_set(theirs[:, 0], theirs[:, 1], theirs[:, 2:])
    model, some = lively(task, torch.float32), np.random.default_rng(0).permutation(covered.count)[:200]
    expected, bound = EncoderRounding(model).lead_and_bound(covered.take(some))
    leads, bounds = network_of(model).leads_and_bounds(theirs[some], effort=2)
    same_leads(leads, bounds, expected, bound)


def same_leads(leads, bounds, expected, bound) -> None:
    """Both find the same leads; and the same bounds, where the package takes all its effort too, but for empty slots."""
    np.testing.assert_allclose(leads, expected.numpy(), rtol=1e-9, atol=1e-11)
    assert np.isfinite(bounds).mean() > 0.9 and bound.isfinite().double().mean() > 0.9
    hard = (expected < 10 * bound).numpy() & np.isfinite(leads)
    quotients = bounds[hard] / bound.numpy()[hard]
    assert hard.any() and quotients.min() > 0.7 and quotients.max() < 1 + 1e-6


LAYERS = {"one layer": {}, "two layers": {"num_hidden_layers": 2, "attention_scale": "zero", "norm_placement": "pre"}}


@torch.inference_mode()
@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_both_find_the_same_leads(options):
    task = Multiplication(multiplier_length=1)
    model = model_of(task, **options)
    listed = next(iter(task.covering(model.model.position_encoding.window, 1).batches))
    batch = listed.take(np.arange(0, len(listed.tokens), 100))
    sees = RELATED * (batch.relations + 1) + batch.keys
    sees = np.column_stack([np.where(batch.keys == PAD, 0, sees), np.full(len(sees), RELATED * (sees.shape[1] + 1) + BOS)])
    rows = np.column_stack([batch.tokens, batch.right, sees])
    leads, bounds = network_of(model).leads_and_bounds(rows, effort=2)
    same_leads(leads, bounds, *DecoderRounding(model).lead_and_bound(batch))


def network_of(model) -> Network:
    weights = {rename(name): weight.double().numpy() for name, weight in model.state_dict().items()}
    return Network(weights, model.config.to_dict())


def some_rows(task, count: int = 300) -> np.ndarray:
    rows = found_by_verifier(task)
    return rows[np.random.default_rng(0).permutation(len(rows))[:count]]


LONG = (
    *("calculator", "encoder-multiplication-1-settling", "encoder-multiplication-grid", "multiplication-1"),
    "three-summands",
)
"""Checkpoints of the zoo that take long to verify: some leads of each are found here. `.ci/run` verifies the whole zoo."""


@pytest.mark.parametrize("name", LONG)
def test_a_large_checkpoint_of_the_zoo_is_known_and_some_of_its_leads_are_clear(name, tmp_path):
    _, certificate, task, config, weights = read_checkpoint(unpack(name, tmp_path))
    assert certificate["limits"] == task.limits
    rows = list_neighbourhoods(task)
    assert len(rows) == certificate["neighbourhoods"]
    some = rows[np.random.default_rng(0).permutation(len(rows))[:200]]
    # The package's own bounds may be a little less.
    ratio, bound = 0.99 * certificate["ratio"], 1.01 * certificate["bound"]
    for leads, bounds in bound_leads(Network(weights, config), some, ratio, bound):
        assert (leads >= ratio * bounds).all() and (bounds <= bound).all()
    weights["0.up_proj"] = weights["0.up_proj"][::-1].copy()
    assert Network(weights, config).leads_and_bounds(some, effort=0)[0].min() < 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["addition-tiny", "division", "minesweeper"])
def test_a_checkpoint_of_the_zoo_is_verified_with_numpy_alone(name, tmp_path):
    verified_alone(unpack(name, tmp_path))


@pytest.fixture(scope="module")
def copier(tmp_path_factory) -> Path:
    """A certified model that is checked in a moment."""
    folder = tmp_path_factory.mktemp("runs") / "copy"
    train.main(["copy", "--test_lengths", "10", "--test_samples", "5", "--output_dir", str(folder)])
    return folder


@pytest.fixture
def copy(copier, tmp_path) -> Path:
    """A copy of the folder, without results, which are of these weights alone."""
    folder = Path(shutil.copytree(copier, tmp_path / "copy", ignore=shutil.ignore_patterns("best", "results.jsonl")))
    read_checkpoint(folder)
    return folder


def run_alone(folder) -> subprocess.CompletedProcess:
    """Run the copy beside a checkpoint where numpy is all that is installed."""
    script = f"import runpy, sys; sys.modules |= dict.fromkeys({BLOCKED}); sys.argv = ['verify', '.']; "
    script += "runpy.run_path('verify_certificate.py', run_name='__main__')"
    return subprocess.run([sys.executable, "-I", "-c", script], cwd=folder, capture_output=True, text=True, timeout=300)


def verified_alone(folder: Path) -> None:
    """Run the command on the card, and compare what it prints with the certificate."""
    assert f"`python {VERIFIER.name} .`" in model_card(folder)
    assert (folder / VERIFIER.name).read_bytes() == VERIFIER.read_bytes()
    done, certificate = run_alone(folder), json.loads((folder / "certificate.json").read_text())
    assert done.returncode == 0 and done.stderr == ""
    assert f"VERIFIED. {certificate['statement']}" in done.stdout
    assert f"neighbourhoods  {certificate['neighbourhoods']:,}" in done.stdout
    for name, digest in certificate["files"].items():
        assert f"{digest}  {name}" in done.stdout
    assert VERIFIER.name not in certificate["files"]


@pytest.mark.slow
def test_a_certified_run_is_verified_by_the_file_beside_it_with_numpy_alone(copier):
    verified_alone(copier)


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


def in_tensor(folder: Path, seed: int) -> None:
    """Add noise, three times as large as the weights are, to one tensor; or put one nan in it."""
    weights = load_file(folder / "model.safetensors")
    names = [name for name, weight in sorted(weights.items()) if weight.ndim > 1]
    name, generator = names[seed % len(names)], torch.Generator().manual_seed(seed)
    noise = 3 * weights[name].std() * torch.randn(weights[name].shape, generator=generator)
    if seed >= len(names):
        noise.view(-1)[int(torch.randint(noise.numel(), (1,), generator=generator))] = math.nan
    weights[name] += noise
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def drop_tensor(folder: Path, seed: int) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights[sorted(weights)[seed % len(weights)]]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


CONFIGS = [
    {"num_attention_heads": 1, "head_dim": 32}, {"norm_placement": "post"}, {"eos_token_id": 18}, {"windowed": False},
    {"coupling": "reverse"}, {"norm_eps": 1e3}, {"vocab_size": 22},
]  # fmt: skip
GENERATIONS = [{"suppress_tokens": [7]}, {"repetition_penalty": 5.0}, {"max_new_tokens": 3}, {"num_beams": 2}]


def in_file(name: str, **changes):
    return lambda folder: change_json(folder / name, **changes)


DAMAGES = [
    *((lambda folder, seed=seed: in_tensor(folder, seed)) for seed in (0, 3, 11)),
    lambda folder: drop_tensor(folder, 3),
    *(in_file("config.json", **changes) for changes in CONFIGS),
    *(in_file("generation_config.json", **changes) for changes in GENERATIONS),
    swap_digits,
    in_file("tokenizer.json", normalizer={"type": "Replace", "pattern": {"String": "65"}, "content": "11"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(DAMAGES)))
def test_a_damaged_checkpoint_is_refused_by_both_even_if_its_certificate_names_the_damaged_files(place, copy):
    DAMAGES[place](copy)
    forge(copy)
    refused_by_both(copy)


CONFIGS_OF_GRIDS = [
    *({"num_attention_heads": 3}, {"layer_norm_eps": 1e3}, {"pair_maps": ["coupled"]}, {"sink": False}),
    {"id2label": dict(enumerate("0123456798_?"))},
    {"prompt_format": asdict(SUMS.prompt_format)},
]
DAMAGES_OF_GRIDS = [
    *((lambda folder, seed=seed: in_tensor(folder, seed)) for seed in (0, 9)),
    *(in_file("config.json", **changes) for changes in CONFIGS_OF_GRIDS),
]


@pytest.fixture(scope="module")
def grids(tmp_path_factory) -> Path:
    return unpack("encoder-multiplication-grid", tmp_path_factory.mktemp("zoo"))


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(DAMAGES_OF_GRIDS)))
def test_damaged_products_in_a_grid_are_refused_by_both(place, grids, tmp_path):
    folder = Path(shutil.copytree(grids, tmp_path / "grids"))
    DAMAGES_OF_GRIDS[place](folder)
    forge(folder)
    refused_by_both(folder)


REFUSALS = {
    "certificate of others": (
        lambda folder: change_json(folder / "config.json", use_cache=True),
        "config.json has not the SHA",
    ),
    "extra field": (in_file("certificate.json", remark="exact"), "certificate.json: remark"),
    "type": (in_file("certificate.json", wrong="0"), "certificate.json: wrong"),
    "missing file": (lambda folder: (folder / "generation_config.json").unlink(), "generation_config.json is missing"),
    "statement": (in_file("certificate.json", statement="All."), "statement 'All.' is none for which"),
    "margin": (in_file("certificate.json", margin=99.0), "margin 99 says more than is found here, "),
    "ratio": (in_file("certificate.json", ratio=1e5), "ratio 100000 says more than is found here, "),
    "bound": (in_file("certificate.json", bound=1e-6), "bound 1e-06 says more than is found here, "),
    "no bound": (in_file("certificate.json", bound=None), "certificate.json: bound None is none for which"),
    "nan": (in_file("certificate.json", ratio=math.nan), "certificate.json: ratio nan is none for which"),
    "limits": (in_file("certificate.json", limits={}), "certificate.json: limits: position_ids is missing"),
    "not certified": (in_file("certificate.json", certified=False), "certificate.json: certified False is none for which"),
    "another task": (
        in_file("certificate.json", task={"task": "sort", "separate_eos": False}),
        "the task 'sort' is not known",
    ),
    "files": (
        in_file("certificate.json", files=["config.json"]),
        "certificate.json: files",
    ),
    "key twice": (lambda folder: double_key(folder / "config.json"), "config.json: a key stands twice"),
}
FORGED = {
    **{
        f"new {name}": (lambda folder, name=name: write(folder / name), name)
        for name in ("added_tokens.json", "pytorch_model.bin", "model.fp16.safetensors", "model.safetensors.index.json")
    },
    "generation code": (lambda folder: write(folder / "custom_generate/generate.py"), "custom_generate/generate.py"),
    "Hub's code": (in_file("config.json", auto_map={"AutoModelForCausalLM": "evil/repo--modeling.Model"}), "auto_map"),
    "tokenizer's code": (in_file("tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling.A", None]}), "auto_map"),
    "tied": (in_file("config.json", tie_word_embeddings=True), "tie_word_embeddings"),
    "truncation": (in_file("tokenizer.json", truncation={"max_length": 9}), "tokenizer.json: truncation"),
    "right padding": (in_file("tokenizer_config.json", padding_side="right"), "padding_side"),
    "short": (in_file("tokenizer_config.json", model_max_length=512), "model_max_length"),
    "unknown key": (in_file("config.json", sparse=True), "config.json: sparse True is not known here"),
    "unknown setting": (in_file("generation_config.json", top_k=1), "generation_config.json: top_k 1 is not known here"),
    "unknown value": (in_file("config.json", hidden_act="gelu"), "config.json: hidden_act 'gelu' is none for which"),
    "two layers": (in_file("config.json", num_hidden_layers=2), "config.json: num_hidden_layers 2 is none for which"),
    "true for one": (in_file("config.json", num_hidden_layers=True), "num_hidden_layers True"),
    "prompts": (in_file("config.json", prompt_format={}), "prompt_format: pattern is missing"),
    "classes": (in_file("config.json", auto_map={"AutoModel": "other.Model"}), "auto_map"),
    "cut off": (lambda folder: cut(folder / "model.safetensors"), "model.safetensors"),
}


def write(file: Path, text: str = "{}") -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


def double_key(file: Path) -> None:
    file.write_text(file.read_text().replace("{", '{"use_cache": false,', 1))
    forge(file.parent)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


@pytest.mark.parametrize(("change", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_what_a_certificate_does_not_say_is_refused_by_name(change, expected, copy):
    change(copy)
    with pytest.raises(Refused, match=expected):
        verify(copy)


@pytest.mark.parametrize(("change", "expected"), FORGED.values(), ids=FORGED)
def test_what_the_verifier_does_not_know_is_refused_by_name(change, expected, copy):
    change(copy)
    forge(copy)
    with pytest.raises(Refused, match=expected):
        read_checkpoint(copy)


def save(model, task, folder: Path) -> None:
    """Write an untrained model, and a certificate that claims it."""
    model.config.task, model.config.prompt_format = task.describe(), asdict(task.prompt_format)
    for part in (model, task.family.tokenizer(task)):
        part.save_pretrained(folder)
    claim = {
        "certified": True,
        "task": task.describe(),
        "margin": 1.0,
        "bound": 0.1,
        "ratio": 10.0,
        "files": {},
        "limits": {},
    }
    claim |= {
        "statement": "",
        "proof": [],
        "failures": [],
        "problems": None,
        "neighbourhoods": 1,
        "predictions": 1,
        "wrong": 0,
    }
    (folder / "certificate.json").write_text(json.dumps(claim | {"weights": ""}))
    forge(folder)


@every_encoder
def test_an_untrained_encoder_is_known_and_refused(task, tmp_path, monkeypatch):
    save(build(task), task, tmp_path)
    some = list_neighbourhoods(find_task(task.describe()))[:100]
    monkeypatch.setattr(verify_certificate, "list_neighbourhoods", lambda task: some)
    with pytest.raises(Refused, match="another token leads"):
        verify(tmp_path)


def test_a_checkpoint_that_the_verifier_does_not_know_has_no_copy_of_it(copy, capsys):
    """Another activation is certified by the package, and not known to the verifier."""
    task, model = Copy(), load(copy)
    model.config.hidden_act = "gelu"
    certificate = certify(model, task)
    assert certificate.certified
    model.save_pretrained(copy)
    evaluation.main([str(copy), "--certify", "--output_dir", str(copy.parent / "out")])
    assert "verify_certificate.py does not know it: config.json: hidden_act 'gelu'" in capsys.readouterr().out
    assert not (copy / VERIFIER.name).exists()
    assert VERIFIER.name not in model_card(copy)
    with suppress(KeyError):
        del model_files(copy, "user/copier")[VERIFIER.name]
        raise AssertionError("the verifier was published")


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("missing", "there is no folder missing"), (".", "the folder . holds no certificate.json"), ("broken", "is no JSON: ")],
)
def test_a_folder_without_a_certificate_is_refused_in_one_line(folder, expected, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "certificate.json").write_text("{")
    done = subprocess.run([sys.executable, "-I", VERIFIER, folder], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("REFUSED: ") and done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_the_verifier_knows_the_code_that_is_written_beside_checkpoints(copy):
    """If this fails, a file in modeling/ has changed: run .ci/code."""
    assert {"coupled_gpt", "pairwise_bert"} == {*verify_certificate.CODE}
    read_checkpoint(copy)
    (copy / "relations.py").write_text((copy / "relations.py").read_text() + "# changed")
    forge(copy)
    with pytest.raises(Refused, match="Python files"):
        read_checkpoint(copy)
    for file in copy.glob("*.py"):
        file.unlink()
    change_json(copy / "config.json", auto_map=None)
    forge(copy)
    read_checkpoint(copy)


def test_a_configuration_without_the_table_that_the_certificate_states_is_refused(tmp_path):
    copy = unpack("gray-code", tmp_path)
    read_checkpoint(copy)
    change_json(copy / "config.json", transducer=None)
    forge(copy)
    with pytest.raises(Refused, match="transducer"):
        read_checkpoint(copy)


def test_the_verifier_knows_every_field_of_a_certificate():
    assert {*verify_certificate.FIELDS} == {field.name for field in fields(Certificate)}


def test_limits_are_those_of_the_package():
    """All that the code accepts, and of problems of one size the longest."""
    compared = set()
    for task, rule in certifiable():
        mine = find_task(task.describe(), table_of(task.transducer))
        if mine.coupling == rule:
            assert _conclude(Check(wrong=1), untrained(task, coupling=rule), task).limits == mine.limits
            compared.add(task.name)
    for task in (SUMS, PRODUCTS, GRIDS, build_task("settling_base_addition", radix=3), build_task("settling_comparison")):
        mine = find_task(task.describe(), table_of(task.transducer), encoder=True)
        assert mine.limits.get("length") == longest_operands(task, {"tokens": mine.limits["tokens"]})
        compared.add(task.name)
    assert {*verify_certificate.TASKS} - {"calculator"} <= compared
    assert find_task(Addition().describe()).limits["length"] == 1_012_333_498


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("base_addition", {"radix": 3}),
        ("plus_one", {}),
        ("constant_multiplication", {}),
        ("remainder", {"modulus": 5}),
        ("digit_sum", {}),
    ],
)
def test_a_table_that_is_not_the_arithmetic_of_its_name_is_refused_by_both(name, options, monkeypatch):
    task = build_task(name, **options)
    table = json.loads(json.dumps(table_of(task.transducer)))
    mine = find_task(task.describe(), table)
    assert check_arithmetic(mine, task.describe())
    (own,) = table["passes"]
    for row in (own["write"][-1], own["next"][0]):
        row[-1], row[2] = row[2], row[-1]
        with pytest.raises(Refused):
            check_arithmetic(mine, task.describe())
        row[-1], row[2] = row[2], row[-1]
    right = type(task).step
    monkeypatch.setattr(type(task), "step", lambda self, state, symbols: (0, right(self, state, symbols)[1]))
    column_task._transducer.cache_clear()
    with pytest.raises(ValueError):
        task.transducer  # noqa: B018
    column_task._transducer.cache_clear()
