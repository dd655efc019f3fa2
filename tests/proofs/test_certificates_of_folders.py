"""The certificate in a checkpoint's folder: it is of these files, this task and this format, or is refused."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from cases import all_but, drawn
from certificate_subjects import change_json, damaged, load, slightly_wrong, swap_digits
from made_once import make_once
from publishing_subjects import model_card, model_files

from longhand import eval as evaluation
from longhand.data import Addition
from longhand.data.proofs import Certificate, LengthProver, certify, hash_weights, verify_certificate
from longhand.data.proofs import certificate as certificate_module
from longhand.data.tasks.registry import build_tokenizer
from longhand.hub_cards.checkpoints import length_certificate
from longhand.hub_cards.checkpoints.certificate_file import certify_checkpoint, with_check
from longhand.hub_cards.checkpoints.certificate_kinds import BOUNDS, read_stated
from longhand.hub_cards.checkpoints.checkpoint import hash_files
from longhand.hub_cards.checkpoints.length_certificate import conclude, read_verdicts
from longhand.hub_cards.checkpoints.load import complete_checkpoint, load_checkpoint, read_checkpoint
from longhand.hub_cards.publishing.publications import model_publication
from longhand.hub_cards.research.theories.constructions import construct_addition
from longhand.hub_cards.result_rows import read_results

assert damaged


@pytest.fixture
def adder(main_job, tmp_path) -> Path:
    """A copy of the certified folder."""
    return Path(shutil.copytree(main_job, tmp_path / "addition"))


@pytest.fixture(autouse=True)
def briefly_asked(monkeypatch):
    """Lengths that are called proved are searched for a wrong problem for a moment."""
    monkeypatch.setattr(length_certificate, "ASKED_SECONDS", 0.2)


def misread_two_digits(folder) -> None:
    change_json(folder / "tokenizer.json", normalizer={"type": "Replace", "pattern": {"String": "65"}, "content": "11"})


CHANGES = {
    **{("generation_config.json", name): value for name, value in {"suppress_tokens": [7], "max_time": 0.001}.items()},
    **{("config.json", name): value for name, value in {"max_new_tokens": 3, "repetition_penalty": 5.0}.items()},
    ("tokenizer_config.json", "add_prefix_space"): True,
}


def refuses_certificate(folder, expected) -> None:
    """The folder is refused with this reason where cards and pushes begin."""
    with pytest.raises(ValueError, match=expected):
        read_checkpoint(folder)


def test_what_is_refused_is_neither_shown_nor_pushed(adder):
    change_json(adder / "certificate.json", certified=False)
    refuses_certificate(adder, "field certified")
    for function in (model_card, lambda place: model_files(place, "user/adder")):
        with pytest.raises(ValueError, match="field certified"):
            function(adder)


@pytest.mark.parametrize(("name", "setting"), CHANGES)
def test_a_certificate_is_stale_when_a_file_that_decides_an_answer_has_other_settings(name, setting, adder, capsys):
    change_json(adder / name, **{setting: CHANGES[name, setting]})
    with suppress(SystemExit):
        evaluation.main([str(adder), "--ask", "653+49"])
    assert f"warning: {adder}/certificate.json is not of these files ({name} differs)" in capsys.readouterr().err
    refuses_certificate(adder, f"certificate.json is not of these files .{name} differs.")


@pytest.mark.parametrize(("change", "expected"), [
    (lambda folder: (folder / "more.py").write_text("print()"), "more.py is new"),
    (lambda folder: (folder / "coupling.py").write_text("print()"), "coupling.py differs"),
    (lambda folder: (folder / "generation_config.json").unlink(), "generation_config.json is missing"),
    (lambda folder: shutil.copy(folder / "model.safetensors", folder / "other.safetensors"), "other.safetensors is new"),
])  # fmt: skip
def test_a_certificate_is_stale_when_files_come_or_go(change, expected, adder, capsys):
    change(adder)
    evaluation.main([str(adder), "--ask", "653+49"])
    assert f"certificate.json is not of these files ({expected})" in capsys.readouterr().err
    refuses_certificate(adder, f"certificate.json is not of these files .{expected}.")


@pytest.mark.parametrize("change", [swap_digits, misread_two_digits])
def test_a_tokenizer_that_reads_other_digits_is_neither_asked_nor_certified_nor_shown(change, adder, capsys):
    change(adder)
    change_json(adder / "certificate.json", files=hash_files(adder))
    for options in (["--ask", "3+4"], ["--certify"]):
        with pytest.raises(SystemExit):
            evaluation.main([str(adder), *options])
        assert "tokenizer.json" in capsys.readouterr().err
    refuses_certificate(adder, "tokenizer.json")


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("settings", [{"sliding_window": 2}, {"quantization_config": {"quant_method": "fp8"}}], ids=str)
def test_a_setting_that_is_not_checked_is_not_certified(file, settings, adder, capsys):
    """Libraries read them: one makes a cache forget, another rounds weights where there is an accelerator."""
    change_json(adder / file, **settings)
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--certify"])
    error = capsys.readouterr().err
    assert file in error and f"may act on them: remove {next(iter(settings))}" in error


def test_a_checkpoint_is_read_whatever_it_returns_besides(adder, capsys, tmp_path):
    change_json(adder / "generation_config.json", return_dict_in_generate=True)
    change_json(adder / "config.json", return_dict=False, output_attentions=True, output_hidden_states=True)
    evaluation.main([str(adder), "--ask", "653+49"])
    assert "702" in capsys.readouterr().out
    for decode in ("teacher_forced", "generate", "parallel"):
        words = ["--lengths", "3", "--num_samples", "4", "--decode", decode, "--output_dir", str(tmp_path / decode)]
        evaluation.main([str(adder), *words])
        assert " 1.0000 " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--certify"])
    assert "generate() may stop with an error: remove return_dict False" in capsys.readouterr().err


def prepend(name: str, text: bytes):
    """A change that puts a text before the content of a file."""
    return lambda folder: (folder / name).write_bytes(text + (folder / name).read_bytes())


def negate_the_logits(folder):
    code = folder / "modeling_coupled_gpt.py"
    code.write_text(code.read_text().replace("self.lm_head(", "-self.lm_head("))


def write_a_key_twice(folder):
    file = folder / "generation_config.json"
    file.write_text(file.read_text().replace("{", '{"do_sample": true, "do_sample": false,', 1))


def generate_otherwise(folder):
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("def generate(model, **options): ...\n")


UNCOVERED = {
    "pickles": lambda folder: (folder / "pytorch_model.bin").write_bytes(b""),
    "other weights": lambda folder: shutil.copy(folder / "model.safetensors", folder / "model.fp16.safetensors"),
    "an index": lambda folder: (folder / "model.safetensors.index.json").write_text('{"metadata": {}, "weight_map": {}}'),
    "cut prompts": lambda folder: change_json(folder / "tokenizer_config.json", model_max_length=100),
    "padding": lambda folder: change_json(folder / "tokenizer_config.json", padding_side="right"),
    "code in a list": lambda folder: change_json(folder / "config.json", auto_map=["AutoModelForCausalLM"]),
    "code from elsewhere": lambda folder: change_json(folder / "config.json", auto_map={"AutoModelForCausalLM": "a/b--c.D"}),
    "changed code": negate_the_logits,
    "another generate": generate_otherwise,
    "code that is not there": lambda folder: (folder / "registry.py").unlink(),
    "quantized weights": lambda folder: change_json(folder / "config.json", quantization_config={"quant_method": "fp8"}),
    "tuples": lambda folder: change_json(folder / "config.json", return_dict=False),
    "settings that end early": lambda folder: (folder / "generation_config.json").write_text('{"eos'),
    "a key that stands twice": write_a_key_twice,
    "a byte order mark": prepend("generation_config.json", b"\xef\xbb\xbf"),
}


@pytest.mark.parametrize("change", drawn(UNCOVERED.values(), 5), ids=UNCOVERED)
def test_what_certifying_refuses_is_neither_shown_nor_pushed_though_the_hashes_fit(change, adder, tmp_path, capsys):
    change(adder)
    change_json(adder / "certificate.json", files=hash_files(adder))
    with pytest.raises(SystemExit) as stop:
        evaluation.main([str(adder), "--certify", "--output_dir", str(tmp_path / "out")])
    assert stop.value.code == 2 and "Traceback" not in capsys.readouterr().err
    refuses_certificate(
        adder, "no certificate covers|holds pickles|is incomplete|cannot be loaded|config.json of|Python files"
    )
    with pytest.raises(ValueError):
        model_publication(read_checkpoint(adder), "user/adder", with_code=True)


def test_code_that_is_not_checked_is_not_certified_until_the_model_is_saved_again(adder, capsys):
    before = (adder / "certificate.json").read_bytes()
    code = adder / "modeling_coupled_gpt.py"
    code.write_text(code.read_text().replace("self.lm_head(", "-self.lm_head("))
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--certify"])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "did not write for this model" in line and ": modeling_coupled_gpt.py;" in line
    assert (adder / "certificate.json").read_bytes() == before
    load(adder).save_pretrained(adder)
    evaluation.main([str(adder), "--certify", "--output_dir", str(adder.parent / "out")])
    assert "Certified" in model_card(adder)


def test_a_card_that_still_says_certified_is_named_when_the_model_is_not(adder, damaged, tmp_path, capsys):
    slightly_wrong(damaged).save_pretrained(adder)
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--certify", "--output_dir", str(tmp_path / "out")])
    assert f"{adder / 'README.md'} still says Certified" in capsys.readouterr().err
    change_json(adder / "generation_config.json", max_new_tokens=3)
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--certify"])
    assert f"{adder / 'README.md'} still says Certified" in capsys.readouterr().err


def test_a_certificate_is_of_the_format_that_the_recipe_names(adder, capsys):
    """A word of each file: the recipe's format, and a certificate that names another one."""
    task = Addition(zero_padding=False).describe()
    change_json(adder / "certificate.json", task=task)
    evaluation.main([str(adder), "--ask", "653+49"])
    assert "certificate.json is of another task or format (zero_padding was False, is True)" in capsys.readouterr().err
    refuses_certificate(adder, "another task or format")
    for folder in (adder, adder / "best"):
        recipe = (folder / "recipe.yaml").read_text()
        (folder / "recipe.yaml").write_text(recipe.replace("zero_padding: true", "zero_padding: false"))
    refuses_certificate(adder, "certificate|zero_padding")


