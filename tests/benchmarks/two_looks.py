"""Both looks of the length proofs at the same cases: seconds a case, and which of the bounds is higher, lead by lead.

python tests/benchmarks/two_looks.py hub_cards/zoo/addition-absolute-proved --output hub_cards/results/two_looks.jsonl

The first look bounds all cases of a token together, about their centres. The second bounds one case in boxes; with one box,
that of everything, it could be the first look too. It is measured as it is, and with no coordinates at all. Some cases of a
token are drawn, and some are those of 512 drawn ones of which the first look leaves least. The seconds of a case are those
of one processor, for the nearest rival alone, with 512 cases at once in the first look, and with one case, and with 64
boxes of one case at once, in the second. What both looks need of a column is not timed.
RESULTS.md, "Both looks of a length proof", says what came out.
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from longhand.data.proofs import LengthProver
from longhand.data.proofs.lengths import far_boxes
from longhand.data.proofs.lengths.attention_error import ROUNDING_FACTOR, Cases, Pairs
from longhand.data.proofs.lengths.far_boxes import Boxes, far_boxes_of
from longhand.data.proofs.lengths.up_to_length import BOXES_AT_ONCE, Column
from longhand.hub_cards.checkpoints.load import load_checkpoint

DRAWN = 512
"""Cases of a column that are drawn; the first look bounds them together."""

VARIANTS = {"boxes": far_boxes.MOST_COORDINATES, "no coordinates": 0}
"""Of the second look: coordinates at most."""


def timed(call: Callable[[], object]) -> float:
    """Seconds of the second of two calls."""
    for _ in range(2):
        began = time.process_time()
        call()
    return time.process_time() - began


@contextmanager
def coordinates(most: int):
    """Boxes have so many coordinates at most."""
    usual, far_boxes.MOST_COORDINATES = far_boxes.MOST_COORDINATES, most
    yield
    far_boxes.MOST_COORDINATES = usual


def first_look(column: Column, cases: Cases) -> Tensor:
    """(cases, vocabulary) what the first look leaves of leads at least: component by component, or to first order."""
    query, computed = column.query, column.query._compute(cases)
    left = torch.full((len(cases.query_token), len(query.layer.head)), torch.inf, dtype=torch.float64)
    for right in cases.right.unique().tolist():
        rows = (cases.right == right).nonzero().squeeze(1)
        lead, reach, rounding = query._by_components(computed, rows, right)
        by_components = (lead - reach - ROUNDING_FACTOR * rounding).masked_fill(
            ~computed.proved[rows].unsqueeze(1), -torch.inf
        )
        case, rival = (torch.arange(left.shape[1]) != right).expand(len(rows), -1).nonzero(as_tuple=True)
        some = Pairs(rows[case], torch.full_like(rival, right), rival, lead[case, rival], rounding[case, rival])
        bounds = query._to_first_order(computed, some)
        to_first_order = column._left(cases, bounds, 512)[0] / bounds.scale
        left[rows[case], rival] = torch.maximum(to_first_order, by_components[case, rival])
    return left


def second_look(column: Column, case: Cases, rivals: Tensor, copies: int = 1) -> Tensor:
    """(copies, rivals) what the second look leaves of leads at least, in the box of everything."""
    far = far_boxes_of(column.query, case)
    assert far is not None, "the conditions of the lemmas hold in the model that is measured"
    whole = far.whole()
    boxes = Boxes(whole.low.repeat(copies, 1), whole.high.repeat(copies, 1))
    return far.look(boxes, int(case.right[0]), rivals, partial(column._least_of_case, case)).left


def hardest(column: Column, cases: Cases, count: int) -> Cases:
    """The cases of which the first look leaves least, component by component."""
    query, computed = column.query, column.query._compute(cases)
    least = torch.full((len(cases.query_token),), torch.inf, dtype=torch.float64)
    for right in cases.right.unique().tolist():
        rows = (cases.right == right).nonzero().squeeze(1)
        lead, reach, rounding = query._by_components(computed, rows, right)
        left = lead - reach - ROUNDING_FACTOR * rounding
        left[:, right] = torch.inf
        least[rows] = left.amin(1)
    return cases.take(least.argsort()[:count])


class Compared(NamedTuple):
    """Leads of some cases in both looks.

    Attributes:
        leads: how many there are.
        higher, lower: in how many of them the second look's bound is higher, and lower.
        shares: (leads,) the second look's bound, as a share of the first look's.
    """

    leads: int
    higher: int
    lower: int
    shares: Tensor


def compare(column: Column, cases: Cases) -> Compared:
    """Compare both looks at all leads of cases."""
    left = first_look(column, cases)
    found = []
    for number in range(len(left)):
        case = cases.take(torch.tensor([number]))
        rivals = (torch.arange(left.shape[1]) != case.right[0]).nonzero().squeeze(1)
        found.append((second_look(column, case, rivals)[0], left[number, rivals]))
    second, first = map(torch.cat, zip(*found, strict=True))
    return Compared(len(first), int((second > first).sum()), int((second < first).sum()), second / first)


def time_looks(column: Column, cases: Cases) -> tuple[float, float, float]:
    """Seconds of a processor for a case: of the first look, of the second, and of the second where cases came together."""
    count, case = len(cases.query_token), cases.take(torch.tensor([0]))
    rival = (case.right + 1) % len(column.query.layer.head)
    first = timed(lambda: column._left(cases, column.query.bounds(cases, nearest=True), count)) / count
    alone = timed(lambda: second_look(column, case, rival))
    together = timed(lambda: second_look(column, case, rival, BOXES_AT_ONCE)) / BOXES_AT_ONCE
    return first, alone, together


def measure(columns: Sequence[tuple[Column, Cases]], cases: int) -> Iterator[dict]:
    """A row for each variant of the second look, of columns with 512 drawn cases each.

    Args:
        cases: of each column, so many drawn ones and so many hard ones are compared.
    """
    for name, most in VARIANTS.items():
        with coordinates(most):
            seconds = [time_looks(*each) for each in columns]
            found = []
            for column, drawn in columns:
                found.append(compare(column, drawn.take(torch.arange(cases))))
                found.append(compare(column, hardest(column, drawn, cases)))
        first, alone, together = (sum(part) / len(columns) for part in zip(*seconds, strict=True))
        leads, higher, lower = (sum(part) for part in list(zip(*found, strict=True))[:3])
        yield {
            "second_look": name,
            "leads": leads,
            "higher": higher,
            "lower": lower,
            "share": round(float(torch.cat([each.shares for each in found]).median()), 3),
            "first_ms": round(1000 * first, 2),
            "second_ms": round(1000 * alone, 2),
            "together_ms": round(1000 * together, 2),
            "ratio": round(together / first, 1),
            "hardware": f"{platform.machine()} CPU",
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--lengths", type=int, nargs="+", default=[5, 15, 50])
    parser.add_argument("--columns", type=int, default=6, help="of each length")
    parser.add_argument("--cases", type=int, default=12, help="of each column: so many drawn ones, and so many hard ones")
    options = parser.parse_args()
    checkpoint = load_checkpoint(options.checkpoint)
    prover = LengthProver(checkpoint.model, checkpoint.task)
    runs, generator = prover.task.text_runs(ordered=False), torch.Generator().manual_seed(0)
    results: list[dict] = []
    for length in options.lengths:
        layout = prover.layout(runs, length)
        with torch.inference_mode():
            tables = prover.layer.tables(layout.tokens, layout.ids)
            columns = []
            for at in torch.linspace(-1, layout.columns - 1, options.columns).round().int().tolist():
                column = Column(prover, runs, layout, tables, at, math.inf)
                rows = torch.randint(len(column.cases.query_token), (DRAWN,), generator=generator)
                columns.append((column, column.cases.take(rows)))
            for row in measure(columns, options.cases):
                results.append({"length": length} | row)
                print(json.dumps(results[-1]), flush=True)
                if options.output:
                    options.output.write_text("".join(json.dumps(each) + "\n" for each in results))
