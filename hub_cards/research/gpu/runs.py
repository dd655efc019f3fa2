"""Short runs of train.py on the device, from data to card, in each way to train; and pictures of attention."""

# Used by: whoever runs or imports it. Changed freely.

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from longhand import eval as evaluation
from longhand import train
from longhand.hub_cards.recipes import read_settings
from longhand.hub_cards.research.gpu.record import Record
from longhand.hub_cards.result_rows import Row, read_results

SETTINGS = read_settings(Path(__file__).with_suffix(".yaml"))
"""Short runs of train.py, from data to card; the file says what its fields mean."""


def run(record: Record) -> None:
    """Make all runs and pictures."""
    for name, words in list(SETTINGS["runs"].items())[: 1 if record.small else None]:
        record.measure(name, partial(short_run, words.split(), record.small), needs=10)
    record.measure("attention pictures", pictures)


def short_run(words: list[str], small: bool) -> Row:
    """A run of train.py from data to card.

    Raises:
        SystemExit: it failed.
    """
    with TemporaryDirectory() as folder:
        options = {f"--{name}": str(value) for name, value in SETTINGS["short"].items()}
        short = [word for pair in options.items() if pair[0] not in words for word in pair]
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
