"""Hooks of `generate()` for CoupledGPT: the ids of prompt and response are planned before the first token is generated."""

# Used by: modeling_coupled_gpt.py, structured_models.py. Bound by: the digest of the code that travels with a checkpoint:
# run .ci/code.

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache
from transformers.generation import GenerationConfig, GenerationMixin, GenerationMode, LogitsProcessorList

from .configuration_coupled_gpt import CoupledGPTConfig
from .inputs import check_input_ids, check_mask, check_padding, check_prompts, read_format
from .query_forms import unplanned
from .relations import NOT_RELATED, Neighbours, Step, mapped_neighbours
from .structure import PairShape, check_cache, is_pair_mask
from .values import check_tensor
from .vocabulary import PAD
from .windowed_cache import RoomyLayer, WindowedCache

SUPPORTED_MODES = {GenerationMode(name) for name in ("greedy_search", "sample", "beam_search", "beam_sample")}

UNSUPPORTED_SETTINGS = ("guidance_scale", "token_healing", "prefill_chunk_size", "use_mtp", "stop_strings")
"""Settings of `generate()` that rewrite, cut or repeat the prompt, so that planned ids would be those of other tokens, or
that cannot read this vocabulary."""

ENDLESS = 2**31
"""A number of tokens that no text has."""

SUPPORTED_INPUTS = {"input_ids", "attention_mask", "cache", "plan", "output_attentions", "output_hidden_states"}


class PlannedGenerationConfig(GenerationConfig):
    """Settings of a model whose coupling rule plans the length of a response.

    A pipeline gives `generate()` a `max_new_tokens` of its own, 256, and draws tokens at random, unless the model's settings
    name `max_new_tokens` and `do_sample`. When these settings are asked which of them are set, they name both, as None if
    they are not set. They also name a `max_length` then, by which a pipeline asks whether a response has room behind its
    prompt (`handle_long_generation`): it has. Files name neither length then.
    """

    def to_diff_dict(self):
        return {"max_new_tokens": None, "max_length": ENDLESS, "do_sample": None} | super().to_diff_dict()

    def to_json_string(self, use_diff=True, ignore_metadata=False, keys_to_pop=None):
        lengths = {"max_new_tokens": self.max_new_tokens, "max_length": self.max_length}
        planned = [name for name, value in lengths.items() if use_diff and value is None]
        return super().to_json_string(use_diff, ignore_metadata, [*(keys_to_pop or ()), *planned])


class KnownProcessors(LogitsProcessorList):
    """Processors of logits whose signatures are read once, not for every token."""

    @cached_property
    def take_no_more(self) -> bool:
        """Whether all processors take tokens and scores, and nothing else."""
        return all(len(signature(processor.__call__).parameters) == 2 for processor in self)

    def __call__(self, input_ids, scores, **kwargs):
        if kwargs or not self.take_no_more:
            return super().__call__(input_ids, scores, **kwargs)
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


@dataclass
class GenerationPlan:
    """What is planned before generation, for every column of prompt and response.

    Attributes:
        position_ids: (batch or 1, levels, columns); None if the encoding reads none, or a map in their place.
        pair_map: (batch or 1, heads or 1, columns, columns), if the caller gives it.
        is_given: whether the plan is the caller's.
        prompt: (batch, tokens), from which the ids are derived. None before the batch is known, as the next one.
        present: (batch, columns), 0 for padding and, under a window, for `unplanned` tokens.
        neighbours: the neighbours of every column, for a `WindowedCache`.
        seen: what each layer reads of these neighbours, if they are of one row.
        takes_steps: whether the tokens behind the prompt need no forward pass with all that one can do.
        is_padded: whether some column is not present.
        steps: what each step reads, where a row of states stands for each example; else None.
    """

    position_ids: Tensor | None
    pair_map: Tensor | None = None
    is_given: bool = False
    prompt: Tensor | None = None
    present: Tensor | None = None
    neighbours: Neighbours | None = None
    seen: list[dict[str, Tensor]] | None = None
    takes_steps: bool = False
    is_padded: bool = True
    steps: list[Step] | None = None

    @property
    def columns(self) -> int:
        """The number of tokens that are planned, of prompt and response."""
        planned: Any = self.position_ids if self.pair_map is None else self.pair_map
        return planned.shape[-1]

    def split(self) -> list[Step]:
        """Return what each step behind the prompt reads of the neighbours, which are of one row."""
        neighbours, prompt, seen = cast(Any, (self.neighbours, self.prompt, self.seen))
        first = prompt.shape[1]
        columns = neighbours.columns[0, first:].clamp(min=0).unbind(0)
        parts = [{name: part[:, first:].unbind(1) for name, part in layer_seen.items()} for layer_seen in seen]
        return [
            Step(
                columns=step_columns,
                seen=[{name: part[place] for name, part in layer_parts.items()} for layer_parts in parts],
            )
            for place, step_columns in enumerate(columns)
        ]

    def expand(self, batch: int, copies: int) -> None:
        """Repeat every row for its copies, which are beams or samples."""
        if self.position_ids is not None:
            self.position_ids = self.position_ids.expand(batch, -1, -1).repeat_interleave(copies, dim=0)
        if self.pair_map is not None and len(self.pair_map) > 1:
            self.pair_map = self.pair_map.repeat_interleave(copies, dim=0)


