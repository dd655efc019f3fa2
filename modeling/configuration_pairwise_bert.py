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
"""Configuration of PairwiseBert."""

# Used by: modeling_pairwise_bert.py, data, data/proofs, hub_cards/checkpoints. Bound by: the digest of the code that travels
# with a checkpoint: run .ci/code.

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Literal

from huggingface_hub.dataclasses import as_validated_field, strict
from transformers.utils.type_validators import activation_fn_key, positive_int_field, probability

from .encoder_maps import COLUMNS, GRID, NO_MAP, OWN_RULES, PAIR_MAP_RULES, UNIFORM, num_relations
from .plugins import PluginConfig
from .registry import above_zero, check_heads
from .relations import level_ranges, num_coupled_relations
from .structure import GIVEN
from .transducer import Transducer, read_transducer
from .vocabulary import ENCODER_TOKENS, LABELS, PAD, STATES


@as_validated_field
def above_zero_or_none(value: float | None = None) -> None:
    """A field that is finite and above 0, or None."""
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"must be above 0, or None, got {value}")


@strict
class PairwiseBertConfig(PluginConfig):
    r"""A post-norm BERT encoder whose heads add to each key a vector for its relation to the query.

    The defaults match paper 2 for addition (App. B).

    `task` and `prompt_format` are described in `TaskConfig`.

    Args:
        hidden_size: width of the residual stream.
        num_hidden_layers: number of encoder layers.
        num_attention_heads: heads per layer.
        intermediate_size: hidden units of the MLP.
        hidden_act: activation of the MLP, a name of `transformers.activations.ACT2FN`.
        hidden_dropout_prob: dropout of embeddings and of the output of every sublayer.
        attention_probs_dropout_prob: dropout of attention weights.
        layer_norm_eps: number that the norm adds to the variance.
        initializer_range: standard deviation of initial weights.
        max_position_embeddings: longest input, in tokens, for which a table has room: the table of absolute embeddings and,
            if no `relation_range` is given, the table of relative vectors.
        absolute_positions: which tokens have a learned absolute embedding of their position: `"none"`, `"all"` (APE), only
            the `"text"` around the numbers, or those that have an id in the `position_ids` of the call, `"given"`.
        pair_maps: the rule in `encoder_maps.py` that gives the pair map: one name for all heads, or one for each head.
            `"relative"` (RPE), `"uniform"` (UPE for the multiplier, RPE elsewhere), `"coupled"` (differences of columns),
            `"add"` and `"multiply"` (those of `"relative"` in sums alone, of `"uniform"` in products alone),
            `"listed"` (the places of one list, the same for every token: paper 2, App. E),
            `"grid"` (neighbours of a cell), `"columns"` (the window of a column task), or `"none"` for heads without
            vectors; or a rule of a plugin (`encoder_maps.pair_map_rule`). None means `["relative"]`. With `"given"` every
            call gives the map as `pair_map`, or `position_ids`, whose differences are its relations; nothing is derived, no
            prompt is checked, and any vocabulary will do.
        num_relations: number of relations of the maps that calls give, 0 to this number - 1, for `"given"`, which then reads
            no `relation_range`; None means differences of ids, as many as that has (see `relations.num_coupled_relations`).
        position_levels: ids of a token in the `position_ids` that calls give; None means 1.
        share_over_heads: whether heads with the same rule share their vectors in a layer.
        where_relations_enter: what a relation's vector is added to: the `"key"` (paper 2's experiments), the `"query"`, or,
            as one number, the `"score"` of both (all three in paper 2, Sec. 2).
        with_self: for the rule `"uniform"`, whether a digit of the multiplier has its vector for itself as a query too.
            False is Eq. 3.3 of paper 2 as printed.
        relation_range: smallest and largest distinct difference of ids, query minus key. None means all differences that
            fit into `max_position_embeddings`. The rule `"grid"` has no differences.
        relation_init: vectors start `"normal"` N(0, initializer_range), as other weights, or so that what they add to
            `"scores"` is N(0, 1), whatever `initializer_range` is; or `"one_per_head"`: each head's queries favour the
            vector of one relation. None means `"normal"` for a model of a task, as in paper 2, and `"scores"` for others, in
            which a relation matters from the first step.
        windowed: whether keys outside `relation_range`, and text, are hidden. The rule `"uniform"` still shows the digits of
            a multiplier.
        max_multiplier_length: largest number of digits of a multiplier for which the rule `"uniform"` has vectors.
        num_loops: how often the layers are applied, each time to the last state plus the embeddings; in training, a random
            number of times from half of it up.
        settle_weight: weight of the mean squared change of the state in the last loop, as a term of the training loss.
        settle_tolerance: if given, evaluation applies the layers to each text until no entry of its state changes by more,
            at most as often as it has tokens plus `num_loops`.
        label_states: whether the layer is applied again and again, each time to the tokens and the labels that it gave to
            them before, until no label changes; see `settling.py`. At first every label is not known yet.
        sink: whether every token also sees a key of zeros, which has a relation of its own. Without a sink a token cannot
            tell one key from two equal ones, since the weights of attention add up to 1.
        transducer: the table of a column task, see `modeling/transducer.py`, for the rule `"columns"`; None for other tasks.

    Raises:
        huggingface_hub.errors.StrictDataclassError: a value has the wrong type or is not legal.
    """

    model_type = "pairwise_bert"
    later_fields = {"num_relations": None, "position_levels": None, "where_relations_enter": "key", "with_self": True}
    structure_fields = (
        "pair_maps",
        "num_relations",
        "position_levels",
        "relation_range",
        "windowed",
        "where_relations_enter",
        "absolute_positions",
        "sink",
        "label_states",
        "transducer",
    )
    own_code = {
        "AutoConfig": "configuration_pairwise_bert.PairwiseBertConfig",
        "AutoModel": "modeling_pairwise_bert.PairwiseBertModel",
        "AutoModelForTokenClassification": "modeling_pairwise_bert.PairwiseBertForTokenClassification",
    }

    vocab_size: int = positive_int_field(default=len(ENCODER_TOKENS))
    hidden_size: int = positive_int_field(default=768)
    num_hidden_layers: int = positive_int_field(default=6)
    num_attention_heads: int = positive_int_field(default=8)
    intermediate_size: int = positive_int_field(default=3072)
    hidden_act: str = activation_fn_key(default="gelu")
    hidden_dropout_prob: float = probability(default=0.1)
    attention_probs_dropout_prob: float = probability(default=0.1)
    layer_norm_eps: float = above_zero(default=1e-12)
    initializer_range: float = above_zero(default=0.02)
    max_position_embeddings: int = positive_int_field(default=101)
    absolute_positions: Literal["none", "all", "text", "given"] = "none"
    pair_maps: list[str] | None = None
    num_relations: int | None = positive_int_field(default=None)
    position_levels: int | None = positive_int_field(default=None)
    share_over_heads: bool = True
    where_relations_enter: Literal["key", "query", "score"] = "key"
    with_self: bool = True
    relation_range: list[int] | None = None
    relation_init: Literal["normal", "scores", "one_per_head"] | None = None
    windowed: bool = False
    max_multiplier_length: int = positive_int_field(default=3)
    num_loops: int = positive_int_field(default=1)
    settle_weight: float = 0.0
    settle_tolerance: float | None = above_zero_or_none(default=None)
    label_states: bool = False
    sink: bool = False
    transducer: dict[str, object] | None = None
    pad_token_id: int | None = PAD
    if TYPE_CHECKING:
        # A property of transformers that is None only before `__post_init__`.
        num_labels: int

    def __post_init__(self, **kwargs):
        if self.pair_maps is None:
            self.pair_maps = ["relative"]
        if self.relation_range is None and self.reads_differences:
            self.relation_range = [1 - self.max_position_embeddings, self.max_position_embeddings - 1]
        if self.relation_init is None:
            self.relation_init = "normal" if self.reads_own_vocabulary else "scores"
        # In a file without `id2label` transformers has left out its own default, two labels.
        if self.id2label is None and "num_labels" not in kwargs and not self.is_of_file:
            table = self.table
            labels = table.labels if table else STATES if self.label_states else LABELS
            self.id2label = dict(enumerate(labels))
            self.label2id = {label: index for index, label in enumerate(labels)}
        # The map names every head class, because saving adds only the class that is saved (transformers' custom models).
        self.auto_map = dict(self.own_code)
        if "PairwiseBertForSequenceClassification" in (self.architectures or ()):
            # Only a model with this head names it: certificates know the names of the others.
            place = "modeling_pairwise_bert.PairwiseBertForSequenceClassification"
            self.auto_map["AutoModelForSequenceClassification"] = place
        super().__post_init__(**kwargs)

    def to_diff_dict(self):
        """Name the labels, of which transformers leaves out its own default, two, that is not the default here."""
        return super().to_diff_dict() | {name: getattr(self, name) for name in ("id2label", "label2id")}

    def definitions(self) -> list[Callable[..., object]]:
        return [PAIR_MAP_RULES[name].derive for name in dict.fromkeys(self.pair_maps or ()) if name in PAIR_MAP_RULES]

    def unknown_names(self) -> list[tuple[str, str, Collection[str]]]:
        known = (*OWN_RULES, *PAIR_MAP_RULES, GIVEN, NO_MAP)
        return [("pair_maps", name, known) for name in dict.fromkeys(self.pair_maps or ()) if name not in known]

    @property
    def head_dim(self) -> int:
        """The width of one head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def head_maps(self) -> list[str]:
        """The rule name of each head."""
        names: list[str] = self.pair_maps  # type: ignore[assignment]  # __post_init__ fills it in
        return names * self.num_attention_heads if len(names) == 1 else names

    @property
    def takes_structure(self) -> bool:
        """Whether every call gives ids or maps, so that nothing is derived and no prompt is checked."""
        return GIVEN in (*self.head_maps, self.absolute_positions)

    @property
    def reads_differences(self) -> bool:
        """Whether `relation_range` counts: not if `num_relations` does, for all heads that add vectors."""
        return not self.num_relations or bool({*self.head_maps} - {GIVEN, NO_MAP})

    @property
    def reads_own_vocabulary(self) -> bool:
        """Whether the model is for a task, so that tokens are those of `vocabulary.py` or of the task's table."""
        return any(field is not None for field in (self.task, self.prompt_format, self.transducer))

    @property
    def levels(self) -> int:
        """The number of ids of a token."""
        return self.position_levels or 1

    @property
    def has_text(self) -> bool:
        """Whether the task says that there is text around numbers, which no relation numbers."""
        return self.absolute_positions == "text" or bool((self.task or {}).get("text_tokens"))

    @property
    def table(self) -> Transducer | None:
        """The transducer of a column task.

        Raises:
            ValueError: the table is not legal, or has several passes.
        """
        if self.transducer is None:
            return None
        if len((table := read_transducer(self.transducer)).passes) > 1:
            raise ValueError("transducer: an encoder that settles makes one pass over the columns, this table has several")
        return table

    def count_relations(self, name: str) -> int:
        """Return the number of relations of a rule, and so of its vectors; the last one is the sink's, if there is one."""
        return self.sink_relation(name) + self.sink

    def sink_relation(self, name: str) -> int:
        """Return the number of the sink's relation in a rule's maps: one more than the largest other."""
        if table := self.table:
            return table.label_relations
        relation_range: list[int] = self.relation_range  # type: ignore[assignment]  # __post_init__ fills it in
        if name == GIVEN:
            return self.num_relations or num_coupled_relations(relation_range, self.levels)
        if name in PAIR_MAP_RULES:
            return PAIR_MAP_RULES[name].relations
        return num_relations(name, relation_range, self.max_multiplier_length)

    def validate_architecture(self):
        """Check fields against each other; `@strict` calls this method."""
        if self.lacks_plugins:
            return
        self.check_known()
        if not 0 <= self.settle_weight < float("inf") or (self.settle_weight and self.num_loops == 1):
            raise ValueError(
                f"settle_weight must be 0, or above it with num_loops of at least 2, got {self.settle_weight} "
                f"with num_loops {self.num_loops}"
            )
        check_heads(self)
        if self.num_labels < 1:
            raise ValueError(f"num_labels must be at least 1, got {self.num_labels}")
        self._check_pair_maps()
        self._check_window()
        self._check_label_states()

    def _check_pair_maps(self):
        names, heads = len(self.pair_maps), self.num_attention_heads
        if (COLUMNS in self.pair_maps) != (self.transducer is not None and self.label_states):
            raise ValueError("pair_maps 'columns', label_states and a transducer need each other")
        if names not in (1, heads):
            raise ValueError(f"pair_maps must be one name, or one for each of {heads} heads, got {names}")

        self._check_given()
        if not self.with_self and not {*UNIFORM} & {*self.pair_maps}:
            raise ValueError(f"with_self False is for pair_maps 'uniform', got {self.pair_maps}")
        if self.where_relations_enter != "key" and self.relation_init == "one_per_head":
            raise ValueError(
                f"where_relations_enter must be 'key' for relation_init 'one_per_head', got {self.where_relations_enter!r}"
            )
        if self.where_relations_enter == "query" and self.sink:
            raise ValueError("where_relations_enter 'query' gives a sink, a key of zeros, no relation: set sink False")

    def _check_given(self):
        if self.num_relations and GIVEN not in self.pair_maps:
            raise ValueError(f"num_relations is for pair_maps 'given', got {self.num_relations} with {self.pair_maps}")
        if self.levels > 1 and {*self.pair_maps, self.absolute_positions} - {GIVEN, NO_MAP}:
            raise ValueError(
                f"position_levels {self.levels} is for pair_maps and absolute_positions 'given' or 'none', got "
                f"{self.pair_maps} and {self.absolute_positions!r}: other rules have one id for each token"
            )
        if GIVEN in self.pair_maps and self.absolute_positions == "text":
            raise ValueError("absolute_positions 'text' reads the tokens: pair_maps 'given' takes 'none', 'all' or 'given'")

    def _check_window(self):
        bounds, levels = self.relation_range, self.levels
        if not self.reads_differences:
            if bounds is not None:
                raise ValueError(f"num_relations counts relations of given maps, which have no relation_range, got {bounds}")
        elif (
            bounds is None
            or len(bounds) not in (2, 2 * levels)
            or any(not low <= 0 <= high for low, high in level_ranges(bounds, levels))
        ):
            shown = "two integers, low <= 0 <= high" + (f", or two for each of {levels} levels" if levels > 1 else "")
            raise ValueError(f"relation_range must be {shown}, got {bounds}")
        if GRID in self.pair_maps and not self.windowed:
            raise ValueError("pair_maps 'grid' needs windowed True, got False")
        if self.windowed and (len(set(self.pair_maps)) > 1 or self.pair_maps[0] == NO_MAP):
            raise ValueError(f"windowed needs one rule for all heads, got pair_maps {self.pair_maps}")
        if self.windowed and self.attention_probs_dropout_prob:
            raise ValueError(
                "attention weights under a window are not dropped out: attention_probs_dropout_prob must be 0, "
                f"got {self.attention_probs_dropout_prob}"
            )
        relations = [self.count_relations(name) for name in self.pair_maps if name != NO_MAP]
        if self.relation_init == "one_per_head" and max(relations, default=0) > self.head_dim:
            raise ValueError(
                f'relation_init "one_per_head" needs orthogonal vectors, got {max(relations)} relations '
                f"and {self.head_dim} dimensions per head"
            )

    def _check_label_states(self):
        if not self.label_states:
            return
        needed = {"num_hidden_layers": 1, "windowed": True, "absolute_positions": "none", "num_loops": 1}
        needed |= {"where_relations_enter": "key", "with_self": True}
        needed |= {"settle_tolerance": None, "num_labels": len(self.table.labels if self.table else STATES)}
        if self.table:
            self.table.check_tables()
            needed |= {"sink": True, "vocab_size": len(self.table.tokens)}
        for name, value in needed.items():
            if (given := getattr(self, name)) != value:
                raise ValueError(f"label_states needs {name} {value}, got {given}")


PairwiseBertConfig.register_for_auto_class()