def test_a_true_written_by_hand_is_not_believed(adder, damaged):
    """The files and the hash of the weights are right, only the check is not what was found."""
    model = slightly_wrong(damaged)
    model.save_pretrained(adder)
    (adder / "results.jsonl").unlink()
    change_json(adder / "certificate.json", weights=hash_weights(model), files=hash_files(adder))
    refuses_certificate(adder, "certificate.json, field certified: it is True, but a new check finds False")


OF_ANOTHER_KIND = [
    ("kind", "other"), ("certified", "yes"), ("certified", False), ("weights", 3), ("task", []),
    ("files", None), ("statement", [1]), ("statement", "All sums are right."), ("proof", 7), ("predictions", -1),
    ("predictions", True), ("neighbourhoods", 6217.5), ("wrong", "none"), ("wrong", 1), ("margin", None),
    ("margin", float("nan")), ("margin", 999.0), ("margin", [[2.0]]), ("margin", 10**400), ("bound", 1e-9),
    ("ratio", 1e9), ("ratio", 0), ("ratio", "high"), ("failures", {}), ("limits", {}),
]  # fmt: skip


@pytest.mark.parametrize("place", drawn(range(len(OF_ANOTHER_KIND)), 5))
def test_a_field_of_another_value_or_type_is_refused_by_its_name(place, adder):
    field, value = OF_ANOTHER_KIND[place]
    change_json(adder / "certificate.json", **{field: value})
    refuses_certificate(adder, rf"certificate.json.*\b{field}\b.*--certify again$")


