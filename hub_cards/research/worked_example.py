"""The example of PROOF.md, with its numbers: what the shipped `addition` sees and decides while it writes 653 + 49.

    python -m longhand.hub_cards.research.worked_example

A row is a token of the response, or `=`. All is found by the verifier: the list of neighbourhoods from its own search, and
leads and bounds from its own network.
"""

# Used by: whoever runs or imports it. Changed freely.

from pathlib import Path

import numpy as np

from longhand.data.proofs import verify_certificate as verifier
from longhand.hub_cards.checkpoints.load import zoo

TEXT = "$653+049=2070$"
IDS = (0, 2, 3, 4, 5, 2, 3, 4, 5, 4, 3, 2, 1, 0)
"""The ids of its tokens, as `verify_certificate.sums` draws them."""

HEADINGS = ("token", "sees in its own column", "and in the next one", "right next", "lead", "bound B", "lead / B")


def render() -> str:
    """The table."""
    _, _, task, config, weights = verifier.read_checkpoint(Path(zoo("addition")))
    listed, network = verifier.list_neighbourhoods(task), verifier.Network(weights, config)
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    for place in range(TEXT.index("="), len(TEXT) - 1):
        row = neighbourhood(place, task, listed.shape[1])
        assert (listed == row).all(axis=1).any(), f"the search does not list what the token at {place} sees"
        leads, bounds = network.leads_and_bounds(row[None], effort=2)
        ratios = leads[0] / bounds[0]
        least = int(np.argmin(ratios))
        same, following = (seen_by(row, relation) for relation in (0, 1))
        numbers = (
            f"{leads[0, least]:.3f} over `{verifier.TOKENS[least]}`",
            f"{bounds[0, least]:.4f}",
            f"{ratios[least]:,.0f}",
        )
        cells = (f"`{TEXT[place]}`", same, following, f"`{TEXT[place + 1]}`", *numbers)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def neighbourhood(place: int, task: verifier.Task, columns: int) -> np.ndarray:
    """A row (columns,) of `list_neighbourhoods`, read off the text and its ids alone."""
    numbers = [verifier.TOKENS.index(token) for token in TEXT]
    keys = []
    for earlier in range(place + 1):
        relation = verifier.relate((IDS[place],), (IDS[earlier],), task.window)
        if relation is not None:
            keys.append(int(verifier.see(relation, numbers[earlier])))
    keys = [0] * (columns - 2 - len(keys)) + sorted(keys)
    return np.array([numbers[place], numbers[place + 1], *keys])


def seen_by(row: np.ndarray, relation: int) -> str:
    """The tokens to which a row has a relation."""
    names = [
        verifier.TOKENS[code % verifier.RELATED] for code in row[2:].tolist() if code // verifier.RELATED == relation + 1
    ]
    return " ".join(f"`{name}`" for name in names) or "nothing"


if __name__ == "__main__":
    print(render())
