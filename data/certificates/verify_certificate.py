"""Verify the certificate of a checkpoint with numpy alone: `python verify_certificate.py FOLDER`, or `.` for this folder.

The claim: a small transformer answers every problem of its task, of any size, exactly. This file proves it again from the
weights. It imports nothing of the package that wrote the certificate and takes nothing from it on trust. A reader asks:

    1. Which files?      Each is read here, its SHA-256 is printed, and what this file does not know is refused by name.
    2. Which problems?   How a task writes a problem and its right response as tokens, and which position ids they have.
    3. What is seen?     A token sees few others. What it sees, its neighbourhood, is one of a finite list, for every size.
    4. Which network?    Its logits in each neighbourhood, in float64, with a bound of what rounding in float32 can move.
    5. So?               If the right token leads everywhere by ten times the bound, greedy decoding is right, by induction:
                         a prefix that is right has a last token in the list, so the next token is right too.

An encoder writes nothing: it labels its tokens, pass after pass, until no label changes. Tokens see labels of the pass
before, and the induction is over passes: each gives the labels that are right after it, and the last ones are the answer.
All parts are the same, with labels in place of next tokens.

Lemmas are those of hub_cards/PROOF.md in longhand, the package that wrote the certificate. It says what is assumed of a
processor. Assumed besides: the Python files whose hashes are printed, and the libraries that run them, compute the network
of part 4 for the position ids of part 2. The exit status is 0 only if everything holds.

Not known here, and refused by name: networks of several layers, and settings that no recipe of a certified model has. Of the certificate, the fields proof, weights, problems, predictions and failures are the package's own
account.
"""

import fnmatch
import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TOKENS = [*"0123456789+-*=>M_$", "<eos>", "<pad>", "<unk>", "/"]
"""A token's id is its place; only division has `/`. `$` begins every sequence, and ends it unless the task has an end
token of its own."""

BEGIN, SEPARATE_END, PADDING = map(TOKENS.index, ("$", "<eos>", "<pad>"))


class Refused(Exception):
    """Something does not hold, or is not known here; the message says what in one line."""


def require(holds: Any, message: str) -> None:
    """Raise Refused with a message unless a condition holds."""
    if not holds:
        raise Refused(message)


# ---- 1. Which files? --------------------------------------------------------------------------------------------------

READ = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
IDLE = ("certificate.json", "verify_certificate.py", "pushed.json", "training_args.bin")
LOADED = ("*.json", "*.py", "custom_generate/*.py", "*.safetensors", "*.bin", "*.pt", "*.model", "*.jinja")
"""Files that are read here; files that no library reads to answer; and all that a library might read."""


def read_certificate(folder: Path) -> dict[str, Any]:
    require(folder.is_dir(), f"there is no folder {folder}")
    require((folder / "certificate.json").is_file(), f"the folder {folder} holds no certificate.json")
    certificate = read_json("certificate.json", (folder / "certificate.json").read_bytes())
    require(certificate.get("certified") is True, "certificate.json: certified is not true")
    return certificate


def read_files(folder: Path, named: Any, task: "Task") -> dict[str, bytes]:
    """The files that decide an answer, which are those that the certificate names with their SHA-256."""
    require(isinstance(named, dict), "certificate.json: files names no files")
    read = set(READ) - {"generation_config.json" if task.encoder else ""}
    found = {file.relative_to(folder).as_posix() for pattern in LOADED for file in folder.glob(pattern)} - {*IDLE}
    for name in sorted(found | named.keys() | read):
        require(name in named, f"{name} is not among the files of certificate.json")
        require(name in found, f"{name} is missing")
        require(name in read or fnmatch.fnmatch(name, "*.py"), f"{name} is of a kind that is not known here")
    contents = {name: (folder / name).read_bytes() for name in sorted(found)}
    for name, content in contents.items():
        require(sha256(content) == named[name], f"{name} has not the SHA-256 that certificate.json names, {named[name]}")
    return contents


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_json(name: str, content: bytes) -> dict[str, Any]:
    """A JSON object in which no key stands twice, since readers differ in which of the two they take."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        require(len(pairs) == len(dict(pairs)), f"{name}: a key stands twice")
        return dict(pairs)

    try:
        value = json.loads(content, object_pairs_hook=once)
    except ValueError as error:
        raise Refused(f"{name} is no JSON: {error}") from error
    require(isinstance(value, dict), f"{name} holds no JSON object")
    return value


def compare(name: str, found: dict[str, Any], expected: dict[str, Any], ignored: tuple[str, ...] = ()) -> None:
    """Refuse a key that is not known, and a value other than the expected one, or of those for which a function is true."""
    for key, value in found.items():
        require(key in expected or key in ignored, f"{name}: {key} {value!r} is not known here")
    for key, wanted in expected.items():
        require(key in found, f"{name}: {key} is missing")
        # As text, because True == 1 and 1 == 1.0.
        same = wanted(found[key]) if callable(wanted) else one_of(wanted)(found[key])
        require(same, f"{name}: {key} {found[key]!r} is none for which something is known here")


def one_of(*legal: Any) -> Callable[[Any], bool]:
    """Whether a value is one of some, for `compare`."""
    known = [json.dumps(value, sort_keys=True) for value in legal]
    return lambda value: json.dumps(value, sort_keys=True) in known


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def is_small(value: Any) -> bool:
    return type(value) is float and 0 < value < 1


def is_size(value: Any) -> bool:
    return type(value) is int and 0 < value <= MOST_TERMS


is_flag = one_of(False, True)


def check_tokenizer(files: dict[str, bytes], task: "Task") -> None:
    """A tokenizer that makes one token of each character, by the table of the task's tokens; a decoder's puts `$` first."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    sequence = [{"Sequence": {"id": part, "type_id": place}} for place, part in enumerate("AB")]
    begin = {} if task.encoder else {"begin": {"id": "begin", "ids": [BEGIN], "tokens": ["$"]}}
    first = PADDING if task.encoder else BEGIN
    compare("tokenizer.json", read_json("tokenizer.json", files["tokenizer.json"]), {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "decoder": {"type": "Fuse"},
        "added_tokens": [{"id": place, "content": TOKENS[place], **special} for place in range(first, PADDING + 2)],
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing", "pair": sequence, "special_tokens": begin,
            "single": [*({"SpecialToken": {"id": name, "type_id": 0}} for name in begin), sequence[0]],
        },
        "model": {
            "type": "WordLevel", "vocab": {text: place for place, text in enumerate(task.vocabulary)}, "unk_token": "<unk>",
        },
    })  # fmt: skip
    ends = {"bos_token": "$", "eos_token": TOKENS[task.end], "extra_special_tokens": ["<eos>"] if task.end == BEGIN else []}
    compare("tokenizer_config.json", read_json("tokenizer_config.json", files["tokenizer_config.json"]), {
        **({} if task.encoder else ends), "pad_token": "<pad>", "unk_token": "<unk>",
        "padding_side": "right" if task.encoder else "left", "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"], "backend": "tokenizers",
        "model_max_length": lambda length: is_number(length) and length >= MOST_TOKENS,
        "tokenizer_class": one_of("TokenizersBackend", "PreTrainedTokenizerFast"),
    }, ignored=("is_local", "local_files_only"))  # fmt: skip


