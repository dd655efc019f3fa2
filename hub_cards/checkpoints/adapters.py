"""Adapters of PEFT, such as LoRA: found in a folder or repository, and merged into their base."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from safetensors.torch import load_file
from transformers import PreTrainedModel

from longhand.hub_cards.files import read_object
from longhand.hub_cards.hub import find_file

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class Adapter:
    """An adapter's files and its base.

    Attributes:
        folder: where its configuration and its weights are.
        base: folder or Hub id of the checkpoint that it was made for.
        base_revision: branch, tag or commit of the base on the Hub.
    """

    folder: Path
    base: str
    base_revision: str | None

    def merge_into(self, model: PreTrainedModel) -> PreTrainedModel:
        """Return the model with the adapter's changes in its own weights; the model given is changed.

        Raises:
            ValueError: the adapter does not fit the model, or cannot be merged into weights.
        """
        import peft
        from peft.tuners.tuners_utils import BaseTuner

        config = peft.PeftConfig.from_pretrained(str(self.folder))
        config.inference_mode = True
        kind = "CAUSAL_LM" if model.can_generate() else "TOKEN_CLS"
        # PEFT calls a model of any kind FEATURE_EXTRACTION.
        if config.task_type not in (None, "FEATURE_EXTRACTION", kind):
            raise ValueError(f"its task_type is {config.task_type}, but a {type(model).__name__} is for {kind}")
        adapted = peft.get_peft_model(model, config)
        if not isinstance(adapted.base_model, BaseTuner):
            raise ValueError(f"an adapter of the kind {config.peft_type.value} cannot be merged into weights")
        weights = load_file(self.folder / ADAPTER_WEIGHTS)
        tied = getattr(model.config, "tie_word_embeddings", False)
        if tied and any("embed_tokens" in name or "lm_head" in name for name in weights):
            raise ValueError("it changes embeddings that are tied to the output matrix, so it cannot be merged into weights")
        missing = sorted(peft.get_peft_model_state_dict(adapted, save_embedding_layers=False).keys() - weights.keys())
        unexpected = sorted(peft.set_peft_model_state_dict(adapted, weights).unexpected_keys)
        if missing or unexpected:
            raise ValueError(f"it does not fit its base: weights differ ({', '.join([*missing, *unexpected][:3])}, ...)")
        return adapted.merge_and_unload(safe_merge=True)


def find_adapter(source: str, revision: str | None = None) -> Adapter | None:
    """Return the adapter in a folder or a Hub repository; None if there is none, or no such place.

    Raises:
        ValueError: it is damaged, its weights are not safetensors, a checkpoint is beside it, or PEFT is not installed.
    """
    if (config := find_file(source, ADAPTER_CONFIG, revision)) is None:
        return None
    base, base_revision = (read_object(config).get(name) for name in ("base_model_name_or_path", "revision"))
    if not isinstance(base, str) or not base:
        raise ValueError(f"{source}, {ADAPTER_CONFIG}: base_model_name_or_path must be a folder or USER/NAME, got {base!r}")
    if find_file(source, "config.json", revision) is not None:
        raise ValueError(f"{source} holds a checkpoint and an adapter (config.json, {ADAPTER_CONFIG}): keep one of them")
    if find_file(source, ADAPTER_WEIGHTS, revision) is None:
        raise ValueError(f"{source} is an adapter without {ADAPTER_WEIGHTS}: other formats of weights are not read")
    if find_spec("peft") is None:
        raise ValueError(f"{source} is an adapter of PEFT, which is not installed: pip install peft")
    return Adapter(config.parent, base, base_revision)
