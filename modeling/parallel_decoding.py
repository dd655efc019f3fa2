"""Exact greedy decoding in few passes: guess the response, predict all of it at once, put the predictions in, repeat.

A pass predicts every token of a stretch of the response from the guesses before it. The first token is right after the
first pass, and a token is right as soon as all that it depends on is right. So when nothing changes any more, the response
is the response of greedy decoding (Jacobi iteration: Song et al., 2021; Santilli et al., 2023).

    model.generate(**inputs, custom_generate=longhand.modeling.parallel_greedy)

Where longhand is not installed, it is `custom_generate="USER/NAME", trust_remote_code=True` (see `generate`).

`parallel_greedy` is for models of longhand under a window, where a token depends on few others. Later passes compute only
the tokens that see a changed one, and a sum takes about as many passes as its longest carry.

The stretch grows while guesses come right and shrinks while they do not, because predictions are limited in proportion to
the settled tokens: to `COST` for each. Each pass settles a token at least, so that there are never more passes than
the ordinary loop has steps. A chain in which every token depends on the one before (parity) takes as many passes, of a few
tokens each, and about 1.5 times as long.

Predictions are those of a forward pass over several tokens. Where rounding decides between two nearly equal logits, a pass
over one token may decide otherwise.
"""

# Used by: data, hub_cards/evaluation, hub_cards/publishing, hub_cards/research/gpu. Bound by: the digest of the code that
# travels with a checkpoint: run .ci/code.

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, GenerationMixin, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation import EosTokenCriteria, GenerateDecoderOnlyOutput, GenerationMode, MaxLengthCriteria

from .relations import Neighbours, Step

COST = 16
"""Most predictions for each settled token, with `FIRST_TOKENS` counted as settled before the first pass."""

FIRST_TOKENS = 16

MOST_PREDICTIONS = 2**18
"""Most predictions of one pass, for the whole batch, which bounds the memory."""

OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


def parallel_greedy(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    synced_gpus: bool = False,
    **model_kwargs: Any,
):
    """Return what greedy decoding returns; for `custom_generate=parallel_greedy` of `generate()`, see the module.

    Args:
        input_ids: (batch, tokens), padded on the left or not at all.
        model_kwargs: what `generate()` prepared for the forward pass.

    Returns:
        (batch, tokens + new tokens), `<pad>` after an end token; in a `GenerateDecoderOnlyOutput`, alone, if
        `return_dict_in_generate` is set.

    Raises:
        ValueError: decoding is not greedy (sampling, beams, assistants), a logits processor or a stopping criterion other
            than end token and length is set, or outputs of every step are asked for, and the message names it; or the model
            has no window.
    """
    check_greedy(logits_processor, stopping_criteria, generation_config, synced_gpus)
    plan: Any = model_kwargs.get("plan")
    if getattr(plan, "neighbours", None) is None:
        if getattr(plan, "pair_map", None) is not None and plan.pair_map.shape[1] > 1:
            raise ValueError(
                "parallel decoding finds who sees whom in one map for all heads: pass pair_map (batch or 1, columns, "
                f"columns), not one for each of {plan.pair_map.shape[1]} heads, or leave out custom_generate"
            )
        raise ValueError("parallel decoding is for CoupledGPT with a window (position_encoding pairwise, windowed True)")
    ends = generation_config._eos_token_tensor if any(isinstance(c, EosTokenCriteria) for c in stopping_criteria) else None
    length = cast(int, stopping_criteria.max_length) - input_ids.shape[1]
    passes = ParallelPasses(model, input_ids, length, ends, plan.position_ids, plan.neighbours)
    # A plan of another version of this package, as a checkpoint's own code makes it, knows no steps of this one.
    passes.takes_steps = plan.takes_steps and isinstance(plan.neighbours, Neighbours)
    sequences: Any = passes.run(cast(Tensor, generation_config._pad_token_tensor))
    return GenerateDecoderOnlyOutput(sequences) if generation_config.return_dict_in_generate else sequences


def generate(model: Any, **arguments: Any):
    """`model.generate()` by `parallel_greedy`: what transformers calls in `custom_generate/generate.py`.

    A repository or a folder that holds this file and `relations.py` in `custom_generate/` is for
    `model.generate(..., custom_generate="USER/NAME" or FOLDER, trust_remote_code=True)`, where longhand is not installed.

    Args:
        arguments: those of `GenerationMixin.generate` that the model's own `generate` has checked, with its plan.

    Raises:
        ValueError: see `parallel_greedy`.
    """
    return GenerationMixin.generate(model, custom_generate=parallel_greedy, **arguments)


def check_greedy(
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    synced_gpus: bool = False,
) -> None:
    """Raise ValueError that names what is asked for besides greedy decoding."""
    mode = generation_config.get_generation_mode()
    refused = [] if mode == GenerationMode.GREEDY_SEARCH else [f"{mode.value.replace('_', ' ')}"]
    refused += [type(processor).__name__ for processor in logits_processor]
    known = (EosTokenCriteria, MaxLengthCriteria)
    refused += [type(criterion).__name__ for criterion in stopping_criteria if not isinstance(criterion, known)]
    refused += [name for name in OUTPUTS if getattr(generation_config, name)]
    if synced_gpus:
        refused.append("synced_gpus")
    if refused:
        raise ValueError(
            "parallel decoding is greedy decoding, with end tokens and a maximum length: "
            f"it does not take {', '.join(refused)}"
        )


