"""A checkout of the authors' position-coupling repository at work, for race.py, in a process and a Python of its own.

python tests/benchmarks/peer.py CHECKOUT

It calls the functions of the checkout, as its `run.py` and `evaluate_model.py` do. A line on stdin, `WORK SIZE`, asks for
some work; a line of JSON on stdout answers with its result and its seconds of the processor, on one thread. This file
imports nothing of longhand, whose packages may be newer than the checkout's.
"""

import json
import sys
import time
from pathlib import Path

import torch

if len(sys.argv) != 2:
    sys.exit(f"{__doc__}\ngive the folder of a CHECKOUT")
checkout = Path(sys.argv[1])
sys.path.insert(0, str(checkout))

try:
    from hydra import compose, initialize_config_dir
    from src.data import build_dataset, build_loader
    from src.evaluate import get_instancewise_accuracy, get_tokenwise_accuracy
    from src.model import build_model_from_scratch
    from src.tokenization import build_tokenizer
    from src.training import get_custom_cosine_schedule_with_warmup
except ImportError as error:
    sys.exit(
        f"{checkout} does not run in {sys.executable}: {error}; it must be a clone of the authors' repository, in "
        "a Python with the packages that hub_cards/RESULTS.md names"
    )

MODEL = {"num_layers": 1, "num_heads": 4, "d_kv": 128, "d_ff": 2048, "feed_forward_proj": "gated-gelu"}
MODEL |= {"position_encoding_type": "abs_learned", "normalization_layer": "rmsnorm", "layer_norm_position": "pre_post"}
# A row for every id up to 202 and for 0, as in longhand's table; the authors' script gives the table 256.
MODEL |= {"n_positions": 203}
"""The options of paper 1's Fig. 3."""


class Peer:
    """Model, tokenizer and configuration of the checkout; every method of one argument is a kind of work."""

    def __init__(self):
        names = {"task.max_position": 202, "task.train.min_n_digits": 1, "task.train.max_n_digits": 30, "device": "cpu"}
        names |= {"training.batch_size_eval": 20}
        names |= {f"model.{name}": value for name, value in MODEL.items()}
        with initialize_config_dir(version_base=None, config_dir=str(checkout / "configs")):
            overrides = [f"{name}={value}" for name, value in names.items()]
            self.settings = compose(config_name="config", overrides=["task=addition_coupled", *overrides])
        self.tokenizer = build_tokenizer(self.settings)
        self.model = build_model_from_scratch(self.settings, self.tokenizer, "cpu")
        # Untrained weights would end responses at random.
        self.model.generation_config.eos_token_id = self.model.generation_config.forced_eos_token_id = None
        self.steps = {}

    def loader(self, phase: str, count: int, digits: int | None = None, size: int = 128):
        """Draw `count` problems, of one length if `digits` are given; return their batches, of `size` for training."""
        self.settings.training.batch_size_train = size
        for name in ("train", "val", "val_long"):
            self.settings.task[name].n_data = count if name == phase else 1
        if digits:
            self.settings.task[phase].min_n_digits = self.settings.task[phase].max_n_digits = digits
        dataset = build_dataset(self.settings, verbose=False)
        return build_loader(self.settings, dataset, self.tokenizer, "cpu")[phase]

    def describe(self, size: int) -> dict:
        """Tokens of a sum of `size` digits, how many of them are supervised, and the parameters of the model."""
        (batch,) = self.loader("val_long", 1, size)
        tokens, supervised = batch["input_ids"].numel(), int((batch["labels"] != -100).sum())
        return {"tokens": tokens, "supervised": supervised, "parameters": self.model.num_parameters()}

    def generation(self, size: int) -> int:
        """Draw `size` problems of 1 to 30 digits and make batches of 4,096 of them."""
        return sum(len(batch["input_ids"]) for batch in self.loader("train", size, size=4096))

    def small_generation(self, size: int) -> int:
        """The same with batches of 128."""
        return sum(len(batch["input_ids"]) for batch in self.loader("train", size))

    def training(self, size: int) -> int:
        return self._train("as it is", self.model, size)

    def compiled_training(self, size: int) -> int:
        return self._train("compiled", torch.compile(self.model), size)

    def _train(self, form: str, model, size: int) -> int:
        """Take `size` steps. The problems were drawn before the first call: the checkout reads them many times."""
        if form not in self.steps:
            self.steps[form] = self._training_steps(model.train())
        return sum(next(self.steps[form]) for _ in range(size))

    def _training_steps(self, model):
        settings, loader = self.settings.training, self.loader("train", 64 * 128)
        chosen = dict(settings.optimizer)
        optimizer = getattr(torch.optim, chosen.pop("type"))(model.parameters(), **chosen)
        schedule = get_custom_cosine_schedule_with_warmup(optimizer, 500, 50_000, settings.scheduler.min_lr_ratio)
        while True:
            for batch in loader:
                model(**batch).loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), settings.grad_clip)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                schedule.step()
                yield len(batch["input_ids"])

    def evaluation(self, size: int) -> int:
        """Evaluate `size` new sums of 200 digits by teacher forcing. As in the checkout, gradients are on."""
        self.model.eval()
        for batch in self.loader("val_long", size, 200):
            logits = self.model(**batch).logits
            with torch.no_grad():
                answers = self.settings, logits.argmax(-1), batch["labels"], self.tokenizer.pad_token_id
                get_tokenwise_accuracy(*answers, division=False)
                get_instancewise_accuracy(*answers, division=False)
        return size

    @torch.no_grad()
    def decoding(self, size: int) -> int:
        """Answer one batch of `size` sums of 100 digits, 20 at most, greedily."""
        self.model.eval()
        (batch,) = self.loader("val_long", size, 100)
        new = int((batch["labels"][0] != -100).sum())
        # Without a batch of ids, as in the checkout: sums of one length have the same.
        prompts, position_ids = batch["input_ids"][:, :-new], batch["position_ids"][0]
        answers = self.model.generate(prompts, position_ids=position_ids, max_new_tokens=new)
        assert answers.shape[1] == prompts.shape[1] + new
        return size


if __name__ == "__main__":
    torch.set_num_threads(1)
    # What the checkout prints does not reach the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    peer = Peer()
    for line in sys.stdin:
        work, size = line.split()
        began = time.process_time()
        result = getattr(peer, work)(int(size))
        answer = {"result": result, "seconds": time.process_time() - began}
        print(json.dumps(answer), file=answers, flush=True)
