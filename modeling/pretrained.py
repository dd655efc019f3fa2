"""What the models of both families share: loading, attention, and a warning where a certificate does not hold."""

# Used by: modeling_coupled_gpt.py, modeling_pairwise_bert.py, structured_models.py, data/proofs, hub_cards/checkpoints,
# hub_cards/training. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import cached_file, logging

from .relations import Step, as_scores, hiding_bias
from .stored_names import find_stored_names
from .structure import IGNORED, is_pair_mask

CERTIFICATE_FILE = "certificate.json"

_FILE_OPTIONS = ("cache_dir", "proxies", "token", "revision", "local_files_only", "subfolder", "_commit_hash")
"""Options of `from_pretrained` by which a file is found."""

_CODE_OPTIONS = ("cache_dir", "token", "revision", "local_files_only")
"""Those of them by which code is found too."""

logger = logging.get_logger(__name__)


LOOK_EVERY = 64
"""Forward passes in training from one look at the loss to the next, where a look waits for the device."""


class NotFinite(RuntimeError):
    """A loss or a weight is NaN or infinite, so that training cannot go on and nothing can be saved."""


def find_not_finite(weights: Mapping[str, Tensor]) -> list[str]:
    """Return the names of weights of which some are NaN or infinite. Weights that are on no device are not looked at."""
    read = {name: weight for name, weight in weights.items() if weight.is_floating_point() and not weight.is_meta}
    return [name for name, weight in read.items() if not weight.isfinite().all()]


def reduced_precision(model: nn.Module) -> str | None:
    """Return the setting by which a forward pass of this model would be less precise than float32; None if there is none.

    Settings count on any device, also those that act on another one: `torch.backends` and the two environment variables by
    which cuBLAS and oneDNN multiply float32 matrices in a shorter format.
    """
    precise = (torch.float32, torch.float64)
    first, *others = model.parameters()
    if first.dtype not in precise or any(weights.dtype not in precise for weights in others):
        name, weights = next(pair for pair in model.named_parameters() if pair[1].dtype not in precise)
        return f"{name} is {str(weights.dtype).removeprefix('torch.')}"
    kind = first.device.type
    # Weights that are offloaded are on no device, until a layer needs them on one or the other.
    for device in ("cpu", "cuda") if kind == "meta" else (kind,):
        if torch.is_autocast_enabled(device):
            return f"autocast to {str(torch.get_autocast_dtype(device)).removeprefix('torch.')} is on"
    # TORCH_ALLOW_TF32_CUBLAS_OVERRIDE and torch.set_float32_matmul_precision show in these settings.
    backends: Any = torch.backends
    settings = {
        "torch.backends.fp32_precision": backends.fp32_precision,
        "torch.backends.cuda.matmul.fp32_precision": backends.cuda.matmul.fp32_precision,
        "torch.backends.mkldnn.matmul.fp32_precision": backends.mkldnn.matmul.fp32_precision,
        "DNNL_DEFAULT_FPMATH_MODE": os.environ.get("DNNL_DEFAULT_FPMATH_MODE", "").lower(),
        "ONEDNN_DEFAULT_FPMATH_MODE": os.environ.get("ONEDNN_DEFAULT_FPMATH_MODE", "").lower(),
    }
    exact = ("", "none", "ieee", "strict")
    return next((f"{name} is {value}" for name, value in settings.items() if value not in exact), None)


def uncovered_attention(model: PreTrainedModel) -> str | None:
    """Return the setting by which a pass of this model may take a kernel of attention that no certificate covers, else None.

    The fused kernels of CUDA may multiply float32 in parts of fewer digits, whatever `torch.backends` says, and multiply
    scores by log2 e before they subtract the largest one. Under a window no kernel is asked for.
    """
    config: Any = model.config
    implementation = config._attn_implementation
    has_window = getattr(model.base_model, "position_encoding", config).windowed
    device = next(model.parameters()).device.type
    if has_window or implementation == "eager":
        return None
    # In float32, CUDA takes no other fused kernel. The switch says nothing of further devices.
    is_switched_off = device == "cuda" and not torch.backends.cuda.mem_efficient_sdp_enabled()
    if implementation == "sdpa" and (device == "cpu" or is_switched_off):
        return None
    return f"attn_implementation is {implementation}, whose kernels on {device} it does not cover ('eager' is covered)"


