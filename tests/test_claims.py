"""Verdicts on the papers' claims follow from the results files, and from nothing else."""

import pytest

from longhand.hub_cards.recipes import write_recipe
from longhand.hub_cards.research import claims
from longhand.hub_cards.research.claims import (
    CONTRADICTED,
    NOT_RUN,
    PAPERS,
    REDUCED,
    REPRODUCED,
    UNFITTED,
    VERDICTS,
    Claim,
    judge,
    load_claims,
)
from longhand.hub_cards.research.predicates import PREDICATES, Evidence, NotFittedError, NotRunError
from longhand.hub_cards.research.study import STUDIES_FOLDER, Study, list_studies, load_study

EVERY_CLAIM = [
    pytest.param(claim, id=f"{paper}-{number}") for paper in PAPERS for number, claim in enumerate(load_claims(paper)[1])
]

STUDY = Study(
    name="tiny",
    question="Which variant goes farther?",
    recipe="addition-absolute",
    arguments={"max_length": 4, "max_steps": 10, "batch_size": 8},
    variants={"far": {}, "near": {}, "odd": {}},
    seeds=[0, 1, 2],
)


def results(far=(1.0, 1.0, 1.0), near=(1.0, 0.5, 0.0), odd=(0.5, 0.5, 0.5), seeds=3):
    """Exact match of each variant at 4 digits, as trained, and at 8 and 12; a seed is worse by 0.01 than the one before."""
    return [
        {"model": f"{variant}-seed{seed}", "length": size, "length_b": size, "exact_match": max(share - seed / 100, 0)}
        for variant, shares in (("far", far), ("near", near), ("odd", odd))
        for seed in range(seeds)
        for size, share in zip((4, 8, 12), shares, strict=True)
    ]


@pytest.fixture
def judged(monkeypatch):
    """The judgement of predicates over the results of the small study."""

    def verdict(rows, *holds, **more):
        monkeypatch.setattr(claims, "find_evidence", lambda claim: Evidence(rows, STUDY, rows))
        return judge(Claim("Fig. 1", "It goes far.", list(holds), "tiny", **more))

    return verdict


FARTHER = {"farther": {"variant": "far", "than": ["near"]}}
TWICE = {"reach": {"variant": "far", "at_least": 2}}


def test_files_of_claims_are_those_of_the_page():
    assert sorted(file.stem for file in claims.CLAIMS_FOLDER.iterdir()) == sorted(PAPERS)


@pytest.mark.parametrize("claim", EVERY_CLAIM)
def test_every_claim_has_a_verdict_and_a_reason(claim):
    judgement = judge(claim)
    assert judgement.verdict in VERDICTS and claim.holds
    assert judgement.why or judgement.verdict == REPRODUCED
    assert judgement.found or judgement.verdict in (NOT_RUN, UNFITTED)
    if judgement.verdict == UNFITTED:
        assert claim.tried or "ried" in (STUDIES_FOLDER / f"{claim.study}.yaml").read_text(), "say what was tried"
    if claim.abstract and judgement.verdict not in (NOT_RUN, UNFITTED) and claim.study:
        assert int(judgement.seeds) >= 3, "headline rows have three seeds"


@pytest.mark.parametrize("claim", EVERY_CLAIM)
def test_a_claim_names_variants_of_its_study(claim):
    if claim.study not in list_studies():
        return
    words = set()
    for _, parameters in claim.predicates:
        for key in {"variant", "than", "variants", "although", "where"} & set(parameters):
            value = parameters[key]
            words |= {value["model"]} if isinstance(value, dict) else {value} if isinstance(value, str) else set(value)
    assert words and words <= set(load_study(claim.study).variants)


