"""The command of the studies: their list, and names that are none."""

import re

import pytest

from longhand.hub_cards.reports import documents
from longhand.hub_cards.studies.__main__ import STUDIES, main


def test_every_study_has_a_line_and_a_folder(capsys):
    main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(STUDIES)
    assert all(re.search(r"\w\.$|\)\.$", line) and "None" not in line for line in lines)
    assert sorted(folder.parent.name for folder in documents.STUDIES.glob("*/study.py")) == list(STUDIES)


@pytest.mark.parametrize(("arguments", "said"), [([], "no study is named"), (["rings"], "study 'rings' is unknown")])
def test_a_name_that_is_none_is_refused_in_one_line(arguments, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    printed = capsys.readouterr().err
    assert end.value.code == 2 and printed.count("\n") == 1 and said in printed and "nope_ceiling" in printed


@pytest.mark.parametrize("name", STUDIES)
def test_help_of_a_study_names_its_command(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0 and f"usage: python -m longhand.hub_cards.studies {name}" in " ".join(
        capsys.readouterr().out.split()
    )