class CoupledGPTGenerationMixin(GenerationMixin):
    """`GenerationMixin` with coupled position ids, for a model whose base model is a `CoupledGPTModel`."""

    config: CoupledGPTConfig
    model: Any
    guard: Callable[[], None]
    training: bool
    is_heard: Callable[[], bool]

    def generate(
        self,
        inputs: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        *args,
        position_ids: Tensor | None = None,
        pair_map: Tensor | None = None,
        **kwargs,
    ):
        """Generate as `GenerationMixin.generate` does, with position ids that the coupling rule plans, or the caller.

        Args:
            position_ids: a plan of ids for prompt and response, (batch or 1, columns) or (batch or 1, levels, columns),
                with a column for padding on the left too. Every step reads its part. By default the response is as long as
                the plan.
            pair_map: a plan of relations, (batch or 1, columns, columns) or (batch or 1, heads, columns, columns).

        Raises:
            ValueError: a prompt is not legal, not of `config.prompt_format`, or not padded on the left; a plan has another
                shape, cannot be read, or is shorter than the tokens that are asked for; or the way of decoding cannot have
                coupled ids; or the model was trained with a part of the response given to it.
        """
        self.guard()
        if self.config.prompt_format and read_format(self.config.prompt_format).hints_given:
            raise ValueError("this model cannot generate: it was trained with the index hints of the response given to it")
        prompt = kwargs.get("input_ids") if inputs is None else inputs
        if prompt is not None:
            prompt_ids = check_input_ids(prompt, self.config.vocab_size)
            if inputs is None:
                kwargs["input_ids"] = prompt_ids
            else:
                inputs = prompt_ids
            if is_pair_mask(kwargs.get("attention_mask")):
                raise ValueError("generate() takes an attention_mask (batch, tokens), 0 for padding, not one of pairs")
            check_mask(kwargs.get("attention_mask"), *prompt_ids.shape)
            if not self.config.takes_structure:
                check_prompts(self.config, prompt_ids, with_response=True)
        if position_ids is not None or pair_map is not None or self.config.takes_structure:
            if prompt is None:
                raise ValueError("a plan of position_ids or pair_map is for prompt and response: pass input_ids too")
            kwargs["plan"] = plan = self._read_plan(prompt_ids, position_ids, pair_map)
            if self.config.takes_structure and kwargs.get("attention_mask") is None:
                # Without a mask, transformers hides pad_token_id, which may be a word of this vocabulary.
                kwargs["attention_mask"] = torch.ones_like(prompt_ids)
            settings: Any = generation_config or self.generation_config
            limits = (kwargs.get("max_new_tokens"), kwargs.get("max_length"), settings.max_new_tokens, settings.max_length)
            if plan is not None and all(limit is None for limit in limits):
                kwargs["max_new_tokens"] = plan.columns - prompt_ids.shape[1]
        return super().generate(inputs, generation_config, *args, **kwargs)

    def _read_plan(self, prompt: Tensor, position_ids: Tensor | None, pair_map: Tensor | None) -> GenerationPlan | None:
        """Return the caller's plan; None for an encoding that reads neither ids nor a map, if none is given.

        Raises:
            ValueError: a plan has another shape, covers no response, or holds what the encoding cannot read; or the model
                needs one.
        """
        planned = {"position_ids": position_ids, "pair_map": pair_map}
        for name, part in planned.items():
            if part is not None:
                check_tensor(part, name, "integers")
                if part.ndim < 2:
                    raise ValueError(f"{name} of a plan must be (batch or 1, ..., columns), got {tuple(part.shape)}")
        columns = next((part.shape[-1] for part in planned.values() if part is not None), prompt.shape[1])
        shape = PairShape(len(prompt), self.config.num_attention_heads, columns, columns)
        own_map, own_ids = self.model.read_structure(position_ids, pair_map, shape)
        if own_map is None and own_ids is None:
            return None
        if columns <= prompt.shape[1]:
            raise ValueError(
                f"the plan of position_ids or pair_map has {columns} columns, and the prompt {prompt.shape[1]}: plan the "
                "response too"
            )
        if own_map is not None or not self.model.are_derived(prompt, own_ids):
            model: Any = self
            model.warn_of_structure(["pair_map" if own_ids is None else "position_ids"])
        return GenerationPlan(own_ids, own_map, is_given=True)

    # Each hook below overrides the method of this name in GenerationMixin.

    def init_continuous_batching(self, *args, **kwargs):
        """Refuse continuous batching, `generate_batch` too: it cuts the cache into pages, and numbers tokens by itself."""
        raise ValueError(
            "this model plans position ids, which continuous batching (generate_batch) does not know: pad prompts on the "
            "left and call generate()"
        )

    def adjust_generation_fn(self, *args, **kwargs):
        super().adjust_generation_fn(*args, **kwargs)
        self.generation_config = PlannedGenerationConfig(**self.generation_config.to_dict())

    def _get_logits_processor(self, *args, **kwargs):
        return KnownProcessors(super()._get_logits_processor(*args, **kwargs))

    def _validate_model_kwargs(self, model_kwargs):
        """Refuse arguments of `forward` that are not for `generate()`, and a cache with tokens of an earlier prompt."""
        if unfit := sorted({name for name, value in model_kwargs.items() if value is not None} - SUPPORTED_INPUTS):
            raise ValueError(f"generate() does not take {', '.join(unfit)}: it takes prompts, and plans all else from them")
        cache = model_kwargs.get("cache")
        check_cache(cache)
        if cache is not None and cache.get_seq_length():
            raise ValueError(f"cache must be empty, got one of {cache.get_seq_length()} tokens")
        super()._validate_model_kwargs(model_kwargs)

    def _validate_generation_mode(self, generation_mode, generation_config, generation_mode_kwargs):
        """Refuse ways of decoding that are not known to keep coupled ids right."""
        unfit = [name for name in UNSUPPORTED_SETTINGS if getattr(generation_config, name, None)]
        unfit += [] if generation_mode in SUPPORTED_MODES else [generation_mode.value.replace("_", " ")]
        if unfit:
            raise ValueError(f"generate() of this model, which plans position ids, does not support {', '.join(unfit)}")
        super()._validate_generation_mode(generation_mode, generation_config, generation_mode_kwargs)

    def _prepare_position_ids_for_generation(self, inputs_tensor, model_kwargs):
        input_ids = model_kwargs.get("input_ids", inputs_tensor)
        if self.config.takes_structure:
            if (model_kwargs["attention_mask"][:, -1] == 0).any():
                raise ValueError("prompts must be padded on the left for generate(), got 0 at the end of attention_mask")
            return None
        # Without a mask, transformers hides pad_token_id; that is another token if the settings say so.
        check_padding(input_ids, model_kwargs.get("attention_mask"), query_only=True)
        if (input_ids[:, -1] == PAD).any():
            raise ValueError("prompts must be padded on the left for generate(), got <pad> at the end")
        if model_kwargs.get("plan") is not None or not self.model.position_encoding.uses_position_ids:
            return None
        columns = input_ids.shape[1] + int(self.config.rule.plan(input_ids, 1).response_length)
        return self.model.plan_position_ids(input_ids, columns)

    def _prepare_generated_length(self, generation_config, has_default_max_length, **kwargs):
        if has_default_max_length and generation_config.max_new_tokens is None and not self.config.takes_structure:
            generation_config.max_new_tokens = int(self.config.rule.plan(kwargs["inputs_tensor"], 1).response_length)
        return super()._prepare_generated_length(generation_config, has_default_max_length, **kwargs)

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **kwargs):
        position_ids, batch = kwargs.pop("position_ids", None), len(input_ids)
        input_ids, kwargs = super()._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **kwargs)
        plan = kwargs.get("plan") if position_ids is None else GenerationPlan(position_ids)
        if plan is not None:
            plan.expand(batch, expand_size)
            mask = kwargs.get("attention_mask")
            plan.prompt = input_ids
            plan.present = self._show_planned(plan, torch.ones_like(input_ids) if mask is None else mask)
            # Not named position_ids, because transformers extends these by itself.
            kwargs["plan"] = plan
        return input_ids, kwargs

    def _show_planned(self, plan: GenerationPlan, shown: Tensor) -> Tensor:
        """Return which columns of a plan are seen, (batch, columns), from those that are known."""
        present = nn.functional.pad(shown, (0, plan.columns - shown.shape[1]), value=1)
        if self.model.position_encoding.windowed and not plan.is_given:
            present = present * ~unplanned(cast(Tensor, plan.prompt), cast(Tensor, plan.position_ids))
        return present

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, mode, batch_size, max_cache_length):
        """Find all neighbours of the plan; prepare a `WindowedCache` unless the caller asks for another cache or none."""
        given, plan = model_kwargs.get("cache"), model_kwargs.get("plan")
        if plan is not None and plan.is_given and plan.columns < max_cache_length:
            raise ValueError(
                f"the plan of position_ids or pair_map has {plan.columns} columns, but prompt and response may have "
                f"{max_cache_length + 1} tokens, of which only the last needs none: plan more, or ask for fewer new tokens"
            )
        super()._prepare_cache_for_generation(generation_config, model_kwargs, mode, batch_size, max_cache_length)
        cache = model_kwargs.get("cache")
        is_own = given is None and type(cache) is DynamicCache and not cache.offloading
        if is_own:
            cache.layers = [RoomyLayer() for _ in range(self.config.num_hidden_layers)]
        # Attention maps, and a map for each head, need the keys of all pairs.
        has_window = plan is not None and self.model.position_encoding.windowed and not generation_config.output_attentions
        if has_window and (plan.pair_map is None or plan.pair_map.shape[1] == 1):
            columns = max_cache_length + 1
            if not plan.is_given and columns > plan.columns:
                # Some rules go on behind the longest response.
                plan.position_ids = self.model.plan_position_ids(plan.prompt, columns)
                plan.present = self._show_planned(plan, plan.present)
            plan.neighbours = self._plan_neighbours(plan, columns)
            # Offloaded weights are fetched for a forward pass alone.
            is_offloaded = any(weights.is_meta for weights in self.model.position_encoding.parameters())
            if is_own and len(plan.neighbours.relations) == 1 and not is_offloaded:
                plan.seen = self.model.see_neighbours(plan.neighbours)
            if is_own:
                model_kwargs["cache"] = WindowedCache(plan.neighbours, self.config.num_hidden_layers)
        if plan is not None:
            plan.takes_steps = (is_own or cache is None) and self._takes_steps(plan, generation_config)
            plan.is_padded = not bool(plan.present.all())
            if plan.takes_steps and plan.seen is not None and self.model.takes_rows():
                plan.steps = plan.split()

    def _takes_steps(self, plan: GenerationPlan, settings: GenerationConfig) -> bool:
        """Return whether steps of this plan may leave out the base model's forward pass, and what hooks may read."""
        asked = [options.output_attentions or options.output_hidden_states for options in (settings, self.config)]
        is_heard = self.is_heard() or self.model.is_heard()
        return not (any(asked) or is_heard or self.training) and (plan.pair_map is None or plan.neighbours is not None)

    def _plan_neighbours(self, plan: GenerationPlan, columns: int) -> Neighbours:
        """Return the neighbours of every column of a plan, and of at least this many columns."""
        beyond = (0, max(0, columns - plan.columns))
        shown: Any = plan.present
        present = nn.functional.pad(shown, beyond)
        if plan.pair_map is None:
            planned: Any = plan.position_ids
            position_ids = nn.functional.pad(planned, beyond)
            if (position_ids == position_ids[:1]).all() and (present == present[:1]).all():
                # All examples have one layout.
                position_ids, present = position_ids[:1], present[:1]
            own_columns = torch.arange(position_ids.shape[-1], device=position_ids.device)
            return self.model.neighbours(position_ids, own_columns, present)
        pair_map = nn.functional.pad(plan.pair_map[:, 0], (*beyond, *beyond), value=NOT_RELATED)
        return mapped_neighbours(pair_map, torch.arange(pair_map.shape[-1], device=pair_map.device), present.bool())

    def prepare_inputs_for_generation(self, input_ids, cache=None, plan=None, **kwargs):
        """Slice the plan for the next tokens.

        Tokens after the longest derived response have the ids with which the rule continues.
        """
        past_length = 0 if cache is None else cache.get_seq_length()
        if plan is not None and plan.takes_steps and 0 < past_length == input_ids.shape[1] - 1:
            return {"input_ids": input_ids[:, -1:], "cache": cache, "step": self._read_step(plan, input_ids, past_length)}
        inputs = super().prepare_inputs_for_generation(input_ids, cache=cache, **kwargs)
        length = past_length + inputs["input_ids"].shape[1]
        if plan is None:
            return inputs
        if plan.position_ids is not None:
            planned = plan.position_ids
            if length > planned.shape[-1]:
                planned = self.model.plan_position_ids(input_ids, length)
            inputs["position_ids"] = planned[..., :length]
        if self.model.position_encoding.windowed:
            inputs["attention_mask"] = nn.functional.pad(plan.present, (0, length))[:, :length]
        if plan.neighbours is not None:
            inputs["neighbours"] = plan.neighbours.select(slice(past_length, length))
        elif plan.pair_map is not None:
            inputs["pair_map"] = plan.pair_map[:, :, past_length:length, :length]
        return inputs

    def _read_step(self, plan: GenerationPlan, input_ids: Tensor, column: int) -> Step:
        """Return what a step reads of the plan for the token in a column."""
        if plan.steps is not None:
            return plan.steps[column - cast(Tensor, plan.prompt).shape[1]]
        here, ids = slice(column, column + 1), None
        encoding = self.model.position_encoding
        if plan.position_ids is not None and (encoding.reads_single_ids or plan.neighbours is None):
            if column >= plan.position_ids.shape[-1]:
                # The rule goes on behind the longest response.
                plan.position_ids = self.model.plan_position_ids(input_ids, column + 1)
            ids = plan.position_ids[..., : column + 1]
        if plan.neighbours is not None:
            seen = plan.seen and [{name: part[:, here] for name, part in layer_seen.items()} for layer_seen in plan.seen]
            return Step(ids, neighbours=plan.neighbours.select(here), seen=seen)
        if not plan.is_padded:
            return Step(ids)
        present: Any = plan.present
        mask = nn.functional.pad(present, (0, max(0, column + 1 - present.shape[1])), value=1)[:, : column + 1]
        return Step(ids, mask)