OPTIONAL = ("transducer", "learned")
"""Fields that certificates of most models do not have."""


@pytest.mark.parametrize("field", drawn((item.name for item in fields(Certificate) if item.name not in OPTIONAL), 5))
def test_a_missing_field_is_refused_by_its_name_and_a_question_is_answered(field, adder, capsys):
    certificate = json.loads((adder / "certificate.json").read_text())
    del certificate[field]
    (adder / "certificate.json").write_text(json.dumps(certificate))
    refuses_certificate(adder, rf"certificate.json.*\b{field}\b.*--certify again$")
    evaluation.main([str(adder), "--ask", "653+49"])
    out, err = capsys.readouterr()
    assert out.strip() == "702" and err.count("\n") == 1


@pytest.mark.parametrize("content", ["null", "[]", "{", "[" * 100_000, "{}", '{"wrong": ' + "9" * 5000 + "}"])
def test_a_broken_certificate_is_refused_by_its_name(content, adder):
    (adder / "certificate.json").write_text(content)
    refuses_certificate(adder, f"^{adder}/certificate.json[^\n]*$")


def test_numbers_of_another_processor_agree(adder):
    certificate = json.loads((adder / "certificate.json").read_text())
    names = {"margin": ".4g", "bound": ".2g", "ratio": ",.0f"}
    other = {name: certificate[name] * 1.005 for name in names}
    proof = certificate["proof"]
    for name, form in names.items():
        proof = [step.replace(f" {certificate[name]:{form}}", f" {other[name]:{form}}") for step in proof]
    change_json(adder / "certificate.json", **other, proof=proof)
    assert "**Certified.**" in model_card(adder, "user/adder")
    change_json(adder / "certificate.json", proof=certificate["proof"])
    refuses_certificate(adder, "field proof")