def _hash_numbers(weights: Tensor) -> str | None:
    """Return a hash of the numbers of weights as float32; None if these are not what the tensor holds as they are."""
    # Quantized tensors are of classes of their own, which give the type that they stand for as their own.
    if type(weights) not in (Tensor, nn.Parameter) or weights.dtype not in (torch.float32, torch.float64):
        return None
    read = weights.detach().to("cpu", torch.float32).contiguous()
    is_exact = weights.dtype == torch.float32 or torch.equal(read.to(weights.dtype), weights.detach().cpu())
    return hashlib.sha256(read.view(torch.uint8).numpy().tobytes()).hexdigest() if is_exact else None


NOT_READ = "not read"
"""In place of a hash: the weights were on no device, as before offloaded ones are fetched."""


class Certified:
    """What the certificate of a loaded model is about, and which of its two warnings is still to be said.

    The weights are compared whenever one is another tensor than before or was changed in place, and after `forget`.

    Attributes:
        warns_of_numbers: whether other weights or arithmetic, by which the certificate does not hold, are to be said.
        warns_of_structure: whether structure of the caller's, which it does not cover, is to be said.
    """

    def __init__(self, model: nn.Module):
        self.hashes = {
            name: NOT_READ if weights.is_meta else _hash_numbers(weights) for name, weights in model.named_parameters()
        }
        self.seen: list[tuple[ReferenceType[Tensor], int]] = []
        self.warns_of_numbers = self.warns_of_structure = True

    def __getstate__(self):
        # References to tensors are of this process.
        return {**vars(self), "seen": []}

    def check_numbers(self, model: "LonghandPreTrainedModel") -> None:
        """Say once, before a forward pass, that the certificate is about other weights or arithmetic, if it is."""
        if not self.warns_of_numbers or getattr(model, "_is_replica", False):
            # The replicas of `nn.DataParallel` have copies of the weights, and no parameters.
            return
        if setting := reduced_precision(model) or uncovered_attention(model) or self.find_change(model):
            self.warns_of_numbers = False
            logger.warning(
                f"The certificate of {model.config.name_or_path} is a proof about its own weights in float32 and does not "
                f"hold here, because {setting}: answers may be wrong."
            )

    def check_structure(self, model: "LonghandPreTrainedModel", arguments: tuple, named: dict[str, object]) -> None:
        """Say once, before a forward pass that is given structure, that the certificate is about the model's own rule."""
        if self.warns_of_structure and (names := _given_structure(model, arguments, named)):
            model.warn_of_structure(names)

    def forget(self) -> None:
        """Compare the weights again."""
        self.seen = []

    def find_change(self, model: nn.Module) -> str | None:
        """Return what is different now; None if nothing is."""
        now = [(parameter, 0 if parameter.is_inference() else parameter._version) for parameter in model.parameters()]
        is_seen = (
            parameter is seen() and version == before
            for (parameter, version), (seen, before) in zip(now, self.seen, strict=False)
        )
        if len(now) == len(self.seen) and all(is_seen):
            return None
        weights = dict(model.named_parameters())
        if added := weights.keys() - self.hashes.keys():
            return f"{min(added)} is a weight that the certificate does not have"
        for name, certified in self.hashes.items():
            if name not in weights:
                return f"{name} is no weight of the model any more, as after quantization"
            is_read = certified != NOT_READ and not weights[name].is_meta
            if is_read and (certified is None or _hash_numbers(weights[name]) != certified):
                return f"{name} is not as the certificate has it"
        self.seen = [(ref(parameter), version) for parameter, version in now]
        return None


@cache
def _signature(kind: Any) -> inspect.Signature:
    """Return the signature of a class's forward pass, which takes longer to find than a step of decoding may."""
    return inspect.signature(kind.forward)


