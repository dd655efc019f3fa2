"""Structure that a caller gives: arguments and fields of configurations that cannot mean anything are refused by name."""

import inspect
from itertools import product

import pytest
import torch
from given_subjects import WORDS, given, given_decoder
from huggingface_hub.errors import StrictDataclassError
from position_subjects import (
    DECODERS,
    SETTLING,
    SUMS,
    build,
    encode,
)
from transformers import (
    BertConfig,
    BertForTokenClassification,
    DynamicCache,
    EncoderDecoderCache,
)

from longhand.modeling import (
    CoupledGPTConfig,
    CoupledGPTForCausalLM,
    CoupledGPTModel,
    PairwiseBertConfig,
    PairwiseBertForTokenClassification,
    PairwiseBertModel,
)
from longhand.modeling.structure import PairShape, read_pair_map, read_pair_mask
from longhand.modeling.values import INTEGERS

assert given

TOKENS, TWO = encode("learned", SUMS[0]).input_ids, encode("relative", "_2+95").input_ids
PAIRS, IDS = torch.zeros(1, 14, 14, dtype=torch.long), torch.ones(1, 14, dtype=torch.long)
SMALL, FEW = torch.zeros(1, 5, 5, dtype=torch.long), torch.ones(1, 5, dtype=torch.long)
REFUSED = [
    *((name, {"pair_map": PAIRS}, "reads no pair_map") for name in ("none", "learned", "rotary")),
    ("none", {"position_ids": IDS}, "reads no position_ids"),
    *(("windowed", {"pair_map": pair_map}, "pair_map") for pair_map in (PAIRS[:, :3], PAIRS.expand(2, -1, -1), PAIRS[0])),
    ("windowed", {"pair_map": PAIRS.float()}, "integers"),
    ("windowed", {"pair_map": PAIRS[:, None].expand(-1, 3, -1, -1)}, "4 or 1 heads"),
    *(("windowed", {"pair_map": PAIRS + unfit}, str(unfit)) for unfit in (5, -2)),
    ("t5", {"pair_map": PAIRS + 32}, "32"),
    *(("learned", {"position_ids": ids}, "position_ids") for ids in (IDS[:, :3], IDS.float(), IDS.expand(2, -1))),
    ("learned", {"position_ids": IDS + 60}, "61"),
    ("learned", {"position_ids": IDS.view(1, 1, 14).expand(-1, 2, -1)}, "1 levels"),
    ("learned", {"position_bias": PAIRS[None]}, "floats"),
    *(("learned", {"position_bias": torch.zeros(shape)}, "position_bias") for shape in ((1, 14, 14), (1, 3, 14, 14))),
    ("learned", {"attention_mask": torch.zeros(1, 1, 14, 14).long()}, "bool"),
    ("learned", {"attention_mask": torch.zeros(1, 1, 3, 14)}, "attention_mask"),
    ("learned", {"token_type_ids": IDS}, "token_type_ids"),
    ("learned", {"pair_maps": PAIRS}, "pair_maps"),
    ("no vectors", {"pair_map": SMALL}, "no head reads"),
    ("no vectors", {"position_ids": FEW}, "no part of this model reads position_ids"),
    *(("mixed", {"pair_map": own}, "rule") for own in (SMALL, {"uniform": SMALL})),
    ("coupled", {"pair_map": SMALL + 4}, "4"),
    ("coupled", {"pair_map": SMALL[:, :3]}, "pair_map"),
    ("coupled", {"position_ids": FEW[:, :3]}, "position_ids"),
    ("coupled", {"position_bias": SMALL[None]}, "floats"),
    ("coupled", {"attention_mask": torch.zeros(1, 1, 5, 3)}, "attention_mask"),
    ("coupled", {"pair_maps": SMALL}, "pair_maps"),
    ("absolute", {"position_ids": FEW * 21}, "max_position_embeddings = 20"),
    *(
        (f"settling, {next(iter(SETTLING))}", {name: value}, "settles from input_ids alone")
        for name, value in (
            ("pair_map", SMALL),
            ("position_ids", FEW),
            ("position_bias", torch.zeros(1, 1, 5, 5)),
            ("attention_mask", torch.ones(1, 1, 5, 5).bool()),
        )
    ),
]


