"""Structure in the attention of any model of transformers that uses its attention interface.

Relations and biases become numbers that are added to the scaled scores of every layer, after a soft cap if the model has one
and before its mask and its softmax. They travel as one argument of the forward pass, `longhand_structure`, which models pass
on to their attention. So nothing is kept between calls, and gradient checkpointing, compilation and replicas see what each
call was given.
"""

# Used by: structured_models.py. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

import sys
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from .relations import hiding_bias

STRUCTURE = "longhand_structure"
"""Name of the argument that carries a `GivenStructure` to every attention."""

IMPLEMENTATIONS = ("eager", "sdpa", "flex_attention")

LAYER = "structure_layer"
"""Attribute of an attention module: the place of its table."""


class ReachedAttention(NamedTuple):
    """An attention module that reads structure, and the sizes of its queries."""

    module: nn.Module
    heads: int
    head_dim: int


class GivenStructure(NamedTuple):
    """The structure of one forward pass.

    Attributes:
        columns: number of keys of the whole sequence: the tokens of the input and of a cache before them.
        relations: (batch or 1, heads or 1, queries, columns) int64, the number of relations for pairs that are not related;
            None for none.
        table: what each relation adds, (layers or 1, relations, heads) numbers, or (layers or 1, relations, heads, head_dim)
            vectors; None without relations.
        enter: what a vector is added to, `"key"` or `"query"`; `"score"` for numbers.
        position_bias: (batch or 1, heads or 1, queries, columns), added to the scores of every layer; None for none.
        reached: if given, it is called with every attention that reads this structure.
        room: number of keys that the cache has room for, where these are more than columns.
    """

    columns: int
    relations: Tensor | None = None
    table: Tensor | None = None
    enter: str = "score"
    position_bias: Tensor | None = None
    reached: Callable[[ReachedAttention], None] | None = None
    room: int = 0


def _relation_scores(structure: GivenStructure, module: nn.Module, query: Tensor, key: Tensor, scaling) -> Tensor:
    """Return what every relation adds to the scaled scores of a layer.

    Returns:
        (1 or batch, heads, queries, relations), or (batch, heads, relations, keys) if vectors are added to queries.
    """
    tables: Any = structure.table
    table = tables[getattr(module, LAYER) if len(tables) > 1 else 0]
    if structure.enter == "score":
        return table.T[None, :, None].expand(-1, -1, query.shape[2], -1)
    vectors = table.to(query.dtype)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if structure.enter == "key":
        return torch.einsum("bhqd,rhd->bhqr", query, vectors) * scaling
    keys = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    return torch.einsum("bhkd,rhd->bhrk", keys, vectors) * scaling


def _score_pairs(scores: Tensor, relations: Tensor, visible: Tensor | None, axis: int, dtype: torch.dtype) -> Tensor:
    """Return what is added to the scores of pairs, (batch or 1, heads, queries, keys), as attention wants it in memory.

    Args:
        scores: what every relation adds, see `_relation_scores`.
        relations: (batch or 1, heads or 1, queries, keys).
        visible: whether a query sees a key, of a shape like that of relations; None for all.
        axis: that of the relations in the scores.
        dtype: the type of the queries, in which a key is hidden.
    """
    # After the relations stand pairs that are not related, and pairs of a hidden key, so that no pair is written twice.
    nothing = torch.zeros_like(scores.narrow(axis, 0, 1))
    scores = torch.cat([scores, nothing, nothing + hiding_bias(dtype)], dim=axis)
    if visible is not None:
        relations = relations.where(visible, scores.shape[axis] - 1)
    batch = max(len(scores), len(relations))
    return scores.expand(batch, -1, -1, -1).gather(axis, relations.expand(batch, scores.shape[1], -1, -1))


