"""Exact greedy decoding in few passes: guess the response, predict all of it at once, put the predictions in, repeat.

A pass predicts every token of a stretch of the response from the guesses before it. The first token is right after the
first pass, and a token is right as soon as all that it depends on is right. So when nothing changes any more, the response
is the response of greedy decoding (Jacobi iteration: Song et al., 2021; Santilli et al., 2023).

    model.generate(**inputs, custom_generate=longhand.modeling.parallel_greedy)
    model.generate(**inputs, custom_generate="user/parallel-greedy", trust_remote_code=True)  # from the Hub

It is for models of longhand under a window, where a token depends on few others. Later passes compute only the tokens that
see a changed one, and a sum takes about as many passes as its longest carry.

The stretch grows while guesses come right and shrinks while they do not, because predictions are limited in proportion to
the settled tokens: to `WINDOWED_COST` for each. Each pass settles a token at least, so that there are never more passes than
the ordinary loop has steps. A chain in which every token depends on the one before (parity) takes as many passes, of a few
tokens each, and about 1.5 times as long.

Predictions are those of a forward pass over several tokens. Where rounding decides between two nearly equal logits, a pass
over one token may decide otherwise.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.generation import EosTokenCriteria, GenerateDecoderOnlyOutput, GenerationMode, MaxLengthCriteria

WINDOWED_COST = 16
"""Most predictions for each settled token, with `FIRST_TOKENS` counted as settled before the first pass."""

FIRST_TOKENS = 16

MOST_PREDICTIONS = 2**18
"""Predictions of one pass, for the whole batch; it bounds the memory."""

OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


def generate(model: Any, assistant_model: Any = None, streamer: Any = None, **arguments: Any):
    """Decode as `model.generate(**arguments)` does; the entry for `custom_generate="user/parallel-greedy"`.

    Raises:
        ValueError: see `parallel_greedy`.
    """
    if assistant_model is not None:
        raise ValueError("parallel greedy decoding takes no assistant_model: leave it out")
    # `generate` itself gives a streamer only the prompt if a function decodes.
    decode = partial(parallel_greedy, streamer=streamer)
    return model.generate(custom_generate=decode, streamer=streamer, **arguments)


def parallel_greedy(
    model: Any,
    input_ids: Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    synced_gpus: bool = False,
    streamer: Any = None,
    **model_kwargs: Any,
):
    """Return what greedy decoding returns; for `custom_generate=parallel_greedy` of `generate()`, see the module.

    A streamer gets the tokens as they settle: every column (batch,) of a batch, as from `generate()`, but several tokens
    (tokens,) of a single response at a time.

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
        raise ValueError("parallel decoding is for CoupledGPT with a window (position_encoding pairwise, windowed True)")
    ends = generation_config._eos_token_tensor if any(isinstance(c, EosTokenCriteria) for c in stopping_criteria) else None
    length = stopping_criteria.max_length - input_ids.shape[1]
    response = Response(input_ids, length, ends, generation_config._pad_token_tensor, streamer)
    for settled in WindowedPasses(model, response, plan.position_ids, plan.neighbours).run():
        response.settle(settled)
        if response.is_finished:
            break
    response.end_stream()
    sequences: Any = response.sequences
    return GenerateDecoderOnlyOutput(sequences) if generation_config.return_dict_in_generate else sequences


def check_greedy(logits_processor: Any, stopping_criteria: Any, generation_config: Any, synced_gpus: bool = False) -> None:
    """Raise ValueError that names what is asked for besides greedy decoding."""
    mode = generation_config.get_generation_mode()
    refused = [] if mode == GenerationMode.GREEDY_SEARCH else [f"{mode.value.replace('_', ' ')}"]
    refused += [type(processor).__name__ for processor in logits_processor]
    known = (EosTokenCriteria, MaxLengthCriteria)
    refused += [type(criterion).__name__ for criterion in stopping_criteria if not isinstance(criterion, known)]
    refused += [name for name in OUTPUTS if getattr(generation_config, name)]
    refused += ["synced_gpus"] * bool(synced_gpus)
    if refused:
        raise ValueError(
            "parallel decoding is greedy decoding, with end tokens and a maximum length: "
            f"it does not take {', '.join(refused)}"
        )


