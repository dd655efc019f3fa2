"""Which positions let linear attention generalize on a ring (paper 2, Sec. 5 and App. D; Figs. 9, 15 and 16).

The study trains absolute positions (APE), APE with augmentation by all circular shifts, and relative positions (RPE) by
gradient descent on the exact population loss. It writes the test loss at every position and what was learned (losses.jsonl),
and a picture of the losses:

OMP_NUM_THREADS=1 python -m longhand.hub_cards.research ring
"""

from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import torch

from longhand.data import make_generator
from longhand.hub_cards.evaluation import plots
from longhand.hub_cards.evaluation.results import Row, group_by, write_results
from longhand.hub_cards.research.ring.linear_attention import (
    AbsoluteLinearAttention,
    FactoredLinearAttention,
    RelativeLinearAttention,
    population_losses,
    ring_target,
    window_pairs,
)

RESULTS = Path(__file__).with_name("losses.jsonl")
METHODS = {"ape": "APE", "ape_augmented": "APE with augmentation", "rpe": "RPE"}
COLOURS = {"ape": plots.ORANGE, "ape_augmented": plots.PINK, "rpe": plots.BLUE}
NUM_POSITIONS = 51
HIDDEN_SIZE = 200

SEEDS = (0, 1, 2)
STEPS = 3000

ALPHA = 2.0
"""Weight of a position's own token. The paper gives no weights. App. D.2 needs alpha above the squared length of a fresh
position vector, which is about 1. Inner products can equal the task on a window only if the task is positive semidefinite;
with beta_k = 2^-k it is, for any number of neighbours."""

LEARNING_RATE = 0.04
"""Step size if training shows each pair of positions (with RPE, each relation) at most once; else it is divided by how
often training shows it."""

WEIGHT_DECAY = 4e-3
"""Share by which the first step shrinks every parameter. It falls linearly to 0, which stands for the infinitesimal decay
of the theorem: in 3,000 steps a vector without gradients shrinks by e^-6, and a vector with gradients ends where the loss
alone would take it."""


class Setting(NamedTuple):
    """A task of App. D: `window` positions are not padded in training, and `neighbours` on each side count."""

    window: int
    neighbours: int

    @property
    def betas(self) -> list[float]:
        return [2.0**-distance for distance in range(1, self.neighbours + 1)]

    @property
    def target(self) -> torch.Tensor:
        return ring_target(NUM_POSITIONS, ALPHA, self.betas)

    def pairs(self, method: str) -> torch.Tensor:
        return window_pairs(NUM_POSITIONS, self.window, augmented=method == "ape_augmented")

    @property
    def losses_of_ape(self) -> torch.Tensor:
        """Test losses (NUM_POSITIONS,) of APE in theory.

        p_k vanishes outside the window, so the model loses every weight of the task that is not between two positions of the
        window: alpha^2 + 2 sum beta_k^2 outside, and at the border beta_k^2 for each neighbour beyond it.
        """
        return ((self.pairs("ape") == 0) * self.target**2).sum(1)


SETTINGS = (Setting(window=10, neighbours=1), Setting(window=20, neighbours=5))
"""The settings of Fig. 9 and Fig. 15."""


def initial_model(method: str, seed: int) -> tuple[FactoredLinearAttention, torch.Tensor]:
    """A new model, and theta (HIDDEN_SIZE,) of length 1. Both kinds of APE start from the same vectors."""
    generator = torch.Generator().manual_seed(int(make_generator(seed, "linear-attention").integers(2**63)))
    theta = torch.nn.functional.normalize(torch.randn(HIDDEN_SIZE, generator=generator), dim=0)
    if method == "rpe":
        return RelativeLinearAttention(NUM_POSITIONS, HIDDEN_SIZE, generator), theta
    return AbsoluteLinearAttention(NUM_POSITIONS, theta, generator), theta


