import json
import os
import re
import shutil
import subprocess
import sysconfig
import venv
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import transformers
import yaml
from datasets import DatasetInfo, Features, Value
from huggingface_hub import HfApi, ModelCard

import longhand
from longhand.data import TASKS, EncoderAddition, EncoderMultiplication, load_task_dataset
from longhand.data.certificates import hash_weights
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.data.tasks.encoder_task import EncoderTask
from longhand.eval import load_checkpoint
from longhand.hub_cards import cards as command
from longhand.hub_cards.publishing import cards
from longhand.hub_cards.publishing.card_updates import check_card, update_card
from longhand.hub_cards.publishing.cards import render_model_card, write_card
from longhand.hub_cards.publishing.commits import CannotPush
from longhand.hub_cards.publishing.dataset_cards import render_dataset_card
from longhand.hub_cards.publishing.examples import decoder_example, draw_ids, draw_labels
from longhand.hub_cards.publishing.families import FAMILY_CARDS, family_card
from longhand.hub_cards.publishing.push import push_model
from longhand.hub_cards.runs import certificates
from longhand.hub_cards.runs.arguments import parse_run
from longhand.hub_cards.runs.recipes import read_recipe, write_recipe
from longhand.hub_cards.runs.results import read_results, write_results
from longhand.hub_cards.studies.constructions.study import run as construct
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.coupling import COUPLING_RULES

SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


def row(length, exact_match, model="adder", **changes):
    values = {"model": model, "task": "addition", "length": length, "length_b": length, "num_samples": 1234, "seed": 7}
    values |= {"decode": "teacher_forced", "exact_match": exact_match, "token_accuracy": 0.987654, "seconds": 0.1}
    return values | {"hardware": "some CPU", **changes}


ROWS = [row(5, 1.0), row(40, 0.8125)]


def measured(length, exact_match, model, folder, **changes):
    """A row as an evaluation of the folder's model gives it."""
    return row(length, exact_match, model, weights=hash_weights(CoupledGPTForCausalLM.from_pretrained(folder)), **changes)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "adder"
    construct("addition", 60, folder)
    write_results(ROWS, folder / "results.jsonl")
    return folder


@pytest.fixture
def folder(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "adder"))


def certify_by_hand(folder, monkeypatch, certified=True):
    """A certificate with numbers of its own, for the words of cards: no check contradicts it."""
    monkeypatch.setattr(certificates, "find_difference", lambda *_, **__: None)
    model = CoupledGPTForCausalLM.from_pretrained(folder)
    task = {"task": "addition", "separate_eos": False, "zero_padding": True, "order": "response_reversed"}
    numbers = {"problems": 30123, "predictions": 140321, "neighbourhoods": 6217, "wrong": 0 if certified else 17}
    certificate = {"certified": certified, "statement": "A statement.", "proof": [], "task": task, **numbers}
    certificate |= {"margin": 2.71828, "bound": 0.0177, "ratio": 153.6, "failures": [], "weights": hash_weights(model)}
    certificate |= {"files": certificates.hash_files(folder)}
    (folder / "certificate.json").write_text(json.dumps(certificate))
    return certificate


def test_metadata_has_the_results_by_length(folder):
    data = ModelCard(render_model_card(folder, "user/adder", "user/sums")).data
    assert (data.library_name, data.license, data.metrics) == ("transformers", "apache-2.0", ["exact_match"])
    assert data.datasets == ["user/sums"] and {"longhand", "coupled_gpt"} <= set(data.tags)
    found = [(result.dataset_config, result.metric_type, result.metric_value) for result in data.eval_results]
    tested = [("length_5", 1.0), ("length_40", 0.8125)]
    assert found == [
        (length, *metric)
        for length, exact_match in tested
        for metric in (("exact_match", exact_match), ("token_accuracy", 0.987654))
    ]
    # Problems were drawn for the evaluation: they are not the rows of the dataset on the Hub.
    assert {result.dataset_type for result in data.eval_results} == {"user/sums"}
    assert {result.dataset_args["problems"] for result in data.eval_results} == {
        "drawn by longhand, not rows of this dataset"
    }
    assert data.model_name == "adder" and data.language == "zxx"
    own = ModelCard(render_model_card(folder, "user/adder")).data.eval_results
    assert {(result.dataset_type, "problems" in result.dataset_args) for result in own} == {("longhand-addition", False)}


def test_the_widget_s_example_is_a_prompt_that_the_model_answers(folder, small_encoder):
    for place in (folder, small_encoder):
        checkpoint = load_checkpoint(str(place))
        (example,) = ModelCard(render_model_card(place, "user/model")).data.widget
        inputs = checkpoint.tokenizer(example["text"], return_tensors="pt")
        assert checkpoint.tokenizer.unk_token_id not in inputs["input_ids"]
        checkpoint.model(**inputs)
        assert f'tokenizer("{example["text"]}", return_tensors="pt")' in render_model_card(place, "user/model")


