"""A certificate in words, as HTML."""

from collections.abc import Mapping
from typing import Any

from longhand.data import Task
from longhand.data.certificates import ROUNDING_FACTOR
from longhand.hub_cards.space.drawing import escape
from longhand.hub_cards.space.reading import Exhibit


def draw_certificate(certificate: Mapping[str, Any], task: Task) -> str:
    """What a certificate, the fields of `data.certificates.Certificate`, proves, or what stands against it."""
    if certificate["certified"]:
        headline = f"Certified: right for {task.every_problem}."
        lines = [*_describe_check(certificate), *_describe_rounding(certificate)]
    else:
        headline = "Not certified."
        lines = [*_describe_check(certificate), certificate["statement"]]
    lines += [f"Weights and configuration have the hash {certificate['weights'][:16]}…"]
    failures = "".join(
        f"<li>{escape(found['problem'])}: {escape(found['instead'])} instead of {escape(found['right'])}</li>"
        for found in certificate["failures"]
    )
    steps = "".join(f"<li>{escape(step)}</li>" for step in certificate["proof"])
    details = (
        f"<details><summary>The statement and its proof</summary><p>{escape(certificate['statement'])}</p><ol>{steps}</ol>"
        "</details>"
    )
    kind = "lh-good" if certificate["certified"] else "lh-bad"
    return (
        f'<div class="lh-proof"><p class="lh-headline {kind}">{escape(headline)}</p>'
        f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
        f"{f'<p>It gets wrong:</p><ul>{failures}</ul>' if failures else ''}{details if steps else ''}</div>"
    )


def _describe_check(certificate: Mapping[str, Any]) -> list[str]:
    cases = []
    if certificate["neighbourhoods"] is not None:
        cases.append(f"{certificate['neighbourhoods']:,} neighbourhoods")
    if certificate["problems"] is not None:
        cases.append(f"{certificate['problems']:,} short problems")
    lines = [f"A token of the response sees only a few others. So there are finitely many cases: {' in '.join(cases)}."]
    if certificate["wrong"]:
        return [*lines, f"Of {certificate['predictions']:,} predictions in them, {certificate['wrong']:,} are wrong."]
    won = f"In all {certificate['predictions']:,} predictions the right token wins"
    return [*lines, f"{won}, by {certificate['margin']:.3g} or more." if certificate["margin"] is not None else f"{won}."]


def _describe_rounding(certificate: Mapping[str, Any]) -> list[str]:
    return [
        f"Rounding moves this lead by at most {certificate['bound']:.2g}, in whatever order a processor adds. Each lead is "
        f"at least {certificate['ratio']:,.0f} times its own bound; {ROUNDING_FACTOR} times is asked."
    ]


def draw_stated(exhibit: Exhibit) -> str:
    """The certificate beside a checkpoint, or why there is none."""
    if exhibit.certificate is not None:
        return draw_certificate(exhibit.certificate, exhibit.task)
    why = (
        f"Its certificate does not hold: {exhibit.fault}."
        if exhibit.fault
        else f"{exhibit.name} comes without a certificate."
    )
    return f'<div class="lh-proof"><p class="lh-headline">{escape(why)}</p></div>'


def draw_checked(found: str, seconds: float, exhibit: Exhibit, difference: str | None) -> str:
    """The result of a new check, and whether the certificate says the same.

    Args:
        found: the result as `draw_certificate` draws it.
        difference: as `find_difference` returns it.
    """
    said = f"Checked here and now, in {seconds:.1f} seconds."
    if exhibit.certificate is not None:
        said += " The certificate says the same." if difference is None else f" The certificate differs: {difference}."
    return f'<p class="lh-note">{escape(said)}</p>{found}'
