"""Settings and files beside a certified checkpoint of which the package and the verifier say the same."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from certificate_subjects import change_json

from longhand import eval as evaluation
from longhand.data.proofs.certificate import MEASURED, find_difference
from longhand.data.proofs.verify_certificate import Refused, verify
from longhand.hub_cards.checkpoints.checkpoint import hash_files
from longhand.hub_cards.checkpoints.load import load_checkpoint, zoo


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(zoo("gray-code"), tmp_path / "gray-code"))


def package_says(folder, tmp_path):
    """Whether the package certifies a folder."""
    try:
        evaluation.main([str(folder), "--certify", "--output_dir", str(tmp_path / "out")])
    except SystemExit as stop:
        return not stop.code
    return True


def verifier_says(folder):
    """Whether the verifier verifies a folder, once its certificate names the files as they are."""
    change_json(folder / "certificate.json", files=hash_files(folder))
    try:
        with np.errstate(all="ignore"):
            verify(folder)
    except Refused:
        return False
    return True


def package_of_code(folder):
    (folder / "registry").mkdir()
    (folder / "registry" / "__init__.py").write_text("print('somebody else')\n")


def set_values(**values):
    return lambda folder: change_json(folder / "config.json", **values)


CHANGES = {
    "the same norm at the end": (set_values(final_norm="rms"), True),
    "no norms but one at the end": (set_values(norm="none", final_norm="rms"), False),
    "where it was loaded from": (set_values(_name_or_path="somewhere"), True),
    "a digit that pads": (set_values(pad_token_id=1), False),
    "null in the place of code": (set_values(auto_map=None), False),
    "a folder of code": (package_of_code, False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_package_and_the_verifier_say_the_same(change, folder, tmp_path):
    alter, expected = CHANGES[change]
    alter(folder)
    assert (verifier_says(folder), package_says(folder, tmp_path)) == (expected, expected)


def of_other_types(value):
    """All values that Python calls equal to a JSON value and JSON does not, each changed at one place."""
    if isinstance(value, bool | int):
        yield from (float(value), *([bool(value)] if type(value) is int and value in (0, 1) else []))
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, own in pairs:
        for other in of_other_types(own):
            changed = value.copy()
            changed[key] = other
            yield changed


@pytest.mark.parametrize("count", [12, pytest.param(None, marks=pytest.mark.release)], ids=["some", "all"])
def test_a_value_of_another_type_is_none_that_a_check_finds(count, folder):
    checkpoint = load_checkpoint(str(folder))
    stated = json.loads((folder / "certificate.json").read_text())
    assert find_difference(stated, checkpoint.model, checkpoint.task) is None
    forged = [other for other in of_other_types(stated) if other["files"] == stated["files"]]
    assert len(forged) > 20
    for other in random.Random(0).sample(forged, count or len(forged)):
        found = find_difference(other, checkpoint.model, checkpoint.task)
        assert found is not None or set(MEASURED) & {key for key in stated if repr(stated[key]) != repr(other[key])}


def test_settings_that_make_another_model_are_not_to_be_removed(folder, capsys):
    config = json.loads((folder / "config.json").read_text())
    change_json(folder / "config.json", final_norm="rms")
    evaluation.main([str(folder), "--certify", "--output_dir", str(folder.parent / "out")])
    change_json(folder / "config.json", norm="none", final_norm="rms")
    with pytest.raises(SystemExit):
        evaluation.main([str(folder), "--certify", "--output_dir", str(folder.parent / "out")])
    assert "remove" not in capsys.readouterr().err and "final_norm" not in config


def test_a_question_says_exact_at_every_length_only_where_the_certificate_may_be_believed(folder, capsys):
    evaluation.main([str(folder), "--ask", "101"])
    assert "exact at every length" in capsys.readouterr().err
    # Hashes of files are those of the folder, but other software may act on the setting.
    set_values(banana=1)(folder)
    change_json(folder / "certificate.json", files=hash_files(folder))
    evaluation.main([str(folder), "--ask", "101"])
    said = capsys.readouterr().err
    assert "exact at every length" not in said and "does not hold" in said


NO_QUESTIONS = {
    "modular-arithmetic": ("2*3-4", ["44", "+", "2*", "--1", "2**3", ""]),
    "missing-duplicate": ("101,121", ["101,101", "101,11", "+", "122,121", "101,021", "2,2", ","]),
}


@pytest.mark.parametrize("name", NO_QUESTIONS)
def test_what_is_no_problem_has_no_answer(name, capsys):
    legal, others = NO_QUESTIONS[name]
    evaluation.main([name, "--ask", legal])
    assert capsys.readouterr().out.strip()
    for question in others:
        with pytest.raises(SystemExit) as stop:
            evaluation.main([name, f"--ask={question}"])
        said = capsys.readouterr()
        assert stop.value.code == 2 and not said.out and "exact" not in said.err, question
