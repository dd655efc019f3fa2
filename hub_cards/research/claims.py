"""The claims of the papers and their verdicts: `hub_cards/research/papers/*.yaml` against the results files.

A file of claims holds the name of a paper, and for each claim:

    place: where the paper makes it
    says: what the paper says, with its numbers
    abstract: true if the abstract makes it; such claims stand first
    study: the study whose runs decide it, or
    rows: the results file that does, below hub_cards; with a study, another file of its results than exact match by size
    holds: the predicates that must all hold (longhand.hub_cards.research.predicates), with their parameters
    paper: the paper's largest trained and tested sizes, how many problems a run of it is trained on, and the width of its
        model; paper 2 gives no number of epochs, so there the problems are those of its training set
    seeds: the fewest seeds of every variant: 3 for claims of an abstract, else 1, unless it says so
    note: what else a reader must know
    tried: what was tried to fit its methods, unless the study's file says so
"""

import re
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from longhand.hub_cards.evaluation.results import RESULTS_FILE, Row, by_class, group_variants, last_rows, read_results
from longhand.hub_cards.recipes import read_recipe
from longhand.hub_cards.research.predicates import (
    PREDICATES,
    Evidence,
    NotFittedError,
    NotRunError,
    check_parameters,
)
from longhand.hub_cards.research.study import STUDY_RESULTS, Study, list_studies, load_study
from longhand.hub_cards.research.tables import render_table

PAPERS = ("position-coupling", "structural-symmetry", "scratchpads")
"""The files of claims, in the order of the page."""

HUB_CARDS = Path(__file__).parents[1]
CLAIMS_FOLDER = HUB_CARDS / "research" / "papers"

REPRODUCED = "reproduced"
REDUCED = "at reduced scale"
CONTRADICTED = "contradicted"
UNFITTED = "cannot be fitted here"
NOT_RUN = "not run yet"
VERDICTS = (REPRODUCED, REDUCED, CONTRADICTED, UNFITTED, NOT_RUN)

SCALE = {"trained": "trained to", "tested": "tested to", "problems": "training problems", "width": "width"}


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim as its file describes it; the module's docstring says what the fields mean."""

    place: str
    says: str
    holds: list[dict[str, dict[str, Any]]]
    study: str = ""
    rows: str = ""
    abstract: bool = False
    paper: dict[str, int] = field(default_factory=dict)
    seeds: int = 0
    note: str = ""
    tried: str = ""

    def __post_init__(self) -> None:
        if not self.study and not self.rows:
            raise ValueError("it needs a study or rows")
        if unknown := sorted(set(self.paper) - set(SCALE)):
            raise ValueError(f"paper has the unknown size {unknown[0]!r}: legal are {', '.join(SCALE)}")
        if not self.holds:
            raise ValueError("it has no predicate, so no verdict")
        for name, parameters in self.predicates:
            check_parameters(name, parameters)

    @property
    def predicates(self) -> list[tuple[str, dict[str, Any]]]:
        """The name and the parameters of every predicate."""
        return [item for one in self.holds for item in one.items()]


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, the setting and the numbers that it rests on, and why."""

    verdict: str
    setting: str
    seeds: str
    found: str
    why: str


def load_claims(paper: str) -> tuple[str, list[Claim]]:
    """Return the title of a paper and its claims, claims of the abstract first.

    Raises:
        ValueError: a claim has an unknown field, lacks one, or asks for a predicate that there is not.
    """
    file = CLAIMS_FOLDER / f"{paper}.yaml"
    values = read_recipe(file)
    claims = []
    for entry in values["claims"]:
        if unknown := sorted(set(entry) - {option.name for option in fields(Claim)}):
            raise ValueError(f"{file}, {entry.get('place')}: unknown field {unknown[0]!r}")
        try:
            claims.append(Claim(**entry))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{file}, {entry.get('place')}: {error}") from error
    return values["title"], sorted(claims, key=lambda claim: not claim.abstract)


def find_evidence(claim: Claim) -> Evidence:
    """Return the rows that decide a claim; of a study the last checkpoints, problems of one length by their class.

    Raises:
        NotRunError: they are not there yet.
    """
    if not claim.study:
        return Evidence(read_rows(HUB_CARDS / claim.rows))
    if claim.study not in list_studies():
        raise NotRunError(f"there is no study `{claim.study}` yet")
    folder = STUDY_RESULTS / claim.study
    tests = last_rows(read_rows(folder / RESULTS_FILE))
    rows = read_rows(folder / claim.rows) if claim.rows else tests
    classes = len({row.get("length") for row in rows}) == 1 and len({row.get("length_b") for row in rows}) > 1
    return Evidence(by_class(rows) if classes else rows, load_study(claim.study), tests)


def read_rows(file: Path) -> list[Row]:
    """Return the rows of a results file.

    Raises:
        NotRunError: it is not there.
    """
    if not file.exists():
        raise NotRunError(f"`{file.relative_to(HUB_CARDS)}` is not there yet")
    return read_results(file)


def named_variants(claim: Claim, study: Study) -> list[str]:
    """Return the variants of a study that a claim's predicates name."""
    words = set(re.findall(r"[\w-]+", str(claim.predicates)))
    return [variant for variant in study.variants if variant in words]


def our_scale(claim: Claim, evidence: Evidence, study: Study) -> dict[str, int]:
    """Return the sizes and budgets of `SCALE`, each the largest of the claim's variants."""
    variants = named_variants(claim, study)
    tested = [row["length"] for row in evidence.tests if row["model"].rpartition("-seed")[0] in variants]
    settings = [{name: study.setting(one, name) for name in ("max_steps", "batch_size", "hidden_size")} for one in variants]
    return {
        "trained": max(study.trained_sizes(variant)[1] for variant in variants),
        "tested": max(tested, default=0),
        "problems": max(one["max_steps"] * one["batch_size"] for one in settings),
        "width": max(one["hidden_size"] for one in settings),
    }


def judge(claim: Claim) -> Judgement:
    """Return the verdict that a claim's predicates give."""
    try:
        evidence = find_evidence(claim)
        setting, seeds, smaller = describe_setting(claim, evidence)
    except NotRunError as error:
        return Judgement(NOT_RUN, f"`{claim.study or claim.rows}`", "", "", sentences(str(error), claim.note))
    verdict, found, why = judge_evidence(claim, evidence)
    if verdict == REPRODUCED and smaller:
        verdict = REDUCED
    needed = claim.seeds or (3 if claim.abstract else 1)
    if verdict != NOT_RUN and evidence.study and int(seeds) < needed:
        if verdict == UNFITTED:
            why = sentences(why, "more seeds are not run, since the setting does not fit")
        else:
            verdict, why = NOT_RUN, sentences(f"{seeds} of {needed} seeds are run", why)
    below = f"smaller than in the paper: {', '.join(smaller)}" if smaller and found else ""
    return Judgement(verdict, setting, seeds, found, sentences(why, below, claim.note))


def judge_evidence(claim: Claim, evidence: Evidence) -> tuple[str, str, str]:
    """Return the verdict of a claim's predicates whatever the scale and the seeds, what was found, and why."""
    try:
        findings = [PREDICATES[name](evidence, **parameters) for name, parameters in claim.predicates]
    except NotRunError as error:
        return NOT_RUN, "", str(error)
    except NotFittedError as error:
        return (
            UNFITTED,
            "",
            sentences(str(error), claim.tried or f"`research/studies/{claim.study}.yaml` says what was tried"),
        )
    found = "; ".join(finding.found for finding in findings)
    failed = "; ".join(dict.fromkeys(finding.asked for finding in findings if not finding.holds))
    return (CONTRADICTED, found, f"asked: {failed}") if failed else (REPRODUCED, found, "")


def describe_setting(claim: Claim, evidence: Evidence) -> tuple[str, str, list[str]]:
    """Return where a claim's rows come from, with the paper's sizes in brackets; the seeds; and which sizes are smaller."""
    if (study := evidence.study) is None:
        return f"`{claim.rows}`", "", []
    runs = group_variants(evidence.rows)
    ours = our_scale(claim, evidence, study)
    best = ", best checkpoints" if any(str(row.get("model")).endswith("/best") for row in evidence.rows) else ""
    setting = f"[`{study.name}`](research/studies/{study.name}.yaml): {describe_scale(ours, claim.paper)}{best}"
    seeds = min(len({row["model"] for row in runs.get(variant, ())}) for variant in named_variants(claim, study))
    return setting, str(seeds), [SCALE[name] for name, size in claim.paper.items() if ours[name] < size]


def describe_scale(ours: dict[str, int], paper: dict[str, int]) -> str:
    """Return our sizes, each with the paper's in brackets."""
    return ", ".join(
        f"{words} {ours[name]:,}" + (f" ({paper[name]:,})" if name in paper else "") for name, words in SCALE.items()
    )


def sentences(*parts: str) -> str:
    """Return the parts that are not empty as sentences."""
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in parts if part)


def claims_table(judged: dict[Claim, Judgement]) -> str:
    """Return a line for each claim: what the paper says, what was measured, and the verdict."""
    lines = [
        {
            "place": claim.place,
            "the paper says": claim.says,
            "verdict": f"**{judgement.verdict}**",
            "our numbers": judgement.found,
            "why": judgement.why,
            "our setting (the paper's)": judgement.setting,
            "seeds": judgement.seeds,
        }
        for claim, judgement in judged.items()
    ]
    return render_table(lines)


def summary_table(papers: dict[str, dict[Claim, Judgement]]) -> str:
    """Return how many claims have which verdict: of every abstract, then of every paper."""
    abstracts = {title: [one for claim, one in judged.items() if claim.abstract] for title, judged in papers.items()}
    kinds = {f"abstract of {title}": own for title, own in abstracts.items()}
    kinds |= {f"all of {title}": list(judged.values()) for title, judged in papers.items()}
    lines = []
    for kind, judgements in kinds.items():
        counts = Counter(judgement.verdict for judgement in judgements)
        lines.append(
            {"claims": kind, **{name: str(counts[name]) for name in VERDICTS}, "claims in all": str(len(judgements))}
        )
    return render_table(lines)


def claims_blocks() -> dict[str, str]:
    """Return the tables of CLAIMS.md by the name of their block."""
    loaded = {name: load_claims(name) for name in PAPERS}
    judged = {name: {claim: judge(claim) for claim in claims} for name, (_, claims) in loaded.items()}
    tables = {f"claims/{name}": claims_table(own) for name, own in judged.items()}
    return {"claims/summary": summary_table({loaded[name][0]: own for name, own in judged.items()}), **tables}
