"""Theorems of paper 1 as weights: CoupledGPT models that were never trained and are exact up to a stated length.

The study writes such a model as a checkpoint that eval.py evaluates:

python -m longhand.hub_cards.research constructions addition --max_length 10000 --output_dir outputs/constructed-addition

constructions.jsonl holds what eval.py measures at 10,000 digits.

A construction writes the parameters of an ordinary `CoupledGPTForCausalLM` without norms, so it has no forward code of its
own. Its residual stream is a list of named rows: one part of the model writes a row, other parts read it.

**Codes.** The vectors v_1, v_2, ... of position ids hold the signs of the P bits of the id minus 1, so <v_k, v_k> = P and
<v_k, v_l> <= P - 2 for k != l; v_(2^P + 1) is v_1 again. The code is cyclic, so the ids may start anywhere on the ring of
2^P.

**Attention.** A head *attends to* certain keys, always with BOS among them: these score the largest possible sum, and all
other keys at least 2M less. A score is M times the sum of an inner product of codes and of marks of the key. With N tokens
the other keys together weigh at most e = N exp(-2M) of one key that the head attends to. So a head gives the mean over the
keys that it attends to, up to an error of e times the largest value. The number of these keys, BOS included, is known
wherever the mean matters; values are multiplied by this number, and the mean becomes a sum. If the head attends to BOS
alone, the mean is 0.

**Reading out.** The logit of a digit is a row that is 1 for the right digit and 0 for the others; all other logits but the
logit of `$` are 0. The logit of `$` is twice a row that is 1 after the last digit and 0 before, so there it wins over any
digit. Only the response counts: predictions inside the query are arbitrary.

Queries are multiplied by M, and keys hold small integers only. So the scores of all keys that a head attends to are the same
number in floating point too, in any precision that holds M.
"""

# Used by: whoever runs or imports it. Changed freely.

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from longhand.data.tasks.registry import task_from_recipe
from longhand.hub_cards.commands import command_of
from longhand.hub_cards.recipes import RECIPE_FILE, write_recipe
from longhand.modeling import CoupledGPTConfig, CoupledGPTForCausalLM
from longhand.modeling.checks import check_integer
from longhand.modeling.vocabulary import BOS, EQUALS, TIMES

MAX_BITS = 24
"""Largest P: its table of 2^P ids takes some gigabytes, and serves numbers of 16 million digits."""


def _logit_scale(bits: int, numbers: int, others: int, leak: float) -> float:
    """Check P; return M, the smallest multiple of 1/4 with e = N exp(-2M) at most `leak`.

    Args:
        numbers, others: the longest sequence has N = `numbers` * 2^bits + `others` tokens.
    """
    check_integer("bits", bits, 2, MAX_BITS)
    scale = torch.tensor((numbers * 2**bits + others) / leak, dtype=torch.float64).log() / 2
    return float((4 * scale).ceil() / 4)


def position_codes(bits: int, offset: int) -> torch.Tensor:
    """The codes of the ids as signs (2^bits, bits): row p - 1 is v_(p + offset), on the ring."""
    index = torch.arange(2**bits) + offset
    return 1.0 - 2.0 * ((index.unsqueeze(1) >> torch.arange(bits)) & 1)


