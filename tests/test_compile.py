"""`torch.compile` of decoders: one graph where no shape depends on values, and the same numbers."""

import pytest
import torch

from longhand import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.data import TASKS, EvaluationBatches

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
    """Cases of which all after the first are thorough: each takes seconds to trace."""
    first, *others = cases
    return [first, *(pytest.param(case, marks=pytest.mark.thorough) for case in others)]


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


@pytest.mark.parametrize("options", one_of(ALL_PAIRS.values()), ids=ALL_PAIRS)
def test_a_decoder_that_scores_all_pairs_is_one_graph_if_ids_are_given(options):
    given = {**ADDITION.family.config_options(ADDITION), "hidden_size": 16, "intermediate_size": 16, **options}
    model = CoupledGPTForCausalLM(CoupledGPTConfig(**given))
    batch = EvaluationBatches(ADDITION, (4, 4), 4, 0, "test", 4, collator=ADDITION.family.collator(model.config))[0]
    assert_one_graph(model, {name: batch[name] for name in ("input_ids", "position_ids", "labels")} | {"use_cache": False})


@pytest.mark.thorough
def test_a_window_compiles_with_breaks_and_the_same_numbers():
    model = CoupledGPTForCausalLM(CoupledGPTConfig(hidden_size=16, intermediate_size=16)).eval()
    batch = EvaluationBatches(ADDITION, (4, 4), 4, 0, "test", 4, collator=ADDITION.family.collator(model.config))[0]
    found = torch.compile(model, backend="eager")(**batch)
    torch.testing.assert_close(found.logits, model(**batch).logits, atol=1e-5, rtol=1e-5)
