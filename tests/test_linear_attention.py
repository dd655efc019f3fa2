"""Linear attention on a ring: losses and gradients as the paper writes them, and what its three theorems say of training."""

import numpy as np
import pytest
import torch
from tqdm.auto import tqdm

from longhand.hub_cards.evaluation.results import read_results
from longhand.hub_cards.research.__main__ import main
from longhand.hub_cards.research.ring import study as command
from longhand.hub_cards.research.ring.linear_attention import (
    AbsoluteLinearAttention,
    RelativeLinearAttention,
    population_losses,
    ring_target,
    window_pairs,
)

N, WINDOW, D = 9, 4, 6
ALPHA, BETAS = 1.5, [0.5, -0.25]


def unit_vector(seed=0, size=D):
    return torch.nn.functional.normalize(torch.randn(size, generator=torch.Generator().manual_seed(seed)), dim=0)


def small_model(relative, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return RelativeLinearAttention(N, D, generator) if relative else AbsoluteLinearAttention(N, unit_vector(), generator)


def training_loss(model, target, pairs):
    return population_losses(model.effective_matrix(), model.value, target, unit_vector(), pairs).sum()


def tokens_outside(windows_shown, count, seed=0):
    """(count, N, D) standard normal tokens, 0 where `windows_shown` (N,) is."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, N, D, generator=generator) * windows_shown[:, None]


def test_target_is_the_task():
    x, theta = tokens_outside(torch.ones(N), 1)[0].double(), unit_vector().double()
    answers = ring_target(N, ALPHA, BETAS).double() @ (x @ theta)
    for i in range(N):
        y = ALPHA * theta @ x[i]
        for k, beta in enumerate(BETAS, start=1):
            y += beta * (theta @ x[(i - k) % N] + theta @ x[(i + k) % N])
        assert answers[i] == pytest.approx(float(y))


@pytest.mark.parametrize("window", [1, 4, 7, 9])
def test_pairs_count_windows(window):
    for augmented in (False, True):
        counted = torch.zeros(N, N)
        for shift in range(N if augmented else 1):
            positions = [(shift + t) % N for t in range(window)]
            for i in positions:
                counted[i, positions] += 1
        assert torch.equal(window_pairs(N, window, augmented), counted)


def test_absolute_predictions_are_the_literal_sums():
    model, x = small_model(relative=False), tokens_outside(torch.ones(N), 3)
    predicted = model(x)
    for i in range(N):
        p, v = model.position_vectors, model.value
        literal = sum((p[i] @ p[r]) * (x[:, r] @ v) for r in range(N))
        assert torch.allclose(predicted[:, i], literal, atol=1e-5)


def test_relative_predictions_are_the_literal_sums():
    model, x = small_model(relative=True), tokens_outside(torch.ones(N), 3)
    predicted = model(x)
    for i in range(N):
        p, u, v = model.position_vectors, model.query, model.value
        literal = sum((p[(i - r) % N] @ u) * (x[:, r] @ v) for r in range(N))
        assert torch.allclose(predicted[:, i], literal, atol=1e-5)


@pytest.mark.parametrize("relative", [False, True])
def test_relative_models_alone_commute_with_shifts(relative):
    model, x = small_model(relative), tokens_outside(torch.ones(N), 3)
    shifted = model(x.roll(2, dims=1))
    assert torch.allclose(shifted, model(x).roll(2, dims=1), atol=1e-5) == relative


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("window", [None, 1, WINDOW])
@torch.no_grad()
def test_population_loss_is_the_mean_of_a_large_sample(relative, window):
    """Errors are normal, so the mean of their squares has a relative deviation of sqrt(2 / count)."""
    count, model, theta = 40_000, small_model(relative), unit_vector()
    shown = torch.ones(N) if window is None else (torch.arange(N) < window).float()
    target = ring_target(N, ALPHA, BETAS)
    x = tokens_outside(shown, count)
    sampled = (model(x) - (x @ theta) @ target.T).square().mean(0) * shown
    pairs = None if window is None else window_pairs(N, window)
    expected = population_losses(model.effective_matrix(), model.value, target, theta, pairs)
    assert torch.allclose(sampled, expected, rtol=5 * (2 / count) ** 0.5, atol=1e-7)
    assert (expected[shown > 0] > 0.01).all() and (expected[shown == 0] == 0).all()


def test_absolute_gradient_is_that_of_the_paper():
    """The expectation of App. D.1's gradient: 4 sum_r (p_k.p_r - T_kr) p_r over the window, and 0 outside."""
    model, target = small_model(relative=False), ring_target(N, ALPHA, BETAS[:1])
    training_loss(model, target, window_pairs(N, WINDOW)).backward()
    p = model.position_vectors.detach()
    for k in range(N):
        gradient = torch.zeros(D)
        if k < WINDOW:
            gradient = 4 * sum((p[k] @ p[r]) * p[r] for r in range(WINDOW)) - 4 * ALPHA * p[k]
            gradient -= 4 * BETAS[0] * sum(p[r] for r in (k - 1, k + 1) if 0 <= r < WINDOW)
        assert torch.allclose(model.position_vectors.grad[k], gradient, atol=1e-5)


def test_augmented_gradient_is_that_of_the_paper():
    """Eq. D.5 without decay, for a window of 2w + 1 positions."""
    w, model, target = 1, small_model(relative=False), ring_target(N, ALPHA, BETAS[:1])
    training_loss(model, target, window_pairs(N, 2 * w + 1, augmented=True)).backward()
    p = model.position_vectors.detach()
    for k in range(N):
        neighbours = [(2 * w + 1 - abs(r), p[(k + r) % N]) for r in range(-2 * w, 2 * w + 1)]
        flow = -4 * sum(weight * (p[k] @ other) * other for weight, other in neighbours)
        flow = flow + 4 * (2 * w + 1) * ALPHA * p[k] + 8 * w * BETAS[0] * (p[(k + 1) % N] + p[k - 1])
        assert torch.allclose(model.position_vectors.grad[k], -flow, atol=1e-4)


def test_relative_gradients_are_those_of_the_paper():
    """App. D.3: that of a_k once v is theta, and Lemma D.2's of v, in expectation."""
    model, target, theta = small_model(relative=True), ring_target(N, ALPHA, BETAS[:1]), unit_vector()
    a, pairs = model.relation_weights().detach(), window_pairs(N, WINDOW)
    beta = BETAS[0]
    training_loss(model, target, pairs).backward()
    squares = 2 * sum(a[i - r] ** 2 for i in range(WINDOW) for r in range(WINDOW))
    v_gradient = squares * model.value - (2 * ALPHA * WINDOW * a[0] + 2 * beta * (WINDOW - 1) * (a[1] + a[-1])) * theta
    assert torch.allclose(model.value.grad, v_gradient, atol=1e-4)

    model.zero_grad()
    model.value.data.copy_(theta)
    training_loss(model, target, pairs).backward()
    for k in range(-(N // 2), N // 2 + 1):
        gradient = 2 * max(WINDOW - abs(k), 0) * float(a[k])
        gradient -= {0: 2 * WINDOW * ALPHA, 1: 2 * (WINDOW - 1) * beta, -1: 2 * (WINDOW - 1) * beta}.get(k, 0)
        assert torch.allclose(model.position_vectors.grad[k], gradient * model.query, atol=1e-5)


@pytest.fixture(scope="module")
def first_run():
    """The first published seed of Fig. 9's setting, rows by method, and the learned matrices."""
    with tqdm(disable=True) as bar:
        rows, matrices = command.run_setting(command.SETTINGS[0], seed=0, steps=3000, num_samples=5000, bar=bar)
    return {method: [row for row in rows if row["model"] == method] for method in command.METHODS}, matrices


def test_relative_positions_find_the_task(first_run):
    """Proposition 5.1, third part: a_0 = alpha, a_1 = a_-1 = beta and all others 0, whatever v started from."""
    rows, matrices = first_run
    assert torch.allclose(matrices["rpe"], command.SETTINGS[0].target, atol=1e-3)
    assert max(row["test_loss"] for row in rows["rpe"]) < 1e-5


def test_absolute_positions_learn_nothing_outside_the_window(first_run):
    """Proposition 5.1, first part."""
    rows, matrices = first_run
    setting = command.SETTINGS[0]
    inside = torch.arange(command.NUM_POSITIONS) < setting.window
    block = setting.target * (inside[:, None] & inside)
    assert torch.allclose(matrices["ape"], block, atol=2e-3)
    losses = np.array([row["test_loss"] for row in rows["ape"]])
    assert losses[setting.window :] == pytest.approx(command.ALPHA**2 + 2 * 0.5**2, abs=1e-3)
    # The first and the last position of the window each lack the one neighbour that was padding.
    assert losses[[0, setting.window - 1]] == pytest.approx(0.5**2, abs=1e-3)
    assert losses[1 : setting.window - 1] == pytest.approx(0, abs=1e-4)


def test_augmentation_learns_the_pairs_of_a_window_and_no_others(first_run):
    """Proposition 5.1, second part: each position is shown in the end, and each is wrong all the same."""
    rows, matrices = first_run
    setting = command.SETTINGS[0]
    seen = setting.pairs("ape_augmented") > 0
    matrix = matrices["ape_augmented"]
    assert torch.allclose(matrix[seen], setting.target[seen], atol=1e-3)
    assert 0.5 < float(matrix[~seen].square().mean()) * command.HIDDEN_SIZE / command.ALPHA**2 < 2
    losses = torch.tensor([row["test_loss"] for row in rows["ape_augmented"]])
    assert torch.allclose(losses, (matrix * ~seen).square().sum(1), atol=1e-3)
    assert losses.min() > 0.1


def test_samples_agree_with_expectations(first_run):
    for rows in first_run[0].values():
        sampled, expected = (np.array([row[key] for row in rows]) for key in ("sampled_test_loss", "test_loss"))
        assert sampled == pytest.approx(expected, rel=5 * (2 / 5000) ** 0.5)
        assert not np.array_equal(sampled, expected)


def test_published_rows_can_be_made_again(first_run):
    published = read_results(command.RESULTS)
    for method, rows in first_run[0].items():
        kept = [row for row in published if (row["model"], row["window"], row["seed"]) == (method, 10, 0)]
        for key in ("position", "test_loss", "sampled_test_loss", "training_loss"):
            assert [row[key] for row in rows] == pytest.approx([row[key] for row in kept], rel=1e-2, abs=1e-6)


@pytest.mark.parametrize("setting", command.SETTINGS)
def test_published_losses_are_those_of_the_theory(setting):
    own = [row for row in read_results(command.RESULTS) if row["window"] == setting.window]
    assert {row["neighbours"] for row in own} == {setting.neighbours}
    assert len(own) == 3 * len(command.METHODS) * command.NUM_POSITIONS
    for method in command.METHODS:
        theory = setting.theoretical_losses(method).numpy()
        for seed in range(3):
            rows = [row for row in own if (row["model"], row["seed"]) == (method, seed)]
            assert [row["position"] for row in rows] == list(range(1, command.NUM_POSITIONS + 1))
            losses = np.array([row["test_loss"] for row in rows])
            if method == "ape_augmented":
                assert losses.mean() == pytest.approx(theory.mean(), rel=0.25)
            else:
                assert losses == pytest.approx(theory, abs=1e-3)
    squares = command.ALPHA**2 + 2 * sum(beta**2 for beta in setting.betas)
    assert setting.theoretical_losses("ape")[setting.window :].tolist() == pytest.approx([squares] * (51 - setting.window))


def test_command_writes_rows_and_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "RESULTS", tmp_path / command.RESULTS.name)
    main(["ring", "--seeds", "5", "--steps", "2", "--num_samples", "3"])
    rows = read_results(tmp_path / "losses.jsonl")
    assert len(rows) == 2 * 3 * 51 and {row["seed"] for row in rows} == {5}
    assert {row["num_samples"] for row in rows} == {3} and {row["steps"] for row in rows} == {2}
    assert {file.name for file in tmp_path.iterdir()} == {
        "losses.jsonl",
        "losses.png",
        "matrices.png",
    }
    shown = capsys.readouterr()
    assert "ape_augmented" in shown.out and "training:" not in shown.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--steps", "0"], "--steps must be an integer of at least 1, got 0"),
        (["--num_samples", "-5"], "--num_samples must be an integer of at least 1, got -5"),
        (["--seeds", "0", "0"], "--seeds must be different numbers from 0 on, got 0 0"),
        (["--seeds", "-1"], "--seeds must be different numbers from 0 on, got -1"),
    ],
)
def test_command_refuses_bad_arguments(arguments, reason, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["ring", *arguments])
    assert stopped.value.code == 2 and capsys.readouterr().err == f"error: {reason}\n"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: ring_target(4, 1.0, [0.5, 0.2]), "num_positions must be at least 5 for 2 betas, got 4"),
        (lambda: ring_target(0, 1.0, []), "num_positions must be at least 1 for 0 betas, got 0"),
    ],
)
def test_bad_input_is_named(call, reason):
    with pytest.raises(ValueError, match=f"^{reason}$"):
        call()
