"""Rules of structure: functions of the tokens so far, by which a model derives its own structure.

    def rule(input_ids, attention_mask):                       # both (batch, tokens)
        ...
        return {"pair_map": pair_map, "position_ids": position_ids}

    model = with_structure(model, rule=rule, num_relations=3)

A rule returns any of `pair_map`, `position_ids`, `position_bias` and `attention_mask` (who sees whom), each as the forward
pass takes it, with all tokens as queries and as keys. What it says of a query must not change when tokens follow, since
`generate()` asks it at each step for the tokens so far: `check_rule` tries this.

A rule that has an argument `queries` is told how many last tokens are the queries that are asked for, at each step of
`generate()` one, and gives pairs of these alone.

A rule is a function, or a dataclass whose instances are called. A model saves the rules of `STRUCTURE_RULES` by name and
arguments, and any other with the file that defines it.
"""

# Used by: numbers_in_text.py, structured_models.py. Bound by: the digest of the code that travels with a checkpoint: run
# .ci/code.

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.dynamic_module_utils import custom_object_save, get_class_from_dynamic_module
from transformers.utils import logging

from .registry import check_free
from .structure import is_pair_mask

logger = logging.get_logger(__name__)

StructureRule = Callable[[Tensor, Tensor], Mapping[str, Tensor]]
"""`(input_ids, attention_mask) -> structure`, of arguments (batch, tokens)."""

RULE_PARTS = ("pair_map", "position_ids", "position_bias", "attention_mask")
"""What a rule may say."""

STRUCTURE_RULES: dict[str, Any] = {}
"""Functions and dataclasses of rules that a saved model names; `structure_rule` fills it."""

Definition = TypeVar("Definition", bound=Callable[..., Any])


def structure_rule(definition: Definition) -> Definition:
    """Register the decorated function or dataclass, so that models with this rule save its name and arguments alone.

    Whoever loads such a model must have imported the module that registers the rule.

    Raises:
        ValueError: the name is taken by another definition, or a class is no dataclass.
    """
    name = definition.__name__
    if isinstance(definition, type) and not is_dataclass(definition):
        raise ValueError(f"the rule {name} must be a function, or a dataclass whose fields are its arguments")
    check_free("rule of structure", name, definition, STRUCTURE_RULES.get(name))
    STRUCTURE_RULES[name] = definition
    return definition


def definition_of(rule: StructureRule) -> Any:
    """Return the function or the class that defines a rule."""
    return rule if hasattr(rule, "__name__") else type(rule)


def name_of(rule: StructureRule) -> str:
    """Return what to call a rule."""
    return definition_of(rule).__name__


def check_callable(rule: Any) -> None:
    """Raise ValueError if a rule cannot be called with token ids and a mask of padding."""
    if not callable(rule):
        raise ValueError(f"rule must be a function of input_ids and attention_mask, got {type(rule).__name__}")
    try:
        arguments = signature(rule)
    except ValueError:
        return  # Functions written in C may have no signature.
    try:
        arguments.bind("input_ids", "attention_mask")
    except TypeError:
        raise ValueError(f"the rule {name_of(rule)} must take input_ids and attention_mask, it takes {arguments}") from None


def ask_rule(rule: Any, input_ids: Tensor, attention_mask: Tensor, queries: int | None = None) -> dict[str, Tensor]:
    """Return what a rule says of tokens; None counts as left out.

    Args:
        queries: number of last tokens that are queries, for a rule that `takes_queries`; None for all.

    Raises:
        ValueError: it says something else than structure.
    """
    answer = rule(input_ids, attention_mask) if queries is None else rule(input_ids, attention_mask, queries=queries)
    legal = ", ".join(RULE_PARTS)
    if not isinstance(answer, Mapping):
        raise ValueError(f"the rule {name_of(rule)} must return a dict with any of {legal}, got {type(answer).__name__}")
    given = {name: part for name, part in answer.items() if part is not None}
    for name, part in given.items():
        if name not in RULE_PARTS:
            raise ValueError(f"the rule {name_of(rule)} must return a dict with any of {legal}, got {name!r}")
        if not isinstance(part, Tensor):
            raise ValueError(f"{name} of the rule {name_of(rule)} must be a tensor, got {type(part).__name__}")
    return given


def takes_queries(rule: StructureRule) -> bool:
    """Return whether a rule can be asked for some queries alone."""
    return "queries" in signature(rule).parameters


def describe_rule(rule: StructureRule) -> dict[str, Any]:
    """Return what a saved model says of its rule: its name, its arguments, and its file unless it is registered.

    The file is None for a rule that no file but a running program defines.
    """
    definition, name = definition_of(rule), name_of(rule)
    arguments = asdict(rule) if is_dataclass(rule) and not isinstance(rule, type) else None
    described: dict[str, Any] = {"name": name, "arguments": arguments}
    if STRUCTURE_RULES.get(name) is definition:
        return described
    module = sys.modules[definition.__module__]
    # What is made by another function has arguments that are not seen here.
    travels = definition.__module__ != "__main__" and getattr(module, name, None) is definition
    travels &= getattr(module, "__file__", None) is not None and (arguments is not None or definition is rule)
    return {**described, "file": Path(str(module.__file__)).name if travels else None}