def _added_scores(
    structure: GivenStructure, module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
) -> Tensor:
    """Return the sum of all that is added to the scores of a layer, (batch or 1, heads or 1, queries, keys).

    A layer with a window has only the last keys of the sequence in its cache, and a static cache has room for later ones. A
    layer that shares keys may be asked for the last queries alone.

    Args:
        mask: bool or additive, or None.
        kwargs: further arguments of attention, among which the model's own bias is.

    Raises:
        ValueError: there are other keys than those of tokens.
    """
    queries, keys = query.shape[2], key.shape[2]
    first = max(0, structure.columns - keys)
    if keys > max(structure.columns, structure.room):
        raise ValueError(
            f"{type(module).__name__} attends to {keys} keys for {structure.columns} tokens, such as summaries of several "
            "tokens, for which structure says nothing"
        )
    later = first + keys - structure.columns
    bias, relations = structure.position_bias, structure.relations
    if bias is not None:
        bias = nn.functional.pad(bias[..., -queries:, first:], (0, later))
    if (own_bias := kwargs.get("position_bias")) is not None:
        bias = own_bias if bias is None else bias + own_bias
    if relations is not None:
        axis = 2 if structure.enter == "query" else 3
        scores = _relation_scores(structure, module, query, key, kwargs.get("scaling"))
        # The type of the table is kept, in which its derivatives are summed. Autocast may make scores of a narrower one.
        scores = scores.to(torch.promote_types(scores.dtype, query.dtype)).clamp(min=hiding_bias(query.dtype))
        relations = relations[..., -queries:, first:]
        if later:
            relations = nn.functional.pad(relations, (0, later), value=scores.shape[axis])
        visible = mask[..., :keys] if mask is not None and mask.dtype == torch.bool else None
        added = _score_pairs(scores, relations, visible, axis, query.dtype)
        if bias is None and (mask is None or visible is not None):
            return added.to(query.dtype)
        bias = added if bias is None else added + bias
    return _as_mask(bias, mask, query)


def _causal_mask(query: Tensor, keys: int, columns: int) -> Tensor:
    """Return which of the last keys of a sequence of so many columns its last queries see, (queries, keys) bool."""
    places = torch.arange(columns - query.shape[2], columns, device=query.device)
    return torch.arange(keys, device=query.device) + max(0, columns - keys) <= places.unsqueeze(1)


def _as_mask(bias: Any, attention_mask: Tensor | None, query: Tensor) -> Tensor:
    """Return a bias and a mask, bool or additive, as one mask that is added to scores, of the type of the queries.

    Args:
        bias: (batch or 1, heads or 1, queries, keys).
    """
    lowest, keys = hiding_bias(query.dtype), bias.shape[-1]
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        bias = bias.where(attention_mask[..., :keys], lowest)
    elif attention_mask is not None:
        bias = bias + attention_mask[..., :keys]
    # The sum of two masks, or one of another type, may be below what the type of the queries holds.
    return bias.clamp(min=lowest).to(query.dtype)


class StructuredInterface(AttentionInterface):
    """The attention functions of one file of transformers, each of which reads the structure of a call that has it.

    It stands in the file in place of `ALL_ATTENTION_FUNCTIONS`, as transformers has it for functions of a file's own. So a
    configuration keeps the name of its attention, which models compare: sparse attention does, and layers that share keys.
    """

    def __init__(self, interface: AttentionInterface):
        super().__init__()
        self._local_mapping = interface._local_mapping

    def get_interface(self, attn_implementation: str, default: Callable) -> Callable:
        """Return the function of this name, or the default for eager attention, which reads structure."""
        return partial(_attend, super().get_interface(attn_implementation, default), attn_implementation)


def _check_width(module: nn.Module, attention_mask: Tensor, key: Tensor) -> None:
    """Raise ValueError for a mask of pairs that has more keys than a layer, which lost those before its window."""
    keys, masked = key.shape[2], attention_mask.shape[-1]
    if masked > keys:
        raise ValueError(
            f"{type(module).__name__} keeps the last {keys} of {masked} tokens, and a mask of pairs is for all: generate "
            "with use_cache=False, or with a DynamicCache() that was made without a configuration"
        )


SMALLEST_FLEX_HEAD = 16
"""The smallest head for which torch compiles flex attention, except on a processor."""


def _check_head_dim(module: nn.Module, query: Tensor) -> None:
    """Raise ValueError for heads that flex attention does not take on the device of the queries."""
    if query.device.type != "cpu" and query.shape[-1] < SMALLEST_FLEX_HEAD:
        raise ValueError(
            f"{type(module).__name__} has heads of {query.shape[-1]} numbers, and flex_attention on {query.device.type} "
            f"takes at least {SMALLEST_FLEX_HEAD}: use 'sdpa' or 'eager'"
        )


