"""Which positions let linear attention generalize on a ring (paper 2, Sec. 5 and App. D; Figs. 9, 15 and 16).

The study trains absolute positions (APE), APE with augmentation by all circular shifts, and relative positions (RPE) by
gradient descent on the exact population loss. It writes the test loss at every position and what was learned, the training
loss over the steps and the matrices that were learned, and a picture of each (`ring.png`, `ring_training.png`,
`ring_matrices.png`):

OMP_NUM_THREADS=1 python -m longhand.hub_cards.research ring

Tokens x_1..x_n are vectors of independent standard normal numbers on a ring of n positions, theta a unit vector, and

    y_i = alpha <theta, x_i> + sum over k = 1..m of beta_k (<theta, x_{i-k}> + <theta, x_{i+k}>)        (5.1; D.4 for m > 1)

is the target. Training shows windows of the ring; outside the window x is 0. Attention depends on positions alone, so a
model is its effective matrix A and its value vector v: it predicts sum_r A_ir <v, x_r> (5.2). Losses are exact expectations
over x, which makes gradient descent on them the paper's population regime. Positions count from 0 here, from 1 in the paper
and in the rows of results.
"""

# Used by: whoever runs or imports it. Changed freely.

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes

from longhand.data.splits import make_generator
from longhand.hub_cards.evaluation import plots
from longhand.hub_cards.research.output import show_row, write_output
from longhand.hub_cards.result_rows import Row, group_by

RESULTS = Path(__file__).with_suffix(".jsonl")
METHODS = {"ape": "APE", "ape_augmented": "APE with augmentation", "rpe": "RPE"}
LINES = {"ape": "-", "ape_augmented": (0, (4, 4)), "rpe": "-"}
"""Both kinds of APE have nearly the same training loss: through the gaps of one the other is seen."""

COLOURS = {"ape": plots.ORANGE, "ape_augmented": plots.PINK, "rpe": plots.BLUE}
NUM_POSITIONS = 51
HIDDEN_SIZE = 200

SEEDS = (0, 1, 2)
STEPS = 3000

SHOWN_STEPS = 50
"""Steps between two training losses that are written."""

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


def ring_target(num_positions: int, alpha: float, betas: Sequence[float]) -> torch.Tensor:
    """The task as a matrix T with y_i = sum_r T_ir <theta, x_r>: `alpha` at r = i, `betas[k - 1]` at r = i - k and i + k.

    Returns:
        (num_positions, num_positions) float32, symmetric; its indices wrap around the ring.
    """
    by_offset = torch.zeros(num_positions)
    by_offset[0] = alpha
    for distance, beta in enumerate(betas, start=1):
        by_offset[[distance, -distance]] = beta
    return by_offset[ring_offsets(num_positions)]


def ring_offsets(num_positions: int) -> torch.Tensor:
    """(num_positions, num_positions) integers: i - r mod n, for position i that predicts and position r that it reads."""
    positions = torch.arange(num_positions)
    return (positions[:, None] - positions) % num_positions


def window_pairs(num_positions: int, window: int, augmented: bool = False) -> torch.Tensor:
    """How often training shows two positions together. An expected loss depends on the windows through this alone.

    Args:
        window: n_1, how many positions are not padded; they are the first ones.
        augmented: count all circular shifts of that window instead (D.4).

    Returns:
        (num_positions, num_positions) float32: pair (i, r) counts the windows in which i is supervised and x_r not padded.
    """
    shown = (torch.arange(num_positions) < window).float()
    if not augmented:
        return shown[:, None] * shown
    shifted = shown[ring_offsets(num_positions)]  # (position, shift)
    return shifted @ shifted.T


def population_losses(
    matrix: torch.Tensor, value: torch.Tensor, target: torch.Tensor, theta: torch.Tensor, pairs: torch.Tensor | float = 1.0
) -> torch.Tensor:
    """Expected squared error at every position, E l_i = sum_r |A_ir v - T_ir theta|^2, exact because x is white noise.

    With c = <v, theta>, each term is computed as (A_ir c - T_ir)^2 + A_ir^2 |v - c theta|^2. A sum of squares keeps rounding
    from making the loss of a nearly perfect model negative.

    Args:
        matrix: (n, n) A, the model's effective matrix.
        value: (d,) v.
        target: (n, n) T, see `ring_target`.
        theta: (d,) of length 1.
        pairs: (n, n) how often each pair is shown, see `window_pairs`. Summed over positions, the losses are then (D.2),
            (D.4) and (D.13). If it is 1, every pair is shown once, as in the paper's test.

    Returns:
        (n,) losses.
    """
    aligned = value @ theta
    errors = (matrix * aligned - target) ** 2 + matrix**2 * (value - aligned * theta).square().sum()
    return (pairs * errors).sum(1)


@dataclass(frozen=True)
class LinearAttention:
    """Factored linear attention: y_i = sum_r A_ir <v, x_r> (paper 2, Eq. 5.2).

    Attributes:
        vectors: (n, d) p, a vector for each position or relation, learned.
        value: (d,) v. With APE it is theta and is not trained: App. D.1 and D.2 grant this to the models that they show to
            fail. With RPE it starts at random and is learned (Lemma D.2).
        query: (d,) of length 1, the constant query u of RPE; None with APE.
    """

    vectors: torch.Tensor
    value: torch.Tensor
    query: torch.Tensor | None = None

    @property
    def matrix(self) -> torch.Tensor:
        """A (n, n): position i reads position r with weight A_ir.

        APE: A_ir = <p_i, p_r>, the attention's weights absorbed into the position vectors (Eq. D.1).
        RPE: A_ir = a_{i-r} with a_k = <p_k, u>, k mod n (Eqs. D.11, D.12).
        """
        if self.query is None:
            return self.vectors @ self.vectors.T
        return (self.vectors @ self.query)[ring_offsets(len(self.vectors))]


class Setting(NamedTuple):
    """A task of App. D: `window` positions are not padded in training, and `neighbours` on each side count."""

    window: int
    neighbours: int

    @property
    def betas(self) -> list[float]:
        """The weights of the neighbours on either side, the nearest first."""
        return [2.0**-distance for distance in range(1, self.neighbours + 1)]

    @property
    def target(self) -> torch.Tensor:
        """The task's matrix (NUM_POSITIONS, NUM_POSITIONS), see `ring_target`."""
        return ring_target(NUM_POSITIONS, ALPHA, self.betas)

    def pairs(self, method: str) -> torch.Tensor:
        """How often training shows two positions together to a method, see `window_pairs`."""
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


def initial_model(method: str, seed: int) -> tuple[LinearAttention, torch.Tensor]:
    """A new model, and theta (HIDDEN_SIZE,) of length 1. Both kinds of APE start from the same vectors.

    Position vectors start as independent normal vectors of expected squared length 1, as in App. D.2.
    """
    generator = torch.Generator().manual_seed(int(make_generator(seed, "linear-attention").integers(2**63)))
    theta = torch.nn.functional.normalize(torch.randn(HIDDEN_SIZE, generator=generator), dim=0)
    vectors = torch.randn(NUM_POSITIONS, HIDDEN_SIZE, generator=generator) / HIDDEN_SIZE**0.5
    if method != "rpe":
        return LinearAttention(vectors, theta), theta
    query, value = torch.nn.functional.normalize(torch.randn(2, HIDDEN_SIZE, generator=generator), dim=1)
    return LinearAttention(vectors, value, query), theta


def train_model(
    model: LinearAttention, theta: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor, steps: int
) -> list[float]:
    """Train by gradient descent with weight decay, p <- p - eta grad - epsilon p, on the paper's sum of population losses.

    Returns:
        The training loss before every step, and at the end: a mean over supervised positions, as test losses are.
    """
    relative = model.query is not None
    parameters = [model.vectors, model.value][: 1 + relative]
    for parameter in parameters:
        parameter.requires_grad_()
    # One pair per position of the window shows a relation; one window per shift shows a pair under augmentation.
    rate = LEARNING_RATE / float(pairs.sum(1).max() if relative else pairs.max())
    history, supervised = [], float(pairs.diagonal().sum())
    for step in range(steps):
        loss = population_losses(model.matrix, model.value, target, theta, pairs).sum()
        history.append(float(loss.detach()) / supervised)
        gradients = torch.autograd.grad(loss, parameters)
        kept = 1 - WEIGHT_DECAY * (1 - step / steps)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.mul_(kept).sub_(gradient, alpha=rate)
    losses = population_losses(model.matrix, model.value, target, theta, pairs).detach()
    return [*history, float(losses.sum() / pairs.diagonal().sum())]


class Findings(NamedTuple):
    """The results of one setting: rows of the results, of the training losses, and of the matrices."""

    results: list[Row]
    training: list[Row]
    matrices: list[Row]


def run_setting(setting: Setting, seed: int) -> Findings:
    """Train and test every method.

    Returns:
        As results, a row for each method and position. Positions count from 1, as in the paper: the window has positions 1
        to `window`. Besides the losses, a row has what the method has learned: `error`, the largest difference of the matrix
        <v, theta> A from the task; `shown`, the same among the pairs of positions that training shows; `hidden`, the largest
        weight of a pair that it does not show; `outside`, the largest squared length of a vector of APE outside the window;
        `aligned`, the cosine of v and theta up to its sign.
    """
    found = Findings([], [], [])
    for method in METHODS:
        model, theta = initial_model(method, seed)
        pairs, target = setting.pairs(method), setting.target
        row = {"model": method, **setting._asdict(), "alpha": ALPHA, "betas": setting.betas, "seed": seed, "steps": STEPS}
        history = train_model(model, theta, target, pairs, STEPS)
        found.training.extend({**row, "step": step, "loss": history[step]} for step in range(0, STEPS + 1, SHOWN_STEPS))
        row["training_loss"] = history[-1]
        with torch.no_grad():
            matrix = model.matrix
            losses = population_losses(matrix, model.value, target, theta).tolist()
            matrix = (model.value @ theta) * matrix
            errors = (matrix - target).abs()
            row |= {"error": float(errors.max()), "shown": float(errors[pairs > 0].max())}
            row |= {"hidden": float(matrix[pairs == 0].abs().max())}
            if method == "ape":
                row["outside"] = float(model.vectors[setting.window :].square().sum(1).max())
            row |= {"aligned": float(torch.nn.functional.cosine_similarity(model.value, theta, dim=0).abs())}
        found.results.extend(row | {"position": position, "test_loss": loss} for position, loss in enumerate(losses, 1))
        shown = [[round(value, 5) for value in line] for line in matrix.tolist()]
        found.matrices.append({name: row[name] for name in ("model", "window", "neighbours", "seed")} | {"matrix": shown})
    return found


def draw_runs(axes: Axes, rows: list[Row], window: int, x: str, y: str, **options: Any) -> None:
    """Draw a field of every run of a setting over another field, a colour for each method."""
    for method, name in METHODS.items():
        runs = group_by([row for row in rows if (row["model"], row["window"]) == (method, window)], itemgetter("seed"))
        for run_rows in runs.values():
            places, values = zip(*map(itemgetter(x, y), run_rows), strict=True)
            axes.plot(places, values, color=COLOURS[method], linestyle=LINES[method], **options)
        axes.lines[-1].set_label(name)


@plots.house_style
def plot_training(rows: list[Row], file: Path) -> None:
    """Draw the training loss of every run over the steps (Figs. 9a and 15a), a panel for each setting."""
    figure, (panels,) = plots.new_figure(3.2, 1, len(SETTINGS), sharey=True)
    for axes, setting in zip(panels, SETTINGS, strict=True):
        draw_runs(axes, rows, setting.window, "step", "loss", linewidth=1.5)
        axes.set(xlabel="step", yscale="log", title=f"window {setting.window}, neighbours up to {setting.neighbours}")
    panels[0].set_ylabel("training loss")
    plots.name_lines(panels[1])
    plots.save_figure(figure, file)


@plots.house_style
def plot_matrices(rows: list[Row], file: Path) -> None:
    """Draw what was learned (Fig. 16): the matrices of APE and of APE with augmentation, and the vector of RPE by offset."""
    figure, (panels,) = plots.new_figure(2.9, 1, 3, width_ratios=(1, 1, 1.2))
    matrices = {row["model"]: torch.tensor(row["matrix"]) for row in rows}
    for axes, method in zip(panels, ("ape", "ape_augmented"), strict=False):
        image = axes.imshow(matrices[method].numpy(), vmin=-ALPHA, vmax=ALPHA, cmap="RdBu", extent=(0.5, 51.5, 51.5, 0.5))
        axes.set(title=METHODS[method], xlabel="position that is read")
    panels[0].set_ylabel("position that predicts")
    figure.colorbar(image, ax=panels[:2], label="weight", shrink=0.8)
    half = NUM_POSITIONS // 2
    # Offsets wrap around the ring: position 1 reads the last position at the offset 1.
    by_offset = matrices["rpe"][:, 0].roll(half)
    panels[2].plot(range(-half, half + 1), by_offset.numpy(), color=COLOURS["rpe"], marker=".")
    panels[2].set(title="RPE", xlabel="offset i - j", ylabel="weight")
    plots.save_figure(figure, file)


@plots.house_style
def plot_losses(rows: list[Row], file: Path) -> None:
    """Draw the test loss at every position, a panel for each setting."""
    figure, (panels,) = plots.new_figure(3.8, 1, len(SETTINGS), sharey=True)
    for axes, setting in zip(panels, SETTINGS, strict=True):
        draw_runs(axes, rows, setting.window, "position", "test_loss", linewidth=1, marker=".", markersize=3)
        axes.plot(range(1, NUM_POSITIONS + 1), setting.losses_of_ape.numpy(), color=plots.BLACK, linestyle=":")
        axes.set(xlabel="position", yscale="log", xlim=(0, NUM_POSITIONS + 1), ylim=(2e-7, 30))
        axes.set_title(f"neighbours up to {setting.neighbours}", pad=18)
        plots.shade_trained(axes, (1, setting.window), "window of training: {}")
    panels[0].set_ylabel("test loss")
    # The closed form of APE runs on the line of APE: it is named at the border of the window, where it leaves the axes.
    plots.note(panels[1], "APE, closed form", (16, 3e-5), (8, 0), plots.BLACK)
    plots.name_lines(panels[1])
    plots.save_figure(figure, file)


def run(output: Path) -> None:
    """Train and test every method in every setting; print, write and draw the losses and what was learned."""
    found = []
    for setting, seed in product(SETTINGS, SEEDS):
        found.append(run_setting(setting, seed))
        for row in found[-1].results:
            show_row(row)
    results = [row for findings in found for row in findings.results]
    training = [row for findings in found for row in findings.training]
    # The setting of Fig. 15 with the first seed, as in Fig. 16.
    shown = (SETTINGS[1].window, SEEDS[0])
    matrices = [row for findings in found for row in findings.matrices if (row["window"], row["seed"]) == shown]
    for rows, draw, stem in (
        (results, plot_losses, output.stem),
        (training, plot_training, f"{output.stem}_training"),
        (matrices, plot_matrices, f"{output.stem}_matrices"),
    ):
        write_output(rows, file := output.with_stem(stem))
        draw(rows, file.with_suffix(".png"))
        print(f"wrote {file.with_suffix('.png')}")
