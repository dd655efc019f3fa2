"""Accuracy of sums by length with every encoding, from the results files, as a picture in HTML."""

from collections.abc import Iterator
from math import log10
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from longhand.hub_cards.evaluation.results import Row, group_by, group_variants, last_rows
from longhand.hub_cards.research.pages import read_recipes, read_rows
from longhand.hub_cards.research.study import load_study
from longhand.hub_cards.research.study_pages import fits
from longhand.hub_cards.research.tables import PUBLISHED_REACH
from longhand.hub_cards.space.drawing import escape

PICTURES = {"encodings": "addition", "short-sums": "addition-short"}
"""Studies of encodings, and the certified recipe that stands beside each."""

OURS = "pairwise coupling with a window (ours)"
NAMES = {
    "coupled": "coupled learned table (paper 1)",
    "rotary-coupled": "coupled rotary (paper 1)",
    "abacus": "Abacus",
    "alibi": "ALiBi",
    "ape": "learned positions",
    "fire": "FIRE",
    "index-hints": "index hints",
    "nope": "no positions (NoPE)",
    "random-start-ape": "learned positions, random start",
    "randomized": "randomized positions",
    "rotary": "rotary",
    "sinusoidal": "sinusoidal",
    "t5": "T5 bias",
}
PAPERS = ("coupled", "rotary-coupled")

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 280, 44, 18, 34


class Series(NamedTuple):
    """Median exact match of one encoding by digits.

    Attributes:
        kind: whose method it is: "ours", "papers" or "others".
        fits: whether it is right at the trained lengths.
    """

    name: str
    kind: str
    fits: bool
    values: dict[int, float]


def read_series(study: str) -> list[Series]:
    """Every encoding of a study of `PICTURES`, ours first, then by the sum of their accuracy."""
    own = read_recipes()[PICTURES[study]] + (read_rows("studies/addition/long") if study == "encodings" else [])
    sizes, series = load_study(study).trained_sizes("coupled"), []
    for variant, rows in group_variants(last_rows(read_rows(f"studies/{study}"))).items():
        kind = "papers" if variant in PAPERS else "others"
        series.append(Series(NAMES.get(variant, variant), kind, fits(rows, sizes), _medians(rows)))
    series.sort(key=lambda one: (-sum(one.values.values()), one.name))
    return [Series(OURS, "ours", True, _medians(own)), *series]


def _medians(rows: list[Row]) -> dict[int, float]:
    groups = group_by(sorted(rows, key=itemgetter("length")), itemgetter("length"))
    return {length: median(row["exact_match"] for row in own) for length, own in groups.items()}


def draw_comparison(study: str) -> str:
    """A line for each encoding of a study of `PICTURES`, and the numbers in a table whose rows light up their lines."""
    series = read_series(study)
    trained = load_study(study).trained_sizes("coupled")
    own = load_study(PICTURES[study]).trained_sizes(PICTURES[study])
    shown = sorted({length for one in series[1:] for length in one.values})
    longest = max(length for one in series for length in one.values)
    reach = PUBLISHED_REACH["addition"].size
    whom = "All" if own == trained else f"Ours was trained on {own[0]} to {own[1]} digits, all others"
    caption = (
        f"Exact match of sums by the digits of both operands. {whom} were trained on {trained[0]} to {trained[1]} (shaded). "
        f"Ours is certified, so its line does not end. The dashed line, at {reach} digits, is as far as paper 1 reports."
    )
    note = ""
    if not all(one.fits for one in series):
        note = (
            "An encoding marked * does not fit the trained lengths in this time: its score says nothing about longer sums. "
        )
    drawn = "".join(_draw_line(number, one, longest) for number, one in reversed(list(enumerate(series))))
    hint = "Pass over a row, or go there with Tab, to see its line."
    return (
        f'<figure class="lh-comparison"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(caption)}">'
        f"{''.join(_draw_axes(trained, reach, longest))}{drawn}</svg>"
        f"<figcaption>{escape(caption)} {note}{hint}</figcaption>{_draw_numbers(series, shown, longest)}</figure>"
    )


def _x(digits: float, longest: int) -> float:
    return LEFT + (WIDTH - LEFT - 40) * log10(digits) / log10(longest)


def _y(value: float) -> float:
    return TOP + (HEIGHT - BOTTOM - TOP) * (1 - value)


def _draw_axes(trained: tuple[int, int], published: int, longest: int) -> Iterator[str]:
    left, right = (_x(size, longest) for size in trained)
    box = f'width="{right - left:.0f}" height="{_y(0) - _y(1):.0f}"'
    yield f'<rect class="lh-trained" x="{left:.0f}" y="{_y(1):.0f}" {box}/>'
    for value in (0, 0.5, 1):
        yield f'<path class="lh-axis" d="M{LEFT} {_y(value):.0f}H{WIDTH}"/>'
        yield f'<text x="{LEFT - 6}" y="{_y(value) + 5:.0f}" text-anchor="end">{value:g}</text>'
    for digits in (10**power for power in range(int(log10(longest)) + 1)):
        label = f"{digits:,}".replace(",000,000", "M").replace(",000", "k")
        yield f'<text x="{_x(digits, longest):.0f}" y="{HEIGHT - 8}" text-anchor="middle">{label}</text>'
    if published <= longest:
        at = _x(published, longest)
        yield f'<path class="lh-published" d="M{at:.0f} {_y(0):.0f}V{_y(1):.0f}"/>'


def _draw_line(number: int, series: Series, longest: int) -> str:
    points = [(_x(length, longest), _y(value)) for length, value in series.values.items()]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    path += f"H{WIDTH}" if series.kind == "ours" else ""
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in points)
    return f'<g class="lh-series lh-{series.kind}" data-series="{number}"><path d="{path}"/>{dots}</g>'


def _draw_numbers(series: list[Series], shown: list[int], longest: int) -> str:
    lengths = [*shown, *[longest] * (longest > shown[-1])]
    header = "".join(f'<th scope="col">{length:,}</th>' for length in lengths)
    rows = []
    for number, one in enumerate(series):
        name = one.name if one.fits else f"{one.name} *"
        cells = "".join(_draw_cell(one, length) for length in lengths)
        rows.append(
            f'<tr tabindex="0" class="lh-{one.kind}" data-series="{number}"><th scope="row">{escape(name)}</th>{cells}</tr>'
        )
    return (
        f'<div class="lh-scroll"><table class="lh-table lh-heat"><thead><tr><th scope="col">digits</th>{header}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _draw_cell(series: Series, length: int) -> str:
    """The measured value; for a certified model, the value that is proved."""
    value = series.values.get(length, 1.0 if series.kind == "ours" else None)
    if value is None:
        return "<td></td>"
    return f'<td style="--share:{100 * value:.0f}%">{value:.2f}</td>'
