"""Linear attention on a ring: losses and gradients as the paper writes them, and what its three theorems say of training."""

import pytest
import torch

from longhand.hub_cards.research.__main__ import main
from longhand.hub_cards.research.theories import ring as command
from longhand.hub_cards.research.theories.ring import LinearAttention, population_losses, ring_target, window_pairs
from longhand.hub_cards.result_rows import read_results

N, WINDOW, D = 9, 4, 6
ALPHA, BETAS = 1.5, [0.5, -0.25]


def unit_vector(seed=0, size=D):
    return torch.nn.functional.normalize(torch.randn(size, generator=torch.Generator().manual_seed(seed)), dim=0)


def small_model(relative, seed=1):
    vectors = torch.randn(N, D, generator=torch.Generator().manual_seed(seed)) / D**0.5
    return LinearAttention(vectors, unit_vector(2 * relative), unit_vector(3) if relative else None)


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


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("window", [None, 1, WINDOW])
@torch.no_grad()
def test_population_loss_is_the_mean_of_a_large_sample(relative, window):
    """Errors are normal, so the mean of their squares has a relative deviation of sqrt(2 / count)."""
    count, model, theta = 40_000, small_model(relative), unit_vector()
    shown = torch.ones(N) if window is None else (torch.arange(N) < window).float()
    target = ring_target(N, ALPHA, BETAS)
    x = tokens_outside(shown, count)
    sampled = ((x @ model.value) @ model.matrix.T - (x @ theta) @ target.T).square().mean(0) * shown
    pairs = 1.0 if window is None else window_pairs(N, window)
    expected = population_losses(model.matrix, model.value, target, theta, pairs)
    assert torch.allclose(sampled, expected, rtol=5 * (2 / count) ** 0.5, atol=1e-7)
    assert (expected[shown > 0] > 0.01).all() and (expected[shown == 0] == 0).all()


@pytest.mark.parametrize("relative", [False, True])
def test_a_position_reads_another_with_the_weight_that_the_paper_gives(relative):
    model = small_model(relative)
    p, u = model.vectors, model.query
    literal = [[p[(i - r) % N] @ u if relative else p[i] @ p[r] for r in range(N)] for i in range(N)]
    assert torch.allclose(model.matrix, torch.tensor(literal))


def test_augmentation_keeps_a_matrix_of_differences_one():
    """Lemma D.1: if A depends on the difference of two positions at the start, it does so at every step."""
    offsets = (torch.arange(N)[:, None] - torch.arange(N)) % N
    vectors = torch.randn(N, generator=torch.Generator().manual_seed(3))[offsets] / N**0.5
    model = LinearAttention(vectors, unit_vector(size=N))
    pairs = window_pairs(N, WINDOW, augmented=True)
    command.train_model(model, model.value, ring_target(N, ALPHA, BETAS[:1]), pairs, steps=200)
    matrix = model.matrix.detach()
    assert torch.allclose(matrix, matrix[:, 0][offsets], atol=1e-5)
    assert (matrix[0, 0] - ALPHA).abs() < 0.5, "it was trained"


@pytest.mark.release
def test_published_rows_can_be_made_again():
    """The first seed of Fig. 9's setting. Proposition 5.1: RPE finds the task, APE the block of the window."""
    published = [row for row in read_results(command.RESULTS) if (row["window"], row["seed"]) == (10, 0)]
    for row, kept in zip(command.run_setting(command.SETTINGS[0], seed=0).results, published, strict=True):
        assert (row["model"], row["position"]) == (kept["model"], kept["position"])
        for name in ("test_loss", "training_loss", "error", "shown", "hidden", "aligned"):
            assert row[name] == pytest.approx(kept[name], rel=1e-2, abs=1e-5), name
        assert row["shown"] < 2e-3 and (row["error"] < 1e-3 or row["model"] != "rpe")
        assert row["model"] != "ape" or row["hidden"] < 2e-3


@pytest.mark.parametrize("setting", command.SETTINGS)
def test_published_losses_of_ape_are_those_of_the_theory(setting):
    theory = setting.losses_of_ape.tolist()
    squares = command.ALPHA**2 + 2 * sum(beta**2 for beta in setting.betas)
    assert theory[setting.window :] == pytest.approx([squares] * (51 - setting.window))
    own = [row for row in read_results(command.RESULTS) if (row["window"], row["model"]) == (setting.window, "ape")]
    assert [row["test_loss"] for row in own] == pytest.approx(3 * theory, abs=1e-3)


def test_published_matrices_and_losses_of_training_are_those_of_the_rows():
    shown = {row["model"]: torch.tensor(row["matrix"]) for row in read_results(command.RESULTS.with_stem("ring_matrices"))}
    target = command.SETTINGS[1].target
    assert (shown["rpe"] - target).abs().max() < 1e-2
    assert (shown["ape"] - target)[:20, :20].abs().max() < 1e-2 and shown["ape"][20:, 20:].abs().max() < 1e-2
    assert (shown["ape_augmented"] - target)[target > 0].abs().max() < 1e-2 < (shown["ape_augmented"] - target).abs().max()
    training = read_results(command.RESULTS.with_stem("ring_training"))
    for row in read_results(command.RESULTS):
        ends = {name: row[name] for name in ("model", "window", "seed")}
        own = [one["loss"] for one in training if ends.items() <= one.items()]
        assert own[-1] == pytest.approx(row["training_loss"], rel=1e-2, abs=1e-8) and own[0] > 1e6 * own[-1]


def test_the_command_writes_rows_and_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "RESULTS", tmp_path / command.RESULTS.name)
    monkeypatch.setattr(command, "STEPS", 2)
    main(["ring"])
    assert len(read_results(tmp_path / "ring.jsonl")) == 2 * 3 * 3 * 51
    assert {file.name for file in tmp_path.iterdir()} == {
        f"{name}.{kind}" for name in ("ring", "ring_training", "ring_matrices") for kind in ("jsonl", "png")
    }
