"""Settings and files beside a certified checkpoint of which the package and the verifier say the same."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from certificate_subjects import change_json

from longhand import eval as evaluation
from longhand.data.proofs.verify_certificate import Refused, verify
from longhand.hub_cards.checkpoints.checkpoint import hash_files
from longhand.hub_cards.checkpoints.load import zoo


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
    "null in the place of code": (set_values(auto_map=None), False),
    "a folder of code": (package_of_code, False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_package_and_the_verifier_say_the_same(change, folder, tmp_path):
    alter, expected = CHANGES[change]
    alter(folder)
    assert (verifier_says(folder), package_says(folder, tmp_path)) == (expected, expected)


def test_settings_that_make_another_model_are_not_to_be_removed(folder, capsys):
    config = json.loads((folder / "config.json").read_text())
    change_json(folder / "config.json", final_norm="rms")
    evaluation.main([str(folder), "--certify", "--output_dir", str(folder.parent / "out")])
    change_json(folder / "config.json", norm="none", final_norm="rms")
    with pytest.raises(SystemExit):
        evaluation.main([str(folder), "--certify", "--output_dir", str(folder.parent / "out")])
    assert "remove" not in capsys.readouterr().err and "final_norm" not in config