@pytest.mark.parametrize("claim", EVERY_CLAIM)
def test_broken_results_change_the_verdict(claim, monkeypatch):
    def broken(value):
        """What an accuracy turns into is its opposite; losses and other numbers change their sign."""
        if isinstance(value, list):
            return [broken(one) for one in value]
        if isinstance(value, bool):
            return not value
        return 1 - value if 0 <= value <= 1 else -value

    measured = {"exact_match", "token_accuracy", "accuracy", "certified", "test_loss", "training_loss", "probabilities"}
    measured |= {"share_up_to_4", "effective_relations", "strongest", "after", "run_seconds", "same_id", "id_below"}
    before = judge(claim).verdict
    read = claims.read_results
    monkeypatch.setattr(
        claims,
        "read_results",
        lambda file: [{name: broken(one) if name in measured else one for name, one in row.items()} for row in read(file)],
    )
    if before in (REPRODUCED, REDUCED):
        assert judge(claim).verdict in (CONTRADICTED, UNFITTED)
    monkeypatch.setattr(claims, "read_results", lambda file: [])
    assert judge(claim).verdict == NOT_RUN


def test_a_claim_that_holds_is_reproduced_unless_a_size_or_budget_is_below_the_papers(judged):
    same = {"trained": 4, "tested": 12, "problems": 80, "width": 208}
    assert judged(results(), FARTHER, paper=same).verdict == REPRODUCED
    for name in same:
        judgement = judged(results(), FARTHER, paper={**same, name: same[name] + 1})
        assert judgement.verdict == REDUCED and claims.SCALE[name] in judgement.why
    assert "trained to 4 (30), tested to 12," in judged(results(), FARTHER, paper={"trained": 30}).setting


def test_a_claim_that_does_not_hold_is_contradicted_with_what_was_asked(judged):
    judgement = judged(results(far=(1.0, 0.5, 0.0)), FARTHER)
    assert (judgement.verdict, judgement.why) == (CONTRADICTED, "Asked: `far` farther.")
    assert judgement.found == "reach: `far` 4, `near` 4"
    assert judged(results(), FARTHER, {"reach": {"variant": "near", "at_least": 2}}).verdict == CONTRADICTED


def test_a_method_that_does_not_fit_decides_nothing(judged):
    judgement = judged(results(near=(0.9, 0.0, 0.0)), FARTHER, tried="four rates")
    assert judgement.verdict == UNFITTED and judgement.why.endswith("(0.890 at the worst). Four rates.")


def test_missing_rows_and_seeds_are_not_run_yet(judged):
    assert judged([row for row in results() if "near" not in row["model"]], FARTHER).verdict == NOT_RUN
    assert judged(results(seeds=1), FARTHER).verdict == REPRODUCED
    for headline in ({"seeds": 3}, {"abstract": True}):
        judgement = judged(results(seeds=2), FARTHER, **headline)
        assert (judgement.verdict, judgement.why, judgement.seeds) == (NOT_RUN, "2 of 3 seeds are run.", "2")


def test_a_method_that_does_not_fit_needs_no_more_seeds(judged):
    judgement = judged(results(near=(0.9, 0.0, 0.0), seeds=1), FARTHER, abstract=True, tried="four rates")
    assert judgement.verdict == UNFITTED and judgement.why.startswith("`near` does not fit")
    assert judgement.why.endswith("Four rates. More seeds are not run, since the setting does not fit.")
    rows = [row for row in results(far=(0.9, 0.0, 0.0)) if "near" not in row["model"]]
    assert judged(rows, FARTHER, tried="four rates").verdict == UNFITTED


def test_a_claim_without_its_study_is_not_run_yet():
    judgement = judge(Claim("Fig. 1", "It is there.", [TWICE], "no-such-study"))
    assert (judgement.verdict, judgement.why) == (NOT_RUN, "There is no study `no-such-study` yet.")


def test_a_reach_that_ends_with_the_tests_is_not_contradicted(judged):
    three = judged(results(), {"reach": {"variant": "far", "at_least": 3}})
    assert three.verdict == REPRODUCED and three.found == "`far` reaches 12, 3.00 times its trained 4"
    assert judged(results(), {"reach": {"variant": "far", "at_least": 4}}).verdict == NOT_RUN
    assert judged(results(), {"reach": {"variant": "far", "at_most": 2}}).verdict == CONTRADICTED


