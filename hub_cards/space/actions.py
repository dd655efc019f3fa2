"""What the page does when it is asked, as HTML: answer a question, check a certificate, take the time."""

import time
from collections.abc import Mapping
from dataclasses import asdict

from longhand.data.certificates import CannotCertify, certify, find_difference
from longhand.hub_cards.space.drawing import draw_error, draw_reading, draw_timings
from longhand.hub_cards.space.proof import draw_certificate, draw_checked
from longhand.hub_cards.space.reading import Exhibit, Timing

MOST_TIMINGS = 8
"""Times that the page shows, the newest ones."""


def ask(exhibits: Mapping[str, Exhibit], name: str, question: str) -> str:
    """The answer of a model to a question, drawn; or what is wrong with the question."""
    exhibit = exhibits[name]
    try:
        return draw_reading(exhibit, exhibit.read(question))
    except ValueError as error:
        others = [other for other, one in exhibits.items() if other != name and one.accepts(question)]
        hint = f" {' and '.join(others)} can be asked that: choose it above." if others else ""
        return draw_error(error, hint)


def check(exhibit: Exhibit) -> str:
    """Check a model's neighbourhoods now, and compare with its certificate."""
    began = time.perf_counter()
    try:
        found = certify(exhibit.model, exhibit.task, progress=True)
    except CannotCertify as error:
        return draw_error(error)
    seconds = time.perf_counter() - began
    stated = exhibit.certificate
    difference = None if stated is None else find_difference(stated, exhibit.model, exhibit.task)
    return draw_checked(draw_certificate(asdict(found), exhibit.task), seconds, exhibit, difference)


def measure(exhibit: Exhibit, part: str, digits: float, timings: list[Timing]) -> tuple[str, list[Timing]]:
    """Answer a random problem of a part of the model's task, of a size, and add its time to those before."""
    try:
        timings = [*timings, exhibit.time_problem(int(digits), part)][-MOST_TIMINGS:]
    except ValueError as error:
        return draw_error(error), timings
    return draw_timings(timings), timings
