"""The claims of the papers and their verdicts: `hub_cards/research/papers/*.yaml` against the results files.

A file of claims holds the `title` of a paper, the number of `seeds` of its runs, the arguments and sizes about which it is
`silent`, and for each claim:

    place: where the paper makes it
    says: what the paper says, with its numbers
    abstract: true if the abstract makes it; such claims stand first
    study: the study whose runs decide it, or
    rows: the results file that does, below hub_cards; with a study, another file of its results than exact match by size
    holds: the expressions that must all hold (papers/predicates.py); none if a test alone decides
    paper: the paper's own run, a variant of the study `paper-scale`; or such a variant for each variant of the study. The
        variants of `paper-scale` are the paper's own
    exact: the test that shows the claim, or its opposite, whatever the scale
    note: what else a reader must know
    tried: what was tried to fit its methods, unless the study's file says so
    also: other studies that judge the same claim, each with those of the fields above that differ. A study with the paper's
        sizes and budget decides, and where the claim's own study leaves it open, one with an `exact` answer; the page says
        what the other studies find

Runs of the papers' sizes are judged by the papers' protocol: by the checkpoint of each run that its validations chose.
Smaller runs are judged by their last checkpoint, since few problems choose their best one, and not as in the papers. What
the other checkpoints say is shown beside it where the verdict differs.

How the runs of a study differ from the paper's is computed from the arguments of both. The paper's settings are the variants
of the study `paper-scale`. A variant may differ in its sizes and budget, in the method, or in other arguments;
`settings.yaml` says which are which.
"""

# Used by: pages.py. Changed freely.

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path

from pandas import DataFrame

from longhand.hub_cards.recipes import Recipe, read_settings
from longhand.hub_cards.research.papers.costs import PAPER_RUNS, core_hours, gpu_minutes
from longhand.hub_cards.research.papers.predicates import (
    ENOUGH_SEEDS,
    Evidence,
    NotFittedError,
    NotRunError,
    ask,
    names,
    texts_of,
)
from longhand.hub_cards.research.study import STUDY_RESULTS, Study, list_studies, load_study
from longhand.hub_cards.research.study_pages import by_class, is_by_class
from longhand.hub_cards.research.tables import as_frame, chosen, last, render_table
from longhand.hub_cards.result_rows import RESULTS_FILE, read_results

PAPERS = ("position-coupling", "structural-symmetry", "scratchpads")
"""The files of claims, in the order of the page."""

HUB_CARDS = Path(__file__).parents[1]
CLAIMS_FOLDER = HUB_CARDS / "research" / "papers"

Settings = Recipe
"""The arguments of a run, and what was tested."""

SIZES, METHOD, NOT_COMPARED = read_settings(HUB_CARDS / "research" / "settings.yaml").values()

GPU_MINUTES = 15
"""The time on a GPU for which the page says what it decides."""

REPRODUCED = "reproduced"
BY_ANOTHER = "by another method"
REDUCED = "at reduced scale"
CONTRADICTED = "contradicted"
UNDECIDED = "not decided"
UNFITTED = "cannot be fitted here"
NOT_RUN = "not run yet"
NAMED_RUNS = 4
"""Runs of the papers that the page names as the next ones."""

OPEN = (UNDECIDED, UNFITTED, NOT_RUN)
VERDICTS = (REPRODUCED, REDUCED, BY_ANOTHER, CONTRADICTED, UNDECIDED, UNFITTED, NOT_RUN)


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim as its file describes it; the module's docstring says what the fields mean."""

    place: str
    says: str
    holds: list[str]
    study: str = ""
    rows: str = ""
    abstract: bool = False
    paper: str | dict[str, str] = ""
    exact: str = ""
    note: str = ""
    tried: str = ""
    also: list[Settings] = field(default_factory=list)

    @property
    def alternatives(self) -> list["Claim"]:
        """The claim as other studies judge it."""
        return [replace(self, **{"also": [], "note": "", **changes}) for changes in self.also]

    @property
    def variants(self) -> dict[str, str]:
        """The variants of the study that the expressions name, each with the paper's run of it."""
        texts = {text for expression in self.holds for text in texts_of(expression)}
        named = [variant for variant in load_study(self.study).variants if variant in texts] if self.study else []
        if self.study == PAPER_RUNS:
            return {variant: variant for variant in named}
        paper = self.paper if isinstance(self.paper, dict) else dict.fromkeys(named, self.paper)
        return {variant: paper.get(variant, "") for variant in named}