def _readable(
    implementation: str, module: nn.Module, query: Tensor, key: Tensor, attention_mask: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return a mask, and further arguments of an attention function of transformers, so that it reads a mask of pairs.

    Eager attention would add a bool as a number, and flex attention too, of the first head alone.

    Raises:
        ValueError: the layer has fewer keys than the mask.
    """
    if not isinstance(attention_mask, Tensor) or attention_mask.ndim != 4:
        return attention_mask, kwargs
    _check_width(module, attention_mask, key)
    if implementation == "sdpa" or (implementation == "eager" and attention_mask.dtype != torch.bool):
        return attention_mask, kwargs
    keys = key.shape[2]
    added = _as_mask(query.new_zeros(1, 1, query.shape[2], keys), attention_mask, query)
    if implementation == "eager":
        return added, kwargs
    return None, {**kwargs, "position_bias": added.expand(len(query), query.shape[1], -1, -1)}


FUNCTIONS = "ALL_ATTENTION_FUNCTIONS"
"""Where a file of transformers looks up its attention functions."""


def let_attention_read_structure(model: nn.Module) -> bool:
    """Put a `StructuredInterface` into the files of all modules of a model; return whether there is such a file.

    Calls without structure are as before, also those of other models of these files.
    """
    found = False
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    for file in {kind.__module__ for kind in kinds}:
        names = vars(sys.modules[file])
        interface = names.get(FUNCTIONS)
        if isinstance(interface, AttentionInterface):
            found = True
            names[FUNCTIONS] = interface if isinstance(interface, StructuredInterface) else StructuredInterface(interface)
    return found


def _attend(base, implementation, module, query, key, value, attention_mask, *arguments, longhand_structure=None, **kwargs):
    """Attend as an attention function of transformers does, `base`, whose name is the implementation, with structure."""
    structure = longhand_structure
    if structure is None:
        if kwargs.get("pair_map") is not None:
            raise ValueError("pair_map is read by the model that with_structure returned, not by a part of it")
        if hasattr(module, LAYER):
            attention_mask, kwargs = _readable(implementation, module, query, key, attention_mask, kwargs)
        return base(module, query, key, value, attention_mask, *arguments, **kwargs)
    if structure.reached is not None:
        structure.reached(ReachedAttention(module, query.shape[1], query.shape[-1]))
    if structure.relations is None and structure.position_bias is None:
        attention_mask, kwargs = _readable(implementation, module, query, key, attention_mask, kwargs)
        return base(module, query, key, value, attention_mask, *arguments, **kwargs)
    if structure.reached is None and not hasattr(module, LAYER):
        raise ValueError(
            f"with_structure did not find {type(module).__name__} as attention of a text to itself: it is of a later "
            "layer, or reads encoder_hidden_states, for which structure says nothing"
        )
    if isinstance(attention_mask, Tensor) and attention_mask.ndim == 4:
        _check_width(module, attention_mask, key)
    is_flex = implementation == "flex_attention"
    if is_flex:
        _check_head_dim(module, query)
    # As in transformers: only sdpa takes no mask for a causal one.
    is_causal = kwargs.get("is_causal")
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is None and is_causal and implementation == "sdpa":
        attention_mask = _causal_mask(query, key.shape[2], structure.columns)
    mask = attention_mask if isinstance(attention_mask, Tensor) else None
    added = _added_scores(structure, module, query, key, mask, kwargs)
    kwargs.pop("position_bias", None)
    if is_flex:
        # Flex attention would read a mask of the first head alone, and add a bool as a number.
        attention_mask = None if mask is not None else attention_mask
        added = added.expand(len(query), query.shape[1], -1, -1)
        return base(module, query, key, value, attention_mask, *arguments, position_bias=added, **kwargs)
    return base(module, query, key, value, added, *arguments, **kwargs)


LEAST_PROBED, MOST_PROBED = 3, 160
"""Numbers of tokens by which a model is asked what its attention reads."""

REACHES = ("window", "topk", "top_k", "compress", "chunk", "block")
"""What stands in the names of a configuration's numbers beyond which attention goes another way."""


def probe_length(config: Any) -> int:
    """Return how many tokens a model is asked with: more than its windows, chunks and numbers of chosen keys.

    Of windows that are longer than `MOST_PROBED` nothing is asked: structure reads of a window the keys that are left.
    """
    numbers = [LEAST_PROBED - 1]

    def collect(values: Any, is_reach: bool) -> None:
        if isinstance(values, dict):
            for name, value in values.items():
                collect(value, is_reach or any(word in str(name) for word in REACHES))
        elif is_reach and isinstance(values, int) and not isinstance(values, bool):
            numbers.append(values)

    collect(config.to_dict(), False)
    longest = getattr(config, "max_position_embeddings", None) or MOST_PROBED
    return min(1 + max(number for number in numbers if number < MOST_PROBED), longest)


def device_of_inputs(model: PreTrainedModel) -> torch.device:
    """Return where a model takes its input: the processor, if Accelerate fetches each weight when it is needed."""
    return next((weights.device for weights in model.parameters() if weights.device.type != "meta"), torch.device("cpu"))


def find_attention(model: PreTrainedModel) -> list[ReachedAttention]:
    """Let every attention of a model read structure, and return them in the order of the layers.

    The model answers once for a few tokens, with a bias that hides each token from the others. If its output at one token
    then has any derivative by the embedding of another, something mixes tokens that the bias did not reach: attention
    without the interface, a convolution, a recurrence.

    Raises:
        ValueError: the bias does not reach all that mixes tokens, or the model cannot be asked.
    """
    implementation = model.config._attn_implementation
    # Flex attention has no derivatives on a processor; eager attention is called in the same place.
    is_flex = implementation == "flex_attention"
    ignored = (
        f"is given structure through transformers' attention interface in {implementation!r}, so it would be ignored there: "
        "use another implementation, or a model whose attention is, such as Llama, Qwen2 or BERT"
    )
    try:
        if is_flex:
            PreTrainedModel.set_attn_implementation(model, "eager")
        reached, mixes = _ask(model) if let_attention_read_structure(model) else ([], False)
    finally:
        if is_flex:
            PreTrainedModel.set_attn_implementation(model, implementation)
    if not reached:
        raise ValueError(f"no attention of {type(model).__name__} {ignored}")
    if mixes:
        raise ValueError(f"a token of {type(model).__name__} reads others by something else than attention that {ignored}")
    return list({attention.module: attention for attention in reached}.values())


def _ask(model: PreTrainedModel) -> tuple[list[ReachedAttention], bool]:
    """Return every attention that read the bias by which a model was asked, and whether a token still reads another.

    Raises:
        ValueError: the model cannot be asked.
    """
    name, reached, states, embedded = type(model).__name__, list[ReachedAttention](), list[Tensor](), list[Tensor]()

    def begin(module, arguments, output):
        embedded.append(output.detach().requires_grad_())
        # A copy, since some models scale it in its place.
        return embedded[-1].clone()

    def note(module, arguments, output):
        states.append(output if isinstance(output, Tensor) else output[0])

    tokens, device = probe_length(model.config), device_of_inputs(model)
    hidden = torch.full((tokens, tokens), torch.finfo(torch.float32).min, device=device).fill_diagonal_(0.0)
    structure = GivenStructure(tokens, position_bias=hidden[None, None], reached=reached.append)
    training = {module: module.training for module in model.modules()}
    hooks = [model.base_model.register_forward_hook(note)]
    try:
        embeddings: Any = model.get_input_embeddings()
        # The parts of some models have embeddings of their own with the same weights.
        shared = [module for module in model.modules() if getattr(module, "weight", None) is embeddings.weight]
        hooks += [module.register_forward_hook(begin) for module in shared if isinstance(module, type(embeddings))]
        input_ids = torch.arange(tokens, device=device).unsqueeze(0) % (embeddings.weight.shape[0] - 2) + 2
        model.eval()
        with torch.enable_grad():
            given = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids), STRUCTURE: structure}
            uncached = {"use_cache": False} if "use_cache" in signature(model.forward).parameters else {}
            answer = model(**given, **uncached)
            # Some heads call the parts of their base model, so that its own forward pass is not there.
            state = states[-1] if states else answer[0]
            asked = {0, 1, tokens // 2, tokens - 1} if reached else set()
            return reached, any(_mixes(state, embedded[0], token) for token in asked)
    except Exception as error:
        if STRUCTURE in str(error):
            # A forward pass that takes no further arguments.
            return [], False
        shown = " ".join(str(error).split())
        raise ValueError(
            f"{name} could not be asked what its attention reads by input_ids (1, {tokens}) and attention_mask alone, as "
            f"Llama and BERT can: {type(error).__name__} {shown:.200}"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
        for module, was_training in training.items():
            module.training = was_training


def _mixes(states: Tensor, embedded: Tensor, token: int) -> bool:
    """Return whether states (1, tokens, hidden) at a token have a derivative by the embedding of another token."""
    # Weights that differ: a norm may keep the plain sum of a state as it is.
    weights = torch.arange(states.shape[-1], device=states.device, dtype=states.dtype).cos()
    (slopes,) = torch.autograd.grad((states[0, token] * weights).sum(), embedded, retain_graph=True)
    others = torch.arange(slopes.shape[1], device=slopes.device) != token
    return bool((slopes[0, others] != 0).any())
