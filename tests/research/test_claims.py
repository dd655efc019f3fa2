"""Verdicts on the papers' claims follow from the results files, and from nothing else."""

from itertools import product
from pathlib import Path

import pytest
from cases import drawn

from longhand.hub_cards.options import read_numbers
from longhand.hub_cards.research import claims
from longhand.hub_cards.research.claims import (
    CONTRADICTED,
    NOT_RUN,
    OPEN,
    PAPER_RUNS,
    PAPERS,
    REDUCED,
    REPRODUCED,
    UNDECIDED,
    UNFITTED,
    Claim,
    Paper,
    compare_arguments,
    deciding_table,
    join_numbers,
    judge,
    judge_once,
    learned_lines,
    load_claims,
    runs_of_papers,
    sizes_table,
    variant_settings,
)
from longhand.hub_cards.research.papers import predicates
from longhand.hub_cards.research.papers.costs import core_hours, gpu_minutes, gpu_speed
from longhand.hub_cards.research.papers.predicates import Evidence, NotRunError, ask, is_higher
from longhand.hub_cards.research.study import STUDIES_FOLDER, STUDY_RESULTS, WRITTEN, Study, list_studies, load_study
from longhand.hub_cards.research.tables import as_frame
from longhand.hub_cards.result_rows import RESULTS_FILE

LOADED = [load_claims(name) for name in PAPERS]
SEEDS = [paper.seeds for paper in LOADED]
CLAIMS = [(claim, paper) for paper in LOADED for claim in paper.claims]

STUDY = Study(
    name="tiny",
    question="Which variant goes farther?",
    recipe="addition-absolute",
    arguments={"max_length": 4, "max_steps": 10, "batch_size": 8},
    variants={"far": {}, "near": {}, "odd": {}},
    seeds=[0, 1, 2],
)
PAPER = Paper("a paper", seeds=3, silent=[], claims=[])


def results(far=(1.0, 1.0, 1.0), near=(1.0, 0.5, 0.0), odd=(0.5, 0.5, 0.5), seeds=3, problems=2000):
    """Exact match of each variant at 4 digits, as trained, and at 8 and 12; a seed is worse by 0.01 than the one before."""
    return [
        {"model": f"{variant}-seed{seed}", "length": size, "length_b": size, "num_samples": problems,
         "exact_match": max(share - seed / 100, 0)}
        for variant, shares in (("far", far), ("near", near), ("odd", odd))
        for seed in range(seeds)
        for size, share in zip((4, 8, 12), shares, strict=True)
    ]  # fmt: skip


def evidence_of(rows, tests=None):
    """The evidence of rows of the small study; without `tests`, the rows say what fits."""
    return Evidence(as_frame(rows), STUDY, as_frame(rows if tests is None else tests))


@pytest.fixture
def judged(monkeypatch):
    """The judgement of expressions over the results of the small study, beside a paper's run of such a size."""

    def verdict(rows, *holds, paper=None, **more):
        settings = variant_settings(STUDY, "far", as_frame([]))
        settings |= {"tested": 12, "seeds": 3, "test_samples": 2000, **(paper or {})}
        monkeypatch.setattr(claims, "find_evidence", lambda claim, select: evidence_of(rows))
        monkeypatch.setattr(claims, "load_study", lambda name: STUDY)
        monkeypatch.setattr(claims, "paper_settings", lambda name, seeds: settings)
        return judge(Claim("Fig. 1", "It goes far.", list(holds), "tiny", paper="sums", **more), PAPER)

    return verdict


FARTHER = 'reach("far") > reach("near")'
LOW = 'match("near", at=8) >= 0.9'