def test_ids_of_more_than_32_bits_are_refused_by_every_reader_of_ids(given):
    model, structure = given
    for beyond in (2**31, 2**32):
        if "position_ids" in structure:
            ids = structure["position_ids"].clone()
            ids[..., -1] = beyond
            with pytest.raises(ValueError, match=str(beyond)):
                model(WORDS, **{**structure, "position_ids": ids})


@pytest.mark.parametrize(("name", "inputs", "match"), REFUSED)
@pytest.mark.parametrize("part", ["head", "base"])
def test_what_an_argument_cannot_mean_is_refused_in_one_line_by_head_and_base(name, inputs, match, part):
    model = build(name)
    tokens = TOKENS if name in DECODERS else TWO
    states = {}
    if part == "base":
        model = model.model
        states = {"states": torch.full_like(TWO, -1)} if name.startswith("settling") else {}
    with pytest.raises(ValueError, match=match) as refusal:
        model(tokens, **states, **inputs)
    assert "\n" not in str(refusal.value)


MASKS, EMBEDS = ([[1] * 8], "ones", True, torch.ones(8)), (torch.zeros(1, 8, 16), torch.zeros(1, 8, 32))
BOTH = {
    "attention_mask": MASKS,
    "inputs_embeds": ([[0.0]], *(own.float() for own in EMBEDS), *(own.long() for own in EMBEDS), torch.zeros(0, 8, 32),
                      torch.zeros(1, 0, 32), torch.zeros(1, 0, 16), torch.zeros(1, 8, 7), torch.zeros(8, 32)),
    "labels": ([[0] * 8], torch.zeros(1, 8), torch.zeros(1, 7).long(), torch.zeros(8).long(), torch.zeros(1, 8).bool(),
               *(torch.full((1, 8), label) for label in (-1, -101, 50))),
}  # fmt: skip
DECODING = {
    "logits_to_keep": (-1, 9, 1.0, "1", None, True, [1], torch.tensor([8]), torch.tensor([-1]), torch.tensor([[1]]),
                       torch.tensor([1.0]), torch.tensor([True] * 8), torch.tensor([], dtype=torch.long), torch.tensor(1)),
    "cache": ("x", True, {}, ((WORDS, WORDS),), EncoderDecoderCache(DynamicCache(), DynamicCache())),
}  # fmt: skip


@pytest.mark.parametrize("tokens", [WORDS.float(), WORDS.bool(), WORDS[0], WORDS[:, :0], WORDS.tolist(), "text"])
def test_tokens_that_are_no_integers_are_refused(given, tokens):
    model, structure = given
    for call in (model, model.model, *([model.generate] if model.can_generate() else [])):
        with pytest.raises(ValueError, match="input_ids"):
            call(tokens, **structure)


def test_integers_of_any_type_mean_the_same(given):
    """Some are read by few operations of torch, and as an index uint8 is a mask."""
    model, structure = given
    named = {"labels": WORDS % 7, "attention_mask": torch.ones_like(WORDS)}
    named |= {name: part.clamp(min=0) for name, part in structure.items()}
    named |= {"logits_to_keep": torch.tensor([1, 0, 1, 1, 0, 5, 5, 1])} if model.can_generate() else {}
    expected = model(WORDS, **named)
    for dtype in INTEGERS:
        found = model(WORDS.to(dtype), **{name: part.to(dtype) for name, part in named.items()})
        assert torch.equal(found.logits, expected.logits) and found.loss == expected.loss, dtype


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.uint16])
def test_a_prompt_and_a_plan_of_any_integers_are_continued_alike(dtype):
    model = given_decoder("learned")
    ids = torch.arange(1, 13).unsqueeze(0)
    written = model.generate(WORDS.to(dtype), position_ids=ids.to(dtype))
    assert torch.equal(written, model.generate(WORDS, position_ids=ids))


def test_types_that_no_model_reads_are_refused_in_one_line(given):
    """An integer of 64 bits without a sign may be more than int64 holds, and would be taken for a negative one."""
    model, structure = given
    named = {"input_ids": WORDS, "labels": WORDS % 7, "attention_mask": torch.ones_like(WORDS)} | structure
    named |= {"position_bias": torch.zeros(1, 1, 8, 8)}
    for name, dtype in product(named, (torch.uint64, torch.complex64, torch.float8_e5m2)):
        with pytest.raises(ValueError, match=name) as refusal:
            model(**{**named, name: named[name].to(dtype)})
        assert "\n" not in str(refusal.value) and str(dtype) in str(refusal.value)


