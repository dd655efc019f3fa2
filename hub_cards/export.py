"""Export a checkpoint to ONNX, and check in onnxruntime that it answers as the model does.

Position ids (decoders) and pair maps (encoders) are inputs of the graph, because the model derives them from the values of
tokens, which a traced graph cannot do. A decoder's graph takes and returns its cache. All pairs are scored, under a window
too, so time and memory grow with the square of the number of tokens.

examples:
  python -m longhand.hub_cards.export outputs/addition addition.onnx
  python -m longhand.hub_cards.export user/name model.onnx
"""

import argparse
import logging
import warnings
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from longhand.data import EvaluationBatches
from longhand.data.families.encoder import ENCODER
from longhand.data.plugins import add_plugin_option, load_plugin
from longhand.hub_cards.checkpoints.files import Checkpoint
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.checkpoints.zoo import locate
from longhand.hub_cards.console import OneLineParser, interruptible, refusing_in_one_line
from longhand.hub_cards.files import write_atomically
from longhand.modeling import CoupledGPTForCausalLM, PairwiseBertForTokenClassification
from longhand.modeling.encoder_maps import NO_MAP, derive_pair_map, virtual_indices
from longhand.modeling.modeling_coupled_gpt import ForwardInputs
from longhand.modeling.vocabulary import PAD

NEEDED = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-3
"""Largest difference of a logit between the graph and the model. The forms add in another order."""

_ANY = torch.export.Dim.DYNAMIC
_DECODER_SIZES = {
    "input_ids": {0: _ANY, 1: _ANY},
    "position_ids": {0: _ANY, 2: _ANY},
    "attention_mask": {0: _ANY, 1: _ANY},
    "past": {0: _ANY, 3: _ANY},
}
_ENCODER_SIZES = {
    "input_ids": {0: _ANY, 1: _ANY},
    "pair_maps": {0: _ANY, 2: _ANY, 3: _ANY},
    "attention_mask": {0: _ANY, 1: _ANY},
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


class ExportablePairwiseBert(nn.Module):
    """A PairwiseBert with given pair maps.

    Raises:
        ValueError: the model applies its layers until its state or its labels settle, which no traced graph can do.
    """

    def __init__(self, model: PairwiseBertForTokenClassification):
        super().__init__()
        if model.config.settle_tolerance is not None:
            raise ValueError(
                "the model applies its layers until its state settles, and a graph has a fixed number of steps: set "
                "settle_tolerance to None in its configuration for num_loops loops"
            )
        if model.config.label_states:
            raise ValueError("the model applies its layer until its labels settle, and a graph has a fixed number of steps")
        self.model = model
        self.rules = [name for name in dict.fromkeys(model.config.head_maps) if name != NO_MAP]
        model.set_attn_implementation("eager")

    def forward(self, input_ids: Tensor, pair_maps: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits (batch, tokens, labels).

        Args:
            input_ids: (batch, tokens).
            pair_maps: (batch, rules, tokens, tokens), the map of each rule in the order of the configuration.
            attention_mask: (batch, tokens), 0 for padding.
        """
        model = self.model.model
        maps = dict(zip(self.rules, pair_maps.unbind(1), strict=True))
        embeddings = model.embed_tokens(input_ids)
        attention = model._attention_arguments(*model._with_sink(maps, attention_mask == 0), embeddings.dtype)
        embeddings = model.embedding_norm(model._add_positions(embeddings, input_ids))
        return self.model.classifier(model._loop(embeddings, None, **attention).last_hidden_state)

    def example(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments of `forward` for inputs (batch, tokens) without padding."""
        config, indices = self.model.config, virtual_indices(input_ids)
        limits: Any = (config.relation_range, config.windowed, config.max_multiplier_length)
        maps = [derive_pair_map(name, input_ids, indices, *limits).long() for name in self.rules]
        batch, tokens = input_ids.shape
        spread = [one.expand(batch, -1, -1) for one in maps]
        stacked = torch.stack(spread, 1) if spread else input_ids.new_zeros(batch, 0, tokens, tokens)
        return input_ids, stacked, torch.ones_like(input_ids)


def export_checkpoint(checkpoint: Checkpoint, file: Path) -> float:
    """Write a checkpoint's model as an ONNX file, once its logits are found equal to the model's.

    Returns:
        The largest difference of a logit on problems of two sizes.

    Raises:
        ValueError: a package is missing, the model cannot be a graph, or the graph's logits differ.
        OSError: the file cannot be written; what stood there is kept.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ValueError(f"the export needs {', '.join(missing)}: pip install 'longhand[export]'")
    model: Any = checkpoint.model
    sizes, outputs = _DECODER_SIZES, ["logits", "present"]
    kind: Any = ExportableCoupledGPT
    if checkpoint.task.family is ENCODER:
        sizes, outputs, kind = _ENCODER_SIZES, ["logits"], ExportablePairwiseBert
    graph = kind(model).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            graph,
            graph.example(problems(checkpoint.by_part()[0], 4)),
            dynamo=True,
            verbose=False,
            input_names=list(sizes),
            output_names=outputs,
            dynamic_shapes=tuple(sizes.values()),
        )
    assert program is not None
    content = program.model_proto.SerializeToString()
    difference = compare(checkpoint, graph, list(sizes), content)
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


def compare(checkpoint: Checkpoint, graph: Any, names: list[str], content: bytes) -> float:
    """Return the largest difference of a logit between an ONNX graph and the model, on problems of two sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content)
    largest = 0.0
    for part, length in product(checkpoint.by_part(), (3, 6)):
        tokens = problems(part, length)
        example = graph.example(tokens)
        given = {name: value.detach().numpy() for name, value in zip(names, example, strict=True)}
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