class _Blueprint:
    """Collect heads and hidden units by the rows that they read and write, and build a model from them.

    Attributes:
        rows: index of every row of the residual stream. The digit that is read out has the rows SUM_0 to SUM_9, and a code
            named C has the rows C_0 to C_(P - 1).
    """

    def __init__(self, bits: int, logit_scale: float, layers: int, names: Sequence[str], codes: Sequence[str]):
        self.bits, self.logit_scale = bits, logit_scale
        of_codes = (f"{code}_{bit}" for code in codes for bit in range(bits))
        rows = (*names, *(f"SUM_{digit}" for digit in range(10)), "IS_EOS", *of_codes)
        self.rows = {name: index for index, name in enumerate(rows)}
        self.heads: list[list[tuple]] = [[] for _ in range(layers)]
        self.units: list[list[tuple]] = [[] for _ in range(layers)]

    def attend(
        self,
        layer: int,
        query_code: str | None,
        key_code: str | None,
        marks: Mapping[str, float],
        moves: Sequence[tuple[str, float, str]],
    ) -> None:
        """Add a head with the score M (<query_code, key_code> + marks of the key).

        Args:
            moves: what the head copies: (row of the key, factor, row to which it is added).
        """
        self.heads[layer].append((query_code, key_code, marks, moves))

    def relu(self, layer: int, inputs: dict[str, float], outputs: dict[str, float]) -> None:
        """Add a hidden unit that reads and writes rows."""
        self.units[layer].append((inputs, outputs))

    def ramp(self, layer: int, inputs: dict[str, float], low: float, high: float, outputs: dict[str, float]) -> None:
        """Add two units, together 0 if the weighted sum of `inputs` is below `low`, and 1 if it is above `high`."""
        slope = 1 / (high - low)
        for edge, sign in ((low, slope), (high, -slope)):
            self.relu(layer, {**inputs, "ONES": -edge}, {row: sign * factor for row, factor in outputs.items()})

    def read_digit(self, layer: int, inputs: dict[str, float], windows: int, low: float, high: float) -> None:
        """Make `SUM` one-hot at T mod 10 if the weighted sum of `inputs` lies in [T + low, T + high], 0 <= T < windows.

        Step T rises from 0 to 1 in the gap between the windows T - 1 and T. Inside window T the steps up to T are 1 and the
        steps above are 0. Digit T mod 10 gets step T minus step T + 1, so all contributions vanish except for window T.
        """
        for window in range(windows + 1):
            outputs = {}
            if window < windows:
                outputs[f"SUM_{window % 10}"] = 1.0
            if window > 0:
                outputs[f"SUM_{(window - 1) % 10}"] = -1.0
            self.ramp(layer, inputs, window - 1 + high, window + low, outputs)

    def model(self, coupling: str, codes: dict[str, int]) -> CoupledGPTForCausalLM:
        """The model in evaluation mode, float32.

        Args:
            codes: the offset of each group of rows that holds the code of a token's id plus this offset, by name.
        """
        head_dim = self.bits + 1
        config = CoupledGPTConfig(
            hidden_size=len(self.rows),
            num_hidden_layers=len(self.heads),
            num_attention_heads=max(map(len, self.heads)),
            head_dim=head_dim,
            intermediate_size=max(map(len, self.units)),
            mlp="plain",
            hidden_act="relu",
            norm="none",
            attention_scale="none",
            position_encoding="learned",
            windowed=False,
            coupling=coupling,
            max_position_ids=2**self.bits,
            wrap_position_ids=True,
        )
        model = CoupledGPTForCausalLM(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
            self._write_embeddings(model, codes)
            for decoder, heads, units in zip(model.model.layers, self.heads, self.units, strict=True):
                for index, head in enumerate(heads):
                    self._write_head(decoder.self_attn, slice(index * head_dim, (index + 1) * head_dim), *head)
                for index, (inputs, outputs) in enumerate(units):
                    for name, factor in inputs.items():
                        decoder.mlp.up_proj.weight[index, self.rows[name]] = factor
                    for name, factor in outputs.items():
                        decoder.mlp.down_proj.weight[self.rows[name], index] = factor
        return model

    def _write_embeddings(self, model, codes):
        tokens = model.model.embed_tokens.weight
        tokens[:10, self.rows["NUM"]] = torch.arange(10.0)
        tokens[:, self.rows["ONES"]] = 1
        for name, token in (("IS_BOS", BOS), ("IS_TIMES", TIMES), ("IS_EQUALS", EQUALS)):
            if name in self.rows:
                tokens[token, self.rows[name]] = 1
        table = model.model.position_encoding.tables[0].weight
        for name, offset in codes.items():
            table[1:, self._code(name)] = position_codes(self.bits, offset)
        digit = self.rows["SUM_0"]
        model.lm_head.weight[:10, digit : digit + 10] = torch.eye(10)
        model.lm_head.weight[BOS, self.rows["IS_EOS"]] = 2

    def _code(self, name):
        """The rows of a code."""
        first = self.rows[f"{name}_0"]
        return slice(first, first + self.bits)

    def _write_head(self, attention, channels, query_code, key_code, marks, moves):
        """Channels 0 to P - 1 of queries and keys hold codes and channel P the marks; values use as many as are moved."""
        query, key, value = (p.weight[channels] for p in (attention.q_proj, attention.k_proj, attention.v_proj))
        output = attention.o_proj.weight[:, channels]
        if query_code is not None:
            query[: self.bits, self._code(query_code)] = self.logit_scale * torch.eye(self.bits)
            key[: self.bits, self._code(key_code)] = torch.eye(self.bits)
        query[self.bits, self.rows["ONES"]] = self.logit_scale
        for name, mark in marks.items():
            key[self.bits, self.rows[name]] = mark
        for channel, (source, factor, target) in enumerate(moves):
            value[channel, self.rows[source]] = factor
            output[self.rows[target], channel] = 1


_ADDITION_ROWS = ("NUM", "IS_BOS", "ONES", "PRE_SUM", "PRE_CARRY", "PRE_EOS")


def construct_addition(bits: int) -> CoupledGPTForCausalLM:
    """Theorem 5.1 of paper 1: one layer with two heads adds numbers of up to 2^P - 2 digits. Width 2P + 17, 82 ReLUs.

    For the rule `addition` and zero-padded operands. At a response token (or `=`) with id p, whose own digit is c:

    Head 1 attends to the keys with id p - 1, the column whose sum is asked for. Before the answer's digit is there, these
    are the two operands' digits a and b and BOS, three keys: PRE_SUM = a + b of that column. At the top digit of the
    operands none but BOS (in a full ring also `+` and `=`, whose NUM is 0): PRE_SUM = 0.

    Head 2 attends to the keys with id p. In the response these are a, b, c and BOS, four keys: PRE_CARRY = a + b + c of the
    column just written. At `=` they are `+`, `=` and BOS: PRE_CARRY = 0. At the last token they are c and BOS. So PRE_EOS,
    twice the weight of BOS, is 1/2 in the response, 2/3 at `=`, and 1 at the last token: the answer ends there.

    a + b + (carry in) = c + 10 (carry out) gives a + b - c = 10 (carry out) - (carry in), so
    g = PRE_SUM + (PRE_CARRY - 2 NUM) / 10 + 0.21 exceeds the next column's T = a + b + (carry in), 0 to 19, by 0.21 or
    0.11. Errors: at most 27 e in PRE_SUM and 36 e / 10 in the other term, 0.076 in all with M >= ln(N) / 2 + 3, which makes
    e <= exp(-6) < 0.0025. So g lies in [T, T + 0.32], and digit k gets a trapezoid that is 1 on [k, k + 1/2] and 0 outside
    [k - 1/2, k + 1], and a second one 10 higher: 1 for k = T mod 10 and 0 for all others. PRE_EOS errs by at most 2 e, and
    IS_EOS is 0 below 0.8 and 1 above 0.9. Every argmax is right by a margin of 1.

    Args:
        bits: P, from 2 to `MAX_BITS`. M is the least multiple of 1/4 above ln(N) / 2 + 3, where N = 3 (2^P - 2) + 5 tokens.
    """
    blueprint = _Blueprint(bits, _logit_scale(bits, 3, -1, leak=0.0024), 1, _ADDITION_ROWS, ("POS_1", "POS_2"))
    blueprint.attend(0, "POS_1", "POS_2", {"IS_BOS": bits}, [("NUM", 3, "PRE_SUM")])
    blueprint.attend(0, "POS_1", "POS_1", {"IS_BOS": bits}, [("NUM", 4, "PRE_CARRY"), ("IS_BOS", 2, "PRE_EOS")])
    estimate = {"PRE_SUM": 1.0, "PRE_CARRY": 0.1, "NUM": -0.2}
    for total in range(20):
        for edge, factor in ((-0.5, 2.0), (0.0, -2.0), (0.5, -2.0), (1.0, 2.0)):
            blueprint.relu(0, {**estimate, "ONES": 0.21 - total - edge}, {f"SUM_{total % 10}": factor})
    blueprint.ramp(0, {"PRE_EOS": 1.0}, 0.8, 0.9, {"IS_EOS": 1.0})
    return blueprint.model("addition", {"POS_1": 0, "POS_2": 1})


def construct_multi_operand_addition(bits: int, operands: int = 3) -> CoupledGPTForCausalLM:
    """One layer with two heads adds n numbers, 2 <= n <= 10, of up to 2^P - 3 digits. Width 2P + 17, 2 (10 n + 1) + 2 ReLUs.

    Smaller and more general than Theorem 5.1: 44 ReLUs for n = 2. For the rule `multi_operand_addition`, whose operands are
    zero-padded to the width of the response. Let S_j be the sum of column j, c_j the carry into it, at most n - 1, and
    d_j = S_j + c_j - 10 c_(j+1) the digit written. At the response token that holds d_j:

    Head 1 attends to the keys of column j + 1, n digits and BOS: PRE_SUM = S_(j+1), and the weight of BOS, PRE_EOS, is
    1 / (n + 1). At the last token, whose column is the operands' top column, it attends to BOS alone, and PRE_EOS = 1. One
    id of the ring stays unused, so that `+` and `=` are not taken for that column.

    Head 2 attends to the keys of column j, n digits, d_j itself and BOS: PRE_CARRY = S_j + d_j. At `=` all n keys and BOS
    have NUM 0: PRE_CARRY = 0.

    So g = PRE_SUM + (PRE_CARRY - 2 NUM) / 10 = S_(j+1) + c_(j+1) - c_j / 10, or S_0 at `=`, which lies in
    [T - (n - 1) / 10, T] for T = S_(j+1) + c_(j+1) <= 10 n - 1. These windows are disjoint if and only if n <= 10, and the
    next digit is T mod 10. Errors: at most 9 (n + 1) e in PRE_SUM and 9 (n + 2) e / 10 in the other term, kept below 0.02 by
    M; the gaps between the windows are then at least 0.06 wide. PRE_EOS errs by at most e, and IS_EOS is 0 below 1/2 and 1
    above 3/4. Every argmax is right by a margin of 1.

    Args:
        bits: P, from 2 to `MAX_BITS`. M is enough for sequences of n + 1 numbers of 2^P - 2 digits.
        operands: n.
    """
    check_integer("operands", operands, 2, 10)
    error, amplification = 0.02, 9 * (operands + 1) + 0.9 * (operands + 2)
    logit_scale = _logit_scale(bits, operands + 1, -operands, error / amplification)
    blueprint = _Blueprint(bits, logit_scale, 1, _ADDITION_ROWS, ("POS_1", "POS_2"))
    next_column = [("NUM", operands + 1, "PRE_SUM"), ("IS_BOS", 1, "PRE_EOS")]
    blueprint.attend(0, "POS_1", "POS_2", {"IS_BOS": bits}, next_column)
    blueprint.attend(0, "POS_1", "POS_1", {"IS_BOS": bits}, [("NUM", operands + 2, "PRE_CARRY")])
    estimate = {"PRE_SUM": 1.0, "PRE_CARRY": 0.1, "NUM": -0.2}
    blueprint.read_digit(0, estimate, 10 * operands, low=-(operands - 1) / 10 - error, high=error)
    blueprint.ramp(0, {"PRE_EOS": 1.0}, 0.5, 0.75, {"IS_EOS": 1.0})
    return blueprint.model("multi_operand_addition", {"POS_1": 0, "POS_2": 1})


def construct_multiplication(bits: int) -> CoupledGPTForCausalLM:
    """Theorem 6.1 of paper 1: two layers of attention, ten heads, multiply up to 2^P - 3 digits by two. Width 6P + 34.

    For the rule `multiplication`: `$A*B=C`, x_j are the digits of A, y_1 y_0 of B, and d_j of C; j = 0 are the ones. All
    with the same j share the id L - j; `*` and `=` have L + 1. At the response token d_i (or `=`, with i = -1 and d = 0):

    Layer 1 finds the digits of B and what comes before `*`.

    Heads 1 and 2 give every token the weight of `*` among the keys that they attend to: `*` if its id is one (two) above
    the token's own, and BOS. The codes match for every token with id L (L - 1), the mark for `*` alone, and both together
    only for `*` seen from behind it: AT_ONES (AT_TENS) is 1/2 at y_0 and d_0 (y_1 and d_1), else 0. Head 3 attends to `*`,
    `=` and BOS alike: AFTER_TIMES is 1/2 from `*` on and 1/3 from `=` on, else 0; AFTER_EQUALS is 1/3 from `=` on, else 0.
    The MLP makes IS_B_ONES = 1 if AT_ONES - 3 AFTER_EQUALS is above 3/8 rather than below 1/8: at y_0 alone. IS_B_TENS is
    made likewise. A_CODE is the code POS_2 before `*`, and 0 from there on: relu(v - 6 AFTER_TIMES) - relu(-v - 6
    AFTER_TIMES). There is no error in it: no token before `*` sees any, so AFTER_TIMES is 0 exactly there.

    Layer 2 gathers. Heads 1 and 2 attend to the token with IS_B_ONES (IS_B_TENS) and BOS: B_ONES = y_0 and B_TENS = y_1 at
    every later token. The other heads k = 0, 1, ... attend to the digit of A with id k - 1 above the token's own, and BOS:
    A_k = x_(i+1-k), or 0 if A has no such digit; BOS then has the weight w_k = 1 instead of 1/2. From `*` on no token has a
    code, so none is taken for a digit of A. At the last token, i = N + 1 for A of N digits, w_0, w_1 and w_2 are 1. Before
    it at least one of the three is 1/2: w_2 at i = N, w_1 at i = N - 1, w_0 wherever i < N - 1. So w_0 + w_1 + w_2 is 3 at
    the end and at most 5/2 before, and IS_EOS = 4 relu(w_0 + w_1 + w_2 - 2.75).

    As printed, the paper's end token is right for N >= 2 and comes one token early for N = 1: this sum is another one.

    The MLP of layer 2 multiplies, by x y = ((x + y)^2 - (x - y)^2) / 4 with squares that are piecewise linear and exact at
    integers: COLUMN_m = S_(i+1-m), where S_j = x_j y_0 + x_(j-1) y_1.

    The MLP of layer 3 reads the digit; CoupledGPT has one hidden layer in an MLP, so the second hidden layer of the proof
    belongs to a further layer, whose attention adds nothing. T = S_(i+1) + c_(i+1), where the carry
    c_(i+1) = (S_i + c_i - d_i) / 10 <= 17, is at most 162 + 17, and the next digit is T mod 10. The carry c_i below is not
    known but nearly: c_i = S_(i-1) / 10 - (d_(i-1) - c_(i-1)) / 10, where the last term is in [-0.9, 1.7]. Hence
    S_(i+1) + (S_i + S_(i-1) / 10 - d_i) / 10 is in [T - 0.17, T + 0.09]. A further S_(i-2) / 100 beside S_(i-1) / 10
    replaces c_(i-1) by (S_(i-2) - d_(i-2) + c_(i-2)) / 10. It narrows the range of g to [T - 0.017, T + 0.099].

    At `=` all columns but S_0 are 0, with one exception: with N = 2^P - 3 digits the ring is full, and head k = 4 sees
    x_(N-1) for x_(-4). That adds at most 81 / 1000 to g, where T = g otherwise: still inside the window.

    Errors: A_k and B err by at most 18 e each, a product by (35 + 17) 36 e / 4 = 468 e, a column by 936 e and g by
    936 * 1.111 e = 1040 e, kept below 0.2 by M. In layer 1, e is then below 0.0002 and changes no ramp.

    Args:
        bits: P, from 2 to `MAX_BITS`. M is enough for the longest sequence.
    """
    error, shifts, columns = 0.2, 5, 4
    marks = ("NUM", "ONES", "IS_BOS", "IS_TIMES", "IS_EQUALS", "AT_ONES", "AT_TENS", "AFTER_TIMES", "AFTER_EQUALS")
    gathered = ("IS_B_ONES", "IS_B_TENS", "B_ONES", "B_TENS", *(f"A_{k}" for k in range(shifts)), "PRE_EOS")
    sums = tuple(f"COLUMN_{m}" for m in range(columns))
    codes = {f"POS_{offset + 1}": offset for offset in range(shifts)}
    logit_scale = _logit_scale(bits, 2, 2, error / 1040)
    blueprint = _Blueprint(bits, logit_scale, 3, (*marks, *gathered, *sums), (*codes, "A_CODE"))

    before_end = {"IS_BOS": bits + 2, "IS_TIMES": 2}
    blueprint.attend(0, "POS_2", "POS_1", before_end, [("IS_TIMES", 1, "AT_ONES")])
    blueprint.attend(0, "POS_3", "POS_1", before_end, [("IS_TIMES", 1, "AT_TENS")])
    after = [("IS_TIMES", 1, "AFTER_TIMES"), ("IS_EQUALS", 1, "AFTER_EQUALS")]
    blueprint.attend(0, None, None, {"IS_BOS": 2, "IS_TIMES": 2, "IS_EQUALS": 2}, after)
    for place in ("ONES", "TENS"):
        seen = {f"AT_{place}": 1.0, "AFTER_EQUALS": -3.0}
        blueprint.ramp(0, seen, 1 / 8, 3 / 8, {f"IS_B_{place}": 1.0})
    for bit in range(bits):
        for sign in (1.0, -1.0):
            blueprint.relu(0, {f"POS_2_{bit}": sign, "AFTER_TIMES": -6.0}, {f"A_CODE_{bit}": sign})

    for place in ("ONES", "TENS"):
        blueprint.attend(1, None, None, {"IS_BOS": 2, f"IS_B_{place}": 2}, [("NUM", 2, f"B_{place}")])
    for k in range(shifts):
        moves = [("NUM", 2, f"A_{k}"), ("IS_BOS", float(k < 3), "PRE_EOS")]
        blueprint.attend(1, f"POS_{k + 1}", "A_CODE", {"IS_BOS": bits}, moves)
    for m in range(columns):
        for first, second in ((f"A_{m}", "B_ONES"), (f"A_{m + 1}", "B_TENS")):
            _multiply(blueprint, 1, first, second, f"COLUMN_{m}")

    estimate = {f"COLUMN_{m}": 10.0**-m for m in range(columns)} | {"NUM": -0.1}
    blueprint.read_digit(2, estimate, 180, low=-0.017 - error, high=0.099 + error)
    blueprint.relu(2, {"PRE_EOS": 1.0, "ONES": -2.75}, {"IS_EOS": 4.0})
    return blueprint.model("multiplication", codes)


def _multiply(blueprint: _Blueprint, layer: int, first: str, second: str, target: str) -> None:
    """Add 36 units that add the product of two rows, digits 0 to 9, to `target`.

    The square of an integer u is the sum of |u| and of 2 relu(|u| - m) over m = 1, 2, ...
    """
    for signs, largest, factor in (((1.0, 1.0), 18, 0.25), ((1.0, -1.0), 9, -0.25), ((-1.0, 1.0), 9, -0.25)):
        for m in range(largest):
            inputs = {first: signs[0], second: signs[1], "ONES": -float(m)}
            blueprint.relu(layer, inputs, {target: factor if m == 0 else 2 * factor})


@dataclass(frozen=True)
class Construction:
    """A theorem: how to build its model, and how long its numbers may be.

    Attributes:
        build: the function that makes the model of P bits.
        spare_ids: how many ids of the ring of 2^P no digit of the longest operand has.
        statement: what is proved, in a few words.
    """

    build: Callable[..., CoupledGPTForCausalLM]
    spare_ids: int
    statement: str

    def capacity(self, bits: int) -> int:
        """Digits of the longest operand (of a product: of the first operand)."""
        return 2**bits - self.spare_ids


CONSTRUCTIONS: dict[str, Construction] = {
    "addition": Construction(construct_addition, 2, "Theorem 5.1: addition of two numbers, one layer"),
    "multi-operand-addition": Construction(
        construct_multi_operand_addition, 3, "addition of several numbers, one layer, after Theorem 5.1"
    ),
    "multiplication": Construction(
        construct_multiplication, 3, "Theorem 6.1, mended: multiplication by two digits, two layers of attention"
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the study."""
    statements = "\n".join(f"{name}: {construction.statement}" for name, construction in CONSTRUCTIONS.items())
    parser.add_argument("name", choices=CONSTRUCTIONS, help=statements)
    parser.add_argument("--max_length", type=int, default=100, help="digits of the longest operand (default %(default)s)")
    default = "an empty or new folder; default: outputs/constructed-NAME"
    parser.add_argument("--output_dir", type=Path, dest="folder", metavar="OUTPUT_DIR", help=default)


def run(name: str, max_length: int, folder: Path | None = None) -> None:
    """Build the smallest model for numbers of `max_length` digits; write it to a folder with its tokenizer and recipe.

    Args:
        name: in `CONSTRUCTIONS`.
        folder: an empty or new one; None is outputs/constructed-NAME.

    Raises:
        ValueError: a value is not legal, or the folder is not empty.
    """
    folder = folder or Path("outputs", f"constructed-{name}")
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"--output_dir {folder} is not empty: choose another folder")
    construction = CONSTRUCTIONS[name]
    bits = max(2, (max_length + construction.spare_ids - 1).bit_length())
    model, capacity = construction.build(bits), construction.capacity(bits)
    # The rule of every construction has the name of its task.
    task = task_from_recipe({"task": model.config.coupling})
    model.config.update(task.family.format_options(task))
    model.save_pretrained(folder)
    task.family.tokenizer(task).save_pretrained(folder)
    description = f"{construction.statement}; built, not trained; exact up to {capacity} digits"
    command = f"python -m longhand.hub_cards.research constructions {name} --max_length {capacity}"
    recipe = {"recipe": folder.name, "description": description, "command": command, **task.describe()}
    write_recipe(recipe, folder / RECIPE_FILE)
    print(f"wrote {folder}: {description}\nnext: {command_of('eval')} {folder} --lengths {max_length}")
