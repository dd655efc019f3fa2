"""Short runs of train.py on the device, from data to card, in each way to train; and pictures of attention."""

# Used by: whoever runs or imports it. Changed freely.

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from longhand import eval as evaluation
from longhand import train
from longhand.hub_cards.research.gpu.record import Record
from longhand.hub_cards.result_rows import Row, read_results

SHORT = {"--max_steps": "20", "--eval_steps": "10", "--batch_size": "32", "--validation_samples": "16"}
SHORT |= {"--test_lengths": "5", "--test_samples": "16"}
RUNS: dict[str, list[str]] = {
    "float32": ["addition", "--until_certified", "False"],
    "practised neighbourhoods": ["addition", "--max_steps", "2000", "--eval_steps", "50", "--batch_size", "256"],
    "practised worst problems": ["addition-absolute", "--practise_worst", "16"],
    "sharper scores": ["addition-absolute-proved"],
    "Muon": ["addition-absolute", "--muon_learning_rate", "0.02"],
    "bf16": ["addition-absolute", "--bf16", "True"],
    "fp16": ["addition-absolute", "--fp16", "True"],
    "TF32": ["addition-absolute", "--tf32", "True"],
    "checkpointed gradients": ["encoder-addition", "--gradient_checkpointing", "True"],
    "settling": ["encoder-addition-settling", "--until_certified", "False"],
    "deterministic kernels": ["addition", "--until_certified", "False", "--full_determinism", "True"],
    "compiled": ["addition-absolute", "--torch_compile", "True"],
}
"""Short runs of train.py, from data to card."""


def run(record: Record) -> None:
    """Make all runs and pictures."""
    for name, words in list(RUNS.items())[: 1 if record.small else None]:
        record.measure(name, partial(short_run, words, record.small), needs=10)
    record.measure("attention pictures", pictures)


def short_run(words: list[str], small: bool) -> Row:
    """A run of train.py from data to card.

    Raises:
        SystemExit: it failed.
    """
    with TemporaryDirectory() as folder:
        short = [word for pair in SHORT.items() if pair[0] not in words for word in pair]
        device = ["--use_cpu", "True"] if small else []
        backends: Any = torch.backends
        precision = backends.fp32_precision
        try:
            train.main([*words, *short, *device, "--output_dir", f"{folder}/run"])
        finally:
            # These settings of a run are those of the whole process.
            torch.use_deterministic_algorithms(False)
            backends.fp32_precision = precision
        (*_, last) = read_results(Path(folder, "run", "validation.jsonl"))
        return {"what": "run", "steps": last["step"], "token_accuracy": last["token_accuracy"], "passed": True}


def pictures() -> Row:
    """eval.py draws attention of a decoder and of an encoder."""
    for name in ("addition", "encoder-addition"):
        with TemporaryDirectory() as folder:
            words = ["--lengths", "5", "--num_samples", "20", "--attentions", "--output_places"]
            evaluation.main([name, *words, "--output_dir", folder])
    return {"what": "eval.py", "passed": True}