@pytest.mark.parametrize(
    ("name", "parameters", "holds"),
    [
        ("fit", {"variants": ["far", "near"]}, True),
        ("fit", {"variants": ["odd"]}, False),
        ("not_fit", {"variants": ["odd"], "although": "far"}, True),
        ("not_fit", {"variants": ["near"], "although": "far"}, False),
        ("rising", {"variants": ["near", "far"]}, True),
        ("rising", {"variants": ["far", "near"]}, False),
        ("rising", {"variants": ["far", "far"]}, False),
        ("match", {"variant": "near", "size": 8, "at_most": 0.5}, True),
        ("match", {"variant": "near", "size": 8, "at_least": 0.5}, False),
        ("above", {"variant": "far", "than": ["near"], "size": 8}, True),
        ("above", {"variant": "far", "than": ["near"], "size": 4}, False),
        ("above", {"variant": "far", "than": ["odd"], "size": 4, "fitted": False}, True),
        ("not_above", {"variant": "far", "than": "near", "sizes": [4]}, True),
        ("not_above", {"variant": "far", "than": "near", "sizes": [4, 8]}, False),
        ("not_above", {"variant": "near", "than": "far", "sizes": [4, 8]}, True),
        ("not_above", {"variant": "near", "than": "far", "sizes": [4, 8], "either": True}, False),
        ("not_above", {"variant": "near", "than": "far", "sizes": [4], "either": True}, True),
        ("best_seed", {"variant": "near", "at_least": 2}, False),
        ("best_at_most", {"variant": "far", "than": ["near"], "sizes": [4, 8, 12]}, True),
        ("best_at_most", {"variant": "near", "than": ["far"], "sizes": [8, 12, 4]}, False),
        ("keeps", {"variant": "near", "first": 4, "last": 12, "at_most": 0.1}, True),
        ("keeps", {"variant": "near", "first": 4, "last": 12, "at_least": 0.1}, False),
        ("steepest", {"variant": "near", "size": 12}, True),
        ("steepest", {"variant": "near", "size": 8}, False),
        ("value", {"where": {"model": "far", "length": 8}, "field": "exact_match", "at_least": 0.98}, True),
        ("value", {"where": {"model": "near", "length": 8}, "field": "exact_match", "at_least": 0.98}, False),
        ("every", {"where": {"model": "near"}, "field": "length_b", "at_most": 4}, False),
        ("every", {"where": {"length": 8}, "field": "length_b", "at_least": 8}, True),
        ("smaller", {"field": "exact_match", "where": {"model": "near"}, "than": {"model": "far"}}, True),
        ("smaller", {"field": "exact_match", "where": {"model": "far"}, "than": {"model": "near"}}, False),
    ],
)
def test_a_predicate_holds_or_not(name, parameters, holds):
    rows = results()
    finding = PREDICATES[name](Evidence(rows, STUDY, rows), **parameters)
    assert finding.holds == holds and finding.found and finding.asked


def test_the_best_seed_must_be_above_the_median():
    for share, holds in ((0.96, True), (0.99, False)):  # one seed of three reaches 12 digits, or all do
        rows = results(far=(1.0, share, share))
        assert PREDICATES["best_seed"](Evidence(rows, STUDY, rows), variant="far", at_least=3).holds == holds


@pytest.mark.parametrize("field", ["exact_match", "length"])
def test_other_measures_count_only_if_the_model_fits_unless_a_claim_says_so(field):
    evidence = Evidence(results(), STUDY, results())
    ask = {"field": field, "where": {"model": "far"}, "than": {"model": "odd"}}
    with pytest.raises(NotFittedError, match="odd"):
        PREDICATES["smaller"](evidence, **ask)
    assert not PREDICATES["smaller"](evidence, **ask, fitted=False).holds
    for name in ("value", "every"):
        with pytest.raises(NotFittedError, match="odd"):
            PREDICATES[name](evidence, where={"model": "odd"}, field=field)


