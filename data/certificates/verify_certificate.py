"""Verify the certificate of a checkpoint with numpy alone: `python verify_certificate.py FOLDER`, or `.` for this folder.

The claim: a small transformer answers every problem of its task, of any size, exactly. This file proves it again from the
weights. It imports nothing of the package that wrote the certificate and takes nothing from it on trust. A reader asks:

    1. Which files?      Each is read here, its SHA-256 is printed, and what this file does not know is refused by name.
    2. Which problems?   How a task writes a problem and its right response as tokens, and which position ids they have.
    3. What is seen?     A token sees few others. What it sees, its neighbourhood, is one of a finite list, for every size.
    4. Which network?    Its logits in each neighbourhood, in float64, with a bound of what rounding in float32 can move.
    5. So?               If the right token leads everywhere by ten times the bound, greedy decoding is right, by induction:
                         a prefix that is right has a last token in the list, so the next token is right too.

Lemmas are those of hub_cards/PROOF.md in longhand, the package that wrote the certificate. It says what is assumed of a
processor. Assumed besides: the Python files whose hashes are printed, and the libraries that run them, compute the network
of part 4 for the position ids of part 2. The exit status is 0 only if everything holds.

Not known here, and refused by name: encoders, networks of several layers, and settings that no recipe of a certified model
has. Of the certificate, the fields proof, weights, problems, predictions, bound and ratio are the package's own account.
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

TOKENS = [*"0123456789+-*=>M_$", "<eos>", "<pad>", "<unk>"]
"""A token's id is its place. `$` begins every sequence, and ends it unless the task has an end token of its own."""

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


