"""Export a checkpoint to ONNX, and check in onnxruntime that it answers as the model does.

Only decoders are exported. Position ids are an input of the graph, because the model derives them from the values of tokens,
which a traced graph cannot do. The graph takes and returns its cache. All pairs are scored, under a window
too, so time and memory grow with the square of the number of tokens.

examples:
  python -m longhand.hub_cards.export outputs/addition addition.onnx
  python -m longhand.hub_cards.export user/name model.onnx
"""

import argparse
import logging
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from longhand.data import EvaluationBatches
from longhand.data.families import DECODER
from longhand.data.plugins import add_plugin_option, load_plugin
from longhand.hub_cards.checkpoints.files import Checkpoint
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.checkpoints.zoo import locate
from longhand.hub_cards.console import OneLineParser, interruptible, refusing_in_one_line
from longhand.hub_cards.files import write_atomically
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.modeling_coupled_gpt import ForwardInputs
from longhand.modeling.vocabulary import PAD

TOLERANCE = 1e-3
"""Largest difference of a logit between the graph and the model. The forms add in another order."""

_ANY = torch.export.Dim.DYNAMIC
_SIZES = {
    "input_ids": {0: _ANY, 1: _ANY},
    "position_ids": {0: _ANY, 2: _ANY},
    "attention_mask": {0: _ANY, 1: _ANY},
    "past": {0: _ANY, 3: _ANY},
}


class _TensorCache:
    """The keys and values of all layers in one tensor, (batch, 2 x layers, heads, tokens, head_dim)."""

    def __init__(self, past: Tensor):
        self.past = past
        self.present: list[Tensor] = []

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        both = (torch.cat([self.past[:, 2 * layer + place], new], dim=2) for place, new in enumerate((key, value)))
        key, value = both
        self.present += [key, value]
        return key, value