def test_the_card_names_versions_and_the_source_s_address_if_it_is_known(folder, tmp_path, monkeypatch):
    written = (
        f"This card was written with longhand {longhand.__version__}, transformers {transformers.__version__} and torch"
    )
    assert written in (card := render_model_card(folder)) and "The code is at" not in card
    (tmp_path / "CITATION.cff").write_text(
        cards.CITATION_FILE.read_text() + "repository-code: https://example.org/longhand\n"
    )
    monkeypatch.setattr(cards, "CITATION_FILE", tmp_path / "CITATION.cff")
    assert "The code is at https://example.org/longhand." in render_model_card(folder)


def test_every_measured_number_is_that_of_the_files(folder):
    card = render_model_card(folder)
    assert "| 5 | 1.0000 | 0.9969 to 1.0000 | 0.987654 | 1,234 |\n" in card
    assert "| 40 | 0.8125 | 0.7898 to 0.8333 | 0.987654 | 1,234 |\n" in card
    assert "seed 7; decoding teacher forced; some CPU" in card
    assert f"{CoupledGPTForCausalLM.from_pretrained(folder).num_parameters():,} parameters" in card
    assert (folder / "recipe.yaml").read_text().strip() in card
    write_results([row(6, 0.25)], folder / "results.jsonl")
    assert "| 6 | 0.2500 |" in (card := render_model_card(folder)) and "0.8125" not in card


def test_a_scratchpad_model_shows_its_answers_and_a_best_checkpoint_its_own_table(folder):
    rows = [row(5, 0.5, answer_match=0.75), row(5, 0.625, model="adder/best")]
    write_results(rows, folder / "results.jsonl")
    card = render_model_card(folder)
    assert "| exact match | 95% interval | answer alone | per token | problems |" in card and "| 0.7500 |" in card
    assert "| 5 | 0.6250 |" in card.partition("best exact match in validation")[2]
    assert {result.metric_value for result in ModelCard(card).data.eval_results} == {0.5, 0.987654}


def test_beside_a_certified_checkpoint_the_best_one_is_left_out(folder, monkeypatch):
    shutil.copytree(folder, folder / "best", ignore=shutil.ignore_patterns("results.jsonl"))
    model = CoupledGPTForCausalLM.from_pretrained(folder)
    model.lm_head.weight.data *= 2
    model.save_pretrained(folder / "best")
    write_results([*ROWS, row(5, 0.625, model="adder/best")], folder / "results.jsonl")
    assert "| 5 | 0.6250 |" in render_model_card(folder)
    certify_by_hand(folder, monkeypatch)
    card = render_model_card(folder)
    assert "0.6250" not in card and "`best/` is left out: the last checkpoint is certified." in card


def test_without_results_nothing_is_claimed(folder):
    (folder / "results.jsonl").unlink()
    card = render_model_card(folder)
    assert "Not evaluated." in card and "model-index" not in card and "| exact match |" not in card


def test_the_plot_is_shown_where_there_is_one(folder):
    assert "accuracy.png" not in render_model_card(folder)
    (folder / "accuracy.png").write_bytes(b"")
    assert "![exact match by length](accuracy.png)" in render_model_card(folder)


@pytest.mark.parametrize("certified", [True, False])
def test_the_certificate_is_shown_as_it_ended(folder, certified, monkeypatch):
    assert "## Certificate" not in (card := render_model_card(folder)) and "has no certificate" in card
    certificate = certify_by_hand(folder, monkeypatch, certified)
    card = render_model_card(folder)
    assert ("**Certified.** A statement." in card) == certified
    assert ("**Not certified.** A statement." in card) == (not certified)
    for number in ("140,321 predictions", "30,123 short problems", "6,217", "2.718", "0.018", "154", certificate["weights"]):
        assert number in card
    assert f"- wrong: {certificate['wrong']}\n" in card
    assert ("is not proved" in card) == (not certified)


def test_limits_name_the_trained_and_tested_lengths_and_the_end_of_the_table(folder):
    assert "tested at 2 sizes from 5 to 40" in (card := render_model_card(folder))
    ids = CoupledGPTForCausalLM.from_pretrained(folder).config.max_position_ids
    assert f"{ids} position ids: the longest that fits is {COUPLING_RULES['addition'].capacity(ids)}" in card
    assert "built, not trained" in card and "constructions addition --max_length" in card
    write_recipe(read_recipe(folder / "recipe.yaml") | {"min_length": 2, "max_length": 19}, folder / "recipe.yaml")
    card = render_model_card(folder)
    assert "trained on operands of 2 to 19 digits only" in card and "longhand.train recipe.yaml" in card


def test_a_fine_tuned_model_names_its_base_and_no_command_that_did_not_make_it(folder):
    recipe = read_recipe(folder / "recipe.yaml") | {"base_model": "user/base", "min_length": 1, "max_length": 9}
    write_recipe(recipe, folder / "recipe.yaml")
    card = render_model_card(folder)
    assert "Fine-tuned from `user/base`" in card and "## Reproduce" not in card
    assert ModelCard(card).data.base_model == "user/base"


