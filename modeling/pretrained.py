"""What the models of both families share: loading, attention, and a warning where a certificate does not hold."""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import cached_file, logging

CERTIFICATE_FILE = "certificate.json"

_FILE_OPTIONS = ("cache_dir", "proxies", "token", "revision", "local_files_only", "subfolder", "_commit_hash")
"""Options of `from_pretrained` by which a file is found."""

logger = logging.get_logger(__name__)


def reduced_precision(model: nn.Module) -> str | None:
    """Return the setting by which a forward pass of this model would be less precise than float32; None if there is none.

    Settings count on any device, also those that act on another one: `torch.backends` and the two environment variables by
    which cuBLAS and oneDNN multiply float32 matrices in a shorter format.
    """
    for name, weights in model.named_parameters():
        if weights.dtype not in (torch.float32, torch.float64):
            return f"{name} is {str(weights.dtype).removeprefix('torch.')}"
    device = next(model.parameters()).device.type
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


def _warn_of_reduced_precision(model: "LonghandPreTrainedModel", _: tuple) -> None:
    """Say once, before a forward pass in evaluation, that the model's certificate is about another arithmetic."""
    if model.training or torch.compiler.is_compiling():
        return
    if setting := reduced_precision(model):
        model.precision_warning.remove()
        logger.warning(
            f"The certificate of {model.config.name_or_path} is a proof about float32 and does not hold here, because "
            f"{setting}: answers may be wrong."
        )


class LonghandPreTrainedModel(PreTrainedModel):
    """`PreTrainedModel` for both families."""

    precision_warning: RemovableHandle
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config, *inputs, **kwargs):
        super().__init__(config, *inputs, **kwargs)
        # Tags of the cards that Trainer and `push_to_hub` write. A push knows a repository of models by the second.
        self.model_tags = ["longhand", "longhand-model"]

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        """Load a model as transformers does.

        A model with a certificate beside it says once, before a forward pass below float32, that the certificate does not
        hold there.

        Raises:
            ValueError: the configuration ties the output matrix to the embedding, and the checkpoint holds another one.
        """
        loaded = super().from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        # Transformers leaves such weights apart, until `tie_weights()` or `resize_token_embeddings` joins them.
        apart = {*(model._tied_weights_keys or ())} - {*model.all_tied_weights_keys}
        if apart and model.config.tie_word_embeddings:
            raise ValueError(
                f"{pretrained_model_name_or_path}: tie_word_embeddings is True in config.json, but the weights files hold "
                f"another {apart.pop()}: set tie_word_embeddings to False, or remove these weights"
            )
        if pretrained_model_name_or_path is not None and cached_file(
            pretrained_model_name_or_path,
            CERTIFICATE_FILE,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            **{name: kwargs[name] for name in _FILE_OPTIONS if name in kwargs},
        ):
            model.precision_warning = model.register_forward_pre_hook(_warn_of_reduced_precision)
        return loaded


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[Tensor, Tensor]:
    """Attend to all keys, with weights that can be recorded (`attn_implementation="eager"`).

    The softmax is computed in float32 or better.

    Returns:
        Outputs (batch, queries, heads, head_dim) and weights (batch, heads, queries, keys).
    """
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    if attention_mask is not None:
        # Under autocast, a mask in float32 must not be rounded to half precision, where its numbers are infinite.
        scores = scores.add_(attention_mask) if attention_mask.dtype == scores.dtype else scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    if dropout:
        weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights
