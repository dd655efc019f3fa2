"""Factored linear attention on a ring of positions, and its expected losses in closed form (paper 2, Sec. 5 and App. D).

Tokens x_1..x_n are vectors of independent standard normal numbers on a ring of n positions, theta a unit vector, and

    y_i = alpha <theta, x_i> + sum over k = 1..m of beta_k (<theta, x_{i-k}> + <theta, x_{i+k}>)        (5.1; D.4 for m > 1)

is the target. Training shows windows of the ring; outside the window x is 0. Attention depends on positions alone, so a
model is its effective matrix A and its value vector v: it predicts sum_r A_ir <v, x_r> (5.2). Losses are exact expectations
over x, which makes gradient descent on them the paper's population regime. Positions count from 0 here, from 1 in the paper.
"""

from collections.abc import Sequence

import torch
from torch import nn


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
    matrix: torch.Tensor, value: torch.Tensor, target: torch.Tensor, theta: torch.Tensor, pairs: torch.Tensor | None = None
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
            (D.4) and (D.13). Without it every pair is shown once, as in the paper's test.

    Returns:
        (n,) losses.
    """
    aligned = value @ theta
    errors = (matrix * aligned - target) ** 2 + matrix**2 * (value - aligned * theta).square().sum()
    return (errors if pairs is None else pairs * errors).sum(1)


class FactoredLinearAttention(nn.Module):
    """The base of both kinds of positions: y_i = sum_r A_ir <v, x_r> (paper 2, Eq. 5.2).

    Position vectors start as independent normal vectors of expected squared length 1, as in App. D.2.

    Args:
        num_positions: n, the number of positions on the ring.
        hidden_size: d, the size of a token and of a position vector.
        generator: source of the initial vectors.
    """

    value: torch.Tensor

    def __init__(self, num_positions: int, hidden_size: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        vectors = torch.randn(num_positions, hidden_size, generator=generator)
        self.position_vectors = nn.Parameter(vectors / hidden_size**0.5)

    def effective_matrix(self) -> torch.Tensor:
        """A (num_positions, num_positions): position i reads position r with weight A_ir."""
        raise NotImplementedError

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Predictions (batch, num_positions) of tokens (batch, num_positions, hidden_size)."""
        return (tokens @ self.value) @ self.effective_matrix().T


class AbsoluteLinearAttention(FactoredLinearAttention):
    """APE: A_ir = <p_i, p_r>, the attention's weights absorbed into the position vectors (paper 2, Eq. D.1).

    The value vector is theta and is not trained. App. D.1 and D.2 grant this to the models that they show to fail.

    Args:
        theta: (hidden_size,) the task's direction.
    """

    def __init__(self, num_positions: int, theta: torch.Tensor, generator: torch.Generator | None = None) -> None:
        super().__init__(num_positions, len(theta), generator)
        self.register_buffer("value", theta.clone())

    def effective_matrix(self) -> torch.Tensor:
        return self.position_vectors @ self.position_vectors.T


class RelativeLinearAttention(FactoredLinearAttention):
    """RPE: A_ir = a_{i-r} with a_k = <p_k, u>, k mod n, for one constant query u of length 1 (paper 2, Eqs. D.11, D.12).

    The value vector starts at random and is learned (Lemma D.2).
    """

    query: torch.Tensor
    offsets: torch.Tensor

    def __init__(self, num_positions: int, hidden_size: int, generator: torch.Generator | None = None) -> None:
        super().__init__(num_positions, hidden_size, generator)
        query, value = nn.functional.normalize(torch.randn(2, hidden_size, generator=generator), dim=1)
        self.register_buffer("query", query)
        self.value = nn.Parameter(value)
        self.register_buffer("offsets", ring_offsets(num_positions), persistent=False)

    def relation_weights(self) -> torch.Tensor:
        """Weights (num_positions,): a_k for k = 0, 1, ..., -2, -1, the weight of the token k positions back."""
        return self.position_vectors @ self.query

    def effective_matrix(self) -> torch.Tensor:
        return self.relation_weights()[self.offsets]