def train_model(
    model: FactoredLinearAttention, theta: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor, steps: int
) -> float:
    """Train by gradient descent with weight decay, p <- p - eta grad - epsilon p, on the paper's sum of population losses.

    Returns:
        The training loss at the end: a mean over supervised positions, as test losses are.
    """
    parameters = list(model.parameters())
    # One pair per position of the window shows a relation; one window per shift shows a pair under augmentation.
    shared = isinstance(model, RelativeLinearAttention)
    rate = LEARNING_RATE / float(pairs.sum(1).max() if shared else pairs.max())
    for step in range(steps):
        loss = population_losses(model.effective_matrix(), model.value, target, theta, pairs).sum()
        gradients = torch.autograd.grad(loss, parameters)
        kept = 1 - WEIGHT_DECAY * (1 - step / steps)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.mul_(kept).sub_(gradient, alpha=rate)
    with torch.no_grad():
        losses = population_losses(model.effective_matrix(), model.value, target, theta, pairs)
    return float(losses.sum() / pairs.diagonal().sum())


def run_setting(setting: Setting, seed: int) -> list[Row]:
    """Train and test every method.

    Returns:
        A row for each method and position. Positions count from 1, as in the paper: the window has positions 1 to `window`.
        Besides the losses, a row has what the method has learned: `error`, the largest difference of the matrix <v, theta> A
        from the task; `shown`, the same among the pairs of positions that training shows; `hidden`, the largest weight of a
        pair that it does not show; `outside`, the largest squared length of a vector of APE outside the window; `aligned`,
        the cosine of v and theta up to its sign.
    """
    rows = []
    for method in METHODS:
        model, theta = initial_model(method, seed)
        pairs, target = setting.pairs(method), setting.target
        row = {"model": method, **setting._asdict(), "alpha": ALPHA, "betas": setting.betas, "seed": seed, "steps": STEPS}
        row["training_loss"] = train_model(model, theta, target, pairs, STEPS)
        with torch.no_grad():
            matrix = model.effective_matrix()
            losses = population_losses(matrix, model.value, target, theta).tolist()
            matrix = (model.value @ theta) * matrix
            errors = (matrix - target).abs()
            row |= {"error": float(errors.max()), "shown": float(errors[pairs > 0].max())}
            row |= {"hidden": float(matrix[pairs == 0].abs().max())}
            row |= (
                {"outside": float(model.position_vectors[setting.window :].square().sum(1).max())} if method == "ape" else {}
            )
            row |= {"aligned": float(torch.nn.functional.cosine_similarity(model.value, theta, dim=0).abs())}
        rows += [row | {"position": position, "test_loss": loss} for position, loss in enumerate(losses, 1)]
    return rows


@plots.house_style
def plot_losses(rows: list[Row], file: Path) -> None:
    """Draw the test loss at every position, a panel for each setting."""
    figure, (panels,) = plots.new_figure(3.8, 1, len(SETTINGS), sharey=True)
    for axes, setting in zip(panels, SETTINGS, strict=True):
        for method, name in METHODS.items():
            own = [row for row in rows if row["model"] == method and row["window"] == setting.window]
            for runs in group_by(own, itemgetter("seed")).values():
                places, losses = zip(*map(itemgetter("position", "test_loss"), runs), strict=True)
                axes.plot(places, losses, color=COLOURS[method], linewidth=1, marker=".", markersize=3)
            axes.lines[-1].set_label(name)
        axes.plot(places, setting.losses_of_ape.numpy(), color=plots.BLACK, linestyle=":")
        axes.set(xlabel="position", yscale="log", xlim=(0, NUM_POSITIONS + 1), ylim=(2e-7, 30))
        axes.set_title(f"neighbours up to {setting.neighbours}", pad=18)
        plots.shade_trained(axes, (1, setting.window), "window of training: {}")
    panels[0].set_ylabel("test loss")
    # The closed form of APE runs on the line of APE: it is named at the border of the window, where it leaves the axes.
    plots.note(panels[1], "APE, closed form", (16, 3e-5), (8, 0), plots.BLACK)
    plots.name_lines(panels[1])
    plots.save_figure(figure, file)


def run() -> None:
    """Train and test every method in every setting; write and draw the losses."""
    rows = [row for setting, seed in product(SETTINGS, SEEDS) for row in run_setting(setting, seed)]
    write_results(rows, RESULTS)
    plot_losses(rows, RESULTS.with_suffix(".png"))
