"""Models of structure that a caller gives, with structure for them."""

from copy import deepcopy
from functools import cache

import pytest
import torch
from cases import all_but

from longhand.modeling import (
    CoupledGPTConfig,
    CoupledGPTForCausalLM,
    PairwiseBertConfig,
    PairwiseBertForTokenClassification,
)

BY_IDS = ["learned", "sinusoidal", "rotary", "pairwise", "alibi", "t5", "fire"]
"""Every encoding that reads ids."""


def given_encoder(**options) -> PairwiseBertForTokenClassification:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "num_labels": 7, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 24, "initializer_range": 0.5, "pair_maps": ["given"], "max_position_embeddings": 12}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = PairwiseBertForTokenClassification(PairwiseBertConfig(**(sizes | options)))
    return model.double().eval()


def given_decoder(encoding: str, **options) -> CoupledGPTForCausalLM:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "max_position_ids": 60}
    own = {"coupling": "given", "position_encoding": encoding, "eos_token_id": 3, "bos_token_id": 1, "pad_token_id": 0}
    return CoupledGPTForCausalLM(CoupledGPTConfig(**(sizes | own | options))).double().eval()


WORDS = torch.tensor([[17, 19, 20, 13, 0, 49, 3, 17]])
"""A sentence with words of the ids that `$`, `<pad>`, `<unk>`, `=` and `<eos>` have in this package's vocabulary."""


@cache
def built() -> dict[str, tuple]:
    """All subjects by name, built once; `given_subject` copies them."""
    return {name: (model, structure) for name, model, structure in _subjects()}


def given_subject(name: str) -> tuple:
    """A new model of structure of the caller's, with structure for it."""
    torch.manual_seed(0)
    return deepcopy(built()[name])


def _subjects():
    """Models of structure of the caller's, with structure for them."""
    map_of_three = torch.randint(-1, 3, (1, 8, 8), generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[3, 1, 2, 2, 5, 7, 4, 0]])
    two = torch.stack([ids, ids.flip(1)], dim=1)
    yield "encoder, map", given_encoder(num_relations=3), {"pair_map": map_of_three}
    yield "encoder, window", given_encoder(num_relations=3, windowed=True, sink=True), {"pair_map": map_of_three}
    yield "encoder, ids", given_encoder(relation_range=[-2, 2]), {"position_ids": ids}
    yield "encoder, two levels", given_encoder(relation_range=[-2, 2, 0, 1], position_levels=2), {"position_ids": two}
    both = {"pair_map": map_of_three, "position_ids": ids}
    some = ["given", "relative", "none", "given"]
    yield "encoder, some heads", given_encoder(pair_maps=some, num_relations=3, absolute_positions="given"), both
    absolute = given_encoder(pair_maps=["none"], absolute_positions="given")
    yield "encoder, absolute", absolute, {"position_ids": ids}
    for encoding in BY_IDS:
        yield f"decoder, {encoding}", given_decoder(encoding), {"position_ids": ids}
        if encoding in ("learned", "sinusoidal", "rotary", "pairwise"):
            yield f"decoder, {encoding}, two levels", given_decoder(encoding, position_levels=2), {"position_ids": two}
    yield "decoder, map", given_decoder("pairwise", num_relations=3), {"pair_map": map_of_three}
    yield "decoder, map, no window", given_decoder("pairwise", num_relations=3, windowed=False), {"pair_map": map_of_three}


LIKE_OTHERS = (
    *("encoder, map", "encoder, ids", "decoder, learned, two levels"),
    *("decoder, sinusoidal", "decoder, rotary", "decoder, pairwise"),
)
"""Models each of whose settings another one has too: contracts of all try them before a release."""


@pytest.fixture(params=all_but(LIKE_OTHERS, built()))
def given(request):
    return given_subject(request.param)