def read_files(folder: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files that decide an answer, which are those that the certificate names, and the certificate."""
    certificate = read_json("certificate.json", (folder / "certificate.json").read_bytes())
    require(certificate.get("certified") is True, "certificate.json: certified is not true")
    named = certificate.get("files") or {}
    require(isinstance(named, dict), "certificate.json: files names no files")
    found = {file.relative_to(folder).as_posix() for pattern in LOADED for file in folder.glob(pattern)} - {*IDLE}
    for name in sorted(found | named.keys() | {*READ}):
        require(name in named, f"{name} is not among the files of certificate.json")
        require(name in found, f"{name} is missing")
        require(name in READ or fnmatch.fnmatch(name, "*.py"), f"{name} is of a kind that is not known here")
    contents = {name: (folder / name).read_bytes() for name in sorted(found)}
    for name, content in contents.items():
        require(sha256(content) == named[name], f"{name} has not the SHA-256 that certificate.json names, {named[name]}")
    return contents, certificate


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_json(name: str, content: bytes) -> dict[str, Any]:
    """A JSON object in which no key stands twice, since readers differ in which of the two they take."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        require(len(pairs) == len(dict(pairs)), f"{name}: a key stands twice")
        return dict(pairs)

    value = json.loads(content, object_pairs_hook=once)
    require(isinstance(value, dict), f"{name} holds no JSON object")
    return value


def compare(name: str, found: dict[str, Any], expected: dict[str, Any], ignored: tuple[str, ...] = ()) -> None:
    """Refuse a key that is not known, and a value other than the expected one, or of those for which a function is true."""
    for key, value in found.items():
        require(key in expected or key in ignored, f"{name}: {key} {value!r} is not known here")
    for key, wanted in expected.items():
        require(key in found, f"{name}: {key} is missing")
        # As text, because True == 1 and 1 == 1.0.
        same = wanted(found[key]) if callable(wanted) else json.dumps(found[key]) == json.dumps(wanted)
        require(same, f"{name}: {key} {found[key]!r} is none for which something is known here")


def one_of(*legal: Any) -> Callable[[Any], bool]:
    """Whether a value is one of some, for `compare`."""
    return lambda value: json.dumps(value) in map(json.dumps, legal)


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def is_size(value: Any) -> bool:
    return type(value) is int and 0 < value <= MOST_TERMS


is_flag = one_of(False, True)


def check_tokenizer(files: dict[str, bytes], end: int) -> None:
    """A tokenizer that puts `$` first and makes one token of each character, by the table `TOKENS`."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    sequence = [{"Sequence": {"id": part, "type_id": place}} for place, part in enumerate("AB")]
    compare("tokenizer.json", read_json("tokenizer.json", files["tokenizer.json"]), {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "decoder": {"type": "Fuse"},
        "added_tokens": [{"id": place, "content": TOKENS[place], **special} for place in range(BEGIN, len(TOKENS))],
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "begin", "type_id": 0}}, sequence[0]],
            "pair": sequence, "special_tokens": {"begin": {"id": "begin", "ids": [BEGIN], "tokens": ["$"]}},
        },
        "model": {"type": "WordLevel", "vocab": {text: place for place, text in enumerate(TOKENS)}, "unk_token": "<unk>"},
    })  # fmt: skip
    compare("tokenizer_config.json", read_json("tokenizer_config.json", files["tokenizer_config.json"]), {
        "bos_token": "$", "eos_token": TOKENS[end], "pad_token": "<pad>", "unk_token": "<unk>", "padding_side": "left",
        "extra_special_tokens": ["<eos>"] if end == BEGIN else [], "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"], "backend": "tokenizers",
        "model_max_length": lambda length: is_number(length) and length >= MOST_TOKENS,
        "tokenizer_class": one_of("TokenizersBackend", "PreTrainedTokenizerFast"),
    }, ignored=("is_local", "local_files_only"))  # fmt: skip


def check_configuration(files: dict[str, bytes], task: "Task", described: dict[str, Any]) -> dict[str, Any]:
    """Only settings for which parts 2 to 4 are right, and greedy decoding until the end token. Returns config.json."""
    config, end = read_json("config.json", files["config.json"]), task.end
    compare("config.json", config, {
        "architectures": ["CoupledGPTForCausalLM"], "model_type": "coupled_gpt", "dtype": "float32",
        "vocab_size": len(TOKENS), "bos_token_id": BEGIN, "eos_token_id": end, "pad_token_id": PADDING,
        "hidden_size": is_size, "num_attention_heads": is_size, "head_dim": is_size, "intermediate_size": is_size,
        "num_hidden_layers": 1, "mlp": "geglu", "hidden_act": "gelu_pytorch_tanh", "norm": "rms",
        "norm_placement": "sandwich", "norm_eps": lambda eps: type(eps) is float and 0 < eps < 1,
        "tie_word_embeddings": is_flag, "attention_scale": one_of("sqrt", "zero"), "qk_norm": False,
        "position_encoding": "pairwise", "windowed": True, "relation_range": task.relation_range, "coupling": task.coupling,
        "position_levels": len(task.window[0]), "randomized_positions": False, "wrap_position_ids": False,
        "task": lambda stated: stated == described,
    }, ignored=(
        # Of initial weights, of training, and of position encodings that are not used here.
        *("init", "log_length_init", "qk_norm_init", "relation_init", "position_init", "max_position_ids", "rotary_base"),
        *("share_level_tables", "relative_attention_num_buckets", "relative_attention_max_distance"),
        # Of software. The next lines read the last two, which may be missing.
        *("transformers_version", "use_cache", "auto_map", "prompt_format"),
    ))  # fmt: skip
    places = {
        "AutoConfig": "configuration_coupled_gpt.CoupledGPTConfig",
        "AutoModel": "modeling_coupled_gpt.CoupledGPTModel",
    }
    places["AutoModelForCausalLM"] = "modeling_coupled_gpt.CoupledGPTForCausalLM"
    compare("config.json, auto_map", config.get("auto_map", places), places)
    if config.get("prompt_format") is not None:
        compare("config.json, prompt_format", config["prompt_format"], task.prompt_format)
    generation = read_json("generation_config.json", files["generation_config.json"])
    compare("generation_config.json", generation, {
        "eos_token_id": end, "bos_token_id": BEGIN, "pad_token_id": PADDING, "do_sample": False,
    }, ignored=(
        # What is computed besides, and how.
        *("use_cache", "return_dict_in_generate", "output_attentions", "output_hidden_states", "output_scores"),
        *("output_logits", "transformers_version", "_from_model_config"),
    ))  # fmt: skip
    return config


def read_weights(content: bytes, config: dict[str, Any], relations: int) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file: the length of a header, the header, and the numbers without gaps."""
    size = int.from_bytes(content[:8], "little")
    require(0 < size <= len(content) - 8, "model.safetensors: the header is longer than the file")
    header, data = read_json("model.safetensors", content[8 : 8 + size]), content[8 + size :]
    header.pop("__metadata__", None)
    hidden, units = config["hidden_size"], config["intermediate_size"]
    heads, width = config["num_attention_heads"], config["num_attention_heads"] * config["head_dim"]
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (len(TOKENS), hidden), "model.norm.weight": (hidden,)}
    shapes |= {} if config["tie_word_embeddings"] else {"lm_head.weight": (len(TOKENS), hidden)}
    content = config["attention_scale"] == "sqrt"
    shapes |= {f"{layer}self_attn.{name}_proj.weight": (width, hidden) for name in ("qkv" if content else "v")}
    shapes |= {f"{layer}self_attn.o_proj.weight": (hidden, width)}
    shapes |= {f"{layer}mlp.{name}_proj.weight": (units, hidden) for name in ("up", "gate")}
    shapes |= {f"{layer}mlp.down_proj.weight": (hidden, units)}
    places = product(("attention_norms", "mlp_norms"), ("input", "output"))
    shapes |= {f"{layer}{norms}.{place}.weight": (hidden,) for norms, place in places}
    shapes |= {"model.position_encoding.relation_bias": (1, relations, heads)}
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
    return {name.removeprefix(layer).removesuffix(".weight"): weight for name, weight in weights.items()}


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