def test_a_check_is_made_once_and_is_of_its_own_weights(adder, damaged, tmp_path, monkeypatch):
    checked = with_check(load_checkpoint(str(adder)), None)
    model = slightly_wrong(damaged)
    other = replace(checked, model=model, weights=hash_weights(model))
    with pytest.raises(ValueError, match="of these weights"):
        certify(model, checked.task, checked.check)
    assert with_check(other, checked.check).check.wrong
    monkeypatch.setattr(certificate_module, "check_neighbourhoods", None)
    certify_checkpoint(checked, tmp_path / "certificate.json", None)
    assert json.loads((tmp_path / "certificate.json").read_text())["certified"]
    assert complete_checkpoint(checked, None).certificate["certified"]


def test_where_no_certificate_is_possible_none_is_left(adder, capsys):
    change_json(adder / "generation_config.json", repetition_penalty=5.0)
    with pytest.raises(SystemExit) as stop:
        evaluation.main([str(adder), "--certify"])
    assert stop.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "repetition_penalty=5.0" in error and f"{adder}/certificate.json no longer applies and was deleted" in error
    assert not (adder / "certificate.json").exists()


def test_only_the_checkpoints_own_question_writes_into_its_folder(adder, tmp_path):
    """Without a recipe the task is the user's word, so the certificate does not go beside the weights, nor is one lost."""
    before = (adder / "certificate.json").read_bytes()
    (adder / "recipe.yaml").unlink()
    change_json(adder / "config.json", task=None)
    evaluation.main([str(adder), "--certify", "--task", "addition", "--output_dir", str(tmp_path / "out")])
    outside = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert outside["certified"] and outside["files"] is None
    with pytest.raises(SystemExit):
        evaluation.main([str(adder), "--certify", "--task", "copy", "--output_dir", str(tmp_path / "out")])
    assert (adder / "certificate.json").read_bytes() == before


def constructed(folder: Path, bits: int = 2) -> Path:
    """A model with full attention that adds numbers of up to 2 digits (6 with 3 bits), in a folder without a recipe."""
    construct_addition(bits).save_pretrained(folder / "constructed")
    build_tokenizer().save_pretrained(folder / "constructed")
    return folder / "constructed"


def test_lengths_that_are_settled_are_not_tried_again(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    folder = constructed(tmp_path, bits=3)
    tried, prove = [], LengthProver.verdict
    answers = {1: "proved", 2: "open", 3: "open"}

    def verdict(self, length, budget=None):
        tried.append(length)
        if length == 3 and budget == 4.0:
            raise KeyboardInterrupt
        return replace(prove(self, 1), length=length, verdict=answers[length], budget=budget)

    monkeypatch.setattr(LengthProver, "verdict", verdict)

    def certify(*options):
        tried.clear()
        with suppress(SystemExit):
            words = ["--task", "addition", "--certify", "--trust", "--lengths", "1:3", "--output_dir", str(out)]
            evaluation.main([str(folder), *words, *options])
        return list(tried)

    # The first run is killed at the third length, and has written the first two.
    assert certify("--budget", "4") == [1, 2, 3] and not (out / "certificates.jsonl").exists()
    assert [one["verdict"] for one in json.loads((out / "certificate.json").read_text())["lengths"]] == ["proved", "open"]
    assert certify("--budget", "3") == [3], "2 stayed open in more seconds"
    assert certify("--budget", "3") == []
    (row,) = read_results(out / "certificates.jsonl")
    assert [(one["length"], one["budget"]) for one in row["lengths"]] == [(1, 4.0), (2, 4.0), (3, 3.0)]
    assert certify("--budget", "5") == [2, 3]
    assert certify() == [2, 3], "no limit"
    assert "proved: " in capsys.readouterr().out


def test_the_command_proves_lengths_and_its_status_says_whether_all_are(tmp_path, capsys):
    folder = constructed(tmp_path)
    words = [str(folder), "--task", "addition", "--certify", "--lengths"]
    evaluation.main([*words, "1:2", "--output_dir", str(tmp_path / "right")])
    assert capsys.readouterr().out.count("  proved: ") == 2
    model = construct_addition(bits=2)
    with torch.no_grad():
        model.lm_head.weight[1] = model.lm_head.weight[2]
    model.save_pretrained(folder)
    with pytest.raises(SystemExit) as stop:
        evaluation.main([*words, "1", "--output_dir", str(tmp_path / "wrong")])
    assert stop.value.code == 1
    (row,) = read_results(tmp_path / "wrong" / "certificates.jsonl")
    assert [one["verdict"] for one in row["lengths"]] != ["proved"]


@pytest.fixture(scope="session")
def proved(tmp_path_factory) -> Callable[[str, int], Path]:
    """The folder of a model, with the certificate that the command writes of lengths, made once for all test processes."""

    def made(lengths: str, bits: int) -> Path:
        def make(place: Path) -> None:
            folder = constructed(place, bits)
            (folder / "recipe.yaml").write_text("task: addition\n")
            evaluation.main([str(folder), "--certify", "--lengths", lengths, "--output_dir", str(place / "out")])

        name = f"proved_{lengths.replace(':', '_')}_{bits}"
        return make_once(tmp_path_factory, name, make) / "constructed"

    return made


@pytest.fixture
def with_one_length(proved, tmp_path) -> Path:
    """A copy of the folder of a model of which length 1 is proved."""
    return Path(shutil.copytree(proved("1", 2), tmp_path / "constructed"))


@pytest.fixture
def with_two_lengths(proved, tmp_path) -> Path:
    """A copy of the folder of a model of which the lengths 1 and 2 are proved."""
    return Path(shutil.copytree(proved("1:2", 2), tmp_path / "constructed"))


def test_a_certificate_of_lengths_says_no_more_than_its_verdicts(with_one_length):
    folder = with_one_length
    stated = json.loads((folder / "certificate.json").read_text())
    assert stated["statement"] in model_card(folder)
    others = {"statement": stated["statement"].replace("1 digits", "1 to 9 digits"), "cases": 1, "proof": []}
    for name, other in others.items():
        assert other != stated[name]
        change_json(folder / "certificate.json", **{name: other})
        refuses_certificate(folder, f"field {name}")
        change_json(folder / "certificate.json", **{name: stated[name]})


def test_what_other_code_proved_is_proved_again(tmp_path):
    folder, out = constructed(tmp_path), tmp_path / "out"
    words = [str(folder), "--task", "addition", "--certify", "--trust", "--lengths", "1", "--output_dir", str(out)]
    evaluation.main(words)
    (one,) = json.loads((out / "certificate.json").read_text())["lengths"]
    change_json(out / "certificate.json", lengths=[{**one, "cases": 7}])
    evaluation.main(words)
    assert json.loads((out / "certificate.json").read_text())["lengths"][0]["cases"] == 7, "the same code found it"
    change_json(out / "certificate.json", lengths=[{**one, "cases": 7, "bound": 0}])
    evaluation.main(words)
    assert json.loads((out / "certificate.json").read_text())["lengths"][0]["cases"] == one["cases"]


def as_before_kinds(stated: dict) -> dict:
    """A certificate of single lengths as it was written when there was one kind, whose other fields said nothing."""
    (code,) = BOUNDS
    kept = {name: value for name, value in stated.items() if name not in ("kind", "cases", "lengths")}
    said = {"certified": False, "predictions": stated["cases"], "wrong": len(stated["failures"]), "limits": {}}
    nothing = dict.fromkeys(("neighbourhoods", "margin", "bound", "ratio", "transducer", "learned"))
    verdicts = [
        {name: verdict[name] for name in verdict if name != "bound"} | {"code": code} for verdict in stated["lengths"]
    ]
    return kept | said | nothing | {"lengths": verdicts}


def test_a_certificate_of_lengths_from_before_there_were_kinds_says_what_it_said(with_two_lengths, tmp_path, capsys):
    file = with_two_lengths / "certificate.json"
    stated = json.loads(file.read_text())
    card = model_card(with_two_lengths)
    file.write_text(json.dumps(as_before_kinds(stated)))
    assert read_stated(file) == stated and model_card(with_two_lengths) == card
    words = ["--certify", "--trust", "--lengths", "1:2", "--output_dir", str(tmp_path / "out")]
    evaluation.main([str(with_two_lengths), *words])
    assert capsys.readouterr().out.count("says so)") == 2 and json.loads(file.read_text()) == stated
    for name, value in {"certified": True, "wrong": 1, "margin": 1.0, "limits": {"tokens": 9}}.items():
        file.write_text(json.dumps(as_before_kinds(stated) | {name: value}))
        refuses_certificate(with_two_lengths, f"field {name}")
    unknown = [verdict | {"code": "of other code"} for verdict in as_before_kinds(stated)["lengths"]]
    file.write_text(json.dumps(as_before_kinds(stated) | {"lengths": unknown}))
    refuses_certificate(with_two_lengths, "field lengths: another version")


@pytest.mark.parametrize("is_old", [False, True])
def test_the_verifier_refuses_a_certificate_of_lengths_by_its_kind(is_old, with_one_length):
    file = with_one_length / "certificate.json"
    stated = json.loads(file.read_text())
    for forged in ({}, {"certified": True}):
        file.write_text(json.dumps((as_before_kinds(stated) if is_old else stated) | forged))
        with pytest.raises(verify_certificate.Refused, match="single lengths"):
            verify_certificate.read_checkpoint(with_one_length)


DAMAGED_VERDICTS = {
    "length": ["7", 0, True, [1]],
    "verdict": ["maybe", None],
    "cases": ["many", -1],
    "lead": ["low"],
    "budget": ["all"],
    "problem": [3],
}


@pytest.mark.parametrize(
    "damage", drawn(((name, value) for name, values in DAMAGED_VERDICTS.items() for value in values), 3)
)
def test_damaged_verdicts_are_refused_by_cards_and_proved_again(damage, with_one_length, tmp_path):
    name, value = damage
    folder = with_one_length
    words = [str(folder), "--certify", "--output_dir", str(tmp_path / "out"), "--lengths"]
    stated = json.loads((folder / "certificate.json").read_text())
    (one,) = stated["lengths"]
    change_json(folder / "certificate.json", lengths=[{**one, "verdict": "open"} | {name: value}])
    refuses_certificate(folder, "field lengths|lengths is .*, and here it must be")
    evaluation.main([*words, "1"])
    (again,) = json.loads((folder / "certificate.json").read_text())["lengths"]
    assert {**again, "seconds": 0} == {**one, "seconds": 0}
    change_json(folder / "certificate.json", lengths=[one, one])
    refuses_certificate(folder, "field lengths")


def test_no_length_is_proved_if_one_is_too_long(tmp_path, capsys):
    folder = constructed(tmp_path)
    with pytest.raises(SystemExit) as stop:
        evaluation.main(
            [str(folder), "--task", "addition", "--certify", "--lengths", "1,3", "--output_dir", str(tmp_path / "out")]
        )
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert "proved" not in out and "operands of 2 digits" in err and not (tmp_path / "out" / "certificate.json").exists()


def test_verdicts_of_a_file_are_told_apart_from_those_that_are_proved_now(tmp_path, capsys):
    folder, out = constructed(tmp_path), tmp_path / "out"
    words = [str(folder), "--task", "addition", "--certify", "--output_dir", str(out), "--lengths"]
    evaluation.main([*words, "1"])
    assert "says so" not in capsys.readouterr().out
    evaluation.main([*words, "1:2", "--trust"])
    told = [line for line in capsys.readouterr().out.splitlines() if "proved: " in line]
    assert [line.endswith(f"({out}/certificate.json says so)") for line in told] == [True, False]
    # Without --trust each length is proved, and what was not is kept, and called taken over.
    evaluation.main([*words, "2"])
    said = capsys.readouterr()
    assert "says so" not in said.out and "--trust" in said.err
    stated = json.loads((out / "certificate.json").read_text())
    assert [one["taken_over"] for one in stated["lengths"]] == [True, False]
    assert "For operands of 2 digits" in stated["statement"] and "Taken over" in stated["statement"].partition("2 digits")[2]


def test_a_card_tells_no_proved_lengths_of_a_folder_that_cannot_be_certified(with_one_length):
    folder = with_one_length
    assert "proved" in model_card(folder)
    change_json(folder / "config.json", return_dict=False)
    change_json(folder / "certificate.json", files=hash_files(folder))
    refuses_certificate(folder, "return_dict")


def write_verdicts(folder, verdicts):
    """Give a folder the certificate that follows from verdicts."""
    certificate = conclude(load_checkpoint(str(folder)), verdicts, hash_files(folder))
    (folder / "certificate.json").write_text(json.dumps(asdict(certificate)))


def stated_verdicts(folder):
    return read_verdicts(json.loads((folder / "certificate.json").read_text())["lengths"])


def refute(verdict):
    """Call a length refuted that is proved."""
    return replace(verdict, verdict="refuted", problem="01+01=", answer="1$", right="2$")


@pytest.mark.parametrize("seconds", all_but([60.0], [60.0, 0.0]))
def test_a_card_proves_lengths_again_in_the_seconds_that_it_has(seconds, with_two_lengths, monkeypatch):
    folder = with_two_lengths
    monkeypatch.setattr(length_certificate, "AGAIN_SECONDS", seconds)
    card = model_card(folder)
    assert ("of 1 to 2 digits" in card) == ("Taken over" not in card) == bool(seconds)
    first, second = stated_verdicts(folder)
    write_verdicts(folder, [first, refute(second)])
    if seconds:
        refuses_certificate(folder, "length 2: it is called refuted")
    else:
        card = model_card(folder)
        assert "Nothing is proved" in card and "Refuted" not in card, "whoever made the certificate answers for it"


def test_a_card_states_no_forged_length(proved, tmp_path, monkeypatch):
    """A table that is right up to 2 digits alone, whose certificate says "proved" at 1 to 4: the others are not stated."""
    folder = Path(shutil.copytree(proved("1", 3), tmp_path / "constructed"))
    (one,) = stated_verdicts(folder)
    model = construct_addition(bits=3)
    torch.manual_seed(0)
    with torch.no_grad():
        (table,) = (weight for name, weight in model.named_parameters() if "position_encoding.tables" in name)
        table[5:] = torch.randn_like(table[5:])
    model.save_pretrained(folder)
    monkeypatch.setattr(length_certificate, "AGAIN_SECONDS", 0.0)
    write_verdicts(folder, [replace(one, length=length) for length in range(1, 6)])
    refuses_certificate(folder, r"length [2345]: it is called proved, but \d+\+\d+= is answered by")


def test_several_processes_find_what_one_finds(tmp_path, capsys):
    folder, found = constructed(tmp_path, bits=3), []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        words = [
            str(folder),
            "--task",
            "addition",
            "--certify",
            "--lengths",
            "1:3",
            "--jobs",
            jobs,
            "--output_dir",
            str(out),
        ]
        evaluation.main(words)
        stated = json.loads((out / "certificate.json").read_text())
        found.append({**stated, "lengths": [{**one, "seconds": 0} for one in stated["lengths"]]})
    assert found[0] == found[1] and capsys.readouterr().out.count("proved: ") == 6


def test_a_card_proves_short_lengths_first_whatever_their_order(with_two_lengths, monkeypatch):
    folder = with_two_lengths
    first, second = stated_verdicts(folder)
    # There is time for one length.
    monkeypatch.setattr(length_certificate, "AGAIN_SECONDS", 60.0)
    times = iter([0.0, 1.0, 100.0])
    monkeypatch.setattr(length_certificate, "time", SimpleNamespace(perf_counter=lambda: next(times, 100.0)))
    write_verdicts(folder, [second, refute(first)])
    with pytest.raises(
        ValueError, match="length 1: it is called refuted, but a new proof finds it proved: remove it and run"
    ):
        model_card(folder)


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_a_card_tells_no_lengths_that_other_code_proved(seconds, with_two_lengths, monkeypatch):
    folder = with_two_lengths
    monkeypatch.setattr(length_certificate, "AGAIN_SECONDS", seconds)
    first, second = stated_verdicts(folder)
    write_verdicts(folder, [first, replace(second, bound=0)])
    refuses_certificate(folder, "another version .* the lengths 2: remove it")


def test_a_card_tells_no_lengths_that_the_model_cannot_take(with_one_length, monkeypatch):
    folder = with_one_length
    monkeypatch.setattr(length_certificate, "AGAIN_SECONDS", 0.0)
    (first,) = stated_verdicts(folder)
    write_verdicts(folder, [first, replace(first, length=3)])
    refuses_certificate(folder, "length 3: the model cannot take it .*operands of 2 digits")
