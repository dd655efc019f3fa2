"""Hooks of `generate()` for CoupledGPT: the ids of prompt and response are planned before the first token is generated."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache
from transformers.generation import GenerationConfig, GenerationMixin, GenerationMode

from .configuration_coupled_gpt import CoupledGPTConfig
from .inputs import check_input_ids, check_mask, check_padding, check_prompts, read_format
from .relations import Neighbours
from .vocabulary import PAD
from .windowed_cache import WindowedCache

SUPPORTED_MODES = {GenerationMode(name) for name in ("greedy_search", "sample", "beam_search", "beam_sample")}

UNSUPPORTED_SETTINGS = ("guidance_scale", "token_healing", "prefill_chunk_size", "use_mtp", "stop_strings")
"""Settings of `generate()` that rewrite, cut or repeat the prompt, so that planned ids would be those of other tokens, or
that cannot read this vocabulary."""

SUPPORTED_INPUTS = {"input_ids", "attention_mask", "cache", "output_attentions", "output_hidden_states"}


class PlannedGenerationConfig(GenerationConfig):
    """Settings of a model whose coupling rule plans the length of a response.

    A pipeline gives `generate()` a `max_new_tokens` of its own, 256, and draws tokens at random, unless the model's settings
    name `max_new_tokens` and `do_sample`. When these settings are asked which of them are set, they name both, as None if
    they are not set. Files do not name `max_new_tokens` then.
    """

    def to_diff_dict(self):
        return {"max_new_tokens": None, "do_sample": None} | super().to_diff_dict()

    def to_json_string(self, use_diff=True, ignore_metadata=False, keys_to_pop=None):
        planned = ["max_new_tokens"] * (use_diff and self.max_new_tokens is None)
        return super().to_json_string(use_diff, ignore_metadata, [*(keys_to_pop or ()), *planned])


@dataclass
class GenerationPlan:
    """What is planned before generation, for every column of prompt and response.

    Attributes:
        position_ids: (batch or 1, levels, columns).
        present: (batch, columns), 0 for padding and, under a window, for tokens after the longest response. These tokens
            have no id, so they would all see each other.
        neighbours: the neighbours of every column, for a `WindowedCache`.
    """

    position_ids: Tensor
    present: Tensor
    neighbours: Neighbours | None = None


class CoupledGPTGenerationMixin(GenerationMixin):
    """`GenerationMixin` with coupled position ids, for a model whose base model is a `CoupledGPTModel`."""

    config: CoupledGPTConfig
    model: Any

    def generate(self, inputs: Tensor | None = None, *args, **kwargs):
        """Generate as `GenerationMixin.generate` does, with position ids that the coupling rule plans.

        Raises:
            ValueError: a prompt is not legal, not of `config.prompt_format`, or not padded on the left; or the way of
                decoding cannot have coupled ids; or the model was trained with a part of the response given to it.
        """
        if self.config.prompt_format and read_format(self.config.prompt_format).hints_given:
            raise ValueError("this model cannot generate: it was trained with the index hints of the response given to it")
        prompt = kwargs.get("input_ids") if inputs is None else inputs
        if prompt is not None:
            prompt_ids = check_input_ids(prompt, self.config.vocab_size)
            check_mask(kwargs.get("attention_mask"), *prompt_ids.shape)
            check_prompts(self.config, prompt_ids, whole=False)
        return super().generate(inputs, *args, **kwargs)  # type: ignore[misc]

    # Each hook below overrides the method of this name in GenerationMixin.

    def adjust_generation_fn(self, *args, **kwargs):
        super().adjust_generation_fn(*args, **kwargs)
        self.generation_config = PlannedGenerationConfig(**self.generation_config.to_dict())

    def _validate_model_kwargs(self, model_kwargs):
        """Refuse arguments of `forward` that are not for `generate()`, and a cache with tokens of an earlier prompt."""
        if unfit := sorted({name for name, value in model_kwargs.items() if value is not None} - SUPPORTED_INPUTS):
            raise ValueError(f"generate() does not take {', '.join(unfit)}: it takes prompts, and plans all else from them")
        cache = model_kwargs.get("cache")
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
        # Without a mask, transformers hides pad_token_id; that is another token if the settings say so.
        check_padding(input_ids, model_kwargs.get("attention_mask"), query_only=True)
        if (input_ids[:, -1] == PAD).any():
            raise ValueError("prompts must be padded on the left for generate(), got <pad> at the end")
        columns = input_ids.shape[1] + self.config.rule.plan(input_ids, 1).response_length
        return self.model.plan_position_ids(input_ids, columns)

    def _prepare_generated_length(self, generation_config, has_default_max_length, **kwargs):
        if has_default_max_length and generation_config.max_new_tokens is None:
            generation_config.max_new_tokens = self.config.rule.plan(kwargs["inputs_tensor"], 1).response_length
        return super()._prepare_generated_length(generation_config, has_default_max_length, **kwargs)

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **kwargs):
        position_ids = kwargs.pop("position_ids", None)
        input_ids, kwargs = super()._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **kwargs)
        if position_ids is not None:
            position_ids = position_ids.repeat_interleave(expand_size, dim=0)
            planned = (position_ids[..., input_ids.shape[1] :] > 0).any(1) | (not self.model.position_encoding.windowed)
            mask = kwargs.get("attention_mask")
            shown = torch.ones_like(input_ids) if mask is None else mask
            present = torch.cat([shown, planned.long().expand(len(input_ids), -1)], dim=1)
            # Not named position_ids, because transformers extends these by itself.
            kwargs["plan"] = GenerationPlan(position_ids, present)
        return input_ids, kwargs

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, mode, batch_size, max_cache_length):
        """Find all neighbours of the plan; prepare a `WindowedCache` unless the caller asks for another cache or none."""
        given = model_kwargs.get("cache")
        super()._prepare_cache_for_generation(generation_config, model_kwargs, mode, batch_size, max_cache_length)
        plan, cache = model_kwargs.get("plan"), model_kwargs.get("cache")
        own = given is None and type(cache) is DynamicCache and not cache.offloading
        # Attention maps need the keys of all pairs.
        if plan is not None and self.model.position_encoding.windowed and not generation_config.output_attentions:
            beyond = (0, max(0, max_cache_length + 1 - plan.position_ids.shape[-1]))
            position_ids, present = (nn.functional.pad(part, beyond) for part in (plan.position_ids, plan.present))
            columns = torch.arange(position_ids.shape[-1], device=position_ids.device)
            plan.neighbours = self.model.neighbours(position_ids, columns, present)
            if own:
                model_kwargs["cache"] = WindowedCache(plan.neighbours, self.config.num_hidden_layers)

    def prepare_inputs_for_generation(self, input_ids, cache=None, plan=None, **kwargs):
        """Slice the plan of ids for the next tokens.

        Tokens after the longest response have the ids with which the rule continues.
        """
        inputs = super().prepare_inputs_for_generation(input_ids, cache=cache, **kwargs)
        past_length = 0 if cache is None else cache.get_seq_length()
        length = past_length + inputs["input_ids"].shape[1]
        if plan is not None:
            planned = plan.position_ids
            if length > planned.shape[-1]:
                planned = self.model.plan_position_ids(input_ids, length)
            if self.model.position_encoding.uses_position_ids:
                inputs["position_ids"] = planned[..., :length]
            if self.model.position_encoding.windowed:
                inputs["attention_mask"] = nn.functional.pad(plan.present, (0, length))[:, :length]
            if plan.neighbours is not None:
                inputs["neighbours"] = plan.neighbours.select(slice(past_length, length))
        return inputs