class ExportableCoupledGPT(nn.Module):
    """A CoupledGPT with given position ids, and its cache as a tensor."""

    def __init__(self, model: CoupledGPTForCausalLM):
        super().__init__()
        self.model = model
        # The interface is a field of the configuration, so it is chosen for this copy alone.
        model.set_attn_implementation("eager")

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, attention_mask: Tensor, past: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits (batch, tokens, vocabulary), and the cache for the next call.

        Args:
            input_ids: (batch, tokens).
            position_ids: (batch, levels, past + tokens), as `plan_position_ids` of the model gives them.
            attention_mask: (batch, past + tokens), 0 for padding on the left.
            past: (batch, 2 x layers, heads, past, head_dim), of no token at first.
        """
        model, config, keys = self.model.model, self.model.config, position_ids.shape[-1]
        encoding, cache = model.position_encoding, _TensorCache(past)
        first = keys - input_ids.shape[1]
        ids, hidden_states = position_ids[..., first:], model.embed_tokens(input_ids)
        if encoding.embeds_position_ids:
            hidden_states = encoding.embed(hidden_states, ids)
        relations = encoding.pair_map(ids, position_ids) if encoding.uses_pair_map else None
        columns, every = torch.arange(first, keys, device=input_ids.device), slice(None)
        inputs: Any = (hidden_states, None, ids, attention_mask, cache, keys, every, every, columns, relations)
        hidden_states = model._forward_tokens(ForwardInputs(*inputs))
        if config.tie_word_embeddings:
            hidden_states = hidden_states * config.hidden_size**-0.5
        return self.model.lm_head(hidden_states), torch.stack(cache.present, 1)

    def example(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        """Return arguments of `forward` for sequences (batch, tokens) whose first two tokens are in the cache."""
        batch, tokens = input_ids.shape
        position_ids = self.model.model.plan_position_ids(input_ids, tokens).expand(batch, -1, -1).contiguous()
        mask = torch.ones_like(input_ids)
        with torch.no_grad():
            _, past = self(input_ids[:, :2], position_ids[..., :2], mask[:, :2], self.empty_cache(batch))
        return input_ids[:, 2:], position_ids, mask, past

    def empty_cache(self, batch: int) -> Tensor:
        """Return the cache of no token."""
        config = self.model.config
        shape: Any = (batch, 2 * config.num_hidden_layers, config.num_attention_heads, 0, config.head_dim)
        return torch.zeros(shape, dtype=self.model.dtype)


def export_checkpoint(checkpoint: Checkpoint, file: Path) -> float:
    """Write a checkpoint's model as an ONNX file, once its logits are found equal to the model's.

    Returns:
        The largest difference of a logit on problems of two sizes.

    Raises:
        ValueError: the model is an encoder, or the graph's logits differ.
        OSError: the file cannot be written; what stood there is kept.
    """
    if checkpoint.task.family is not DECODER:
        raise ValueError(f"{checkpoint.name} is an encoder: only decoders are written as ONNX")
    graph = ExportableCoupledGPT(checkpoint.model).eval()  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            graph,
            graph.example(problems(checkpoint.by_part()[0], 4)),
            dynamo=True,
            verbose=False,
            input_names=list(_SIZES),
            output_names=["logits", "present"],
            dynamic_shapes=tuple(_SIZES.values()),
        )
    assert program is not None
    content = program.model_proto.SerializeToString()
    difference = compare(checkpoint, graph, content)
    if not difference <= TOLERANCE:
        raise ValueError(f"the graph's logits differ from the model's by {difference:.2g}, nothing is written")
    write_atomically(file, content)
    return difference


def problems(checkpoint: Checkpoint, length: int) -> torch.Tensor:
    """Return a few problems of a size, (4, tokens)."""
    task = checkpoint.task.for_evaluation
    collator = task.family.collator(checkpoint.model.config)
    # Only this split has problems of every size.
    batch = EvaluationBatches(task, task.operand_lengths(length), 4, 0, "train", 4, collator=collator)[0]
    # Rows of one layout: a graph's example has no padding.
    tokens = batch["input_ids"]
    return tokens[(tokens != PAD).all(1)]


def compare(checkpoint: Checkpoint, graph: Any, content: bytes) -> float:
    """Return the largest difference of a logit between an ONNX graph and the model, on problems of two sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content)
    largest = 0.0
    for part, length in product(checkpoint.by_part(), (3, 6)):
        tokens = problems(part, length)
        example = graph.example(tokens)
        given = {name: value.detach().numpy() for name, value in zip(_SIZES, example, strict=True)}
        found = session.run(None, given)[0]
        with torch.inference_mode():
            expected = checkpoint.model(tokens).logits[:, tokens.shape[1] - found.shape[1] :].numpy()
        largest = max(largest, float(np.abs(found - expected).max()))
    return largest


def main(arguments: list[str] | None = None) -> None:
    """Console entry. Illegal input ends with one line and exit status 2."""
    style = argparse.RawDescriptionHelpFormatter
    parser = OneLineParser("python -m longhand.hub_cards.export", description=__doc__, formatter_class=style)
    add = parser.add_argument
    add("checkpoint", metavar="MODEL", help="folder of a run, Hub id USER/NAME, or a name of eval.py --list")
    add("file", type=Path, metavar="FILE.onnx", help="file to write")
    add("--revision", help="branch, tag or commit on the Hub (default: main)")
    add("--task", help="task of a checkpoint that has no recipe.yaml and names none")
    add_plugin_option(parser)
    transformers_logging.disable_progress_bar()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with interruptible("run the command again"), refusing_in_one_line(OSError):
        options = parser.parse_args(arguments)
        if options.file.suffix != ".onnx" or not options.file.parent.is_dir():
            raise ValueError(f"FILE must end with .onnx, in a folder that exists, got {options.file}")
        for file in options.plugin:
            load_plugin(file)
        options.checkpoint = locate(options.checkpoint)
        checkpoint = load_checkpoint(options.checkpoint, options.revision, options.task)
        difference = export_checkpoint(checkpoint, options.file)
        print(f"wrote {options.file}: logits differ by {difference:.1g} at most from those of {checkpoint.name}")


if __name__ == "__main__":
    main()
