"""`torch.compile`, `torch.export` and ONNX: one graph of a decoder, and the same numbers."""

import pytest
import torch
from cases import all_but
from kinds import shipped_of_kinds
from structured_subjects import RELATIONS, ids_of, map_of, structured

import longhand
from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data import TASKS, EvaluationBatches
from longhand.data.batches import draw_batch
from longhand.hub_cards.checkpoints.load import load_checkpoint

ADDITION = TASKS["addition"]()
ALL_PAIRS = {
    "learned": {"position_encoding": "learned", "num_hidden_layers": 2, "attention_scale": "log_length", "qk_norm": True},
    "pairwise": {"windowed": False, "relation_range": [0, 1]},
    "rotary": {"position_encoding": "rotary"},
    "none": {"position_encoding": "none", "coupling": "sequential"},
    "t5": {"position_encoding": "t5", "coupling": "sequential"},
    "fire": {"position_encoding": "fire", "coupling": "sequential"},
}


def one_of(cases):
    """Cases of which all after the first are for a release: each takes seconds to trace."""
    first, *others = cases
    return [first, *(pytest.param(case, marks=pytest.mark.release) for case in others)]


@pytest.fixture(autouse=True)
def forget_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def assert_one_graph(model, batch):
    """Compare a model with its graph, in evaluation and in training, with a mask and without."""
    masked = {**batch, "attention_mask": torch.ones_like(batch["input_ids"])}
    for mode in (model.eval, model.train):
        mode()
        graph = torch.compile(model, fullgraph=True, backend="eager")
        for inputs in (batch, masked):
            expected, found = model(**inputs), graph(**inputs)
            torch.testing.assert_close(found.logits, expected.logits, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(found.loss, expected.loss, atol=1e-5, rtol=1e-5)


@pytest.mark.release
@pytest.mark.parametrize("options", one_of(ALL_PAIRS.values()), ids=ALL_PAIRS)
def test_a_decoder_that_scores_all_pairs_is_one_graph_if_ids_are_given(options):
    given = {**ADDITION.family.config_options(ADDITION), "hidden_size": 16, "intermediate_size": 16, **options}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**given))
    batch = EvaluationBatches(ADDITION, (4, 4), 4, 0, "test", 4, collator=ADDITION.family.collator(model.config))[0]
    assert_one_graph(model, {name: batch[name] for name in ("input_ids", "position_ids", "labels")} | {"use_cache": False})


WINDOWED = CoupledGPTConfig(hidden_size=16, intermediate_size=16)


GIVEN, DERIVED = ("input_ids", "position_ids"), ("input_ids",)


