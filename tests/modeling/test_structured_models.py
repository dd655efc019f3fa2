"""Structure in models of others, against loops over pairs: forward passes, derivatives, caches and windows."""

import copy
from itertools import product

import pytest
import torch
from cases import in_turn
from structured_subjects import COLUMNS, RELATIONS, TOKENS, ids_of, map_of, plain, structured
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, StaticCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

import longhand
from longhand.modeling import coupled_pair_map

KINDS = ("llama", "mistral", "gemma3", "bert")
DECODERS = KINDS[:3]
ENTER = ("score", "key", "query")
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_tables_of_zeros_and_calls_without_structure_change_no_bit(kind, implementation):
    expected = plain(kind, implementation)(ids_of()).logits
    model = longhand.with_structure(plain(kind, implementation), num_relations=RELATIONS)
    assert torch.equal(model(ids_of()).logits, expected)
    exact = {"atol": 0.0, "rtol": 0.0} if implementation == "eager" else CLOSE
    torch.testing.assert_close(model(ids_of(), pair_map=map_of()).logits, expected, **exact)
    trained = structured(kind, implementation)
    assert torch.equal(trained(ids_of()).logits, expected)
    assert (trained(ids_of(), pair_map=map_of()).logits - expected).abs().max() > 0.1


def loops(tables, pair_map, enter):
    """An attention function that computes every score of every pair by itself, by the table of the module's layer."""

    def attend(module, query, key, value, attention_mask, scaling, **kwargs):
        key, value = (states.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for states in (key, value))
        scores, table = torch.zeros(*query.shape[:3], key.shape[2]), tables[module.layer_idx]
        for row, head, one, other in torch.cartesian_prod(*map(torch.arange, scores.shape)).tolist():
            asked, shown = query[row, head, one], key[row, head, other]
            own = pair_map[row % len(pair_map)]
            relation = int(own[one, other] if own.ndim == 2 else own[head, one, other])
            added = table[relation, head] if relation >= 0 else torch.zeros_like(table[0, head])
            if enter == "score":
                score = asked @ shown * scaling + added
            elif enter == "key":
                score = asked @ (shown + added) * scaling
            else:
                score = (asked + added) @ shown * scaling
            scores[row, head, one, other] = score
        if attention_mask is not None:
            scores = scores + attention_mask
        return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None

    AttentionInterface.register("loops", attend)
    AttentionMaskInterface.register("loops", ALL_MASK_ATTENTION_FUNCTIONS["eager"])


@pytest.mark.parametrize(("place", "kind"), in_turn(list(product([(), (4,)], ENTER)), KINDS))
def test_every_implementation_is_a_loop_over_pairs(place, kind):
    """Wherever relations enter, with one map and with a map for each head."""
    heads, enter = place
    ids, pair_map = ids_of(2, 5), map_of(2, 5, *heads)
    outputs, slopes = [], []
    for implementation in ("eager", "sdpa"):
        model = structured(kind, implementation, num_relations=RELATIONS, relations_enter=enter)
        outputs.append(model(ids, pair_map=pair_map).logits)
        outputs[-1].square().mean().backward()
        slopes.append(model.structure.table.grad)
    loops(model.structure.table, pair_map, enter)
    model.structure.table.grad = None
    looped = plain(kind)
    looped.set_attn_implementation("loops")
    expected = looped(ids).logits
    expected.square().mean().backward()
    for output, slope in zip(outputs, slopes, strict=True):
        torch.testing.assert_close(output, expected, **CLOSE)
        torch.testing.assert_close(slope, model.structure.table.grad, atol=1e-4, rtol=1e-4)


MASK_OF_HEADS = torch.ones(2, 4, TOKENS, TOKENS).tril().bool()


def assert_flex_attention_agrees(kind, **given):
    expected = structured(kind, "sdpa")(ids_of(), pair_map=map_of(), **given).logits
    with torch.no_grad():
        output = structured(kind, "flex_attention")(ids_of(), pair_map=map_of(), **given).logits
    torch.testing.assert_close(output, expected, **CLOSE)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("kind", KINDS)
def test_flex_attention_agrees(kind, uncompiled):
    assert_flex_attention_agrees(kind)
    assert_flex_attention_agrees(kind, attention_mask=MASK_OF_HEADS)


# It is compiled for half a minute.
@pytest.mark.release
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_flex_attention_agrees(kind):
    assert_flex_attention_agrees(kind, attention_mask=MASK_OF_HEADS)