def test_the_construction_s_command_builds_the_same_weights(folder, tmp_path):
    command = re.search(r"longhand\.hub_cards\.studies constructions (\S+) --max_length (\d+)", render_model_card(folder))
    construct(command[1], int(command[2]), tmp_path / "again")
    hashes = [hash_weights(CoupledGPTForCausalLM.from_pretrained(place)) for place in (folder, tmp_path / "again")]
    assert hashes[0] == hashes[1]


def test_a_construction_that_does_not_state_its_command_shows_where_to_find_it(folder):
    recipe = read_recipe(folder / "recipe.yaml")
    write_recipe({name: value for name, value in recipe.items() if name != "command"}, folder / "recipe.yaml")
    assert "python -m longhand.hub_cards.studies constructions --help\n" in render_model_card(folder)


def test_a_construction_s_recipe_names_a_task_to_train(folder):
    assert parse_run([str(folder)]).task == TASKS["addition"]()


def test_drawing_has_a_column_for_each_token_with_its_ids():
    assert draw_ids(TASKS["addition"](), "addition") == (
        "    tokens  $ 1 6 6 + 4 7 7 = 3 4 6 0 $\n    ids     0 2 3 4 5 2 3 4 5 4 3 2 1 0"
    )


def test_drawing_of_an_encoder_s_problem_has_its_labels_below():
    assert draw_labels(EncoderAddition()) == "    input   1 0 8 + 4 0 4\n    label   . . . _ 5 1 2"
    assert draw_labels(EncoderAddition(field_width=50, varied_field=True, sampling="shifted", text_tokens=9)) == draw_labels(
        EncoderAddition()
    )


@pytest.mark.parametrize("name", [name for name in TASKS if issubclass(TASKS[name], DecoderTask)])
def test_every_task_can_be_drawn(name):
    task = TASKS[name]()
    blocks = draw_ids(task, task.coupling).split("\n\n")
    for block in blocks:
        assert len({len(line) for line in block.splitlines()}) == 1
        assert len(block.splitlines()) == 1 + COUPLING_RULES[task.coupling].levels


ENCODER_FORMATS = [
    EncoderAddition(),
    EncoderAddition(field_width=9, varied_field=True, sampling="shifted", text_tokens=2),
    EncoderAddition(field_width=6, sampling="cascades"),
    EncoderMultiplication(multiplier_length=2),
    EncoderMultiplication(multiplier_length=3, field_width=7, spill=True),
]


@pytest.mark.parametrize("task", ENCODER_FORMATS, ids=str)
def test_snippets_of_encoder_tasks_ask_for_the_tokens_of_the_answer(task):
    code = family_card(task).snippet(task, "user/name")
    compile(code, "snippet", "exec")
    prompt, sign, field, width, right = re.search(
        r'tokenizer\("(.*([+*])(.*))", .*logits\[0, -(\d+):\].*# right is (\d+)$', code, re.DOTALL
    ).groups()
    assert prompt == task.for_evaluation.prompt(prompt.replace("_", "")) or task.field_width is None
    assert int(width) == task.answer_width(len(field))
    first, second = (int(number.strip("_")) for number in prompt.split(sign))
    assert int(right) == (first + second if sign == "+" else first * second)


@pytest.mark.parametrize(
    "name", [name for name in TASKS if TASKS[name]().answers_questions and issubclass(TASKS[name], DecoderTask)]
)
def test_snippets_of_every_task_are_python_and_read_answers_as_the_task_does(name):
    task = TASKS[name]()
    code = family_card(task).snippet(task, "user/name")
    compile(code, "snippet", "exec")
    reader = re.search(r"print\((.*)\)  # right is (.*)$", code)
    query, response = decoder_example(task)
    assert query.startswith("$") and f'tokenizer("{query[1:]}"' in code
    modules = {name: import_module(name) for name in re.findall(r"^import (\w+)$", code, re.MULTILINE)}
    assert eval(reader[1], {**modules, "response": response}) == task.reader.read(response) == reader[2]


def test_a_family_without_a_card_is_refused_and_never_described_as_another(monkeypatch, folder):
    monkeypatch.delitem(FAMILY_CARDS, "decoder")
    for render in (
        partial(render_model_card, folder),
        partial(dataset_card, "addition", {"a": {"max_length": 4}}, {"test": 5}),
    ):
        with pytest.raises(ValueError, match="models of the family 'decoder' have no card: add one to FAMILY_CARDS"):
            render()


def test_citations_name_both_papers():
    bibtex = cards.citations()
    assert bibtex.count("\n@") + 1 == 3 and "Cho, Hanseul" in bibtex and "Sabbaghi, Mahdi" in bibtex
    assert bibtex.count("{") == bibtex.count("}")