def test_models_are_bounded_by_a_row_of_their_size():
    rows = [{"model": name, "length": size, "exact_match": 0.1 * size} for name in ("ceiling", "other") for size in (1, 2)]
    assert PREDICATES["bounded"](Evidence(rows), by="ceiling").holds
    rows[2]["exact_match"] = 0.11
    assert not PREDICATES["bounded"](Evidence(rows), by="ceiling").holds


def test_heads_must_be_two_and_strong():
    rows = [
        {"model": "far-seed0", "layer": 1, "head": head, "same_id": same, "id_below": below}
        for head, same, below in ((1, 0.1, 0.7), (2, 0.6, 0.2))
    ]
    ask = {"variant": "far", "fields": ["same_id", "id_below"]}
    evidence = Evidence(rows, STUDY, results())
    finding = PREDICATES["heads"](evidence, **ask, at_least=0.5)
    assert finding.holds and finding.found == "`far-seed0` same_id 0.60 (head 2), id_below 0.70 (head 1)"
    assert not PREDICATES["heads"](evidence, **ask, at_least=0.65).holds
    weaker = [{**row, "model": f"far-seed{seed}", "same_id": 0.3} for row in rows for seed in (1, 2)]
    assert not PREDICATES["heads"](Evidence([*rows, *weaker], STUDY, results()), **ask, at_least=0.5).holds
    rows[0]["same_id"] = 0.8
    assert not PREDICATES["heads"](evidence, **ask, at_least=0.5).holds


def test_unequal_sizes_are_held_to_equal_ones_of_the_larger_size():
    rows = [{**row, "length_b": second} for row in results(seeds=1) for second in (4, 8, 12)]
    assert PREDICATES["unequal"](Evidence(rows, STUDY, results()), variant="far", difference=0.05).holds
    rows[1]["exact_match"] = 0.9
    finding = PREDICATES["unequal"](Evidence(rows, STUDY, results()), variant="far", difference=0.05)
    assert not finding.holds and "0.900 at 4 and 8, 1.000 at 8 twice" in finding.found
    # Sizes beyond the reach count for nothing.
    assert PREDICATES["unequal"](Evidence(rows, STUDY, results(far=(1.0, 0.9, 0.9))), variant="far", difference=0.05).holds


def test_certificates_count_if_all_are_positive():
    rows = [{"model": f"far-seed{seed}", "certified": True} for seed in range(3)]
    finding = PREDICATES["certified"](Evidence(rows, STUDY), variant="far")
    assert finding.holds and finding.found == "3 of 3 seeds certified for every size"
    assert not PREDICATES["certified"](Evidence([*rows, {"model": "far-seed3", "certified": False}], STUDY), "far").holds


@pytest.mark.parametrize(("name", "error"), [("odd", NotFittedError), ("other", NotRunError)])
def test_predicates_refuse_what_does_not_fit_or_is_not_there(name, error):
    rows = results()
    with pytest.raises(error, match=name):
        Evidence(rows, STUDY, rows).runs(name)
        Evidence(rows, STUDY, rows).fitted(name)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": "reproduced"}, "unknown field 'verdict'"),
        ({"holds": []}, "it has no predicate, so no verdict"),
        ({"holds": [{"reaches": {}}]}, "predicate 'reaches' is unknown: choose from fit,"),
        ({"holds": [{"reach": {}}]}, "predicate 'reach': missing a required argument: 'variant'"),
        ({"holds": [{"reach": {"variant": "far", "least": 2}}]}, "unexpected keyword argument 'least'"),
        ({"study": ""}, "it needs a study or rows"),
        ({"paper": {"steps": 3}}, "paper has the unknown size 'steps': legal are trained, tested, problems, width"),
    ],
)
def test_an_entry_that_is_no_claim_is_named(changes, said, tmp_path, monkeypatch):
    entry = {"place": "Fig. 1", "says": "It goes far.", "study": "tiny", "holds": [TWICE], **changes}
    write_recipe({"title": "a paper", "claims": [entry]}, tmp_path / "odd.yaml")
    monkeypatch.setattr(claims, "CLAIMS_FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"Fig\. 1: ") as error:
        load_claims("odd")
    assert said in str(error.value)
