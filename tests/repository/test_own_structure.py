"""The snippets of STRUCTURE.md: structure of one's own, learned from small examples, right on large ones."""

import re
from pathlib import Path

import pytest
import transformers

PAGE = (Path(__file__).parents[2] / "hub_cards" / "STRUCTURE.md").read_text(encoding="utf-8")
SNIPPETS = dict(re.findall(r"<!-- (\w+)\.py -->\n```python\n(.*?)```", PAGE, flags=re.DOTALL))


# Each trains a model until it is right on far larger examples than those that it learned from.
@pytest.mark.release
@pytest.mark.parametrize("name", SNIPPETS)
def test_a_model_of_structure_of_ones_own_is_right_on_large_examples(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    transformers.set_seed(0)
    exec(compile(SNIPPETS[name], f"{name}.py", "exec"), {})
    printed = capsys.readouterr().out.splitlines()[-1]
    assert printed == "True" or float(re.search(r"[\d.]+", printed)[0]) > 0.99