def test_the_card_has_no_holes(folder, monkeypatch):
    certify_by_hand(folder, monkeypatch)
    card = render_model_card(folder, "user/adder")
    assert not re.search(r"\{\{|\}\}(?!,)|\{%|\bNone\b(?!:)|\n\n\n", card.partition("## Citation")[0])
    assert card == render_model_card(folder, "user/adder")


def test_the_card_of_an_encoder_speaks_of_classes_and_not_of_a_response(small_encoder):
    card = render_model_card(small_encoder, "user/reader", "user/sums")
    data = ModelCard(card).data
    assert data.pipeline_tag == "token-classification" and {"pairwise_bert", "structural-symmetry"} <= set(data.tags)
    assert {result.task_type for result in data.eval_results} == {"token-classification"}
    assert draw_labels(EncoderAddition()) in card and "(`relative`, `coupled`)" in card
    assert "| digits | exact match |" in card and "| 4 | 0.2500 |" in card and "every label of the answer" in card
    assert "trained on operands of 1 to 4 digits only" in card and "square of the input's length" in card
    for word in ("position ids", "decoding", "response", "decoder", "generate"):
        assert word not in card.partition("## Training")[0]
    assert not re.search(r"\{\{|\}\}(?!,)|\{%|\n\n\n", card.partition("## Citation")[0])