SIZES = (1, 2, 3, 4)
NOTHING: tuple[Cells, np.ndarray] = ({}, np.zeros(1, int))


def grid(*ranges: Any) -> list[np.ndarray]:
    """Every combination of the values of some ranges, as one flat array for each range."""
    return [axis.ravel() for axis in np.meshgrid(*map(np.asarray, ranges), indexing="ij")]


def row_of_digits(name: Any, width: int, column: Column) -> Iterator[tuple[Any, Cells]]:
    """All contents of the columns k and k + 1 of a sum with `width` digits, for every k from -1, where the sum begins.

    Digit k of a sum is (t + c) mod 10, with the total t of column k and the carry c into it; (t + c) div 10 is carried on,
    and nothing is carried out of the top. So the digits k and k + 1 follow from both columns and one carry. A carry is
    paired with every content of the two columns, since columns below may have any content. All carries that there are come
    out of one column already, as each task below says; the loop adds column after column all the same.

    Args:
        column: see `Column`.

    Yields:
        The name of digit k, and the cells; digit -1 is the token before the ones, here `=`.
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
        left = following if k + 1 == width else following // 10 if k + 2 == width else np.zeros_like(following)
        yield (*name, k), {cell: values[left == 0] for cell, values in found.items()}
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
    name: str = ""
    end: int = BEGIN
    operands: int = 2

    @property
    def relations(self) -> int:
        """Numbers of relations: the window's, one for keys without ids, and for a range two that do not occur here."""
        return len(self.window) + (3 if self.relation_range else 1)

    @property
    def prompt_format(self) -> dict[str, Any]:
        """What the software refuses: no query of the task, and no beginning of its response."""
        pattern = self.pattern.replace("COUNT", f"{self.operands}").replace("MORE", f"{self.operands - 1}")
        checks = {"equal_widths": self.same_widths, "larger_first": self.larger_first, "hint_step": 0}
        # The last two are for messages alone.
        return {"pattern": pattern, "response": self.answer, **checks, "example": lambda text: True, "ones_first": is_flag}

    @property
    def largest_id(self) -> int:
        """The largest position id: the software numbers keys by all ids in 63 bits, and ids in 31."""
        entries = [entry for relation in self.window for entry in relation if isinstance(entry, int)]
        root = int(2 ** (63 / len(self.window[0])) + 1e-6)
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
}  # fmt: skip
"""The tasks that are known here. Those of encoders would follow, with a network and a conclusion of their own."""


def find_task(described: Any) -> Task:
    """The task of a description; each of its fields must be known."""
    name = str(described.get("task")) if isinstance(described, dict) else ""
    require(name in TASKS, f"certificate.json: the task {name!r} is not known here, only {', '.join(TASKS)}")
    task = TASKS[name]
    compare("certificate.json, task", described, {"task": name, "separate_eos": is_flag, **task.options})
    end = SEPARATE_END if described["separate_eos"] else BEGIN
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


MOST_KEYS = 16


def list_neighbourhoods(task: Task) -> np.ndarray:
    """All neighbourhoods, each once, (count, 2 + keys): the token, what is right next, and the keys in any order.

    A key is 32 (relation + 1) + token; 0 fills up. A token sees itself if its relation to itself is in the window.
    """
    tables = []
    for text, what, cells in task.cases(task):
        names = [name for name, _ in text]
        place = names.index(what)
        known = {name: TOKENS.index(name) for name in names if name in TOKENS} | {"end": task.end} | cells
        relations = [(name, relate(text[place][1], ids, task.window)) for name, ids in text[: place + 1]]
        keys = [32 * (relation + 1) + known[name] for name, relation in relations if relation is not None]
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
# Every value has its exact numbers (in float64), and a radius, a bound of each number's error in float32. What an operation
# adds to errors by rounding, and by not being linear, is its defect. An error at the end is at most the sum over all values
# of |derivative of the end by the value| times its defect (Lemma 3), in whatever order a processor adds.

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


class Value:
    """A value of many inputs, made of earlier values.

    Attributes:
        exact, radius: (inputs, width).
        cost: from derivatives of some ends by this value, (inputs, ends, width), to what its defects add, (inputs, ends).
        sources: pairs of a value that it was made of and a function from derivatives by this value to those by the source.
    """

    def __init__(self, exact: np.ndarray, spread: Any, defect: Any, *sources: tuple["Value", Callable]):
        self.exact, self.sources = exact, sources
        defect = defect + TINY
        self.radius = spread + defect
        self.cost: Callable = lambda slopes: (np.abs(slopes) @ defect[..., None])[..., 0]