@dataclass(frozen=True)
class Paper:
    """A paper's claims, those of its abstract first; the module's docstring says what the fields mean."""

    title: str
    seeds: int
    silent: list[str]
    claims: list[Claim]


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, and why.

    Attributes:
        own_method: whether the paper's own method was judged, and not another one that does what the sentence says.
        setting: the study, or the results file, that was judged.
        sizes: those that differ from the paper's, ours and the paper's.
        smaller: the sizes below the paper's: sizes, budget, seeds and test problems.
    """

    verdict: str
    own_method: bool = True
    setting: str = ""
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    found: str = ""
    why: str = ""
    smaller: frozenset[str] = frozenset()


def load_claims(paper: str) -> Paper:
    """Return the claims of a paper."""
    values = read_settings(CLAIMS_FOLDER / f"{paper}.yaml")
    claims = [Claim(**entry) for entry in values["claims"]]
    return Paper(values["title"], values["seeds"], values["silent"], sorted(claims, key=lambda claim: not claim.abstract))


Selection = Callable[[DataFrame], DataFrame]
"""Returns the rows of the checkpoints that are judged: `chosen` or `last`."""


def find_evidence(claim: Claim, select: Selection = last) -> Evidence:
    """Return the rows that decide a claim; of a study, problems of one length by their class.

    If other results than those of the tests were measured of one kind of checkpoint alone, they are those.

    Raises:
        NotRunError: the rows are not there yet.
    """
    if not claim.study:
        return Evidence(read_rows(HUB_CARDS / claim.rows) if claim.rows else as_frame([]))
    if claim.study not in list_studies():
        raise NotRunError(f"there is no study `{claim.study}` yet")
    study, folder, named = load_study(claim.study), STUDY_RESULTS / claim.study, claim.variants

    def read(file: str) -> DataFrame:
        rows = read_rows(folder / file)
        return rows[rows["variant"].isin(named)] if named else rows

    tests = read(RESULTS_FILE)
    if not claim.rows:
        return Evidence(select(tests), study, select(tests))
    measured = read(claim.rows)
    rows = measured if select(measured).empty else select(measured)
    # What fits is said of the checkpoints that were measured.
    tests = chosen(tests) if rows["is_best"].any() else last(tests)
    return Evidence(by_class(rows) if is_by_class(rows) else rows, study, tests)


def read_rows(file: Path) -> DataFrame:
    """Return the rows of a results file.

    Raises:
        NotRunError: it is not there.
    """
    if not file.exists():
        raise NotRunError(f"`{file.relative_to(HUB_CARDS)}` is not there yet")
    return as_frame(read_results(file))


def judge(claim: Claim, paper: Paper) -> Judgement:
    """Return the verdict that a claim's expressions give.

    The study at the paper's scale decides if there is one; else an exact answer, if the claim's own study leaves it open.
    """
    own = judge_once(claim, paper)
    others = [(alternative, judge_once(alternative, paper)) for alternative in claim.alternatives]
    others = [(alternative, judgement) for alternative, judgement in others if judgement.verdict != NOT_RUN]
    for _, judgement in others:
        if judgement.smaller <= {"seeds", "test problems"}:
            return judgement
    for alternative, judgement in others:
        if alternative.exact and judgement.verdict in (REPRODUCED, BY_ANOTHER) and own.verdict in (UNDECIDED, UNFITTED):
            also = f"by `{claim.study or claim.rows}` it is {own.verdict}: {own.found or own.why}"
            return replace(judgement, why=sentences(judgement.why, also))
    found = [
        f"by `{alternative.study or alternative.rows}` it is {judgement.verdict}: {judgement.found or judgement.why}"
        for alternative, judgement in others
    ]
    return replace(own, why=sentences(own.why, *found))


def judge_once(claim: Claim, paper: Paper) -> Judgement:
    """Return the verdict of a claim by its own study alone, and that of its other checkpoints if it differs."""
    selections: dict[str, Selection] = {"best": chosen, "last": last}
    judged, beside = ("best", "last") if claim.study == PAPER_RUNS else ("last", "best")
    judgement, other = (judge_checkpoints(claim, paper, selections[name]) for name in (judged, beside))
    if NOT_RUN in (judgement.verdict, other.verdict) or other.verdict == judgement.verdict:
        return judgement
    said = f"the {beside} checkpoints say otherwise, {other.verdict}: {other.found or other.why}"
    return replace(judgement, why=sentences(judgement.why, said))


def judge_checkpoints(claim: Claim, paper: Paper, select: Selection) -> Judgement:
    """Return the verdict of a claim by some checkpoints of its own study."""
    try:
        evidence = find_evidence(claim, select)
        judgement = judge_scale(claim, paper, evidence)
        evidence = replace(evidence, at_scale=not judgement.smaller)
        findings = [ask(expression, evidence) for expression in claim.holds]
    except NotRunError as error:
        return Judgement(NOT_RUN, setting=f"`{claim.study or claim.rows}`", why=sentences(str(error), claim.note))
    except NotFittedError as error:
        return replace(judgement, verdict=UNFITTED, found=str(error), why=sentences(claim.tried, claim.note))
    found = join_numbers(chain.from_iterable(finding.found.split("; ") for finding in findings))
    fitting = {variant: evidence.seeds_that_fit(variant) for variant in claim.variants}
    fewest = min((seeds for _, seeds in fitting.values()), default=ENOUGH_SEEDS)
    open_parts, shown = (
        "; ".join(dict.fromkeys(finding.asked for finding in findings if (finding.holds is True) == holds))
        for holds in (False, True)
    )
    wrong = any(finding.holds is False for finding in findings)
    partly = [f"`{name}` fits with {fit} of {seeds} seeds" for name, (fit, seeds) in fitting.items() if fit < seeds]
    single = [name for name, (_, seeds) in fitting.items() if seeds == 1]
    if single:
        partly.append(f"one seed of {names(single)}")
    decided = f"decided: {shown}" if open_parts and shown else ""
    why = sentences(f"asked: {open_parts}" if open_parts else "", decided, ", ".join(partly), claim.note)
    if claim.exact:
        verdict, why = CONTRADICTED if wrong else REPRODUCED, sentences(f"shown by {claim.exact}", claim.note)
    elif not open_parts and (fewest >= ENOUGH_SEEDS or not claim.abstract):
        verdict = REPRODUCED if not judgement.smaller else REDUCED
    else:
        verdict = CONTRADICTED if wrong and not judgement.smaller and fewest >= ENOUGH_SEEDS else UNDECIDED
    if verdict == REPRODUCED and not judgement.own_method:
        verdict = BY_ANOTHER
    return replace(judgement, verdict=verdict, found=found, why=why)


def changes_method(name: str, ours: object, paper: object) -> bool:
    """Whether a difference is one of the method.

    Scores that are divided by sqrt(d) differ from others in the first weights alone, unlike scores that grow with length.
    """
    return name in METHOD or (name == "attention_scale" and "log_length" in (ours, paper))


def variant_settings(study: Study, variant: str, rows: DataFrame) -> Settings:
    """Return the arguments of a variant, with the largest tested size as `tested` and the fewest problems as `test_samples`.

    Args:
        rows: of the study, which say what was tested; without them, what is to be tested.
    """
    run = study.parse(variant)
    own = rows[rows["variant"] == variant]
    values = {**run.recipe, "seeds": own["model"].nunique() if len(own) else 0, "tested": max(run.data.test_lengths)}
    if len(own):
        values |= {"tested": int(own["length"].max()), "test_samples": int(own["num_samples"].min())}
    # Repeated problems are counted again.
    values["training_problems"] = values["max_steps"] * values["batch_size"]
    values["distinct_problems"] = values["num_train_samples"] or values["training_problems"]
    values |= {name: getattr(run.config, name, None) for name in ("coupling", "head_dim")}
    values |= {"pair_maps": kinds_of_maps(values.get("pair_maps")), "relation_range": clipping(values)}
    windowed = values.get("position_encoding") in (None, "relative")
    # Arguments that the chosen encoding does not read.
    return {
        name: value
        for name, value in values.items()
        if windowed or name not in ("relation_range", "windowed", "relation_init")
    }


def kinds_of_maps(pair_maps: list[str] | str | None) -> list[str] | None:
    """Return which pair maps the heads of an encoder have; the papers do not say how many heads have which."""
    if pair_maps is None:
        return None
    kinds = {pair_maps} if isinstance(pair_maps, str) else {*pair_maps}
    return sorted(kinds - {"none"}) or ["none"]


def clipping(values: Settings) -> list[int] | None:
    """Return the range of relations; None if it takes in every difference of places in an encoder's field."""
    relations, field_width = values.get("relation_range"), values.get("field_width")
    if relations is None or field_width is None or values.get("windowed"):
        return relations
    return None if relations[0] <= -field_width and relations[1] >= field_width else relations