def save_model(folder: Path, task, **options) -> Path:
    """A model that has learned nothing."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    CoupledGPTForCausalLM(CoupledGPTConfig(**sizes, **options)).save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    write_recipe(task.describe(), folder / "recipe.yaml")
    return folder


@pytest.mark.parametrize(
    ("options", "reads"),
    [
        ({"position_encoding": "pairwise"}, "reads *coupled* position ids"),
        ({"position_encoding": "learned", "max_position_ids": 40, "coupling": "abacus"}, "reads *coupled* position ids"),
        ({"position_encoding": "alibi", "coupling": "sequential"}, "reads ordinary position ids, not coupled ones"),
        (
            {
                "position_encoding": "learned",
                "max_position_ids": 1234,
                "coupling": "sequential",
                "randomized_positions": True,
            },
            "drawn at random from 1 to 1,234",
        ),
        ({"position_encoding": "none", "coupling": "sequential"}, "has no position encoding"),
        ({"position_encoding": "none", "coupling": "addition"}, "has no position encoding"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_a_card_says_what_of_positions_the_model_reads(tmp_path, options, reads):
    card = render_model_card(save_model(tmp_path / "baseline", TASKS["addition"](), **options))
    head = card.partition("## Use")[0]
    coupled = "coupled" in reads and "not coupled" not in reads
    assert reads in head
    assert ("*coupled*" in head) == ("what the tokens mean" in head) == coupled
    assert ("position-coupling" in ModelCard(card).data.tags) == coupled
    assert ("    ids " in head) == ("plans the ids" in head) == (options["position_encoding"] != "none")
    assert "whatever they mean" in head or coupled or options["position_encoding"] == "none"
    assert not re.search(r"\n\n\n|  \w| \n", head.partition("    tokens")[0].partition("# baseline")[2])


def info_of(**columns) -> DatasetInfo:
    return DatasetInfo(features=Features({name: Value(kind) for name, kind in columns.items()}))


@pytest.mark.parametrize("name", TASKS)
def test_the_card_of_every_dataset_has_no_holes(name):
    card = render_dataset_card(
        name, "user/sums", {"short": {"max_length": 4}}, {"train": 5}, {"short": info_of(input_ids="uint8")}, 0
    )
    text = card.partition("## Citation")[0]
    assert not re.search(r"\{\{|\}\}|\{%|\bNone\b(?!,? )|\n\n\n", text)
    assert ("-100 for a\ntoken without a label" in text) == issubclass(TASKS[name], EncoderTask)
    coupled = issubclass(TASKS[name], DecoderTask) and TASKS[name]().coupling != "sequential"
    assert ("coupling rule" in text) == ("position-coupling" in text) == ("coupled position ids" in text) == coupled


def dataset_card(task, configurations, num_samples, columns=None) -> str:
    infos = {name: info_of(**(columns or {}).get(name, {"input_ids": "uint8"})) for name in configurations}
    return render_dataset_card(task, "user/sums", configurations, num_samples, infos, 0)


def test_the_card_of_a_dataset_without_training_problems_loads_what_there_is():
    card = dataset_card("addition", {"short": {"max_length": 4}}, {"test": 5})
    assert '"short", split="test", streaming=True)' in card and 'split="train"' not in card
    call = re.search(r"load_task_dataset\((.*)\)", card)[1]
    rows = list(eval(f"load_task_dataset({call}, streaming=True)", {"load_task_dataset": load_task_dataset}))
    assert len(rows) == 5


def test_the_card_of_a_dataset_says_which_configuration_has_what():
    configurations = {"short": {"max_length": 4}, "plain": {"max_length": 9, "order": "plain"}}
    columns = {
        "short": {"prompt": "string", "coupled_position_ids": "int16"},
        "plain": {"prompt": "string", "coupled_position_ids": "int32", "new": "string"},
    }
    card = dataset_card("addition", configurations, {"train": 5}, columns)
    assert "| `prompt` | `Value('string')` | the text that a model is given |\n" in card
    assert "| `coupled_position_ids` | `Value('int16')` in `short`; `Value('int32')` in `plain` | position ids; " in card
    assert "| `new` | `Value('string')` in `plain` |  |" in card
    assert "rule `addition` in `short`; `addition_plain` in `plain`. They are the smallest" in card


@pytest.mark.parametrize(
    ("task", "lengths", "partition"),
    [
        ("addition", "operands of 1 to 30 digits", "at most 18 digits in all"),
        ("multiplication", "first operands of 1 to 30 digits", "at most 18 digits in all"),
        ("copy", "strings of 1 to 30 symbols", "at most 18 symbols in all"),
        ("parity", "strings of 1 to 30 symbols", "at most 60 symbols in all"),
        ("minesweeper", "boards with a width and a height of 1 to 30 cells", "A problem belongs to one split only"),
    ],
)
def test_lengths_are_those_of_what_the_task_is_about(tmp_path, task, lengths, partition):
    card = dataset_card(task, {"all": {"max_length": 30}}, {"train": 5})
    assert lengths in card and partition in card and ("digits" in card) == ("digits" in lengths)
    folder, task = tmp_path / "model", TASKS[task]()
    save_model(folder, task, position_encoding="none", coupling=task.coupling)
    recipe = {**task.describe(), "min_length": 2, "max_length": 2}
    write_recipe(recipe, folder / "recipe.yaml")
    what, unit = lengths.partition(" 1 to 30 ")[::2]
    card = render_model_card(folder)
    assert f"It was trained on {what} 2 {unit} only." in card and f"| longest trained length, {unit} | `2` |" in card


@pytest.mark.parametrize(
    ("count", "category"),
    [(999, "n<1K"), (1000, "1K<n<10K"), (10**9, "1B<n<10B"), (10**10, "10B<n<100B"), (10**12, "n>1T")],
)
def test_size_of_a_dataset(count, category):
    card = dataset_card("addition", {"short": {"max_length": 4}}, {"train": count})
    assert f"size_categories:\n- {category}\n" in card


def test_the_command_writes_the_card(folder, capsys):
    command.main([str(folder), "--repo_id", "user/other"])
    text = (folder / "README.md").read_text()
    assert text == render_model_card(folder, "user/other") and 'from_pretrained("user/other"' in text
    assert not list(folder.glob(".*"))
    for words in (["nowhere"], [str(folder), "--repo_id", "other"], [str(folder), "--dataset", "a/b/c"]):
        with pytest.raises(SystemExit) as stop:
            command.main(words)
        assert stop.value.code == 2 and capsys.readouterr().err.startswith("error: ")


def test_new_results_are_merged_into_a_folder_and_all_else_stays(folder):
    write_card(folder)
    text = (folder / "README.md").read_text().replace("## Limits\n", "## Limits\n\nBy hand.\n")
    (folder / "README.md").write_text(text)
    new = [measured(length, share, "adder", folder) for length, share in ((40, 0.5), (90, 0.125))]
    update_card(folder, new, dataset="user/sums")
    assert [(r["length"], r["exact_match"]) for r in read_results(folder / "results.jsonl")] == [
        (5, 1.0), (40, 0.5), (90, 0.125),
    ]  # fmt: skip
    updated = (folder / "README.md").read_text()
    assert "| 90 | 0.1250 |" in updated and "0.8125" not in updated and "By hand.\n" in updated
    assert "tested at 3 sizes from 5 to 90" in updated and "tested at 2 sizes" not in updated
    values = [result.metric_value for result in ModelCard(updated).data.eval_results if result.metric_type == "exact_match"]
    assert values == [1.0, 0.5, 0.125]
    assert updated.partition("<!-- end -->")[2] == text.partition("<!-- end -->")[2]
    assert (folder / "accuracy.png").stat().st_size > 1000
    entries = yaml.safe_load((folder / ".eval_results" / "addition.yaml").read_text())
    assert [entry["value"] for entry in entries] == [1.0, 0.5, 0.125]
    assert entries[2]["dataset"] == {"id": "user/sums", "task_id": "length_90"}
    assert all("drawn by longhand, not rows of this dataset" in entry["notes"] for entry in entries)
    assert {result.dataset_type for result in ModelCard(updated).data.eval_results} == {"user/sums"}
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    update_card(folder, new[:1], dataset="user/sums")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "rows must be of one checkpoint"),
        ([row(5, 1.0), row(5, 1.0, model="other")], "rows must be of one checkpoint"),
        ([row(5, 1.0, weights="0"), row(6, 1.0, weights="1")], "rows must be of one checkpoint"),
        ([row(5, 1.0)], "rows must have the hash of the weights"),
        ([row(5, 1.0, model="other", weights="0")], "rows are of the checkpoint 'other'"),
        ([row(5, 1.0, task="copy", weights="0")], "rows are of the task 'copy'"),
        ([row(5, 1.0, weights="0")], "rows are of another checkpoint: adder has other weights"),
        ([row(5, 1.0, model="adder/best", weights="0")], "rows are of another checkpoint: adder/best has other"),
    ],
)
def test_rows_that_do_not_belong_are_refused(folder, rows, message):
    write_card(folder)
    before = (folder / "README.md").read_bytes()
    with pytest.raises(ValueError, match=message):
        update_card(folder, rows)
    assert (folder / "README.md").read_bytes() == before


def test_results_of_weights_that_were_replaced_are_neither_shown_nor_added_to(folder):
    write_card(folder)
    write_results([measured(5, 1.0, "adder", folder)], folder / "results.jsonl")
    assert "| 5 | 1.0000 |" in render_model_card(folder)
    (folder / "model.safetensors").write_bytes(change_a_weight((folder / "model.safetensors").read_bytes()))
    new = [measured(6, 1.0, "adder", folder)]
    for refuse in (partial(render_model_card, folder), partial(check_card, folder), partial(update_card, folder, new)):
        with pytest.raises(
            ValueError, match=r"results\.jsonl is of another checkpoint, what it calls adder had other weights"
        ):
            refuse()
    (folder / "results.jsonl").unlink()
    update_card(folder, new)
    assert "| 6 | 1.0000 |" in (folder / "README.md").read_text()


def test_a_card_of_another_make_is_not_touched(folder):
    for text in (None, "---\nlicense: mit\n---\nMine."):
        if text is not None:
            (folder / "README.md").write_text(text)
        with pytest.raises(ValueError, match="no card with a results block"):
            update_card(folder, [measured(5, 0.5, "adder", folder)])
    assert read_results(folder / "results.jsonl") == ROWS


def commit_meanwhile(monkeypatch, commit) -> None:
    """Calls `commit` once, between the reading of a repository and the first commit of what was made of it."""
    create, others = HfApi.create_commit, [commit]

    def create_commit(self, *arguments, **options):
        if others:
            others.pop()()
        return create(self, *arguments, **options)

    monkeypatch.setattr(HfApi, "create_commit", create_commit)


@pytest.mark.parametrize("fault", [None, "cut", "lost"])
def test_new_results_reach_the_hub_in_one_commit(hub, api, folder, fault):
    push_model(folder, "user/adder", api=api)
    repository = hub.repositories["model", "user/adder"]
    if fault:
        hub.fail("POST", "/commit/", kind=fault)
    rows = [measured(90, 0.125, "user/adder", folder)]
    done = update_card("user/adder", rows, dataset="user/sums", api=api)
    assert done.changed == [".eval_results/addition.yaml", "README.md", "accuracy.png", "results.jsonl"]
    assert len(repository.commits) == 3
    card = repository.head.files["README.md"].decode()
    assert "| 90 | 0.1250 |" in card and 'from_pretrained("user/adder"' in card
    assert {json.loads(line)["model"] for line in repository.head.files["results.jsonl"].splitlines()} == {"adder"}
    again = update_card("user/adder", rows, dataset="user/sums", api=api)
    assert again.changed == [] and len(repository.commits) == 3


@pytest.fixture
def pushed(hub, api, folder):
    """The repository of a checkpoint."""
    push_model(folder, "user/adder", api=api)
    return hub.repositories["model", "user/adder"]


def change_a_weight(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def test_results_of_other_weights_are_not_added_on_the_hub(hub, api, folder, pushed):
    weights = pushed.head.files["model.safetensors"]
    other = pushed.commit("main", "other weights", {**pushed.head.files, "model.safetensors": change_a_weight(weights)})
    with pytest.raises(ValueError, match="rows are of another checkpoint: user/adder has other weights"):
        update_card("user/adder", [measured(90, 0.125, "user/adder", folder)], api=api)
    assert pushed.head is other


def test_results_are_merged_into_what_another_commits_at_the_same_moment(hub, api, folder, pushed, monkeypatch):
    rows = [measured(70, 0.25, "user/adder", folder)]
    commit_meanwhile(monkeypatch, lambda: update_card("user/adder", rows, api=api))
    update_card("user/adder", [measured(90, 0.125, "user/adder", folder)], api=api)
    lines = map(json.loads, pushed.head.files["results.jsonl"].splitlines())
    assert [(line["length"], line["exact_match"]) for line in lines] == [(5, 1.0), (40, 0.8125), (70, 0.25), (90, 0.125)]


def test_weights_that_another_commits_at_the_same_moment_get_no_results_of_those_before(
    hub, api, folder, pushed, monkeypatch
):
    files = {**pushed.head.files, "model.safetensors": change_a_weight(pushed.head.files["model.safetensors"])}
    commit_meanwhile(monkeypatch, lambda: pushed.commit("main", "other weights", files))
    with pytest.raises(ValueError, match="has other weights or another configuration"):
        update_card("user/adder", [measured(90, 0.125, "user/adder", folder)], api=api)
    assert pushed.head.title == "other weights"


@pytest.mark.parametrize("name", ["fresh", "best"])
def test_what_was_first_evaluated_on_the_hub_can_be_pushed_after_download(hub, api, folder, tmp_path, name):
    (folder / "results.jsonl").unlink()
    fresh = folder.rename(tmp_path / name)
    push_model(fresh, f"user/{name}", api=api)
    update_card(f"user/{name}", [measured(90, 0.125, f"user/{name}", fresh)], api=api)
    downloaded = tmp_path / "downloads" / name
    api.snapshot_download(f"user/{name}", local_dir=downloaded)
    assert [line["model"] for line in read_results(downloaded / "results.jsonl")] == [name]
    assert "| 90 | 0.1250 |" in (card := render_model_card(downloaded)) and "best exact match in validation" not in card
    assert push_model(downloaded, f"user/{name}", api=api).changed == []


def test_a_folder_that_was_renamed_keeps_its_results(hub, api, folder, tmp_path):
    """The hash of the weights tells that they are its own; a repository's name may be another one too."""
    write_results([measured(5, 1.0, "adder", folder)], folder / "results.jsonl")
    renamed = folder.rename(tmp_path / "renamed")
    assert "| 5 | 1.0000 |" in render_model_card(renamed)
    push_model(renamed, "user/other-name", api=api)
    api.snapshot_download("user/other-name", local_dir=(downloaded := tmp_path / "other-name"))
    assert push_model(downloaded, "user/other-name", api=api).changed == []


