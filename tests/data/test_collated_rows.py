"""Rows may hold whatever a model takes, padded on either side; a misspelt column is refused."""

import itertools

import numpy as np
import pytest
import torch
from cases import drawn
from given_subjects import WORDS, given, given_encoder
from test_given_rows import ROW, STRUCTURE, model_of, rows_of

import longhand
from longhand.data import TASKS, build_task
from longhand.data.collator import ROW_COLUMNS
from longhand.modeling.values import INTEGERS


def first_tokens(structure, size):
    """What the first tokens of a row have of what is given to a batch of one."""
    axes = {"position_ids": 1, "pair_map": 2, "position_bias": 2, "attention_mask": 2}
    return {name: own[0][(..., *[slice(size)] * axes[name])] for name, own in structure.items()}


assert given


def test_a_row_among_others_is_computed_as_alone_whatever_the_model_is_given(given):
    """Every model of given structure, with a bias, embeddings, a mask of pairs, and padding on either side."""
    model, structure = given
    generator = torch.Generator().manual_seed(1)
    bias = torch.randn(1, WORDS.shape[1], WORDS.shape[1], generator=generator)
    visible = torch.ones(bias.shape).tril().bool()
    visible[..., -1, 1:3] = False
    hiding = torch.zeros(bias.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    masks = [{}, {"attention_mask": visible}, {"attention_mask": hiding}]
    for own_mask, embeds in itertools.product(masks, (False, True)):
        rows = []
        for size in (WORDS.shape[1], 5, 1):
            tokens = WORDS[0, :size]
            words = {"inputs_embeds": model.get_input_embeddings()(tokens).detach()} if embeds else {"input_ids": tokens}
            rows.append(words | first_tokens(structure | {"position_bias": bias} | own_mask, size))
        with torch.inference_mode():
            right, left = (model(**longhand.collate_rows(rows, padding_side=side)).logits for side in ("right", "left"))
            for place, size in enumerate((WORDS.shape[1], 5, 1)):
                alone = model(**longhand.collate_rows([rows[place]])).logits[0]
                torch.testing.assert_close(right[place, :size], alone)
                torch.testing.assert_close(left[place, -size:], alone)


def test_maps_of_each_rule_make_a_mapping_of_batches():
    model = given_encoder(pair_maps=["given", "given", "relative", "none"], num_relations=3, relation_range=[-1, 1])
    maps = {"given": [[1, -1], [0, 2]], "relative": [[0, 1], [-1, 0]]}
    rows = [{"input_ids": [17, 19], "pair_map": maps}]
    rows += [{"input_ids": [20], "pair_map": {rule: [[0]] for rule in maps}}]
    batch = longhand.collate_rows(rows, padding_side="left")
    assert batch["pair_map"]["relative"].tolist() == [maps["relative"], [[-1, -1], [-1, 0]]]
    alone = longhand.collate_rows(rows[1:])
    with torch.inference_mode():
        torch.testing.assert_close(model(**batch).logits[1, 1:], model(**alone).logits[0])
    for other in ({"given": [[0]]}, [[0]], {"given": [[0]], "relative": None}):
        with pytest.raises(ValueError, match=r"pair_map must have maps of the same rules .* row 1"):
            longhand.collate_rows([rows[0], {"input_ids": [20], "pair_map": other}])


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_stands_on_the_side_that_is_asked_for(side):
    rows = rows_of("addition", 20, position_ids=True)
    batch = longhand.collate_rows(rows, padding_side=side)
    derived = longhand.CouplingCollator("addition", padding_side=side)(rows)
    model = model_of(build_task("addition"))
    with torch.inference_mode():
        logits = model(batch["input_ids"], batch["attention_mask"]).logits
    for place, row in enumerate(rows):
        size = len(row["input_ids"])
        own = slice(size) if side == "right" else slice(-size, None)
        assert batch["input_ids"][place, own].tolist() == row["input_ids"]
        assert batch["labels"][place, own].tolist() == row["labels"] and batch["attention_mask"][place].sum() == size
        assert batch["position_ids"][place, own].tolist() == row["position_ids"]
        with torch.inference_mode():
            torch.testing.assert_close(logits[place, own], model(torch.tensor([row["input_ids"]])).logits[0])
    shown = batch["attention_mask"]
    assert torch.equal(derived["position_ids"] * shown, derived["position_ids"])
    assert torch.equal(derived["position_ids"], longhand.CouplingCollator(padding_side=side)(rows)["position_ids"])
    with pytest.raises(ValueError, match="padding_side must be one of right, left, got 'Left'"):
        longhand.collate_rows(rows, padding_side="Left")


@pytest.mark.parametrize("name", [name for name, kinds in ROW_COLUMNS.items() if kinds[0].kind == INTEGERS])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.int64, np.uint64])
def test_the_largest_number_of_each_type_is_kept_or_refused(name, dtype):
    largest, size = np.iinfo(dtype).max, ROW_COLUMNS[name][0].token_axes
    row = {"input_ids": [3], name: np.full((1,) * size, largest, dtype)}
    try:
        kept = longhand.collate_rows([row])[name]
    except ValueError as error:
        assert dtype is np.uint64 and "torch.int64" in str(error)
    else:
        assert kept.flatten().tolist() == [largest]


