"""This package against the authors' own code, a checkout of their position-coupling repository, in turn in one run.

python tests/benchmarks/race.py --peer CHECKOUT --peer_python PYTHON --output hub_cards/results/race.jsonl

RESULTS.md says how to obtain the checkout and the Python that runs it. Without a checkout, this package runs alone.

Both sides have the model of paper 1's Fig. 3 (one layer, 4 heads, d 512, d_ff 2048, a learned table of 202 ids) and read
sums of the same format in batches of the same size. Sums are drawn and made into batches of 4,096 and of 128, learned (1
to 30 digits, 128 a step; the authors' model as it is or compiled, whichever is faster), evaluated by teacher forcing (200
digits, 20 at a time) and answered greedily (100 digits, 16 at a time and one at a time). Weights are untrained, and no
response ends early.

Seconds are of the processor, on one thread, not of the clock, so that other work on the machine counts little.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from rivals import in_turn
from transformers.utils import logging

from longhand.data.batches import EvaluationBatches, FreshBatches, draw_batch
from longhand.data.collator import IGNORED, CouplingCollator
from longhand.data.tasks.addition import Addition
from longhand.hub_cards.result_rows import hardware
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM

EXPECTED = [f"src/{name}/__init__.py" for name in ("data", "evaluate", "model", "tokenization", "training")]
EXPECTED.append("configs/config.yaml")

KINDS = ("generation", "training", "evaluation", "decoding")

LONGEST, EVALUATED, DECODED = 30, 200, 100
"""Digits of the longest trained sums, and of those that are evaluated and decoded."""


MAX_POSITION = 202


def paper_model() -> CoupledGPTForCausalLM:
    """The model of paper 1's Fig. 3: one layer, 4 heads, d 512, d_ff 2048, learned table of 202 ids."""
    config = CoupledGPTConfig(
        hidden_size=512,
        num_attention_heads=4,
        intermediate_size=2048,
        position_encoding="learned",
        max_position_ids=MAX_POSITION,
        norm_placement="pre_post",
        init="t5",
        attention_scale="none",
        tie_word_embeddings=True,
    )
    return CoupledGPTForCausalLM(config)


def drawn_batches(size: int) -> Iterator[dict]:
    """New batches of `size` sums of 1 to 30 digits for training, with position ids from random starts."""
    task = Addition()
    collator = CouplingCollator(task.coupling, MAX_POSITION, "random_start")
    batches = FreshBatches(task, 1, 30, 0, collator=collator, batch_size=size, num_batches=10**6)
    return (batches[index] for index in range(len(batches)))


def training_steps(model: CoupledGPTForCausalLM, size: int) -> Callable[[int], int]:
    """Returns what takes optimizer steps of `size` new sums of 1 to 30 digits, data included, and counts the sums."""
    # Fused is the Trainer's default, and so what train.py runs.
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4, fused=True)
    batches = drawn_batches(size)

    def work(steps: int) -> int:
        for _ in range(steps):
            model(**next(batches), use_cache=False).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return steps * size

    return work


@torch.inference_mode()
def evaluate(model: CoupledGPTForCausalLM, length: int, count: int, size: int) -> int:
    """Teacher-forced evaluation of `count` sums in batches of `size`, data included; returns `count`."""
    task = Addition()
    collator = CouplingCollator(task.coupling, MAX_POSITION)
    batches = EvaluationBatches(task, (length, length), count, 0, "test", size, collator=collator)
    for index in range(len(batches)):
        task.family.forward_matches(model, batches[index])
    return count


class Peer:
    """The process of a checkout, see peer.py."""

    def __init__(self, python: str, checkout: Path, folder: str):
        # Its older libraries would rearrange a cache that is in use.
        environment = os.environ | {"HF_HOME": folder, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        self.errors = Path(folder, "errors")
        command = [python, str(Path(__file__).with_name("peer.py")), str(checkout)]
        with self.errors.open("w") as errors:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self.process = subprocess.Popen(command, **pipes, cwd=folder, env=environment, text=True)

    def ask(self, work: str, size: int) -> dict:
        """Have some work done; return its result and its seconds."""
        with suppress(BrokenPipeError):
            print(work, size, file=self.process.stdin, flush=True)
        if not (answer := self.process.stdout.readline()):
            said = self.errors.read_text().strip().splitlines() or ["it said nothing"]
            sys.exit(f"--peer: the checkout failed at {work}, run by {self.process.args[0]}: {said[-1]}")
        return json.loads(answer)

    def seconds(self, work: str, size: int) -> float:
        """Seconds of the work for each problem."""
        answer = self.ask(work, size)
        return answer["seconds"] / answer["result"]


def seconds(work: Callable[[], int]) -> float:
    """Seconds for each problem of a work that returns how many it did."""
    began = time.process_time()
    done = work()
    return (time.process_time() - began) / done


def decode(model: CoupledGPTForCausalLM, count: int, **how) -> int:
    """Answer `count` new sums greedily, all at a time; returns `count`."""
    batch = draw_batch(model.eval(), Addition(), (DECODED, DECODED), count)
    query = int((batch["labels"] != IGNORED).int().argmax(1)[0])
    prompts, tokens = batch["input_ids"][:, :query], batch["input_ids"].shape[1]
    answers = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=tokens - query, **how)
    assert answers.shape == (count, tokens)
    return count


def multiply_adds(config, digits: int) -> int:
    """Multiplications that one sum of this many digits takes at least, to predict its response from its tokens.

    A response of n digits has n + 2 predicted tokens, the first of which sees the 2n + 3 tokens of the question. Counted for
    each: scores of the keys that it sees and their weighted values, the output projection, the MLP, the logits. Queries,
    keys and values are not counted: they belong to pairs of a token and an id, of which there are few, whatever the number
    of sums.
    """
    width, predicted = config.hidden_size, digits + 2
    each = width * width + 3 * width * config.intermediate_size + width * config.vocab_size
    return predicted * each + 2 * width * sum(range(2 * digits + 3, 2 * digits + 3 + predicted))