def _given_structure(model: "LonghandPreTrainedModel", arguments: tuple, named: dict[str, object]) -> list[str]:
    """Return the names of what a caller gives to a forward pass in the place of what the model's rule derives."""
    if named.get("neighbours") is not None:
        # A step of decoding, of what was asked for before.
        return []
    kind: Any = type(model)
    given = _signature(kind).bind_partial(model, *arguments, **named).arguments
    given = {**given, **given.get("kwargs", {})}
    if given.get("neighbours") is not None or (given.get("cache") is not None and given["cache"].get_seq_length()):
        return []
    names = [name for name in ("pair_map", "position_bias", "inputs_embeds") if given.get(name) is not None]
    if is_pair_mask(given.get("attention_mask")):
        names.append("attention_mask")
    position_ids = given.get("position_ids")
    base: Any = model.base_model
    if position_ids is not None and not base.are_derived(given.get("input_ids"), position_ids):
        names.append("position_ids")
    return names


def _guard(model: "LonghandPreTrainedModel", arguments: tuple, named: dict[str, object]) -> None:
    """The hook before every forward pass, which refuses what changed since the model was made, or says that a proof is lost.

    A step of decoding begins behind a prompt that was guarded.
    """
    if torch.compiler.is_compiling() or isinstance(named.get("step"), Step):
        return
    model.guard()
    if model.base_model is model:
        _refuse_parts_elsewhere(model)
    if model.certified is not None and not model.training:
        model.certified.check_structure(model, arguments, named)


def _refuse_parts_elsewhere(model: "LonghandPreTrainedModel") -> None:
    """Raise ValueError if the weights are offloaded part by part: encodings are used by more methods than `forward`."""
    if not any(weights.is_meta for weights in model.parameters()):
        return
    # Hooks of accelerate fetch the weights of a module, or of all modules in it, before its forward pass.
    hooks = [hook for module in model.modules() if (hook := getattr(module, "_hf_hook", None)) is not None]
    is_whole = getattr(getattr(model, "_hf_hook", None), "place_submodules", False)
    if hooks and not is_whole:
        name = type(model).__name__
        raise ValueError(f"{name} cannot be offloaded in parts: give preload_module_classes=[{name!r}], or load it whole")