class Response:
    """Prompts and responses of a batch while they are decoded: guesses at first, settled column by column.

    Attributes:
        tokens: (batch, prompt + length).
        prompt: tokens of a prompt.
        length: tokens of the longest response.
        settled: tokens of every unfinished response that are final.
        lengths: (batch,) tokens of every response with its end token; `length` if it has none so far.
    """

    def __init__(self, input_ids: Tensor, length: int, ends: Tensor | None, pad: Tensor | None, streamer: Any):
        self.tokens = torch.nn.functional.pad(input_ids, (0, length))
        self.prompt, self.length, self.settled = input_ids.shape[1], length, 0
        self.lengths = torch.full_like(input_ids[:, 0], length)
        self.ends, self.pad, self.streamer = ends, pad, streamer

    @property
    def finished(self) -> Tensor:
        """Whether each response has its end token, (batch,)."""
        return self.lengths <= self.settled

    @property
    def is_finished(self) -> bool:
        """Whether all responses are complete."""
        return self.settled == self.length or bool(self.finished.all())

    @property
    def sequences(self) -> Tensor:
        """Prompts and settled responses, up to the last end token of the batch."""
        return self.tokens[:, : self.prompt + min(self.settled, int(self.lengths.max()))]

    def settle(self, settled: int) -> None:
        """Take the first `settled` tokens of every unfinished response as final, and give them to the streamer."""
        first, self.settled = self.settled, settled
        new = self.tokens[:, self.prompt + first : self.prompt + settled]
        if self.ends is not None:
            column = torch.arange(first, settled, device=new.device)
            ended = torch.where(torch.isin(new, self.ends.to(new.device)), column + 1, self.length).amin(1)
            self.lengths = torch.minimum(self.lengths, ended)
            if (after := column >= self.lengths.unsqueeze(1)).any():
                new.masked_fill_(after, int(self.pad))  # type: ignore[arg-type]  # transformers demands it with an end token
        if self.streamer is not None:
            new = new[:, : int(self.lengths.max()) - first].cpu()
            # Token by token would take seconds for a long response.
            for part in new if len(new) == 1 else new.unbind(1):
                self.streamer.put(part)

    def end_stream(self) -> None:
        if self.streamer is not None:
            self.streamer.end()


class WindowedPasses:
    """Passes under a window: a pass computes only tokens that see a changed token.

    Tokens are numbered row by row, (batch * columns). Places of the response are numbered column by column, so that the
    first places are settled first.

    Args:
        position_ids: (batch or 1, levels, at least the prompt), planned.
        neighbours: the neighbours of every column, for each row of the batch or one row for all.
    """

    def __init__(self, model: Any, response: Response, position_ids: Tensor, neighbours: Any):
        self.model, self.response = model, response
        self.rows, self.columns = response.tokens.shape
        position_ids = torch.nn.functional.pad(position_ids, (0, max(0, self.columns - position_ids.shape[-1])))
        self.position_ids, self.neighbours = position_ids[..., : self.columns], neighbours.select(slice(self.columns))
        self.layers = model.config.num_hidden_layers
        self.flat = response.tokens.view(-1)
        # Where a token stands among the inputs of the pass at hand; -1 if it is not one.
        self.place = torch.full_like(self.flat, -1)
        self._index_readers()

    def _index_readers(self) -> None:
        """Find for every token of a response which later ones see it: `readers[first[token] : first[token + 1]]`."""
        prompt, shared = self.response.prompt, self.neighbours.columns
        seen = shared[:, prompt:]
        row, reader, slot = (seen >= prompt).nonzero().unbind(1)
        token = row * self.columns + seen[row, reader, slot]
        token, order = token.sort(stable=True)
        self.readers = (row * self.columns + reader + prompt)[order]
        counts = torch.bincount(token, minlength=shared.shape[0] * self.columns)
        self.first = torch.nn.functional.pad(counts.cumsum(0), (1, 0))

    def run(self) -> Iterator[int]:
        """Yield after each pass how many tokens of every unfinished response are settled."""
        response, rows = self.response, self.rows
        places = rows * response.length
        stale, begun, predicted = self.flat[:0], 0, 0
        while len(stale) or begun < places:
            limit = WINDOWED_COST * rows * (FIRST_TOKENS + response.settled) - predicted
            allowed = max(rows, min(limit, MOST_PREDICTIONS))
            chosen = stale[:allowed]
            if (spare := min(allowed - len(chosen), places - begun)) > 0:
                chosen = torch.cat([chosen, torch.arange(begun, begun + spare, device=stale.device)])
                begun += spare
            stale = stale[allowed:]
            predicted += len(chosen)
            finished = response.finished
            chosen = chosen[~finished[chosen % rows]]
            changed = self._predict(chosen) if len(chosen) else chosen
            readers = self._places_that_see(changed)
            stale = torch.cat([stale, readers[readers < begun]]).unique()
            stale = stale[~finished[stale % rows]]
            yield (int(stale[0]) if len(stale) else begun) // rows

    def _predict(self, places: Tensor) -> Tensor:
        """Predict the tokens at some places of the response from the present ones; return the tokens that change."""
        column = places // self.rows + self.response.prompt
        token = places % self.rows * self.columns + column
        needed, sizes = self._gather_needed(token - 1)
        inner = sizes[-2]
        columns = self._neighbours_of(needed[:inner])
        relations = self.neighbours.relations.flatten(0, 1)[self._shared(needed[:inner])]
        self.place[needed] = torch.arange(len(needed), device=needed.device)
        columns = torch.where(columns < 0, -1, self.place[columns.clamp(min=0)])
        self.place[needed] = -1
        relations = torch.where(columns < 0, -1, relations)
        if self.layers > 1:
            # Only the first layer's input of the outermost tokens is read.
            outermost = (0, 0, 0, len(needed) - inner)
            columns, relations = (torch.nn.functional.pad(part, outermost, value=-1) for part in (columns, relations))
        ids = self.position_ids.transpose(0, 1).flatten(1)[:, self._shared(needed, self.position_ids)]
        logits = self.model(
            input_ids=self.flat[needed].unsqueeze(0),
            position_ids=ids.unsqueeze(0),
            neighbours=self.neighbours._replace(columns=columns.unsqueeze(0), relations=relations.unsqueeze(0)),
            logits_to_keep=torch.arange(len(places), device=places.device),
            use_cache=False,
        ).logits
        predictions = logits[0].argmax(-1)
        changed = predictions != self.flat[token]
        self.flat[token] = predictions
        return token[changed]

    def _gather_needed(self, tokens: Tensor) -> tuple[Tensor, list[int]]:
        """Return tokens, the tokens that they see, the tokens that those see, and so on, a step for each layer.

        Returns:
            The tokens, each once, the given ones first; and their number after each step.
        """
        needed, sizes = tokens, [len(tokens)]
        self.place[needed] = 0
        newest = tokens
        for _ in range(self.layers):
            seen = self._neighbours_of(newest).flatten()
            seen = seen[seen >= 0]
            newest = self._once(seen[self.place[seen] < 0])
            self.place[newest] = 0
            needed = torch.cat([needed, newest])
            sizes.append(len(needed))
        self.place[needed] = -1
        return needed, sizes

    def _once(self, tokens: Tensor) -> Tensor:
        """Return each of the tokens once."""
        order = torch.arange(len(tokens), device=tokens.device)
        self.place[tokens] = order
        return tokens[self.place[tokens] == order]

    def _shared(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return where tokens stand in a flattened plan (by default of neighbours) that may have one row for all."""
        return tokens % self.columns if len(self.neighbours.columns if rows is None else rows) == 1 else tokens

    def _neighbours_of(self, tokens: Tensor) -> Tensor:
        """Return the tokens that tokens see, (tokens, most neighbours), filled up with -1."""
        columns = self.neighbours.columns.flatten(0, 1)[self._shared(tokens)]
        return torch.where(columns < 0, -1, columns + (tokens - tokens % self.columns).unsqueeze(1))

    def _places_that_see(self, tokens: Tensor) -> Tensor:
        """Return the places of the response whose predictions depend on tokens of the response, some more than once."""
        for _ in range(self.layers):
            shared = self._shared(tokens)
            count = self.first[shared + 1] - self.first[shared]
            begin = (self.first[shared] - count.cumsum(0) + count).repeat_interleave(count)
            seen_by = self.readers[begin + torch.arange(len(begin), device=tokens.device)]
            if len(self.neighbours.columns) == 1:
                seen_by = seen_by + (tokens - shared).repeat_interleave(count)
            tokens = self._once(torch.cat([tokens, seen_by]))
            self.place[tokens] = -1
        # The token in a column is an input of the prediction of the next.
        return (tokens % self.columns + 1 - self.response.prompt) * self.rows + tokens // self.columns