def results_of(repository) -> list[tuple[str, int, float]]:
    lines = map(json.loads, repository.head.files["results.jsonl"].splitlines())
    return [(line["model"], line["length"], line["exact_match"]) for line in lines]


@pytest.mark.parametrize("dataset", [None, "user/sums"])
def test_pushing_the_same_weights_again_keeps_the_results_that_were_added(hub, api, folder, pushed, dataset):
    new = [
        measured(length, 0.125, "user/adder", folder, num_samples=count) for length, count in ((5, 10), (40, 9999), (90, 9))
    ]
    update_card("user/adder", new, dataset="user/sums", api=api)
    files = pushed.head.files
    push_model(folder, "user/adder", dataset=dataset, api=api)
    # Of one size the result of more problems.
    assert results_of(pushed) == [("adder", 5, 1.0), ("adder", 40, 0.125), ("adder", 90, 0.125)]
    card = pushed.head.files["README.md"].decode()
    assert "| 90 | 0.1250 |" in card and "| 5 | 1.0000 |" in card and "![exact match by length](accuracy.png)" in card
    assert pushed.head.files["accuracy.png"] and pushed.head.files.keys() == files.keys()
    entries = yaml.safe_load(pushed.head.files[".eval_results/addition.yaml"])
    assert [(entry["dataset"]["id"], entry["value"]) for entry in entries] == [
        ("user/sums", 1.0), ("user/sums", 0.125), ("user/sums", 0.125),
    ]  # fmt: skip
    assert push_model(folder, "user/adder", dataset=dataset, api=api).changed == []