def check_configuration(files: dict[str, bytes], task: "Task", described: dict[str, Any]) -> dict[str, Any]:
    """Only settings for which parts 2 to 4 are right, and greedy decoding until the end token. Returns config.json."""
    config = read_json("config.json", files["config.json"])
    module, name, head = ("coupled_gpt", "CoupledGPT", "CausalLM")
    own: dict[str, Any] = {
        "bos_token_id": BEGIN, "eos_token_id": task.end, "head_dim": is_size, "mlp": "geglu", "norm": "rms",
        "norm_placement": "sandwich", "norm_eps": is_small, "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": is_flag, "attention_scale": one_of("sqrt", "zero"), "qk_norm": False,
        "position_encoding": "pairwise", "coupling": task.coupling,
        "position_levels": len(task.window[0]), "randomized_positions": False,
        "wrap_position_ids": False,
    }  # fmt: skip
    if task.encoder:
        module, name, head = ("pairwise_bert", "PairwiseBert", "TokenClassification")
        own = {
            "hidden_act": one_of(*ACTIVATIONS), "layer_norm_eps": is_small, "absolute_positions": "none",
            "pair_maps": [task.coupling], "share_over_heads": is_flag, "num_loops": 1, "settle_tolerance": None,
            "max_multiplier_length": 1 if task.coupling == "uniform" else is_size, "label_states": True, "sink": True,
            "id2label": {str(place): label for place, label in enumerate(LABELS)},
            "label2id": {label: place for place, label in enumerate(LABELS)},
        }  # fmt: skip
    # Training may vary the width of fields, and how problems are drawn.
    varied = {name: value for name, value in described.items() if name in ("field_width", "varied_field", "sampling")}
    compare("config.json", config, {
        **own, "architectures": [f"{name}For{head}"], "model_type": module, "dtype": "float32", "vocab_size": task.tokens,
        "pad_token_id": PADDING, "hidden_size": is_size, "num_attention_heads": is_size, "intermediate_size": is_size,
        "num_hidden_layers": 1, "windowed": True, "relation_range": task.relation_range,
        "task": lambda stated: isinstance(stated, dict) and stated | varied == described,
    }, ignored=(
        # Of initial weights, of training, and of position encodings that are not used here.
        *("init", "log_length_init", "qk_norm_init", "relation_init", "position_init", "max_position_ids", "rotary_base"),
        *("share_level_tables", "relative_attention_num_buckets", "relative_attention_max_distance", "initializer_range"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob", "settle_weight", "max_position_embeddings"),
        # Of software. The next lines read the last two, which may be missing.
        *("transformers_version", "use_cache", "auto_map", "prompt_format"),
    ))  # fmt: skip
    places = {"AutoConfig": f"configuration_{module}.{name}Config", "AutoModel": f"modeling_{module}.{name}Model"}
    places[f"AutoModelFor{head}"] = f"modeling_{module}.{name}For{head}"
    compare("config.json, auto_map", config.get("auto_map", places), places)
    if config.get("prompt_format") is not None:
        check_formats(config["prompt_format"], task)
    if not task.encoder:
        check_generation(files, task)
    return config


def check_formats(stated: Any, task: "Task") -> None:
    """What the software refuses: no query of the task, and no beginning of its response."""
    parts, formats = task.parts or (task,), [stated]
    if task.parts:
        compare("config.json, prompt_format", stated, {"formats": lambda formats: len(formats) == len(parts)})
        formats = stated["formats"]
    for part, own in zip(parts, formats, strict=True):
        compare("config.json, prompt_format", own, part.prompt_format)


def check_generation(files: dict[str, bytes], task: "Task") -> None:
    """Greedy decoding until the end token."""
    compare("generation_config.json", read_json("generation_config.json", files["generation_config.json"]), {
        "eos_token_id": task.end, "bos_token_id": BEGIN, "pad_token_id": PADDING, "do_sample": False,
    }, ignored=(
        # What is computed besides, and how.
        *("use_cache", "return_dict_in_generate", "output_attentions", "output_hidden_states", "output_scores"),
        *("output_logits", "transformers_version", "_from_model_config"),
    ))  # fmt: skip


LAYER = "model.layers.0."


def shapes_of_decoder(config: dict[str, Any], task: "Task") -> dict[str, tuple[int, ...]]:
    hidden, units, heads = (config[name] for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    width, table = heads * config["head_dim"], (config["vocab_size"], hidden)
    shapes = {"model.embed_tokens.weight": table, "model.norm.weight": (hidden,)}
    shapes |= {} if config["tie_word_embeddings"] else {"lm_head.weight": table}
    content = config["attention_scale"] == "sqrt"
    shapes |= {f"{LAYER}self_attn.{name}_proj.weight": (width, hidden) for name in ("qkv" if content else "v")}
    shapes |= {f"{LAYER}self_attn.o_proj.weight": (hidden, width)}
    shapes |= {f"{LAYER}mlp.{name}_proj.weight": (units, hidden) for name in ("up", "gate")}
    shapes |= {f"{LAYER}mlp.down_proj.weight": (hidden, units)}
    places = product(("attention_norms", "mlp_norms"), ("input", "output"))
    shapes |= {f"{LAYER}{norms}.{place}.weight": (hidden,) for norms, place in places}
    return shapes | {"model.position_encoding.relation_bias": (1, task.relations, heads)}


def shapes_of_encoder(config: dict[str, Any], task: "Task") -> dict[str, tuple[int, ...]]:
    hidden, units, heads = (config[name] for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    shapes: dict[str, tuple[int, ...]]
    require(hidden % heads == 0, "config.json: hidden_size is no multiple of num_attention_heads")
    shapes = {f"{LAYER}self_attn.{name}_proj": (hidden, hidden) for name in "qkvo"}
    shapes |= {f"{LAYER}up_proj": (units, hidden), f"{LAYER}down_proj": (hidden, units), "classifier": (len(LABELS), hidden)}
    shapes |= {name: (hidden,) for name in ("model.embedding_norm", f"{LAYER}attention_norm", f"{LAYER}mlp_norm")}
    weights = {f"{name}.weight": shape for name, shape in shapes.items()}
    weights |= {f"{name}.bias": shape[:1] for name, shape in shapes.items()}
    weights |= {"model.embed_tokens.weight": (task.tokens, hidden), "model.embed_states.weight": (len(LABELS), hidden)}
    tables = 1 if config["share_over_heads"] else heads
    return weights | {f"{LAYER}self_attn.relations.0.weight": (len(task.window) + 1, tables, hidden // heads)}


def read_weights(content: bytes, config: dict[str, Any], task: "Task") -> dict[str, np.ndarray]:
    """The tensors of a safetensors file: the length of a header, the header, and the numbers without gaps."""
    size = int.from_bytes(content[:8], "little")
    require(0 < size <= len(content) - 8, "model.safetensors: the header is longer than the file")
    header, data = read_json("model.safetensors", content[8 : 8 + size]), content[8 + size :]
    header.pop("__metadata__", None)
    shapes = shapes_of_encoder(config, task) if task.encoder else shapes_of_decoder(config, task)
    require(max(map(max, shapes.values())) <= MOST_TERMS, "config.json: a sum would have too many terms")
    weights, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        require(name in shapes, f"model.safetensors: the tensor {name} is not known here")
        count = math.prod(shapes[name])
        wanted = {"dtype": "F32", "shape": [*shapes[name]], "data_offsets": [end, end := end + 4 * count]}
        compare(f"model.safetensors, {name}", entry, wanted)
        require(end <= len(data), f"model.safetensors: {name} is cut off")
        weights[name] = np.frombuffer(data, "<f4", count, end - 4 * count).astype(float).reshape(shapes[name])
        require(np.abs(weights[name]).max() <= LARGEST, f"model.safetensors: {name} holds a number that is too large")
    require(end == len(data), "model.safetensors: bytes follow the last tensor")
    missing = ", ".join(shapes.keys() - weights)
    require(not missing, f"model.safetensors: the tensor {missing} is missing")
    return {rename(name): weight for name, weight in weights.items()}


def rename(name: str) -> str:
    """A weight's name in part 4, the same for a decoder and an encoder."""
    names = {"attention_norm.": "attention_norms.sum.", "mlp_norm.": "mlp_norms.sum.", "classifier": "lm_head"}
    names |= {f"{LAYER}{place}_proj": f"mlp.{place}_proj" for place in ("up", "down")}
    for theirs, own in names.items():
        name = name.replace(theirs, own)
    return name.removeprefix(LAYER).removesuffix(".weight")


# ---- 2. Which problems? -----------------------------------------------------------------------------------------------
# A text is a list of (what stands there, its position ids). What stands there is a token, or the name of a digit, such as
# ("A", 0), the ones of the number A. Digits that matter to each other share an id; 0 means no id. Ids depend on the sizes
# of a problem alone. In the drawings a problem's text stands above its ids.

Text = list[tuple[Any, tuple[int, ...]]]
Cells = dict[Any, Any]
"""From names to the tokens that stand there, (cases,), or one for all."""

Case = tuple[Text, Any, Cells]
"""A text, one of its tokens, and all contents of the cells that the token sees, of its own cell and of the next one."""

Column = Callable[[int], tuple[Cells, Any]]
"""From k to the cells of column k of a sum in all their contents, and what each adds up to."""

EMPTY, UNKNOWN, LABELS = 10, 11, [*"0123456789_?"]
"""Labels of encoders: a label's number is its place."""

SINK = len(TOKENS) * (1 + len(LABELS))
"""A key of zeros. Smaller numbers are an encoder's tokens: place in `TOKENS` and, with a label, 22 (1 + label) more."""

SIZES = (1, 2, 3, 4)
DIGITS = np.arange(10)
NOTHING: tuple[Cells, np.ndarray] = ({}, np.zeros(1, int))


def grid(*ranges: Any) -> list[np.ndarray]:
    """Every combination of the values of some ranges, as one flat array for each range."""
    return [axis.ravel() for axis in np.meshgrid(*map(np.asarray, ranges), indexing="ij")]


def row_of_digits(name: Any, width: int, column: Column, *out: int) -> Iterator[tuple[Any, Cells]]:
    """All contents of the columns k and k + 1 of a sum with `width` digits, for every k from -1, where the sum begins.

    Digit k of a sum is (t + c) mod 10, with the total t of column k and the carry c into it; (t + c) div 10 is carried on.
    So the digits k and k + 1 follow from both columns and one carry. A carry is paired with every content of the two
    columns, since columns below may have any content. All carries that there are come out of one column already, as each
    task below says; the loop adds column after column all the same.

    Args:
        column: see `Column`.
        out: what may be carried out of the top; 0 if nothing is given.

    Yields:
        The name of digit k, and the cells; digit -1 is the token before the ones, here `=`. Digit `width` is the last carry.
    """
    inside = {k: column(k) for k in range(width)}
    carries = np.zeros(1, int)
    for k in range(-1, width):
        (cells, total), (above, total_above) = inside.get(k, NOTHING), inside.get(k + 1, NOTHING)
        one, other, carry = grid(range(len(total)), range(len(total_above)), carries)
        digit = total[one] + carry
        following = total_above[other] + digit // 10
        found = {cell: values[one] for cell, values in cells.items()}
        found |= {cell: values[other] for cell, values in above.items()}
        found |= {(*name, k): digit % 10 if k >= 0 else np.full_like(digit, TOKENS.index("="))}
        found |= {(*name, k + 1): following % 10}
        legal = np.isin(following if k + 1 == width else following // 10, out or 0) | (k + 2 < width)
        yield (*name, k), {cell: values[legal] for cell, values in found.items()}
        carries = np.unique(digit // 10)


def operand(name: Any, width: int, ids: Callable[..., tuple[int, ...]]) -> Text:
    """The text of a number, ones last: its cells are (name, ..., k) for digit k, of significance 10^k."""
    return [((*name, k), ids(k)) for k in reversed(range(width))]


def response(name: Any, width: int, ids: Callable[..., tuple[int, ...]]) -> Text:
    """The text of a number, ones first, behind the token that begins it, which counts as its digit -1."""
    return [((*name, k), ids(k)) for k in range(-1, width)]


def sums(task: "Task") -> Iterator[Case]:
    """Sums of n numbers of L digits, ones last, and their sum with L + 1 digits, ones first.

        $ 6 5 3 + 0 4 9 = 2 0 7 0 $          $ 0 6 5 3 + 0 0 4 9 + 0 8 7 1 = 3 7 5 1 $
        0 2 3 4 5 2 3 4 5 4 3 2 1 0          0 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 4 3 2 1 0

    More than two numbers have L + 1 digits each, the first of them 0. If all numbers are written ones first, the ids of
    digits are the same, and so is what each token of the response sees, as it sees the query whatever its order.

    Two numbers without padding have lengths of their own, of which L is the larger one, and no 0 on top but for 0 itself.
    Their sum has L digits, or L + 1 with a top that is not 0.

        $ 6 5 3 + 4 9 = 2 0 7 $
        0 2 3 4 5 3 4 5 4 3 2 0

    A token in column k sees columns k and k + 1 (relations 0 and 1). The digits of one column stand in one relation, so
    their order does not matter, and one order is listed. The carry is 0 to n - 1; all come out of the ones (n nines and a
    carry of n - 1 make 10 n - 1). Columns differ only in whether they are the ones, a top or beside them: four suffice.
    """
    padded = task.same_widths
    rows = combinations_with_replacement(range(10), task.operands) if padded else product(range(10), repeat=task.operands)
    choices = np.array(list(rows))
    for length, shorter, width in product(SIZES, SIZES, (*SIZES, SIZES[-1] + 1)):
        if not shorter <= length <= width <= length + 1 or (padded and (shorter, length) != (width - 1, width - 1)):
            continue
        sizes = np.array([length, *[shorter] * (task.operands - 1)])
        written = [width] * task.operands if task.name == "multi_operand_addition" else sizes
        text: Text = [("$", (0,))]
        for place in range(task.operands):
            text += [*operand((place,), written[place], lambda k, length=length: (length + 1 - k,)), ("+", (length + 2,))]
        text = [*text[:-1], *response(("sum",), width, lambda k, length=length: (length + 1 - k,)), ("end", (0,))]

        def column(k, sizes=sizes, written=written):
            top = (k == sizes - 1) & (k > 0) & (not padded)
            digits = choices[((choices > 0) & (k < sizes) | (choices == 0) & ~top).all(axis=1)]
            return {(place, k): digits[:, place] for place in range(task.operands) if k < written[place]}, digits.sum(1)

        for what, cells in row_of_digits(("sum",), width, column):
            carried = cells.get(("sum", length)) if width > length and not padded else None
            if carried is not None:
                cells = {cell: values[carried > 0] for cell, values in cells.items()}
            yield text, what, cells


def differences(task: "Task") -> Iterator[Case]:
    """Differences A - B of two numbers of L digits with A >= B, ones first.

        $ 6 5 3 - 0 4 9 = 4 0 6 $      significance
        0 1 2 3 4 1 2 3 4 3 2 1 0
        0 1 1 1 1 2 2 2 3 3 3 3 0      A, B and the response, told apart because their order matters

    A borrow is a carry of -1, from the ones or from any column; A >= B says that the top passes on none.
    """
    first, second = grid(range(10), range(10))
    for length in SIZES:
        text: Text = [("$", (0, 0)), *operand(("A",), length, lambda k, length=length: (length - k, 1))]
        text += [("-", (length + 1, 1)), *operand(("B",), length, lambda k, length=length: (length - k, 2))]
        text += [*response(("rest",), length, lambda k, length=length: (length - k, 3)), ("end", (0, 0))]
        for what, cells in row_of_digits(("rest",), length, lambda k: ({("A", k): first, ("B", k): second}, first - second)):
            yield text, what, cells


def signed_differences(task: "Task") -> Iterator[Case]:
    """Differences A - B of any two numbers of L digits, as if a borrow out of the top were free.

        $ 0 4 9 - 6 5 3 = 6 9 3 - 4 0 6 $      significance
        0 1 2 3 4 1 2 3 4 3 2 1 4 3 2 1 0
        0 1 1 1 1 2 2 2 3 3 3 3 5 5 5 5 0      as above; 5 in a second row, which sees the first one as that one sees A

    If the top borrows, `-` and a second row follow: 0 less the first row, which is not 0, so that the top borrows again. One
    of the numbers has no 0 at its top, except in 0-0.
    """
    first, second = grid(range(10), range(10))
    for length in SIZES:
        text: Text = [("$", (0, 0)), *operand(("A",), length, lambda k, length=length: (length - k, 1))]
        text += [("-", (length + 1, 1)), *operand(("B",), length, lambda k, length=length: (length - k, 2))]
        for name, row in (("rest", 3), ("missing", 5)):
            text += response((name,), length, lambda k, length=length, row=row: (length - k, row))
        text += [("end", (0, 0))]

        def column(k, length=length):
            legal = slice(k + 1 == length > 1, None)
            return {("A", k): first[legal], ("B", k): second[legal]}, (first - second)[legal]

        minus, equals = TOKENS.index("-"), TOKENS.index("=")
        for what, cells in row_of_digits(("rest",), length, column, 0, -1):
            if ("rest", length) in cells:
                cells["missing", -1] = np.where(cells["rest", length], minus, task.end)
            yield text, what, cells
        for what, cells in row_of_digits(("missing",), length, lambda k: ({("rest", k): DIGITS}, -DIGITS), -1):
            yield text, what, cells | {("rest", -1): equals, ("missing", -1): minus}


def joined(task: "Task") -> Iterator[Case]:
    """The problems of several tasks, told apart by their first sign. Each task has levels of ids of its own."""
    before, levels = 0, len(task.window[0])
    for part in task.parts:
        after = levels - before - len(part.window[0])
        for text, what, cells in part.cases(task):
            yield [(name, (0,) * before + ids + (0,) * after) for name, ids in text], what, cells
        before = levels - after


def strings(task: "Task") -> Iterator[Case]:
    """Strings that are copied, reversed, or read for the parity of their beginnings.

        $ 1 8 0 9 = 1 8 0 9 $          $ 5 9 6 2 = 2 6 9 5 $          $ 1 0 1 1 = 1 1 0 1 $
        0 2 3 4 5 1 2 3 4 5 0          0 1 2 3 4 5 4 3 2 1 0          0 2 3 4 5 1 2 3 4 5 0

    A token of the response sees the symbol that comes next, if there is one. This and the token itself tell what is right
    next, in a string of any length. Every such pair stands in a string of two symbols; all of up to three are listed.
    """
    for length in SIZES[:3]:
        symbols = grid(*[range(2 if task.name == "parity" else 10)] * length)
        backwards = task.name == "reverse"
        answer = symbols[::-1] if backwards else symbols
        if task.name == "parity":
            answer = [np.sum(symbols[: place + 1], axis=0) % 2 for place in range(length)]
        text: Text = [("$", (0,)), *((("A", place), (place + 2 - backwards,)) for place in range(length))]
        response = ["=", *(("B", place) for place in range(length))]
        text += [(what, (length + 1 - place if backwards else place + 1,)) for place, what in enumerate(response)]
        text += [("end", (0,))]
        cells = {(name, place): part for name, parts in (("A", symbols), ("B", answer)) for place, part in enumerate(parts)}
        for what in response:
            yield text, what, cells


def boards(task: "Task") -> Iterator[Case]:
    """Boards of mines: the response gives the mines beside each cell, row by row.

        $ M _ _ > _ _ M = M 2 1 1 2 M $      column
        0 1 2 3 0 1 2 3 1 2 3 1 2 3 1 0      row; a token of the response has the ids of the cell that comes next
        0 1 1 1 0 2 2 2 1 1 1 2 2 2 3 0
        0 0 0 0 2 0 0 0 1 1 1 1 1 1 1 0      1: in the response; 2: end of a row

    A token of the response sees the 3 x 3 cells around the cell that comes next; the 3 x 3 around its own cell tell what it
    is. The two cells follow each other in a row, or end one row and begin the next. So four rows and columns, cut out of
    the board around them, hold everything, in every position relative to the borders: two columns at either end of a row.
    """
    for height, width in product(SIZES, SIZES):
        size = height * width
        cell_ids = [(place % width + 1, place // width + 1) for place in range(size + 1)]
        text: Text = [("$", (0, 0, 0))]
        for row in range(height):
            text += [(("board", place), (*cell_ids[place], 0)) for place in range(row * width, (row + 1) * width)]
            text += [(">" if row + 1 < height else "=", (0, 0, 2))]
        response = ["=", *(("answer", place) for place in range(size))]
        text[-1:] = [(what, (*cell_ids[place], 1)) for place, what in enumerate(response)]
        text += [("end", (0, 0, 0))]

        def around(place: int, width=width, size=size) -> list[int]:
            return [
                other
                for other in range(size)
                if max(abs(other // width - place // width), abs(other % width - place % width)) <= 1
            ]

        for place in range(size + 1):
            matter = sorted({*around(place), *(around(place - 1) if place else ())})
            mines = dict(zip(matter, grid(*[(0, 1)] * len(matter)), strict=True))
            cells = {("board", other): np.where(mine, TOKENS.index("M"), TOKENS.index("_")) for other, mine in mines.items()}
            for own in range(max(place - 1, 0), min(place + 1, size)):
                count = sum(mines[other] for other in around(own))
                cells["answer", own] = np.where(mines[own], TOKENS.index("M"), count)
            yield text, response[place], cells


def running_sums(task: "Task") -> Iterator[Case]:
    """Sums of n numbers by running sums, from 0 on, all of W digits, at the top of which the n numbers have zeros.

        $ 0 8 + 0 7 + 2 1 = 0 0 > 8 0 > 5 1 > 6 3 $      significance; signs stand one above the top or one below the ones
        0 2 3 1 2 3 1 2 3 1 3 2 4 3 2 4 3 2 4 3 2 0
        0 1 1 1 2 2 2 3 3 0 1 1 2 2 2 3 3 3 4 4 4 0      row: a running sum stands one below its two summands

    Running sum j is the sum of running sum j - 1, which may be any number for j > 1, and of number j. A carry is 0 or 1,
    from any column. W suffices, so nothing is carried out of the top. What a token sees tells apart the rows 0, 1 and
    higher ones, the last row, and as columns the ones, the top and the others: three numbers and four columns suffice.
    """
    for operands, width in product((2, 3), SIZES[1:]):
        text: Text = [("$", (0, 0))]
        for row in range(1, operands + 1):
            text += [*operand(("A", row), width, lambda k, width=width, row=row: (width + 1 - k, row)), ("+", (1, row))]
        text.pop()
        for row in range(operands + 1):
            text += response(("sum", row), width, lambda k, width=width, row=row: (width + 1 - k, row + 1))
        text = [(what, (1, 0) if what == ("sum", 0, -1) else ids) for what, ids in text] + [("end", (0, 0))]
        for row in range(operands + 1):

            def column(k, row=row, width=width):
                before, added = grid(range(10 if row > 1 else 1), range(10 if row and k + 1 < width else 1))
                return {("sum", row - 1, k): before, ("A", row, k): added}, before + added

            begins = {("sum", other, -1): TOKENS.index(">" if other else "=") for other in range(operands + 1)}
            for what, cells in row_of_digits(("sum", row), width, column):
                yield text, what, cells | begins


def partial_products(task: "Task") -> Iterator[Case]:
    """Products of two numbers of N and M digits: A times each digit of B, then the running sums of these, shifted.

        $ 9 4 * 6 8 = 2 5 7 + 4 6 5 = 2 5 7 0 > 2 9 3 6 $      significance in A
        0 2 3 0 0 0 4 3 2 1 4 3 2 1 0 0 0 0 0 0 0 0 0 0 0
        0 0 0 0 2 1 1 1 1 1 2 2 2 2 1 1 1 1 1 2 2 2 2 2 0      row
        0 0 0 1 0 0 0 5 4 3 0 4 3 2 6 5 4 3 2 6 5 4 3 2 0      significance in the product

    Numbers have no zeros at the top, but for 0 itself. Partial product j: with B's digit b the carry is 0 to b - 1, and all
    come out of one column. Running sum j: the one before is below 10^(N + j), whatever its digits; a partial product's top
    digit is a carry, 0 to 8, and its other digits may be any. The sum is below 10^(N + j + 1), so nothing is carried out.
    What is seen tells apart the rows 0, 1 and higher ones, the last row, and columns below, in and above the partial
    product. A has four columns in all: the ones, two that any carry enters and any digit follows, and the top.
    """
    for first, second in product(SIZES, SIZES):
        width = first + second
        text: Text = [("$", (0, 0, 0)), *operand(("A",), first, lambda k, first=first: (first + 1 - k, 0, 0))]
        text += [("*", (0, 0, 1)), *operand(("B",), second, lambda k: (0, k + 1, 0))]
        for row in range(second):
            part = response(("part", row), first + 1, lambda k, row=row, first=first: (first + 1 - k, row + 1))
            text += [(what, (*ids, width + 1 - what[-1] - row if what[-1] >= 0 else 0)) for what, ids in part]
        for row in range(second):
            text += response(("sum", row), width, lambda k, row=row, width=width: (0, row + 1, width + 1 - k))
        text += [("end", (0, 0, 0))]
        for row in range(second):
            begins = {("part", other, -1): TOKENS.index("+" if other else "=") for other in range(second)}
            begins |= {("sum", other, -1): TOKENS.index(">" if other else "=") for other in range(second)}
            for what, cells in rows_of_product(row, first, width):
                yield text, what, cells | begins


def rows_of_product(row: int, first: int, width: int) -> Iterator[tuple[Any, Cells]]:
    """A partial product, for each digit of B in its row and in the next one, and a running sum; see `row_of_digits`."""
    for digit in range(10):

        def multiplied(k, digit=digit):
            digits = np.arange(k == first - 1 > 0, 10) if k < first else np.zeros(1, int)
            return {("A", k): digits}, digits * digit

        for what, cells in row_of_digits(("part", row), first + 1, multiplied):
            case, next_digit = grid(range(len(cells[what])), range(10))
            known = {("B", row): digit, ("B", row + 1): next_digit}
            yield what, {cell: values[case] for cell, values in cells.items()} | known

    def added(k):
        inside, top = row <= k <= row + first, k == row + first
        above, part = grid(range(10 if row and k < first + row else 1), range(9 if top else 10 if inside else 1))
        return {("sum", row - 1, k): above, ("part", row, k - row): part}, above + part

    yield from row_of_digits(("sum", row), width, added)


def products(task: "Task") -> Iterator[Case]:
    """Products of a number A of any length N without zeros at the top, and B of M = 1 or 2 digits; N + M digits, ones first.

        $ 6 5 3 * 4 9 = 7 9 9 1 3 $      significance, for B none
        0 3 4 5 0 0 0 6 5 4 3 2 1 0
        0 0 0 0 4 1 2 3 3 3 3 3 3 0      digits of B; the response

    Column k of the product adds up a_k b_0 + a_(k-1) b_1 and a carry. So the digits k and k + 1 follow from B, a_(k+1), a_k,
    and what the columns below k leave behind: a_(k-1), a_(k-2), which are seen too, and the carry. `free` holds all such
    triples for columns of any digits; it adds column after column until there is no new triple. From two columns on more
    columns lose none, since the lowest digits may be 0. Then come A's top digit and the columns above A.
    """
    places = task.operands
    for length in (1, 2, 3, 4, 5):
        width = length + places
        text: Text = [("$", (0, 0)), *operand(("A",), length, lambda k, width=width: (width - k, 0)), ("*", (0, places + 2))]
        text += operand(("B",), places, lambda k: (0, places - k))
        text += [*response(("C",), width, lambda k, width=width: (width - k, places + 1)), ("end", (0, 0))]
        digits = {k: range(10) for k in range(length)} | {length - 1: range(length > 1, 10)}
        for multiplier in range(10**places):
            tens, ones = divmod(multiplier, 10)

            def left_behind(before, digits, ones=ones, tens=tens):
                return {(a, b, (a * ones + b * tens + c) // 10) for b, _, c in before for a in digits}

            free = [{(0, 0, 0)}]
            while len(free) < 4 or free[-1] != free[-2]:
                free.append(left_behind(free[-1], range(10)))
            for k in range(-1, width):
                below = max(min(k, length - 1), 0)
                states = free[below if below < 2 else -1]
                for column in range(below, k):
                    states = left_behind(states, digits.get(column, range(1)))
                state, own, following = grid(range(len(states)), *(digits.get(j, range(1)) for j in (k, k + 1)))
                one_below, two_below, carry = np.array(sorted(states))[state].T
                total = own * ones + one_below * tens + carry
                cells: Cells = {("B", 0): np.full_like(own, ones), ("B", 1): np.full_like(own, tens)}
                cells |= {("A", k - 2): two_below, ("A", k - 1): one_below, ("A", k): own, ("A", k + 1): following}
                cells["C", k] = total % 10 if k >= 0 else np.full_like(own, TOKENS.index("="))
                cells["C", k + 1] = (following * ones + own * tens + total // 10) % 10
                yield text, ("C", k), cells


def quotients(task: "Task") -> Iterator[Case]:
    """A number A of any length without zeros at the top, and v, of one digit and not 0: remainders, then the quotient.

        $ 8 7 6 4 / 7 = 1 3 1 0 > 1 2 5 2 $      column, from the top; v has none
        0 2 3 4 5 6 0 1 2 3 4 5 1 2 3 4 5 0
        0 0 0 0 0 0 1 2 2 2 2 2 3 3 3 3 3 0      v; the remainders; the quotient

    What remains of the columns above column k, times ten, and a_k add up to t: t div v is the quotient's digit, and t mod v
    remains. What can remain above is found column by column. One column leaves all remainders there are, since a_0 may be
    any digit but 0, and v remains 0: the top, the ones and one column between them suffice.
    """
    for length in SIZES[:3]:
        response = ["=", *(("rest", k) for k in range(length)), ">", *(("quotient", k) for k in range(length))]
        width = length + 1
        text: Text = [("$", (0, 0)), *((("A", k), (k + 2, 0)) for k in range(length)), ("/", (length + 2, 0)), ("v", (0, 1))]
        text += [(what, (place % width + 1, place // width + 2)) for place, what in enumerate(response)]
        text += [("end", (0, 0))]
        digits = {0: range(length > 1, 10)} | {k: range(10) for k in range(1, length)}
        for divisor in range(1, 10):
            rest = np.zeros(1, int)
            for k in range(-1, length):
                above, own, following = grid(rest, *(digits.get(j, range(1)) for j in (k, k + 1)))
                cells: Cells = {"v": divisor, ("A", k + 1): following}
                for j, digit in ((k, own), (k + 1, following)):
                    cells["quotient", j], above = np.divmod(10 * above + digit, divisor)
                    cells["rest", j] = above
                for what in (response[k + 1], response[k + 1 + width]):
                    yield text, what, cells
                rest = np.unique(cells["rest", k])


def labels(task: "Task") -> Iterator[Case]:
    """Labels of an encoder, read at the second number and the operator, in passes: each sees the labels of the pass before.

        _ 1 6 + _ 9 5      column                       7 * _ 3 5      place, to the right
        3 2 1 4 3 2 1                                   0 1 2 3 4
        . . . _ 1 1 1      label: 16 + 95 = 111         1 0 0 0 0      the digit m, which all see
                                                        . _ 2 4 5      label: 7 * 35 = 245

    A token sees its own column and the one below, and labels there: the right ones, or `?`, not known yet. Right next is the
    label if what is seen decides the carry, else `?`. It does if there is no column below, if the label there is known, or
    if the digits there pass on the same whatever is carried into them. A known label stays: what decided it stays. So each
    pass makes the lowest unknown label known, and they end with the answer (PROOF.md, Lemma 12).

    A carry is 0 or 1 in a sum, and below m in a product, 0 if m is 0; one column passes on each of them to the second or a
    higher one. A number has no 0 at its top, but for 0 itself, and `_` above it. Where there are no digits, the label is the
    carry, or `_` for 0; zero times a number is `__0`. Columns differ in whether they are the ones, the next, or higher ones.
    """
    times, flags = task.name == "encoder_multiplication", (False, True)
    operator, empty, count = TOKENS.index("*" if times else "+"), TOKENS.index("_"), 2 - times
    for k, top in ((0, False), (1, False), (1, True), (2, False), (2, True)):
        contents = [0], DIGITS, [*DIGITS, empty], [*DIGITS, empty]
        factor, carry, known, known_under, *digits = grid(
            *(DIGITS if times else [1], range(9 if k > 1 else 1), flags, flags[: k + 1]),
            *([[empty] if top else contents[k + 1]] * count + [contents[k]] * count),
        )
        column, below = digits[:count], digits[count:]
        most = np.maximum(factor - 1, 0) if times else 1
        total, passed, label_under = add_column(factor, below, carry, k == 1)
        _, _, label = add_column(factor, column, passed, k == 0)
        decided = (k == 0) | known_under | (total // 10 == (total + most) // 10)
        legal = (carry <= most) & (decided | ~known)
        for digit, lower in zip(column, below, strict=True):
            legal &= np.where(digit == empty, (lower > 0) | (k < 2), lower < 10)
        cells: Cells = {("own", place): part for place, part in enumerate(column)} | {"m": factor}
        cells |= {("under", place): part for place, part in enumerate(below)}
        cells["own", count - 1] = labelled(operator if top else column[-1], known, label)
        cells["under", count - 1] = labelled(below[-1], known_under, label_under)
        cells["label"] = np.where(decided, label, UNKNOWN)
        cells = {cell: values[legal] for cell, values in cells.items()} | {"sink": np.array(SINK)}
        yield text_of_label(times, k, top), ("own", count - 1), cells


def add_column(factor: np.ndarray, column: list[np.ndarray], carry: np.ndarray, lowest: bool) -> tuple[np.ndarray, ...]:
    """The total of a column of tokens times a factor, what it passes on, and its label."""
    total = factor * sum(np.where(part < 10, part, 0) for part in column)
    ended = np.all([part >= 10 for part in column], axis=0) | (factor == 0)
    label = np.where(ended & (total + carry == 0) & (not lowest), EMPTY, (total + carry) % 10)
    return total, (total + carry) // 10, label


def labelled(token: Any, known: np.ndarray, label: np.ndarray) -> np.ndarray:
    """The number of a token with its label, or with `?`."""
    return token + len(TOKENS) * (1 + np.where(known, label, UNKNOWN))


def text_of_label(times: bool, k: int, top: bool) -> Text:
    """What a token in column k sees, the token itself, and its label. At the top, the first number of a sum has no token."""
    own, under = ((4 - k, 0), (5 - k, 0)) if times else ((k + 1,), (k,))
    text: Text = [("sink", (0,) * len(own)), *[("m", (0, 1))] * times]
    text += [(("under", place), under) for place in range(2 - times)] * (k > 0)
    return text + [(("own", place), own) for place in range(top and not times, 2 - times)] + [("label", ())]


def labels_in_grid(task: "Task") -> Iterator[Case]:
    """Labels of an encoder in the grid of a product A * B of any two numbers, here 12 * 34, in passes as above.

        0  1  2 *          .  .  . .      the digits of A, with a 0 on top, head the columns
       -_ -_ -_ 4         00 04 08 .      the digits of B, ones first, head the rows; a cell has the labels C, read at `-`,
       -_ -_ -_ 3         00 04 10 .      and S, read at `_`. The text is all rows, one behind the other

    Right are the digits with 10 C + S = a b + s + c: the heads a and b of the cell, the S of the cell up and to the left, and
    the C of the cell on the right. Both tokens of a cell see themselves and these four. Right next is the label if s and c
    are known, or not there, else `?`. A cell of column i and row j, from the ones, comes after the two that it sees, whose i
    + 2j is smaller by 1, and the last row and the ones column end with the product (PROOF.md, Lemma 12a).

    In the first row there is no s; nor in the column of the 0 on top, to the left of which there is no cell. In the ones
    column there is no c. In the first row c is at most b - 1, or 0, since 9b + b - 1 = 10b - 1, and in others at most b,
    since 9b + 9 + b = 10b + 9.
    """
    flags = (False, True)
    # Relations are differences of these places.
    text: Text = [(name, (place,)) for place, name in enumerate(("sink", "c", "s", "b", "a", "own"))] + [("label", ())]
    for first_row, ones, top, read in product(flags, flags, flags, "-_"):
        a, b, s, c, *known, known_s, known_c = grid(
            DIGITS[:1] if top else DIGITS, DIGITS, DIGITS[: 1 if first_row or top else 10], DIGITS[: 1 if ones else 10],
            *(flags, flags, flags),
        )  # fmt: skip
        decided = (known_s | first_row | top) & (known_c | ones)
        legal = (c <= np.maximum(b - first_row, 0)) & (decided | ~known[0])
        label = np.divmod(a * b + s + c, 10)["-_".index(read)]
        cells: Cells = {"sink": np.array(SINK), "a": a, "b": b, "label": np.where(decided, label, UNKNOWN)}
        cells["own"] = labelled(TOKENS.index(read), known[0], label)
        cells |= {"s": labelled(TOKENS.index("_"), known_s, s), "c": labelled(TOKENS.index("-"), known_c, c)}
        missing = {"s"} if first_row or top else set()
        missing |= {"c"} if ones else set()
        cells = {cell: values[legal] if values.ndim else values for cell, values in cells.items() if cell not in missing}
        if not (ones and top):
            yield [part for part in text if part[0] not in missing], "own", cells


# ---- 3. What is seen? -------------------------------------------------------------------------------------------------

KEY, QUERY, NEITHER = "only the key", "only the query", "neither"


class Task(NamedTuple):
    """A task and its format.

    Attributes:
        cases: part 2.
        window: which relations a token sees: for each level of ids, the difference of the query's id (the token that sees)
            and the key's, or which of them has one. Their places number the relations.
        pattern, answer: regular expressions of queries without `$`, and of beginnings of responses, for the software.
        coupling: the name of the rule that gives ids; the task's own if it is empty.
        problems: which problems they are, in the words of the certificate.
        options: fields of the task's description, and which values are known.
        relation_range: the window, if the configuration gives it as the smallest and the largest difference.
        same_widths, larger_first: what the software checks of a query besides.
        tokens: how many of the tokens its vocabulary has.
        parts: the tasks that it is made of, if it is; encoder: whether an encoder learns it.
        name, end, operands: its name, its end token, and how many numbers are added or digits B has, if that varies.
    """

    cases: Callable[["Task"], Iterator[Case]]
    window: tuple[tuple[Any, ...], ...]
    pattern: str
    answer: str = "[0-9]*"
    coupling: str = ""
    problems: str = "operands of every length"
    options: dict[str, Any] = {}  # noqa: RUF012
    relation_range: list[int] | None = None
    same_widths: bool = True
    larger_first: bool = False
    tokens: int = len(TOKENS) - 1
    parts: tuple["Task", ...] = ()
    encoder: bool = False
    name: str = ""
    end: int = BEGIN
    operands: int = 2

    @property
    def vocabulary(self) -> list[str]:
        """An encoder knows letters, for text, in place of `/`."""
        return [*TOKENS[:-1], *map(chr, range(97, 123))] if self.encoder else TOKENS[: self.tokens]

    @property
    def relations(self) -> int:
        """Numbers of relations: the window's, one for keys without ids, and for a range two that do not occur here."""
        return len(self.window) + (3 if self.relation_range else 1)

    @property
    def prompt_format(self) -> dict[str, Any]:
        """Of a task without parts, see `check_formats`."""
        pattern = self.pattern.replace("COUNT", f"{self.operands}").replace("MORE", f"{self.operands - 1}")
        checks = {"equal_widths": self.same_widths, "larger_first": self.larger_first, "hint_step": 0}
        answer = None if self.encoder else self.answer
        # The last two are for messages alone.
        return {"pattern": pattern, "response": answer, **checks, "example": lambda text: True, "ones_first": is_flag}

    @property
    def limits(self) -> dict[str, int]:
        """The largest sizes that the software takes."""
        if self.encoder:
            return {"tokens": 2**31 - 1}
        return {"position_ids": self.largest_id, "tokens": MOST_TOKENS}

    @property
    def largest_id(self) -> int:
        """The largest position id: the software numbers keys by all ids in 63 bits, and ids in 31."""
        entries = [entry for relation in self.window for entry in relation if isinstance(entry, int)]
        levels = max(sum(entry != NEITHER for entry in relation) for relation in self.window)
        root = int(2 ** (63 / levels) + 1e-6)
        return min(2**31 - 1, root - max(0, *entries) + min(0, *entries) - 1)


MOST_TOKENS = math.isqrt(2**63)
"""Tokens of a problem: the software numbers pairs of tokens in 63 bits."""

NUMBER, NUMBER_ONES_FIRST = "(?:0|[1-9][0-9]*)", "(?:0|[0-9]*[1-9])"
ZEROS = ((rf"0{{{count}}}[0-9]+", f"{{{10 ** (count - 1)},{10**count - 1}}}") for count in range(1, 7))
NEXT_COLUMN = ((0,), (1,))
SCRATCHPAD = (
    *((0, QUERY, QUERY), (1, QUERY, QUERY), (QUERY, 0, QUERY), (QUERY, -1, QUERY), (1, QUERY, NEITHER), (QUERY, 0, NEITHER)),
    *((NEITHER, 1, 0), (NEITHER, 1, 1), (KEY, 0, 0), (KEY, 0, 1), (KEY, -1, QUERY), (NEITHER, QUERY, 1)),
)
ENCODER = {"field_width": None, "varied_field": False, "text_tokens": 0, "sampling": "uniform"}
EVERY_STRING = "strings of every length"
TASKS = {
    "addition": Task(
        sums, NEXT_COLUMN, r"[0-9]+\+[0-9]+=", relation_range=[0, 1],
        options={"zero_padding": is_flag, "order": one_of("response_reversed", "all_reversed")},
    ),
    "multi_operand_addition": Task(
        sums, NEXT_COLUMN, r"0[0-9]+(?:\+0[0-9]+){MORE}=", relation_range=[0, 1], options={"operands": one_of(2, 3, 4)},
    ),
    "subtraction": Task(
        differences, ((0, 2), (0, 1), (1, 2), (1, 1)), "[0-9]+-[0-9]+=", larger_first=True,
        problems="operands of every length, the first not smaller than the second",
    ),
    "copy": Task(strings, ((-1,),), "[0-9]+=", problems=EVERY_STRING, same_widths=False),
    "reverse": Task(strings, ((1,),), "[0-9]+=", problems=EVERY_STRING, same_widths=False),
    "parity": Task(
        strings, ((-1,),), "[0-1]+=", "[0-1]*", "copy", EVERY_STRING, options={"scratchpad": True}, same_widths=False,
    ),
    "minesweeper": Task(
        boards, tuple((column, row, QUERY) for row in (-1, 0, 1) for column in (-1, 0, 1)), "[M_]+(?:>[M_]+)*=", "[M0-8]*",
        "minesweeper_next_cell", "boards of every width and height, with any number of mines anywhere",
        {"min_mine_ratio": is_number, "max_mine_ratio": is_number},
    ),
    "addition_scratchpad": Task(
        running_sums, ((0, 1), (1, 1), (1, QUERY)), "|".join(rf"{first}(?:\+{first}){more}=" for first, more in ZEROS),
        "(?:[0-9]+>)*[0-9]*", problems="any number of operands of every length",
        options={"max_operands": is_number, "length_sampling": lambda name: isinstance(name, str)},
    ),
    "multiplication_scratchpad": Task(
        partial_products, SCRATCHPAD, rf"{NUMBER}\*{NUMBER}=", "(?:[0-9]+[+=>])*[0-9]*", same_widths=False,
    ),
    "multiplication": Task(
        products, (*((difference, QUERY) for difference in (1, 0, -1, -2)), (QUERY, 1), (QUERY, 2)),
        rf"{NUMBER}\*[0-9]{{COUNT}}=", coupling="multiplication_by_digits", same_widths=False,
        problems="a first operand of every length and every second operand", options={"multiplier_length": one_of(1, 2)},
    ),
    "division": Task(
        quotients, ((-1, QUERY), (QUERY, 1), (QUERY, 2), (0, 1)), f"{NUMBER}/[1-9]=", "[0-9]*(?:>[0-9]*)?",
        problems="a dividend of every length and every divisor of one digit", same_widths=False, tokens=len(TOKENS),
    ),
    "signed_subtraction": Task(
        signed_differences, ((0, 2), (0, 1), (1, 2), (1, 1)), "[1-9][0-9]*-[0-9]+=|[0-9]+-[1-9][0-9]*=|0-0=",
        "[0-9]*(?:-[0-9]*)?",
    ),
    "encoder_addition": Task(
        labels, NEXT_COLUMN, rf"_{{0,}}{NUMBER}\+_{{0,}}{NUMBER}", "", "coupled", options=ENCODER, relation_range=[0, 1],
        tokens=47, encoder=True,
    ),
    "encoder_multiplication": Task(
        labels, ((-1, NEITHER), (0, NEITHER), (QUERY, KEY)), rf"[0-9]\*_{{0,}}{NUMBER}", "", "uniform",
        "a first number of multiplier_length digits and a second number of every length",
        ENCODER | {"multiplier_length": 1, "spill": True}, [-1, 0], same_widths=False, tokens=47, encoder=True,
    ),
    "encoder_multiplication_grid": Task(
        labels_in_grid, tuple((place,) for place in range(5)), r"0[0-9]+\*(?:(?:-_)+[0-9])+", "", "grid",
        "two numbers of every length", relation_range=[-100, 100], same_widths=False, tokens=47, encoder=True,
    ),
}  # fmt: skip
"""The tasks that are known here."""


def join(*names: str, **options: Any) -> Task:
    """The task made of others. A relation is one of a part, and neither token has an id at the levels of the others."""
    parts = tuple(TASKS[name] for name in names)
    levels = [len(part.window[0]) for part in parts]
    window = [
        (*[NEITHER] * sum(levels[:place]), *relation, *[NEITHER] * sum(levels[place + 1 :]))
        for place, part in enumerate(parts)
        for relation in part.window
    ]
    problems = "; ".join(f"{name}: {part.problems}" for name, part in zip(names, parts, strict=True))
    return Task(joined, tuple(window), "", problems=problems, options=options, parts=parts)


TASKS["calculator"] = join(
    *("addition_scratchpad", "signed_subtraction", "multiplication_scratchpad"), max_operands=is_number
)


def find_task(described: Any) -> Task:
    """The task of a description; each of its fields must be known."""
    name = str(described.get("task")) if isinstance(described, dict) else ""
    require(name in TASKS, f"certificate.json: the task {name!r} is not known here, only {', '.join(TASKS)}")
    task = TASKS[name]
    ends = {} if task.encoder else {"separate_eos": is_flag}
    compare("certificate.json, task", described, {"task": name, **ends, **task.options})
    end = SEPARATE_END if described.get("separate_eos") else BEGIN
    ones_first = described.get("order") == "all_reversed"
    rule = "addition_all_reversed" if ones_first else task.coupling or name
    if described.get("zero_padding") is False:
        number = NUMBER_ONES_FIRST if ones_first else NUMBER
        task = task._replace(pattern=rf"{number}\+{number}=", same_widths=False)
    operands = described.get("operands", described.get("multiplier_length", 2))
    return task._replace(name=name, end=end, coupling=rule, operands=operands)


def relate(query: tuple[int, ...], key: tuple[int, ...], window: tuple[tuple[Any, ...], ...]) -> int | None:
    """The relation of a token with some ids to a key, None if it does not see it. Everything sees a key without ids, `$`."""
    if not any(key):
        return len(window)
    pair = [q - k if q and k else QUERY if q else KEY if k else NEITHER for q, k in zip(query, key, strict=True)]
    return window.index(tuple(pair)) if tuple(pair) in window else None


MOST_KEYS, RELATED = 16, 512


def list_neighbourhoods(task: Task) -> np.ndarray:
    """All neighbourhoods, each once, (count, 2 + keys): the token, what is right next, and the keys in any order.

    A key is `RELATED` (relation + 1) + token; 0 fills up. A token sees itself if its relation to itself is in the window.
    """
    tables = []
    for text, what, cells in task.cases(task):
        names = [name for name, _ in text]
        place = names.index(what)
        known = {name: TOKENS.index(name) for name in names if name in TOKENS} | {"end": task.end} | cells
        relations = [(name, relate(text[place][1], ids, task.window)) for name, ids in text[: place + 1]]
        keys = [RELATED * (relation + 1) + known[name] for name, relation in relations if relation is not None]
        require(len(keys) <= MOST_KEYS, "a token sees more keys than are provided for")
        columns = np.broadcast_arrays(known[what], known[names[place + 1]], *keys)
        table = np.zeros((columns[0].size, 2 + MOST_KEYS), np.uint16)
        table[:, : len(columns)] = np.stack(columns, axis=-1)
        table[:, 2:].sort()
        tables.append(distinct(table))
    table = distinct(np.concatenate(tables))
    return table[:, table.any(axis=0)]


def distinct(table: np.ndarray) -> np.ndarray:
    """The rows of a table, each once, compared as bytes."""
    rows = table.view(f"S{table.itemsize * table.shape[1]}").ravel()
    return np.unique(rows).view(table.dtype).reshape(-1, table.shape[1])


# ---- 4. Which network? ------------------------------------------------------------------------------------------------
# Every value has its exact numbers (in float64), and two bounds of its error in float32: of each number, the radius, and of
# the whole, its length. What an operation adds to errors by rounding, and by not being linear, is its defect. An error at
# the end is at most the sum over all values of |derivative of the end by the value| times its defect (Lemma 3), in whatever
# order a processor adds. Less work, and often enough, is to follow the length to the end (Lemma 3a).

UNIT = 2.0**-24
"""Largest relative error of one rounding to nearest in float32."""

FUNCTION = 8
"""Largest relative error of exp, tanh, a root or a quotient, in units."""

LARGEST, MOST_TERMS, TINY, SMALL = 2.0**40, 2**13, 2.0**-60, 1 / 16
"""Largest number; most terms of a sum; more than underflow adds; largest relative error for which the lemmas hold."""

STEEPEST, BENT = 1.13, 0.6
"""Of the activation: largest derivative, and half of the largest second derivative, or more (Lemma 8)."""


def gamma(roundings: Any) -> Any:
    """Largest relative error of a number after so many roundings."""
    return roundings * UNIT / (1 - roundings * UNIT)


class Linear(NamedTuple):
    """A weight (outputs, width), a bias, and the largest factor by which the weight makes a vector longer."""

    weight: np.ndarray
    bias: np.ndarray
    norm: float


class Mlp(NamedTuple):
    """An MLP: its activation, its matrices, and Lemma 8a's products of their rows and columns."""

    activate: Callable
    up: Linear
    gate: Linear | None
    down: Linear
    products: np.ndarray


class Value:
    """A value of many inputs, made of earlier values.

    Attributes:
        exact, radius: (inputs, width). length: (inputs,), a bound of the error's Euclidean length.
        sources: pairs of a value that it was made of and a function from derivatives by this value to those by the source.
    """

    def __init__(self, exact: np.ndarray, spread: Any, defect: Any, *sources: Any, common: Any = 0.0, length: Any = np.inf):
        """Args: see `Arithmetic.make`."""
        self.exact, self.sources = exact, sources
        self.defect, self.common = defect + TINY, common + np.zeros_like(exact)
        every = self.defect + np.abs(self.common)
        self.radius = spread + every
        self.shorten(length + size_of(every))

    def cost(self, slopes: np.ndarray) -> np.ndarray:
        """From derivatives of some ends by this value, (inputs, ends, width), to what its defects add, (inputs, ends)."""
        return (np.abs(slopes) @ self.defect[..., None] + np.abs(slopes @ self.common[..., None]))[..., 0]

    def shorten(self, length: np.ndarray) -> None:
        """Note a bound of the error's length."""
        self.length = np.minimum(length, size_of(self.radius))
        self.radius = np.minimum(self.radius, self.length.reshape(-1, *[1] * (self.radius.ndim - 1)))


class Arithmetic:
    """The operations of the network. Attributes: every value in the order of computation, and whether lemmas hold."""

    def __init__(self) -> None:
        self.made: list[Value] = []
        self.proved = np.ones(1, bool)

    def require(self, condition: np.ndarray) -> None:
        """Note for which inputs a condition of a lemma does not hold; it does not for nan."""
        self.proved = self.proved & condition.reshape(len(condition), -1).all(1)

    def make(self, *parts: Any, **more: Any) -> Value:
        """Keep a value: its numbers, what errors of its sources move them at most, its defect, and its sources.

        Args:
            common: a further defect, which is this vector times an unknown number between -1 and 1.
            length: how far errors of its sources move it at most, as a Euclidean length.
        """
        self.made.append(value := Value(*parts, **more))
        self.require(np.abs(value.exact) + value.radius <= LARGEST)
        return value

    def given(self, exact: np.ndarray, radius: Any) -> Value:
        """Lemma 10: a value whose errors are bounded, wherever they come from."""
        return self.make(exact, 0, radius + np.zeros_like(exact))

    def total(self, x: Value, linear: "Linear") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lemma 4: products with a weight plus a bias, what errors of x make of them, and the defect."""
        exact, spread = x.exact @ linear.weight.T + linear.bias, x.length[:, None] * size_of(linear.weight)
        size = (np.abs(x.exact) + x.radius) @ np.abs(linear.weight).T + np.abs(linear.bias)
        self.require(size <= LARGEST)
        return exact, spread, gamma(x.exact.shape[1] + 6) * (size + np.abs(exact) + spread) / 2 + TINY

    def product(self, x: Value, linear: "Linear") -> Value:
        back = (x, lambda slopes: slopes @ linear.weight)
        return self.make(*self.total(x, linear), back, length=linear.norm * x.length)

    def add(self, x: Value, y: Value) -> Value:
        """Lemma 5."""
        exact, spread = x.exact + y.exact, x.radius + y.radius
        sources = ((source, lambda slopes: slopes) for source in (x, y))
        return self.make(exact, spread, UNIT * (np.abs(exact) + spread), *sources, length=x.length + y.length)

    def center(self, x: Value) -> tuple[Value, np.ndarray, np.ndarray]:
        """Lemma 7: x less its mean. Further, for the norm that follows, the errors of its mean square and of its end."""
        width, size = x.exact.shape[1], np.abs(x.exact) + x.radius
        mean = size.mean(-1, keepdims=True)
        centred, spread = less_mean(x.exact), x.radius + x.radius.mean(-1, keepdims=True)
        defect = UNIT * (size + mean) + gamma(width + 3) * mean
        square = gamma(6 * width + 24) * (size**2).mean(-1, keepdims=True)
        return self.make(centred, spread, defect, (x, less_mean), length=x.length), square, 4 * UNIT * (size + mean)

    def norm(self, x: Value, weight: np.ndarray, eps: float, bias: np.ndarray | None = None) -> Value:
        """Lemma 6: x divided by the root of its mean square plus eps, times a weight; with a bias, Lemma 7."""
        square = end = np.zeros(1)
        if bias is not None:
            x, square, end = self.center(x)
        scale = 1 / np.sqrt((x.exact**2).mean(-1, keepdims=True) + eps)
        share, square = scale * x.length[:, None] * x.exact.shape[1] ** -0.5, square * scale**2
        self.require((share <= SMALL) & (square <= SMALL) & (scale <= 1e11))
        direction, factor, size = x.exact * scale, np.abs(scale * weight), np.abs(x.exact)
        exact, spread = direction * weight, factor * (x.radius + share * size)
        bent = factor * share * (3 * share * size + 1.5 * x.radius)
        common = gamma(x.exact.shape[1] / 2 + 2 * FUNCTION + 8) + square
        defect = bent + common * (spread + bent) + gamma(FUNCTION + 3) * (np.abs(exact) + spread + bent) + factor * end
        if bias is not None:
            defect += 2 * UNIT * np.abs(bias)

        def back(slopes: np.ndarray) -> np.ndarray:
            slopes, along = slopes * (scale * weight)[:, None], direction[:, None]
            return slopes - (slopes * along).mean(-1, keepdims=True) * along

        exact, common, length = exact + (0 if bias is None else bias), exact * common, factor.max(1) * x.length
        return self.make(exact, spread, defect, (x, back), common=common, length=length)

    def mlp(self, x: Value, mlp: "Mlp") -> Value:
        """Lemma 8a: products of `down` with the hidden units."""
        hidden, slopes = self.hidden(x, mlp.activate, mlp.up, mlp.gate)
        steepness = np.sqrt(np.maximum(((slopes @ mlp.products) * slopes).sum(-1), 0))
        length = np.minimum(mlp.down.norm * hidden.length, steepness * x.length + mlp.down.norm * size_of(hidden.defect))
        return self.make(*self.total(hidden, mlp.down), (hidden, lambda ends: ends @ mlp.down.weight), length=length)

    def hidden(self, x: Value, activate: Callable, up: "Linear", gate: "Linear | None") -> tuple[Value, np.ndarray]:
        """Lemma 8: units a(up x) (gate x), or without the last factor; and their derivatives by up x and gate x."""
        u, u_spread, u_defect = self.total(x, up)
        active, slope = activate(u)
        radius = u_spread + u_defect
        rounding = 3 * FUNCTION * UNIT * (np.abs(u) + radius)
        spread, defect = np.abs(slope) * u_spread, np.abs(slope) * u_defect + BENT * radius**2 + rounding
        if gate is None:
            return self.make(active, spread, defect, (x, lambda slopes: (slopes * slope[:, None]) @ up.weight)), slope
        g, g_spread, g_defect = self.total(x, gate)
        g_radius, radius = g_spread + g_defect, STEEPEST * radius + rounding
        spread, defect = np.abs(g) * spread + np.abs(active) * g_spread, np.abs(g) * defect + np.abs(active) * g_defect
        defect += radius * g_radius + UNIT * (np.abs(active) + radius) * (np.abs(g) + g_radius)
        slope *= g

        def back(slopes: np.ndarray) -> np.ndarray:
            return (slopes * slope[:, None]) @ up.weight + (slopes * active[:, None]) @ gate.weight

        return self.make(active * g, spread, defect, (x, back)), np.concatenate([slope, active], axis=1)

    def attention(self, query: Value, key: Value, value: Value, seen: np.ndarray, bias: Value) -> Value:
        """Lemma 9: means of given values weighted by the softmax of scores of given queries and keys.

        Args:
            query: (inputs, heads, width); key, value: (inputs, keys, heads, width).
            seen: (inputs, keys), whether there is a key; bias: (inputs, keys, heads).
        """
        q, q_radius, k, v = query.exact[:, None], query.radius[:, None], key.exact, value.exact
        factor, keys, seen = q.shape[-1] ** -0.5, seen.sum(1).reshape(-1, 1, 1), seen[..., None]
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
        square = 0.57 * (share * shift**2).sum(1, keepdims=True)
        share_defect = (square + 0.57 * (shift + square) ** 2 + 1.3 * roundings) * share + TINY

        def mean(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
            return (weights[..., None] * values).sum(1).reshape(len(values), -1)

        exact, size, passed = (mean(share, part) for part in (v, np.abs(v), value.radius))
        spread = mean(moved, np.abs(v - exact.reshape(len(v), 1, *v.shape[2:]))) + mean(share_defect, np.abs(v))
        defect = mean(share * shift + share_defect, value.radius) + 1.25 * gamma(2 * keys[:, 0] + 4) * (size + passed)
        read = self.make(exact, spread, defect + passed)
        of_mean, weight = read.cost, share.transpose(0, 2, 1)[:, :, None]

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
        waiting, total = {end: slopes}, np.zeros(())
        for value in reversed(self.made):
            if value in waiting:
                slopes = waiting.pop(value)
                total = total + value.cost(slopes)
                for source, back in value.sources:
                    waiting[source] = waiting.get(source, 0) + back(slopes)
        return total

    def tighten(self, value: Value) -> Value:
        """Replace the radius, which grows with every product, by the bound of each component's error where that is less."""
        value.radius = np.minimum(value.radius, self.error(value, np.eye(value.exact.shape[1])[None]))
        value.shorten(value.length)
        return value


def size_of(x: np.ndarray) -> np.ndarray:
    """Euclidean lengths, (inputs,)."""
    return np.sqrt((x**2).sum(axis=tuple(range(1, x.ndim))))


def less_mean(x: np.ndarray) -> np.ndarray:
    return x - x.mean(-1, keepdims=True)


def gelu_tanh(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The activation and its derivative."""
    factor = math.sqrt(2 / math.pi)
    tanh = np.tanh(factor * (u + 0.044715 * u**3))
    return u * (1 + tanh) / 2, (1 + tanh + u * (1 - tanh**2) * factor * (1 + 3 * 0.044715 * u**2)) / 2


def gelu(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As above, by the normal distribution."""
    share = (1 + erf(u / math.sqrt(2))) / 2
    return u * share, share + u * np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)


erf = np.vectorize(math.erf, otypes=[float])
ACTIVATIONS = {"gelu_pytorch_tanh": gelu_tanh, "gelu": gelu}


class Network:
    """The transformer: one layer of attention and an MLP, with those norms around them that have weights."""

    def __init__(self, weights: dict[str, np.ndarray], config: dict[str, Any]):
        self.weights, self.eps = weights, float(config.get("norm_eps") or config["layer_norm_eps"])
        if config.get("tie_word_embeddings"):
            weights["lm_head"] = weights["model.embed_tokens"] * config["hidden_size"] ** -0.5
        self.linear = {
            name: Linear(weight, weights.get(f"{name}.bias", np.zeros(1)), float(np.linalg.norm(weight, 2)))
            for name, weight in weights.items()
            if weight.ndim == 2
        }
        up, gate, down = self.linear["mlp.up_proj"], self.linear.get("mlp.gate_proj"), self.linear["mlp.down_proj"]
        inner = np.concatenate([part.weight for part in (up, gate) if part])
        behind = np.tile(down.weight, (1, len(inner) // len(up.weight)))
        products = (inner @ inner.T) * (behind.T @ behind)
        self.mlp = Mlp(ACTIVATIONS[config["hidden_act"]], up, gate, down, products)
        # What is read of a token depends on it alone, and on its label. The last row is the sink.
        arithmetic = Arithmetic()
        own = self.embed(arithmetic)
        normed = self.norm(arithmetic, own, "attention_norms.input")
        # With the scale "zero" there are no queries and keys, and scores are biases alone.
        none = Linear(np.zeros_like(weights["self_attn.v_proj"]), np.zeros(1), 0.0)
        projected = [arithmetic.product(normed, self.linear.get(f"self_attn.{name}_proj", none)) for name in "qkv"]
        tables = [arithmetic.tighten(value) for value in (own, *projected)]
        self.proved = arithmetic.proved.all()
        self.own, *split = ([np.pad(part, ((0, 1), (0, 0))) for part in (x.exact, x.radius)] for x in tables)
        self.projected = [[part.reshape(len(part), config["num_attention_heads"], -1) for part in pair] for pair in split]
        self.bias = self.relation_bias()

    def embed(self, arithmetic: Arithmetic) -> Value:
        """Tokens, or with an encoder the norms of the sums of tokens and labels."""
        tokens, labels = self.weights["model.embed_tokens"], self.weights.get("model.embed_states")
        if labels is None:
            return arithmetic.given(tokens, 0)
        place = np.arange(SINK)
        tokens, labels = tokens[place % len(TOKENS)], np.pad(labels, ((1, 0), (0, 0)))[place // len(TOKENS)]
        total = arithmetic.add(arithmetic.given(tokens, 0), arithmetic.given(labels, 0))
        return self.norm(arithmetic, total, "model.embedding_norm")

    def relation_bias(self) -> tuple[np.ndarray, np.ndarray]:
        """What relations add to scores, (tokens, relations, heads), and its radius; in an encoder by Lemma 13."""
        (query, radius), vectors = self.projected[0], self.weights.get("self_attn.relations.0")
        if vectors is None:
            bias = self.weights["model.position_encoding.relation_bias"]
            return np.repeat(bias, len(query), axis=0), np.zeros((len(query), *bias.shape[1:]))

        def scores(part: np.ndarray, by: np.ndarray) -> np.ndarray:
            return (part[:, None] * by).sum(-1) * part.shape[-1] ** -0.5

        size = scores(np.abs(query) + radius, np.abs(vectors))
        return scores(query, vectors), scores(radius, np.abs(vectors)) + gamma(query.shape[-1] + 6) * size + TINY

    def norm(self, arithmetic: Arithmetic, x: Value, name: str) -> Value:
        """The norm of this name; x itself if there is none."""
        weight = self.weights.get(name)
        return x if weight is None else arithmetic.norm(x, weight, self.eps, self.weights.get(f"{name}.bias"))

    def add(self, arithmetic: Arithmetic, x: Value, output: Value, norms: str) -> Value:
        total = arithmetic.add(x, self.norm(arithmetic, output, f"{norms}.output"))
        return self.norm(arithmetic, total, f"{norms}.sum")

    def leads_and_bounds(self, rows: np.ndarray, effort: int) -> tuple[np.ndarray, np.ndarray]:
        """Leads of what is right next over each token (infinite over itself) in neighbourhoods, and bounds of their errors.

        Args:
            effort: 0 for Lemma 3a, 1 for Lemma 3, 2 for Lemma 3 with tightened radii behind attention and MLP.
        """
        own, right, keys = rows[:, 0], rows[:, 1], rows[:, 2:]
        seen, keys, relations = keys > 0, keys % RELATED, np.maximum(keys // RELATED, 1) - 1
        arithmetic = Arithmetic()
        arithmetic.proved &= self.proved
        query, key, value = (
            arithmetic.given(exact[place], radius[place])
            for (exact, radius), place in zip(self.projected, (own, keys, keys), strict=True)
        )
        bias = arithmetic.given(*(part[own[:, None], relations] for part in self.bias))
        output = arithmetic.product(arithmetic.attention(query, key, value, seen, bias), self.linear["self_attn.o_proj"])
        if effort == 2:
            arithmetic.tighten(output)
        state = self.add(arithmetic, arithmetic.given(*(part[own] for part in self.own)), output, "attention_norms")
        output = arithmetic.mlp(self.norm(arithmetic, state, "mlp_norms.input"), self.mlp)
        if effort == 2:
            arithmetic.tighten(output)
        last = self.norm(arithmetic, self.add(arithmetic, state, output, "mlp_norms"), "model.norm")
        logits = arithmetic.product(last, self.linear["lm_head"])
        every, head, place = np.eye(logits.exact.shape[1]), self.linear["lm_head"].weight, right[:, None].astype(int)
        leads = np.take_along_axis(logits.exact, place, 1) - logits.exact
        if effort:
            bounds = arithmetic.error(logits, every[right][:, None] - every)
        else:
            apart = np.linalg.norm(head[:, None] - head, axis=-1)
            bounds = apart[right] * last.length[:, None] + logits.defect + np.take_along_axis(logits.defect, place, 1)
        bounds[~arithmetic.proved] = np.inf
        leads[every[right] == 1] = np.inf
        return leads, bounds


# ---- 5. So? -----------------------------------------------------------------------------------------------------------

ASKED = 10
"""How many times every lead must exceed its bound."""

CHUNK = 2**21
"""Derivatives of ends by hidden units that are held at once."""

DECODERS = (
    "For {problems}, up to position ids of {position_ids:,} and {tokens:,} tokens, greedy decoding with this model in "
    "float32 writes exactly the right response and its end token"
)
ENCODERS = (
    "For {problems}, up to {tokens:,} tokens, this model in float32 gives exactly the right label to every token at which "
    "the answer is read, after n + 1 passes at most for n labels"
)
PROCESSORS = (
    " ({task}), in whatever order a processor adds, if it rounds to nearest in float32 (no TF32) and its exp, log, tanh, "
    "erf, roots and quotients are within 4 units in the last place."
)
"""The corollaries in PROOF.md."""


class Checkpoint(NamedTuple):
    """What parts 1 and 2 make of a folder."""

    files: dict[str, bytes]
    certificate: dict[str, Any]
    task: Task
    config: dict[str, Any]
    weights: dict[str, np.ndarray]


def read_checkpoint(folder: Path) -> Checkpoint:
    """Raises Refused for what is not known here, or not as the certificate says."""
    certificate = read_certificate(folder)
    task = find_task(certificate.get("task"))
    files = read_files(folder, certificate.get("files"), task)
    check_tokenizer(files, task)
    config = check_configuration(files, task, certificate["task"])
    return Checkpoint(files, certificate, task, config, read_weights(files["model.safetensors"], config, task))


def bound_leads(network: Network, rows: np.ndarray, ratio: float, bound: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Leads and bounds in some neighbourhoods after the other.

    Args:
        ratio, bound: what each is to show of the ratio of a lead and its bound, and of the bound. Where it does not, more
            effort is made.
    """
    units, ends, width = (network.linear[name].weight.shape[0] for name in ("mlp.up_proj", "lm_head", "mlp.down_proj"))
    most = max(1, CHUNK // (units * max(ends, width)))
    for first in range(0, len(rows), most):
        part = rows[first : first + most]
        leads, bounds = network.leads_and_bounds(part, effort=0)
        for effort in (1, 2):
            # No bound helps where a lead is not above 0.
            unclear = (leads > 0).all(axis=1) & ~((leads >= ratio * bounds) & (bounds <= bound)).all(axis=1)
            if unclear.any():
                bounds[unclear] = np.fmin(bounds[unclear], network.leads_and_bounds(part[unclear], effort)[1])
        yield leads, bounds


def positive_number(certificate: dict[str, Any], name: str) -> float:
    value: Any = certificate.get(name)
    require(is_number(value) and 0 < value < math.inf, f"certificate.json: {name} {value!r} is no number above 0")
    return value


def verify(folder: Path) -> None:
    """Print what was read and found. Raises Refused unless everything holds."""
    files, certificate, task, config, weights = read_checkpoint(folder)
    for name, content in {"certificate.json": (folder / "certificate.json").read_bytes(), **files}.items():
        print(f"{sha256(content)}  {name}")
    rows = list_neighbourhoods(task)
    print(f"\nparameters      {sum(weight.size for weight in weights.values()):,}")
    print(f"neighbourhoods  {len(rows):,}", flush=True)
    margin, bound, ratio = (positive_number(certificate, name) for name in ("margin", "bound", "ratio"))
    lead, largest, smallest = math.inf, 0.0, math.inf
    for leads, bounds in bound_leads(Network(weights, config), rows, max(ASKED, ratio), bound):
        # Of a number and nan, these take nan, which no comparison holds for.
        lead, largest = np.minimum(lead, leads.min()), np.maximum(largest, bounds.max())
        smallest = np.minimum(smallest, (leads / bounds).min())
    print(f"smallest lead   {lead:.6g}\nlargest bound   {largest:.3g}, of what rounding can move a lead")
    print(f"smallest ratio  {smallest:.4g}, of a lead and its own bound; {ASKED} is asked\n", flush=True)
    require(lead > 0, "in some neighbourhood another token leads the right one, or none does")
    require(smallest >= ASKED, f"the smallest ratio of a lead and its bound is {smallest:.4g}, not {ASKED}")
    # The software measures leads in float32, and its bounds may be a little less.
    shown = {"margin": lead >= 0.99 * margin, "bound": largest <= 1.01 * bound, "ratio": smallest >= 0.99 * ratio}
    for name, found in {"margin": lead, "bound": largest, "ratio": smallest}.items():
        require(shown[name], f"certificate.json: {name} {certificate[name]:.6g} says more than is found here, {found:.6g}")
    described = ", ".join(f"{name} {value}" for name, value in certificate["task"].items())
    statement = (ENCODERS if task.encoder else DECODERS) + PROCESSORS
    statement = statement.format(problems=task.problems, task=described, **task.limits)
    stated = {"statement": statement, "neighbourhoods": len(rows), "wrong": 0, "limits": task.limits}
    compare("certificate.json", {name: certificate.get(name) for name in stated}, stated)
    print(f"VERIFIED. {statement}")


def main() -> None:
    """Run the command."""
    if len(sys.argv) != 2:
        sys.exit("usage: python verify_certificate.py FOLDER")
    try:
        with np.errstate(all="ignore"):
            verify(Path(sys.argv[1]))
    except Refused as reason:
        sys.exit(f"REFUSED: {reason}")
    except Exception as error:
        sys.exit(f"REFUSED: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
