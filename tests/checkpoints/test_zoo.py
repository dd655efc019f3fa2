"""The zoo: its checkpoints are used by their names. `.ci/run` verifies all of them, and certifies most again."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from refusals import refusal
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer, Trainer, TrainingArguments

import longhand
from longhand import eval as evaluation
from longhand import train
from longhand.data import load_task_dataset
from longhand.hub_cards.checkpoints import length_certificate
from longhand.hub_cards.checkpoints import load as names
from longhand.hub_cards.checkpoints.checkpoint import CERTIFICATE_FILE
from longhand.hub_cards.checkpoints.load import LANGUAGE_MODELS, ZOO_FOLDER, list_zoo, read_checkpoint, zoo
from longhand.hub_cards.recipes import RECIPE_FILE, read_recipe
from longhand.hub_cards.research import ship as shipping
from longhand.hub_cards.result_rows import read_results
from longhand.hub_cards.training.arguments import parse_run


@pytest.fixture
def own_zoo(tmp_path, monkeypatch) -> Path:
    """A zoo of one checkpoint, which tests may change."""
    folder = tmp_path / "zoo"
    shutil.copytree(ZOO_FOLDER / "copy", folder / "copy")
    for module in (names, shipping):
        monkeypatch.setattr(module, "ZOO_FOLDER", folder)
    monkeypatch.chdir(tmp_path)
    return folder


def test_the_zoo_is_small():
    assert {"addition", "addition-short", "copy"} <= set(list_zoo())
    assert sum(file.stat().st_size for name in list_zoo() for file in Path(zoo(name)).iterdir()) <= 14_500_000


@pytest.mark.parametrize("name", list_zoo())
def test_a_card_says_how_to_load_and_ask_by_name(name):
    card = Path(zoo(name), "README.md").read_text()
    assert f'longhand.load("{name}")' in card and "GUIDE.md#the-shipped-models" in card
    certificate = Path(zoo(name), CERTIFICATE_FILE).is_file()
    assert ("## Certificate" in card) == certificate >= read_recipe(Path(zoo(name), RECIPE_FILE))["until_certified"]
    assert "trust_remote_code" not in card and "custom_code" not in card and str(ZOO_FOLDER) not in card


def test_the_guide_says_how_all_checkpoints_are_loaded_and_proved_again():
    guide = (
        Path(ZOO_FOLDER.parent, "GUIDE.md")
        .read_text(encoding="utf-8")
        .partition("\n## The shipped models\n")[2]
        .partition("\n## ")[0]
    )
    assert all(words in guide for words in ("longhand.load(", "longhand.zoo(", "longhand-verify hub_cards/zoo/"))


def test_transformers_loads_a_checkpoint_by_its_folder():
    folder = longhand.zoo("addition")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    output = model.generate(**tokenizer("653+049=", return_tensors="pt"))
    assert tokenizer.decode(output[0], skip_special_tokens=True) == "653+049=2070"
    with pytest.raises(ValueError, match="no checkpoint 'adition': did you mean addition"):
        longhand.zoo("adition")


def test_a_plain_encoder_is_fine_tuned_by_a_plain_trainer(tmp_path):
    model = AutoModelForTokenClassification.from_pretrained(longhand.zoo("encoder-addition"))
    before = model.classifier.weight.detach().clone()
    rows = load_task_dataset("encoder_addition", max_length=8, num_samples=64, cache_dir=str(tmp_path))
    options = {"max_steps": 3, "use_cpu": True, "report_to": "none", "save_strategy": "no", "learning_rate": 1e-4}
    trainer = Trainer(
        model,
        TrainingArguments(str(tmp_path), **options),
        train_dataset=rows,
        data_collator=longhand.collate_rows,
    )
    trainer.train()
    assert not model.classifier.weight.equal(before)
    assert trainer.evaluate(rows)["eval_loss"] < 0.1


def test_eval_takes_a_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = {file: file.read_bytes() for file in ZOO_FOLDER.rglob("*") if file.is_file()}
    evaluation.main(["addition", "--ask", "653+49"])
    evaluation.main(["copy", "--lengths", "5", "--num_samples", "10"])
    evaluation.main(["copy", "--certify"])
    out = capsys.readouterr().out
    assert out.startswith("702\n") and "copy: CERTIFIED" in out
    (row,) = read_results(Path("outputs/evaluation/copy/results.jsonl"))
    assert row["model"] == "copy" and row["exact_match"] == 1.0
    assert Path("outputs/evaluation/copy", CERTIFICATE_FILE).is_file()
    assert before == {file: file.read_bytes() for file in ZOO_FOLDER.rglob("*") if file.is_file()}
    assert "did you mean addition " in refusal(capsys, evaluation.main, "adition", "--ask", "1+1")
    assert "is for a repository" in refusal(capsys, evaluation.main, "addition", "--revision", "x", "--ask", "1+1")


def test_a_folder_of_the_name_comes_first_and_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ZOO_FOLDER / "copy", "addition")
    evaluation.main(["addition", "--ask", "1809"])
    printed = capsys.readouterr()
    assert printed.out == "1809\n" and printed.err.startswith("note: addition is a folder here; ")


def test_a_folder_of_the_name_without_a_checkpoint_is_named_and_passed_over(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("addition").mkdir()
    evaluation.main(["addition", "--ask", "653+49"])
    printed = capsys.readouterr()
    assert printed.out == "702\n" and printed.err.startswith("note: the folder addition holds no checkpoint; ")


def test_the_certificate_of_a_whole_task_is_no_cause_to_warn_of_a_part(tmp_path, capsys):
    folder = shutil.copytree(ZOO_FOLDER / "calculator", tmp_path / "calculator")
    part = [str(folder), "--task", "signed_subtraction", "--ask", "49-653"]
    evaluation.main(part)
    assert "warning" not in capsys.readouterr().err
    certificate = folder / CERTIFICATE_FILE
    fields = json.loads(certificate.read_text())
    certificate.write_text(json.dumps(fields | {"task": fields["task"] | {"max_operands": 99}}))
    evaluation.main(part)
    assert "is of another task or format (max_operands was 99" in capsys.readouterr().err


def test_the_list_names_every_checkpoint_and_a_question(capsys):
    with pytest.raises(SystemExit) as end:
        evaluation.main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert end.value.code == 0 and [line.split()[0] for line in lines] == [*list_zoo(), *LANGUAGE_MODELS]
    assert any(line.split()[:2] == ["addition", "653+49"] for line in lines)


def test_a_certified_run_is_shipped_without_its_code(main_job, own_zoo):
    shipping.ship(main_job)
    made = own_zoo / "addition"
    assert list_zoo() == ["addition", "copy"] and zoo("addition") == str(made)
    assert not list(made.rglob("*.py")) and "auto_map" not in json.loads((made / "config.json").read_text())
    assert (made / "model.safetensors").read_bytes() == (main_job / "model.safetensors").read_bytes()
    read = read_checkpoint(made)
    assert read.name == "addition" and read.certificate["certified"] and set(read.certificate["files"]) == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    }  # fmt: skip
    assert {row["model"] for row in read.rows} == {"addition"} and read.rows[0]["run_seconds"] > 0
    files = {file.name: file.read_bytes() for file in made.iterdir() if file.suffix in (".json", ".md", ".safetensors")}
    shipping.ship(made)
    assert files == {name: (made / name).read_bytes() for name in files}


def test_verdicts_of_single_lengths_are_shipped_with_a_run(own_zoo, tmp_path, monkeypatch):
    monkeypatch.setattr(length_certificate, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(length_certificate, "ASKED_SECONDS", 0.2)
    run = tmp_path / "run"
    words = "--hidden_size 8 --head_dim 4 --intermediate_size 8 --practise_worst unset --max_steps 1 --eval_steps 1"
    train.main(["addition-absolute-proved", *words.split(), "--test_lengths", "2", "--output_dir", str(run)])
    with pytest.raises(SystemExit):
        evaluation.main([str(run), "--certify", "--lengths", "1", "--budget", "1", "--output_dir", str(tmp_path / "out")])
    (run / RECIPE_FILE).write_text(yaml.safe_dump(parse_run(["addition-absolute-proved"]).recipe))
    made = shipping.ship(run)
    own, shipped = (json.loads((folder / CERTIFICATE_FILE).read_text()) for folder in (run, made))
    assert shipped["lengths"] == own["lengths"] and not any(name.endswith(".py") for name in shipped["files"])
    # Nothing is proved again in no time, so nothing is stated as proved.
    assert [one["taken_over"] for one in read_checkpoint(made).certificate["lengths"]] == [True]
    assert "lengths" in shipping.check("addition-absolute-proved")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("recipe.yaml", "recipe: copy", "recipe: unknown", "'unknown' is unknown"),
        ("recipe.yaml", "max_steps: 1000", "max_steps: 999", "differs in max_steps"),
        ("config.json", "1e-06", "1.0", "is not certified"),
    ],
)
def test_what_does_not_belong_into_the_zoo_is_refused(own_zoo, tmp_path, file, old, new, message):
    copy = own_zoo / "copy"
    before = {one.name: one.read_bytes() for one in copy.iterdir()}
    run = Path(shutil.copytree(copy, tmp_path / "run"))
    (run / file).write_text((run / file).read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        shipping.ship(run)
    assert before == {one.name: one.read_bytes() for one in copy.iterdir()}


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("config.json", b'"norm_eps": 1e-06', b'"norm_eps": 1e-05', "config.json differs"),
        ("certificate.json", b'"certified": true', b'"certified": false', "field certified"),
        ("tokenizer.json", b'"1": 1', b'"1": 1 ', "tokenizer.json differs"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_damaged_checkpoint_is_not_certified_again(own_zoo, capsys, file, old, new, message):
    content = (own_zoo / "copy" / file).read_bytes()
    assert old in content
    (own_zoo / "copy" / file).write_bytes(content.replace(old, new))
    assert message in refusal(capsys, shipping.main, "--check", "copy")