def mean_training(config) -> float:
    """`multiply_adds` of a trained sum, three times: forward, and backward to the inputs and to the weights.

    The longer of two numbers, each of any length up to the longest, has n digits in 2n - 1 cases.
    """
    lengths = range(1, LONGEST + 1)
    return 3 * sum((2 * n - 1) * multiply_adds(config, n) for n in lengths) / LONGEST**2


def matmul() -> int:
    """Multiply two square matrices; return the number of multiply-adds."""
    square = torch.randn(2048, 2048)
    for _ in range(4):
        square.mm(square)
    return 4 * len(square) ** 3


class Work(NamedTuple):
    """What both sides do.

    Attributes:
        own: this package's side; it returns how many problems it did.
        theirs: the peer's forms, of which the fastest counts.
        size: what the peer is asked for, see peer.py.
        aim: how many times as fast as the peer this package should be.
        multiply_adds: see the function; 0 if there are none.
    """

    own: Callable[[], int]
    theirs: list[str]
    size: int
    aim: float
    multiply_adds: float = 0


def works(size: int) -> dict[str, Work]:
    """All works by name; a round does the least with a size of 1."""
    model = paper_model()
    # Untrained weights would end responses at random.
    model.generation_config.eos_token_id = None
    config, learn = model.config, training_steps(paper_model(), 128)
    drawn = {count: drawn_batches(count) for count in (4096, 128)}

    def draw(count: int) -> int:
        return sum(len(next(drawn[count])["input_ids"]) for _ in range(8 * size * 4096 // count))

    def forward() -> int:
        return evaluate(model.eval(), EVALUATED, 20 * size, 20)

    def decoding(count: int) -> Work:
        return Work(partial(decode, model, count), ["decoding"], count, 50, multiply_adds(config, DECODED))

    # Batches of one length take different times: it takes many for their mean.
    training = Work(partial(learn, 16 * size), ["training", "compiled_training"], size, 5, mean_training(config))
    return {
        "generation, batches of 4,096": Work(partial(draw, 4096), ["generation"], 4096, 40),
        "generation, batches of 128": Work(partial(draw, 128), ["small_generation"], 4096, 40),
        "training": training,
        "evaluation": Work(forward, ["evaluation"], 20 * size, 6, multiply_adds(config, EVALUATED)),
        "decoding, 16 sums": decoding(16),
        "decoding, one sum": decoding(1),
    }


def check_same(ours: CoupledGPTForCausalLM, theirs: dict) -> None:
    """Exit with an error unless both sides have as many tokens, and as many that are predicted, in a problem."""
    batch = draw_batch(ours, Addition(), (EVALUATED, EVALUATED))
    own = {"tokens": batch["input_ids"].numel(), "supervised": int((batch["labels"] != IGNORED).sum())}
    print(f"longhand: {own | {'parameters': ours.num_parameters()}}; the checkout: {theirs}", flush=True)
    if any(own[name] != theirs[name] for name in own):
        sys.exit(f"--peer: the two sides do not read the same sums of {EVALUATED} digits, see the line above")


def measure(name: str, work: Work, peer: Peer | None, peak: float, rounds: int) -> dict:
    """The row of a work."""
    sides = {"": partial(seconds, work.own)}
    if peer is not None:
        sides |= {form: partial(peer.seconds, form, work.size) for form in work.theirs}
    took = in_turn(sides, rounds)
    row = {"benchmark": name, "aim": work.aim, "longhand": 1 / took[""]}
    if peer is not None:
        fastest = min(work.theirs, key=took.__getitem__)
        row |= {"peer": 1 / took[fastest], "form": fastest, "ratio": took[fastest] / took[""]}
    row |= {"multiply_adds": work.multiply_adds, "peak": peak, "hardware": hardware(torch.device("cpu"))}
    if work.multiply_adds:
        row["share"] = row["longhand"] * work.multiply_adds / peak
    print(json.dumps(row), flush=True)
    return row


def peer_folder(text: str) -> Path:
    """The folder of a checkout; argparse reports a folder without the files that peer.py needs."""
    if missing := [name for name in EXPECTED if not (Path(text) / name).is_file()]:
        raise argparse.ArgumentTypeError(f"{text!r} is no checkout of position-coupling: it has no {', '.join(missing)}")
    return Path(text).resolve()


def interpreter(text: str) -> str:
    """The path of a Python that can be started; argparse reports any other."""
    if not (found := which(text)):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be started")
    return str(Path(found).absolute())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*KINDS, []], help="default: all")
    parser.add_argument("--peer", type=peer_folder, metavar="CHECKOUT", help="folder of the authors' repository")
    own = {"type": interpreter, "default": sys.executable}
    parser.add_argument("--peer_python", metavar="PYTHON", help="what runs it; default: this Python", **own)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=2, help="how much is done in a round")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    with TemporaryDirectory() as folder:
        peer = options.peer and Peer(options.peer_python, options.peer, folder)
        if peer is None:
            print("no --peer CHECKOUT: this package runs alone", flush=True)
        else:
            check_same(paper_model(), peer.ask("describe", EVALUATED)["result"])
        peak = 1 / in_turn({"matmul": partial(seconds, matmul)}, options.rounds)["matmul"]
        rows = []
        for name, work in works(options.size).items():
            if name.split(",")[0] in (options.names or KINDS):
                rows.append(measure(name, work, peer, peak, options.rounds))
        if peer is not None:
            peer.process.stdin.close()
            peer.process.wait()
    if options.output:
        options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