@pytest.mark.parametrize("number", drawn(range(len(CLAIMS)), 35))
def test_every_verdict_has_a_ground_and_changes_with_broken_results(number, monkeypatch):
    claim, paper = CLAIMS[number]
    judgement = judge(claim, paper)
    assert judgement.found or judgement.why
    if judgement.verdict == UNFITTED:
        assert claim.tried or "ried" in (STUDIES_FOLDER / f"{claim.study}.yaml").read_text(), "say what was tried"
    if judgement.verdict in OPEN:
        runs = runs_of_papers(claim)
        assert runs and {*runs} <= load_study(PAPER_RUNS).variants.keys(), claim.says
        assert f"| 7 | {' '.join(runs)} |" in deciding_table({7: (claim, judgement)})
    if judgement.verdict == REDUCED:
        assert judgement.sizes, "what is smaller is said"
        line = sizes_table({claim: judgement}, 7).splitlines()[-1]
        sizes = [f"{ours:,} ({theirs:,})" for ours, theirs in judgement.sizes.values()]
        assert line.startswith(f"| 7 | {judgement.setting} |") and all(f"| {size} |" in line for size in sizes)
    for one in (claim, *claim.alternatives):
        experiments = set(one.variants.values())
        if one.study in list_studies() and not one.exact:
            assert experiments and experiments <= set(load_study(PAPER_RUNS).variants)
            assert paper_runs(claim), "a run of the paper's size decides it too"

    def broken(value):
        """What an accuracy turns into is its opposite; losses and other numbers change their sign."""
        if isinstance(value, list):
            return [broken(one) for one in value]
        if isinstance(value, bool):
            return not value
        return 1 - value if 0 <= value <= 1 else -value

    measured = {"exact_match", "token_accuracy", "accuracy", "certified", "test_loss", "training_loss", "probabilities"}
    measured |= {"share_up_to_4", "effective_relations", "strongest", "after", "run_seconds", "same_id", "id_below"}
    measured |= {"error", "shown", "hidden", "outside", "aligned", "step_seconds", "step_seconds_ratio"}
    read = claims.read_results
    monkeypatch.setattr(
        claims,
        "read_results",
        lambda file: [{name: broken(one) if name in measured else one for name, one in row.items()} for row in read(file)],
    )
    if judgement.verdict in (REPRODUCED, REDUCED) and claim.holds:
        assert judge(claim, paper).verdict in (CONTRADICTED, UNDECIDED, UNFITTED)
    monkeypatch.setattr(claims, "read_results", lambda file: [])
    assert judge(claim, paper).verdict == NOT_RUN or not claim.holds


RUNS = load_study(PAPER_RUNS)


def paper_runs(claim) -> list[Claim]:
    """The claim as runs of the papers' sizes judge it."""
    return [one for one in (claim, *claim.alternatives) if one.study == PAPER_RUNS]


def size_rows(variant, share, checkpoints, trained=1.0, **more):
    """Rows of the seeds of a run of a paper's size, right beyond the trained sizes with the share of its checkpoint."""
    seeds = SEEDS[variant.startswith("encoder")]
    run, longest = RUNS.parse(variant), RUNS.trained_sizes(variant)[1]
    sizes = {"length": run.data.test_lengths, **more}
    numbers = [dict(zip(sizes, values, strict=True)) for values in product(*sizes.values())]
    seconds = 1e5 * (1 + share("") * variant.startswith("index-hints"))
    return [
        {"model": f"{variant}-seed{seed}{checkpoint}", "task": part.name, "length_b": at["length"], "num_samples": 100_000,
         "run_seconds": seconds, **at, "exact_match": trained if max(at.values()) <= longest else share(checkpoint)}
        for part in run.task.parts for seed in range(max(seeds, 3)) for checkpoint in checkpoints for at in numbers
    ]  # fmt: skip


def measured(variant, options, share):
    """Rows of what a study measures of the best checkpoints besides."""
    models = [f"{variant}-seed{seed}/best" for seed in range(3)]
    right = share("/best")
    if "attentions" in options:
        heads = [(1, "same_id", "id_below"), (2, "id_below", "same_id")]
        return [
            {"model": model, "layer": 1, "head": head, strong: right, weak: 0.0}
            for model in models
            for head, strong, weak in heads
        ]
    if "position_maps" in options:
        dispersed = 20 - right if "upe" in variant else 19.5
        more = {"strongest": -1 if right else 3, "effective_relations": dispersed, "after": [2 * right] * 3}
        return [{"model": model, "layer": layer, **more} for model in models for layer in (1, 2)]
    if "output_places" in options:
        return [
            {"model": model, "length": 10, "place": place, "accuracy": right, "num_samples": 10_000}
            for model in models
            for place in range(1, 12)
        ]
    sizes = options["lengths"] if isinstance(options["lengths"], list) else [options["lengths"]]
    others = options.get("lengths_b")
    more = {} if others is None else {"length_b": others if isinstance(others, list) else read_numbers(others, 0, 99)}
    return size_rows(variant, share, ["/best"], length=sizes, **more)


