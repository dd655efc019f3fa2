"""How long a certificate's bound of rounding takes on one core, beside the check that no prediction is wrong.

python tests/benchmarks/bounds.py outputs/addition outputs/copy --output bounds.jsonl

Seconds are of the processor, not of the clock, so that other work on the machine counts little. All models must be exact.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from longhand.data.certificates import check_neighbourhoods
from longhand.hub_cards.checkpoints.load import load_checkpoint
from longhand.hub_cards.evaluation.results import hardware


def measure(folder: str) -> dict:
    """Seconds of the check without the bound, microseconds of the bound for each neighbourhood, and the smallest ratio."""
    checkpoint, seconds = load_checkpoint(folder), []
    for thorough in (False, True):
        began = time.process_time()
        check = check_neighbourhoods(checkpoint.model, checkpoint.task, thorough=thorough)
        seconds.append(time.process_time() - began)
    neighbourhoods = check.neighbourhoods or check.predictions
    each = (seconds[1] - seconds[0]) / neighbourhoods * 1e6
    row = {"model": checkpoint.name, "neighbourhoods": neighbourhoods, "check": seconds[0], "microseconds": each}
    return row | {"ratio": check.ratio, "hardware": hardware(torch.device("cpu"))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", help="folders of certified runs")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for folder in options.folders:
        rows.append(measure(folder))
        print(json.dumps(rows[-1]), flush=True)
    if options.output:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