@cache
def paper_settings(experiment: str, seeds: int) -> Settings:
    """Return the paper's settings of an experiment, a variant of `paper-scale`."""
    return {**variant_settings(load_study(PAPER_RUNS), experiment, as_frame([])), "seeds": seeds}


def compare_sizes(ours: Settings, paper: Settings, silent: list[str]) -> dict[str, tuple[int, int]]:
    """Return the sizes that differ, ours and the paper's, without those of which the paper says nothing."""
    stated = {
        name: size for name, size in SIZES.items() if name not in silent and None not in (ours.get(size), paper.get(size))
    }
    return {name: (ours[size], paper[size]) for name, size in stated.items() if ours[size] != paper[size]}


def compare_arguments(ours: Settings, paper: Settings, silent: list[str]) -> dict[str, tuple[object, object]]:
    """Return the other arguments that differ, ours and the paper's; None, 0 and False count as equal."""
    names = sorted({*paper, *ours}.difference(SIZES.values(), chain(*NOT_COMPARED), silent))
    pairs = {name: (ours.get(name) or None, paper.get(name) or None) for name in names}
    return {name: (our_value, paper_value) for name, (our_value, paper_value) in pairs.items() if our_value != paper_value}


def find_settings(claim: Claim, paper: Paper, evidence: Evidence) -> dict[str, tuple[Settings, Settings]]:
    """Return the settings of each of a claim's variants, ours and the paper's, where the paper has such a run."""
    assert evidence.study is not None
    return {
        variant: (variant_settings(evidence.study, variant, evidence.tests), paper_settings(experiment, paper.seeds))
        for variant, experiment in claim.variants.items()
        if experiment
    }


