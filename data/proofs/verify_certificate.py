"""Verify the certificate of a checkpoint with numpy alone: `longhand-verify FOLDER | USER/NAME`, or this file as a program.

The claim: a small transformer answers every problem of its task, of any size, exactly. This file proves it again from the
weights. It imports nothing of the package that wrote the certificate and takes nothing from it on trust. A reader asks:

    1. Which files?      Each is read here, its SHA-256 is printed, and what this file does not know is refused by name.
    2. Which problems?   How a task writes a problem and its right response as tokens, and which position ids they have.
    3. What is seen?     A token sees few others. A search lists all tokens that it can see, for every size: a finite list.
    4. Which network?    Its logits in each neighbourhood, in float64, with a bound of what rounding in float32 can move.
    5. So?               If the right token leads everywhere by ten times the bound, greedy decoding is right, by induction:
                         a prefix that is right has a last token in the list, so the next token is right too.

Each part names the chapter of hub_cards/PROOF.md that it carries out, and functions name their lemmas. Parts 1 to 5 can be
read from top to bottom, with sums as their example; `verify`, in part 5, puts them together. Part 6 holds all other tasks. A
reader needs the task of one checkpoint there, and the table TASKS says which functions belong to a task.

An encoder writes nothing: it labels its tokens, pass after pass, until no label changes. Tokens see labels of the pass
before, and the induction is over passes: each gives the labels that are right after it, and the last ones are the answer.
All parts are the same, with labels in place of next tokens.

PROOF.md is a page of longhand, the package that wrote the certificate. It says what is assumed of a processor. Assumed
besides: the Python files whose hashes are printed, and the libraries that run them, compute the network of part 4 for the
position ids of part 2. The exit status is 0 only if everything holds.

Settings that no recipe of a certified model has are not known here and refused by name. The fields proof, weights,
predictions and failures of the certificate are the package's own account.
"""

# Used by: hub_cards/research, hub_cards/research/theories. Bound by: its own SHA-256 in hub_cards/PROOF.md: run .ci/code.

import os
import sys

if __name__ == "__main__":
    # Python looks for what is imported below in this file's own folder first. There, beside a checkpoint, a `json.py` or a
    # `numpy.py` would be run in place of Python's own.
    beside = os.path.dirname(os.path.realpath(__file__))
    sys.path = [place for place in sys.path if os.path.realpath(place or os.curdir) != beside]

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from importlib.machinery import PathFinder
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# A token's id is its place. `$` begins every sequence, and ends it unless the task has an end token of its own.
TOKENS = [*"0123456789+-*=>M_$", "<eos>", "<pad>", "<unk>", "/"]
BEGIN, SEPARATE_END, PADDING = map(TOKENS.index, ("$", "<eos>", "<pad>"))
PLUS, MINUS, TIMES, EQUALS, NEXT, MINE, BLANK, OVER = map(TOKENS.index, "+-*=>M_/")


Json = dict[str, Any]  # a JSON object, of which nothing is known before `compare`


class Check(NamedTuple):
    """Whether a value of a file is legal, and what it must be in words."""

    holds: Callable[[Any], bool]
    wanted: str

    def __call__(self, value: Any) -> bool:
        return self.holds(value)


class Refused(ValueError):
    """Something does not hold, or is not known here; the message says what in one line."""


def require(holds: object, message: str) -> None:
    """Raise Refused with a message unless a condition holds."""
    if not holds:
        raise Refused(message)


# ---- 1. Which files? (PROOF.md: What is assumed) ----------------------------------------------------------------------

# Files that are read here; files that no library reads to answer; and all that a library might read.
READ = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
IDLE = ("certificate.json", "verify_certificate.py", "pushed.json", "training_args.bin")
LOADED = (
    "*.json",
    "*.py",
    "custom_generate/*.py",
    "*.safetensors",
    "*.bin",
    "*.pt",
    "*.model",
    "*.jinja",
    "*.pyc",
    "*.pyw",
    "*.so",
    "*.pyd",
    "*/__init__.*",
)

# The code of longhand that travels with a checkpoint of each kind: SHA-256 of what `sha256sum` writes of its files.
# No certificate can change them: compare this file itself with longhand's own.
CODE = {
    "coupled_gpt": "28d8fac34210351118e05a30c7ea0141477bb480aa10d9aac94410ffdb1b7bc4",
    "pairwise_bert": "9b6ad7f77350858e5925caedc76536cf8603c18cdbc35daf600445adf5d20ef6",
}

# Names under which Python finds the libraries that load a checkpoint and verify it, or that these import. Where a program is
# started in the folder, a file of such a name is run in the place of the library.
OTHERS = """
    aalpy accelerate anyio attr certifi charset_normalizer click cloudpickle colorama cuda datasets dateutil dill evaluate
    filelock flash_attn fsspec functorch h11 hf_xet httpcore httpcore2 httpx httpx2 huggingface_hub idna isympy jinja2
    kernels longhand markupsafe matplotlib mpl_toolkits mpmath multiprocess networkx numpy nvidia packaging pandas peft
    PIL pkg_resources psutil pyarrow pydot pylab pytest pytz regex requests rich safetensors scipy setuptools shellingham
    sitecustomize six sniffio sympy tokenizers torch torchgen torchvision tqdm transformers triton truststore typer
    typing_extensions urllib3 usercustomize xformers xxhash yaml
"""
LIBRARIES = {*sys.stdlib_module_names, *OTHERS.split()}
INSTALLED = {"site-packages", "dist-packages"}  # folders in which Python finds other libraries

LARGEST, MOST_TERMS = 2.0**40, 2**13  # the largest number, and most terms of a sum, for which the lemmas of part 4 hold
LAYERS = "model.layers."
NORMS = {"sandwich": ("input", "output"), "pre": ("input",)}  # where a decoder's norms are, around attention and MLP


def sha256(content: bytes) -> str:
    """The digest that `sha256sum` prints."""
    return hashlib.sha256(content).hexdigest()


def check_folder(folder: Path) -> tuple[dict[str, bytes], Json, list[str]]:
    """Read all files of a checkpoint that a library might read, and refuse what no certificate of any task covers.

    `check_code` compares the files of code.

    Returns:
        Contents by name, config.json, and what each token stands for, by its id.
    """
    require(folder.is_dir(), f"there is no folder {folder}")
    found = {file.relative_to(folder).as_posix() for pattern in LOADED for file in folder.glob(pattern)} - {*IDLE}
    files = {name: (folder / name).read_bytes() for name in sorted(found)}
    require("config.json" in files, "config.json is missing")
    config = read_json("config.json", files["config.json"])
    encoder = config.get("model_type") == "pairwise_bert"
    read = set(READ) - {"generation_config.json" if encoder else ""}
    for name in sorted(found | read):
        require(name in found, f"{name} is missing")
        known = name in read or (name.endswith(".py") and "/" not in name)
        require(known, f"{name} is not known here: it may change how answers are written")
    check_words("config.json", config.get("task"))
    require(isinstance(config.get("auto_map", {}), dict), "config.json: auto_map is no mapping")
    imported = imported_by("modeling_pairwise_bert.py" if encoder else "modeling_coupled_gpt.py", files)
    for name in sorted(name for name in files if name.endswith(".py") and name not in imported):
        require(not is_library(name.removesuffix(".py")), f"{name} has the name of a library, and may be run in its place")
    for key, place in (config.get("auto_map") or {}).items():
        known = isinstance(place, str) and f"{place.partition('.')[0]}.py" in files
        require(known, f"config.json: auto_map: {key} {place!r} is no class of a file in this folder")
        for name in imported_by(f"{place.partition('.')[0]}.py", files):
            require(name in files, f"{name} is missing, which the code in this folder imports")
    for name in read:
        if name.endswith(".json"):
            read_json(name, files[name])
    tied = config.get("tie_word_embeddings") is True and "lm_head.weight" in read_header(files["model.safetensors"])
    require(not tied, "config.json: tie_word_embeddings true beside lm_head.weight: software may take either")
    # A table may have `_` among its symbols, where padding would make another problem: numbers of tables are not padded.
    may_be_padded = encoder and config.get("transducer") is None
    width = (config.get("task") or {}).get("field_width") if may_be_padded else None
    return files, config, check_tokenizer(files, encoder, config.get("eos_token_id"), width)


def is_library(name: str) -> bool:
    """Whether Python may import a module of this name from elsewhere, here or where a checkpoint is loaded, or run it."""
    places = [place for place in sys.path if INSTALLED & {*Path(place).parts}]
    return name.startswith("__") or name in LIBRARIES or PathFinder.find_spec(name, places) is not None


def check_code(files: dict[str, bytes], kind: str, more: bool) -> None:
    """The code beside a checkpoint is longhand's, and whole; or there is none, and longhand must be installed.

    Args:
        more: whether there may be other files of code, which no library reads to answer, such as that of a user's own task.
    """
    code = imported_by(f"modeling_{kind}.py", files)
    lines = "".join(f"{sha256(files[name])}  {name}\n" for name in sorted(code) if name in files)
    others = {name for name in files if name.endswith(".py")} - {*code}
    known = (more or not others) and (not lines or sha256(lines.encode()) == CODE[kind])
    require(known, "the Python files are not those that longhand writes, all of them and no others")


def imported_by(first: str, files: dict[str, bytes]) -> list[str]:
    """A file of code and all files beside it that it imports, directly or not, whether they are there or not."""
    names = [first]
    for name in names:  # It grows.
        found = re.findall(rb"^\s*from \.(\w+) import", files.get(name, b""), re.MULTILINE)
        names += sorted({f"{module.decode()}.py" for module in found} - {*names})
    return names


def check_certificate(content: bytes) -> Json:
    """Read certificate.json, and refuse a field of a type that it may not have."""
    optional = dict.fromkeys(("transducer", "lengths", "learned"))
    certificate = optional | read_json("certificate.json", content)
    # The first certificates counted problems; nothing depends on the number.
    certificate.pop("problems", None)
    of_lengths = certificate.get("kind") == "lengths" or certificate["lengths"] is not None
    require(not of_lengths, "certificate.json is of single lengths of a model without a window, which longhand alone proves")
    compare("certificate.json", certificate, FIELDS)
    return certificate


def check_words(name: str, described: Any) -> None:
    """The name and the options of a task, which are printed and shown on cards, are short words on one line, or numbers."""
    require(isinstance(described, dict | None), f"{name}: task is no mapping")
    for option, value in (described or {}).items():
        for word in (option, value):
            legal = word is None or type(word) in (bool, int, float)
            if isinstance(word, str):
                legal = len(word) <= 100 and word.isprintable() and not {*word} & {*"<>`"}
            require(
                legal,
                f"{name}: task: {option!a:.50} {value!a:.50} is no number, and no short word without <, > and `",
            )


def read_json(name: str, content: bytes) -> Json:
    """A JSON object in UTF-8 in which no key stands twice, since readers differ in which of the two they take."""

    def once(pairs: list[tuple[str, Any]]) -> Json:
        if len(pairs) > len(dict(pairs)):
            raise ValueError("a key stands twice")
        return dict(pairs)

    try:
        # Of bytes, `json` would read UTF-16 too, which the software does not.
        value = json.loads(content.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{name} is no JSON: {error}") from error
    require(isinstance(value, dict), f"{name} holds no JSON object")
    return value


def compare(name: str, found: object, expected: object, idle: Json | None = None) -> None:
    """Refuse values that are not as expected, and keys that are not known. Where a check is expected, it must hold.

    Args:
        idle: keys that change no answer, which may be missing, and values with which the software loads.
    """
    idle = idle or {}
    if isinstance(found, dict) and isinstance(expected, dict):
        for key, value in found.items():
            require(key in expected or key in idle, f"{name}: {key} {value!r} is not known here")
            if key not in expected:
                compare(f"{name}: {key}", value, idle[key])
        for key, wanted in expected.items():
            require(key in found, f"{name}: {key} is missing")
            compare(f"{name}: {key}", found[key], wanted)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for place, wanted in enumerate(expected):
            compare(name, found[place], wanted)
    else:
        check = expected if isinstance(expected, Check) else one_of(expected)
        require(check(found), f"{name} is {found!r:.80}, and here it must be {check.wanted}")


def one_of(*legal: object) -> Check:
    """Whether a value is one of some. True is not 1, and 1 is not 1.0."""
    words = " or ".join(f"{known!r:.80}" for known in legal)
    return Check(lambda value: any(type(value) is type(known) and value == known for known in legal), words)


def between(low: float, high: float, *types: type) -> Check:
    """Whether a value is a number of some types between two others."""
    ends = [f" {side} {end}" for side, end in (("above", low), ("below", high)) if math.isfinite(end)]
    words = f"a finite number{' and'.join(ends)}"
    if types == (int,):
        words = f"an integer from {low + 1:,} to {high - 1:,}"
    return Check(lambda value: type(value) in types and low < value < high, words)


WORDS = {bool: "true or false", str: "a text", list: "a list", dict: "an object", int: "an integer", float: "a number"}


def of(*types: type) -> Check:
    """Whether a value is of one of some types."""
    return Check(lambda value: type(value) in types, " or ".join(WORDS.get(kind, "null") for kind in types))


is_flag = of(bool)
is_object = of(dict)
FIELDS: dict[str, Check] = {
    "certified": is_flag,
    "statement": of(str),
    "weights": of(str),
    "proof": of(list),
    "failures": of(list),
    "task": is_object,
    "limits": is_object,
    "files": of(dict, type(None)),
    "transducer": of(dict, type(None)),
    "learned": of(dict, type(None)),
    "lengths": of(type(None)),
    "predictions": of(int),
    "wrong": of(int),
    "neighbourhoods": of(int, type(None)),
    "margin": of(float, int, type(None)),
    "bound": of(float, int, type(None)),
    "ratio": of(float, int, type(None)),
}
is_number = between(-math.inf, math.inf, int, float)
is_positive = between(0, math.inf, int, float)
is_small = between(0, 1, float)
is_size = between(0, MOST_TERMS + 1, int)


def field_padding(width: Any) -> Any:
    """The normalizer by which a tokenizer fills up a number with `_` in front to the width of a field, but not a multiplier.

        ____653+_____49        7*____653        width 7, which steps of 4, 2 and 1 fill

    Steps are powers of 2 below the width, the largest one first. Each adds as many `_` as it says, if there is room.

    Returns:
        The normalizer as tokenizer.json holds it; None for a width at which nothing is padded, or that is not known here.
    """
    if not is_size(width) or width < 2:
        return None
    size = 1
    while size < width:
        size *= 2
    steps = []
    while size > 1:
        size //= 2
        pattern = "(?<![0-9_])(?=[0-9_]{1," + str(width - size) + "}(?![0-9_]|[a-z]*\\*))"
        steps.append({"type": "Replace", "pattern": {"Regex": pattern}, "content": "_" * size})
    return {"type": "Sequence", "normalizers": steps}


def check_tokenizer(files: dict[str, bytes], encoder: bool, end: Any, width: Any) -> list[str]:
    """A tokenizer that makes one token of each character, and cuts and adds nothing but a decoder's `$` in front, and the
    padding of fields.

    Padding is no part of the claim for a model that is proved for every width: a problem whose numbers stand in wider fields
    is a problem of the task too. So numbers may be padded to the width that the configuration says, or not at all.

    Args:
        end: `eos_token_id` of the configuration, of a decoder.
        width: tokens of a field, as the configuration's task says; None if numbers may not be padded.

    Returns:
        What each token stands for, by its id.
    """
    tokenizer = read_json("tokenizer.json", files["tokenizer.json"])
    model: Any = tokenizer.get("model")
    require(is_object(model) and is_object(model.get("vocab")), "tokenizer.json: the vocabulary is missing")
    vocabulary, special = [*model["vocab"]], ["<pad>", "<unk>"] if encoder else ["$", "<eos>", "<pad>", "<unk>"]
    require(vocabulary[: len(TOKENS) - 1] == TOKENS[:-1], f"tokenizer.json: it does not begin with {' '.join(TOKENS[:-1])}")
    for text in vocabulary:
        require(len(text) == 1 or text in TOKENS, f"tokenizer.json: the token {text!r} is no character")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    sequence = [{"Sequence": {"id": part, "type_id": place}} for place, part in enumerate("AB")]
    begin = {} if encoder else {"begin": {"id": "begin", "ids": [BEGIN], "tokens": ["$"]}}
    compare(
        "tokenizer.json",
        tokenizer,
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "normalizer": one_of(None, field_padding(width)),
            "decoder": {"type": "Fuse"},
            "added_tokens": [{"id": vocabulary.index(text), "content": text, **flags} for text in special],
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
            "post_processor": {
                "type": "TemplateProcessing",
                "pair": sequence,
                "special_tokens": begin,
                "single": [*({"SpecialToken": {"id": name, "type_id": 0}} for name in begin), sequence[0]],
            },
            "model": {
                "type": "WordLevel",
                "vocab": {text: place for place, text in enumerate(vocabulary)},
                "unk_token": "<unk>",
            },
        },
    )
    check_tokenizer_settings(files, encoder, end)
    return vocabulary


