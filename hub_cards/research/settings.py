"""How the runs of a study differ from the paper's, computed from the arguments of both.

The paper's settings are the variants of the study `paper-scale`. A variant may differ in its sizes and budget, in the
method, or in other arguments; `settings.yaml` says which are which.
"""

from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from longhand.hub_cards.evaluation.results import group_variants
from longhand.hub_cards.recipes import read_recipe
from longhand.hub_cards.research.study import Study, load_study

PAPER_SCALE = "paper-scale"

Settings = dict[str, Any]

SIZES, METHOD, NOT_COMPARED = read_recipe(Path(__file__).with_name("settings.yaml")).values()


def changes_method(name: str, ours: Any, paper: Any) -> bool:
    """Whether a difference is one of the method.

    Scores that are divided by sqrt(d) differ from others in the first weights alone, unlike scores that grow with length.
    """
    return name in METHOD or (name == "attention_scale" and "log_length" in (ours, paper))


def variant_settings(study: Study, variant: str, rows: list[dict[str, Any]]) -> Settings:
    """Return the arguments of a variant, with the largest tested size as `tested` and the fewest problems as `test_samples`.

    Args:
        rows: of the study, which say what was tested; without them, what is to be tested.
    """
    run = study.parse(variant)
    own = group_variants(rows).get(variant, [])
    values = {**run.recipe, "seeds": len({row["model"] for row in own}), "tested": max(run.data.test_lengths)}
    if own:
        values |= {"tested": max(row["length"] for row in own), "test_samples": min(row["num_samples"] for row in own)}
    # Repeated problems are counted again.
    values["training_problems"] = values["max_steps"] * values["batch_size"]
    values["distinct_problems"] = values["num_train_samples"] or values["training_problems"]
    values |= {name: getattr(run.config, name, None) for name in ("coupling", "head_dim")}
    windowed = values.get("position_encoding") in (None, "relative")
    # Arguments that the chosen encoding does not read.
    return {
        name: value
        for name, value in values.items()
        if windowed or name not in ("relation_range", "windowed", "relation_init")
    }


@cache
def paper_settings(experiment: str, seeds: int) -> Settings:
    """Return the paper's settings of an experiment, a variant of `paper-scale`."""
    return {**variant_settings(load_study(PAPER_SCALE), experiment, []), "seeds": seeds}


def compare_sizes(ours: Settings, paper: Settings, silent: list[str]) -> dict[str, tuple[int, int]]:
    """Return the sizes that differ, ours and the paper's, without those of which the paper says nothing."""
    sizes: dict[str, Any] = {name: (ours.get(size), paper.get(size)) for name, size in SIZES.items() if name not in silent}
    return {name: (own, other) for name, (own, other) in sizes.items() if own != other and None not in (own, other)}


def compare_arguments(ours: Settings, paper: Settings, silent: list[str]) -> dict[str, tuple[Any, Any]]:
    """Return the other arguments that differ, ours and the paper's; None, 0 and False count as equal."""
    names = sorted({*paper, *ours}.difference(SIZES.values(), chain(*NOT_COMPARED), silent))
    pairs = {name: (ours.get(name) or None, paper.get(name) or None) for name in names}
    return {name: (own, other) for name, (own, other) in pairs.items() if own != other}