@pytest.mark.parametrize(
    ("subject", "steps"),
    in_turn(list(product([False, True], DECODERS)), [[COLUMNS - 1, 1], [1] * COLUMNS, [4, 5, 6], [8, 1, 6]]),
)
def test_parts_beside_a_cache_are_the_whole(subject, steps):
    """In a cache that grows, and in a static one."""
    static, kind = subject
    model, ids, pair_map = structured(kind, "sdpa"), ids_of(2, COLUMNS), map_of(2, COLUMNS)
    expected = model(ids, pair_map=pair_map).logits
    cache = StaticCache(model.config, max_cache_len=COLUMNS + 4) if static else DynamicCache(config=model.config)
    parts, before = [], 0
    for tokens in steps:
        end = before + tokens
        part = {"pair_map": pair_map[:, before:end, :end], "cache": cache}
        parts.append(model(ids[:, before:end], **part).logits)
        before = end
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_padding_changes_nothing(kind, side, implementation):
    model, ids, pair_map = structured(kind, implementation), ids_of(), map_of()
    expected = model(ids, pair_map=pair_map).logits
    around = (3, 0) if side == "left" else (0, 3)
    mask = torch.nn.functional.pad(torch.ones_like(ids), around)
    given = {
        "pair_map": torch.nn.functional.pad(pair_map, (*around, *around), value=-1),
        "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
        "attention_mask": mask,
    }
    output = model(torch.nn.functional.pad(ids, around), **given).logits
    torch.testing.assert_close(output[mask.bool()], expected.flatten(0, 1), **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_bias_and_a_mask_of_pairs_are_read_beside_a_map(kind, implementation):
    model, table = structured(kind, implementation, num_relations=RELATIONS, share_layers=True), None
    table, pair_map = model.structure.table[0], map_of()
    bias = torch.randn(1, 4, TOKENS, TOKENS, generator=torch.Generator().manual_seed(5))
    seen = torch.rand(2, 1, TOKENS, TOKENS, generator=torch.Generator().manual_seed(6)) > 0.3
    seen |= torch.eye(TOKENS, dtype=torch.bool)
    added = torch.cat([table, table.new_zeros(1, 4)])[pair_map].permute(0, 3, 1, 2) + bias
    lowest = torch.finfo(torch.float32).min
    expected = plain(kind)(ids_of(), attention_mask=added.where(seen, lowest)).logits
    for mask in (seen, torch.where(seen, 0.0, lowest), torch.where(seen, 0.0, -torch.inf)):
        output = model(ids_of(), pair_map=pair_map, position_bias=bias, attention_mask=mask).logits
        torch.testing.assert_close(output, expected, **CLOSE)


@pytest.mark.parametrize("rows", [1, 2])
def test_ids_of_several_levels_are_the_map_of_their_differences(rows):
    ids = torch.randint(0, 4, (rows, 2, TOKENS), generator=torch.Generator().manual_seed(4))
    model = structured(levels=2, relation_range=(-1, 2))
    pair_map = coupled_pair_map(ids, ids, (-1, 2), windowed=False)
    expected = model(ids_of(), pair_map=pair_map).logits
    assert torch.equal(model(ids_of(), position_ids=ids).logits, expected)
    own = torch.arange(TOKENS).expand(2, -1)
    assert torch.equal(model(ids_of(), position_ids=own, pair_map=pair_map).logits, expected)
    cache = DynamicCache(config=model.config)
    first = model(ids_of()[:, :4], position_ids=ids[..., :4], cache=cache).logits
    rest = model(ids_of()[:, 4:], position_ids=ids, cache=cache).logits
    torch.testing.assert_close(torch.cat([first, rest], dim=1), expected, **CLOSE)


def test_own_ids_that_jump_are_those_of_one_text():
    ids = torch.tensor([[5, 6, 7, 5, 6, 7, 7, 6, 5]])
    mask = torch.ones(2, TOKENS, dtype=torch.long)
    model = structured(implementation="sdpa")
    expected = model(ids_of(), pair_map=map_of(), position_ids=ids, attention_mask=mask).logits
    assert torch.equal(model(ids_of(), pair_map=map_of(), position_ids=ids).logits, expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_derivatives_are_those_of_their_own_call(reentrant):
    slopes = []
    for checkpointed in (False, True):
        model = structured(implementation="sdpa", num_relations=RELATIONS).requires_grad_(True).train()
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        # Both calls are made before the first derivative is asked for.
        losses = [model(ids_of(), pair_map=pair_map).logits.square().mean() for pair_map in (map_of(), map_of() % RELATIONS)]
        torch.stack(losses).sum().backward()
        slopes.append([weights.grad for weights in model.parameters()])
    torch.testing.assert_close(slopes[1], slopes[0], **CLOSE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_finite_and_near(kind, implementation, dtype):
    expected = structured(kind, implementation)(ids_of(), pair_map=map_of()).logits
    hidden = torch.ones(2, TOKENS, dtype=torch.long)
    hidden[0, :2] = 0
    model = structured(kind, implementation)
    with torch.autocast("cpu", dtype=dtype):
        output = model(ids_of(), pair_map=map_of()).logits
        assert model(ids_of(), pair_map=map_of(), attention_mask=hidden).logits.isfinite().all()
    torch.testing.assert_close(output.float(), expected, atol=0.3, rtol=0.1)
    output.float().square().mean().backward()
    assert model.structure.table.grad.isfinite().all()
    halved = structured(kind, implementation).to(dtype)
    assert halved(ids_of(), pair_map=map_of()).logits.isfinite().all()


def test_a_copy_has_structure_of_its_own():
    model = structured()
    copied = copy.deepcopy(model)
    expected = model(ids_of(), pair_map=map_of()).logits
    assert torch.equal(copied(ids_of(), pair_map=map_of()).logits, expected)
    with torch.no_grad():
        copied.structure.table.zero_()
    assert torch.equal(model(ids_of(), pair_map=map_of()).logits, expected)
    assert not torch.equal(copied(ids_of(), pair_map=map_of()).logits, expected)


@pytest.mark.parametrize("enter", ["score", "key", "query"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_structure_is_read_under_autocast(implementation, dtype, enter):
    model = structured("llama", implementation, num_relations=RELATIONS, relations_enter=enter)
    expected, plain_answer = model(ids_of(), pair_map=map_of()).logits, model(ids_of()).logits
    with torch.autocast("cpu", dtype):
        found = model(ids_of(), pair_map=map_of()).logits
    assert (found - expected).abs().max() < 0.1 * (plain_answer - expected).abs().max()
