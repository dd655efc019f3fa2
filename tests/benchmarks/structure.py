"""Time of a forward pass with a pair map against one without, in each attention that reads structure.

python tests/benchmarks/structure.py --tokens 2048

A Llama of 4 layers, width 256 and 4 heads, drawn at random, answers one row without derivatives in one thread. Passes of all
kinds alternate, and processor time is counted, so that other work on the machine weighs little.
"""

import argparse
import time
from statistics import median

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import longhand

RELATIONS = 5
KINDS = ("without", "map", "map of heads", "key", "bias")


def make_model(implementation: str, enter: str):
    config = LlamaConfig(
        vocab_size=64, hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=8192, attn_implementation=implementation,
    )  # fmt: skip
    torch.manual_seed(0)
    model = longhand.with_structure(LlamaForCausalLM(config).eval(), num_relations=RELATIONS, relations_enter=enter)
    torch.nn.init.normal_(model.structure.table)
    return model


def measure(implementation: str, tokens: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of processor time of each kind of pass."""
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(2, 60, (1, tokens), generator=generator)
    pair_map = torch.randint(-1, RELATIONS, (1, tokens, tokens), generator=generator)
    of_heads = torch.randint(-1, RELATIONS, (1, 4, tokens, tokens), generator=generator)
    bias = torch.randn(1, 1, tokens, tokens, generator=generator)
    score, key = make_model(implementation, "score"), make_model(implementation, "key")
    passes = {
        "without": (score, {}),
        "map": (score, {"pair_map": pair_map}),
        "map of heads": (score, {"pair_map": of_heads}),
        "key": (key, {"pair_map": pair_map}),
        "bias": (score, {"position_bias": bias}),
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in passes}
    with torch.no_grad():
        for _ in range(rounds + 1):
            for kind, (model, structure) in passes.items():
                began = time.process_time()
                model(input_ids, use_cache=False, **structure)
                seconds[kind].append(time.process_time() - began)
    # The first round compiles what is compiled.
    return {kind: median(times[1:]) for kind, times in seconds.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--attention", nargs="+", default=["sdpa", "eager"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for implementation in options.attention:
        seconds = measure(implementation, options.tokens, options.rounds)
        shown = ", ".join(f"{kind} {time:.2f} ({time / seconds['without']:.2f})" for kind, time in seconds.items())
        print(f"{implementation}: {shown}", flush=True)
