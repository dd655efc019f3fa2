"""The table of what is proved, refuted and sampled says what its rows say."""

import json

import pytest
import torch
from test_studies import measured

from longhand.data import Addition
from longhand.hub_cards.research import study_pages
from longhand.hub_cards.research.study import load_study
from longhand.hub_cards.research.study_pages import (
    describe_lengths,
    first_refuted,
    proof_line,
    proofs_block,
    verdict_line,
    wrong_from_end,
)
from longhand.hub_cards.research.tables import as_frame
from longhand.hub_cards.research.theories import wrong_tokens
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

NONE = {"worst_tried": 64, "worst_problem": "1+2=", "worst_answer": None, "worst_right": None}
WRONG = {"worst_tried": 64, "worst_problem": "4+5=", "worst_answer": "8$", "worst_right": "9$"}


def test_a_range_holds_all_tested_lengths_in_it():
    assert describe_lengths({10, 20, 40}, {10, 20, 30, 40, 50}) == "10 to 20, 40"
    assert describe_lengths(set(), {1}) == ""


def test_each_length_stands_where_its_rows_put_it():
    rows = [
        {"length": 2, "verdict": "proved"},
        {"length": 3, "verdict": "open"},
        {"length": 4, "exact_match": 1.0, "worst_tried": None, "worst_answer": None},
        {"length": 5, "exact_match": 1.0, **NONE},
        {"length": 6, "exact_match": 1.0, **WRONG},
        {"length": 6, "exact_match": 1.0},
        {"length": 7, "verdict": "refuted", "problem": "7+7=", "answer": "1$", "right": "14$"},
        {"length": 9, "exact_match": 0.99},
    ]
    line = verdict_line("table", (1, 5), rows)
    assert (line["proved"], line["nothing wrong found"], line["wrong"]) == ("2, 4", "3, 5", "6 to 9")
    assert "`4+5=`" in line["a problem of the shortest"] and "`9$`" in line["a problem of the shortest"]


def test_the_shortest_refuted_length_names_its_problem_if_one_is_known():
    sampled, searched = {"length": 6, "exact_match": 0.5}, {"length": 6, "exact_match": 0.5, **WRONG}
    assert first_refuted([sampled, searched]) is searched
    assert first_refuted([{"length": 9, "exact_match": 1.0, **NONE}]) is None
    assert "drawn" in verdict_line("table", (1, 5), [sampled])["a problem of the shortest"]


def proof(length, verdict, **more):
    wrong = {"problem": f"{length}+0=", "answer": "8$", "right": "9$"} if verdict == "refuted" else {}
    return {
        "length": length,
        "verdict": verdict,
        "seconds": 2.0 * length,
        "cases": 100,
        "boxes": 10 * length,
        **wrong,
        **more,
    }


def test_a_line_of_proofs_tells_short_wrong_problems_from_those_beyond_training():
    verdicts = {1: "refuted", 2: "proved", 3: "proved", 4: "open", 5: "proved", 6: "refuted", 7: "refuted"}
    rows = [proof(length, verdict) for length, verdict in verdicts.items()]
    tests = [{"length": length, "exact_match": match} for length, match in ((1, 1.0), (5, 0.99), (7, 0.5))]
    line = proof_line("table", (1, 5), as_frame(tests), rows)
    assert (line["proved"], line["open"], line["refuted"]) == ("2 to 3, 5", "4", "1, 6 to 7")
    assert "`1+0=`" in line["first refuted"] and "`6+0=`" in line["first refuted beyond the trained ones"]
    assert line["first wrong tokens, from the end"] == "2"
    assert (line["reach by samples"], line["seconds of a proof"], line["boxes"]) == ("5", "4 to 10", "20 to 50")


@pytest.mark.parametrize(
    ("answer", "right", "place"), [("90$", "91$", 2), ("911", "91$", 1), ("8", "91$", 3), ("9", "91$", 2)]
)
def test_the_first_wrong_token_is_counted_from_the_end_of_what_is_right(answer, right, place):
    assert wrong_from_end(answer, right) == place


@pytest.mark.parametrize("names", [[], ["1-10-seed0", "1-30-seed2"]])
def test_the_table_of_proofs_has_a_line_for_each_model_that_was_measured(names, tmp_path, monkeypatch):
    monkeypatch.setattr(study_pages, "STUDY_RESULTS", tmp_path)
    folder = tmp_path / "proved-lengths"
    (folder / "lengths").mkdir(parents=True)
    tests = [measured(name, 1, 1.0) for name in names]
    rows = [
        {"model": name, "weights": "", "hardware": "abacus", "lengths": [proof(1, "proved"), proof(2, "open")]}
        for name in names
    ]
    for file, own in (("results.jsonl", tests), ("lengths/certificates.jsonl", rows)):
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in own))
    table = proofs_block()
    assert all(table.count(name) == 1 for name in names) and ("No results" in table) == (not names)
    assert len(study_pages.read_searched(load_study("proved-lengths"))) == 3 * len(names)


def test_a_head_spreads_over_as_many_tokens_as_share_its_weights():
    assert wrong_tokens.spread(torch.full((7,), 1 / 7)) == pytest.approx(7)
    assert wrong_tokens.spread(torch.tensor([0.0, 1.0, 0.0])) == pytest.approx(1)


def test_heads_are_asked_at_the_token_that_writes_the_first_wrong_one():
    task = Addition()
    sizes = {"position_encoding": "learned", "max_position_ids": 20, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**task.family.config_options(task), **sizes)).eval()
    model.set_attn_implementation("eager")
    tokenizer = task.family.tokenizer(task)
    verdict = {"length": 2, "problem": "27+35=", "answer": "270$", "right": "260$"}
    rows = list(wrong_tokens.wrong_token_rows(verdict, model, tokenizer))
    with torch.no_grad():
        (weights,) = model(tokenizer("27+35=2", return_tensors="pt").input_ids, output_attentions=True).attentions
    assert [row["head"] for row in rows] == list(range(model.config.num_attention_heads))
    assert [row["from_the_end"] for row in rows] == [3] * len(rows)
    assert [row["heaviest"] for row in rows] == pytest.approx(weights[0, :, -1].amax(-1).tolist())
