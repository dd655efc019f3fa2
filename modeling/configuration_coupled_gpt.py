# Copyright 2026 The longhand developers.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Configuration of CoupledGPT."""

# Used by: generation_coupled_gpt.py, modeling_coupled_gpt.py, data, data/proofs, hub_cards/checkpoints,
# hub_cards/research/theories. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

from collections.abc import Callable, Collection
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers.utils.type_validators import activation_fn_key, positive_int_field

from .coupling import CouplingRule, given_rule
from .coupling_rules import COUPLING_RULES
from .plugins import PluginConfig
from .position_encodings import POSITION_ENCODINGS
from .registry import above_zero, check_heads
from .relations import level_ranges
from .structure import GIVEN
from .transducer import read_transducer
from .vocabulary import ALL_TOKENS, BOS, PAD, SEPARATE_EOS, TOKENS


@strict
class CoupledGPTConfig(PluginConfig):
    r"""A decoder whose position encoding consumes coupled position ids. The defaults match the recipe `addition`.

    `task` and `prompt_format` are described in `TaskConfig`.

    Args:
        hidden_size: width of the residual stream.
        num_hidden_layers: number of decoder layers.
        num_attention_heads: heads per layer.
        head_dim: width of one head; None means `hidden_size / num_attention_heads`.
        intermediate_size: hidden units of the MLP.
        mlp: `"geglu"` (gated, two input projections) or `"plain"`.
        hidden_act: activation of the MLP, a name of `transformers.activations.ACT2FN`.
        norm: `"rms"`, `"layer"` or `"none"`.
        norm_placement: `"pre"`: x + f(norm(x)). `"post"`: norm(x + f(x)). `"pre_post"`: norm(x + f(norm(x))), the
            placement in the code of paper 1. `"sandwich"`: x + norm(f(norm(x))).
        final_norm: the norm after the last layer, of the same names; None means `norm`. Paper 1's code has `"layer"` here.
        norm_eps: number that the norm adds to the variance.
        init: `"fan_in"`: every matrix N(0, 1/inputs). `"t5"`: like T5 and the code of paper 1, with queries scaled down
            further by 1/sqrt(head_dim), for use with `attention_scale="none"`. Embeddings are N(0, 1) in both.
        tie_word_embeddings: whether the output matrix is the token embedding; the states that it multiplies, the last of the
            base model, are then multiplied by hidden_size^-0.5.
        attention_scale: factor of the scores: `"sqrt"` (1/sqrt(head_dim)), `"none"`, `"log_length"`
            (1/sqrt(head_dim) times a learned factor per head times the log of the number of keys that a query sees), or
            `"zero"`: the biases of relations alone are the scores, and there are no projections of queries and keys.
        log_length_init: initial value of that factor.
        qk_norm: whether queries and keys are scaled to unit length, so that scores are their cosine times a learned factor
            per head, before the factor of `attention_scale` (Henry et al., 2020).
        qk_norm_init: initial value of that factor.
        position_encoding: a name of `POSITION_ENCODINGS` in `position_encodings.py`. `"none"`, `"learned"`, `"sinusoidal"`,
            `"rotary"` and `"pairwise"` work with any coupling rule; `"alibi"`, `"t5"` and `"fire"` read distances in tokens,
            which only the rule `sequential` gives.
        coupling: name of the rule, in `coupling_rules.py` or a plugin, that derives position ids from tokens. With `"given"`
            every call gives `position_ids` or `pair_map`, `generate()` for prompt and response; nothing is derived, no
            prompt is checked, and any vocabulary will do.
        position_levels: ids per token; None means the rule's number, and no other number is legal. With `"given"` any number
            is, and None means 1.
        num_relations: with the coupling `"given"` and the encoding `"pairwise"`, the number of relations of the maps that
            calls give, 0 to this number - 1, without `relation_range`; None means differences of ids in `relation_range`.
        share_level_tables: whether all levels share one learned table.
        max_position_ids: largest id of a learned table; with `wrap_position_ids`, the length of the ring.
        position_init: rows of a learned table are drawn from `"normal"` N(0, 1), or are `"orthogonal"` to each other (as
            far as hidden_size allows) with the same mean length.
        wrap_position_ids: whether ids wrapped around the ring 1..max_position_ids in training.
        randomized_positions: whether ids were random subsets of 1..max_position_ids in training; in evaluation ids are then
            spread evenly over this range, see `spread_position_ids`.
        rotary_base: base of the rotary angles.
        relation_range: smallest and largest distinct difference of ids, query minus key, of pairwise relations: two
            integers for all levels, or two for each level in turn. None means the relations that the coupling rule names,
            or [0, 1] if the rule names none.
        relation_init: biases of relations start `"normal"` N(0, 1), or `"one_per_head"`: each head favours one relation.
        windowed: whether keys outside these relations are hidden.
        transducer: the table of a column task, for the coupling rule `columns`:
            `{"alphabet": "0123456789", "operands": 2, "sign": "+", "answer": "all", "passes": [{"writes": "0123456789",
            "direction": "ones_first", "flush": 1, "start": 0, "window": [0, 1], "symmetric": true, "write": [[...]], "next":
            [[...]]}]}`. `write` and `next` are (states, inputs): a place in `writes` and a state for each state and each
            input, with the first operand as the most significant digit. Beyond the operands every operand reads symbol 0.
            A pass may have `"reads": [0, 1]`, what it reads in this order: operands, then earlier passes; without it, all
            operands. See `Pass` and `Transducer`.
        relative_attention_num_buckets: number of buckets of distances of the encoding `"t5"`.
        relative_attention_max_distance: distance in tokens from which on all distances share the last bucket.

    Raises:
        huggingface_hub.errors.StrictDataclassError: a value has the wrong type or is not legal.
    """

    model_type = "coupled_gpt"
    later_fields = {"final_norm": None, "num_relations": None}
    structure_fields = (
        "coupling",
        "position_encoding",
        "position_levels",
        "num_relations",
        "relation_range",
        "windowed",
        "transducer",
    )
    own_code = {
        "AutoConfig": "configuration_coupled_gpt.CoupledGPTConfig",
        "AutoModel": "modeling_coupled_gpt.CoupledGPTModel",
        "AutoModelForCausalLM": "modeling_coupled_gpt.CoupledGPTForCausalLM",
    }
    keys_to_ignore_at_inference = ["cache"]

    vocab_size: int = positive_int_field(default=len(TOKENS))
    hidden_size: int = positive_int_field(default=64)
    num_hidden_layers: int = positive_int_field(default=1)
    num_attention_heads: int = positive_int_field(default=4)
    head_dim: int | None = positive_int_field(default=None)
    intermediate_size: int = positive_int_field(default=256)
    mlp: Literal["geglu", "plain"] = "geglu"
    hidden_act: str = activation_fn_key(default="gelu_pytorch_tanh")
    norm: Literal["rms", "layer", "none"] = "rms"
    norm_placement: Literal["pre", "post", "pre_post", "sandwich"] = "sandwich"
    final_norm: Literal["rms", "layer", "none"] | None = None
    norm_eps: float = above_zero(default=1e-6)
    init: Literal["fan_in", "t5"] = "fan_in"
    tie_word_embeddings: bool = False
    attention_scale: Literal["sqrt", "none", "log_length", "zero"] = "sqrt"
    log_length_init: float = 0.43
    qk_norm: bool = False
    qk_norm_init: float = 4.0
    position_encoding: str = "pairwise"
    coupling: str = "addition"
    position_levels: int | None = positive_int_field(default=None)
    num_relations: int | None = positive_int_field(default=None)
    share_level_tables: bool = True
    max_position_ids: int = positive_int_field(default=202)
    position_init: Literal["normal", "orthogonal"] = "normal"
    wrap_position_ids: bool = False
    randomized_positions: bool = False
    rotary_base: float = above_zero(default=10000.0)
    relation_range: list[int] | None = None
    relation_init: Literal["normal", "one_per_head"] = "normal"
    windowed: bool = True
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    use_cache: bool = True
    transducer: dict[str, object] | None = None
    bos_token_id: int | None = BOS
    eos_token_id: int | list[int] | None = BOS
    pad_token_id: int | None = PAD

    def __post_init__(self, **kwargs):
        if self.head_dim is None:
            check_heads(self, ": choose one that is, or give head_dim")
            self.head_dim = self.hidden_size // self.num_attention_heads
        unread = None if self.is_of_file else self._unread_relation_range()
        if self.transducer or self.coupling in (GIVEN, *COUPLING_RULES):
            if self.position_levels is None:
                self.position_levels = self.rule.levels
            if self.relation_range is None and not self.rule.relations and not self.num_relations:
                self.relation_range = [0, 1]
        if unread:
            raise ValueError("; ".join([unread, *self._faults_of_ids()]))
        # The map names every head class, because saving adds only the class that is saved (transformers' custom models).
        self.auto_map = dict(self.own_code)
        super().__post_init__(**kwargs)

    def definitions(self) -> list[Callable[..., object]]:
        rule, encoding = COUPLING_RULES.get(self.coupling), POSITION_ENCODINGS.get(self.position_encoding)
        return [definition for definition in (rule and rule.plan, encoding) if definition]

    def unknown_names(self) -> list[tuple[str, str, Collection[str]]]:
        known = (("coupling", (*COUPLING_RULES, GIVEN)), ("position_encoding", POSITION_ENCODINGS))
        return [(field, getattr(self, field), names) for field, names in known if getattr(self, field) not in names]

    @property
    def rule(self) -> CouplingRule:
        """The coupling rule that `coupling` names, for the table if there is one."""
        coupling = self.coupling
        if coupling == GIVEN:
            return given_rule(self.position_levels or 1)
        if self.transducer:
            return read_transducer(self.transducer).rule
        if coupling not in COUPLING_RULES:
            self.check_known()
        return COUPLING_RULES[coupling]

    @property
    def takes_structure(self) -> bool:
        """Whether every call gives ids or maps, so that nothing is derived and no prompt is checked."""
        return self.coupling == GIVEN

    @property
    def tokens(self) -> tuple[str, ...]:
        """The vocabulary."""
        return read_transducer(self.transducer).tokens if self.transducer else ALL_TOKENS

    def validate_architecture(self):
        """Check fields against each other; `@strict` calls this method."""
        if self.lacks_plugins:
            return
        self.check_known()
        if (self.coupling == "columns") != (self.transducer is not None):
            raise ValueError(
                f"transducer is for the coupling rule 'columns', which needs it, got coupling {self.coupling!r}"
            )
        if self.transducer is not None:
            read_transducer(self.transducer).check_tables()
        # All that does not fit is told at once: one thing mended would only lead to the next refusal.
        if faults := [*self._faults_of_ids(), *self._faults_of_relations()]:
            raise ValueError("; ".join(faults))
        if self.eos_token_id not in (BOS, SEPARATE_EOS) and not self.takes_structure:
            raise ValueError(f"eos_token_id must be {BOS} ('$') or {SEPARATE_EOS} ('<eos>'), got {self.eos_token_id}")

    def _faults_of_ids(self) -> list[str]:
        """Why the position encoding cannot read the ids that the coupling rule and the options give."""
        encoding = POSITION_ENCODINGS.get(self.position_encoding)
        if encoding is None:
            return []
        faults = []
        if encoding.reads_token_distances and self.coupling not in ("sequential", GIVEN):
            faults.append(
                f"position_encoding {self.position_encoding!r} reads distances in tokens, which only the coupling rule "
                f"'sequential' gives, got {self.coupling!r}"
            )
        if self.randomized_positions and "randomized" not in encoding.position_samplings:
            faults.append(f"position_encoding {self.position_encoding!r} cannot read randomized_positions")
        levels = self.rule.levels
        if levels > 1 and encoding.reads_token_distances and self.coupling in ("sequential", GIVEN):
            faults.append(f"position_levels must be 1 for position_encoding {self.position_encoding!r}, got {levels}")
        if self.num_relations and (self.coupling, self.position_encoding) != (GIVEN, "pairwise"):
            faults.append(
                f"num_relations is for coupling 'given' and position_encoding 'pairwise', got {self.coupling!r} and "
                f"{self.position_encoding!r}"
            )
        if self.position_levels != levels:
            faults.append(
                f"coupling {self.coupling!r} has {levels} level(s), got position_levels={self.position_levels}: "
                "a saved model keeps its number of levels"
            )
        if self.attention_scale == "zero" and (self.qk_norm or not encoding.uses_pair_map):
            faults.append(
                "attention_scale 'zero' leaves scores to the biases of a position encoding, without qk_norm: got "
                f"position_encoding {self.position_encoding!r} and qk_norm {self.qk_norm}"
            )
        return faults

    def _unread_relation_range(self) -> str | None:
        """Why the position encoding does not read the `relation_range`, if it does not; files may name the default."""
        encoding = POSITION_ENCODINGS.get(self.position_encoding)
        if self.relation_range is None or encoding is None:
            return None
        if encoding.uses_pair_map and not encoding.reads_token_distances:
            return None
        return (
            f"relation_range is for relations of ids, as position_encoding 'pairwise' reads them: "
            f"{self.position_encoding!r} reads none, got {self.relation_range}"
        )

    def _faults_of_relations(self) -> list[str]:
        """Why the relations are not those of the rule's levels, of a window or of given maps."""
        levels, bounds = self.position_levels or 1, self.relation_range
        if self.num_relations:
            given = f"num_relations counts relations of given maps, which have no relation_range, got {bounds}"
            return [] if bounds is None else [given]
        if bounds is None:
            if self.position_encoding == "pairwise" and not self.windowed:
                return [
                    f"the coupling rule {self.coupling!r} names only the relations of a window: give relation_range, or "
                    "set windowed"
                ]
        elif len(bounds) not in (2, 2 * levels) or any(low > high for low, high in level_ranges(bounds, levels)):
            return [f"relation_range must be two integers, low <= high, or two for each of {levels} level(s), got {bounds}"]
        return []


CoupledGPTConfig.register_for_auto_class()