def read_object(source: Any, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the object that a JSON file of a folder or repository holds; an empty one if there is none that can be read.

    Args:
        source: the folder or repository; None has no files.
        options: options of `from_pretrained`, of which those are used by which a file is found.
    """
    if source is None:
        return {}
    file = cached_file(
        source,
        name,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        **{name: options[name] for name in _FILE_OPTIONS if name in options},
    )
    if file is None:
        return {}
    try:
        with open(file, encoding="utf-8") as stream:
            stated = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return {}
    return stated if isinstance(stated, dict) else {}


def _says_proved(stated: dict[str, Any]) -> bool:
    """Whether a certificate says that something is proved, at least of single lengths."""
    lengths = stated.get("lengths")
    verdicts = (
        [verdict.get("verdict") for verdict in lengths if isinstance(verdict, dict)] if isinstance(lengths, list) else []
    )
    return stated.get("certified") is True or "proved" in verdicts


@dataclass
class Passes:
    """The number of forward passes in training so far, which the replicas of a model share."""

    count: int = 0


class LonghandPreTrainedModel(PreTrainedModel):
    """`PreTrainedModel` for both families."""

    certified: Certified | None = None
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, config, *inputs, **kwargs):
        if getattr(config, "lacks_plugins", False):
            config.check_known()
        super().__init__(config, *inputs, **kwargs)
        # Tags of the cards that Trainer and `push_to_hub` write. A push knows a repository of models by the second.
        self.model_tags = ["longhand", "longhand-model"]
        self._passes = Passes()
        self._made_with = {name: deepcopy(getattr(config, name)) for name in config.structure_fields}
        self.register_forward_pre_hook(_guard, with_kwargs=True)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        """Load a model as transformers does.

        A model with a certificate by which something is proved attends by `"eager"`, which the proof covers on every device,
        if nothing else is asked for. It says once, before a forward pass below float32, with other weights or with kernels
        of attention that are not covered, that the certificate does not hold there, and once, before a forward pass with ids
        or maps of the caller's, that it does not cover them.

        Raises:
            ValueError: the configuration ties the output matrix to the embedding, and the checkpoint holds another one.
        """
        if kwargs.get("trust_remote_code"):
            # Transformers prefers this package to the code that travels, which alone has the plugins of a checkpoint.
            files = {name: kwargs[name] for name in _CODE_OPTIONS if name in kwargs}
            config = kwargs.get("config") or cls.config_class.from_pretrained(pretrained_model_name_or_path, **files)
            if getattr(config, "lacks_plugins", False):
                name = config.to_dict()["auto_map"]["AutoModel"].partition(".")[0]
                travelling = get_class_from_dynamic_module(
                    f"{name}.{cls.__name__}",
                    pretrained_model_name_or_path,
                    code_revision=kwargs.get("code_revision"),
                    **files,
                )
                kwargs["config"] = travelling.config_class.from_dict(config.to_dict())
                return travelling.from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
        loaded = super().from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        # Transformers leaves such weights apart, until `tie_weights()` or `resize_token_embeddings` joins them.
        apart = {*(model._tied_weights_keys or ())} - {*model.all_tied_weights_keys}
        if apart and model.config.tie_word_embeddings:
            raise ValueError(
                f"{pretrained_model_name_or_path}: tie_word_embeddings is True in config.json, but the weights files hold "
                f"another {apart.pop()}: set tie_word_embeddings to False, or remove these weights"
            )
        if pretrained_model_name_or_path is None:
            return loaded
        if _says_proved(read_object(pretrained_model_name_or_path, CERTIFICATE_FILE, kwargs)):
            if "attn_implementation" not in kwargs:
                model.set_attn_implementation("eager")
            model.certified = Certified(model)
        return loaded

    def _apply(self, fn, *args, **kwargs):
        # A change of type or device writes other numbers into the same parameters.
        if self.certified is not None:
            self.certified.forget()
        return super()._apply(fn, *args, **kwargs)

    def train(self, mode=True):
        # An optimizer may write into weights without a trace; it does so between training and evaluation.
        if self.certified is not None:
            self.certified.forget()
        return super().train(mode)

    def save_pretrained(self, save_directory, *args, **kwargs):
        """Save a model as transformers does.

        Raises:
            NotFinite: a weight is NaN or infinite. Nothing is saved then, by Trainer neither.
        """
        if broken := find_not_finite(kwargs.get("state_dict") or dict(self.named_parameters())):
            raise NotFinite(
                f"the model is not saved: weights are NaN or infinite ({', '.join(broken[:3])}); go on from the checkpoint "
                "before, with a lower learning rate"
            )
        state = kwargs.get("state_dict") or self.state_dict()
        # Of offloaded weights transformers keeps the names by which they were loaded.
        if (stored := find_stored_names(self)) and not any(weights.is_meta for weights in state.values()):
            kwargs["state_dict"] = {stored.get(name, name): weights for name, weights in state.items()}
        super().save_pretrained(save_directory, *args, **kwargs)

    def is_heard(self) -> bool:
        """Whether anyone else sees calls of this model: by a hook, or by a forward pass in the place of its own."""
        others = [hook for hook in self._forward_pre_hooks.values() if hook is not _guard]
        return bool(self._forward_hooks or others) or "forward" in vars(self)

    def check_loss(self, loss: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a forward pass; in training, end the run if it is NaN or infinite, since all weights are then.

        On a CPU every loss is looked at. Elsewhere one of `LOOK_EVERY` is, because a look waits for the device.

        Raises:
            NotFinite: it is, although labels supervise some token. As in stock models, the loss of no token is NaN.
        """
        if not self.training or torch.compiler.is_compiling():
            return loss
        self._passes.count += 1
        looks = loss.device.type == "cpu" or self._passes.count % LOOK_EVERY == 0
        if looks and not loss.isfinite().all() and (labels != IGNORED).any():
            broken = find_not_finite(dict(self.named_parameters()))
            weights = f", and weights are NaN or infinite ({', '.join(broken[:3])})" if broken else ""
            raise NotFinite(
                f"the loss is {float(loss.detach())}{weights}: training cannot go on; train with a lower learning_rate, or "
                "in float32 or bfloat16 if this is float16"
            )
        return loss

    def guard(self) -> None:
        """Refuse a configuration that changed since the model was made; say once that a proof is lost by other numbers."""
        self.check_unchanged()
        if self.certified is not None and not self.training:
            self.certified.check_numbers(self)

    def check_unchanged(self) -> None:
        """Raise ValueError if a field of the configuration by which the model was made has another value now."""
        # Attributes of a configuration are slow to look up one by one, at every step of decoding.
        now = vars(self.config)
        for name, value in self._made_with.items():
            if (new := now[name] if name in now else getattr(self.config, name)) != value:
                raise ValueError(
                    f"{name} of the config was {value!r:.60} when this model was made, and is {new!r:.60} now: load it "
                    f"again by from_pretrained(folder, {name}={new!r:.60})"
                )

    def are_derived(self, input_ids: Tensor | None, position_ids: Tensor) -> bool:
        """Return whether given ids, of the legal shape or not, are those that the model's own rule derives."""
        return False

    def warn_of_structure(self, names: list[str]) -> None:
        """Say once that the certificate of a model that has one does not cover these arguments of the caller's."""
        if self.certified is None or not self.certified.warns_of_structure:
            return
        self.certified.warns_of_structure = False
        logger.warning(
            f"The certificate of {self.config.name_or_path} is a proof about the ids that the model derives, and does not "
            f"cover the {', '.join(names)} given here: answers may be wrong."
        )


def attend(
    attention: Callable[..., tuple[Tensor, Tensor | None]],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    position_bias: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend to all keys through the interface of transformers, by the implementation that the configuration names.

    Args:
        attention: the implementation. Each module asks for it by itself: transformers reads its file to see that it does.
        module: the attention, which has the configuration.
        query: (batch, heads, queries, head_dim).
        key, value: (batch, heads, keys, head_dim).
        attention_mask: (batch or 1, heads or 1, queries or 1, keys), bool or added to scores, or None.
        position_bias: (batch or 1, heads or 1, queries, keys), added to the scaled scores, or None.

    Returns:
        Outputs (batch, queries, heads, head_dim), and weights (batch, heads, queries, keys) if the implementation has them.
    """
    config: Any = module.config
    if config._attn_implementation == "sdpa" and query.shape[2] == 1 and query.device.type == "cpu":
        # On a processor, the fused kernel is made for many queries.
        attention = eager_attention_forward
    # Under autocast, a factor may have made queries more precise than keys and values.
    query, key = query.to(value.dtype), key.to(value.dtype)
    # One bias says all, in each implementation: some take the type of a mask's numbers for that of the scores, hide keys by
    # -inf, or leave the weights of a query that sees no key undefined.
    bias = _one_bias(attention_mask, position_bias, query.dtype)
    if config._attn_implementation == "flex_attention" and bias is not None:
        # It indexes a bias of all rows and heads.
        bias = bias.expand(*query.shape[:3], key.shape[2])
    return attention(
        module,
        query,
        key,
        value,
        None,
        scaling=scaling,
        dropout=dropout,
        is_causal=False,
        position_bias=bias,
        **kwargs,
    )


def _one_bias(mask: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return a mask and a bias as one bias in the type of the scores, `hiding_bias` for keys that a mask hides."""
    if mask is None or bias is None:
        both = mask if bias is None else bias
    elif mask.dtype == torch.bool:
        both = torch.where(mask, bias, hiding_bias(bias.dtype))
    else:
        both = bias + mask
    if both is None:
        return None
    if both.dtype == torch.bool:
        return torch.zeros((), dtype=dtype, device=both.device).where(both, hiding_bias(dtype))
    return as_scores(both, dtype)


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **kwargs,
) -> tuple[Tensor, Tensor]:
    """Attend to all keys, with weights that can be recorded (`attn_implementation="eager"`); arguments as for `attend`.

    The softmax is computed in float32 or better.
    """
    # For one query, several times as fast as its product with the turned keys.
    is_one = query.shape[2] == 1
    query = query * scaling
    scores = key.matmul(query.transpose(2, 3)).transpose(2, 3) if is_one else query.matmul(key.transpose(2, 3))
    if position_bias is not None:
        scores = scores.add_(position_bias)
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    if dropout:
        weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights
