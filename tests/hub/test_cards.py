"""The cards of models."""

import os
import re
from pathlib import Path

import pytest
import transformers
from huggingface_hub import ModelCard
from publishing_subjects import make_best, measure, model_card, save_model, write_certificate

import longhand
from longhand.data import TASKS, EncoderAddition
from longhand.data.proofs import hash_weights
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.eval import load_checkpoint
from longhand.hub_cards import push as command
from longhand.hub_cards.checkpoints import certificate_file as certificates
from longhand.hub_cards.checkpoints.load import zoo
from longhand.hub_cards.publishing.cards import PAIR_MAPS
from longhand.hub_cards.publishing.examples import draw_ids, draw_labels
from longhand.hub_cards.recipes import read_recipe, write_recipe
from longhand.hub_cards.research.theories.constructions import run as construct
from longhand.hub_cards.training.arguments import parse_run
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.encoder_maps import NO_MAP, OWN_RULES
from longhand.modeling.structure import GIVEN


def certify_by_hand(folder, monkeypatch, certified=True):
    """A certificate with numbers of its own, for the words of cards: no check contradicts it."""
    monkeypatch.setattr(certificates, "find_difference", lambda *_, **__: None)
    numbers = {"predictions": 140321, "neighbourhoods": 6217, "wrong": 0 if certified else 17}
    numbers |= {"margin": 2.71828, "bound": 0.0177, "ratio": 153.6, "failures": [], "statement": "A statement."}
    numbers |= {"proof": ["A step."] if certified else []}
    weights = hash_weights(CoupledGPTForCausalLM.from_pretrained(folder))
    return write_certificate(folder, weights, certified=certified, **numbers)


def test_metadata_has_the_results_by_length(folder):
    data = ModelCard(model_card(folder, "user/adder", "user/sums")).data
    assert (data.library_name, data.license, data.metrics) == ("transformers", "apache-2.0", ["exact_match"])
    assert data.datasets == ["user/sums"] and {"longhand", "coupled_gpt"} <= set(data.tags)
    found = [(result.metric_name, result.metric_type, result.metric_value) for result in data.eval_results]
    tested = [("exact match, length 5", 1.0), ("exact match, length 40", 0.8125)]
    assert found == [(length, "exact_match", exact_match) for length, exact_match in tested]
    # Problems were drawn for the evaluation: they are not the rows of the dataset on the Hub.
    assert {result.dataset_type for result in data.eval_results} == {"longhand-addition"}
    assert data.model_name == "adder" and data.language == "zxx"
    for paper in ("2405.20671", "2406.01895"):
        # The Hub makes a tag of such a link.
        assert f"https://arxiv.org/abs/{paper}" in model_card(folder, "user/adder")


def test_the_widget_s_example_is_a_prompt_that_the_model_answers(folder, small_encoder):
    for place in (folder, small_encoder):
        checkpoint = load_checkpoint(str(place))
        (example,) = ModelCard(model_card(place, "user/model")).data.widget
        inputs = checkpoint.tokenizer(example["text"], return_tensors="pt")
        assert checkpoint.tokenizer.unk_token_id not in inputs["input_ids"]
        checkpoint.model(**inputs)
        assert f'tokenizer("{example["text"]}", return_tensors="pt")' in model_card(place, "user/model")


def test_every_measured_number_is_that_of_the_files(folder):
    card = model_card(folder)
    assert "| 5 | 1.0000 | 0.9969 to 1.0000 | 0.987654 | 1,234 |\n" in card
    assert "| 40 | 0.8125 | 0.7898 to 0.8333 | 0.987654 | 1,234 |\n" in card
    assert "seed 7; decoding teacher forced; some CPU" in card
    assert f"{CoupledGPTForCausalLM.from_pretrained(folder).num_parameters():,} parameters" in card
    assert "](recipe.yaml)" in card
    measure(folder, {6: 0.25})
    assert "| 6 | 0.2500 |" in (card := model_card(folder)) and "0.8125" not in card


def test_the_worst_problem_of_each_size_is_shown(folder):
    measure(folder, {5: 1.0}, worst_tried=10, worst_lead=-1.5, worst_problem="1|2*3=", worst_answer="$", worst_right="6$")
    card = model_card(folder)
    assert "| worst problem |" in card and r"wrong: 1\|2\*3= answered $ |" in card
    measure(folder, {5: 1.0}, worst_tried=640, worst_lead=1.5, worst_problem="1+2=", worst_answer=None, worst_right=None)
    assert "none found in 640, lowest lead 1.50 |" in model_card(folder)


def test_a_scratchpad_model_shows_its_answers_and_a_best_checkpoint_its_own_table(folder):
    make_best(folder)
    measure(folder, {5: 0.5}, {5: 0.625}, answer_match=0.75)
    card = model_card(folder)
    assert "| exact match | 95% interval | answer alone | accuracy per token | problems |" in card and "| 0.7500 |" in card
    assert "| 5 | 0.6250 |" in card.partition("best exact match in validation")[2]
    assert {result.metric_value for result in ModelCard(card).data.eval_results} == {0.5}


def test_beside_a_certified_checkpoint_the_best_one_is_left_out(folder, monkeypatch):
    make_best(folder)
    measure(folder, {5: 1.0}, {5: 0.625})
    assert "| 5 | 0.6250 |" in model_card(folder)
    certify_by_hand(folder, monkeypatch)
    card = model_card(folder)
    assert "0.6250" not in card and "`best/` is left out: the last checkpoint is certified." in card


def test_without_results_nothing_is_claimed(folder):
    (folder / "results.jsonl").unlink()
    card = model_card(folder)
    assert "Not evaluated." in card and "model-index" not in card and "| exact match |" not in card


def test_the_plot_is_shown_where_there_is_one(folder):
    assert "accuracy.png" not in model_card(folder)
    (folder / "accuracy.png").write_bytes(b"")
    assert "![exact match by length](accuracy.png)" in model_card(folder)


@pytest.mark.parametrize("certified", [True, False])
def test_the_certificate_is_shown_as_it_ended(folder, certified, monkeypatch):
    assert "## Certificate" not in (card := model_card(folder)) and "has no certificate" in card
    certificate = certify_by_hand(folder, monkeypatch, certified)
    card = model_card(folder)
    assert ("**Certified.** A statement." in card) == certified
    assert ("**Not certified.** A statement." in card) == (not certified)
    for number in ("140,321 predictions", "6,217", "2.718", "0.018", "154", certificate["weights"]):
        assert number in card
    assert f"; wrong: {certificate['wrong']}\n" in card
    assert ("is not proved" in card) == (not certified)
    assert ("gives the proof" in card) == certified


def test_an_encoder_s_card_says_of_each_of_its_pair_maps_what_it_relates_by(small_encoder):
    assert {*OWN_RULES, "listed", GIVEN, NO_MAP} == PAIR_MAPS.keys()
    card = " ".join(model_card(small_encoder).split())
    assert "by their distance (`relative`) and by the columns that they stand in (`coupled`)" in card


@pytest.mark.parametrize("name", ["three-summands", "plus-one", "minesweeper"])
def test_the_column_of_equal_sizes_names_no_operand_that_others_equal(name, monkeypatch):
    # Their certificates are checked elsewhere, and checking takes seconds.
    monkeypatch.setattr(certificates, "find_difference", lambda *_, **__: None)
    accuracy = model_card(Path(zoo(name))).partition("## Accuracy by length")[2].partition("\n## ")[0]
    sizes = next(line for line in accuracy.splitlines() if "exact match" in line).partition("exact match")[0]
    assert sizes and not any(word in sizes for word in ("=", "first", "second"))


def test_rows_that_say_the_same_are_one_line(folder):
    measure(folder, {5: 0.5, 40: 0.5, 60: 0.5})
    card = model_card(folder)
    assert "5, 40, 60. At each: exact match 0.5000, 95% interval" in card and "| 0.5000 |" not in card
    measure(folder, {5: 0.5, 40: 0.25, 60: 0.5})
    assert "| 40 | 0.2500 |" in (card := model_card(folder)) and "| 5, 60 | 0.5000 |" in card


def test_limits_name_the_trained_and_tested_lengths_and_the_end_of_the_table(folder):
    assert "Other sizes were not measured." in (card := model_card(folder))
    ids = CoupledGPTForCausalLM.from_pretrained(folder).config.max_position_ids
    assert f"{ids} position ids: the longest that fits is {COUPLING_RULES['addition'].capacity(ids)}" in card
    assert "built, not trained" in card and "constructions addition --max_length" in card
    write_recipe(read_recipe(folder / "recipe.yaml") | {"min_length": 2, "max_length": 19}, folder / "recipe.yaml")
    card = model_card(folder)
    assert "trained on operands of 2 to 19 digits only" in card and "longhand.train recipe.yaml" in card


