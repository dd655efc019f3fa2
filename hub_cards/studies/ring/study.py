"""Which positions let linear attention generalize on a ring (paper 2, Sec. 5 and App. D; Figs. 9, 15 and 16).

Trains absolute positions (APE), APE with augmentation by all circular shifts, and relative positions (RPE) by gradient
descent on the exact population loss, measures the test loss at every position, and writes losses.jsonl and two
pictures, of losses and of learned matrices. All that is published here is made by

OMP_NUM_THREADS=1 python -m longhand.hub_cards.studies ring
"""

import argparse
import os
import platform
import time
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from tqdm.auto import tqdm

from longhand.data import make_generator
from longhand.hub_cards.reports.results import Row, read_results, write_results
from longhand.hub_cards.runs.console import refusing_in_one_line
from longhand.hub_cards.studies.ring.linear_attention import (
    AbsoluteLinearAttention,
    FactoredLinearAttention,
    RelativeLinearAttention,
    population_losses,
    ring_target,
    window_pairs,
)

RESULTS = Path(__file__).with_name("losses.jsonl")
FIGURE = RESULTS.with_suffix(".png")
MATRICES_FIGURE = RESULTS.with_name("matrices.png")
METHODS = {"ape": "APE", "ape_augmented": "APE with augmentation", "rpe": "RPE"}
NUM_POSITIONS = 51
HIDDEN_SIZE = 200

ALPHA = 2.0
"""The paper gives no weights. App. D.2 wants alpha above the squared length of a fresh position vector, which is about 1.
Inner products can equal the task on a window only if it is positive semidefinite: with beta_k = 2^-k it is, for any number
of neighbours."""

LEARNING_RATE = 0.04
"""Step size if training shows no pair of positions, or with RPE no relation, more than once; else divided by how often."""

WEIGHT_DECAY = 4e-3
"""Share of every parameter that the first step takes off. It falls linearly to 0, the infinitesimal decay of the theorem: in
3,000 steps a vector without gradients shrinks by e^-6, and what has gradients ends where the loss alone would take it."""

_BATCH_SIZE = 500


class Setting(NamedTuple):
    """A task of App. D on the ring: `window` positions are not padded in training, `neighbours` on each side count."""

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

    def theoretical_losses(self, method: str) -> torch.Tensor:
        """(NUM_POSITIONS,) test losses that the theory predicts.

        Exact for RPE (0) and APE: as p_k vanishes outside the window, what is lost is every weight of the task that is not
        between two positions of the window, alpha^2 + 2 sum beta_k^2 outside and, at its border, beta_k^2 for each neighbour
        beyond it. With augmentation an estimate: pairs that no window shows keep the angle of two random vectors, whose
        squared cosine is 1 / HIDDEN_SIZE on average; this is the n / d of Eq. D.10. Decay does not remove them: as training
        fixes every vector's squared length at alpha, all solutions have the same norm.
        """
        unseen = self.pairs(method) == 0
        if method == "ape":
            return (unseen * self.target**2).sum(1)
        if method == "ape_augmented":
            return unseen.sum(1) * ALPHA**2 / HIDDEN_SIZE
        return torch.zeros(NUM_POSITIONS)


SETTINGS = (Setting(window=10, neighbours=1), Setting(window=20, neighbours=5))
"""Those of Fig. 9 and Fig. 15."""


def initial_model(method: str, seed: int) -> tuple[FactoredLinearAttention, torch.Tensor]:
    """A fresh model and theta, (HIDDEN_SIZE,) of length 1. Both kinds of APE start from the same vectors."""
    generator = torch.Generator().manual_seed(int(make_generator(seed, "linear-attention").integers(2**63)))
    theta = torch.nn.functional.normalize(torch.randn(HIDDEN_SIZE, generator=generator), dim=0)
    if method == "rpe":
        return RelativeLinearAttention(NUM_POSITIONS, HIDDEN_SIZE, generator), theta
    return AbsoluteLinearAttention(NUM_POSITIONS, theta, generator), theta


def train_model(
    model: FactoredLinearAttention, theta: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor, steps: int, bar: tqdm
) -> float:
    """Gradient descent with weight decay, p <- p - eta grad - epsilon p, on the population loss summed as in the paper.

    Returns:
        Training loss at the end, a mean over supervised positions, so that it compares with test losses.
    """
    parameters = list(model.parameters())
    # A relation is shown by as many pairs as there are in the window, and so is a pair under augmentation.
    shared = isinstance(model, RelativeLinearAttention)
    rate = LEARNING_RATE / float(pairs.sum(1).max() if shared else pairs.max())
    for step in range(steps):
        loss = population_losses(model.effective_matrix(), model.value, target, theta, pairs).sum()
        gradients = torch.autograd.grad(loss, parameters)
        kept = 1 - WEIGHT_DECAY * (1 - step / steps)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.mul_(kept).sub_(gradient, alpha=rate)
        bar.update()
    with torch.no_grad():
        losses = population_losses(model.effective_matrix(), model.value, target, theta, pairs)
    return float(losses.sum() / pairs.diagonal().sum())


@torch.inference_mode()
def sampled_losses(
    models: dict[str, FactoredLinearAttention], theta: torch.Tensor, target: torch.Tensor, num_samples: int, seed: int
) -> dict[str, torch.Tensor]:
    """Mean squared error at every position over `num_samples` sequences without padding, the same ones for all models."""
    generator = make_generator(seed, "linear-attention", "test")
    sums = {method: torch.zeros(NUM_POSITIONS, dtype=torch.float64) for method in models}
    for begin in range(0, num_samples, _BATCH_SIZE):
        size = (min(_BATCH_SIZE, num_samples - begin), NUM_POSITIONS, HIDDEN_SIZE)
        tokens = torch.from_numpy(generator.standard_normal(size, dtype=np.float32))
        answers = (tokens @ theta) @ target.T
        for method, model in models.items():
            sums[method] += (model(tokens) - answers).square().sum(0, dtype=torch.float64)
    return {method: total / num_samples for method, total in sums.items()}


def run_setting(
    setting: Setting, seed: int, steps: int, num_samples: int, bar: tqdm
) -> tuple[list[Row], dict[str, torch.Tensor]]:
    """Trains and tests every method.

    Returns:
        A row for each method and position, and by method the learned matrix <v, theta> A that theory compares with the task.
        Positions of rows count from 1, as in the paper: those of the window are 1 to `window`.
    """
    models, trained = {}, {}
    for method in METHODS:
        started = time.perf_counter()
        model, theta = initial_model(method, seed)
        loss = train_model(model, theta, setting.target, setting.pairs(method), steps, bar)
        models[method], trained[method] = model, (loss, time.perf_counter() - started)
    sampled = sampled_losses(models, theta, setting.target, num_samples, seed)
    hardware = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    rows, matrices = [], {}
    for method, model in models.items():
        with torch.no_grad():
            expected = population_losses(model.effective_matrix(), model.value, setting.target, theta)
            matrices[method] = (model.value @ theta) * model.effective_matrix()
        rows += [
            {
                "model": method,
                "num_positions": NUM_POSITIONS,
                "hidden_size": HIDDEN_SIZE,
                **setting._asdict(),
                "alpha": ALPHA,
                "betas": setting.betas,
                "seed": seed,
                "steps": steps,
                "training_loss": trained[method][0],
                "position": position,
                "test_loss": float(expected[position - 1]),
                "sampled_test_loss": float(sampled[method][position - 1]),
                "num_samples": num_samples,
                "hardware": hardware,
                "run_seconds": round(trained[method][1], 2),
            }
            for position in range(1, NUM_POSITIONS + 1)
        ]
    return rows, matrices


def plot_losses(rows: list[Row], file: Path) -> None:
    """Test loss at every position, a panel for each setting: expected as lines, means of samples as points."""
    figure, panels = plt.subplots(1, len(SETTINGS), figsize=(11, 4), sharey=True, squeeze=False, layout="constrained")
    for axes, setting in zip(panels.flat, SETTINGS, strict=True):
        axes.axvspan(0.5, setting.window + 0.5, color="tab:green", alpha=0.15, label="window of training")
        for color, (method, name) in zip(("tab:red", "tab:orange", "tab:blue"), METHODS.items(), strict=True):
            own = [row for row in rows if row["model"] == method and row["window"] == setting.window]
            for seed in dict.fromkeys(row["seed"] for row in own):
                places, expected, sampled = zip(
                    *((row["position"], row["test_loss"], row["sampled_test_loss"]) for row in own if row["seed"] == seed),
                    strict=True,
                )
                axes.plot(places, expected, color=color, linewidth=1, label=name if seed == own[0]["seed"] else None)
                axes.plot(places, sampled, color=color, marker=".", markersize=3, linestyle="")
        axes.plot(places, setting.theoretical_losses("ape").numpy(), color="black", linestyle=":", label="APE, closed form")
        axes.set(xlabel="position", yscale="log", title=f"window of {setting.window}, neighbours up to {setting.neighbours}")
    panels[0, 0].set_ylabel("test loss")
    panels[0, -1].legend(fontsize="small")
    _save(figure, file)


def plot_matrices(matrices: dict[Setting, dict[str, torch.Tensor]], file: Path) -> None:
    """What was learned, a line for each setting: both matrices p_i^T p_j, and RPE's weights <v, theta> a_k by relation."""
    figure, panels = plt.subplots(len(matrices), 3, figsize=(11, 3.6 * len(matrices)), squeeze=False, layout="constrained")
    for line, (setting, learned) in zip(panels, matrices.items(), strict=True):
        for axes, method in zip(line, ("ape", "ape_augmented"), strict=False):
            extent = (0.5, NUM_POSITIONS + 0.5, NUM_POSITIONS + 0.5, 0.5)
            image = axes.imshow(learned[method].numpy(), cmap="RdBu_r", vmin=-ALPHA, vmax=ALPHA, extent=extent)
            axes.set(title=f"{METHODS[method]}, window of {setting.window}", xlabel="position j", ylabel="position i")
            figure.colorbar(image, ax=axes, shrink=0.8)
        half = NUM_POSITIONS // 2
        for matrix, style in ((setting.target, {"linestyle": ":", "color": "black"}), (learned["rpe"], {"marker": "."})):
            # Row i of the first column holds relation i, the last rows the negative ones.
            line[2].plot(range(-half, NUM_POSITIONS - half), matrix[:, 0].roll(half).numpy(), **style)
        line[2].set(title=f"RPE, window of {setting.window}", xlabel="relation k", ylabel="weight")
        line[2].legend(["task", "learned"], fontsize="small")
    _save(figure, file)


def format_rows(rows: list[Row]) -> str:
    """A line for each setting and method: means over seeds and positions, in and outside the window, beside the theory's."""
    width = max(map(len, METHODS.values()))
    header = f"window  {'method':<{width}}  training loss  test loss in window  (theory)  outside  (theory)  sampled outside"
    lines = [header]
    for setting in SETTINGS:
        for method, name in METHODS.items():
            own = [row for row in rows if row["model"] == method and row["window"] == setting.window]
            inside = np.array([row["position"] <= setting.window for row in own])
            expected, sampled = (np.array([row[key] for row in own]) for key in ("test_loss", "sampled_test_loss"))
            theory = setting.theoretical_losses(method)
            sign = "~" if method == "ape_augmented" else " "
            lines.append(
                f"{setting.window:6d}  {name:<{width}}  {np.mean([row['training_loss'] for row in own]):13.1e}"
                f"  {expected[inside].mean():19.6f}  {sign}{theory[: setting.window].mean():7.4f}"
                f"  {expected[~inside].mean():7.4f}  {sign}{theory[setting.window :].mean():7.4f}"
                f"  {sampled[~inside].mean():15.4f}"
            )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Console entry: bad input ends with one line and exit status 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="seeds of the runs (default 0 1 2)")
    parser.add_argument("--steps", type=int, default=3000, help="steps of gradient descent (default %(default)s)")
    parser.add_argument("--num_samples", type=int, default=5000, help="sequences of the test (default %(default)s)")
    options = parser.parse_args(arguments)
    with refusing_in_one_line():
        for name in ("steps", "num_samples"):
            if getattr(options, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(options, name)}")
        if min(options.seeds) < 0 or len(set(options.seeds)) < len(options.seeds):
            raise ValueError(f"--seeds must be different numbers from 0 on, got {' '.join(map(str, options.seeds))}")
    rows, pictured = [], {}
    total = len(SETTINGS) * len(options.seeds) * len(METHODS) * options.steps
    with tqdm(total=total, desc="training", disable=None, leave=False) as bar:
        for setting in SETTINGS:
            for seed in options.seeds:
                own, matrices = run_setting(setting, seed, options.steps, options.num_samples, bar)
                rows += own
                pictured.setdefault(setting, matrices)
    write_results(rows, RESULTS)
    rows = read_results(RESULTS)
    plot_losses(rows, FIGURE)
    plot_matrices(pictured, MATRICES_FIGURE)
    print(f"{format_rows(rows)}\n\nwrote {RESULTS}, {FIGURE} and {MATRICES_FIGURE}")


def _save(figure: Figure, file: Path) -> None:
    partial = file.with_name(f".{file.stem}.partial{file.suffix}")
    figure.savefig(partial, dpi=120)
    plt.close(figure)
    os.replace(partial, file)


if __name__ == "__main__":
    main()