class Arithmetic:
    """The operations of the network. Attributes: every value in the order of computation, and whether lemmas hold."""

    def __init__(self, inputs: int):
        self.made: list[Value] = []
        self.proved = np.ones(inputs, bool)

    def require(self, condition: np.ndarray) -> None:
        """Note for which inputs a condition of a lemma does not hold; it does not for nan."""
        self.proved &= condition.reshape(len(self.proved), -1).all(1)

    def make(self, *parts: Any) -> Value:
        """Keep a value."""
        self.made.append(value := Value(*parts))
        self.require(np.abs(value.exact) + value.radius <= LARGEST)
        return value

    def given(self, exact: np.ndarray, radius: Any) -> Value:
        """Lemma 10: a value whose errors are bounded, wherever they come from."""
        return self.make(exact, 0, radius + np.zeros_like(exact))

    def total(self, x: Value, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lemma 4: products with a weight (outputs, width), what errors of x make of them, and the defect."""
        size = np.abs(weight).T
        spread = x.radius @ size
        far = np.abs(x.exact) @ size + spread
        self.require(far <= LARGEST)
        return x.exact @ weight.T, spread, gamma(weight.shape[1] + 3) * far + TINY

    def product(self, x: Value, weight: np.ndarray) -> Value:
        return self.make(*self.total(x, weight), (x, lambda slopes: slopes @ weight))

    def add(self, x: Value, y: Value) -> Value:
        """Lemma 5."""
        exact, spread = x.exact + y.exact, x.radius + y.radius
        return self.make(
            exact, spread, UNIT * (np.abs(exact) + spread), *((source, lambda slopes: slopes) for source in (x, y))
        )

    def norm(self, x: Value, weight: np.ndarray, eps: float) -> Value:
        """Lemma 6: x divided by the root of its mean square plus eps, times a weight."""
        scale = 1 / np.sqrt((x.exact**2).mean(-1, keepdims=True) + eps)
        share = scale * np.sqrt((x.radius**2).mean(-1, keepdims=True))
        self.require((share <= SMALL) & (scale <= 1e11))
        direction, factor, size = x.exact * scale, scale * weight, np.abs(x.exact)
        spread = np.abs(factor) * (x.radius + share * size)
        bent = np.abs(factor) * share * (3 * share * size + 1.5 * x.radius)
        rounding = gamma(x.exact.shape[-1] / 2 + 2 * FUNCTION + 10) * (np.abs(direction * weight) + spread + bent)

        def back(slopes: np.ndarray) -> np.ndarray:
            slopes, along = slopes * factor[:, None], direction[:, None]
            return slopes - (slopes * along).mean(-1, keepdims=True) * along

        return self.make(direction * weight, spread, bent + rounding, (x, back))

    def hidden(self, x: Value, up: np.ndarray, gate: np.ndarray) -> Value:
        """Lemma 8: units a(up x) (gate x), a the gelu with tanh."""
        (u, u_spread, u_defect), (g, g_spread, g_defect) = self.total(x, up), self.total(x, gate)
        factor = math.sqrt(2 / math.pi)
        tanh = np.tanh(factor * (u + 0.044715 * u**3))
        active, slope = u * (1 + tanh) / 2, (1 + tanh + u * (1 - tanh**2) * factor * (1 + 3 * 0.044715 * u**2)) / 2
        u_radius, g_radius = u_spread + u_defect, g_spread + g_defect
        rounding = 3 * FUNCTION * UNIT * (np.abs(u) + u_radius)
        radius = STEEPEST * u_radius + rounding
        by_up, by_gate = slope * g, active
        spread = np.abs(by_up) * u_spread + np.abs(by_gate) * g_spread
        defect = np.abs(by_up) * u_defect + np.abs(g) * (BENT * u_radius**2 + rounding) + np.abs(active) * g_defect
        defect += radius * g_radius + UNIT * (np.abs(active) + radius) * (np.abs(g) + g_radius)

        def back(slopes: np.ndarray) -> np.ndarray:
            return (slopes * by_up[:, None]) @ up + (slopes * by_gate[:, None]) @ gate

        return self.make(active * g, spread, defect, (x, back))

    def attention(self, query: Value, key: Value, value: Value, seen: np.ndarray, bias: np.ndarray) -> Value:
        """Lemma 9: means of given values weighted by the softmax of scores of given queries and keys.

        Args:
            query: (inputs, heads, width); key, value: (inputs, keys, heads, width).
            seen: (inputs, keys), whether there is a key; bias: (inputs, keys, heads).
        """
        q, q_radius, k, v = query.exact[:, None], query.radius[:, None], key.exact, value.exact
        factor, keys, seen = q.shape[-1] ** -0.5, seen.sum(1).reshape(-1, 1, 1), seen[..., None]
        score = factor * (q * k).sum(-1) + bias
        spread = factor * (np.abs(q) * key.radius + q_radius * np.abs(k)).sum(-1)
        bent = factor * (q_radius * key.radius).sum(-1)
        size = factor * np.abs(q * k).sum(-1) + spread + bent
        defect = bent + gamma(q.shape[-1] + 2 * FUNCTION + 8) * size
        defect += UNIT * (np.abs(score) + spread + defect) + TINY
        self.require(size + np.abs(score) + defect <= LARGEST)
        radius = np.where(seen, spread + defect, 0)
        far = radius.max(1, keepdims=True)
        below = np.where(seen, np.where(seen, score, -np.inf).max(1, keepdims=True) - score, np.inf)
        share = np.exp(-below)
        share /= share.sum(1, keepdims=True)
        roundings = 4 * UNIT * (np.where(seen, below, 0) + 2 * far) + gamma(2 * (keys + 1) * (FUNCTION + 3))
        self.require((far <= SMALL) & (roundings <= SMALL))
        share_defect = (3 * far**2 + 1.3 * roundings) * share + TINY
        share_radius = share * (radius + (share * radius).sum(1, keepdims=True)) + share_defect

        def mean(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
            return (weights[..., None] * values).sum(1).reshape(len(values), -1)

        passed, bent = mean(share, value.radius), mean(share_radius, value.radius)
        spread = mean(share_radius, np.abs(v))
        defect = bent + gamma(2 * keys[:, 0] + 4) * (mean(share, np.abs(v)) + spread + passed + bent) + passed
        read = self.make(mean(share, v), spread, defect)
        of_mean, weight = read.cost, share.transpose(0, 2, 1)[:, :, None]

        def cost(slopes: np.ndarray) -> np.ndarray:
            """Errors of scores move all weights of a head, by p_k (v_k - y)."""
            by_head = slopes.reshape(*slopes.shape[:2], *v.shape[2:]).transpose(0, 2, 1, 3)
            by_share = by_head @ v.transpose(0, 2, 3, 1)
            by_score = (by_share - (by_share * weight).sum(-1, keepdims=True)) * weight
            moved = np.abs(by_score) @ radius.transpose(0, 2, 1)[..., None]
            return of_mean(slopes) + (moved + np.abs(by_share) @ share_defect.transpose(0, 2, 1)[..., None])[..., 0].sum(1)

        read.cost = cost
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
        return value


class Network:
    """The transformer: one layer of attention and a gated MLP, a norm before and behind each, a norm at the end."""

    def __init__(self, weights: dict[str, np.ndarray], config: dict[str, Any]):
        self.weights, self.eps, heads = weights, config["norm_eps"], config["num_attention_heads"]
        embedding = weights["model.embed_tokens"]
        tied = config["tie_word_embeddings"]
        self.output = embedding * config["hidden_size"] ** -0.5 if tied else weights["lm_head"]
        self.bias = weights["model.position_encoding.relation_bias"][0]
        # A token's query, key and value depend on the token alone.
        self.tokens = arithmetic = Arithmetic(len(TOKENS))
        # With the scale "zero" there are no queries and keys, and scores are biases alone.
        none = np.zeros_like(weights["self_attn.v_proj"])
        self.embedding = embedding
        normed = self.norm(arithmetic, arithmetic.given(embedding, 0), "attention_norms.input")
        projected = [arithmetic.product(normed, weights.get(f"self_attn.{name}_proj", none)) for name in "qkv"]
        split = (len(TOKENS), heads, -1)
        self.projected = [(value.exact.reshape(split), value.radius.reshape(split)) for value in projected]

    def norm(self, arithmetic: Arithmetic, x: Value, name: str) -> Value:
        return arithmetic.norm(x, self.weights[name], self.eps)

    def leads_and_bounds(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Leads of the right token over each token (infinite over itself) in neighbourhoods, and bounds of their errors."""
        own, right, keys, weights = rows[:, 0], rows[:, 1], rows[:, 2:], self.weights
        seen, keys, relations = keys > 0, keys % 32, np.maximum(keys // 32, 1) - 1
        arithmetic = Arithmetic(len(rows))
        arithmetic.proved &= self.tokens.proved.all()
        query, key, value = (
            arithmetic.given(exact[place], radius[place])
            for (exact, radius), place in zip(self.projected, (own, keys, keys), strict=True)
        )
        read = arithmetic.attention(query, key, value, seen, self.bias[relations])
        output = arithmetic.tighten(arithmetic.product(read, weights["self_attn.o_proj"]))
        start = arithmetic.given(self.embedding[own], 0)
        state = arithmetic.add(start, self.norm(arithmetic, output, "attention_norms.output"))
        inner = self.norm(arithmetic, arithmetic.tighten(state), "mlp_norms.input")
        hidden = arithmetic.hidden(inner, weights["mlp.up_proj"], weights["mlp.gate_proj"])
        output = arithmetic.tighten(arithmetic.product(hidden, weights["mlp.down_proj"]))
        state = arithmetic.add(state, self.norm(arithmetic, output, "mlp_norms.output"))
        if (np.linalg.norm(state.radius, axis=1) > SMALL / 4 * np.linalg.norm(state.exact, axis=1)).any():
            arithmetic.tighten(state)
        logits = arithmetic.product(self.norm(arithmetic, state, "model.norm"), self.output)
        every = np.eye(len(TOKENS))
        leads = np.take_along_axis(logits.exact, right[:, None].astype(int), 1) - logits.exact
        bounds = arithmetic.error(logits, every[right][:, None] - every)
        bounds[~arithmetic.proved] = np.inf
        leads[every[right] == 1] = np.inf
        return leads, bounds


# ---- 5. So? -----------------------------------------------------------------------------------------------------------

ASKED = 10
"""How many times every lead must exceed its bound."""

CHUNK = 2**21
"""Numbers that are held at once for the derivatives of some neighbourhoods by their hidden units."""

STATEMENT = (
    "For {problems}, up to position ids of {ids:,} and {tokens:,} tokens, greedy decoding with this model in float32 writes "
    "exactly the right response and its end token ({task}), in whatever order a processor adds, if it rounds to nearest in "
    "float32 (no TF32) and its exp, log, tanh, erf, roots and quotients are within 4 units in the last place."
)
"""The corollary in PROOF.md."""


class Checkpoint(NamedTuple):
    """What parts 1 and 2 make of a folder."""

    files: dict[str, bytes]
    certificate: dict[str, Any]
    task: Task
    config: dict[str, Any]
    weights: dict[str, np.ndarray]


def read_checkpoint(folder: Path) -> Checkpoint:
    """Raises Refused for what is not known here, or not as the certificate says."""
    files, certificate = read_files(folder)
    task = find_task(certificate.get("task"))
    check_tokenizer(files, task.end)
    config = check_configuration(files, task, certificate["task"])
    return Checkpoint(files, certificate, task, config, read_weights(files["model.safetensors"], config, task.relations))


def verify(folder: Path) -> None:
    """Print what was read and found. Raises Refused unless everything holds."""
    files, certificate, task, config, weights = read_checkpoint(folder)
    for name, content in {"certificate.json": (folder / "certificate.json").read_bytes(), **files}.items():
        print(f"{sha256(content)}  {name}")
    rows = list_neighbourhoods(task)
    print(f"\nparameters      {sum(weight.size for weight in weights.values()):,}")
    print(f"neighbourhoods  {len(rows):,}", flush=True)
    network, chunk = Network(weights, config), max(1, CHUNK // (config["hidden_size"] * config["intermediate_size"]))
    lead, bound, ratio = math.inf, 0.0, math.inf
    for first in range(0, len(rows), chunk):
        leads, bounds = network.leads_and_bounds(rows[first : first + chunk])
        # Of a number and nan, these take nan, which no comparison holds for.
        lead, bound = np.minimum(lead, leads.min()), np.maximum(bound, bounds.max())
        ratio = np.minimum(ratio, (leads / bounds).min())
    print(f"smallest lead   {lead:.6g}\nlargest bound   {bound:.3g}, of what rounding can move a lead")
    print(f"smallest ratio  {ratio:.4g}, of a lead and its own bound; {ASKED} is asked\n", flush=True)
    require(lead > 0, "in some neighbourhood another token leads the right one, or none does")
    require(ratio >= ASKED, f"the smallest ratio of a lead and its bound is {ratio:.4g}, not {ASKED}")
    described = ", ".join(f"{name} {value}" for name, value in certificate["task"].items())
    statement = STATEMENT.format(problems=task.problems, ids=task.largest_id, tokens=MOST_TOKENS, task=described)
    # The software measures leads in float32, and its bound may be another one.
    stated = {"statement": statement, "neighbourhoods": len(rows), "wrong": 0}
    stated["margin"] = lambda margin: is_number(margin) and abs(margin - lead) <= 0.01 * lead
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