def test_a_fine_tuned_model_names_its_base_and_no_command_that_did_not_make_it(folder):
    recipe = read_recipe(folder / "recipe.yaml") | {"base_model": "user/base", "min_length": 1, "max_length": 9}
    write_recipe(recipe, folder / "recipe.yaml")
    card = model_card(folder)
    assert "Fine-tuned from `user/base`" in card and "## Reproduce" not in card
    assert ModelCard(card).data.base_model == "user/base"


def test_the_construction_s_command_builds_the_same_weights(folder, tmp_path):
    command = re.search(r"longhand\.hub_cards\.research constructions (\S+) --max_length (\d+)", model_card(folder))
    construct(command[1], int(command[2]), tmp_path / "again")
    hashes = [hash_weights(CoupledGPTForCausalLM.from_pretrained(place)) for place in (folder, tmp_path / "again")]
    assert hashes[0] == hashes[1]


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
    blocks = draw_ids(task, task.rule).split("\n\n")
    for block in blocks:
        assert len({len(line) for line in block.splitlines()}) == 1
        assert 2 <= len(block.splitlines()) <= 1 + task.rule.levels


def test_the_card_has_no_holes(folder, monkeypatch):
    certify_by_hand(folder, monkeypatch)
    card = model_card(folder, "user/adder")
    bibtex = card.partition("```bibtex")[2]
    assert bibtex.count("\n@") == 1 and "@software{longhand" in bibtex
    assert f"longhand {longhand.__version__}, transformers {transformers.__version__}" in card
    assert not re.search(r"\{\{|\}\}(?!,)|\{%|\bNone\b(?!:)|\n\n\n", card.partition("## Citation")[0])
    assert card == model_card(folder, "user/adder")


def test_the_card_of_an_encoder_speaks_of_classes_and_not_of_a_response(small_encoder):
    card = model_card(small_encoder, "user/reader", "user/sums")
    data = ModelCard(card).data
    assert data.pipeline_tag == "token-classification" and {"pairwise_bert", "structural-symmetry"} <= set(data.tags)
    assert {result.task_type for result in data.eval_results} == {"token-classification"}
    assert draw_labels(EncoderAddition()) in card and "(`coupled`)" in card and "| 4 | 0.2500 |" in card
    for word in ("position ids", "decoding", "response", "decoder", "generate"):
        assert word not in card.partition("## Training")[0]
    assert not re.search(r"\{\{|\}\}(?!,)|\{%|\n\n\n", card.partition("## Citation")[0])


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
    card = model_card(save_model(tmp_path / "baseline", TASKS["addition"](), **options))
    head = card.partition("## Use")[0]
    coupled = "coupled" in reads and "not coupled" not in reads
    assert reads in head
    assert ("*coupled*" in head) == ("what the tokens mean" in head) == coupled
    assert ("position-coupling" in ModelCard(card).data.tags) == coupled
    assert ("    ids " in head) == ("plans the ids" in head) == (options["position_encoding"] != "none")
    assert "whatever they mean" in head or coupled or options["position_encoding"] == "none"
    assert not re.search(r"\n\n\n|  \w| \n", head.partition("    tokens")[0].partition("# baseline")[2])


def test_a_card_of_the_zoo_names_its_checkpoint_by_any_path():
    assert 'longhand.load("copy")' in model_card(Path(os.path.relpath(zoo("copy"))))


def test_the_command_writes_the_card(folder, capsys):
    command.main(["card", str(folder), "--repo_id", "user/other"])
    text = (folder / "README.md").read_text()
    assert text == model_card(folder, "user/other") and 'from_pretrained("user/other"' in text
    assert not list(folder.glob(".*"))
    for words in (["nowhere"], [str(folder), "--repo_id", "other"], [str(folder), "--dataset", "a/b/c"]):
        with pytest.raises(SystemExit) as stop:
            command.main(["card", *words])
        assert stop.value.code == 2 and capsys.readouterr().err.startswith("error: ")
