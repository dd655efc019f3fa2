"""Loops of PairwiseBert: their number, what the loss adds for them, and when they stop."""

from functools import partial
from itertools import cycle, pairwise

import pytest
import torch
from position_subjects import assert_close, build, encode, tokens_of

from longhand.modeling import PairwiseBertForTokenClassification


def layer_calls(model) -> list[int]:
    """Filled with an entry for every time that the first layer is applied."""
    called = []
    model.model.layers[0].register_forward_hook(lambda *_: called.append(1))
    return called


@pytest.mark.parametrize(("num_loops", "drawn"), [(1, {1}), (2, {1, 2}), (5, {3, 4, 5}), (6, {3, 4, 5, 6})])
def test_layers_are_applied_a_random_number_of_times_in_training_and_always_as_often_in_evaluation(num_loops, drawn):
    model, input_ids = build("coupled window", num_loops=num_loops), tokens_of("1+5")
    called, counts = layer_calls(model), set()
    before = torch.get_rng_state()
    logits = model(input_ids).logits
    assert len(called) == num_loops and torch.equal(torch.get_rng_state(), before)
    assert torch.equal(model(input_ids).logits, logits)
    model.train()
    for _ in range(40):
        called.clear()
        counts.add(model.model(input_ids).num_loops)
        assert len(called) in drawn
    assert counts == drawn


def test_change_of_the_last_loop_is_part_of_the_loss_in_training_only():
    input_ids = tokens_of("_12+_95")
    labels = input_ids.clamp(max=10)
    plain, settling = build("loops"), build("loops", settle_weight=0.7)
    assert_close(settling(input_ids, labels=labels).loss, plain(input_ids, labels=labels).loss)
    losses = []
    for model in (plain.train(), settling.train()):
        torch.manual_seed(0)
        losses.append(model(input_ids, labels=labels).loss)
    torch.manual_seed(0)
    outputs = plain.model(input_ids, output_hidden_states=True)
    # Two layers a loop.
    change = (outputs.hidden_states[-1] - outputs.hidden_states[-3]).square().mean()
    assert outputs.num_loops >= 2
    assert_close(outputs.last_change, change)
    torch.testing.assert_close(losses[1] - losses[0], 0.7 * change)
    losses[1].backward()


def test_change_of_the_last_loop_counts_as_its_labels_do_among_accumulated_batches():
    input_ids = tokens_of("_12+_95")
    labels = input_ids.clamp(max=10)
    model = build("loops", settle_weight=0.7).train()
    losses = []
    for items in (None, 7, 28):
        torch.manual_seed(0)
        losses.append(model(input_ids, labels=labels, num_items_in_batch=items).loss)
    torch.testing.assert_close(
        torch.stack(losses), losses[0] * torch.tensor([1, 1, 0.25]), rtol=1e-6, atol=0, check_dtype=False
    )


def contraction(**options) -> PairwiseBertForTokenClassification:
    """A looped model whose state converges: what its layers add is small."""
    model = build("coupled window", num_hidden_layers=1, **options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name and "classifier" not in name:
                parameter *= 0.1
    return model


@pytest.mark.parametrize("tolerance", [0.1, 1e-3])
def test_loops_stop_when_the_state_has_settled_and_more_of_them_change_nothing(tolerance):
    input_ids = tokens_of("__123+__956", "____7+____2")
    model = contraction(num_loops=2, settle_tolerance=tolerance)
    settled = model.model(input_ids)
    states = contraction(num_loops=40).model(input_ids, output_hidden_states=True).hidden_states[1:]
    changes = torch.stack([(after - before).abs().amax((1, 2)) for before, after in pairwise(states)])
    loops = [next(loop for loop, change in enumerate(own, 2) if change <= tolerance) for own in changes.T]
    assert settled.num_loops == max(loops) < input_ids.shape[1] + 2
    for row, loop in enumerate(loops):
        assert_close(settled.last_hidden_state[row], states[loop - 1][row])
    torch.testing.assert_close(settled.last_hidden_state, states[-1], rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("tolerance", [1e-300, 1e-3, 0.1, 1.0])
@pytest.mark.parametrize("build_model", [contraction, partial(build, "coupled window", num_hidden_layers=1)])
def test_a_text_settles_as_if_it_were_alone(build_model, tolerance):
    texts = ["1+5", "_12+_95", "__123+__956", "___9999+______1"]
    model = build_model(num_loops=2, settle_tolerance=tolerance)
    together = model.model(**(inputs := encode("loops", *texts)))
    alone = [model.model(tokens_of(text)) for text in texts]
    assert together.num_loops == max(own.num_loops for own in alone)
    for row, own in enumerate(alone):
        assert_close(together.last_hidden_state[row][inputs.attention_mask[row] > 0], own.last_hidden_state[0])


def test_padding_need_not_settle():
    model, inputs = contraction(num_loops=2, settle_tolerance=0.01), encode("loops", "_12+_95", "1+5")
    expected = model.model(**inputs)
    present = inputs.attention_mask.unsqueeze(-1) > 0
    signs = cycle([1.0, -1.0])
    model.model.layers[0].register_forward_hook(
        lambda module, arguments, state: torch.where(present, state, torch.full_like(state, next(signs)))
    )
    swinging = model.model(**inputs)
    assert swinging.num_loops == expected.num_loops < 9
    assert_close(swinging.last_change, expected.last_change)
    assert_close(swinging.last_hidden_state[present[..., 0]], expected.last_hidden_state[present[..., 0]])


def test_state_that_does_not_settle_ends_after_so_many_loops_as_tokens_and_loops():
    model = build("coupled window", num_loops=2, settle_tolerance=1e-300)
    assert model.model(tokens_of("1+5")).num_loops == 5
    assert model.model(tokens_of("_12+_95")).num_loops == 9


def test_training_does_not_stop_at_a_settled_state():
    model = contraction(num_loops=4, settle_tolerance=100.0)
    assert model.model(tokens_of("1+5")).num_loops == 1
    model.train()
    assert {model.model(tokens_of("1+5")).num_loops for _ in range(30)} == {2, 3, 4}