@pytest.mark.parametrize("given", all_but([GIVEN], [GIVEN, DERIVED]), ids=["given ids", "derived ids"])
def test_a_windowed_decoder_is_one_graph_in_evaluation(given):
    model = CoupledGPTForCausalLM(WINDOWED).eval()
    batch = draw_batch(model, ADDITION, (4, 4), 4)
    inputs = {name: batch[name] for name in given}
    found = torch.compile(model, fullgraph=True, backend="eager")(**inputs, use_cache=False)
    torch.testing.assert_close(found.logits, model(**inputs).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.release
def test_a_windowed_decoder_learns_compiled_with_breaks_and_the_same_numbers():
    model = CoupledGPTForCausalLM(WINDOWED).train()
    batch = draw_batch(model, ADDITION, (4, 4), 4)
    found = torch.compile(model, backend="eager")(**batch)
    torch.testing.assert_close(found.loss, model(**batch).loss, atol=1e-5, rtol=1e-5)


def wrong_inputs(batch):
    """What a decoder refuses, each beside the rest of a batch."""
    tokens = batch["input_ids"].shape[1]
    ids, beyond = batch["position_ids"].clone(), batch["input_ids"].clone()
    ids[0, 0, 2], beyond[0, 1] = -4, 99
    pairs = torch.zeros(1, tokens, tokens, dtype=torch.long)
    return {
        "position_ids": batch | {"position_ids": ids},
        "input_ids": batch | {"input_ids": beyond},
        "attention_mask": batch | {"attention_mask": torch.full_like(beyond, 2)},
        "pair_map": {"input_ids": batch["input_ids"], "pair_map": pairs + 50},
        "position_bias": batch | {"position_bias": torch.full((1, 1, tokens, tokens), torch.nan)},
    }


def test_a_graph_of_a_decoder_refuses_the_values_that_the_model_refuses():
    model = CoupledGPTForCausalLM(WINDOWED).eval()
    drawn = draw_batch(model, ADDITION, (4, 4), 2)
    batch = {"input_ids": drawn["input_ids"], "position_ids": drawn["position_ids"].expand(2, -1, -1).contiguous()}
    graph = torch.compile(model, fullgraph=True, backend="eager")
    graph(**batch, use_cache=False)
    for name, inputs in wrong_inputs(batch).items():
        with pytest.raises(ValueError, match=name):
            model(**inputs, use_cache=False)
        with pytest.raises(RuntimeError, match=name):
            graph(**inputs, use_cache=False)


@pytest.mark.parametrize("way", all_but([("key", "aot_eager")], [("score", "eager"), ("key", "aot_eager")]), ids=str)
def test_a_graph_of_a_model_with_structure_refuses_relations_without_a_place_in_its_table(way):
    enter, backend = way
    model = structured("llama", "sdpa", num_relations=RELATIONS, relations_enter=enter)
    graph = torch.compile(model, fullgraph=True, backend=backend)
    expected = model(ids_of(), pair_map=map_of()).logits
    torch.testing.assert_close(graph(ids_of(), pair_map=map_of()).logits, expected, atol=1e-5, rtol=1e-5)
    for beyond in (RELATIONS, RELATIONS + 1, RELATIONS + 2, 100, -2):
        wrong = map_of().clone()
        wrong[..., 3, 2] = beyond
        with pytest.raises(RuntimeError, match="pair_map"):
            graph(ids_of(), pair_map=wrong)


class Logits(torch.nn.Module):
    """A model as a function from tokens, and ids if they are given, to logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, position_ids=None):
        return self.model(input_ids=input_ids, position_ids=position_ids, use_cache=False).logits


def inputs_of(model, task, digits, rows, gives_ids):
    batch = draw_batch(model, task, task.operand_lengths(digits), rows, split="train")
    ids = batch["position_ids"].expand(rows, -1, -1).contiguous()
    return (batch["input_ids"], ids) if gives_ids else (batch["input_ids"],)


def shapes(gives_ids):
    batch, tokens = torch.export.Dim("batch", max=2**12), torch.export.Dim("tokens", min=4, max=2**12)
    return ({0: batch, 1: tokens}, {0: batch, 2: tokens}) if gives_ids else ({0: batch, 1: tokens},)


@pytest.mark.parametrize("repeated", all_but([True], [False, True]), ids=["own ids", "repeated ids"])
def test_an_exported_graph_reads_the_ids_and_the_mask_of_each_row_of_any_batch(repeated):
    class Given(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, input_ids, position_ids, attention_mask):
            return self.model(input_ids, attention_mask, position_ids, use_cache=False).logits

    def inputs(rows, digits):
        batch = draw_batch(model, ADDITION, (digits, digits), rows)
        mask = torch.ones_like(batch["input_ids"])
        mask[0, :2] = 0
        ids = batch["position_ids"][:1].expand(rows, -1, -1)
        return batch["input_ids"], ids if repeated else ids.contiguous(), mask

    model = CoupledGPTForCausalLM(WINDOWED).eval()
    batch, tokens = torch.export.Dim("batch", max=2**12), torch.export.Dim("tokens", min=4, max=2**12)
    sizes = ({0: batch, 1: tokens}, {0: batch, 2: tokens}, {0: batch, 1: tokens})
    exported = torch.export.export(Given(model), inputs(2, 3), dynamic_shapes=sizes, strict=False).module()
    for rows, digits in ((2, 3), (3, 5), (1, 4)):
        input_ids, ids, mask = inputs(rows, digits)
        for own in (ids, torch.stack([row.roll(place, dims=1) for place, row in enumerate(ids)])):
            expected = model(input_ids, mask, own, use_cache=False).logits
            torch.testing.assert_close(exported(input_ids, own, mask), expected, atol=1e-5, rtol=1e-5)


SHIPPED = shipped_of_kinds("coupled_gpt")
JOINED = ("calculator",)
"""Models whose rule reads each row by the rule of its operation, which no graph can: they take ids."""


@pytest.mark.parametrize("name", one_of(SHIPPED))
@pytest.mark.thorough
def test_the_exported_graph_of_a_shipped_decoder_takes_any_batch_in_torch_and_in_onnxruntime(name, tmp_path):
    checkpoint = load_checkpoint(longhand.zoo(name))
    gives_ids = name in JOINED
    # The attention of torch that is fastest has no translation to ONNX.
    checkpoint.model.set_attn_implementation("eager")
    model, task = Logits(checkpoint.model.eval()), checkpoint.task.parts[0]
    example = inputs_of(checkpoint.model, task, 3, 2, gives_ids)
    exported = torch.export.export(model, example, dynamic_shapes=shapes(gives_ids), strict=False)
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    file = tmp_path / "model.onnx"
    torch.onnx.export(exported, dynamo=True, verbose=False).save(file)
    session = runtime.InferenceSession(file)
    for digits, rows in ((3, 2), (5, 3), (7, 1)):
        inputs = inputs_of(checkpoint.model, task, digits, rows, gives_ids)
        with torch.no_grad():
            expected = model(*inputs)
        torch.testing.assert_close(exported.module()(*inputs), expected, atol=1e-4, rtol=1e-4)
        feed = {own.name: values.numpy() for own, values in zip(session.get_inputs(), inputs, strict=True)}
        torch.testing.assert_close(torch.from_numpy(session.run(None, feed)[0]), expected, atol=1e-4, rtol=1e-4)
