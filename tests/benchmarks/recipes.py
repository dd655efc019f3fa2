"""Recipes of settling encoders from the first step to the certificate, which take minutes each.

By hand: python -m pytest -n 0 -m "" tests/benchmarks/recipes.py
"""

import json

import pytest

from longhand import eval as evaluation
from longhand import train


@pytest.mark.parametrize("recipe", ["encoder-multiplication-1-settling", "encoder-multiplication-grid"])
def test_a_recipe_ends_with_a_certificate(recipe, tmp_path, capsys):
    folder = tmp_path / recipe
    train.main([recipe, "--test_lengths", "5", "--test_samples", "5", "--output_dir", str(folder)])
    assert json.loads((folder / "certificate.json").read_text())["certified"]
    first, second = ("9" * 25, "9" * 20) if recipe.endswith("grid") else ("7", "9" * 40)
    evaluation.main([str(folder), "--ask", f"{first}*{second}"])
    assert int(capsys.readouterr().out.split()[-1]) == int(first) * int(second)
