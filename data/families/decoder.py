"""The decoders: CoupledGPT writes a response token by token (paper 1)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch
from transformers import AutoModelForCausalLM

from longhand.data.collator import IGNORED, CouplingCollator
from longhand.data.columns import character_table, list_column, text_column
from longhand.data.families.family import Family
from longhand.data.formatting import Examples
from longhand.data.metrics import response_matches, response_tokens
from longhand.data.tokenization import build_tokenizer, check_characters
from longhand.modeling import CoupledGPTForCausalLM
from longhand.modeling.coupling import CouplingRule, any_text_rules, plan_position_ids
from longhand.modeling.parallel_decoding import OUTPUTS, parallel_greedy
from longhand.modeling.position_encodings import POSITION_ENCODINGS
from longhand.modeling.transducer import table_of
from longhand.modeling.vocabulary import ALL_TOKENS, BOS, PAD

HARMLESS_SETTINGS = ("eos_token_id", "transformers_version", "_from_model_config")
"""Settings of generation_config that may have any value; the end token is checked separately."""

HARMLESS_FLAGS = (
    *("use_cache", "return_dict_in_generate"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits"),
)
"""Settings that may be True or False: they do not change what greedy decoding writes."""

LONG_PROMPT = 100
"""Tokens of a prompt whose response is long enough to be decoded in parallel."""

GREEDY_SETTINGS = {"do_sample": False, "pad_token_id": PAD, "bos_token_id": BOS}
"""Settings that must have this value, or none. Transformers hides `pad_token_id` in every prompt that has no mask."""


@dataclass
class PositionArguments:
    """Which position ids a decoder is trained on."""

    _argument_group_name: ClassVar[str] = "position ids"

    position_sampling: Literal["fixed", "random_start", "batch_start", "multiplier", "randomized"] = field(
        default="fixed", metadata={"help": "how position ids vary in training, see POSITION_SAMPLINGS of data/collator.py"}
    )
    max_multiplier: int | None = field(
        default=None, metadata={"help": "largest factor of position ids, for position_sampling multiplier"}
    )
    level_position_ids: list[int] | None = field(
        default=None,
        metadata={"help": "largest id of every level, for position_sampling random_start; unset, max_position_ids"},
    )
    coupling: str | None = field(
        default=None,
        metadata={"help": "coupling rule, if not the task's; `sequential` numbers tokens and `abacus` digits of any task"},
    )


class Decoder(Family):
    name = "decoder"
    model_class = CoupledGPTForCausalLM
    auto_class = AutoModelForCausalLM
    tokens = ALL_TOKENS
    forward_options = {"use_cache": False}  # noqa: RUF012
    training_arguments = PositionArguments
    pipeline = "text-generation"
    count_matches = staticmethod(response_matches)
    right_tokens = staticmethod(response_tokens)

    def tokenizer(self, task):
        return build_tokenizer(task.end_token, task.tokens)

    def config_options(self, task, arguments=None):
        arguments = arguments or PositionArguments()
        legal = legal_rules(task)
        if arguments.coupling not in (None, *legal):
            raise ValueError(
                f"coupling {arguments.coupling!r} does not read this format of {task.name!r}: "
                f"choose one of {', '.join(legal)}"
            )
        return {
            **self.format_options(task),
            "vocab_size": len(task.tokens),
            "transducer": table_of(task.transducer),
            "eos_token_id": task.end_token,
            "coupling": arguments.coupling or task.coupling,
            "randomized_positions": arguments.position_sampling == "randomized",
        }

    def check_config(self, task, config):
        if config.is_encoder_decoder:
            raise ValueError(f"is_encoder_decoder must be False for a decoder, got {config.is_encoder_decoder!r}")
        if config.coupling not in legal_rules(task):
            raise ValueError(
                f"was made for the coupling rule {config.coupling!r}, "
                f"but its recipe's format has {' or '.join(map(repr, task.couplings))}"
            )
        if config.transducer != table_of(task.transducer):
            raise ValueError(f"was made for another step than that of the task {task.name!r}: its transducer is another")
        if config.vocab_size < len(task.tokens):
            raise ValueError(
                f"has a vocabulary of {config.vocab_size} tokens, but the task {task.name!r} needs {len(task.tokens)}"
            )

    def check_inputs(self, task, model, batch):
        model.model.position_encoding.check(batch["position_ids"])

    def check_certifiable(self, task, model):
        config = model.config
        if not model.model.position_encoding.windowed:
            raise ValueError(
                f"the model has no window (position_encoding {config.position_encoding!r}, windowed {config.windowed}), so "
                "its predictions may depend on the whole input and infinitely many cases remain"
            )
        if config.coupling not in task.couplings:
            legal = " or ".join(map(repr, task.couplings))
            raise ValueError(f"the model has the coupling rule {config.coupling!r}, not {legal}")
        self.check_greedy(task, model)

    def window(self, model):
        return model.model.position_encoding.window

    def check_greedy(self, task, model):
        """Raise ValueError if the settings in generation_config or config change what greedy decoding writes."""
        ends = model.config.eos_token_id, model.generation_config.eos_token_id
        if any(end not in (task.end_token, [task.end_token]) for end in ends):
            raise ValueError(
                f"the task ends with token {task.end_token}, but decoding stops at eos_token_id {ends[1]} "
                f"(generation_config; {ends[0]} in config)"
            )
        settings = model.generation_config.to_diff_dict()
        harmless = {*HARMLESS_SETTINGS, *(name for name in HARMLESS_FLAGS if isinstance(settings.get(name), bool))}
        harmless |= {name for name, value in GREEDY_SETTINGS.items() if settings.get(name) == value}
        harmless |= {name for name, value in settings.items() if value is None}
        if changed := [f"{name}={value!r}" for name, value in settings.items() if name not in harmless]:
            raise ValueError(f"generation_config changes how tokens are chosen ({', '.join(changed)})")

    def columns(self, task, digits, lengths, generator, coupling=None):
        """Its own columns are `query_length`, the number of tokens of the query, and the position ids.

        Position ids follow from the task's coupling rule, or from the one that is named. They are one column
        `coupled_position_ids`, or `coupled_position_ids_0`, `coupled_position_ids_1`, ... for a rule of several levels. A
        model derives them by itself.
        """
        examples = task.format(digits, lengths)
        tokens, query_lengths = examples.tokens, examples.query_lengths
        # If all rows have one layout, one row of a mask stands for all.
        masked = slice(1) if examples.same_layout else slice(None)
        column, query_ends = np.arange(tokens.shape[1], dtype=np.int32), query_lengths[masked, None].astype(np.int32)
        present = tokens[masked] != PAD
        ends = present.sum(axis=1, keepdims=True, dtype=np.int32)
        kind = np.min_scalar_type(-max(len(task.tokens), -IGNORED))
        columns = {
            "input_ids": list_column(tokens.astype(np.min_scalar_type(len(task.tokens) - 1), copy=False), present),
            "labels": list_column(np.where(column < query_ends, IGNORED, tokens.astype(kind)), present),
            "query_length": pa.array(query_lengths.astype(np.int32)),
        }
        position_ids = planned_position_ids(coupling or task.rule, examples, lengths).astype(np.int32)
        levels = position_ids.shape[1]
        for level in range(levels):
            name = f"coupled_position_ids_{level}" if levels > 1 else "coupled_position_ids"
            columns[name] = list_column(np.broadcast_to(position_ids[:, level], tokens.shape), present)
        characters = character_table(task.tokens)
        columns["prompt"] = text_column(list_column(tokens, (column > 0) & (column < query_ends)), characters)
        columns["completion"] = text_column(list_column(tokens, (column >= query_ends) & (column < ends - 1)), characters)
        columns["answer"] = pa.array(map(task.reader.read, columns["completion"].to_pylist()), pa.string())
        columns["operand_lengths"] = list_column(lengths.astype(np.int32), lengths > 0)
        return columns

    def text_size(self, task, digits, lengths):
        tokens = torch.from_numpy(task.format(digits, lengths).tokens.astype(np.int64))
        return tokens.shape[1], int(plan_position_ids(task.rule, tokens, tokens.shape[1]).max())

    def collator(self, config):
        return CouplingCollator.for_evaluation(config)

    def training_collator(self, config, arguments=None):
        sampling, multiplier = arguments.position_sampling, arguments.max_multiplier
        encoding = config.position_encoding
        legal = POSITION_ENCODINGS[encoding].position_samplings
        if sampling not in legal:
            raise ValueError(
                f"position_sampling {sampling!r} is not for position_encoding {encoding!r}: choose one of {', '.join(legal)}"
            )
        if sampling == "multiplier" and (multiplier is None or multiplier < 2):
            raise ValueError(f"position_sampling 'multiplier' needs max_multiplier of at least 2, got {multiplier}")
        if config.wrap_position_ids and sampling not in ("random_start", "batch_start"):
            raise ValueError(
                f"wrap_position_ids is for position_sampling 'random_start' or 'batch_start', got it with {sampling!r}"
            )
        levels = arguments.level_position_ids
        if levels is not None:
            if sampling != "random_start" or config.wrap_position_ids:
                raise ValueError("level_position_ids is for position_sampling 'random_start' without wrap_position_ids")
            if len(levels) != config.rule.levels or not all(1 <= ids <= config.max_position_ids for ids in levels):
                legal = f"{config.rule.levels} numbers from 1 to {config.max_position_ids}"
                raise ValueError(f"level_position_ids must be {legal}, got {levels}")
        tables = None if levels is None else tuple(levels)
        return CouplingCollator(config.rule, config.max_position_ids, sampling, config.wrap_position_ids, multiplier, tables)

    def answer(self, task, model, tokenizer, question):
        """Answer by greedy decoding, in parallel if the response is long."""
        self.check_greedy(task, model)
        prompt = task.prompt(question)
        check_characters(prompt, task.tokens)
        inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
        tokens = inputs["input_ids"].shape[1] + model.config.rule.plan(inputs["input_ids"], 1).response_length
        task.check_answered(tokens)
        options: dict[str, Any] = {"do_sample": False}
        if inputs["input_ids"].shape[1] > LONG_PROMPT and model.model.position_encoding.windowed:
            options |= {"custom_generate": parallel_greedy, **dict.fromkeys(OUTPUTS, False)}
        with torch.inference_mode():
            output = model.generate(**inputs, **options)
        return task.reader.read(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))


def legal_rules(task) -> tuple[str, ...]:
    """The coupling rules that a model of the task may have. The table of a column task is for the task's own alone."""
    return task.couplings if task.transducer else tuple(dict.fromkeys((*task.couplings, *any_text_rules())))


def planned_position_ids(coupling: str | CouplingRule, examples: Examples, lengths: np.ndarray) -> np.ndarray:
    """(1 or count, levels, columns), as `CouplingCollator` gives them."""
    planned = torch.from_numpy(examples.tokens).long()
    if examples.same_layout:
        return plan_position_ids(coupling, planned[:1], planned.shape[1]).numpy()
    # A rule reads the query only, whose layout follows from the lengths of the operands: plan each layout once.
    layout = np.zeros(len(lengths), dtype=np.int64)
    # Sorting operand by operand is ten times as fast as sorting whole rows.
    for operand in lengths.T:
        _, problems, layout = np.unique(layout * (lengths.max() + 1) + operand, return_index=True, return_inverse=True)
    ids = plan_position_ids(coupling, planned[problems], planned.shape[1])
    return ids.expand(len(problems), -1, -1).numpy()[layout]


DECODER = Decoder()