@pytest.mark.parametrize("evaluated", [True, False])
def test_pushing_other_weights_leaves_no_score_of_those_before(hub, api, folder, pushed, evaluated):
    update_card("user/adder", [measured(90, 0.125, "user/adder", folder)], dataset="user/sums", api=api)
    own = pushed.commit("main", "of another dataset", {**pushed.head.files, ".eval_results/gsm8k.yaml": b"[]"})
    (folder / "model.safetensors").write_bytes(change_a_weight((folder / "model.safetensors").read_bytes()))
    (folder / "results.jsonl").unlink()
    if evaluated:
        write_results([measured(5, 0.5, "adder", folder)], folder / "results.jsonl")
    push_model(folder, "user/adder", api=api)
    files = pushed.head.files
    assert b"0.1250" not in files["README.md"] and files[".eval_results/gsm8k.yaml"] == b"[]" and pushed.head is not own
    if evaluated:
        assert results_of(pushed) == [("adder", 5, 0.5)]
        assert [entry["value"] for entry in yaml.safe_load(files[".eval_results/addition.yaml"])] == [0.5]
    else:
        assert not {".eval_results/addition.yaml", "results.jsonl", "accuracy.png"} & set(files)


def test_results_that_are_added_while_a_push_is_on_its_way_stay(hub, api, folder, pushed, monkeypatch):
    rows = [measured(70, 0.25, "user/adder", folder)]
    commit_meanwhile(monkeypatch, lambda: update_card("user/adder", rows, api=api))
    (folder / "results.jsonl").unlink()
    push_model(folder, "user/adder", api=api)
    assert results_of(pushed) == [("adder", 70, 0.25)]