@pytest.fixture
def results_of_the_papers_runs(monkeypatch):
    """Puts results of all runs of the papers' sizes in the place of those that are missing."""
    read = claims.read_rows

    def put(share, trained=1.0):
        tests = [row for name in RUNS.variants for row in size_rows(name, share, ["", "/best"], trained)]
        files = {Path(RESULTS_FILE): tests}
        for name, measurements in RUNS.evaluate.items():
            for options in measurements:
                file = Path(name, next((WRITTEN[option] for option in options if option in WRITTEN), RESULTS_FILE))
                files[file] = [row for variant in options["variants"] for row in measured(variant, options, share)]
        folder = STUDY_RESULTS / PAPER_RUNS
        frames = {file: as_frame(rows) for file, rows in files.items()}
        monkeypatch.setattr(
            claims, "read_rows", lambda file: frames[file.relative_to(folder)] if folder in file.parents else read(file)
        )

    return put


def test_every_run_of_the_papers_sizes_is_read_by_a_claim():
    read = {variant for claim, _ in CLAIMS for one in paper_runs(claim) for variant in one.variants}
    assert read == {*RUNS.variants}


DECIDED = [(claim, paper) for claim, paper in CLAIMS if paper_runs(claim)]
"""Claims that runs of the papers' sizes decide."""


@pytest.mark.slow
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.release)])
def test_runs_of_the_papers_sizes_decide_all_claims_about_them(every, results_of_the_papers_runs):
    """Where all is right, where nothing is beyond the trained sizes, and where nothing is: they do not say the same."""
    decided = [one for place, one in enumerate(DECIDED) if place % every == 0 or one[0].says in HEADLINES]
    results_of_the_papers_runs(lambda checkpoint: 1.0)
    found = [[judge(claim, paper) for claim, paper in decided]]
    for trained in (1.0, 0.0):
        results_of_the_papers_runs(lambda checkpoint: 0.0, trained)
        found.append([judge_once(paper_runs(claim)[0], paper) for claim, paper in decided])
    for (claim, _), *judgements in zip(decided, *found, strict=True):
        assert f"`{PAPER_RUNS}`" in judgements[0].setting, claim.says
        assert all(judgement.own_method for judgement in judgements), claim.says
        assert len({judgement.found for judgement in judgements}) > 1, claim.says
    verdicts = [{judgement.verdict for judgement in judgements} for judgements in found]
    assert all({REPRODUCED, CONTRADICTED} <= some <= {REPRODUCED, CONTRADICTED, UNDECIDED} for some in verdicts[:2])
    headlines = [judgement for (claim, _), judgement in zip(decided, found[0], strict=True) if claim.says in HEADLINES]
    assert [judgement.verdict for judgement in headlines] == [REPRODUCED] * len(HEADLINES)


HEADLINES = [claim.says for claim in LOADED[0].claims[:2]]
"""Paper 1's: from 30 digits to 200, as this package and as the paper makes its models."""


def test_the_best_checkpoint_decides_and_the_last_stands_beside_it(results_of_the_papers_runs):
    results_of_the_papers_runs(lambda checkpoint: float(checkpoint == "/best"))
    for claim, paper in CLAIMS:
        if claim.says in HEADLINES:
            judgement = judge(claim, paper)
            assert judgement.verdict == REPRODUCED and "The last checkpoints say otherwise, contradicted" in judgement.why
    results_of_the_papers_runs(lambda checkpoint: float(checkpoint != "/best"))
    for claim, paper in CLAIMS:
        if claim.says in HEADLINES:
            assert judge(claim, paper).verdict == CONTRADICTED


def test_what_holds_is_reproduced_and_what_does_not_contradicted_only_at_the_papers_scale(judged):
    assert judged(results(), FARTHER).verdict == REPRODUCED
    assert judged(results(), LOW).verdict == CONTRADICTED
    for name, more in (("max_length", 5), ("tested", 13), ("training_problems", 81), ("hidden_size", 209), ("seeds", 8),
                       ("num_hidden_layers", 2), ("num_attention_heads", 4), ("test_samples", 2001)):  # fmt: skip
        assert judged(results(), FARTHER, paper={name: more}).verdict == REDUCED, name
        assert judged(results(), LOW, paper={name: more}).verdict == UNDECIDED, name
    assert judged(results(), FARTHER, paper={"max_length": 30}).sizes["trained to"] == (4, 30)
    STUDY.variants["near"]["max_steps"] = 5
    sizes = judged(results(), FARTHER).sizes
    assert sizes["training problems"] == (40, 80), "the least budget of the variants counts"
    del STUDY.variants["near"]["max_steps"]
    assert judged(results(seeds=1), LOW, paper={"seeds": 1}).verdict == UNDECIDED, "one seed"
    assert judged(results(), LOW, paper={"seeds": 8}, exact="a proof").verdict == CONTRADICTED