def check_tokenizer_settings(files: dict[str, bytes], encoder: bool, end: Any) -> None:
    """The settings beside a tokenizer: its special tokens, the side of padding, and nothing that changes a text."""
    require(encoder or one_of(BEGIN, SEPARATE_END)(end), f"config.json: eos_token_id {end!r} is not known here")
    ends = (
        {}
        if encoder
        else {
            "bos_token": "$",
            "eos_token": TOKENS[end],
            "extra_special_tokens": ["<eos>"] if end == BEGIN else [],
        }
    )
    compare(
        "tokenizer_config.json",
        read_json("tokenizer_config.json", files["tokenizer_config.json"]),
        {
            **ends,
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "padding_side": "right" if encoder else "left",
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", "attention_mask"],
            "backend": "tokenizers",
            "model_max_length": Check(
                lambda length: is_number(length) and length >= MOST_TOKENS, f"{MOST_TOKENS:,} or more"
            ),
            "tokenizer_class": one_of("TokenizersBackend", "PreTrainedTokenizerFast"),
        },
        idle=dict.fromkeys(("is_local", "local_files_only"), of(bool, type(None))),
    )


def decoder_settings(task: "Task") -> Json:
    """The settings of a decoder for which parts 2 to 4 are right."""
    return {
        "bos_token_id": BEGIN,
        "eos_token_id": task.end,
        "head_dim": is_size,
        "mlp": "geglu",
        "norm": "rms",
        "final_norm": one_of(None, "rms"),
        "norm_placement": one_of(*NORMS),
        "norm_eps": is_small,
        "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": is_flag,
        "attention_scale": one_of("sqrt", "zero"),
        "qk_norm": False,
        "position_encoding": "pairwise",
        "coupling": task.coupling,
        "position_levels": len(task.window[0]),
        "randomized_positions": False,
        "wrap_position_ids": False,
    }


def encoder_settings(task: "Task") -> Json:
    """The settings of an encoder for which parts 2 to 4 are right."""
    return {
        "hidden_act": one_of(*ACTIVATIONS),
        "layer_norm_eps": is_small,
        "absolute_positions": "none",
        "pair_maps": [task.coupling],
        "share_over_heads": True,
        "num_loops": 1,
        "settle_tolerance": None,
        "max_multiplier_length": 1 if task.coupling == "uniform" else is_size,
        "label_states": True,
        "sink": True,
        "id2label": {str(place): label for place, label in enumerate(task.labels)},
        "label2id": {label: place for place, label in enumerate(task.labels)},
    }


is_any = Check(lambda value: True, "anything")
is_number_of = between(0, 2**63, int)

# Settings of a configuration that change no answer, and values with which the software loads.
IDLE_SETTINGS: Json = {
    # Compared elsewhere, and of software.
    "prompt_format": is_any,
    "transformers_version": of(str),
    "_name_or_path": of(str),
    "use_cache": is_flag,
}
IDLE_OF_DECODERS: Json = {
    # Of initial weights, and of position encodings that are not used here.
    "init": one_of("fan_in", "t5"),
    "log_length_init": of(float),
    "qk_norm_init": of(float),
    "relation_init": one_of("normal", "one_per_head"),
    "position_init": one_of("normal", "orthogonal"),
    "max_position_ids": is_number_of,
    "rotary_base": between(0, math.inf, float),
    "share_level_tables": is_flag,
    "relative_attention_num_buckets": of(int),
    "relative_attention_max_distance": of(int),
}
IDLE_OF_ENCODERS: Json = {
    # Of initial weights, of training, and of longer inputs.
    "initializer_range": between(0, math.inf, float),
    "relation_init": one_of(None, "normal", "scores", "one_per_head"),
    "hidden_dropout_prob": Check(lambda value: type(value) is float and 0 <= value <= 1, "a number from 0.0 to 1.0"),
    "attention_probs_dropout_prob": 0.0,
    "settle_weight": 0.0,
    "max_position_embeddings": is_number_of,
}
# Settings of generation: how it is computed, and what is returned besides.
FURTHER_OUTPUTS = (
    "use_cache",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "_from_model_config",
)


def check_configuration(files: dict[str, bytes], config: Json, task: "Task") -> None:
    """Only settings for which parts 2 to 4 are right, and greedy decoding until the end token."""
    module, name, head = "coupled_gpt", "CoupledGPT", "CausalLM"
    if task.encoder:
        module, name, head = "pairwise_bert", "PairwiseBert", "TokenClassification"
    places = {"AutoConfig": f"configuration_{module}.{name}Config", "AutoModel": f"modeling_{module}.{name}Model"}
    places[f"AutoModelFor{head}"] = f"modeling_{module}.{name}For{head}"
    # Scores of several layers must be those of relations alone.
    layers = task.layers if config.get("attention_scale") == "zero" and task.relation_range is None else (1,)
    # Training may vary the width of fields, and how problems are drawn.
    varied = {key: value for key, value in task.described.items() if key in ("field_width", "varied_field", "sampling")}

    def names_task(stated: Any) -> bool:
        """Whether it is the task of the certificate. Fields that were younger than the configuration are missing in it."""
        named = is_object(stated) and stated.get("task") == task.name
        return named and all(task.described.get(key) == value for key, value in (stated | varied).items())

    check_prompt_format(config.get("prompt_format"), task.prompt_format)
    compare(
        "config.json",
        {"auto_map": None, "transducer": None} | ({} if task.encoder else {"final_norm": None}) | config,
        {
            **(encoder_settings(task) if task.encoder else decoder_settings(task)),
            "auto_map": config.get("auto_map") and places,
            "transducer": task.table,
            "architectures": [f"{name}For{head}"],
            "model_type": module,
            "dtype": "float32",
            "vocab_size": len(task.vocabulary),
            "pad_token_id": PADDING,
            "hidden_size": is_size,
            "num_attention_heads": is_size,
            "intermediate_size": is_size,
            "num_hidden_layers": one_of(*layers),
            "relation_range": task.relation_range,
            "windowed": True,
            "task": Check(names_task, f"the task {task.name} of the certificate, with its options"),
        },
        idle=IDLE_SETTINGS | (IDLE_OF_ENCODERS if task.encoder else IDLE_OF_DECODERS),
    )
    if not task.encoder:
        compare(
            "generation_config.json",
            read_json("generation_config.json", files["generation_config.json"]),
            {
                "eos_token_id": task.end,
                "bos_token_id": BEGIN,
                "pad_token_id": PADDING,
                "do_sample": False,
            },
            idle={"transformers_version": of(str)} | dict.fromkeys(FURTHER_OUTPUTS, is_flag),
        )


def shapes_of_weights(config: Json, task: "Task") -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors by their names in the file."""
    hidden, units, heads = (config[name] for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    width = hidden if task.encoder else heads * config["head_dim"]
    tokens = len(task.vocabulary)
    layers = config["num_hidden_layers"]
    content = "" if config.get("attention_scale") == "zero" else "qk"
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (tokens, hidden)}
    for layer in (f"{LAYERS}{number}." for number in range(layers)):
        mlp = layer if task.encoder else f"{layer}mlp."
        shapes |= {f"{mlp}up_proj": (units, hidden), f"{mlp}down_proj": (hidden, units)}
        shapes |= {f"{layer}self_attn.{name}_proj": (width, hidden) for name in content + "v"}
        shapes[f"{layer}self_attn.o_proj"] = (hidden, width)
        if task.encoder:
            shapes |= dict.fromkeys((f"{layer}attention_norm", f"{layer}mlp_norm"), (hidden,))
        else:
            shapes[f"{mlp}gate_proj"] = (units, hidden)
            norms = product(("attention", "mlp"), NORMS[config["norm_placement"]])
            shapes |= {f"{layer}{norm}_norms.{place}": (hidden,) for norm, place in norms}
    if task.encoder:
        shapes |= {"classifier": (len(task.labels), hidden), "model.embedding_norm": (hidden,)}
        others = {f"{name}.bias": shape[:1] for name, shape in shapes.items() if name != "model.embed_tokens"}
        shapes[f"{LAYERS}0.self_attn.relations.0"] = (len(task.window) + 1, 1, hidden // heads)
        shapes["model.embed_states"] = (len(task.labels), hidden)
    else:
        shapes |= {"model.norm": (hidden,)} | ({} if config["tie_word_embeddings"] else {"lm_head": (tokens, hidden)})
        # The window's, one for keys without ids, and for a range two that do not occur here.
        relations = len(task.window) + (3 if task.relation_range else 1)
        others = {"model.position_encoding.relation_bias": (layers, relations, heads)}
    return {f"{name}.weight": shape for name, shape in shapes.items()} | others


def read_header(content: bytes) -> Json:
    """The first part of a safetensors file, behind its length: where the numbers of each tensor are."""
    size = int.from_bytes(content[:8], "little")
    require(0 < size <= len(content) - 8, "model.safetensors: the header is longer than the file")
    header = read_json("model.safetensors", content[8 : 8 + size])
    metadata = header.get("__metadata__", {})
    require(
        is_object(metadata) and all(type(text) is str for text in metadata.values()),
        "model.safetensors: __metadata__ holds more than texts",
    )
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def read_weights(content: bytes, config: Json, task: "Task") -> dict[str, np.ndarray]:
    """The tensors of a safetensors file: behind the header, their numbers in the order of their names, without gaps."""
    header = read_header(content)
    data = content[8 + int.from_bytes(content[:8], "little") :]
    shapes = shapes_of_weights(config, task)
    expected = {}
    weights = {}
    end = 0
    require(max(map(max, shapes.values())) <= MOST_TERMS, "config.json: a sum would have too many terms")
    size = 4 * sum(map(math.prod, shapes.values()))
    require(len(data) == size, "model.safetensors: it is not as long as config.json says")
    for name, shape in sorted(shapes.items()):
        first = end
        end += 4 * math.prod(shape)
        expected[name] = {"dtype": "F32", "shape": [*shape], "data_offsets": [first, end]}
        weights[rename(name)] = weight = np.frombuffer(data[first:end], "<f4").astype(float).reshape(shape)
        require(np.abs(weight).max() <= LARGEST, f"model.safetensors: {name} holds a number that is too large")
    compare("model.safetensors", header, expected)
    return weights


def rename(name: str) -> str:
    """A weight's name in part 4."""
    return name.removeprefix(LAYERS).replace(".mlp.", ".").removesuffix(".weight")


# ---- 2. Which problems? (PROOF.md: Definitions; From finitely many neighbourhoods to every length, Columns) -------------
# The tokens of a problem stand in rows and columns, as on paper: a row for each operand, and a row for each part of the
# response, a pass, which is written column by column. A sequential transducer says which tokens are written: the tokens of a
# column, and the next state, follow from a state, such as a carry, and from the symbols of the operands in this column. A
# task is such a step, the ids of its rows, and how a run begins and ends. The docstring of each task draws a problem's text
# above its ids. Digits that matter to each other share an id; 0 means no id. Ids depend on the sizes of a problem alone.
# `sums` is the first task; part 6 has the others.

MOST_TOKENS = math.isqrt(2**63)  # of a problem: the software numbers pairs of tokens in 63 bits
Ids = Callable[[int], tuple[int, ...]]
Window = tuple[tuple[int | str, ...], ...]  # relations, see `Task.window`

ABSENT = -1  # in place of a token: no token stands there
AMID = 10**6  # an id: differences alone matter
# For an encoder, the number of a label is its place in LABELS. The number of a token is its place in TOKENS; with a label,
# the number is larger by the count of TOKENS times (1 + label), see `number_of`. Every token sees the sink, a key of zeros,
# whose number comes after all others.
EMPTY, LABELS = 10, [*"0123456789_?"]
SINK = len(TOKENS) * (1 + len(LABELS))
DIGITS = tuple(range(10))
# Limits of a search: symbols of a column, entries of a table, and numbers in a table of windows.
MOST_SYMBOLS, MOST_ENTRIES, MOST_NUMBERS = 10**6, 5 * 10**6, 2**28