def test_results_are_added_to_a_branch_and_to_nothing_else(hub, api, folder, pushed):
    api.create_tag("user/adder", tag="first")
    api.create_branch("user/adder", branch="trial")
    rows, head = [measured(90, 0.125, "user/adder", folder)], pushed.head
    for revision in ("first", head.sha, "novel"):
        for refuse in (partial(update_card, "user/adder", rows), partial(check_card, "user/adder")):
            with pytest.raises(ValueError, match=r"revision must be a branch of user/adder \(main, trial\)"):
                refuse(revision=revision, api=api)
    update_card("user/adder", rows, revision="trial", api=api)
    assert pushed.head is head and pushed.find("trial").title == "New results"


def test_new_results_for_no_repository(hub, api):
    with pytest.raises(CannotPush):
        update_card("user/adder", [row(90, 0.125, model="user/adder", weights="0")], api=api)
    assert hub.repositories == {}


@pytest.fixture(scope="module")
def stranger(tmp_path_factory) -> Path:
    """The interpreter of an environment that has this one's packages, without longhand."""
    place = tmp_path_factory.mktemp("stranger")
    venv.create(place, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    for folder in {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}:
        for entry in folder.iterdir():
            # One by one: a folder that is named in a .pth file would bring longhand along where it is installed in it.
            # The .pth files here are left out, since an editable installation is made of one.
            if "longhand" not in entry.name and entry.suffix != ".pth" and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    return place / "bin" / "python"


def run_alone(stranger, hub, place: Path, code: str, **variables: str) -> str:
    """What code prints in a process that cannot import this package and uses the Hub on loopback."""
    script = place / "script.py"
    script.write_text(code)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
    environment = own | hub.environment(place / "home", **variables)
    done = subprocess.run([stranger, script], env=environment, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


NOBODY_HAS_IT = """
try:
    import longhand
except ModuleNotFoundError as error:
    print(error)
"""


MORE = """
from transformers import pipeline
generator = pipeline("text-generation", model="user/adder", revision="first", trust_remote_code=True)
print([answer["generated_text"] for (answer,) in generator(["12+34=", "99+01="], return_full_text=False)])
try:
    AutoModelForCausalLM.from_pretrained("user/adder", revision="other", trust_remote_code=True)
except Exception as error:
    print("File is truncated:", "should be of size 5000 but has size 2500" in str(error))
"""


@pytest.mark.slow
def test_the_snippet_of_a_card_runs_unchanged_where_this_package_is_not_installed(hub, api, folder, stranger, tmp_path):
    push_model(folder, "user/adder", api=api)
    snippet = SNIPPET.search(hub.repositories["model", "user/adder"].head.files["README.md"].decode())[1]
    first, second, right = map(int, re.search(r'tokenizer\("(\d+)\+(\d+)=".*# right is (\d+)', snippet, re.DOTALL).groups())
    assert first + second == right
    assert run_alone(stranger, hub, tmp_path, NOBODY_HAS_IT) == "No module named 'longhand'\n"
    assert run_alone(stranger, hub, tmp_path, snippet) == f"{right}\n"


@pytest.mark.slow
def test_snippets_and_pipelines_run_online_through_faults_and_then_offline(
    hub, api, folder, small_encoder, stranger, tmp_path
):
    push_model(folder, "user/adder", api=api)
    push_model(small_encoder, "user/reader", api=api)
    api.create_tag("user/adder", tag="first")
    repository = hub.repositories["model", "user/adder"]
    snippet, encoder_snippet = (
        SNIPPET.search(hub.repositories["model", name].head.files["README.md"].decode())[1]
        for name in ("user/adder", "user/reader")
    )
    other = repository.commit("other", "other", {**repository.head.files, "model.safetensors": b"other" * 1000})
    hub.fail("GET", f"/resolve/{repository.head.sha}/model.safetensors", kind="cut")
    hub.fail("GET", f"/resolve/{other.sha}/model.safetensors", kind="truncated", times=10_000)
    right = re.search(r"# right is (\d+)", snippet)[1]
    # This encoder has learned nothing: right is what the package reads from it.
    question = re.search(r'tokenizer\("(.*)", return', encoder_snippet)[1].replace("_", "")
    read = load_checkpoint(str(small_encoder)).answer(question)
    code = f"{encoder_snippet}\n{snippet}\n"
    printed = f"{read}\n{right}\n"
    assert run_alone(stranger, hub, tmp_path, code + MORE) == f"{printed}['640', '001']\nFile is truncated: True\n"
    assert hub.faults[0].times == 0
    hub.requests.clear()
    assert run_alone(stranger, hub, tmp_path, code, HF_HUB_OFFLINE="1") == printed
    assert hub.requests == []