def test_a_refusal_for_one_row_says_one_and_not_one_or_one(given):
    model, structure = given
    unfit = {name: part[..., :3] for name, part in structure.items()}
    unfit |= {"position_bias": torch.zeros(1, 1, 8, 3)}
    for name, part in unfit.items():
        for rows, shown in ((1, "(1, "), (2, "(2 or 1, ")):
            with pytest.raises(ValueError, match=name) as refusal:
                model(WORDS.expand(rows, -1), **{**structure, name: part})
            assert shown in str(refusal.value)


SETTLES = f"settling, {next(iter(SETTLING))}"
UNFIT_TO_SETTLE = {
    "pairmap": (TWO,),
    "labels": (torch.zeros(1, 4).long(), torch.zeros(1, 5), torch.full((1, 5), 12), [[1] * 5], torch.full((1, 5), -100)),
    "states": ("none", torch.zeros(1, 5), torch.zeros(1, 4).long(), torch.full((1, 5), 12)),
    "attention_mask": ([[1] * 5], torch.ones(5)),
}


@pytest.mark.parametrize("name", UNFIT_TO_SETTLE)
@pytest.mark.parametrize("trained", [False, True])
def test_a_model_that_settles_refuses_what_it_cannot_read(name, trained):
    model, labels = build(SETTLES).train(trained), torch.tensor([[-100, -100, 1, 1, 1]])
    for value in UNFIT_TO_SETTLE[name]:
        given = {"labels": labels, name: value}
        if not trained and torch.is_tensor(value) and (value == -100).all():
            # As in stock models, a loss of no token is no number.
            assert model(TWO, **given).loss.isnan()
            continue
        with pytest.raises(ValueError, match=name) as refusal:
            model(TWO, **given)
        assert "\n" not in str(refusal.value)


def test_the_loss_of_no_token_is_no_number_as_in_stock_models(given):
    model, structure = given
    stock = BertForTokenClassification(BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=1))
    nothing = torch.full_like(WORDS, -100)
    assert stock(WORDS, labels=nothing).loss.isnan() and model(WORDS, labels=nothing, **structure).loss.isnan()


@pytest.mark.parametrize("name", [*BOTH, *DECODING])
def test_an_argument_of_another_kind_is_refused_in_one_line_that_names_it(given, name):
    model, structure = given
    if name in DECODING and not model.can_generate():
        pytest.skip("for decoders")
    for value in (BOTH | DECODING)[name]:
        inputs = {name: value} if name == "inputs_embeds" else {"input_ids": WORDS, name: value}
        for part in (model, model.model):
            with pytest.raises(ValueError, match=name) as refusal:
                part(**inputs, **structure)
            assert "\n" not in str(refusal.value)


def test_labels_of_small_integers_are_labels(given):
    model, structure = given
    labels = torch.tensor([[0, 1, 2, 3, 4, 5, 6, -100]])
    losses = [model(WORDS, labels=labels.to(kind), **structure).loss for kind in (torch.int64, torch.int32, torch.int8)]
    assert losses[0].isfinite() and losses.count(losses[0]) == 3


@pytest.mark.parametrize("plan", [[[1, 2, 3]], "ids", torch.ones(1, 9), torch.tensor(9), torch.arange(9)])
@pytest.mark.parametrize("name", ["position_ids", "pair_map"])
def test_a_plan_of_another_kind_is_refused_by_name(name, plan):
    for model in (given_decoder("pairwise"), build("windowed")):
        with pytest.raises(ValueError, match=name):
            model.generate(WORDS[:, :4] if model.config.takes_structure else TOKENS[:, :9], **{name: plan})
        with pytest.raises(ValueError, match="attention_mask"):
            model.generate(TOKENS[:, :9], attention_mask=torch.ones(1, 1, 9, 9).bool())
        with pytest.raises(ValueError, match="cache must be"):
            model.generate(TOKENS[:, :9], position_ids=torch.ones(1, 20, dtype=torch.long), cache="dynamic")


CHANGED = [
    *(
        ("windowed", name, value)
        for name, value in (("coupling", "unknown"), ("coupling", "sequential"), ("windowed", False))
    ),
    *(("windowed", name, value) for name, value in (("relation_range", [-1, 1]), ("position_encoding", "learned"))),
    *(("coupled", name, value) for name, value in (("pair_maps", ["uniform"]), ("pair_maps", ["unknown"]), ("sink", True))),
    *(("coupled", name, value) for name, value in (("relation_range", [-2, 2]), ("absolute_positions", "all"))),
]