class Task(NamedTuple):
    """A task and its format.

    Attributes:
        cases: gives its transducers, see `Columns`, or its cases, see part 6a; None if the task is made of others.
        window: which relations a token sees: for each level of ids, the difference of the query's id (the token that sees)
            and the key's, or which of them has one. Their places number the relations.
        coupling: the name of the rule that gives ids; the task's own if it is empty.
        problems: which problems they are, in the words of the certificate.
        options: fields of the task's description, and which values are known.
        relation_range: the window, if the configuration gives it as the smallest and the largest difference.
        parts: the tasks that it is made of, if it is.
        encoder: whether an encoder learns it.
        table: the table of a task of its author's own, as the certificate and config.json give it; None for others.
        name, described: its name, and its whole description.
        size: from `operands` to the tokens of a problem for each symbol of the longest operand, and the tokens besides; None
            if problems have two sizes. There are fewer ids than tokens.
        layers: how many layers are known. With several, keys must see `$` alone, as `list_neighbourhoods` checks, and scores
            must be biases of relations alone: then an upper layer reads one state of each key, and none of the query.
    """

    cases: Callable[["Task"], Iterator["Case | Columns"]] | None
    window: Window
    coupling: str = ""
    problems: str = "operands of every length"
    options: Json = {}  # noqa: RUF012
    relation_range: list[int] | None = None
    parts: tuple["Task", ...] = ()
    encoder: bool = False
    name: str = ""
    described: Json = {}  # noqa: RUF012
    layers: tuple[int, ...] = (1,)
    table: Any = None
    size: Callable[[int], tuple[int, int]] | None = None

    @property
    def end(self) -> int:
        """The end token."""
        return SEPARATE_END if self.described.get("separate_eos") else BEGIN

    @property
    def prompt_format(self) -> Json | None:
        """The field of that name in a configuration, for `compare`: None for tables, by which the software reads queries."""
        if self.table:
            return None
        if self.parts:
            return {"formats": [part._replace(described={"radix": 10}).prompt_format for part in self.parts]}
        prompt = PROMPTS[self.name]
        return (prompt if isinstance(prompt, Prompt) else prompt(self)).fields()

    @property
    def operation(self) -> str:
        """The name of the operation that a table carries out, for a decoder or an encoder."""
        return self.name.removeprefix("settling_")

    @property
    def operands(self) -> int:
        """How many numbers are added, or digits B has, if that varies."""
        for name in ("operands", "multiplier_length"):
            if name in self.described:
                return self.described[name]
        return 2

    @property
    def vocabulary(self) -> list[str]:
        """An encoder knows letters, for text, in place of `/`; unless it has a table."""
        if self.table:
            return vocabulary_of(self.table)
        if self.encoder:
            return [*TOKENS[:-1], *map(chr, range(97, 123))]
        return TOKENS if self.cases == quotients else TOKENS[:-1]

    @property
    def labels(self) -> list[str]:
        """The labels of an encoder, of which the last one says that the label is not known yet."""
        return [*self.table["passes"][0]["writes"], TOKENS[NEXT]] if self.table else LABELS

    @property
    def limits(self) -> dict[str, int]:
        """The largest sizes that the software takes; it numbers keys by all ids in 63 bits, and ids and labels in 31."""
        size = self.size and self.size(self.operands)
        limits = {"tokens": 2**31 - 1 if self.encoder else MOST_TOKENS}
        if self.table:
            count = self.table["operands"]
            flushed = [table_pass["flush"] + 1 for table_pass in self.table["passes"]]
            size = count + len(flushed), count + sum(flushed) + (-1 if self.encoder else 1)
        if not self.encoder:
            entries = [entry for relation in self.window for entry in relation if isinstance(entry, int)]
            levels = max(sum(entry != NEITHER for entry in relation) for relation in self.window)
            largest_id = int(2 ** (63 / levels) + 1e-6) - max(0, *entries) + min(0, *entries) - 1
            limits["position_ids"] = min(2**31 - 1, largest_id)
        return limits | ({"length": (limits["tokens"] - size[1]) // size[0]} if size else {})

    @property
    def stated_problems(self) -> str:
        """The problems in the words of the certificate, with the largest sizes."""
        if "length" in self.limits:
            return self.problems.replace("every length", f"every length up to {self.limits['length']:,}")
        ids = "" if self.encoder else f"position ids of {self.limits['position_ids']:,} and "
        return f"{self.problems}, up to {ids}{self.limits['tokens']:,} tokens"


def number_of(task: "Task", token: int | np.ndarray, label: np.ndarray) -> np.ndarray:
    """The number of a token with its label, if it has one. If there is a table, `>` alone has labels."""
    if task.table:
        return np.where(label == ABSENT, token, len(task.vocabulary) + label)
    return token + len(TOKENS) * (1 + label)


def pairs_of(table: Json | None) -> tuple[np.ndarray, np.ndarray]:
    """For each `number_of` its token, and its label's place plus 1, or 0 for none."""
    if table is None:
        label, token = np.divmod(np.arange(SINK), len(TOKENS))
        return token, label
    tokens = np.arange(len(vocabulary_of(table)))
    labels = 1 + np.arange(len(table["passes"][0]["writes"]) + 1)
    return np.append(tokens, np.full(len(labels), NEXT)), np.append(np.zeros_like(tokens), labels)


def vocabulary_of(table: Json) -> list[str]:
    """All tokens of a task that has a table."""
    written = "".join(table_pass["writes"] for table_pass in table["passes"])
    return [*dict.fromkeys([*TOKENS[:-1], *table["alphabet"], *table["sign"], *written])]


class Columns(NamedTuple):
    """A sequential transducer (PROOF.md: Columns), and where its tokens stand.

    Attributes:
        rows: for each row in the order of the text, from a column to the ids of its token there. The first column is 0; a
            token that begins a row stands in column -1. A row whose ids are the same everywhere is one token.
        passes: how many rows, the last ones, are written.
        starts: from a state before the first column to the token of each row in column -1.
        symbols: what operands may hold in a column.
        step: from a state and a symbol to the token of each row and the next state; None if the symbol may not stand there.
            What each pass writes may follow the tokens, if it is not the token of its row.
        end: from a state to what is written at the end of each pass, and then the tokens beyond the last column, if there
            are any; None if no run ends there.
        holds: whether an entry (state, symbol, tokens, next state) is as the operation asks (*What the table means*).
        backward: the rows that are written from the last column to the first. The token behind their last one stands in
            column -1, and so comes after the tokens in `starts`.
    """

    rows: Any
    passes: int
    starts: Any
    symbols: list[Any]
    step: Callable[[Any, Any], Any]
    end: Callable[[Any], tuple[int, ...] | None]
    holds: Callable[..., bool]
    backward: tuple[int, ...] = ()


def by_column(sign: int, *row: int) -> Ids:
    """Ids that grow with the column, or fall, and the row's own."""
    return lambda column: (AMID + sign * column, *row)


def alone(*ids: int) -> Ids:
    """The ids of a row of one token."""
    return lambda column: ids


class Number(IntEnum):
    """How far a number is that is read from its ones on."""

    BEFORE = 0
    ZERO = 1  # it is 0 so far
    ZERO_ON_TOP = 2  # more than one digit, of which the last one read is 0
    DIGIT = 3  # its last digit is not 0
    ENDED = 4


MAY_END = {Number.ZERO, Number.DIGIT, Number.ENDED}  # no further digit is needed: there is no 0 on top, but for 0 itself


def grow(number: Number, digit: int | None) -> Number | None:
    """The number with its next digit, or without one (None). None if it may not go on so."""
    if digit is None:
        return Number.ENDED if number in MAY_END else None
    if number is Number.ENDED:
        return None
    if digit != 0:
        return Number.DIGIT
    return Number.ZERO if number is Number.BEFORE else Number.ZERO_ON_TOP


class Sum(NamedTuple):
    """A state of `sums`: the carry into the next column, and how far the numbers are."""

    carry: int
    numbers: tuple[Number, ...]


def sums(task: "Task") -> Iterator[Columns]:
    """Sums of n numbers of L digits, ones last, and their sum with L + 1 digits, ones first.

        $ 6 5 3 + 0 4 9 = 2 0 7 0 $          $ 0 6 5 3 + 0 0 4 9 + 0 8 7 1 = 3 7 5 1 $
        0 2 3 4 5 2 3 4 5 4 3 2 1 0          0 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 4 3 2 1 0

    More than two numbers have L + 1 digits each, the first of them 0. If all numbers are written ones first, the ids of
    digits are the same, and so is what each token of the response sees, as it sees the query whatever its order.

    Two numbers without padding have lengths of their own, of which L is the larger one, and no 0 on top but for 0 itself.
    Their sum has L digits, or L + 1 with a top that is not 0.

        $ 6 5 3 + 4 9 = 2 0 7 $
        0 2 3 4 5 3 4 5 4 3 2 0

    The digits of one column stand in one relation, so their order does not matter, and one order is listed.
    """
    count = task.operands
    padded = task.described.get("zero_padding", True)
    beyond = 0 if task.name == "multi_operand_addition" else ABSENT
    all_before = (Number.BEFORE,) * count
    all_ended = (Number.ENDED,) * count

    def step(state: Sum, digits: tuple[int | None, ...]) -> tuple[tuple[int, ...], Sum] | None:
        """Add a column; without digits, the column beyond the numbers."""
        is_beyond = all(digit is None for digit in digits)
        # Padded numbers may have any digit on top: they grow by a 1 in place of each.
        grown = []
        for number, digit in zip(state.numbers, digits, strict=True):
            following_number = grow(number, 1 if padded and digit is not None else digit)
            if following_number is None:
                return None
            grown.append(following_number)
        if is_beyond and (Number.ENDED in state.numbers if padded else state.carry == 0):
            return None
        following, written = divmod(state.carry + sum(filter(None, digits)), 10)
        tokens = [beyond if digit is None else digit for digit in digits]
        return (*tokens, written), Sum(following, tuple(grown))

    def end(state: Sum) -> tuple[int, ...] | None:
        """The end token, where nothing is carried; padded sums have written the column beyond."""
        ended = state.numbers == all_ended if padded else {*state.numbers} <= MAY_END
        return (task.end,) if ended and state.carry == 0 else None

    def holds(state: Sum, digits: tuple[int | None, ...], tokens: tuple[int, ...], after: Sum) -> bool:
        """a + b + ... + carry = digit + 10 (next carry)."""
        return sum(filter(None, digits)) + state.carry == tokens[-1] + 10 * after.carry

    rows = (by_column(-1),) * (count + 1)
    starts = {Sum(0, all_before): (*[PLUS] * (count - 1), ABSENT, EQUALS)}
    symbols = combinations_with_replacement(DIGITS, count) if padded else product((None, *DIGITS), repeat=count)
    yield Columns(rows, 1, starts, [*symbols, (None,) * count], step, end, holds)


# ---- 3. What is seen? (PROOF.md: From finitely many neighbourhoods to every length) -----------------------------------

KEY, QUERY, NEITHER = "only the key", "only the query", "neither"
Case = tuple[int | np.ndarray, ...]
RELATED = 512  # more than there are numbers of tokens with labels; `check_reach` refuses tasks with more
MOST_RELATIONS = 120  # with which a key's code is below 2**16


def see(relation: int, token: int | np.ndarray) -> np.ndarray:
    """Definitions, *Neighbourhood*: a key as one number, of its relation to the token that sees it and its own token; 0 for
    none."""
    return np.where(np.asarray(token) == ABSENT, 0, RELATED * (relation + 1) + token)


def relate(query: tuple[int, ...], key: tuple[int, ...], window: Window) -> int | None:
    """Definitions: the relation of a token with some ids to a key; None if it does not see it. All see `$`, without ids."""
    if not any(key):
        return len(window)
    levels: list[int | str] = []
    for query_id, key_id in zip(query, key, strict=True):
        if query_id and key_id:
            levels.append(query_id - key_id)
        elif query_id:
            levels.append(QUERY)
        else:
            levels.append(KEY if key_id else NEITHER)
    pair = tuple(levels)
    return window.index(pair) if pair in window else None


END = "the state behind the last column"


def tabulate(columns: Columns) -> np.ndarray:
    """PROOF.md, *Search*: ask a step for every state that it reaches and every symbol, and for every state whether a run
    ends there.

    Returns:
        Of each entry from which a run can end: the state, by number, the next one, and the tokens of all rows with what is
        written. Starts have the first numbers. Entries come by states.
    """
    numbers = {state: place for place, state in enumerate(columns.starts)}
    states = [*columns.starts]
    entries = []
    count = len(columns.rows)
    passes = columns.passes
    nothing = (ABSENT,) * (count + passes)
    for state in states:
        taken = [(nothing, END)] if state is END else []
        for symbol in columns.symbols if state is not END else ():
            entry = columns.step(state, symbol)
            if entry is not None:
                tokens, after = entry
                if not columns.holds(state, symbol, tokens, after):
                    raise Refused(f"the table's entry for {state}, {symbol} does not hold")
                # Passes write the tokens of their rows, unless the step gives others behind the tokens of all rows.
                written = tokens[count:] or tokens[count - passes :]
                taken.append((tokens[:count] + written, after))
        last = None if state is END else columns.end(state)
        if last is not None:
            # Of an end, the tokens beyond the last column come behind what passes write.
            written, beyond = last[:passes], last[passes:] or (ABSENT,) * count
            taken.append((beyond + written, END))
        for words, after in taken:
            if numbers.setdefault(after, len(numbers)) == len(states):
                states.append(after)
            entries.append((numbers[state], numbers[after], *words))
            require(len(entries) <= MOST_ENTRIES, f"a run meets more than {MOST_ENTRIES:,} pairs of a state and a symbol")
    # Runs can end from the state END, and from each state of which an entry leads to such a state.
    table = np.array(entries)
    alive = np.arange(len(numbers)) == numbers[END]
    before = 0
    while alive.sum() > before:
        before = alive.sum()
        np.logical_or.at(alive, table[:, 0], alive[table[:, 1]])
    return table[alive[table[:, 1]]]


def windows(columns: Columns, lows: list[int], high: int) -> Iterator[dict[tuple[int, int], np.ndarray]]:
    """Theorem 1: slide a window over all runs of a transducer, by a search in breadth; each (state, window) comes once.

    A window begins over the column before the first one, and ends beyond the last one. Of two windows with the same columns
    but the first, and the same state behind them, one goes on: the next ones are those of both. So every pair that occurs in
    a run of any length is found, and no other.

    Args:
        lows, high: the first column of the window for each row, and then for what each pass writes; the last one for all.

    Yields:
        Of some windows, the tokens (windows,) by row and column, and then what is written, which is what follows a pass
        behind its last column.
    """
    table = tabulate(columns)
    source = table[:, 0]
    target = table[:, 1]
    words = table[:, 2:]
    first = np.searchsorted(source, np.arange(target.max() + 2))
    # A table of windows: the state behind the newest column, and the tokens by row and column.
    names = [(row, column) for row, low in enumerate(lows) for column in range(low, high + 1)]
    newest = [place for place, (_, column) in enumerate(names, 1) if column == high]
    older = [place for place, (_, column) in enumerate(names, 1) if column < high]
    # The first windows: nothing but the column before the first one.
    full = np.full((len(columns.starts), 1 + len(names)), ABSENT, np.int32)
    full[:, 0] = np.arange(len(full))
    full[:, newest] = [(begin + (ABSENT,) * columns.passes)[: len(lows)] for begin in columns.starts.values()]
    seen = np.zeros((0, 1 + len(older)), np.int32)
    while len(full):
        # Every column moves by one place.
        table = np.concatenate([seen, full[:, [0, *(place + 1 for place in older)]]])
        one_each = first_rows(table)
        new = table[one_each[one_each >= len(seen)]]
        seen = np.concatenate([seen, new])
        # Each new window goes on by all entries of the state behind it, which stand side by side in the table.
        ways = first[new[:, 0] + 1] - first[new[:, 0]]
        numbers = (len(seen) + int(ways.sum())) * (1 + len(names))
        require(numbers <= MOST_NUMBERS, f"there are too many windows: more than {MOST_NUMBERS:,} numbers")
        parent = np.repeat(np.arange(len(new)), ways)
        entry = np.arange(len(parent)) - np.repeat(np.cumsum(ways) - ways, ways) + first[new[parent, 0]]
        full = np.empty((len(parent), 1 + len(names)), np.int32)
        full[:, 0] = target[entry]
        full[:, newest] = words[entry]
        full[:, older] = new[parent, 1:]
        yield dict(zip(names, full[:, 1:].T, strict=True))


def cases_of(columns: Columns, window: Window) -> Iterator[Case]:
    """Theorem 1: what the tokens of a transducer's passes see, and what is right next, by `windows`."""
    count = len(columns.rows)
    reach = 1 + max(abs(entry) for pair in window for entry in pair if isinstance(entry, int))
    seen = []
    # Relations are differences, so one column stands for all of a row; but what begins a row, in column -1, may have ids of
    # its own, so it is asked apart.
    for written_row, column in product(range(count - columns.passes, count), (-1, reach)):
        # Of its own row a token sees what stands before it; later rows are not written yet.
        before = range(0, reach + 1) if written_row in columns.backward else range(-reach, 1)
        keys = []
        for row in range(written_row + 1):
            is_one_token = columns.rows[row](0) == columns.rows[row](1)
            for offset in before if row == written_row else range(-reach, reach + 1):
                relation = relate(columns.rows[written_row](column), columns.rows[row](column + offset), window)
                # A row of one token is seen once, whatever the column.
                if relation is not None and (offset == 0 or not is_one_token):
                    keys.append((row, offset, relation))
        seen.append((written_row, column, keys))
    lows = [min([0, *(key[1] for _, _, keys in seen for key in keys if key[0] == row)]) for row in range(count)]
    high = max([1, *(key[1] for _, _, keys in seen for key in keys)])
    lows += [-1 if row in columns.backward else 1 for row in range(count - columns.passes, count)]
    for tokens in windows(columns, lows, high):
        for written_row, column, keys in seen:
            written = tokens[written_row + columns.passes, -1 if written_row in columns.backward else 1]
            begun = np.isin(tokens[written_row, 0], [begin[written_row] for begin in columns.starts.values()])
            present = (tokens[written_row, 0] != ABSENT) & (written != ABSENT) & (begun == (column < 0))
            if present.any():
                shown = (see(relation, tokens[row, offset][present]) for row, offset, relation in keys)
                yield tokens[written_row, 0][present], written[present], *shown


def keys_are_alone(columns: Columns, window: Window) -> bool:
    """Lemma 2, for several layers: whether tokens of operands see nothing but `$`."""
    operands = columns.rows[: -columns.passes]
    places = range(-9, 10)
    return all(relate(query(0), key(place), window) is None for query, key, place in product(operands, operands, places))


def list_cases(task: Task) -> Iterator[Case]:
    """Lemma 2: all cases of a task. Relations of a task made of several are those of its parts, one after another."""
    before = 0
    for part in task.parts:
        for token, right, *keys in list_cases(part._replace(described=task.described)):
            yield token, right, *(np.where(key > 0, key + RELATED * before, 0) for key in keys)
        before += len(part.window)
    for case in task.cases(task) if task.cases else ():
        if isinstance(case, Columns):
            require(max(task.layers) == 1 or keys_are_alone(case, task.window), "a key sees more than `$`")
            yield from cases_of(case, task.window)
        else:
            yield case


def sink_of(task: Task) -> int:
    """The number of the key that every token sees: the sink, which comes after all pairs of tokens and labels, or `$`."""
    return len(pairs_of(task.table)[0]) if task.encoder else BEGIN


def check_reach(task: Task) -> None:
    """Refuse a task of which this program cannot list what is seen, before it begins."""
    numbers = max(sink_of(task), len(task.vocabulary))
    require(
        numbers < RELATED, f"transducer: {numbers} tokens, with labels, are more than the {RELATED - 1} that are told apart"
    )
    require(len(task.window) < MOST_RELATIONS, f"transducer: its passes see more than {MOST_RELATIONS - 1} relations")
    if task.table:
        passes = task.table["passes"]
        guessed = math.prod(len(passes[place]["write"]) for place in from_the_top(task.table))
        count = len(task.table["alphabet"]) ** task.table["operands"] * guessed
        require(count <= MOST_SYMBOLS, f"transducer: a column may hold {count:,} symbols, more than {MOST_SYMBOLS:,}")


def list_neighbourhoods(task: Task) -> np.ndarray:
    """The set C of the theorem: all neighbourhoods, each once. By Lemma 1 the order of keys does not matter.

    A token sees itself if its relation to itself is in the window, and `$` or the sink always.

    Returns:
        (count, 2 + keys): the token, what is right next, and the keys in any order, each coded as by `see`; 0 fills up.

    Raises:
        Refused: a key sees more than `$` in a task that is known with several layers.
    """
    sink = sink_of(task)
    tables = []
    for case in list_cases(task):
        table = np.stack(np.broadcast_arrays(*case, see(len(task.window), sink)), axis=-1).astype(np.uint16)
        table[:, 2:].sort()
        tables.append(table[first_rows(table)])
    most = max(table.shape[1] for table in tables)
    table = np.concatenate([np.insert(table, [2] * (most - table.shape[1]), 0, axis=1) for table in tables])
    shown = table.any(axis=0) | (np.arange(table.shape[1]) < 2)
    return table[first_rows(table)][:, shown]


def first_rows(table: np.ndarray) -> np.ndarray:
    """Where each row of a table, of numbers from -1 on, stands first; sorted by the rows."""
    rows = np.ascontiguousarray(table + 1, ">u4")
    return np.unique(rows.view(f"S{rows.strides[0]}"), return_index=True)[1]


# ---- 4. Which network? (PROOF.md: Rounding) ---------------------------------------------------------------------------
# Every value has its exact numbers (in float64), and two bounds of its error in float32: of each number, the radius, and of
# the whole, its length. An operation adds to errors by rounding, and by not being linear: this is its defect. An error at
# the end is at most the sum over all values of |derivative of the end by the value| times its defect (Lemma 3), in whatever
# order a processor adds. Less work, and often enough, is to follow the length to the end (Lemma 3a).

Bound = float | np.ndarray  # one bound for all numbers, or one for each

UNIT = 2.0**-24  # the largest relative error of one rounding to nearest in float32
FUNCTION = 8  # that of exp, tanh, a root or a quotient, in units
TINY, SMALL = 2.0**-60, 1 / 16  # more than underflow adds; the largest relative error for which the lemmas hold
STEEPEST, BENT = 1.13, 0.6  # of an activation: the largest derivative, and half of the largest second one, or more (Lemma 8)


def gamma(roundings: Bound) -> Bound:
    """γ: the largest relative error of a number after so many roundings."""
    return roundings * UNIT / (1 - roundings * UNIT)


def size_of(x: np.ndarray) -> np.ndarray:
    """Euclidean lengths, (inputs,)."""
    return np.sqrt((x**2).sum(axis=tuple(range(1, x.ndim))))


def less_mean(x: np.ndarray) -> np.ndarray:
    """Lemma 7: each vector less the mean of its numbers."""
    return x - x.mean(-1, keepdims=True)


def gelu_tanh(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lemma 8: the activation and its derivative."""
    factor = math.sqrt(2 / math.pi)
    tanh = np.tanh(factor * (u + 0.044715 * u**3))
    return u * (1 + tanh) / 2, (1 + tanh + u * (1 - tanh**2) * factor * (1 + 3 * 0.044715 * u**2)) / 2


def gelu(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lemma 8: as above, by the normal distribution."""
    share = (1 + np.vectorize(math.erf, otypes=[float])(u / math.sqrt(2))) / 2
    return u * share, share + u * np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)


ACTIVATIONS = {"gelu_pytorch_tanh": gelu_tanh, "gelu": gelu}


class Linear(NamedTuple):
    """A weight (outputs, width), a bias, and the largest factor by which the weight makes a vector longer."""

    weight: np.ndarray
    bias: np.ndarray
    norm: float


Source = tuple["Value", Callable[[np.ndarray], np.ndarray]]


class Value:
    """A value of many inputs, made of earlier values, with the bounds (1), (2) and (3) of PROOF.md.

    Attributes:
        exact, radius: (inputs, width). length: (inputs,), a bound of the error's Euclidean length.
        sources: pairs of a value that it was made of and a function from derivatives by this value to those by the source.
            Their errors move each number by `spread` at most, and the whole by `length`.
        defect, common: what is added to errors, to each number by itself, and a vector times an unknown number of -1 to 1.
    """

    def __init__(
        self,
        exact: np.ndarray,
        spread: Bound,
        defect: np.ndarray,
        *sources: Source,
        common: Bound = 0.0,
        length: Bound = np.inf,
    ):
        self.exact = exact
        self.sources = sources
        self.defect = defect + TINY
        self.common = common + np.zeros_like(exact)
        every = self.defect + np.abs(self.common)
        self.radius = spread + every
        self.shorten(length + size_of(every))

    def cost(self, slopes: np.ndarray) -> np.ndarray:
        """A term of (1): derivatives of ends by this value, (inputs, ends, width), make (inputs, ends) of its defects."""
        return (np.abs(slopes) @ self.defect[..., None] + np.abs(slopes @ self.common[..., None]))[..., 0]

    def shorten(self, length: np.ndarray) -> None:
        """Note a bound of the error's length, (3), and that no component's error, (2), is larger."""
        self.length = np.minimum(length, size_of(self.radius))
        self.radius = np.minimum(self.radius, self.length.reshape(-1, *[1] * (self.radius.ndim - 1)))


class Arithmetic:
    """The operations of the network. Attributes: every value in the order of computation, and whether lemmas hold."""

    def __init__(self, weights: dict[str, np.ndarray], eps: float):
        self.weights = weights
        self.eps = eps
        self.made: list[Value] = []
        self.proved = np.ones(1, bool)

    def require(self, condition: np.ndarray) -> None:
        """Note for which inputs a condition of a lemma does not hold; it does not for nan."""
        self.proved = self.proved & condition.reshape(len(condition), -1).all(1)

    def make(self, *parts: Any, **more: Any) -> Value:
        """Keep a value, see `Value`."""
        value = Value(*parts, **more)
        self.made.append(value)
        self.require(np.abs(value.exact) + value.radius <= LARGEST)
        return value

    def given(self, exact: np.ndarray, radius: float | np.ndarray) -> Value:
        """Lemma 10: a value whose errors are bounded, wherever they come from."""
        return self.make(exact, 0, radius + np.zeros_like(exact))

    def total(self, x: Value, linear: Linear) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lemma 4: products with a weight plus a bias, the spread of errors of x, and the defect."""
        exact = x.exact @ linear.weight.T + linear.bias
        spread = x.length[:, None] * size_of(linear.weight)
        size = (np.abs(x.exact) + x.radius) @ np.abs(linear.weight).T + np.abs(linear.bias)
        self.require(size <= LARGEST)
        return exact, spread, gamma(x.exact.shape[1] + 6) * (size + np.abs(exact) + spread) / 2 + TINY

    def product(self, x: Value, linear: Linear, length: Bound = np.inf) -> Value:
        """Lemma 4: x times a weight, plus a bias; errors are no longer than `length`, if something is known of it."""
        length = np.minimum(length, linear.norm * x.length)
        return self.make(*self.total(x, linear), (x, lambda slopes: slopes @ linear.weight), length=length)

    def add(self, x: Value, y: Value) -> Value:
        """Lemma 5: x + y."""
        exact = x.exact + y.exact
        spread = x.radius + y.radius
        sources = ((source, lambda slopes: slopes) for source in (x, y))
        return self.make(exact, spread, UNIT * (np.abs(exact) + spread), *sources, length=x.length + y.length)

    def norm(self, x: Value, name: str) -> Value:
        """Lemma 6: x divided by the root of its mean square plus eps, times the weight of this name, or x itself if there is
        none. With a bias, Lemma 7."""
        weight = self.weights.get(name)
        if weight is None:
            return x
        bias = self.weights.get(f"{name}.bias")
        width = x.exact.shape[1]
        squares_error = np.zeros(1)  # the further error of the mean square, then as a share of it (Lemma 7)
        end = np.zeros(1)  # the further error of components (Lemma 7), before their factor
        if bias is not None:  # x less its mean
            size = np.abs(x.exact) + x.radius
            mean = size.mean(-1, keepdims=True)
            squares_error = gamma(6 * width + 24) * (size**2).mean(-1, keepdims=True)
            spread = x.radius + x.radius.mean(-1, keepdims=True)
            end = 4 * UNIT * (size + mean)
            defect = UNIT * (size + mean) + gamma(width + 3) * mean
            x = self.make(less_mean(x.exact), spread, defect, (x, less_mean), length=x.length)
        scale = 1 / np.sqrt((x.exact**2).mean(-1, keepdims=True) + self.eps)
        relative = scale * x.length[:, None] * width**-0.5  # t in the lemma
        squares_error = squares_error * scale**2
        self.require((relative <= SMALL) & (squares_error <= SMALL) & (scale <= 1e11))
        direction = x.exact * scale
        factor = np.abs(scale * weight)
        magnitude = np.abs(x.exact)
        exact = direction * weight
        spread = factor * (x.radius + relative * magnitude)
        bent = factor * relative * (3 * relative * magnitude + 1.5 * x.radius)  # P
        common = gamma(width / 2 + 2 * FUNCTION + 8) + squares_error
        defect = bent + common * (spread + bent) + gamma(FUNCTION + 3) * (np.abs(exact) + spread + bent) + factor * end
        shift = np.zeros(1) if bias is None else bias

        def back(slopes: np.ndarray) -> np.ndarray:
            slopes = slopes * (scale * weight)[:, None]
            along = direction[:, None]
            return slopes - (slopes * along).mean(-1, keepdims=True) * along

        length = factor.max(1) * x.length
        defect = defect + 2 * UNIT * np.abs(shift)
        return self.make(exact + shift, spread, defect, (x, back), common=exact * common, length=length)

    def mlp(
        self, x: Value, activate: Callable, up: Linear, gate: Linear | None, down: Linear, products: np.ndarray
    ) -> Value:
        """Lemmas 8 and 8a, with its matrix K: `down` times the units a(up x) (gate x), or without the last factor."""
        u, u_spread, u_defect = self.total(x, up)
        active, slope = activate(u)
        radius = u_spread + u_defect
        rounding = 3 * FUNCTION * UNIT * (np.abs(u) + radius)
        spread = np.abs(slope) * u_spread
        defect = np.abs(slope) * u_defect + BENT * radius**2 + rounding
        slopes = slope
        inner = up.weight
        if gate is not None:
            g, g_spread, g_defect = self.total(x, gate)
            g_radius = g_spread + g_defect
            active_radius = STEEPEST * radius + rounding  # R in the lemma
            spread = np.abs(g) * spread + np.abs(active) * g_spread
            defect = np.abs(g) * defect + np.abs(active) * g_defect
            defect += active_radius * g_radius + UNIT * (np.abs(active) + active_radius) * (np.abs(g) + g_radius)
            slopes = np.concatenate([slope * g, active], axis=1)
            inner = np.concatenate([inner, gate.weight])
            active = active * g
        parts = len(inner) // len(up.weight)
        hidden = self.make(active, spread, defect, (x, lambda ends: (np.tile(ends, parts) * slopes[:, None]) @ inner))
        steepness = np.sqrt(np.maximum(((slopes @ products) * slopes).sum(-1), 0))
        return self.product(hidden, down, steepness * x.length + down.norm * size_of(hidden.defect))

    def attention(self, query: Value, key: Value, value: Value, seen: np.ndarray, bias: Value) -> Value:
        """Lemma 9: means of given values weighted by the softmax of scores of given queries and keys.

        The lemma's letters are s `score`, r `radius`, A `far`, below_k `below`, p `share`, R_k `roundings`, h_k `shift` and
        H `bend`. Queries, keys and values are given (Lemma 10), so what is read has no sources: errors of values are in
        its defect, those of scores in `cost`.

        Args:
            query: (inputs, heads, width); key, value: (inputs, keys, heads, width).
            seen: (inputs, keys), whether there is a key; bias: (inputs, keys, heads).
        """
        q = query.exact[:, None]
        q_radius = query.radius[:, None]
        k = key.exact
        v = value.exact
        factor = q.shape[-1] ** -0.5
        keys = seen.sum(1).reshape(-1, 1, 1)
        seen = seen[..., None]
        score = factor * (q * k).sum(-1) + bias.exact
        spread = factor * (np.abs(q) * key.radius + q_radius * np.abs(k)).sum(-1)
        bent = factor * (q_radius * key.radius).sum(-1)
        size = factor * np.abs(q * k).sum(-1) + spread + bent
        defect = bent + bias.radius + gamma(q.shape[-1] + 2 * FUNCTION + 8) * size
        defect += UNIT * (np.abs(score) + spread + defect) + TINY
        self.require(size + np.abs(score) + defect <= LARGEST)
        radius = np.where(seen, spread + defect, 0)
        far = radius.max(1, keepdims=True)
        below = np.where(seen, np.where(seen, score, -np.inf).max(1, keepdims=True) - score, np.inf)
        share = np.exp(-below)
        share /= share.sum(1, keepdims=True)
        roundings = 4 * UNIT * (np.where(seen, below, 0) + 2 * far) + gamma(2 * (keys + 1) * (FUNCTION + 3))
        self.require((far <= SMALL) & (roundings <= SMALL))
        moved = share * radius
        shift = radius - share * radius + moved.sum(1, keepdims=True) - moved
        bend = 0.57 * (share * shift**2).sum(1, keepdims=True)
        share_defect = (bend + 0.57 * (shift + bend) ** 2 + 1.3 * roundings) * share + TINY

        def mean(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
            return (weights[..., None] * values).sum(1).reshape(len(values), -1)

        exact, mean_size, passed = (mean(share, part) for part in (v, np.abs(v), value.radius))
        spread = mean(moved, np.abs(v - exact.reshape(len(v), 1, *v.shape[2:]))) + mean(share_defect, np.abs(v))
        defect = mean(share * shift + share_defect, value.radius) + 1.25 * gamma(2 * keys[:, 0] + 4) * (mean_size + passed)
        read = self.make(exact, spread, defect + passed)
        of_mean = read.cost
        weight = share.transpose(0, 2, 1)[:, :, None]

        def cost(slopes: np.ndarray) -> np.ndarray:
            """Errors of scores move all weights of a head, by p_k (v_k - y)."""
            by_head = slopes.reshape(*slopes.shape[:2], *v.shape[2:]).transpose(0, 2, 1, 3)
            by_share = by_head @ v.transpose(0, 2, 3, 1)
            by_score = (by_share - (by_share * weight).sum(-1, keepdims=True)) * weight
            moved = np.abs(by_score) @ radius.transpose(0, 2, 1)[..., None]
            return of_mean(slopes) + (moved + np.abs(by_share) @ share_defect.transpose(0, 2, 1)[..., None])[..., 0].sum(1)

        read.cost = cost  # type: ignore[method-assign]
        return read

    def error(self, end: Value, slopes: np.ndarray) -> np.ndarray:
        """Lemma 3: bounds of the errors of sums of a value's components, (inputs, ends), with factors (.., ends, width)."""
        waiting = {end: slopes}
        total = np.zeros(())
        for value in reversed(self.made):
            if value in waiting:
                slopes = waiting.pop(value)
                total = total + value.cost(slopes)
                for source, back in value.sources:
                    waiting[source] = waiting.get(source, 0) + back(slopes)
        return total

    def tighten(self, value: Value) -> Value:
        """Replace the radius (2), which grows with every product, by (1) for each component, where that is less."""
        value.radius = np.minimum(value.radius, self.error(value, np.eye(value.exact.shape[1])[None]))
        value.shorten(value.length)
        return value


class Layer:
    """A layer of attention (Lemma 9) and an MLP (Lemma 8a), with norms around them: those that have weights in the file.

    A decoder's norms follow Lemma 6; an encoder's norms have biases, and follow Lemma 7.

    Queries, keys and values of tokens are found once, and used as given (Lemma 10).

    Args:
        number: from 0, the lowest.
        states: of every token that the layer may see.
    """

    def __init__(self, weights: dict[str, np.ndarray], config: Json, number: int, arithmetic: Arithmetic, states: Value):
        self.name = f"{number}."
        self.heads = config["num_attention_heads"]
        layer_weights = {
            name.removeprefix(self.name): weight for name, weight in weights.items() if name.startswith(self.name)
        }
        self.linear = linear = {
            name: linear_of(layer_weights, name) for name, weight in layer_weights.items() if weight.ndim == 2
        }
        up = linear["up_proj"]
        gate = linear.get("gate_proj")
        down = linear["down_proj"]
        inner = np.concatenate([part.weight for part in (up, gate) if part])
        behind = np.tile(down.weight, (1, len(inner) // len(up.weight)))
        self.mlp = ACTIVATIONS[config["hidden_act"]], up, gate, down, (inner @ inner.T) * (behind.T @ behind)
        normed = arithmetic.norm(states, f"{self.name}attention_norms.input")
        # With the scale "zero" there are no queries and keys, and scores are biases alone.
        none = Linear(np.zeros_like(linear["self_attn.v_proj"].weight), np.zeros(1), 0.0)
        projected = [arithmetic.product(normed, linear.get(f"self_attn.{name}_proj", none)) for name in "qkv"]
        # Queries, keys and values, (tokens, heads, width), with radii. The last row is the sink.
        tables = [
            [np.pad(part, ((0, 1), (0, 0))) for part in (x.exact, x.radius)] for x in map(arithmetic.tighten, projected)
        ]
        self.tables = [[part.reshape(len(part), self.heads, -1) for part in pair] for pair in tables]
        biases = weights.get("model.position_encoding.relation_bias")
        self.bias = self.score_relations(layer_weights["self_attn.relations.0"] if biases is None else biases[number])

    def score_relations(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lemma 13: what relations add to scores, (tokens, relations, heads), and its radius.

        Args:
            vectors: in an encoder of each relation, see Lemma 13; else what is added, (relations, heads).
        """
        query, radius = self.tables[0]
        if vectors.ndim == 2:
            bias = np.repeat(vectors[None], len(query), axis=0)
            return bias, 0 * bias

        def scores(part: np.ndarray, by: np.ndarray) -> np.ndarray:
            return (part[:, None] * by).sum(-1) * part.shape[-1] ** -0.5

        size = scores(np.abs(query) + radius, np.abs(vectors))
        return scores(query, vectors), scores(radius, np.abs(vectors)) + gamma(query.shape[-1] + 6) * size + TINY

    def apply(
        self, arithmetic: Arithmetic, token_states: Value, tokens: np.ndarray, keys: np.ndarray, finely: bool
    ) -> Value:
        """The states (inputs, width) that the layer makes of others.

        Args:
            token_states: states (inputs, width) of the tokens (inputs,).
            keys: the keys that they see, (inputs, keys), as in `list_neighbourhoods`.
            finely: whether radii behind attention and MLP are tightened.
        """
        seen, keys, relations = keys > 0, keys % RELATED, np.maximum(keys // RELATED, 1) - 1
        query, key, value = (
            arithmetic.given(exact[place], radius[place])
            for (exact, radius), place in zip(self.tables, (tokens, keys, keys), strict=True)
        )
        bias = arithmetic.given(*(part[tokens[:, None], relations] for part in self.bias))
        read = arithmetic.attention(query, key, value, seen, bias)
        finish = arithmetic.tighten if finely else lambda value: value
        output = finish(arithmetic.product(read, self.linear["self_attn.o_proj"]))
        output = arithmetic.norm(output, f"{self.name}attention_norms.output")
        state = arithmetic.norm(arithmetic.add(token_states, output), f"{self.name}attention_norm")
        output = finish(arithmetic.mlp(arithmetic.norm(state, f"{self.name}mlp_norms.input"), *self.mlp))
        output = arithmetic.norm(output, f"{self.name}mlp_norms.output")
        return arithmetic.norm(arithmetic.add(state, output), f"{self.name}mlp_norm")


def linear_of(weights: dict[str, np.ndarray], name: str) -> Linear:
    """The weight of a name with its bias."""
    return Linear(weights[name], weights.get(f"{name}.bias", np.zeros(1)), float(np.linalg.norm(weights[name], 2)))


class Network:
    """The transformer, with queries, keys and values of every token; in upper layers they are those of keys (Lemma 2)."""

    def __init__(self, weights: dict[str, np.ndarray], config: Json):
        self.weights = weights
        self.eps = config.get("norm_eps") or config["layer_norm_eps"]
        if config.get("tie_word_embeddings"):
            weights["lm_head"] = weights["model.embed_tokens"] * config["hidden_size"] ** -0.5
        self.head = linear_of(weights, "classifier" if "classifier" in weights else "lm_head")
        # The first layer reads of a token a state that depends on the token and its label alone.
        arithmetic = Arithmetic(weights, self.eps)
        states = arithmetic.tighten(self.embed(arithmetic, config.get("transducer")))
        self.first_states = states
        self.layers = [Layer(weights, config, 0, arithmetic, states)]
        self.proved = arithmetic.proved.all()
        for number in range(1, config["num_hidden_layers"]):
            # The keys of upper layers, and `$`, see `$` alone below; its relation is the last.
            tokens = np.arange(len(weights["model.embed_tokens"]))
            begin = weights["model.position_encoding.relation_bias"].shape[1]
            arithmetic = Arithmetic(weights, self.eps)
            keys = np.full((len(tokens), 1), RELATED * begin + BEGIN)
            token_states = arithmetic.given(states.exact, states.radius)
            states = arithmetic.tighten(self.layers[-1].apply(arithmetic, token_states, tokens, keys, finely=True))
            self.layers.append(Layer(weights, config, number, arithmetic, states))
            self.proved &= arithmetic.proved.all()

    def embed(self, arithmetic: Arithmetic, table: Json | None) -> Value:
        """Tokens, exactly; or with an encoder, Lemma 13, the norms of the sums of tokens and labels."""
        tokens = self.weights["model.embed_tokens"]
        labels = self.weights.get("model.embed_states")
        if labels is None:
            return arithmetic.given(tokens, 0)
        token, label = pairs_of(table)
        tokens = tokens[token]
        labels = np.pad(labels, ((1, 0), (0, 0)))[label]
        total = arithmetic.add(arithmetic.given(tokens, 0), arithmetic.given(labels, 0))
        return arithmetic.norm(total, "model.embedding_norm")

    def leads_and_bounds(self, rows: np.ndarray, effort: int) -> tuple[np.ndarray, np.ndarray]:
        """Lemma 11: leads of the right next token over each token, infinite over itself, and bounds of their errors.

        Args:
            effort: 0 for Lemma 3a, 1 for Lemma 3, 2 for Lemma 3 with tightened radii behind attention and MLP.
        """
        tokens = rows[:, 0]
        right = rows[:, 1]
        keys = rows[:, 2:]
        arithmetic = Arithmetic(self.weights, self.eps)
        arithmetic.proved &= self.proved
        state = arithmetic.given(self.first_states.exact[tokens], self.first_states.radius[tokens])
        for layer in self.layers:
            state = layer.apply(arithmetic, state, tokens, keys, finely=effort == 2)
        last = arithmetic.norm(state, "model.norm")
        logits = arithmetic.product(last, self.head)
        one_hot = np.eye(len(self.head.weight))
        place = right[:, None].astype(int)
        leads = np.take_along_axis(logits.exact, place, 1) - logits.exact
        if effort:
            bounds = arithmetic.error(logits, one_hot[right][:, None] - one_hot)
        else:
            apart = np.linalg.norm(self.head.weight[:, None] - self.head.weight, axis=-1)
            bounds = apart[right] * last.length[:, None] + logits.defect + np.take_along_axis(logits.defect, place, 1)
        bounds[~arithmetic.proved] = np.inf
        leads[one_hot[right] == 1] = np.inf
        return leads, bounds


# ---- 5. So? (PROOF.md: The theorem) -----------------------------------------------------------------------------------

ASKED = 10  # how many times every lead must exceed its bound
CHUNK = 2**21  # derivatives of ends by hidden units that are held at once

# The corollaries in PROOF.md.
DECODERS = "greedy decoding with this model in float32 writes exactly the right response{table} and its end token"
ENCODERS = (
    "this model in float32 gives exactly the right label{table} to every token at which the answer is read, "
    "after n + 1 passes at most for n labels"
)
BY_TABLE = ", by the table in the field `transducer`,"
PROCESSORS = (
    " ({task}), in whatever order a processor adds, if it rounds to nearest in float32 (no TF32) and its exp, log, tanh, "
    "erf, roots and quotients are within 4 units in the last place."
)


OWN_COPY = (
    "This copy of the verifier came with what it verifies, and who changed one can change the other: it proves nothing of "
    "checkpoints of others.\nOf an installed longhand, `longhand-verify FOLDER | USER/NAME` does.\n"
)


def read_checkpoint(folder: Path) -> tuple[dict[str, bytes], Json, Task, Json, dict[str, np.ndarray]]:
    """The files, the certificate, the task, config.json and the weights of a folder, if all is known here and as stated."""
    require((folder / "certificate.json").is_file(), f"the folder {folder} holds no certificate.json")
    certificate = check_certificate((folder / "certificate.json").read_bytes())
    stated = {"certified": one_of(True), "files": is_object} | dict.fromkeys(("margin", "bound", "ratio"), is_positive)
    compare("certificate.json", {name: certificate[name] for name in stated}, stated)
    files, config, vocabulary = check_folder(folder)
    task = find_task(certificate["task"], certificate["transducer"], config.get("model_type") == "pairwise_bert")
    compare("certificate.json: files", certificate["files"], {name: sha256(file) for name, file in files.items()})
    require(vocabulary == task.vocabulary, "tokenizer.json: the vocabulary is none that is known here for the task")
    check_configuration(files, config, task)
    check_code(files, config["model_type"], more=task.table is not None)
    return files, certificate, task, config, read_weights(files["model.safetensors"], config, task)


def bound_leads(network: Network, rows: np.ndarray, ratio: float, bound: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Lemma 3a, and Lemma 3 where Lemma 3a does not show `ratio` and `bound`: leads and bounds, in parts."""
    width, units = network.layers[0].linear["down_proj"].weight.shape
    most = max(1, CHUNK // (units * max(len(network.head.weight), width)))
    for first in range(0, len(rows), most):
        part = rows[first : first + most]
        leads, bounds = network.leads_and_bounds(part, effort=0)
        for effort in (1, 2):
            # No bound helps where a lead is not above 0.
            unclear = (leads > 0).all(axis=1) & ~((leads >= ratio * bounds) & (bounds <= bound)).all(axis=1)
            if unclear.any():
                bounds[unclear] = np.fmin(bounds[unclear], network.leads_and_bounds(part[unclear], effort)[1])
        yield leads, bounds


def verify(folder: Path) -> None:
    """The theorem, or Theorem 2 with an encoder: print what was read and found. Raises Refused unless everything holds."""
    files, certificate, task, config, weights = read_checkpoint(folder)
    for name, content in {"certificate.json": (folder / "certificate.json").read_bytes(), **files}.items():
        print(f"{sha256(content)}  {name}")
    rows = list_neighbourhoods(task)
    print(f"\nparameters      {sum(weight.size for weight in weights.values()):,}")
    print(f"neighbourhoods  {len(rows):,}", flush=True)
    ratio = max(ASKED, certificate["ratio"])
    bound = certificate["bound"]
    lead = math.inf
    largest = 0.0
    smallest = math.inf
    for leads, bounds in bound_leads(Network(weights, config), rows, ratio, bound):
        # Of a number and nan, these take nan, which no comparison holds for.
        lead = np.minimum(lead, leads.min())
        largest = np.maximum(largest, bounds.max())
        smallest = np.minimum(smallest, (leads / bounds).min())
        require(lead > 0, "in some neighbourhood another token leads the right one, or none does")
        require(smallest >= ASKED, f"a ratio of a lead and its bound is {smallest:.4g}, not {ASKED}")
    print(f"smallest lead   {lead:.6g}\nlargest bound   {largest:.3g}, of what rounding can move a lead")
    print(f"smallest ratio  {smallest:.4g}, of a lead and its own bound; {ASKED} is asked\n", flush=True)
    described = ", ".join(f"{name} {value}" for name, value in certificate["task"].items())
    statement = "For {problems}, " + (ENCODERS if task.encoder else DECODERS) + PROCESSORS
    statement = statement.format(problems=task.stated_problems, task=described, table=BY_TABLE if task.table else "")
    stated = {
        "statement": statement,
        "neighbourhoods": len(rows),
        "wrong": 0,
        "limits": task.limits,
        # The software measures leads in float32, and its bounds may be a little less.
        "margin": Check(lambda value: 0.99 * value <= lead, f"at most {lead:.6g}"),
        "ratio": Check(lambda value: 0.99 * value <= smallest, f"at most {smallest:.6g}"),
        "bound": Check(lambda value: largest <= 1.01 * value, f"at least {largest:.6g}"),
    }
    compare("certificate.json", {name: certificate[name] for name in stated}, stated)
    imported = imported_by(f"modeling_{config['model_type']}.py", files)
    idle = sorted(name for name in files if name.endswith(".py") and name not in imported)
    code = "and code" if any(name.endswith(".py") for name in files) else "(the code is that of an installed longhand)"
    if task.table:
        named = f"compared with {task.operation} as this file writes it"
        promised = named if task.operation in OPERATIONS else "whatever its name and options promise"
        print(f"The task is the table `transducer` of config.json, {promised}.")
    without = f", without {', '.join(idle)}, which no library reads to answer" if idle else ""
    print(f"VERIFIED. {statement} This covers the files above: weights, settings, tokenizer {code}{without}.")


def fetch(name: str) -> Path:
    """The files of a repository on the Hub that a library might read, in the cache of huggingface_hub."""
    require(re.fullmatch(r"[\w.-]+/[\w.-]+", name), f"there is no folder {name}, and that is no USER/NAME on the Hub")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise Refused("huggingface_hub is not installed: install it, or download the repository into a folder") from error
    folder = Path(snapshot_download(name, allow_patterns=[*LOADED, *IDLE[:1]], ignore_patterns=["best/*", "checkpoint-*/*"]))
    print(f"{name} at the commit {folder.name}: load it with revision={folder.name!r}")
    return folder


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    usage = "usage: longhand-verify FOLDER | USER/NAME, or python verify_certificate.py FOLDER | USER/NAME"
    if {"--help", "-h"} & {*arguments}:
        print(usage)
        print("    --known FOLDER    only whether the files are known here and as the certificate says; nothing is proved")
        return
    try:
        if arguments[:1] == ["--known"] and len(arguments) == 2:
            read_checkpoint(Path(arguments[1]))
            return
        if len(arguments) != 1 or arguments[0].startswith("-"):
            print(usage, file=sys.stderr)
            sys.exit(2)
        folder = Path(arguments[0])
        if Path(__file__).resolve().parent == folder.resolve():
            print(OWN_COPY)
        elif not folder.is_dir():
            folder = fetch(arguments[0])
        with np.errstate(all="ignore"):
            verify(folder)
    except BrokenPipeError as error:
        # Who reads the output has left: nothing was refused, and not all was checked.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"NOT FINISHED: {error}", file=sys.stderr)
        sys.exit(141)
    except Exception as error:
        sys.exit(f"REFUSED: {error}" if isinstance(error, Refused) else f"REFUSED: {type(error).__name__}: {error}")


# ---- 6. The other tasks (PROOF.md: Columns) ------------------------------------------------------------------------------
# Nothing above depends on these tasks. A reader who checks one checkpoint needs the functions of its task, which the table
# TASKS names (6c), and the form of its queries (6b).


class Difference(NamedTuple):
    """A state of `differences`.

    Attributes:
        borrow, second_borrow: what the next column of the first row, and of the second one, lacks.
        begun: whether there was a column.
        zeros_on_top: whether both numbers, of two digits or more, have a 0 at the top so far, which signed ones may not.
        rows: how many are written.
    """

    borrow: int
    second_borrow: int
    begun: bool
    zeros_on_top: bool
    rows: int


def differences(task: "Task") -> Iterator[Columns]:
    """Differences A - B of two numbers of L digits, ones first, with A >= B.

        $ 6 5 3 - 0 4 9 = 4 0 6 $      significance
        0 1 2 3 4 1 2 3 4 3 2 1 0
        0 1 1 1 1 2 2 2 3 3 3 3 0      A, B and the response, told apart because their order matters

    A >= B says that the top borrows nothing. Signed differences are those of any two numbers, of which one has no 0 at its
    top, except in 0-0, as if a borrow out of the top were free.

        $ 0 4 9 - 6 5 3 = 6 9 3 - 4 0 6 $
        0 1 2 3 4 1 2 3 4 3 2 1 4 3 2 1 0
        0 1 1 1 1 2 2 2 3 3 3 3 5 5 5 5 0      as above; 5 in a second row, which sees the first one as that one sees A

    If the top borrows, `-` and a second row follow: 0 less the first row.
    """
    signed = task.name == "signed_subtraction"

    def step(state: Difference, digits: tuple[int, int]) -> tuple[tuple[int, ...], Difference]:
        """Subtract a column; where there is a second row, subtract the first row from 0 too."""
        first, second = digits
        rest = first - second - state.borrow
        missing = -(rest % 10) - state.second_borrow
        zeros = signed and state.begun and digits == (0, 0)
        tokens = (first, second, rest % 10, missing % 10)[: 2 + state.rows]
        return tokens, Difference(int(rest < 0), int(missing < 0), True, zeros, state.rows)

    def end(state: Difference) -> tuple[int, ...] | None:
        """With two rows, `-` follows the first one. The top borrows if there are two rows, and not if there is one."""
        legal = state.begun and not state.zeros_on_top and state.borrow == state.rows - 1
        follows = (task.end,) if state.rows == 1 else (MINUS, task.end)
        return follows if legal else None

    def holds(state: Difference, digits: tuple[int, int], tokens: tuple[int, ...], after: Difference) -> bool:
        """a - b - borrow = digit - 10 (next borrow), and in the second row 0 - digit - borrow the same."""
        first = digits[0] - digits[1] - state.borrow == tokens[2] - 10 * after.borrow
        second = state.rows == 1 or -tokens[2] - state.second_borrow == tokens[3] - 10 * after.second_borrow
        return first and second

    ids = [by_column(-1, row) for row in (1, 2, 3, 5)]
    signs = (MINUS, ABSENT, EQUALS, MINUS)
    for rows in (1, 2) if signed else (1,):
        starts = {Difference(0, 0, False, False, rows): signs[: 2 + rows]}
        yield Columns(ids[: 2 + rows], rows, starts, [*product(DIGITS, repeat=2)], step, end, holds)


def strings(task: "Task") -> Iterator[Columns]:
    """Strings that are copied, reversed, or read for the parity of their beginnings.

        $ 1 8 0 9 = 1 8 0 9 $          $ 5 9 6 2 = 2 6 9 5 $          $ 1 0 1 1 = 1 1 0 1 $
        0 2 3 4 5 1 2 3 4 5 0          0 1 2 3 4 5 4 3 2 1 0          0 2 3 4 5 1 2 3 4 5 0

    A string that is reversed is read from its end. The state is None before the string, then the parity so far; 0 where no
    parity is asked.
    """
    parity = task.name == "parity"

    def step(state: int | None, symbol: int) -> tuple[tuple[int, int], int]:
        """Write the parity with the symbol, or the symbol itself."""
        if not parity:
            return (symbol, symbol), 0
        written = (state or 0) ^ symbol
        return (symbol, written), written

    def end(state: int | None) -> tuple[int, ...] | None:
        """The end token, behind one symbol or more."""
        return None if state is None else (task.end,)

    def holds(state: int | None, symbol: int, tokens: tuple[int, int], after: int) -> bool:
        """The token is the parity of the one before and the symbol, or the symbol itself."""
        return ((state or 0) + symbol - tokens[1]) % 2 == 0 if parity else symbol == tokens[1]

    rows = (by_column(-1 if task.name == "reverse" else 1),) * 2
    yield Columns(rows, 1, {None: (ABSENT, EQUALS)}, [0, 1] if parity else [*DIGITS], step, end, holds)


class Addition(IntEnum):
    """Which sum a running sum is; what its tokens see tells these apart."""

    OF_NOTHING = 0  # 0, before any number
    OF_FIRST = 1  # 0 and the first number; the `=` before the sum 0 is not where `>` is before others
    OF_MORE = 2  # a running sum and a number


class RunningSum(NamedTuple):
    """A state of `running_sums`.

    Attributes:
        carry: the number that is carried into the next column.
        columns: how many there were, 2 for any more.
        top: the digit of the number in the newest column.
        addition: which sum it is.
        last: whether it is the answer.
    """

    carry: int
    columns: int
    top: int
    addition: Addition
    last: bool


def running_sums(task: "Task") -> Iterator[Columns]:
    """Sums of n numbers by running sums, from 0 on, all of W digits, at the top of which the n numbers have zeros.

        $ 0 8 + 0 7 + 2 1 = 0 0 > 8 0 > 5 1 > 6 3 $      significance; signs stand one above the top or one below the ones
        0 2 3 1 2 3 1 2 3 1 3 2 4 3 2 4 3 2 4 3 2 0
        0 1 1 1 2 2 2 3 3 0 1 1 2 2 2 3 3 3 4 4 4 0      row: a running sum stands one below its two summands

    Running sum j is the sum of running sum j - 1, which may be any number for j > 1, and of number j. W suffices, so nothing
    is carried out of the top. `=` is seen from the top column, and sees nothing. No token sees a row's number,
    so three kinds of rows are listed: the sum 0, the first number, and sums of sums and numbers, of which the last one ends.
    """

    def step(state: RunningSum, digits: tuple[int, int]) -> tuple[tuple[int, ...], RunningSum]:
        """Add a digit of the running sum before and one of the number."""
        carry, written = divmod(state.carry + sum(digits), 10)
        summands = (ABSENT, ABSENT) if state.addition is Addition.OF_NOTHING else digits
        after = RunningSum(carry, min(2, state.columns + 1), digits[1], state.addition, state.last)
        return (*summands, ABSENT, written), after

    def end(state: RunningSum) -> tuple[int, ...] | None:
        """Nothing is carried, and the number has a 0 on top. `=` stands beyond the top, and `+` unless no number follows."""
        if state.columns < 2 or state.carry or state.top:
            return None
        plus = PLUS if state.addition is not Addition.OF_NOTHING and not state.last else ABSENT
        return (task.end if state.last else NEXT, ABSENT, plus, EQUALS, ABSENT)

    def holds(state: RunningSum, digits: tuple[int, int], tokens: tuple[int, ...], after: RunningSum) -> bool:
        """a + b + carry = digit + 10 (next carry)."""
        return sum(digits) + state.carry == tokens[-1] + 10 * after.carry

    def of_nothing(column: int) -> tuple[int, ...]:
        """Ids of the running sum 0: `=`, before it, has ids of its own."""
        return (AMID - column, 1) if column >= 0 else (1, 0)

    symbols: dict[Addition, list[tuple[int, ...]]] = {
        Addition.OF_NOTHING: [(0, 0)],
        Addition.OF_FIRST: [*product([0], DIGITS)],
        Addition.OF_MORE: [*product(DIGITS, repeat=2)],
    }
    for addition in Addition:
        before = NEXT if addition is Addition.OF_MORE else ABSENT
        begin = EQUALS if addition is Addition.OF_NOTHING else NEXT
        lasts = (False, True) if addition is Addition.OF_MORE else (False,)
        starts = {RunningSum(0, 0, 0, addition, last): (before, ABSENT, ABSENT, begin) for last in lasts}
        written_ids = of_nothing if addition is Addition.OF_NOTHING else by_column(-1, 2)
        # The running sum before, the number, `=`, and the running sum.
        rows = (by_column(-1, 1), by_column(-1, 1), by_column(-1, 0), written_ids)
        yield Columns(rows, 1, starts, symbols[addition], step, end, holds)


class Where(IntEnum):
    """Where a column stands in the partial product that a running sum adds there."""

    BEGIN = 0  # no column yet, and the first partial product, which is not shifted
    BEGIN_SHIFTED = 1  # no column yet, and a later one
    BELOW = 2  # below its ones
    IN = 3  # in its digits but the top one
    TOP = 4  # in its top digit, a carry
    ABOVE = 5


class ShiftedSum(NamedTuple):
    """A state of `partial_products`, for running sums.

    Attributes:
        carry: the number that is carried into the next column.
        where: where the newest column is in the partial product that is added.
        sums_before: 0 for the first running sum, which adds to nothing; 1 for the second, before whose summand stands `=`;
            2 for all others, before whose summands stands `>`.
        last: whether it is the answer.
    """

    carry: int
    where: Where
    sums_before: int
    last: bool


def partial_products(task: "Task") -> Iterator[Columns]:
    """Products of two numbers of N and M digits: A times each digit of B, then the running sums of these, shifted.

        $ 9 4 * 6 8 = 2 5 7 + 4 6 5 = 2 5 7 0 > 2 9 3 6 $      significance in A
        0 2 3 0 0 0 4 3 2 1 4 3 2 1 0 0 0 0 0 0 0 0 0 0 0
        0 0 0 0 2 1 1 1 1 1 2 2 2 2 1 1 1 1 1 2 2 2 2 2 0      row
        0 0 0 1 0 0 0 5 4 3 0 4 3 2 6 5 4 3 2 6 5 4 3 2 0      significance in the product

    Numbers have no zeros at the top, but for 0 itself. A partial product sees its digit of B, and the next one if there is
    one. Running sum j, in base b: the one before is below b^(N + j), whatever its digits; a partial product's top digit is a
    carry, 0 to b - 2, and its other digits may be any. The sum is below b^(N + j + 1), so nothing is carried out. `*` is
    seen from the top column of the product, and `+` that begins the next partial product from everywhere, if there is one.
    """
    base = task.described.get("radix", 10)
    digits = range(base)

    def part(column: int) -> tuple[int, ...]:
        """Ids of a partial product. Its sign, in column -1, has no significance in the product."""
        return (AMID - column, 2, AMID - column if column >= 0 else 0)

    # Partial products: what their tokens see besides the digits of A are two digits of B, or the last one alone.
    rows = []
    for ones, after, begin in product(digits, (ABSENT, *digits), (EQUALS, PLUS)):
        follows = EQUALS if after == ABSENT else PLUS
        rows.append(MultiplesRow((ones, after), ones, 0, follows, begin))
    yield multiples((by_column(-1, 0, 0), alone(0, 2, 0), alone(0, 3, 0), part), rows, base, 1)

    # Running sums.
    behind = {
        Where.BELOW: (Where.BEGIN_SHIFTED, Where.BELOW),
        Where.IN: (Where.BEGIN, Where.BELOW, Where.IN),
        Where.TOP: (Where.IN,),
        Where.ABOVE: (Where.TOP, Where.ABOVE),
    }

    def step(state: ShiftedSum, symbol: tuple[int, int, Where]) -> tuple[tuple[int, ...], ShiftedSum] | None:
        """Add a digit of the running sum before and one of the partial product, which ends at the top of the last sum."""
        before, added, where = symbol
        if state.where not in behind[where] or (state.last and where is Where.ABOVE):
            return None
        if before and not state.sums_before:
            return None
        carry, written = divmod(state.carry + before + added, base)
        seen = (before if state.sums_before else ABSENT, added if where in (Where.IN, Where.TOP) else ABSENT)
        plus = ABSENT if state.last else PLUS
        return (*seen, plus, ABSENT, written), ShiftedSum(carry, where, state.sums_before, state.last)

    def end(state: ShiftedSum) -> tuple[int, ...] | None:
        """Nothing is carried. `*` stands beyond the top."""
        if state.where is not (Where.TOP if state.last else Where.ABOVE) or state.carry:
            return None
        return (task.end if state.last else NEXT, ABSENT, ABSENT, ABSENT, TIMES, ABSENT)

    def holds(state: ShiftedSum, symbol: tuple[int, int, Where], tokens: tuple[int, ...], after: ShiftedSum) -> bool:
        """a + b + carry = digit + base (next carry)."""
        before, added, _ = symbol
        return before + added + state.carry == tokens[-1] + base * after.carry

    def in_product(significance: int, row: int) -> Ids:
        """Ids of a row by its column in the product."""
        return lambda column: (significance, row, AMID - column)

    starts = {}
    for (sums_before, sign), last in product(enumerate((ABSENT, EQUALS, NEXT)), (False, True)):
        begin = Where.BEGIN_SHIFTED if sums_before else Where.BEGIN
        first_token = NEXT if sums_before else EQUALS
        starts[ShiftedSum(0, begin, sums_before, last)] = (sign, ABSENT, ABSENT if last else PLUS, ABSENT, first_token)
    symbols = [
        *product(digits, [0], [Where.BELOW]),
        *product(digits, digits, [Where.IN]),
        *product([0], digits[:-1], [Where.TOP]),
        (0, 0, Where.ABOVE),
    ]
    # The running sum before, the partial product that is added, the `+` before the next one, `*`, and the running sum. Of
    # significance in A a running sum sees whether there is any: 9 stands for all.
    ids = (in_product(0, 1), in_product(9, 2), alone(9, 3, 0), in_product(0, 0), in_product(0, 2))
    yield Columns(ids, 1, starts, symbols, step, end, holds)


def products(task: "Task") -> Iterator[Columns]:
    """Products of a number A of any length N without zeros at the top, and B of M = 1 or 2 digits; N + M digits, ones first.

    $ 6 5 3 * 4 9 = 7 9 9 1 3 $      significance, for B none
    0 3 4 5 0 0 0 6 5 4 3 2 1 0
    0 0 0 0 4 1 2 3 3 3 3 3 3 0      digits of B; the response
    """
    count = task.operands
    ids = (by_column(-1, 0), *(alone(0, 1 + place) for place in range(count)), by_column(-1, 1 + count))
    rows = []
    for digits in product(DIGITS, repeat=count):
        # With two digits, the tens multiply the digit of A in the column below.
        rows.append(MultiplesRow(digits, digits[-1], digits[0] if count == 2 else 0, task.end, EQUALS))
    yield multiples(ids, rows, 10, count)


class MultiplesRow(NamedTuple):
    """A row of multiples of a number A.

    Attributes:
        seen: the tokens that are seen from all its columns.
        factor, factor_below: by what the digits of A in a column, and in the one below it, are multiplied.
        follows: the token behind its last column.
        begins: the token that begins it.
    """

    seen: tuple[int, ...]
    factor: int
    factor_below: int
    follows: int
    begins: int


class Multiple(NamedTuple):
    """A state of `multiples`.

    Attributes:
        row: which multiples.
        below: the digit of A in the column below.
        carry: the number that is carried into the next column.
        number: how far A is.
        beyond: how many columns beyond A there were.
    """

    row: MultiplesRow
    below: int
    carry: int
    number: Number
    beyond: int


def multiples(ids: tuple[Ids, ...], rows: Iterable[MultiplesRow], base: int, more: int) -> Columns:
    """Multiples of a number A of any length without zeros at the top, with so many columns more than A has."""

    def step(state: Multiple, digit: int | None) -> tuple[tuple[int, ...], Multiple] | None:
        """Multiply a column; without a digit, a column beyond A."""
        row = state.row
        number = grow(state.number, digit)
        beyond = state.beyond + (digit is None)
        if number is None or beyond > more:
            return None
        following, written = divmod(row.factor * (digit or 0) + row.factor_below * state.below + state.carry, base)
        seen = (ABSENT if digit is None else digit, *row.seen, written)
        return seen, Multiple(row, digit or 0, following, number, beyond)

    def holds(state: Multiple, digit: int | None, tokens: tuple[int, ...], after: Multiple) -> bool:
        """Digits times factors, and the carry, are digit + base (next carry); nothing is carried out of the last column."""
        total = state.carry + state.row.factor * (digit or 0) + state.row.factor_below * state.below
        return total == tokens[-1] + base * after.carry and (after.carry == 0 or after.beyond < more)

    def end(state: Multiple) -> tuple[int, ...] | None:
        """The token behind the last column of the row."""
        return (state.row.follows,) if state.beyond == more else None

    starts = {Multiple(row, 0, 0, Number.BEFORE, 0): (ABSENT, *row.seen, row.begins) for row in rows}
    return Columns(ids, 1, starts, [None, *range(base)], step, end, holds)


class Division(NamedTuple):
    """A state of `quotients`.

    Attributes:
        divisor: v.
        rest: the remainder of the digits so far.
        top: whether the first digit is 0, behind which nothing stands, or another; None before it.
    """

    divisor: int
    rest: int
    top: int | None


def quotients(task: "Task") -> Iterator[Columns]:
    """A number A of any length without zeros at the top, and v, of one digit and not 0: remainders, then the quotient.

    $ 8 7 6 4 / 7 = 1 3 1 0 > 1 2 5 2 $      column, from the top; v has none
    0 2 3 4 5 6 0 1 2 3 4 5 1 2 3 4 5 0
    0 0 0 0 0 0 1 2 2 2 2 2 3 3 3 3 3 0      v; the remainders; the quotient
    """

    def step(state: Division, digit: int) -> tuple[tuple[int, ...], Division] | None:
        """Divide the remainder and a digit behind it."""
        if state.top == 0:
            return None
        quotient, rest = divmod(10 * state.rest + digit, state.divisor)
        top = min(1, digit) if state.top is None else state.top
        return (digit, state.divisor, rest, quotient), Division(state.divisor, rest, top)

    def end(state: Division) -> tuple[int, ...] | None:
        """`>` follows the remainders; `/` stands beyond A."""
        return None if state.top is None else (NEXT, task.end, OVER, ABSENT, ABSENT, ABSENT)

    def holds(state: Division, digit: int, tokens: tuple[int, ...], after: Division) -> bool:
        """10 rest + digit = divisor * quotient + next rest, and 0 <= next rest < divisor."""
        divides = 10 * state.rest + digit == state.divisor * tokens[3] + tokens[2]
        return divides and 0 <= tokens[2] == after.rest < state.divisor

    rows = (by_column(1, 0), alone(0, 1), by_column(1, 2), by_column(1, 3))
    starts = {Division(v, 0, None): (ABSENT, v, EQUALS, NEXT) for v in DIGITS[1:]}
    yield Columns(rows, 2, starts, [*DIGITS], step, end, holds)


class Walk(NamedTuple):
    """A state of `of_table`.

    Attributes:
        beyond: how many columns beyond the operands the newest one is; -1 before the first column.
        passes: the state of each pass.
    """

    beyond: int
    passes: tuple[int, ...]


def of_table(task: "Task") -> Iterator[Columns]:
    """A task of its author's own, as config.json gives it: alphabet, sign, and a table for each pass over the columns.

        $ 3 f + a 1 = 0 e 0 $      column, here with the ones first
        0 2 3 4 2 3 4 3 2 1 0
        0 1 1 0 1 1 2 2 2 2 0      row; operands have rows of their own if their order matters

    Operands are padded to one width. In the columns beyond it they read as symbol 0, and no token stands there. A pass may
    read what earlier ones wrote. Each begins with `=` or `>`, writes a symbol for each column and for some more, and ends.
    If passes have both directions, columns come with the ones first, and a pass from the top is in a state that is guessed:
    a symbol holds the guess of the state before its column, which must lead to the state behind it, and the last guess must
    be the first state.
    """
    table = task.table
    passes = table["passes"]
    operands = table["operands"]
    guessed = from_the_top(table)
    most = max(table_pass["flush"] for table_pass in passes)
    number = {text: place for place, text in enumerate(task.vocabulary)}
    digits = [number[symbol] for symbol in table["alphabet"]]
    written_as = [[number[symbol] for symbol in table_pass["writes"]] for table_pass in passes]
    sizes = [len(digits)] * operands + [len(symbols) for symbols in written_as]
    begins = [EQUALS, *[NEXT] * (len(passes) - 1)]
    follows = [*[NEXT] * (len(passes) - 1), task.end]

    def step(state: Walk, symbols: tuple[int, ...] | None) -> tuple[tuple[int, ...], Walk] | None:
        """Read the symbols of a column, and guesses behind them; without symbols, a column beyond the operands."""
        if symbols is None:
            if not 0 <= state.beyond <= most:
                return None
            beyond = state.beyond + 1
            read = [0] * operands
            tokens = [ABSENT] * operands
        else:
            if state.beyond > 0:
                return None
            beyond = 0
            read = [*symbols[:operands]]
            tokens = [digits[symbol] for symbol in read]
        states = [*state.passes]
        written = []
        for place, table_pass in enumerate(passes):
            entry = 0
            for source in table_pass.get("reads", range(operands)):
                entry = entry * sizes[source] + read[source]
            if place in guessed and symbols is not None:
                states[place] = symbols[operands + guessed.index(place)]
                if table_pass["next"][states[place]][entry] != state.passes[place]:
                    return None
            if beyond <= table_pass["flush"]:
                symbol = table_pass["write"][states[place]][entry]
                token = follow = written_as[place][symbol]
                if place not in guessed:
                    states[place] = table_pass["next"][state.passes[place]][entry]
            else:
                symbol = 0
                token = ABSENT
                follow = follows[place]
            if place in guessed:
                # A pass from the top begins in the column beyond the operands.
                token = begins[place] if beyond == 1 else token
                follow = token
            read.append(symbol)
            tokens.append(token)
            written.append(follow)
        return (*tokens, *written), Walk(beyond, tuple(states))

    def end(state: Walk) -> tuple[int, ...] | None:
        """Every pass has written all its symbols, and a guessed one was in its first state before the top."""
        legal = state.beyond > most and all(state.passes[place] == passes[place]["start"] for place in guessed)
        return tuple(follows) if legal else None

    def holds(*entry: Any) -> bool:
        """A table means itself; `check_operation` compares it with what its name says."""
        return True

    # In the column before the ones stands what begins a pass from the ones, and what follows a pass from the top.
    signs = [ABSENT if place in guessed else begin for place, begin in enumerate(begins)]
    signs += [follow if place in guessed else ABSENT for place, follow in enumerate(follows)]
    states = states_before(table)
    starts = {Walk(-1, behind): (*[ABSENT] * operands, *signs) for behind in product(*states)}
    symbols = product(*[range(len(digits))] * operands, *(states[place] for place in guessed))
    ones_first = any(table_pass["direction"] == "ones_first" for table_pass in passes)
    rows = tuple(by_column(-1 if ones_first else 1, row) for row in rows_of(table))
    backward = tuple(operands + place for place in guessed)
    yield Columns(rows, len(passes), starts, [None, *symbols], step, end, holds, backward)


def from_the_top(table: Json) -> list[int]:
    """The passes that read from the top, if there are others."""
    directions = [table_pass["direction"] for table_pass in table["passes"]]
    if len({*directions}) == 1:
        return []
    return [place for place, direction in enumerate(directions) if direction == "top_first"]


def states_before(table: Json) -> list[list[int]]:
    """The states of each pass in which a run may begin: its first one, or any one if it is guessed."""
    states = [[table_pass["start"]] for table_pass in table["passes"]]
    for place in from_the_top(table):
        states[place] = [*range(len(table["passes"][place]["write"]))]
    return states


LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"  # digits of numbers in bases up to 36


class Operation(NamedTuple):
    """Arithmetic on columns, as this file writes it. The table of a task of its name must be this one, and no other.

    Attributes:
        operands, sign, alphabet, writes, direction, flush, answer: the fields of a table that makes one pass.
        start: the first value, such as a carry.
        step: from a value and the places of a column's symbols to the place of what is written and the next value.
    """

    operands: int
    sign: str
    alphabet: str
    writes: str
    direction: str
    flush: int
    answer: str
    start: int
    step: Callable[[int, tuple[int, ...]], tuple[int, int]]


def numbers_added(task: "Task") -> Operation:
    """Sums of two numbers in a base, the ones first; what is carried out of the top is written behind it."""
    radix = task.described["radix"]

    def step(carry: int, digits: tuple[int, ...]) -> tuple[int, int]:
        """a + b + carry = digit + radix (next carry)."""
        following, digit = divmod(sum(digits) + carry, radix)
        return digit, following

    return Operation(2, "+", LETTERS[:radix], LETTERS[:radix], "ones_first", 1, "all", 0, step)


def one_added(task: "Task") -> Operation:
    """A number and one more: the first carry is 1."""

    def step(carry: int, digits: tuple[int, ...]) -> tuple[int, int]:
        """a + carry = digit + 10 (next carry)."""
        following, digit = divmod(digits[0] + carry, 10)
        return digit, following

    return Operation(1, "", LETTERS[:10], LETTERS[:10], "ones_first", 1, "all", 1, step)


def number_multiplied(task: "Task") -> Operation:
    """Products with a constant, which add at most as many digits as the constant has."""
    factor = task.described["factor"]

    def step(carry: int, digits: tuple[int, ...]) -> tuple[int, int]:
        """factor a + carry = digit + 10 (next carry)."""
        following, digit = divmod(factor * digits[0] + carry, 10)
        return digit, following

    return Operation(1, "", LETTERS[:10], LETTERS[:10], "ones_first", len(str(factor)), "all", 0, step)


def remainder_of_prefix(task: "Task") -> Operation:
    """The remainder of a number, in which a digit counts a tenth of the one above it, or that of the sum of its digits."""
    modulus = task.described["modulus"]
    weight = 1 if task.operation == "digit_sum" else 10

    def step(rest: int, digits: tuple[int, ...]) -> tuple[int, int]:
        """The remainder of weight (the digits above) + digit; what is written last is the answer."""
        rest = (weight * rest + digits[0]) % modulus
        return rest, rest

    return Operation(1, "", LETTERS[:10], LETTERS[:modulus], "top_first", 0, "last", 0, step)


def numbers_compared(task: "Task") -> Operation:
    """The sign of a difference: that of the first two digits, from the top, that differ."""

    def step(found: int, digits: tuple[int, ...]) -> tuple[int, int]:
        """0 while all digits are equal, then 1 for a first number that is larger, 2 for a second one."""
        first, second = digits
        if not found and first != second:
            found = 1 if first > second else 2
        return found, found

    return Operation(2, "?", LETTERS[:10], "0+-", "top_first", 0, "last", 0, step)


def bits_joined(task: "Task") -> Operation:
    """And, or, and exclusive or of two numbers in base 2, bit by bit."""
    sign, join = BITWISE[task.described["operation"]]

    def step(nothing: int, bits: tuple[int, ...]) -> tuple[int, int]:
        """Nothing is carried."""
        return join(*bits), 0

    return Operation(2, sign, "01", "01", "top_first", 0, "all", 0, step)


def gray_code(task: "Task") -> Operation:
    """A number in base 2 as reflected Gray code."""

    def step(above: int, bits: tuple[int, ...]) -> tuple[int, int]:
        """A bit is written if it differs from the one above."""
        return above ^ bits[0], bits[0]

    return Operation(1, "", "01", "01", "top_first", 0, "all", 0, step)


BITWISE = {"and": ("&", int.__and__), "or": ("|", int.__or__), "xor": ("^", int.__xor__)}
is_base = between(1, 37, int)
# Names of operations that tables may have, with how the operation is written here, and the options that it takes.
OPERATIONS: dict[str, tuple[Callable[["Task"], Operation], Json]] = {
    "base_addition": (numbers_added, {"radix": is_base}),
    "plus_one": (one_added, {}),
    "constant_multiplication": (number_multiplied, {"factor": between(1, 1001, int)}),
    "remainder": (remainder_of_prefix, {"modulus": is_base}),
    "digit_sum": (remainder_of_prefix, {"modulus": is_base}),
    "comparison": (numbers_compared, {}),
    "bitwise": (bits_joined, {"operation": one_of(*BITWISE)}),
    "gray_code": (gray_code, {}),
}


def check_operation(task: "Task") -> None:
    """If a table has the name of an operation, it is that operation's table, in every field that says how a text is read."""
    if task.operation not in OPERATIONS:
        return
    write, options = OPERATIONS[task.operation]
    compare("certificate.json, task", task.described, {"task": task.name, "separate_eos": is_flag, **options})
    operation = write(task)
    table = task.table
    table_pass = task.table["passes"][0]
    found = {name: table[name] for name in ("operands", "sign", "alphabet", "answer")}
    found |= {name: table_pass[name] for name in ("writes", "direction", "flush")}
    found |= {"number of passes": len(table["passes"]), "reads": table_pass.get("reads", [*range(table["operands"])])}
    expected = {name: getattr(operation, name) for name in found if name in Operation._fields}
    expected |= {"number of passes": 1, "reads": [*range(operation.operands)]}
    compare(f"transducer, which is not that of {task.operation}", found, expected)
    # States are mere numbers in a table. Each that a run reaches stands for one value.
    values = {table_pass["start"]: operation.start}
    waiting = [table_pass["start"]]
    for state in waiting:  # It grows.
        for entry, symbols in enumerate(product(range(len(operation.alphabet)), repeat=operation.operands)):
            written, value = operation.step(values[state], symbols)
            following = table_pass["next"][state][entry]
            if following not in values:
                values[following] = value
                waiting.append(following)
            right = (table_pass["write"][state][entry], values[following]) == (written, value)
            require(right, f"the table's entry for the state {state} and {symbols} does not hold in {task.operation}")


def rows_of(table: Json) -> list[int]:
    """Ids of the rows of operands and passes. No two pairs of a pass and what it reads differ alike."""
    is_shared = all(table_pass["symmetric"] for table_pass in table["passes"])
    operands = [1 if is_shared else place + 1 for place in range(table["operands"])]
    return operands + [(operands[-1] + 1) * 2**place for place in range(len(table["passes"]))]


# ---- 6a. Which cases? (PROOF.md: Lists that no transducer makes; Encoders that settle) --------------------------------
# These tasks list cases by themselves: a token, what is right next, and what the token sees, as `see` codes it, in arrays
# with all that go together, or one for all. An encoder's cases are those of Theorem 2.


def boards(task: "Task") -> Iterator[Case]:
    """Lemma 2a. Boards of mines: the response gives the mines beside each cell, row by row.

        $ M _ _ > _ _ M = M 2 1 1 2 M $      column
        0 1 2 3 0 1 2 3 1 2 3 1 2 3 1 0      row; a token of the response has the ids of the cell that comes next
        0 1 1 1 0 2 2 2 1 1 1 2 2 2 3 0
        0 0 0 0 2 0 0 0 1 1 1 1 1 1 1 0      1: in the response; 2: end of a row

    Boards of up to 4 x 4 cells show all that boards of any size show (PROOF.md, Lemma 2a).
    """
    for height, width in product(range(1, 5), repeat=2):
        mines = np.array([*product((0, 1), repeat=height * width)]).T.reshape(height, width, -1)
        padded = np.pad(mines, ((1, 1), (1, 1), (0, 0)))
        count = sum(padded[y : y + height, x : x + width] for y, x in product(range(3), repeat=2))
        cells = [(column, row) for row, column in product(range(1, height + 1), range(1, width + 1))]
        text: list[tuple[tuple[int, ...], int | np.ndarray]] = [
            ((0, 0, 2), NEXT),
            *(((x, y, 0), np.where(mines[y - 1, x - 1], MINE, BLANK)) for x, y in cells),
        ]
        answer = [EQUALS, *np.where(mines, MINE, count).reshape(height * width, -1), task.end]
        for place, following in enumerate([*cells, (1, height + 1)]):
            token_ids = (*following, 1)
            text.append((token_ids, answer[place]))
            keys = []
            for ids, token in text:
                relation = relate(token_ids, ids, task.window)
                if relation is not None:
                    keys.append(see(relation, token))
            yield answer[place], answer[place + 1], *keys


class Labelled(NamedTuple):
    """A state of `labels`.

    Attributes:
        factor: the digit m; 1 in sums.
        carry: the number that is carried into the next column.
        numbers: how far the numbers are.
    """

    factor: int
    carry: int
    numbers: tuple[Number, ...]


class Seen(NamedTuple):
    """A key of an encoder's tokens: arrays with an entry for each token, or one value for all of them.

    Attributes:
        relation: that of the place to the token.
        token: `ABSENT` where there is none.
        label: the right label, by its place; `ABSENT` where no answer is read.
    """

    relation: int
    token: int | np.ndarray
    label: int | np.ndarray


def labels(task: "Task") -> Iterator[Case]:
    """Lemma 12. Labels of an encoder, read at the second number and the operator, in passes; each sees those before it.

        _ 1 6 + _ 9 5      column                       7 * _ 3 5      place, to the right
        3 2 1 4 3 2 1                                   0 1 2 3 4
        . . . _ 1 1 1      label: 16 + 95 = 111         1 0 0 0 0      the digit m, which all see
                                                        . _ 2 4 5      label: 7 * 35 = 245

    A token sees its own column and the one below, and labels there: the right ones, or `?`, not known yet. The right next
    label is the digit if the tokens and labels that are seen decide the carry, else `?`. They decide the carry if there is
    no column below, if the label there is known, or if one carry alone comes out of such digits. A known label stays, since
    the tokens and labels that decided it stay. So each pass makes the lowest unknown label known, and the passes end with
    the answer (PROOF.md, Theorem 2).

    A number has no 0 at its top, but for 0 itself, and `_` above it. Where there are no digits, the label is the carry, or
    `_` for 0; zero times a number is `__0`.
    """
    times = task.name == "encoder_multiplication"
    operator = TIMES if times else PLUS
    count = 1 if times else 2

    def added(state: Labelled, column: tuple[int, ...]) -> int:
        """The sum of the carry and of the column's digits, multiplied by m in products."""
        return state.carry + state.factor * sum(token for token in column if token in DIGITS)

    def step(state: Labelled, column: tuple[int, ...]) -> tuple[tuple[int, ...], Labelled] | None:
        """Label a column of digits and `_`. Words: a digit and another one, or m and a digit; the carry; the label."""
        numbers = []
        for number, token in zip(state.numbers, column, strict=True):
            following = grow(number, None if token == BLANK else token)
            if following is None:
                return None
            numbers.append(following)
        carry, digit = divmod(added(state, column), 10)
        begun = state.numbers[0] is not Number.BEFORE
        above = begun and (all(token == BLANK for token in column) or state.factor == 0)
        label = EMPTY if above and carry == 0 and digit == 0 else digit
        shown = (state.factor, *column) if times else column
        return (*shown, state.carry, label), Labelled(state.factor, carry, tuple(numbers))

    def end(state: Labelled) -> tuple[int, ...] | None:
        """A token behind the pass, which no encoder writes, and the column of the operator, whose label is the carry."""
        if not {*state.numbers} <= MAY_END:
            return None
        return (BEGIN, state.factor if times else ABSENT, operator, state.carry, state.carry or EMPTY)

    def holds(state: Labelled, column: tuple[int, ...], tokens: tuple[int, ...], after: Labelled) -> bool:
        """a + b + carry, or m a + carry, = digit + 10 (next carry); `_` stands for 0."""
        return added(state, column) == tokens[-1] % EMPTY + 10 * after.carry

    starts = {}
    for factor in DIGITS if times else (1,):
        starts[Labelled(factor, 0, (Number.BEFORE,) * count)] = (factor if times else ABSENT, ABSENT, ABSENT, ABSENT)
    symbols = [*product((*DIGITS, BLANK), repeat=count)]
    # Rows have no ids: `words_in_view` gives words by row and column, and relations are named below.
    columns = Columns((alone(),) * 4, 1, starts, symbols, step, end, holds)
    FIRST, SECOND, CARRY, LABEL = range(4)
    # The window has columns -1 and 0; of the carry, and of what the pass writes, column 0 alone.
    named = words_in_view(columns, [-1, -1, 0, -1, 0], 0, SECOND)
    # Without a column below, no digits are seen there, and the carry is always 0.
    decided = all_agree([named[FIRST, -1], named[SECOND, -1]], named[CARRY, 0])
    here, below = (1, 0) if times else (0, 1)
    itself = Seen(here, named[SECOND, 0], named[LABEL, 0])
    others = [Seen(below, named[SECOND, -1], named[LABEL, -1])]
    if times:
        others.append(Seen(2, named[FIRST, 0], ABSENT))
    else:
        others += [Seen(here, named[FIRST, 0], ABSENT), Seen(below, named[FIRST, -1], ABSENT)]
    yield from cases_of_labels(task, decided, itself, *others)


def words_in_view(columns: Columns, lows: list[int], high: int, row: int) -> dict[tuple[int, int], np.ndarray]:
    """Theorem 1: the words of all windows, see `windows`, in which a row has a token in column 0, by row and column."""
    found = [
        {name: tokens[words[row, 0] != ABSENT] for name, tokens in words.items()} for words in windows(columns, lows, high)
    ]
    return {name: np.concatenate([words[name] for words in found]) for name in found[0]}


def all_agree(seen: list[np.ndarray], values: np.ndarray) -> np.ndarray:
    """Lemma 12: whether tokens alone decide a label, which they do if all that see the same have the same value."""
    group = np.unique(np.stack(seen, axis=1), axis=0, return_inverse=True)[1].ravel()
    different = np.bincount(np.unique([group, values], axis=1)[0])
    return different[group] == 1


def cases_of_labels(task: "Task", decided: object, itself: Seen, *others: Seen) -> Iterator[Case]:
    """Theorem 2: cases in which the labels that a token sees are known or not, and its own too, if it is right by then.

    Args:
        decided: whether the tokens that are seen decide the label. If all labels of others are known, they decide it.
        itself: the token itself.
        others: the keys that it sees.
    """
    unknown = len(task.labels) - 1
    for known in product(*[(False, True) if np.any(other.label != ABSENT) else (True,) for other in others]):
        shown = []
        for is_known, other in zip(known, others, strict=True):
            shown.append(np.where(is_known | (other.label == ABSENT), other.label, unknown))
        all_known = sum(label == unknown for label in shown) == 0
        right = np.where(decided | all_known, itself.label, unknown)
        seen = []
        for other, label in zip(others, shown, strict=True):
            seen.append(see(other.relation, number_of(task, other.token, label)))
        for state in (np.full_like(right, unknown), right):
            token = number_of(task, itself.token, state)
            yield token, right, see(itself.relation, token), *seen


def labels_of_table(task: "Task") -> Iterator[Case]:
    """Lemma 12. Labels of an encoder, for a task of its author's own in which one pass is made over the columns.

        3 f + a 1 = > > >      `>` of column i sees itself, the token before it, and the operands in a window around column
        1 0   1 0   0 1 2      i - 1; columns count in the direction of the pass

    Right next is the label if all runs give it in which the token sees the same, else `>`, not known yet. With the label
    before known there is one, or `=`: that no two cases are alike and differ there is checked.
    """
    (table_pass,) = task.table["passes"]
    count = task.table["operands"]
    low, high = table_pass["window"]
    (columns,) = of_table(task)
    # An operand's column k of the window is k - 1 of the token's own.
    named = words_in_view(columns, [low - 1] * count + [-1, 0], max(0, high - 1), count)
    # `=`, in the column before the first one, has no label.
    named = {name: tokens[named[count, 0] != EQUALS] for name, tokens in named.items()}
    label_of = np.full(len(task.vocabulary), ABSENT)
    label_of[[task.vocabulary.index(symbol) for symbol in table_pass["writes"]]] = range(len(table_pass["writes"]))
    label = label_of[named[count, 0]]
    label_before = label_of[named[count, -1]]
    step = 1 if table_pass["symmetric"] else count
    places = product(range(low, high + 1), range(count))
    read = []
    for offset, row in places:
        # Rows whose order does not matter have one relation for each column.
        relation = 2 + (offset - low) * step + (0 if table_pass["symmetric"] else row)
        read.append(Seen(relation, named[row, offset - 1], ABSENT))
    shown = np.sort([see(key.relation, key.token) for key in read], axis=0)
    decided = all_agree([label_before == ABSENT, *shown], label)
    before = Seen(1, np.where(label_before == ABSENT, EQUALS, NEXT), label_before)
    yield from cases_of_labels(task, decided, Seen(0, NEXT, label), before, *read)


def labels_in_grid(task: "Task") -> Iterator[Case]:
    """Lemma 12a. Labels of an encoder in the grid of a product A * B of any two numbers, here 12 * 34, in passes as above.

         0  1  2  *          .  .  .  .      the digits of A, with a 0 on top, head the columns
        -_ -_ -_  4         00 04 08  .      the digits of B, ones first, head the rows
        -_ -_ -_  3         00 04 10  .      a cell has the labels C, read at `-`, and S, read at `_`

    Right are the digits with 10 C + S = a b + s + c: the heads a and b of the cell, the S of the cell up and to the left,
    and the C of the cell on the right. A token of a cell sees itself and these four. Right next is the label if s and c are
    known, or not there, else `?`. A cell of column i and row j, from the ones, comes after the two that it sees, whose
    i + 2j is smaller by 1, and the last row and the ones column end with the product (PROOF.md, Lemma 12a).

    In the first row there is no s; nor in the column of the 0 on top, to the left of which there is no cell. In the ones
    column there is no c. In the first row c is at most b - 1, or 0, since 9b + b - 1 = 10b - 1, and in others at most b,
    since 9b + 9 + b = 10b + 9.
    """
    for first_row, (ones, top) in product((False, True), ((True, False), (False, False), (False, True))):
        no_s = first_row or top
        ranges = [0] if top else DIGITS, DIGITS, [0] if no_s else DIGITS, [0] if ones else DIGITS
        a, b, s, c = np.array([*product(*ranges)]).T
        legal = c <= np.maximum(b - first_row, 0)
        a, b, s, c = (part[legal] for part in (a, b, s, c))
        others = (
            Seen(3, ABSENT if no_s else BLANK, np.where(no_s, ABSENT, s)),
            Seen(4, ABSENT if ones else MINUS, np.where(ones, ABSENT, c)),
            Seen(1, a, ABSENT),
            Seen(2, b, ABSENT),
        )
        total = a * b + s + c
        yield from cases_of_labels(task, False, Seen(0, BLANK, total % 10), *others)
        yield from cases_of_labels(task, False, Seen(0, MINUS, total // 10), *others)


# ---- 6b. Which queries? (PROOF.md: What the proof does not say) -------------------------------------------------------
# A configuration says which queries the software takes. It must be these, all of them and no others: of a query that is
# refused, or that a pattern takes years to read, nothing is answered.

NUMBER, NUMBER_ONES_FIRST, FIELD = "(?:0|[1-9][0-9]*)", "(?:0|[0-9]*[1-9])", "_{0,}"


WITHOUT_HINTS = {"hint_step": 0, "hints_given": False}  # also where these fields are missing


def check_prompt_format(found: object, expected: object) -> None:
    """Compare the field `prompt_format` of a configuration with `Task.prompt_format`."""
    if isinstance(found, dict) and isinstance(found.get("formats"), list):
        found = found | {"formats": [WITHOUT_HINTS | form if is_object(form) else form for form in found["formats"]]}
    elif isinstance(found, dict):
        found = WITHOUT_HINTS | found
    compare("config.json: prompt_format", found, expected)


class Prompt(NamedTuple):
    """The form of a query, as a configuration holds it.

    Attributes:
        pattern: a regular expression of the whole query without `$`.
        response: that of the beginnings of a response; None for an encoder.
        equal_widths: whether all numbers, or rows of a board, have one width.
        larger_first: whether the first number is not below the second.
        ones_first: whether numbers begin with the ones.
    """

    pattern: str
    response: str | None = "[0-9]*"
    equal_widths: bool = False
    larger_first: bool = False
    ones_first: bool = False

    def is_legal(self, query: object) -> bool:
        """Whether an example is a query of this form, and short."""
        if not isinstance(query, str) or len(query) > 100 or not re.fullmatch(self.pattern, query):
            return False
        parts = re.findall("[^-+*/>=]+", query)
        has_one_width = len({*map(len, parts)}) == 1
        return (has_one_width or not self.equal_widths) and (not self.larger_first or parts[0] >= parts[1])

    def fields(self) -> Json:
        """The fields that `compare` expects in a configuration."""
        return {
            **self._asdict(),
            **WITHOUT_HINTS,
            "example": Check(self.is_legal, f"a short query of the form {self.pattern}"),
        }


def prompt_of_sums(task: "Task") -> Prompt:
    """Two numbers, padded to one width or without zeros on top; or several, with a 0 on top."""
    if task.name == "multi_operand_addition":
        return Prompt(rf"0[0-9]+(?:\+0[0-9]+){{{task.operands - 1}}}=", equal_widths=True)
    padded = task.described["zero_padding"]
    ones_first = task.described["order"] == "all_reversed"
    number = "[0-9]+" if padded else NUMBER_ONES_FIRST if ones_first else NUMBER
    return Prompt(rf"{number}\+{number}=", equal_widths=padded, ones_first=ones_first)


def prompt_of_running_sums(task: "Task") -> Prompt:
    """n numbers with as many zeros on top as n - 1 has digits."""
    forms = []
    for digits in range(1, 7):
        number = f"0{{{digits}}}[0-9]+"
        forms.append(rf"{number}(?:\+{number}){{{10 ** (digits - 1)},{10**digits - 1}}}=")
    return Prompt("|".join(forms), "(?:[0-9]+>)*[0-9]*", equal_widths=True)


def prompt_of_partial_products(task: "Task") -> Prompt:
    """Two numbers in a base of at most 10."""
    last = task.described["radix"] - 1
    number = NUMBER.replace("9", str(last))
    return Prompt(rf"{number}\*{number}=", f"(?:[0-{last}]+[+=>])*[0-{last}]*")


def prompt_of_products(task: "Task") -> Prompt:
    """A number without zeros on top, and one of M digits."""
    return Prompt(rf"{NUMBER}\*[0-9]{{{task.operands}}}=")


# By tasks: what is written alike for all of their formats, or how it follows from the format.
PROMPTS: dict[str, Prompt | Callable[["Task"], Prompt]] = {
    "addition": prompt_of_sums,
    "multi_operand_addition": prompt_of_sums,
    "subtraction": Prompt("[0-9]+-[0-9]+=", equal_widths=True, larger_first=True),
    "signed_subtraction": Prompt("[1-9][0-9]*-[0-9]+=|[0-9]+-[1-9][0-9]*=|0-0=", "[0-9]*(?:-[0-9]*)?", equal_widths=True),
    "copy": Prompt("[0-9]+="),
    "reverse": Prompt("[0-9]+="),
    "parity": Prompt("[0-1]+=", "[0-1]*"),
    "minesweeper": Prompt("[M_]+(?:>[M_]+)*=", "[M0-8]*", equal_widths=True),
    "addition_scratchpad": prompt_of_running_sums,
    "multiplication_scratchpad": prompt_of_partial_products,
    "multiplication": prompt_of_products,
    "division": Prompt(f"{NUMBER}/[1-9]=", "[0-9]*(?:>[0-9]*)?"),
    "encoder_addition": Prompt(rf"{FIELD}{NUMBER}\+{FIELD}{NUMBER}", None, equal_widths=True),
    "encoder_multiplication": Prompt(rf"[0-9]\*{FIELD}{NUMBER}", None),
    "encoder_multiplication_grid": Prompt(r"0[0-9]+\*(?:(?:-_)+[0-9])+", None),
}


# ---- 6c. All tasks by their names (PROOF.md: Definitions) ---------------------------------------------------------------

NEXT_COLUMN, DIFFERENCE = ((0,), (1,)), ((0, 2), (0, 1), (1, 2), (1, 1))
SCRATCHPAD = (
    (0, QUERY, QUERY),
    (1, QUERY, QUERY),
    (QUERY, 0, QUERY),
    (QUERY, -1, QUERY),
    (1, QUERY, NEITHER),
    (QUERY, 0, NEITHER),
    (NEITHER, 1, 0),
    (NEITHER, 1, 1),
    (KEY, 0, 0),
    (KEY, 0, 1),
    (KEY, -1, QUERY),
    (NEITHER, QUERY, 1),
)
ENCODER = {"field_width": None, "varied_field": False, "text_tokens": 0, "sampling": "uniform"}
EVERY_STRING = "strings of every length"
TASKS = {
    "addition": Task(
        sums,
        NEXT_COLUMN,
        relation_range=[0, 1],
        size=lambda n: (3, 5),
        options={"zero_padding": is_flag, "order": one_of("response_reversed", "all_reversed")},
    ),
    "multi_operand_addition": Task(
        sums,
        NEXT_COLUMN,
        options={"operands": one_of(2, 3, 4)},
        relation_range=[0, 1],
        size=lambda n: (n + 1, 2 * n + 3),
    ),
    "subtraction": Task(
        differences,
        DIFFERENCE,
        problems="operands of every length, the first not smaller than the second",
        size=lambda n: (3, 4),
    ),
    "copy": Task(strings, ((-1,),), problems=EVERY_STRING, size=lambda n: (2, 3)),
    "reverse": Task(strings, ((1,),), problems=EVERY_STRING, size=lambda n: (2, 3)),
    "parity": Task(strings, ((-1,),), "copy", EVERY_STRING, options={"scratchpad": True}, size=lambda n: (2, 3)),
    "minesweeper": Task(
        boards,
        tuple((column, row, QUERY) for row in (-1, 0, 1) for column in (-1, 0, 1)),
        "minesweeper_next_cell",
        "boards of every width and height, with any number of mines anywhere",
        {"min_mine_ratio": is_number, "max_mine_ratio": is_number, "separators": True},
    ),
    "addition_scratchpad": Task(
        running_sums,
        ((0, 1), (1, 1), (1, QUERY)),
        problems="2 to 1,000,000 operands of every length",
        options={"max_operands": is_number, "length_sampling": of(str)},
    ),
    "multiplication_scratchpad": Task(partial_products, SCRATCHPAD, options={"radix": between(1, 11, int)}),
    "multiplication": Task(
        products,
        ((1, QUERY), (0, QUERY), (-1, QUERY), (-2, QUERY), (QUERY, 1), (QUERY, 2)),
        "multiplication_by_digits",
        "a first operand of every length and every second operand",
        layers=(1, 2),
        options={"multiplier_length": one_of(1, 2)},
        size=lambda n: (2, 2 * n + 4),
    ),
    "division": Task(
        quotients,
        ((-1, QUERY), (QUERY, 1), (QUERY, 2), (0, 1)),
        size=lambda n: (3, 6),
        problems="a dividend of every length and every divisor of one digit",
    ),
    "signed_subtraction": Task(differences, DIFFERENCE, size=lambda n: (4, 5)),
    "encoder_addition": Task(
        labels,
        NEXT_COLUMN,
        "coupled",
        options=ENCODER,
        relation_range=[0, 1],
        encoder=True,
        size=lambda n: (2, 1),
    ),
    "encoder_multiplication": Task(
        labels,
        ((-1, NEITHER), (0, NEITHER), (QUERY, KEY)),
        "uniform",
        "a first number of multiplier_length digits and a second number of every length",
        ENCODER | {"multiplier_length": 1, "spill": True},
        [-1, 0],
        encoder=True,
        size=lambda n: (1, 2),
    ),
    "encoder_multiplication_grid": Task(
        labels_in_grid,
        tuple((place,) for place in range(5)),
        "grid",
        "two numbers of every length",
        relation_range=[-100, 100],
        encoder=True,
    ),
}


def join(*names: str, **options: Check) -> Task:
    """The task made of others. A relation is one of a part, and neither token has an id at the levels of the others."""
    parts = tuple(TASKS[name]._replace(name=name) for name in names)
    levels = [len(part.window[0]) for part in parts]
    window = [
        (*[NEITHER] * sum(levels[:place]), *relation, *[NEITHER] * sum(levels[place + 1 :]))
        for place, part in enumerate(parts)
        for relation in part.window
    ]
    problems = "; ".join(f"{part.name}: {part.problems}" for part in parts)
    return Task(None, tuple(window), problems=problems, options=options, parts=parts)


TASKS["calculator"] = join("addition_scratchpad", "signed_subtraction", "multiplication_scratchpad", max_operands=is_number)


def find_task(described: Json, table: Json | None = None, encoder: bool = False) -> Task:
    """The task of a description, each of whose fields must be known; or of a table, a task of its author's own."""
    name = str(described.get("task"))
    check_words("certificate.json", described)
    if table is not None:
        require(name not in TASKS, f"certificate.json: the task {name!r} has a table of its own here")
        task = Task(of_table, window_of(table), "columns", name=name, table=table, described=described)
        if not encoder:
            check_operation(task)
            check_reach(task)
            return task
        table_pass = table["passes"][0]
        known = len(table["passes"]) == 1 and table_pass.get("reads", [*range(table["operands"])]) == [
            *range(table["operands"])
        ]
        require(known, "transducer: an encoder makes one pass over all operands")
        relations = 2 + (table_pass["window"][1] - table_pass["window"][0] + 1) * (
            1 if table_pass["symmetric"] else table["operands"]
        )
        window = tuple((relation,) for relation in range(relations))
        task = task._replace(cases=labels_of_table, window=window, relation_range=[-100, 100], encoder=True)
        check_operation(task)
        check_reach(task)
        return task
    require(name in TASKS, f"certificate.json: the task {name!r} is not known here, only {', '.join(TASKS)}")
    task = TASKS[name]
    ends = {} if task.encoder else {"separate_eos": is_flag}
    compare("certificate.json, task", described, {"task": name, **ends, **task.options})
    rule = "addition_all_reversed" if described.get("order") == "all_reversed" else task.coupling or name
    return task._replace(name=name, described=described, coupling=rule)


def window_of(table: Json) -> tuple[tuple[int, int], ...]:
    """The relations that a table's passes see, if the table is one."""
    compare("transducer", table, TABLE)
    operands = [*range(table["operands"])]
    between_operands = table["sign"]
    legal = operands == [0] or (len(between_operands) == 1 and between_operands not in table["alphabet"] + "$=>")
    require(legal, f"transducer: sign {between_operands!r} is no character of its own")
    for symbols in (
        table["alphabet"],
        *(table_pass.get("writes") for table_pass in table["passes"] if is_object(table_pass)),
    ):
        own_characters = isinstance(symbols, str) and 0 < len(symbols) == len({*symbols})
        legal = own_characters and not {*symbols} & {*"$=>", *between_operands}
        require(legal, f"transducer: {symbols!r} are no symbols of their own, different from each other and from $, = and >")
    rows = rows_of(table)
    sizes = [len(table["alphabet"])] * len(operands)
    window = []
    for place, table_pass in enumerate(table["passes"], len(operands)):
        compare(f"transducer: pass {place - len(operands) + 1}", table_pass, PASS, idle={"reads": is_any})
        reads = table_pass.get("reads", operands)
        states = len(table_pass["write"])
        legal = table_pass["start"] < states
        legal &= {*reads} <= {*range(place)} and len({*reads}) == len(reads)
        legal &= not table_pass["symmetric"] or len({*operands} & {*reads}) in (0, len(operands))
        for name, count in {"write": len(table_pass["writes"]), "next": states}.items():
            entries = np.array(table_pass[name])
            legal &= entries.shape == (states, math.prod(sizes[source] for source in reads)) and entries.dtype == int
            legal &= 0 <= entries.min() <= entries.max() < count
        require(legal, f"transducer: pass {place - len(operands) + 1} is none that is known here")
        offsets = range(table_pass["window"][0], table_pass["window"][1] + 1)
        sign = DIRECTIONS[table_pass["direction"]]
        window += [(sign * offset, rows[place] - rows[source]) for offset, source in product(offsets, reads)]
        sizes.append(len(table_pass["writes"]))
    flushing = [place for place in from_the_top(table) if table["passes"][place]["flush"]]
    require(not flushing, "transducer: of passes in both directions, those from the top must have the flush 0")
    return tuple(dict.fromkeys(window))


DIRECTIONS = {"ones_first": 1, "top_first": -1}
TABLE = {
    "alphabet": of(str),
    "sign": of(str),
    "operands": between(0, 120, int),
    "passes": of(list),
    "answer": one_of("all", "last", "joined"),
}
PASS = {
    "write": of(list),
    "next": of(list),
    "flush": between(-1, MOST_TERMS, int),
    "start": between(-1, MOST_TERMS, int),
    "writes": of(str),
    "direction": one_of(*DIRECTIONS),
    "window": [between(-120, 120, int)] * 2,
    "symmetric": is_flag,
}


if __name__ == "__main__":
    main()