def test_whose_method_was_judged_follows_from_the_arguments(judged):
    assert judged(results(), FARTHER).own_method and judged(results(), FARTHER, paper={"learning_rate": 1.0}).own_method
    for name, value in (
        ("qk_norm", False),
        ("wrap_position_ids", False),
        ("attention_scale", "none"),
        ("coupling", "sequential"),
    ):
        assert not judged(results(), FARTHER, paper={name: value}).own_method, name
    ours, paper = {"weight_decay": None, "init": "t5", "batching": "lengths"}, {"weight_decay": 0.0, "batching": "mixed"}
    assert compare_arguments(ours, paper, silent=["init"]) == {"batching": ("lengths", "mixed")}


def test_other_studies_are_named_and_one_at_the_papers_budget_decides(judged):
    other = {"holds": [LOW], "note": "", "study": "tiny"}
    assert "By `tiny` it is not decided" in judged(results(), FARTHER, paper={"hidden_size": 512}, also=[other]).why
    assert judged(results(), FARTHER, also=[other]).verdict == CONTRADICTED


def test_an_exact_answer_decides_what_the_own_study_leaves_open_and_nothing_else(judged):
    wide = {"hidden_size": 512}
    proved = {"holds": [FARTHER], "note": "", "study": "tiny", "exact": "certificates"}
    judgement = judged(results(), LOW, paper=wide, also=[proved])
    assert (
        judgement.verdict == REPRODUCED
        and "certificates" in judgement.why
        and "By `tiny` it is not decided" in judgement.why
    )
    assert judged(results(), FARTHER, paper=wide, also=[proved]).verdict == REDUCED
    assert judged(results(), LOW, paper=wide, also=[{**proved, "holds": [LOW]}]).verdict == UNDECIDED


def test_what_was_learned_has_its_numbers_from_results(monkeypatch):
    before = learned_lines()
    read = claims.read_results
    monkeypatch.setattr(claims, "read_results", lambda file: [{**row, "exact_match": 1.0} for row in read(file)])
    after = learned_lines()
    assert before.count("\n- ") == after.count("\n- ") > 0 and after != before
    monkeypatch.setattr(claims, "read_results", lambda file: [])
    with pytest.raises(NotRunError):
        learned_lines()


@pytest.mark.parametrize(("lengths", "longest"), [([], 0), ([2, 3], 0), ([1, 2, 3], 3), ([3, 1, 2, 5], 3)])
def test_all_lengths_are_proved_up_to_the_first_that_is_not(lengths, longest, monkeypatch):
    rows = [{"length": length, "verdict": "proved"} for length in lengths] + [{"length": 4, "verdict": "open"}]
    monkeypatch.setattr(predicates, "read_shipped_lengths", lambda: rows)
    assert ask("proved()", evidence_of([])) == longest


def test_runs_that_are_wrong_at_a_trained_length_of_two_digits_or_more_are_counted_once(monkeypatch):
    _, longest = STUDY.trained_sizes("far")
    wrong = [("far-seed0", 1), ("far-seed0", longest + 1), ("far-seed1", 2), ("far-seed1", longest), ("near-seed2", 2)]
    rows = [{"model": model, "length": length, "verdict": "refuted"} for model, length in wrong]
    rows.append({"model": "far-seed2", "length": 3, "verdict": "open"})
    monkeypatch.setattr(predicates, "read_lengths", lambda study: rows)
    assert ask('refuted("far")', evidence_of([])) == 1


def test_larger_runs_of_the_papers_cost_more():
    assert 0 < core_hours("sums-10") < core_hours("sums") < core_hours("sums-deep-2")
    assert gpu_minutes("sums-10") == gpu_minutes("sums") == 50_000 / gpu_speed("sums") / 60 < gpu_minutes("sums-deep-2")


def test_a_method_that_does_not_fit_decides_nothing(judged):
    judgement = judged(results(near=(0.9, 0.0, 0.0)), FARTHER, tried="four rates")
    assert judgement.verdict == UNFITTED and "(0.890 at the worst)" in judgement.found and judgement.why == "Four rates."
    rows = [{**row, "exact_match": 0.5} if row["model"] == "far-seed2" else row for row in results()]
    assert "`far` fits with 2 of 3 seeds" in judged(rows, FARTHER).why


def test_numbers_of_one_run_are_listed_behind_one_beginning():
    parts = ["share of `a`, place 1: 0.5", "share of `a`, place 2: 0.6", "share of `b`, place 2: 0.6"]
    assert join_numbers(parts + parts[:1]) == "share of `a`, place 1: 0.5, place 2: 0.6; share of `b`, place 2: 0.6"
    assert join_numbers(["`a` 5", "`b` 5"]) == "`a` 5; `b` 5"


