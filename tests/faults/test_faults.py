"""Inputs of the fuzzer with a fixed seed, every fault that it ever found, and kills at random moments."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faults import fuzz

CASES = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))
INPUTS = {
    **{"question": 160, "prompt": 160, "side file": 160, "options": 100, "recipe": 80, "results": 100, "dataset": 80},
    **{"command": 60, "plugin": 15, "certificate": 8, "evaluation": 15, "training": 8},
}
"""Inputs of each kind, a quarter of them in every run of the tests; `fuzz.py` tries more."""
SEED = 2026
UNFIXED = {(case["kind"], case["fault"]) for case in CASES if "unfixed" in case}


@pytest.fixture(scope="module")
def subjects(main_job, small_encoder, tmp_path_factory) -> fuzz.Subjects:
    # Some inputs add results to a checkpoint's card.
    certified = shutil.copytree(main_job, tmp_path_factory.mktemp("certified") / main_job.name)
    return fuzz.Subjects(certified, small_encoder, tmp_path_factory.mktemp("faults"))


def as_parameter(case: dict):
    marks = [pytest.mark.xfail(strict=True, reason=case["unfixed"])] if "unfixed" in case else []
    return pytest.param(case, marks=marks, id=f"{case['kind']}: {case['fault'][:60]}")


@pytest.mark.parametrize("case", [as_parameter(case) for case in CASES])
def test_a_fault_that_was_found_is_gone(case, subjects):
    assert fuzz.fault(case["kind"], subjects, case["input"]) is None


@pytest.mark.slow
@pytest.mark.parametrize("share", ["first", pytest.param("others", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_inputs_of_a_fixed_seed_find_no_new_fault(kind, share, subjects):
    first = -(-INPUTS[kind] // 4)
    for number in range(first) if share == "first" else range(first, INPUTS[kind]):
        given = fuzz.make_input(kind, SEED, number)
        what = fuzz.fault(kind, subjects, given)
        assert what is None or (kind, what) in UNFIXED, json.dumps({"kind": kind, "input": given, "fault": what})


@pytest.mark.thorough
def test_what_is_killed_at_random_moments_can_be_finished(main_job):
    script = Path(__file__).with_name("kills.py")
    command = [sys.executable, str(script), "--kills", "14", "--seed", "2026", "--certified", str(main_job)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