def save_rule(rule: StructureRule, folder: Path) -> dict[str, Any]:
    """Write the file of a rule that is not registered, as transformers does, and return what `describe_rule` does."""
    described = describe_rule(rule)
    if described.get("file"):
        custom_object_save(definition_of(rule), folder)
    elif "file" in described:
        logger.warning(
            f"The rule {described['name']} is not saved: it must be a function or a dataclass at the top of a file that is "
            "imported. Whoever loads this model has to give rule=..."
        )
    return described


def load_rule(described: Mapping[str, Any], folder_or_repo: str, trust_remote_code: bool, files: Mapping[str, Any]) -> Any:
    """Return the rule that a saved model describes.

    Args:
        trust_remote_code: whether to run the rule's file, which stands beside the model.
        files: options by which transformers finds files.

    Raises:
        ValueError: the rule is not known here, or its file is not there or may not be run.
    """
    name, file, arguments = described["name"], described.get("file"), described["arguments"]
    give = "or give rule=..."
    if "file" not in described:
        if name not in STRUCTURE_RULES:
            raise ValueError(f"the rule {name} of {folder_or_repo} is unknown: import the module that registers it, {give}")
        definition = STRUCTURE_RULES[name]
    elif file is None:
        raise ValueError(f"the rule {name} of {folder_or_repo} was not saved with it: give rule=...")
    elif not trust_remote_code:
        raise ValueError(
            f"the rule {name} of {folder_or_repo} is code in {file}: read it, then pass trust_remote_code=True, {give}"
        )
    else:
        try:
            definition = get_class_from_dynamic_module(f"{Path(file).stem}.{name}", folder_or_repo, **files)
        except (OSError, AttributeError) as error:
            shown = " ".join(str(error).split())
            raise ValueError(f"{folder_or_repo} has no rule {name} in {file}: {shown:.200}") from error
    try:
        return definition if arguments is None else definition(**arguments)
    except TypeError as error:
        raise ValueError(f"the rule {name} of {folder_or_repo} has other arguments here: {error}, {give}") from error


def check_rule(
    rule: StructureRule, examples: Tensor | Sequence[Tensor], attention_mask: Tensor | None = None, *, prompt: int = 1
) -> None:
    """Raise ValueError if a rule looks ahead: if what it says of tokens changes when tokens follow.

    Only what a decoder reads is compared: relations and biases of pairs that the rule's `attention_mask` shows, or, without
    one, of a query and the tokens up to it.

    Args:
        examples: token ids (batch, tokens), or several of these.
        attention_mask: (batch, tokens), 0 for padding; by default there is none. For examples of one tensor alone.
        prompt: number of tokens that are always there, such as those of a prefix that sees itself whole.
    """
    check_callable(rule)
    if not isinstance(examples, Tensor):
        for example in examples:
            if not isinstance(example, Tensor):
                raise ValueError(f"examples must be token ids (batch, tokens) or several of these, got {example!r:.40}")
            check_rule(rule, example, prompt=prompt)
        return
    if examples.ndim != 2:
        raise ValueError(f"examples must be token ids (batch, tokens), got {tuple(examples.shape)}")
    mask = torch.ones_like(examples) if attention_mask is None else attention_mask
    whole = ask_rule(rule, examples, mask)
    for columns in range(prompt, examples.shape[1]):
        so_far = ask_rule(rule, examples[:, :columns], mask[:, :columns])
        if so_far.keys() != whole.keys():
            parts = " and ".join(sorted(so_far.keys() ^ whole.keys()))
            raise ValueError(f"the rule {name_of(rule)} looks ahead: it gives {parts} for some numbers of tokens alone")
        for name in whole:
            if (place := _changed(name, so_far, whole, mask, columns)) is not None:
                raise ValueError(
                    f"the rule {name_of(rule)} looks ahead: {name} at {place} changes when tokens follow the first {columns}"
                )


def _changed(name: str, so_far: dict[str, Tensor], whole: dict[str, Tensor], mask: Tensor, columns: int) -> Any:
    """Return the first place of a part that is not the same for the first columns alone and for all tokens, or None."""
    before, after = so_far[name], whole[name]
    real = mask[:, :columns].bool()
    if name == "position_ids":
        after = after[..., :columns]
        differs = (before != after) & (real if before.ndim == 2 else real.unsqueeze(1))
    else:
        pairs = after.unsqueeze(1) if after.ndim == 3 else after
        before, after = (before.unsqueeze(1) if before.ndim == 3 else before), pairs[..., :columns, :columns]
        differs = (before != after) & real[:, None, :, None]
        if name != "attention_mask":
            differs = differs & _visible(whole, columns, mask.device)
        elif _shown(pairs[..., :columns, columns:]).any():
            return tuple(_shown(pairs[..., :columns, columns:]).nonzero()[0].tolist())
    return tuple(differs.nonzero()[0].tolist()) if differs.any() else None


def _shown(pairs: Tensor) -> Tensor:
    """Return which keys a mask of pairs shows."""
    return pairs if pairs.dtype == torch.bool else pairs > torch.finfo(pairs.dtype).min / 2


def _visible(whole: dict[str, Tensor], columns: int, device: torch.device) -> Tensor:
    """Return which of the first columns a query among them sees."""
    if is_pair_mask(whole.get("attention_mask")):
        return _shown(whole["attention_mask"][..., :columns, :columns])
    return torch.ones(columns, columns, dtype=torch.bool, device=device).tril()