@pytest.mark.parametrize(("model", "name", "value"), CHANGED)
def test_a_field_of_structure_that_changes_after_loading_says_to_load_again(model, name, value):
    tokens, model = TOKENS if model in DECODERS else TWO, build(model)
    model(tokens)
    setattr(model.config, name, value)
    calls = [model, model.model, *([model.generate] if model.can_generate() else [])]
    for call in calls:
        with pytest.raises(ValueError, match=f"from_pretrained\\(folder, {name}="):
            call(tokens)


@pytest.mark.parametrize("kind", [CoupledGPTConfig, PairwiseBertConfig])
def test_configurations_of_given_structure_refuse_what_they_cannot_mean(kind):
    unfit = {
        CoupledGPTConfig: [
            {"num_relations": 3},
            {"num_relations": 3, "coupling": "given", "position_encoding": "learned"},
            {"position_levels": 2, "coupling": "given", "position_encoding": "alibi"},
            {"num_relations": 3, "coupling": "given", "relation_range": [0, 1]},
        ],
        PairwiseBertConfig: [
            {"num_relations": 3},
            {"position_levels": 2},
            {"absolute_positions": "text", "pair_maps": ["given"]},
            {"num_relations": 3, "pair_maps": ["given"], "relation_range": [-1, 1]},
            {"num_labels": 0},
        ],
    }[kind]
    for options in unfit:
        with pytest.raises((ValueError, StrictDataclassError), match=next(iter(options))):
            kind(**options)


@pytest.mark.parametrize(
    "slip", ["pair_map", "couplng", "relations_range", "position_encodings", "num_relation", "window_ed"]
)
def test_a_slip_in_the_name_of_a_field_of_structure_is_named(slip, tmp_path):
    kind = PairwiseBertConfig if slip == "pair_map" else CoupledGPTConfig
    with pytest.raises(ValueError, match=slip):
        kind(**{slip: ["given"]})
    # Other names are kept, as by stock configurations.
    kind(remark="for a talk", sep_token_id=None).save_pretrained(tmp_path)
    assert kind.from_pretrained(tmp_path).remark == "for a talk"


def test_every_argument_stands_in_the_signature_of_every_class_so_that_trainer_keeps_its_column():
    for kind in (CoupledGPTForCausalLM, CoupledGPTModel, PairwiseBertForTokenClassification, PairwiseBertModel):
        named = {"input_ids", "inputs_embeds", "attention_mask", "position_ids", "pair_map", "position_bias"}
        assert named <= {*inspect.signature(kind.forward).parameters}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_states_of_any_integers_are_read_alike(dtype):
    model, states = build(SETTLES).model, torch.ones_like(TWO)
    assert torch.equal(model(TWO, states=states.to(dtype))[0], model(TWO, states=states)[0])


def test_shapes_of_what_is_given_for_pairs():
    shape = PairShape(batch=2, heads=3, queries=2, keys=4)
    for legal in ((1, 2, 4), (2, 2, 4), (1, 3, 2, 4), (2, 1, 2, 4)):
        assert read_pair_map(torch.zeros(legal, dtype=torch.int32), shape, 1).shape[-2:] == (2, 4)
    for unfit in ((2, 4), (3, 2, 4), (2, 4, 4), (2, 2, 2, 4), (1, 1, 3, 2, 4)):
        with pytest.raises(ValueError, match="pair_map"):
            read_pair_map(torch.zeros(unfit, dtype=torch.int32), shape, 1)
    visible, bias = read_pair_mask(torch.tensor([[[[0.0, -1.5, -torch.inf, torch.finfo().min]] * 2]]), shape)
    assert visible[0, 0, 0].tolist() == [True, True, False, False] and bias[0, 0, 0].tolist() == [0.0, -1.5, 0.0, 0.0]


@pytest.mark.parametrize("values", [[0.0, 0.0, float("-inf")], [1.0, 1.0, float("nan")], [1, 7, 1]])
def test_masks_of_padding_that_are_no_zeros_and_ones_are_refused(values):
    tokens = torch.tensor([[1, 2, 3]])
    encoder = PairwiseBertForTokenClassification(
        PairwiseBertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    )
    decoder = CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    for model in (encoder, decoder):
        with pytest.raises(ValueError, match="of 0, for padding, and 1"):
            model.eval()(tokens, attention_mask=torch.tensor([values]), position_ids=torch.tensor([[1, 2, 3]]))
