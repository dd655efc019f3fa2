"""Export a checkpoint to ONNX, and check in onnxruntime that it answers as the model does.

Position ids (decoders) and pair maps (encoders) are inputs of the graph, because the model derives them from the values of
tokens: see longhand/modeling/exportable.py for all inputs and outputs. A decoder's graph takes and returns its cache.

examples:
  python -m longhand.hub_cards.export outputs/addition addition.onnx
  python -m longhand.hub_cards.export user/name model.onnx
"""

import argparse
import logging
import secrets
import warnings
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils import logging as transformers_logging

from longhand.data import EvaluationBatches
from longhand.data.families.encoder import ENCODER
from longhand.data.plugins import add_plugin_option, load_plugin
from longhand.hub_cards.checkpoints.files import Checkpoint
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.checkpoints.zoo import locate
from longhand.hub_cards.console import OneLineParser, interruptible, refusing_in_one_line
from longhand.modeling.exportable import ExportableCoupledGPT, ExportablePairwiseBert
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


def export_checkpoint(checkpoint: Checkpoint, file: Path) -> float:
    """Write a checkpoint's model as an ONNX file, once its logits are found equal to the model's.

    Returns:
        The largest difference of a logit on problems of two sizes.

    Raises:
        ValueError: a package is missing, the model cannot be a graph, or the graph's logits differ.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ValueError(f"the export needs {', '.join(missing)}: pip install 'longhand[export]'")
    model: Any = checkpoint.model
    sizes, outputs = _DECODER_SIZES, ["logits", "present"]
    kind: Any = ExportableCoupledGPT
    if checkpoint.task.family is ENCODER:
        sizes, outputs, kind = _ENCODER_SIZES, ["logits"], ExportablePairwiseBert
    graph = kind(model).eval()
    partial = file.with_name(f".{secrets.token_hex(8)}.partial.onnx")
    try:
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
        program.save(str(partial))
        difference = compare(checkpoint, graph, list(sizes), partial)
        if not difference <= TOLERANCE:
            raise ValueError(f"the graph's logits differ from the model's by {difference:.2g}, nothing is written")
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
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


def compare(checkpoint: Checkpoint, graph: Any, names: list[str], file: Path) -> float:
    """Return the largest difference of a logit between an ONNX file and the model, on problems of two sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file))
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