def judge_scale(claim: Claim, paper: Paper, evidence: Evidence) -> Judgement:
    """Return a judgement without a verdict: whose method was judged, and at which sizes."""
    if evidence.study is None:
        return Judgement(NOT_RUN, setting=f"`{claim.rows}`" if claim.rows else "")
    sizes: dict[str, tuple[int, int]] = {}
    own_method = True
    for ours, papers in find_settings(claim, paper, evidence).values():
        differing = compare_arguments(ours, papers, paper.silent)
        own_method &= not any(changes_method(name, *values) for name, values in differing.items())
        for name, (size, paper_size) in compare_sizes(ours, papers, paper.silent).items():
            # The variant that is farthest below the paper says what was spent.
            if name not in sizes or size / max(paper_size, 1) < sizes[name][0] / max(sizes[name][1], 1):
                sizes[name] = size, paper_size
    setting = f"[`{claim.study}`](research/studies/{claim.study}.yaml)"
    smaller = frozenset(name for name, (size, paper_size) in sizes.items() if size < paper_size)
    return Judgement(NOT_RUN, own_method, setting, sizes, smaller=smaller)


def join_numbers(texts: Iterable[str]) -> str:
    """Return different texts as one list; a beginning that a text shares with the one before, to a comma, is said once."""
    joined, beginning = "", None
    for text in dict.fromkeys(texts):
        first, comma, rest = text.rpartition(", ")
        joined += f", {rest}" if comma and first == beginning else f"{'; ' if joined else ''}{text}"
        beginning = first
    return joined


def sentences(*parts: str) -> str:
    """Return the parts that are not empty as sentences."""
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in parts if part)


def runs_of_papers(claim: Claim) -> list[str]:
    """Return the papers' runs that judge a claim, in its own study or in others."""
    return [name for version in (claim, *claim.alternatives) if version.study == PAPER_RUNS for name in version.variants]


def deciding_table(numbered: dict[int, tuple[Claim, Judgement]]) -> str:
    """Return a line for the papers' runs that decide rows whose verdict is open, with roughly their cost.

    Args:
        numbered: the claims of all papers by their row.
    """
    decided: dict[tuple[str, ...], list[int]] = {}
    for number, (claim, judgement) in numbered.items():
        if judgement.verdict in OPEN and (experiments := runs_of_papers(claim)):
            decided.setdefault(tuple(experiments), []).append(number)
    return render_table(
        [
            {
                "rows": ", ".join(map(str, rows)),
                "runs that decide them": " ".join(experiments),
                "core-hours a seed": f"{round(sum(map(core_hours, experiments))):,}",
            }
            for experiments, rows in decided.items()
        ]
    )


def sizes_table(judged: dict[Claim, Judgement], first: int) -> str:
    """Return a line for the claims, numbered from `first`, that were judged at the same sizes: ours (the paper's).

    A cell is empty where our size is the paper's, or the paper gives none.
    """
    names = [name for name in SIZES if any(name in judgement.sizes for judgement in judged.values())]
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, judgement in enumerate(judged.values(), start=first):
        if judgement.sizes:
            cells = [
                f"{judgement.sizes[name][0]:,} ({judgement.sizes[name][1]:,})" if name in judgement.sizes else ""
                for name in names
            ]
            alike.setdefault((judgement.setting, *cells), []).append(number)
    return render_table(
        [
            {"rows": ", ".join(map(str, rows)), **dict(zip(("study", *names), cells, strict=True))}
            for cells, rows in alike.items()
        ]
    )


def next_runs(numbered: dict[int, tuple[Claim, Judgement]]) -> str:
    """Return a sentence: which runs of the papers decide most claims a minute of a GPU, and which claims.

    A claim counts if one seed of one run decides it and nothing has settled it yet; those of abstracts need more seeds.

    Args:
        numbered: the claims of all papers by their row.
    """
    decided: dict[str, list[int]] = {}
    for number, (claim, judgement) in numbered.items():
        runs = set(runs_of_papers(claim))
        if len(runs) == 1 and not claim.abstract and judgement.verdict not in (REPRODUCED, CONTRADICTED):
            decided.setdefault(runs.pop(), []).append(number)
    order = sorted(decided, key=lambda run: len(decided[run]) / gpu_minutes(run), reverse=True)
    first, *others = [f"`{run}` ({gpu_minutes(run):.0f} minutes) rows {', '.join(map(str, decided[run]))}" for run in order][
        :NAMED_RUNS
    ]
    decide = "decide" if gpu_minutes(order[0]) <= GPU_MINUTES else "begin what decides"
    text = (
        f"**The next {GPU_MINUTES} minutes of a GPU** {decide} most by one seed of {first}; then, by rows a minute, "
        f"{'; '.join(others)}. Claims of abstracts need {ENOUGH_SEEDS} seeds. Minutes are those of compiled steps at "
        "the speed that RESULTS.md shows. "
        f"`python -m longhand.hub_cards.research gpu --parts {PAPER_RUNS} --minutes 13` trains those that may end beside "
        "each other."
    )
    return f"{textwrap.fill(text, 140, break_on_hyphens=False)}\n"


def claims_table(judged: dict[Claim, Judgement], first: int) -> str:
    """Return a line for each claim, numbered from `first`: what the paper says, the verdict, and its reasons."""
    return render_table(
        [
            {
                "row": str(number),
                "place": claim.place,
                "the paper says": claim.says,
                "verdict": f"**{judgement.verdict}**",
                "method": "the paper's" if judgement.own_method else "another",
                "our numbers": judgement.found,
                "why": judgement.why,
                "study": judgement.setting,
            }
            for number, (claim, judgement) in enumerate(judged.items(), start=first)
        ]
    )


