"""Hooks of `generate()` for CoupledGPT: the ids of prompt and response are planned before the first token is generated."""

from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache
from transformers.generation import GenerationMixin

from .configuration_coupled_gpt import CoupledGPTConfig
from .inputs import check_input_ids, check_mask, check_prompts, check_query_padding
from .relations import Neighbours, with_levels
from .vocabulary import PAD
from .windowed_cache import WindowedCache


@dataclass
class GenerationPlan:
    """What is planned before generation, for every column of prompt and response.

    Attributes:
        position_ids: (batch or 1, levels, columns).
        present: (batch, columns), 0 for padding and, under a window, for tokens after the longest response. These tokens
            have no id, so they would all see each other.
        is_derived: whether the ids are the coupling rule's, not the caller's.
        neighbours: the neighbours of every column, for a `WindowedCache`.
    """

    position_ids: Tensor
    present: Tensor
    is_derived: bool
    neighbours: Neighbours | None = None


class CoupledGPTGenerationMixin(GenerationMixin):
    """`GenerationMixin` with coupled position ids, for a model whose base model is a `CoupledGPTModel`."""

    config: CoupledGPTConfig
    model: Any

    def generate(self, inputs: Tensor | None = None, *args, **kwargs):
        """Generate as `GenerationMixin.generate` does. `position_ids`, if given, plan prompt and response together.

        Raises:
            ValueError: a prompt is not legal, not of `config.prompt_format`, or not padded on the left; the plan covers only
                the prompt; or the way of decoding cannot have coupled ids.
        """
        if kwargs.get("labels") is not None:
            raise ValueError(
                "generate() takes prompts, not rows with labels: leave out predict_with_generate, exact match under teacher "
                "forcing is that of greedy decoding (compute_metrics=longhand.compute_metrics, "
                "preprocess_logits_for_metrics=longhand.preprocess_logits)"
            )
        prompt = kwargs.get("input_ids") if inputs is None else inputs
        position_ids = kwargs.get("position_ids")
        if prompt is not None:
            prompt_ids = check_input_ids(prompt, self.config.vocab_size)
            check_mask(kwargs.get("attention_mask"), *prompt_ids.shape)
            check_prompts(self.config, prompt_ids, whole=False)
        if prompt is not None and position_ids is not None and position_ids.shape[-1] <= prompt.shape[1]:
            raise ValueError(
                f"position_ids passed to generate() must cover prompt and response: got {position_ids.shape[-1]} "
                f"columns for a prompt of {prompt.shape[1]} tokens"
            )
        if kwargs.get("assistant_model") is not None or kwargs.get("prompt_lookup_num_tokens") is not None:
            raise ValueError("assisted decoding is not supported: it does not crop coupled position ids")
        if kwargs.get("pair_map") is not None:
            raise ValueError("pair_map is for forward(): generate() derives relations from position ids, token by token")
        if kwargs.get("guidance_scale") not in (None, 1.0):
            raise ValueError("guidance_scale is not supported: its second prompt has no position ids")
        decode, streamer = kwargs.get("custom_generate"), kwargs.get("streamer")
        if streamer is not None and callable(decode) and "streamer" in signature(decode).parameters:
            # Transformers passes the streamer to its own functions only.
            kwargs["custom_generate"] = partial(decode, streamer=streamer)
        return super().generate(inputs, *args, **kwargs)  # type: ignore[misc]

    def _response_length(self, input_ids: Tensor) -> int:
        """Return the number of tokens of the longest response that the coupling rule plans for."""
        return self.config.rule.plan(input_ids, 1).response_length

    # Each hook below overrides the method of this name in GenerationMixin.

    def _prepare_position_ids_for_generation(self, inputs_tensor, model_kwargs):
        input_ids = model_kwargs.get("input_ids", inputs_tensor)
        # Without a mask, transformers hides pad_token_id; that is another token if the settings say so.
        check_query_padding(input_ids, model_kwargs.get("attention_mask"))
        if (input_ids[:, -1] == PAD).any():
            raise ValueError("prompts must be padded on the left for generate(), got <pad> at the end")
        model_kwargs["plan_is_derived"] = True
        columns = input_ids.shape[1] + self._response_length(input_ids)
        return self.model.plan_position_ids(input_ids, columns)

    def _prepare_generated_length(self, generation_config, has_default_max_length, **kwargs):
        if has_default_max_length and generation_config.max_new_tokens is None:
            generation_config.max_new_tokens = self._response_length(kwargs["inputs_tensor"])
        return super()._prepare_generated_length(generation_config, has_default_max_length, **kwargs)

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **kwargs):
        position_ids, is_derived = kwargs.pop("position_ids", None), kwargs.pop("plan_is_derived", False)
        input_ids, kwargs = super()._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **kwargs)
        if position_ids is not None:
            position_ids = with_levels(position_ids)
            if len(position_ids) > 1:
                position_ids = position_ids.repeat_interleave(expand_size, dim=0)
            present = self._present(input_ids, position_ids, kwargs.get("attention_mask"))
            # Not named position_ids, because transformers extends these by itself and cuts them for chunked prefill.
            kwargs["plan"] = GenerationPlan(position_ids, present, is_derived)
        return input_ids, kwargs

    def _present(self, input_ids: Tensor, position_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return `GenerationPlan.present` of prompts."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        planned = (position_ids[..., input_ids.shape[1] :] > 0).any(1) | (not self.model.position_encoding.windowed)
        return torch.cat([attention_mask, planned.long().expand(len(input_ids), -1)], dim=1)

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, mode, batch_size, max_cache_length):
        """Prepare a `WindowedCache` under a window, unless the caller asks for another cache."""
        given = model_kwargs.get("past_key_values")
        if isinstance(given, WindowedCache):
            raise ValueError(
                "the cache of an earlier generate() under a window cannot be continued, because it keeps only what that "
                "response could still see: pass past_key_values=DynamicCache() to both"
            )
        super()._prepare_cache_for_generation(generation_config, model_kwargs, mode, batch_size, max_cache_length)
        plan, cache = model_kwargs.get("plan"), model_kwargs.get("past_key_values")
        own = given is None and type(cache) is DynamicCache and not cache.offloading
        # Attention maps need the keys of all pairs.
        if plan is not None and own and self.model.position_encoding.windowed and not generation_config.output_attentions:
            beyond = (0, max(0, max_cache_length + 1 - plan.position_ids.shape[-1]))
            position_ids, present = (nn.functional.pad(part, beyond) for part in (plan.position_ids, plan.present))
            columns = torch.arange(position_ids.shape[-1], device=position_ids.device)
            plan.neighbours = self.model.neighbours(position_ids, columns, present)
            model_kwargs["past_key_values"] = WindowedCache(plan.neighbours, self.config.num_hidden_layers)

    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, plan=None, **kwargs):
        """Slice the plan of ids for the next tokens.

        Tokens after the end of the plan (after the longest response) have the ids with which the rule continues, or the id
        0 if the caller gave the plan.
        """
        inputs = super().prepare_inputs_for_generation(input_ids, past_key_values=past_key_values, **kwargs)
        past_length = 0 if past_key_values is None else past_key_values.get_seq_length()
        length = past_length + inputs["input_ids"].shape[1]
        if plan is not None:
            beyond = max(0, length - plan.position_ids.shape[-1])
            if beyond and plan.is_derived:
                planned = self.model.plan_position_ids(input_ids, length)
            else:
                planned = nn.functional.pad(plan.position_ids, (0, beyond))
            inputs["position_ids"] = position_ids = planned[..., past_length:length]
            if self.model.position_encoding.windowed:
                inputs["attention_mask"] = nn.functional.pad(plan.present, (0, length))[:, :length]
            if isinstance(past_key_values, WindowedCache):
                inputs["neighbours"] = plan.neighbours.select(slice(past_length, length))
            else:
                inputs["pair_map"] = self.model.position_encoding.pair_map(position_ids, planned[..., :length])
        return inputs
