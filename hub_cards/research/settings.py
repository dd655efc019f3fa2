"""How the runs of a study differ from the paper's, computed from the arguments of both.

The paper's settings are the variants of the study `paper-scale`. A variant may differ in its sizes and budget (`SIZES`), in
the method (`METHOD`: position ids, what a token sees, how problems are written and drawn), or in other arguments.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from longhand.hub_cards.evaluation.results import group_variants
from longhand.hub_cards.research.study import Study, load_study

PAPER_SCALE = "paper-scale"

Settings = dict[str, Any]


def drawn(values: Settings) -> int:
    """Return how many problems a run is trained on, repeated ones counted again."""
    return values["max_steps"] * values["batch_size"]


SIZES: dict[str, Callable[[Settings], int | None]] = {
    "trained to": lambda values: values["max_length"],
    "tested to": lambda values: values["tested"],
    "training problems": drawn,
    "distinct problems": lambda values: values["num_train_samples"] or drawn(values),
    "width": lambda values: values["hidden_size"],
    "layers": lambda values: values["num_hidden_layers"],
    "heads": lambda values: values["num_attention_heads"],
    "field": lambda values: values.get("field_width"),
    "digits of the multiplier": lambda values: values.get("multiplier_length"),
    "text tokens": lambda values: values.get("text_tokens"),
    "seeds": lambda values: values["seeds"],
    "test problems": lambda values: values["test_samples"],
}

METHOD = {
    *("task", "coupling", "position_encoding", "position_sampling", "share_level_tables", "max_multiplier"),
    *("wrap_position_ids", "qk_norm", "zero_padding", "order", "separate_eos", "relation_range", "windowed", "sampling"),
    *("pair_maps", "absolute_positions", "sink", "varied_field", "num_loops"),
}


def changes_method(name: str, ours: Any, paper: Any) -> bool:
    """Whether a difference is one of the method.

    Scores that are divided by sqrt(d) differ from others in the first weights alone, unlike scores that grow with length.
    """
    return name in METHOD or (name == "attention_scale" and "log_length" in (ours, paper))


NOT_COMPARED = {
    # These make `SIZES`.
    *(
        "max_length",
        "max_steps",
        "batch_size",
        "num_train_samples",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
    ),
    *("field_width", "multiplier_length", "text_tokens", "seeds", "test_samples", "tested", "min_length", "max_operands"),
    # These only leave room for the sizes.
    *(
        "max_position_ids",
        "level_position_ids",
        "max_position_embeddings",
        "max_multiplier_length",
        "max_hints",
        "position_levels",
    ),
    # These change what is measured, written or computed, but no model.
    *("recipe", "description", "seed", "data_seed", "use_cpu", "bf16", "dataloader_num_workers", "torch_compile"),
    *("test_lengths", "validation_lengths", "validation_samples", "logging_steps", "eval_steps", "save_total_limit"),
    *("until_certified", "certified_ratio", "metric_for_best_model", "log_length_init", "qk_norm_init", "rotary_base"),
}


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
    sizes = {name: (size(ours), size(paper)) for name, size in SIZES.items() if name not in silent}
    pairs = ((name, own, other) for name, (own, other) in sizes.items() if own != other)
    return {name: (own, other) for name, own, other in pairs if own is not None and other is not None}


def compare_arguments(ours: Settings, paper: Settings, silent: list[str]) -> dict[str, tuple[Any, Any]]:
    """Return the other arguments that differ, ours and the paper's; nothing, 0 and False are the same."""
    names = sorted({*paper, *ours} - NOT_COMPARED - {*silent})
    pairs = {name: (ours.get(name) or None, paper.get(name) or None) for name in names}
    return {name: (own, other) for name, (own, other) in pairs.items() if own != other}
