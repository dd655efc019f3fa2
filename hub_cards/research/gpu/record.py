"""The results file of one script, into which several processes write, and the time that is left."""

# Used by: hub_cards/research/gpu, hub_cards/research/structured. Changed freely.

import json
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from longhand.hub_cards.result_rows import Row, hardware

RESULTS = "gpu.jsonl"


@dataclass(frozen=True)
class Record:
    """Where a part writes its rows.

    Attributes:
        part: its name.
        output: folder of the results.
        until: the `time.time()` at which it ends.
        small: whether sizes are those of a test on a CPU.
    """

    part: str
    output: Path
    until: float
    small: bool

    @property
    def device(self) -> torch.device:
        """Where models run."""
        return torch.device("cpu" if self.small else "cuda")

    @property
    def seconds_left(self) -> float:
        """Seconds until the part ends."""
        return self.until - time.time()

    def measure(self, name: str, work: Callable[[], Row], needs: float = 0) -> Row | None:
        """Do a work, unless it is done already or time is over, and write its row; an error is a row too.

        Args:
            name: of the row, unique in the part.
            work: what is measured; it returns the fields of the row.
            needs: seconds that must be left.

        Returns:
            The row, also one that an earlier call wrote; None if time is over.
        """
        for earlier in read_rows(self.output):
            if (earlier["part"], earlier["name"]) == (self.part, name) and "error" not in earlier:
                return earlier
        if self.seconds_left <= needs:
            print(f"{self.part}: no time is left for {name}", flush=True)
            return None
        began = time.perf_counter()
        row: Row = {"part": self.part, "name": name}
        try:
            row |= work()
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({_where(error)})"
        row |= {"took": round(time.perf_counter() - began, 2), "torch": torch.__version__, "hardware": hardware(self.device)}
        write_row(self.output, row)
        return row


def _where(error: BaseException) -> str:
    """The last lines of code that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))


def write_row(output: Path, row: Row) -> None:
    """Add a row, in one write, so that several processes can."""
    line = json.dumps({name: _finite(value) for name, value in row.items()}, default=str)
    with (output / RESULTS).open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")
    print(line, flush=True)


def _finite(value: Any) -> Any:
    """The value; text in place of NaN and infinity, which results files do not hold."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(output: Path) -> list[Row]:
    """The rows that were written so far."""
    file = output / RESULTS
    return list(map(json.loads, file.read_text(encoding="utf-8").splitlines())) if file.exists() else []
