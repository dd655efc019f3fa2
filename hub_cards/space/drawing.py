"""A reading as HTML: the answer, the tokens in their columns, and what the page's script needs to show what each one sees.

Everything that is not written here passes through `escape`.
"""

import html
import json
from collections.abc import Iterable
from typing import Any

from longhand.hub_cards.space.layout import lay_out
from longhand.hub_cards.space.reading import Exhibit, Reading, Sight, Timing

GOLDEN_ANGLE = 137.5
"""Degrees between the hues of ids that follow each other, so that neighbours differ much."""

BLOCKS = {
    "multiplication_scratchpad": ("partial products", "running sums"),
    "addition_scratchpad": ("running sums",),
    "division": ("remainders and quotient",),
}
"""What the blocks of a response are called, by task; others are called the response."""


def escape(value: Any) -> str:
    """Text for HTML, in an attribute too. Gradio reads `{{` and `${` in a component's HTML as code, so these are escaped."""
    return html.escape(str(value)).translate({ord(sign): f"&#{ord(sign)};" for sign in "{}$`"})


def draw_error(error: BaseException, hint: str = "") -> str:
    """The message of an error, as a note that is read aloud at once."""
    text = " ".join(str(error).split())
    return (
        f'<div class="lh-note lh-error" role="alert">{escape(text[:1].upper() + text[1:].rstrip("."))}.{escape(hint)}</div>'
    )


def draw_reading(exhibit: Exhibit, reading: Reading) -> str:
    """The answer to a question, and the tokens of question and response in their columns."""
    drawn = draw_passes(reading) if reading.passes else draw_tokens(exhibit, reading)
    return f'<div class="lh-reading">{draw_answer(exhibit, reading)}{drawn}</div>'


def draw_answer(exhibit: Exhibit, reading: Reading) -> str:
    """The question, the answer, and whether the model is known to be right."""
    verdict = (
        '<span class="lh-badge lh-good">certified: exactly right at every length</span>'
        if exhibit.is_certified
        else '<span class="lh-badge">not certified: this may be wrong</span>'
    )
    question = "".join(reading.question.split()).rstrip("=")
    return (
        f'<p class="lh-answer"><span class="lh-asked">{escape(question)} =</span> '
        f"<output>{escape(reading.answer)}</output></p><p>{verdict}</p>"
    )


def draw_tokens(exhibit: Exhibit, reading: Reading) -> str:
    """The tokens in their columns, coloured by their ids; a note if they are not drawn."""
    if not reading.tokens:
        return f'<p class="lh-note">{escape(reading.note)}</p>'
    coupling, ones_first = exhibit.model.config.coupling, reading.task.reader.ones_first
    layout = lay_out(reading.tokens, reading.ids, reading.query_length, coupling, ones_first)
    sights = {sight.written: sight for sight in reading.sights}
    colours = reading.ids[layout.level or 0]
    tokens = []
    for place, (row, column) in enumerate(layout.places):
        # A line takes a row of the grid.
        above = sum(first <= row for first in layout.blocks)
        where = f"grid-area:{row + above + 1}/{column + 1}"
        tokens.append(_draw_token(reading, place, colours[place], where, sights.get(place)))
    names = BLOCKS.get(reading.task.name, ())
    lines = [
        f'<div class="lh-line" style="grid-area:{first + number + 1}/1/auto/-1">'
        f"{escape(names[number] if number < len(names) else 'response')}</div>"
        for number, first in enumerate(layout.blocks)
    ]
    columns = max(column for _, column in layout.places) + 1
    hint = "Pass over a digit of the response, tap it, or use Tab and the arrow keys: what it was written from lights up."
    told = "Tokens of one colour have the same id, which stands below them; grey ones have none."
    first = ", the ones first" if ones_first else ""
    return (
        f'<div class="lh-drawing" data-heads="{_heads(reading)}">'
        f'<p class="lh-hint">{hint}</p>'
        f'<div class="lh-scroll"><div class="lh-grid" role="group" aria-label="Tokens in columns" '
        f'style="grid-template-columns:repeat({columns},auto)">{"".join(lines + tokens)}</div></div>'
        f'<p class="lh-said" aria-live="polite"></p><div class="lh-panel"></div>'
        f'<p class="lh-key">{told} The model writes the response token by token{first}.</p></div>'
    )


def draw_passes(reading: Reading) -> str:
    """The labels of an encoder that settles, a row for each pass."""
    rows = [(f"pass {number}", *labels) for number, labels in enumerate(reading.passes, 1)]
    hint = "The model labels all tokens at once, again and again until nothing changes. ? stands for a label not known yet."
    return f'<p class="lh-hint">{hint}</p>{draw_table(("", *reading.tokens), rows)}'


def _heads(reading: Reading) -> str:
    """Names of the rows of a sight's weights, as JSON."""
    heads = len(reading.sights[0].weights) // reading.num_layers if reading.sights else 0
    several = reading.num_layers > 1
    names = [
        f"layer {layer}, head {head}" if several else f"head {head}"
        for layer in range(1, reading.num_layers + 1)
        for head in range(1, heads + 1)
    ]
    return escape(json.dumps(names))


def _describe_ids(ids: list[int]) -> str:
    if not any(ids):
        return "no id"
    return f"id{'s' * (len(ids) > 1)} {', '.join(str(number) if number else '-' for number in ids)}"


def _draw_token(reading: Reading, place: int, colour: int, where: str, sight: Sight | None) -> str:
    token = reading.tokens[place]
    shown = _describe_ids([level[place] for level in reading.ids])
    hue = f";--hue:{colour * GOLDEN_ANGLE % 360:.0f}" if colour else ""
    attributes = f'class="lh-token" style="{where}{hue}" data-place="{place}" data-ids="{shown}"'
    inner = f"{escape(token)}<small>{colour or '&nbsp;'}</small>"
    if sight is None:
        return f"<span {attributes}>{inner}</span>"
    seen = {"query": sight.query, "keys": sight.keys, "weights": sight.weights, "hidden": sight.hidden}
    spoken = f"response token {place - reading.query_length + 1}: {token}, {shown}"
    return (
        f'<button type="button" {attributes} tabindex="{0 if place == reading.query_length else -1}" '
        f'aria-label="{escape(spoken)}" data-sight="{escape(json.dumps(seen, separators=(",", ":")))}">{inner}</button>'
    )


def draw_table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table; the first cell of a row names the row."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f'<div class="lh-scroll"><table class="lh-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def draw_timings(timings: Iterable[Timing]) -> str:
    """The last answer's time as a sentence, and all of them as a table, the newest first."""
    newest, *_ = timings = list(timings)[::-1]
    right = "right to the last token" if newest.is_right else "WRONG"
    said = (
        f"A random problem of size {newest.digits:,}: the response has {newest.tokens:,} tokens, took "
        f"{newest.seconds:.2f} seconds, and is {right}."
    )
    rows = [
        (
            f"{one.digits:,}",
            f"{one.tokens:,}",
            f"{one.seconds:.2f}",
            f"{one.tokens / one.seconds:,.0f}",
            "yes" if one.is_right else "NO",
        )
        for one in timings
    ]
    table = draw_table(("size", "tokens of the response", "seconds", "tokens a second", "right"), rows)
    return f'<p class="lh-big">{escape(said)}</p>{table}'