def test_missing_rows_and_studies_are_not_run_yet(judged):
    assert judged([row for row in results() if "near" not in row["model"]], FARTHER).verdict == NOT_RUN
    assert judge(Claim("Fig. 1", "It is there.", [FARTHER], "no-such-study"), PAPER).verdict == NOT_RUN


def test_a_headline_of_fewer_than_three_seeds_is_not_decided(judged):
    at_least = 'match("far", at=8) >= 0.9'
    assert judged(results(seeds=2), at_least, paper={"seeds": 1}).verdict == REPRODUCED
    assert judged(results(seeds=2), at_least, paper={"seeds": 1}, abstract=True).verdict == UNDECIDED


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ('fits_alone("far", "odd")', None),  # below the paper's budget
        ('fits_alone("far", "near")', False),
        ('reach("far") >= 3', True),
        ('reach("far") >= 4', None),  # all that is tested is reached
        ('reach("far") <= 2', False),
        ('reach("near") >= 2', False),
        ('reach("near") <= 1', True),
        ('reach("near") > reach("far")', None),  # the other may go farther than was tested
        ('best_reach("near") >= 1', False),  # all seeds are equal
        ('match("near", at=8) >= 0.5', False),
        ('within(match("near", at=8), 0.4, 0.5)', True),
        ('within(match("near", at=[4, 8]), 0.4, 0.5)', False),
        ('match("far", at=8) > match("near", at=8)', True),
        ('match("near", at=8) > match("far", at=8)', False),
        ('match("far", at=4) > match("near", at=4)', None),
        ('match("far", at=4, fitted=False) > match("odd", at=4, fitted=False)', True),
        ('match("far", at=[4, 8]) <= match("near", at=[4, 8])', False),
        ('match("near", at=[4, 8]) <= match("far", at=[4, 8])', True),
        ('best("far", "near", at=[4, 8, 12])', True),
        ('kept("near", 4, 12) >= 0.1', False),
        ('steepest("near", 8)', True),
        ('steepest("near", 12)', False),
        ('mean("exact_match", model="near", length=8) >= 0.98', False),
        ('every("length_b", length=8) >= 8', True),
        ('every("length_b", model="far") >= 8', False),
        ('mean("exact_match", model="near", length=8) < mean("exact_match", model="far", length=8)', True),
        ('mean("length_b", model="far") < mean("length_b", model="near")', None),
    ],
)
def test_an_expression_holds_or_not_or_is_open(expression, holds):
    finding = ask(expression, evidence_of(results()))
    assert finding.holds is holds and finding.found and finding.asked


def test_matches_at_other_sizes_are_not_compared():
    with pytest.raises(ValueError, match=r"\[4\].*\[8\]"):
        ask('match("far", at=4) > match("near", at=8)', evidence_of(results()))


def test_differences_of_seeds_count_by_their_ranks_and_of_fewer_by_their_problems():
    assert is_higher([0.7, 0.8, 0.9], [0.4, 0.5, 0.6]) and is_higher([0.4, 0.5, 0.6], [0.7, 0.8, 0.9]) is False
    assert is_higher([0.7, 0.8, 0.5], [0.4, 0.5, 0.6]) is None
    eight = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98]
    assert is_higher(eight, [0.1, 0.2, 0.3, 0.3, 0.4, 0.4, 0.5, 0.65]), "one seed may be lower"
    for share, holds in ((0.75, None), (0.5, True)):
        rows = results(near=(1.0, share, 0), far=(1.0, 0.85, 0), seeds=1, problems=100)
        assert ask('match("far", at=8) > match("near", at=8)', evidence_of(rows)).holds is holds
    rows = results(problems=1000)
    assert ask('reach("near") >= 2', evidence_of(rows)).holds is None, "few problems"


def test_heads_must_be_two_and_strong():
    rows = [
        {"model": "far-seed0", "layer": 1, "head": head, "same_id": same, "id_below": below}
        for head, same, below in ((1, 0.1, 0.7), (2, 0.6, 0.2))
    ]

    def holds(rows, least):
        return ask(f'heads("far", "same_id", "id_below", least={least})', evidence_of(rows, results())).holds

    assert holds(rows, 0.5) and not holds(rows, 0.65)
    weaker = [{**row, "model": f"far-seed{seed}", "same_id": 0.3} for row in rows for seed in (1, 2)]
    assert not holds([*rows, *weaker], 0.5)
    rows[0]["same_id"] = 0.8
    assert not holds(rows, 0.5)
