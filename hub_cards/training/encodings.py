"""Arguments of a decoder's run that go with a position encoding: what does not fit, and what fits in its place."""

# Used by: arguments.py. Changed freely.

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from longhand.data.collator import sampling_faults
from longhand.data.families import legal_rules
from longhand.data.splits import make_generator
from longhand.data.tasks.decoder_task import DecoderTask
from longhand.modeling.coupling import find_rule, plan_position_ids
from longhand.modeling.position_encodings import POSITION_ENCODINGS, LearnedTable, PositionEncoding

SEQUENTIAL = "sequential"

HARMLESS = {"position_init", "max_position_ids"}
"""Arguments that no encoding refuses."""

OF_SAMPLING = ("max_multiplier", "level_position_ids")
"""Arguments that are for one position_sampling alone."""


def fit_encoding(name: str, task: DecoderTask, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that change so that a decoder reads positions by an encoding; what fits stays.

    Args:
        values: of all arguments of the run.

    Raises:
        ValueError: there is no such encoding, or the task has no ids that it reads.
    """
    if name not in POSITION_ENCODINGS:
        raise ValueError(f"--encoding {name!r} is unknown: choose one of {', '.join(POSITION_ENCODINGS)}")
    encoding = POSITION_ENCODINGS[name]
    fitted: dict[str, Any] = {"position_encoding": name}
    coupling = values["coupling"] or task.coupling
    if encoding.reads_token_distances and coupling != SEQUENTIAL:
        if SEQUENTIAL not in legal_rules(task):
            others = [encoding_name for encoding_name, kind in POSITION_ENCODINGS.items() if not kind.reads_token_distances]
            raise ValueError(
                f"--encoding {name} reads distances in tokens, and ids of the column task {task.name!r} are columns alone: "
                f"choose one of {', '.join(others)}"
            )
        fitted["coupling"] = coupling = SEQUENTIAL
    sampling = values["position_sampling"]
    if sampling not in encoding.position_samplings:
        sampling = fitted["position_sampling"] = encoding.position_samplings[0]
    if values["wrap_position_ids"] and sampling_faults(name, sampling, wraps=True):
        fitted["wrap_position_ids"] = False
    fitted |= {option: None for option in OF_SAMPLING if sampling != values["position_sampling"]}
    if not issubclass(encoding, LearnedTable):
        fitted["position_init"] = "normal"
    elif values["position_encoding"] != name:
        fitted["max_position_ids"] = max(values["max_position_ids"], largest_id(task, coupling, values))
    if not encoding.uses_pair_map and values["attention_scale"] == "zero":
        fitted["attention_scale"] = "sqrt"
    if not _may_have_window(name):
        fitted["until_certified"] = False
    if values["relation_range"] and (encoding.reads_token_distances or not encoding.uses_pair_map):
        fitted["relation_range"] = None
    return {option: value for option, value in fitted.items() if values[option] != value}


def _may_have_window(name: str) -> bool:
    """Whether an encoding knows the neighbours of a token, without which nothing is certified."""
    return POSITION_ENCODINGS[name].neighbours is not PositionEncoding.neighbours


def largest_id(task: DecoderTask, coupling: str, values: Mapping[str, Any]) -> int:
    """The largest position id of the longest problems that a run trains, validates and tests."""
    longest = max(values["max_length"], *values["validation_lengths"], *values["test_lengths"])
    ids = 1
    for part in task.for_evaluation.parts:
        lengths = np.array([part.operand_lengths(longest)])
        tokens = torch.from_numpy(part.examples(make_generator("ids", part.name), lengths, "test").tokens).long()
        rule = task.rule if coupling == task.coupling else find_rule(coupling)
        ids = max(ids, int(plan_position_ids(rule, tokens, tokens.shape[1]).max()))
    return ids


def encoding_faults(values: Mapping[str, Any]) -> list[str]:
    """What does not fit the position encoding of a decoder's run, besides what its configuration refuses."""
    name = values["position_encoding"]
    if name not in POSITION_ENCODINGS:
        return []
    faults = sampling_faults(name, values["position_sampling"], values["wrap_position_ids"])
    if values["position_sampling"] not in POSITION_ENCODINGS[name].position_samplings:
        given = [option for option in OF_SAMPLING if values[option] is not None]
        faults += [f"{option} is for that position_sampling alone, got {values[option]}" for option in given]
    if values["until_certified"] and not _may_have_window(name):
        faults.append(f"position_encoding {name!r} has no window, so that no certificate is possible: until_certified")
    return faults


def hint(task: DecoderTask, values: Mapping[str, Any]) -> str:
    """What would fit together, for the end of a refusal; empty if the encoding has no part in it."""
    name = values["position_encoding"]
    try:
        fitted = fit_encoding(name, task, values)
    except ValueError:
        return ""
    if fitted.keys() <= HARMLESS:
        return ""
    shown = ", ".join(f"{option} {'unset' if value is None else value}" for option, value in fitted.items())
    return f"; --encoding {name} sets what fits together: {shown}"