class ParallelPasses:
    """Passes under a window: a pass computes only tokens that see a changed token.

    Tokens are numbered row by row, (batch * columns). Places of the response are numbered column by column, so that the
    first places are settled first.

    Args:
        input_ids: (batch, prompt).
        length: tokens of the longest response.
        ends: the end tokens, or None.
        position_ids: (batch or 1, levels, at least the prompt), planned; None if a map is.
        neighbours: the neighbours of every column, for each row of the batch or one row for all.

    Attributes:
        takes_steps: whether passes need no forward pass with all that one can do.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        length: int,
        ends: Tensor | None,
        position_ids: Tensor | None,
        neighbours: Neighbours,
    ):
        self.model, self.length, self.ends = model, length, ends
        self.takes_steps = False
        self.tokens = nn.functional.pad(input_ids, (0, length))
        self.prompt, (self.rows, self.columns) = input_ids.shape[1], self.tokens.shape
        self.position_ids = None
        if position_ids is not None:
            position_ids = nn.functional.pad(position_ids, (0, max(0, self.columns - position_ids.shape[-1])))
            self.position_ids = position_ids[..., : self.columns].expand(self.rows, -1, -1).transpose(0, 1).flatten(1)
        self.neighbours = Neighbours(*(part[:, : self.columns].expand(self.rows, -1, -1) for part in neighbours))
        # For every token of the plan, the later ones of the response that see it: readers[first[token] : first[token + 1]].
        row, reader, slot = (self.neighbours.columns[:, self.prompt :] >= self.prompt).nonzero().unbind(1)
        reader = reader + self.prompt
        seen, order = (row * self.columns + self.neighbours.columns[row, reader, slot]).sort(stable=True)
        self.readers = (row * self.columns + reader)[order]
        counts = torch.bincount(seen, minlength=self.tokens.numel())
        self.first = nn.functional.pad(counts.cumsum(0), (1, 0))

    def run(self, pad: Tensor) -> Tensor:
        """Make passes until every response is settled; return prompts and responses, with padding after an end token."""
        flat = self.tokens.view(-1)
        places = self.rows * self.length
        lengths = torch.full_like(flat[: self.rows], self.length)
        stale, begun, predicted, settled = flat[:0], 0, 0, 0
        while settled < self.length and not (lengths <= settled).all():
            limit = COST * self.rows * (FIRST_TOKENS + settled) - predicted
            allowed = max(self.rows, min(limit, MOST_PREDICTIONS))
            chosen, stale = stale[:allowed], stale[allowed:]
            new = min(allowed - len(chosen), places - begun)
            chosen = torch.cat([chosen, torch.arange(begun, begun + new, device=flat.device)])
            begun, predicted = begun + new, predicted + len(chosen)
            chosen = chosen[(lengths > settled)[chosen % self.rows]]
            readers = self._places_that_see(self._predict(chosen) if len(chosen) else chosen)
            stale = torch.cat([stale, readers[readers < begun]]).unique()
            stale = stale[(lengths > settled)[stale % self.rows]]
            first, settled = settled, (int(stale[0]) if len(stale) else begun) // self.rows
            if self.ends is not None and settled > first:
                column = torch.arange(first, settled, device=flat.device)
                is_end = torch.isin(self.tokens[:, self.prompt + first : self.prompt + settled], self.ends)
                lengths = torch.minimum(lengths, torch.where(is_end, column + 1, self.length).amin(1))
        if self.ends is not None:
            after = torch.arange(self.length, device=flat.device) >= lengths.unsqueeze(1)
            self.tokens[:, self.prompt :].masked_fill_(after, int(pad))
        return self.tokens[:, : self.prompt + min(settled, int(lengths.max()))]

    def _predict(self, places: Tensor) -> Tensor:
        """Predict the tokens at some places of the response from the present ones; return the tokens that change."""
        token = places % self.rows * self.columns + places // self.rows + self.prompt
        needed = (token - 1).unique()
        for _ in self.model.model.layers:
            seen, _ = self._neighbours_of(needed)
            needed = torch.cat([needed, seen[seen >= 0]]).unique()
        # In deeper models, only the first layer's input of the outermost tokens is read, so they may see less.
        seen, relations = self._neighbours_of(needed)
        columns = torch.searchsorted(needed, seen).clamp(max=len(needed) - 1)
        missing = needed[columns] != seen
        neighbours = Neighbours(
            columns.masked_fill(missing, -1).unsqueeze(0), relations.masked_fill(missing, -1).unsqueeze(0)
        )
        flat = self.tokens.view(-1)
        own_ids = None if self.position_ids is None else self.position_ids[:, needed].unsqueeze(0)
        kept = torch.searchsorted(needed, token - 1)
        planned = {"position_ids": own_ids, "neighbours": neighbours}
        given: dict[str, Any] = {**planned, "logits_to_keep": kept, "use_cache": False}
        if self.takes_steps:
            given = {"step": Step(position_ids=own_ids, neighbours=neighbours, kept=kept)}
        logits = self.model(input_ids=flat[needed].unsqueeze(0), **given).logits
        predictions = logits[0].argmax(-1)
        changed = predictions != flat[token]
        flat[token] = predictions
        return token[changed]

    def _neighbours_of(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens that tokens see, (tokens, most neighbours), filled up with -1, and their relations."""
        columns, relations = (part[tokens // self.columns, tokens % self.columns] for part in self.neighbours)
        return torch.where(columns < 0, -1, columns + (tokens - tokens % self.columns).unsqueeze(1)), relations

    def _places_that_see(self, tokens: Tensor) -> Tensor:
        """Return the places of the response whose predictions depend on tokens of the response."""
        for _ in self.model.model.layers:
            count = self.first[tokens + 1] - self.first[tokens]
            begin = (self.first[tokens] - count.cumsum(0) + count).repeat_interleave(count)
            tokens = torch.cat([tokens, self.readers[begin + torch.arange(len(begin), device=tokens.device)]]).unique()
        # The token in a column is an input of the prediction of the next.
        return (tokens % self.columns + 1 - self.prompt) * self.rows + tokens // self.columns