@pytest.mark.parametrize(
    ("labels", "expected", "kind"),
    [
        ((2, 0), [2, 0], torch.int64),
        ((0.5, 1.5), [0.5, 1.5], torch.float32),
        (([1.0, 0.0, 1.0],) * 2, [[1, 0, 1]] * 2, torch.float32),
    ],
)
@pytest.mark.parametrize("name", ["labels", "label", "label_ids"])
def test_rows_may_have_one_label_each(labels, expected, kind, name):
    rows = [{"input_ids": [1] * (place + 1), name: own} for place, own in enumerate(labels)]
    for own in (rows, [row | {name: np.array(row[name])} for row in rows]):
        batch = longhand.collate_rows(own)
        assert batch["labels"].tolist() == expected and batch["labels"].dtype == kind
    with pytest.raises(ValueError, match=r"labels .*row 1"):
        longhand.collate_rows([rows[0], {"input_ids": [1], name: [1]}])


MISSPELT = {
    "input_id": "input_ids", "inputIds": "input_ids", "Labels": "labels", "position_id": "position_ids",
    "positionids": "position_ids", "positions_ids": "position_ids", "pair_maps": "pair_map", "pairmap": "pair_map",
    "pair-map": "pair_map", "position_biases": "position_bias", "attention_masks": "attention_mask",
    "attentionMask": "attention_mask", "input_embeds": "inputs_embeds", "state": "states", "token_type_id": "token_type_ids",
}  # fmt: skip


def test_a_misspelt_column_is_refused_and_not_dropped():
    for name, meant in MISSPELT.items():
        for values in ([1, 2], torch.tensor([1, 2]), [[0.5]]):
            with pytest.raises(ValueError, match=f"rows have a column '{name}', which no model takes: '{meant}' is meant"):
                longhand.collate_rows([ROW, ROW | {name: values}])
    # Values of tokens under the end of a name, and values of pairs under any name.
    bare = {name: ROW[name] for name in ("input_ids", "labels")}
    for name, values, meant in (
        ("mask", [1, 0], "'attention_mask'"),
        ("ids", [1, 2], "'position_ids' or 'token_type_ids'"),
        ("bias", [[0.5, 0.5]] * 2, "'position_bias' or 'attention_mask'"),
        ("relations", [[0, 1]] * 2, "'pair_map'"),
        ("adjacency", torch.ones(3, 2, 2, dtype=torch.long), "'pair_map'"),
    ):
        with pytest.raises(ValueError, match=f"rows have a column '{name}', which no model takes: {meant} may be meant"):
            longhand.collate_rows([bare | {name: values}, bare])
        assert name not in longhand.collate_rows([bare | {name: "a text"}])
    with pytest.raises(ValueError, match="labels under one name, got labels and label"):
        longhand.collate_rows([ROW | {"label": 3}])
    with pytest.raises(ValueError, match="input_ids or inputs_embeds, got both"):
        longhand.collate_rows([ROW | {"inputs_embeds": [[0.5], [0.5]]}])


@pytest.mark.parametrize(("name", "width"), [("offset_mapping", 2), ("bbox", 4)])
def test_a_column_that_is_as_wide_as_one_row_is_long_is_none_of_pairs(name, width):
    """Such as the offsets that a tokenizer gives, (tokens, 2): what is refused must not turn on the length of one row."""
    rows = [{"input_ids": [1] * tokens, name: [[0] * width] * tokens} for tokens in (width, width + 1)]
    for own in (rows, rows[::-1]):
        assert set(longhand.collate_rows(own)) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize("task", drawn(TASKS, 11))
def test_columns_of_datasets_are_no_misspelt_ones(task):
    for messages in (False, True):
        longhand.collate_rows(rows_of(task, 3, messages=messages, **STRUCTURE))
    longhand.collate_rows([ROW | {"input": "1+1", "positions": "text", "id": 3, "length": 2, "text": "a", "target": [1]}])