def settings_table(paper: Paper) -> str:
    """Return a line for variants that differ alike from the paper's runs: their arguments (the paper's).

    What most runs have alike of the last column is said once, below the table.
    """
    runs: dict[tuple[str, str], tuple[str, dict[str, str]]] = {}
    versions = [version for claim in paper.claims for version in (claim, *claim.alternatives)]
    for claim in (version for version in versions if version.study):
        try:
            evidence = find_evidence(claim)
        except NotRunError:
            continue
        for variant, (ours, papers) in find_settings(claim, paper, evidence).items():
            said: dict[bool, dict[str, str]] = {True: {}, False: {}}
            for name, values in compare_arguments(ours, papers, paper.silent).items():
                said[changes_method(name, *values)][name] = f"{values[0]} ({values[1]})"
            runs[claim.study, f"`{variant}` (`{claim.variants[variant]}`)"] = list_arguments(said[True]), said[False]
    counts = Counter(pair for _, others in runs.values() for pair in others.items())
    usual = dict(sorted(pair for pair, number in counts.items() if number > len(runs) / 2))
    alike: dict[tuple[str, str], dict[str, list[str]]] = {}
    for (study, run), (method, others) in runs.items():
        key = method, list_arguments(unusual(others, usual))
        alike.setdefault(key, {}).setdefault(study, []).append(run)
    lines = []
    for (method, arguments), studies in sorted(alike.items(), key=lambda item: min(item[1])):
        named = "; ".join(f"`{study}`: {', '.join(names)}" for study, names in sorted(studies.items()))
        lines.append({"study: runs (the paper's)": named, "method": method, "other arguments": arguments})
    return render_table(lines, f"Other arguments, where a row does not say otherwise: {list_arguments(usual)}.")


def list_arguments(values: Mapping[str, str]) -> str:
    """Return arguments with their values in one line."""
    return ", ".join(f"`{name}` {value}" for name, value in values.items())


def unusual(values: Mapping[str, str], usual: Mapping[str, str]) -> dict[str, str]:
    """Return the values that are not the usual ones; "as the paper" stands for an argument that does not differ."""
    differing = {name: value for name, value in values.items() if usual.get(name) != value}
    return differing | {name: "as the paper" for name in usual if name not in values}


def summary_table(papers: dict[str, dict[Claim, Judgement]]) -> str:
    """Return how many claims have which verdict, by whose method: of every abstract, then of every paper."""
    lines = []
    for abstract in (True, False):
        for title, judged in papers.items():
            for is_own, whose in ((True, "the paper's method"), (False, "another method")):
                verdicts = Counter(
                    judgement.verdict
                    for claim, judgement in judged.items()
                    if (claim.abstract or not abstract) and judgement.own_method == is_own
                )
                if verdicts:
                    group = f"{'abstract' if abstract else 'all'} of {title}: {whose}"
                    counts = {name: str(verdicts[name]) for name in VERDICTS}
                    lines.append({"claims": group, **counts, "in all": str(verdicts.total())})
    return render_table(lines)


def learned_lines() -> str:
    """Return what was learned as a list, with its numbers from the results files (`papers/learned.yaml`)."""
    lines = read_settings(CLAIMS_FOLDER / "learned.yaml")["lines"]
    texts = (line["text"].format(*(learned_number(**number) for number in line["numbers"])) for line in lines)
    return "".join(textwrap.fill(f"- {text}", 140, subsequent_indent="  ") + "\n" for text in texts)


def learned_number(number: str, study: str = "", rows: str = "") -> object:
    """Return a number of `learned.yaml`, whose head says what the fields mean.

    Raises:
        NotRunError: it is not among the results.
        NotFittedError: the variant does not fit its trained sizes.
    """
    return ask(number, find_evidence(Claim(place="", says="", holds=[], study=study, rows=rows)))


def claims_blocks() -> dict[str, str]:
    """Return the tables of CLAIMS.md and PAPERS.md by the name of their block."""
    papers = {name: load_claims(name) for name in PAPERS}
    judged = {name: {claim: judge(claim, paper) for claim in paper.claims} for name, paper in papers.items()}
    blocks = {
        "claims/learned": learned_lines(),
        "claims/summary": summary_table({papers[name].title: judgements for name, judgements in judged.items()}),
    }
    numbered = dict(enumerate(chain.from_iterable(judgements.items() for judgements in judged.values()), start=1))
    blocks |= {"claims/next": next_runs(numbered), "claims/deciding": deciding_table(numbered)}
    first = 1
    for name, judgements in judged.items():
        blocks |= {
            f"claims/{name}": claims_table(judgements, first),
            f"claims/{name}/sizes": sizes_table(judgements, first),
            f"claims/{name}/settings": settings_table(papers[name]),
        }
        first += len(judgements)
    return blocks
