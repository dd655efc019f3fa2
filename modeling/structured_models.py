"""Structure for models of others: pair maps, biases and ids of several levels, in one call.

    model = AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M")
    model = with_structure(model, num_relations=5)
    model(**inputs, pair_map=pair_map)
    model.generate(**inputs, pair_map=plan, max_new_tokens=20)
    model.save_structure("outputs/structure")

The model stays the same object and keeps its weights. Its class becomes a subclass of the same name, whose forward pass
takes structure, and it has one module more, `structure`, with the table of every layer. Tables start with zeros, so that
relations change nothing until they are trained. A call without structure reads no table, unless the model has a rule:

    model = with_structure(model, num_relations=5, rule=rule)

A rule, see `structure_rules.py`, derives structure from the tokens. It is asked in every forward pass to which no structure
is given, and at each step of `generate()`.
"""

# Used by: hub_cards/checkpoints. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, signature
from pathlib import Path
from types import MethodType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation import GenerationMixin
from transformers.modeling_utils import load_state_dict, safe_save_file
from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES
from transformers.utils import cached_file

from .coupling import CouplingRule, find_rule, plan_position_ids
from .generation_coupled_gpt import SUPPORTED_MODES
from .numbers_in_text import NumbersInText
from .pretrained import LonghandPreTrainedModel
from .relations import NOT_RELATED, coupled_pair_map, hiding_bias, level_ranges, num_coupled_relations
from .structure import (
    PairShape,
    is_pair_mask,
    one_or,
    read_pair_map,
    read_pair_mask,
    read_position_bias,
    read_position_ids,
)
from .structure_rules import StructureRule, ask_rule, check_callable, load_rule, name_of, save_rule, takes_queries
from .structured_attention import (
    IMPLEMENTATIONS,
    LAYER,
    STRUCTURE,
    GivenStructure,
    device_of_inputs,
    find_attention,
    let_attention_read_structure,
)
from .values import check_tensor
from .vocabulary import PAD

CONFIG_FILE, WEIGHTS_FILE = "structure_config.json", "structure.safetensors"

SHIPPED_RULES = (NumbersInText,)
"""Rules of this package, whose names are known wherever a model with structure is loaded."""

CARD_TAGS = "tags:\n- longhand\n- structure"
"""What the card of a structure has, and no card of a whole model."""

TABLE = "structure.table"
"""The name of the tables among the weights of a model with structure."""

ENTER = ("score", "key", "query")

PARTS = ("pair_map", "position_bias")
"""Arguments of a forward pass that only a model with structure has."""

UNSUPPORTED_SETTINGS = ("guidance_scale", "token_healing", "prefill_chunk_size", "use_mtp")
"""Settings of `generate()` that rewrite, cut or repeat the prompt, or ask the model without its structure."""


@dataclass(frozen=True)
class StructureConfig:
    """What a model with structure reads, and the sizes of its tables.

    Attributes:
        num_relations: number of relations of the pair maps that calls or a rule give, 0 to this number - 1; None for none.
        levels: number of ids of a token, whose differences are the relations; None if calls give maps.
        relation_range: the smallest and the largest distinct difference, query minus key: two integers for all levels, or
            two for each level in turn; None without levels.
        relations_enter: what a relation adds to: the `"score"`, as a number for each head, or, as a vector for each head,
            the `"key"` or the `"query"` (paper 2, Eq. 2.1).
        share_layers: whether all layers have one table.
        layers, heads, head_dim: sizes of the model's attention.
        model_class, base_model: the class of the model, and where it came from.
        rule: what `describe_rule` says of the model's rule, in a file; None for none.

    Raises:
        ValueError: a value is not legal.
    """

    num_relations: int | None = None
    levels: int | None = None
    relation_range: Sequence[int] | None = None
    relations_enter: str = "score"
    share_layers: bool = False
    layers: int = 0
    heads: int = 0
    head_dim: int = 0
    model_class: str = ""
    base_model: str = ""
    rule: dict[str, Any] | None = None

    SIZES: ClassVar[tuple[str, ...]] = ("layers", "heads", "head_dim")

    def __post_init__(self):
        for name in ("num_relations", "levels"):
            number = getattr(self, name)
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
                raise ValueError(f"{name} must be an integer of at least 1, or None, got {number!r}")
        if self.num_relations and self.levels:
            raise ValueError(
                "num_relations counts the relations of given maps, levels the ids that relations follow from: give one, got "
                f"{self.num_relations} and {self.levels}"
            )
        if self.relations_enter not in ENTER:
            raise ValueError(f"relations_enter must be one of {', '.join(ENTER)}, got {self.relations_enter!r}")
        if not isinstance(self.share_layers, bool):
            raise ValueError(f"share_layers must be True or False, got {self.share_layers!r}")
        bounds = self.relation_range
        if self.levels is None:
            if bounds is not None:
                raise ValueError(f"relation_range is for the ids of levels, got {bounds} without levels")
        elif (
            not isinstance(bounds, Sequence)
            or not all(isinstance(bound, int) for bound in bounds)
            or len(bounds) not in (2, 2 * self.levels)
            or any(not low <= 0 <= high for low, high in level_ranges(bounds, self.levels))
        ):
            raise ValueError(
                "relation_range must be a number r of at least 0, for -r to r, two integers low <= 0 <= high, or two for "
                f"each of {self.levels} levels, got {bounds!r}"
            )
        if not self.relations and (self.share_layers or self.relations_enter != ENTER[0]):
            raise ValueError("share_layers and relations_enter are for tables of relations: give num_relations or levels")

    @property
    def relations(self) -> int:
        """The number of relations of a table; 0 without tables."""
        if self.levels and self.relation_range is not None:
            return num_coupled_relations(self.relation_range, self.levels)
        return self.num_relations or 0

    @property
    def table_shape(self) -> tuple[int, ...]:
        """(layers or 1, relations, heads) of numbers, and head_dim beside them for vectors."""
        width = () if self.relations_enter == "score" else (self.head_dim,)
        return (1 if self.share_layers else self.layers, self.relations, self.heads, *width)

    def check_fits(self, sizes: dict[str, int], model_class: str) -> None:
        """Raise ValueError unless tables of this structure fit a model with these sizes."""
        stored = {name: getattr(self, name) for name in self.SIZES}
        if stored != sizes:
            shown = ", ".join(f"{name} {number}" for name, number in stored.items())
            raise ValueError(
                f"this structure is of {self.base_model or self.model_class}, {shown}, and {model_class} has "
                f"{', '.join(str(number) for number in sizes.values())}"
            )


class Structure(nn.Module):
    """The tables of a model: what each relation adds in each layer and head.

    `table` is (layers or 1, relations, heads), or (layers or 1, relations, heads, head_dim) for vectors.
    """

    def __init__(self, config: StructureConfig, dtype: torch.dtype, device: torch.device):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(config.table_shape, dtype=dtype, device=device))

    def forward(self) -> Tensor:
        """Return the table that every attention reads; PEFT may put another one in its place."""
        return self.table


@dataclass
class StructurePlan:
    """Structure of whole sequences, of which a forward pass reads the part of its tokens: what a rule says, or a plan.

    Attributes:
        columns: number of tokens.
        first: the first token that is a query; 0 if all are.
        relations: (batch or 1, heads or 1, queries, columns), or None.
        level_ids: ids of the structure's levels (batch or 1, levels, columns), or None.
        own_ids: position ids of the model's own (batch or 1, columns), or None.
        position_bias: (batch or 1, heads or 1, queries, columns), or None.
        attention_mask: who sees whom, of this shape, bool or added to scores, or None.
    """

    columns: int
    first: int = 0
    relations: Tensor | None = None
    level_ids: Tensor | None = None
    own_ids: Tensor | None = None
    position_bias: Tensor | None = None
    attention_mask: Tensor | None = None

    PARTS: ClassVar[tuple[str, ...]] = ("relations", "level_ids", "own_ids", "position_bias", "attention_mask")

    def expand(self, copies: int) -> "StructurePlan":
        """Return the plan with every row repeated for its copies, which are beams or samples; one row stands for all."""
        repeated = {}
        for name in self.PARTS:
            part = getattr(self, name)
            if part is not None and len(part) > 1:
                repeated[name] = part.repeat_interleave(copies, dim=0)
        return replace(self, **repeated)


class StructuredModel:
    """What a model with structure has beside its own class, which is the next one in its order of classes."""

    structure_config: StructureConfig
    own_parameters: ClassVar[tuple[str, ...]]
    """Names of the arguments of the own class's forward pass."""

    own_class: ClassVar[Any]
    """The class of the model before it took structure."""

    has_tables: Sequence["StructuredModel"] = ()
    """For the base of a model with a head, the model, whose `structure` has the tables."""

    structure: Any

    structure_rule: StructureRule | None = None
    """What derives structure where none is given."""

    def __reduce_ex__(self, protocol):
        """Return what `pickle` and `copy` make the model of again: its class is made where it is read."""
        parent: Any = super()
        return (_new_structured, (self.own_class,), *parent.__reduce_ex__(protocol)[2:])

    def __setstate__(self, state):
        parent: Any = super()
        parent.__setstate__(state)
        let_attention_read_structure(self)

    def forward(self, *arguments, **kwargs):
        """Answer as the model's own class does, with structure: what is given, or else what the model's rule says.

        Further arguments, of which any one takes the place of the rule:
            pair_map: (batch or 1, queries, keys) or (batch or 1, heads, queries, keys), relations 0 to `num_relations` - 1
                of tokens of the input as queries to these and the tokens of a cache before them as keys; -1 for pairs that
                are not related, to whose scores nothing is added.
            position_ids: of a model with `levels`, (batch or 1, levels, keys); (batch, queries) are the model's own.
            position_bias: (batch or 1, heads or 1, queries, keys), added to the scores of every layer.
            attention_mask: of pairs, (batch or 1, heads or 1, queries, keys), bool or added to scores: who sees whom.

        Raises:
            ValueError: structure has another shape, type or range, or the model cannot read it.
        """
        kwargs.update(zip(self.own_parameters, arguments, strict=False))
        # With Python 3.13, torch.compile follows `super` by its arguments alone.
        parent: Any = super(StructuredModel, self)  # noqa: UP008
        return parent.forward(**kwargs if kwargs.get(STRUCTURE) is not None else self._with_structure(kwargs))

    def _with_structure(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the own class's forward pass; one of them carries the given structure, if there is any."""
        legal = (*PARTS, "position_ids", "attention_mask")
        for unknown in sorted(kwargs.keys() - {*self.own_parameters, *legal}):
            if meant := get_close_matches(unknown, legal, n=1, cutoff=0.8):
                raise ValueError(f"{type(self).__name__} reads no {unknown}: {meant[0]} is meant")
        given = {part: kwargs.pop(part, None) for part in PARTS}
        ids = kwargs.get("position_ids")
        if isinstance(ids, Tensor) and ids.ndim == 3:
            given["position_ids"] = kwargs.pop("position_ids")
        elif ids is not None:
            self.check_reads_ids()
        if all(part is None for part in given.values()):
            if self.structure_rule is not None and ids is None and not is_pair_mask(kwargs.get("attention_mask")):
                return kwargs | self._derive_structure(kwargs)
            self._warn_in_training(reads_tables=False)
            return kwargs
        self._warn_in_training(reads_tables=any(given.get(part) is not None for part in ("pair_map", "position_ids")))
        inputs = next((kwargs[name] for name in ("input_ids", "inputs_embeds") if kwargs.get(name) is not None), None)
        if inputs is None:
            raise ValueError(f"structure is for the tokens of {type(self).__name__}: give input_ids or inputs_embeds")
        cache = _cache_of(kwargs)
        batch, tokens = inputs.shape[:2]
        columns = tokens + (0 if cache is None else int(cache.get_seq_length()))
        kwargs[STRUCTURE] = self.read_structure(batch, tokens, columns, **given, cache=cache)
        return _masked_ids(kwargs, batch, columns)

    def _derive_structure(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a forward pass that the model's rule gives in place of those of a call.

        Raises:
            ValueError: the call does not have all tokens so far; or see `ask_rule`.
        """
        name, input_ids, cache = name_of(self._rule), kwargs.get("input_ids"), _cache_of(kwargs)
        if input_ids is None:
            raise ValueError(f"the rule {name} reads input_ids: give them, or structure such as pair_map, to embeddings")
        if cached := 0 if cache is None else int(cache.get_seq_length()):
            raise ValueError(
                f"the rule {name} reads all tokens so far, and {cached} of them are in the cache alone: generate() keeps "
                "them, or give structure, such as pair_map"
            )
        plan = self.ask_rule(input_ids, kwargs.get("attention_mask"))
        self._warn_in_training(reads_tables=plan.relations is not None or plan.level_ids is not None)
        derived = self._structure_of(plan, 0, plan.columns, len(input_ids), cache)
        return _masked_ids({"attention_mask": kwargs.get("attention_mask"), **derived}, len(input_ids), plan.columns)

    @property
    def _rule(self) -> StructureRule:
        rule: Any = self.structure_rule
        return rule

    def ask_rule(self, input_ids: Tensor, attention_mask: Tensor | None = None, queries: int | None = None) -> StructurePlan:
        """Return what the model's rule says of tokens (batch, tokens), the first to the last so far.

        Args:
            attention_mask: (batch, tokens), 0 for padding, which no token sees; None if there is none.
            queries: number of last tokens that are asked for, if the rule can be asked for them alone.

        Raises:
            ValueError: it is no structure of this model for so many tokens.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        batch, columns = input_ids.shape
        queries = queries if takes_queries(self._rule) else None
        answer = ask_rule(self._rule, input_ids, mask, queries)
        try:
            plan = self._read_plan(batch, columns, queries, **answer)
        except ValueError as error:
            raise ValueError(f"the rule {name_of(self._rule)} gives what this model cannot read: {error}") from error
        if plan.attention_mask is not None and attention_mask is not None:
            # A token of padding sees itself, so that its state is a number.
            itself = torch.eye(columns, dtype=torch.bool, device=mask.device)[plan.first :]
            seen, pairs = attention_mask[:, None, None].bool() | itself, plan.attention_mask
            is_bool = pairs.dtype == torch.bool
            plan.attention_mask = pairs & seen if is_bool else pairs.where(seen, hiding_bias(pairs.dtype))
        return plan

    def _read_plan(
        self,
        batch: int,
        columns: int,
        queries: int | None = None,
        pair_map: Tensor | None = None,
        position_ids: Tensor | None = None,
        position_bias: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> StructurePlan:
        """Return structure of whole sequences; raise ValueError for what no forward pass of so many columns would take.

        Args:
            queries: number of last tokens that are the queries of pairs; None for all.
        """
        queries = columns if queries is None else queries
        plan = StructurePlan(columns, columns - queries)
        if position_ids is not None and position_ids.ndim == 3:
            # Read once, so that each step takes them as they are.
            self.read_structure(batch, queries, columns, pair_map, position_ids)
            plan.level_ids = position_ids.long()
        elif position_ids is not None:
            self.check_reads_ids()
            plan.own_ids = read_position_ids(position_ids, batch, 1, (columns,)).squeeze(1)
        if pair_map is not None or position_bias is not None:
            read = self.read_structure(batch, queries, columns, pair_map, position_bias=position_bias)
            plan.relations, plan.position_bias = read.relations, read.position_bias
        if attention_mask is not None:
            self.check_reads_structure()
            if not is_pair_mask(attention_mask):
                shape = tuple(attention_mask.shape)
                raise ValueError(
                    f"attention_mask must be ({one_or(batch)[0]}, heads or 1, {queries}, {columns}), got {shape}"
                )
            read_pair_mask(attention_mask, PairShape(batch, self.structure_config.heads, queries, columns))
            plan.attention_mask = attention_mask
        return plan

    def _structure_of(
        self, plan: StructurePlan, first: int, columns: int, batch: int, cache: Cache | None = None
    ) -> dict[str, Any]:
        """Return the part of a plan for the tokens from the first to so many columns, as arguments of a forward pass."""
        inputs: dict[str, Any] = {}
        relations, bias, pairs = plan.relations, plan.position_bias, plan.attention_mask
        rows = slice(first - plan.first, columns - plan.first)
        if plan.own_ids is not None:
            inputs["position_ids"] = plan.own_ids[:, first:columns].expand(batch, -1)
        if relations is not None:
            relations = relations[..., rows, :columns]
        elif plan.level_ids is not None:
            ids = plan.level_ids[..., :columns]
            relations = self.relate(ids[..., first:], ids)
        if bias is not None:
            bias = bias[..., rows, :columns]
        if pairs is not None:
            pairs = pairs[..., rows, :columns].expand(batch, -1, -1, -1)
            hidden = False if pairs.dtype == torch.bool else hiding_bias(pairs.dtype)
            inputs["attention_mask"] = nn.functional.pad(pairs, (0, max(0, _room_of(cache) - columns)), value=hidden)
        # A rule has been asked, so that no part of the model asks it again.
        if self.structure_rule is not None or any(part is not None for part in (relations, bias, pairs)):
            inputs[STRUCTURE] = self.give(columns, relations, bias, cache)
        return inputs

    def _warn_in_training(self, reads_tables: bool) -> None:
        """Warn, once each, if a call in training reads no tables, or tables of zeros that are not trained.

        Args:
            reads_tables: whether the call does.
        """
        model: Any = self
        owner: Any = self.has_tables[0] if self.has_tables else self
        if torch.compiler.is_compiling() or not model.training or not self.structure_config.relations:
            return
        said: set[str] = owner.__dict__.setdefault("structure_warnings", set())
        is_trained = any(weights.requires_grad for weights in owner.structure.parameters())
        if is_trained and not reads_tables and "unread" not in said:
            said.add("unread")
            rule = "" if self.structure_rule is None else f", and what was given takes the place of {name_of(self._rule)}"
            warnings.warn(
                f"{type(self).__name__} is trained by a batch without pair_map or position_ids of levels{rule}: its tables "
                "of relations learn nothing. Did a trainer or a collator drop a column? A rule needs none: "
                "with_structure(model, rule=...)",
                stacklevel=2,
            )
        if not is_trained and "frozen" not in said:
            said.add("frozen")
            learns = any(weights.requires_grad for weights in owner.parameters())
            if learns and not any(bool(weights.detach().any()) for weights in owner.structure.parameters()):
                warnings.warn(
                    f"the tables of relations of {type(self).__name__} are zeros and frozen, so relations change nothing: "
                    'with LoRA, LoraConfig(..., modules_to_save=["structure"]) trains them',
                    stacklevel=2,
                )

    def read_structure(
        self,
        batch: int,
        tokens: int,
        columns: int,
        pair_map: Tensor | None = None,
        position_ids: Tensor | None = None,
        position_bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> GivenStructure:
        """Return structure as every attention reads it; shapes are those of `forward`.

        Args:
            columns: number of keys: `tokens`, and those of a cache before them.

        Raises:
            ValueError: structure has another shape, type or range, or the model cannot read it.
        """
        name, config = type(self).__name__, self.structure_config
        self.check_reads_structure()
        shape = PairShape(batch, config.heads, tokens, columns)
        if pair_map is not None and position_ids is not None:
            raise ValueError("position_ids of levels say how tokens are related, and so does pair_map: give one of them")
        if pair_map is not None:
            if not config.relations:
                raise ValueError(f"{name} has no table of relations: with_structure(model, num_relations=...) makes one")
            relations: Tensor | None = read_pair_map(pair_map, shape, config.relations)
        elif position_ids is not None:
            if not config.levels:
                raise ValueError(f"{name} has no levels of ids: with_structure(model, levels=...) makes tables for them")
            ids = read_position_ids(position_ids, batch, config.levels, (columns,))
            relations = self.relate(ids[..., columns - tokens :], ids)
        else:
            relations = None
        if position_bias is not None:
            position_bias = read_position_bias(position_bias, shape)
        return self.give(columns, relations, position_bias, cache)

    def relate(self, query_ids: Tensor, key_ids: Tensor) -> Tensor:
        """Return the relations (batch or 1, 1, queries, keys) of ids (batch or 1, levels, tokens)."""
        window: Any = self.structure_config.relation_range
        return coupled_pair_map(query_ids, key_ids, window, windowed=False).long().unsqueeze(1)

    def give(
        self, columns: int, relations: Tensor | None, position_bias: Tensor | None = None, cache: Cache | None = None
    ) -> GivenStructure:
        """Return the structure of a call, with the tables as they are: each layer takes its own part of them."""
        table = None
        if relations is not None:
            table = self.read_table()
            relations = relations.where(relations != NOT_RELATED, self.structure_config.relations)
        enter = self.structure_config.relations_enter
        return GivenStructure(columns, relations, table, enter, position_bias, room=_room_of(cache))

    def read_table(self) -> Tensor:
        """Return the table that a call reads: of PEFT's active adapter, if it has one.

        Raises:
            ValueError: rows of a batch have several adapters.
        """
        owner = self.has_tables[0] if self.has_tables else self
        try:
            return owner.structure()
        except TypeError as error:
            # PEFT mixes adapters in a batch of what linear layers and embeddings read, and of nothing else.
            raise ValueError(
                "adapter_names gives rows of a batch several adapters, and one table of relations stands for all rows: ask "
                "for the rows of each adapter in a call of their own, after set_adapter"
            ) from error

    def check_reads_structure(self) -> None:
        """Raise ValueError if attention was given an implementation that reads no structure."""
        config: Any = self.config  # type: ignore[attr-defined]  # of the own class
        if config._attn_implementation not in IMPLEMENTATIONS:
            raise ValueError(
                f"attention of {type(self).__name__} is {config._attn_implementation!r} now, which reads no structure: "
                f"choose one by model.set_attn_implementation, of {', '.join(IMPLEMENTATIONS)}"
            )

    def check_reads_ids(self) -> None:
        """Raise ValueError for position ids (batch, tokens) if the own class takes none."""
        if "position_ids" not in self.own_parameters:
            raise ValueError(f"{type(self).__name__} takes no position_ids (batch, tokens) of its own")

    def set_attn_implementation(self, attn_implementation: str, *arguments, **kwargs) -> None:
        """Choose one of the implementations of attention that read structure.

        Raises:
            ValueError: the implementation reads none.
        """
        if attn_implementation not in IMPLEMENTATIONS:
            raise ValueError(f"structure is read by {', '.join(IMPLEMENTATIONS)}, not by {attn_implementation!r}")
        parent: Any = super()
        before = self.config._attn_implementation  # type: ignore[attr-defined]  # of the own class
        parent.set_attn_implementation(attn_implementation, *arguments, **kwargs)
        try:
            find_attention(self)  # type: ignore[arg-type]  # of the own class
        except ValueError:
            parent.set_attn_implementation(before)
            raise

    def save_structure(
        self, folder: str | Path, *, is_main_process: bool = True, state_dict: dict[str, Tensor] | None = None
    ) -> None:
        """Write the tables, the rule, what they are and a card into a folder, which `with_structure(base, folder)` reads.

        A rule that is registered is written by its name and arguments, another one with its file.

        A README.md that is no card of a structure, such as that of a whole model in the folder, stays as it is.

        Args:
            is_main_process: whether this process writes. Of a model that `fully_shard` has split over processes, all
                processes must call this, and one writes.
            state_dict: the whole model's weights, as Accelerate's `get_state_dict` gathers them; None for the model's own.

        Raises:
            ValueError: the tables are not whole: they are split over processes; or the model has neither tables nor rule.
        """
        if not self._has_structure:
            raise ValueError(
                f"{type(self).__name__} has no tables to save, and no rule: num_relations or levels make tables"
            )
        tables = self._tables(state_dict, is_main_process)
        if is_main_process:
            self._write_structure(Path(folder), tables)
            card = Path(folder) / "README.md"
            if not card.exists() or CARD_TAGS in card.read_text(encoding="utf-8"):
                card.write_text(_card(self.structure_config), encoding="utf-8")

    def _tables(self, state_dict: dict[str, Tensor] | None, is_main_process: bool) -> dict[str, Tensor]:
        """Return the tables of all processes, none if another one writes; arguments are those of `save_structure`."""
        if not self.structure_config.relations:
            return {}
        if state_dict is None:
            table = self.read_table().detach()
        elif not is_main_process:
            # Accelerate gathers weights in the main process alone.
            return {}
        elif TABLE in state_dict:
            table = state_dict[TABLE].detach()
        else:
            raise ValueError(f"state_dict must hold {TABLE}, as that of the whole model does")
        # Only a DTensor has it, which not every build of torch knows.
        if hasattr(table, "full_tensor"):
            table = table.full_tensor()
        if table.shape != (shape := self.structure_config.table_shape):
            raise ValueError(
                f"{TABLE} must have the shape {shape}, got {tuple(table.shape)}: it is split over processes; give "
                "state_dict=accelerator.get_state_dict(model)"
            )
        return {"table": table.contiguous()} if is_main_process else {}

    @property
    def _has_structure(self) -> bool:
        """Whether there is something to save."""
        return bool(self.structure_config.relations) or self.structure_rule is not None

    def _write_structure(self, folder: Path, tables: dict[str, Tensor]) -> None:
        """Write the tables, which may be none, what they are, and the rule."""
        folder.mkdir(parents=True, exist_ok=True)
        safe_save_file(tables, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        rule = None if self.structure_rule is None else save_rule(self.structure_rule, folder)
        values = json.dumps(asdict(replace(self.structure_config, rule=rule)), indent=2)
        (folder / CONFIG_FILE).write_text(values + "\n", encoding="utf-8")

    def save_pretrained(
        self,
        save_directory: str | Path,
        is_main_process: bool = True,
        state_dict: dict[str, Tensor] | None = None,
        push_to_hub: bool = False,
        *arguments,
        **kwargs,
    ) -> None:
        """Save the whole model as transformers does, and the structure beside it; see `save_structure`.

        `with_structure(AutoModel.from_pretrained(folder), folder)` is the same model again. An Auto class alone says that
        it does not use `structure.table`.

        Raises:
            ValueError: see `save_structure`; or a state dict is to be pushed, where the model's own weights would be.
        """
        if push_to_hub and state_dict is not None:
            raise ValueError("push_to_hub pushes the model's own weights: save the state_dict, and upload the folder")
        parent: Any = super()
        # transformers empties the state dict that it is given.
        tables = self._tables(state_dict, is_main_process)
        parent.save_pretrained(save_directory, is_main_process, state_dict, False, *arguments, **kwargs)
        if is_main_process and self._has_structure:
            self._write_structure(Path(save_directory), tables)
        if push_to_hub and is_main_process:
            hub = {name: kwargs[name] for name in ("commit_message", "private", "token", "create_pr") if name in kwargs}
            parent.push_to_hub(kwargs.get("repo_id") or Path(save_directory).name, **hub)


def _cache_of(arguments: dict[str, Any]) -> Cache | None:
    """Return the cache among the arguments of a forward pass, under its new or its old name."""
    return next((arguments[name] for name in ("cache", "past_key_values") if arguments.get(name) is not None), None)


def _layers_of(cache: Cache | None) -> list[Any]:
    """Return the layers of a cache of a model's own tokens.

    A decoder that could also read another text, such as GPT-2 with cross attention, has them in a larger cache.
    """
    own_cache: Any = getattr(cache, "self_attention_cache", cache)
    return [] if own_cache is None else own_cache.layers


def _room_of(cache: Cache | None) -> int:
    """Return the number of keys for which a cache has room; 0 for one that grows.

    Static layers alone have keys of tokens that are yet to come.
    """
    return max((getattr(layer, "max_cache_len", 0) for layer in _layers_of(cache)), default=0)


def _masked_ids(arguments: dict[str, Any], batch: int, columns: int) -> dict[str, Any]:
    """Return arguments of a forward pass, with a mask if there are position ids.

    Without a mask, transformers takes ids that jump for several texts in one row.
    """
    ids = arguments.get("position_ids")
    if ids is not None and arguments.get("attention_mask") is None:
        arguments["attention_mask"] = torch.ones(batch, columns, dtype=torch.long, device=ids.device)
    return arguments


def _card(config: StructureConfig) -> str:
    """Return the card of a structure's repository."""
    # A folder is no base model that the Hub knows.
    is_repository = config.base_model and not Path(config.base_model).exists()
    base = f"base_model: {config.base_model}\n" if is_repository else ""
    arguments = f"levels={config.levels}" if config.levels else f"num_relations={config.num_relations}"
    return f"""---
library_name: longhand
{base}{CARD_TAGS}
---
# Structure for {config.base_model or config.model_class}

Tables of relations for the {config.layers} layers of a {config.model_class}, by `with_structure(model, {arguments})`:

```python
model = longhand.with_structure({config.model_class}.from_pretrained("{config.base_model}"), "THIS_REPOSITORY")
```
"""


class StructuredGeneration(StructuredModel):
    """`generate()` with plans of structure, for a model whose own class is a `GenerationMixin`."""

    def generate(
        self,
        inputs: Tensor | None = None,
        generation_config: Any = None,
        *arguments,
        pair_map: Tensor | None = None,
        position_ids: Tensor | None = None,
        position_bias: Tensor | None = None,
        **kwargs,
    ):
        """Generate as the own class does, with structure of prompt and response, of which every step reads its part.

        Where no plan is given, a model's rule says at each step what it says of all tokens so far.

        Args:
            pair_map: a plan of relations, (batch or 1, columns, columns) or (batch or 1, heads, columns, columns), with a
                column for padding on the left too. By default the response is as long as the plan.
            position_ids: a plan of ids, (batch or 1, levels, columns) of the structure's levels, or (batch or 1, columns) in
                place of the model's own.
            position_bias: a plan of what is added to scores, (batch or 1, heads or 1, columns, columns).
            attention_mask: (batch, tokens) of the prompt, or a plan of who sees whom, bool or added to scores, (batch or 1,
                heads or 1, columns, columns). Beside a plan, positions count all tokens, unless position_ids are given.

        Raises:
            ValueError: a plan has another shape, type or range, or is shorter than prompt and response; or `input_ids` and
                `inputs_embeds` are of different prompts; or the way of decoding cannot read a plan.
        """
        parent: Any = super()
        if kwargs.get(STRUCTURE) is not None:
            raise ValueError(f"generate() takes no {STRUCTURE}: give plans of prompt and response, such as pair_map")
        given: dict[str, Any] = {"pair_map": pair_map, "position_ids": position_ids, "position_bias": position_bias}
        if is_pair_mask(kwargs.get("attention_mask")):
            given["attention_mask"] = kwargs.pop("attention_mask")
        given = {name: part for name, part in given.items() if part is not None}
        if given or self.structure_rule is not None:
            self._check_decoding(parent._prepare_generation_config(generation_config, **kwargs)[0], kwargs)
        if not given:
            return parent.generate(inputs, generation_config, *arguments, **kwargs)
        prompt, embeddings = kwargs.get("input_ids") if inputs is None else inputs, kwargs.get("inputs_embeds")
        if prompt is not None and embeddings is not None and prompt.shape[1] != embeddings.shape[1]:
            raise ValueError(
                f"inputs_embeds must be of as many tokens as input_ids, {prompt.shape[1]}, got {embeddings.shape[1]}"
            )
        prompt = embeddings if prompt is None else prompt
        if prompt is None:
            raise ValueError(f"a plan of {', '.join(given)} is for prompt and response: give input_ids too")
        batch, tokens = prompt.shape[:2]
        plan = self._plan_response(batch, tokens, given)
        if plan.attention_mask is not None:
            # The plan says who sees whom; transformers makes positions by a mask of tokens.
            kwargs["attention_mask"] = torch.ones(batch, tokens, dtype=torch.long, device=prompt.device)
        settings: Any = generation_config or self.generation_config  # type: ignore[attr-defined]  # of the own class
        limits = (kwargs.get("max_new_tokens"), kwargs.get("max_length"), settings.max_new_tokens, settings.max_length)
        if all(limit is None for limit in limits):
            kwargs["max_new_tokens"] = plan.columns - tokens
        return parent.generate(inputs, generation_config, *arguments, structure_plan=plan, **kwargs)

    def _plan_response(self, batch: int, tokens: int, given: dict[str, Any]) -> StructurePlan:
        """Return the plan of a prompt (batch, tokens); raise ValueError for one that cannot be read, or has no response."""
        for name, part in given.items():
            if name in ("pair_map", "position_ids"):
                check_tensor(part, name, "integers")
            if not isinstance(part, Tensor) or part.ndim < 2:
                shown = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
                raise ValueError(f"{name} of a plan must be (batch or 1, ..., columns), got {shown}")
        columns = next(iter(given.values())).shape[-1]
        plan = self._read_plan(batch, columns, **given)
        if columns <= tokens:
            raise ValueError(f"the plan has {columns} columns, and the prompt {tokens}: plan the response too")
        return plan

    def _check_decoding(self, settings: Any, kwargs: dict[str, Any]) -> None:
        """Raise ValueError for ways of decoding that are not known to give every token its part of a plan."""
        unfit = [name for name in UNSUPPORTED_SETTINGS if getattr(settings, name, None)]
        unfit += ["custom_generate"] if kwargs.get("custom_generate") is not None else []
        mode = settings.get_generation_mode(kwargs.get("assistant_model"))
        unfit += [] if mode in SUPPORTED_MODES else [mode.value.replace("_", " ")]
        if settings.cache_implementation == "paged":
            unfit.append("continuous batching")
        if unfit:
            raise ValueError(f"generate() with a plan or a rule of structure does not support {', '.join(unfit)}")

    def init_continuous_batching(self, *arguments, **kwargs):
        """Refuse continuous batching, whose attention reads no structure."""
        raise ValueError(f"{type(self).__name__} has structure, which continuous batching does not read: use generate()")

    generate_batch = continuous_batching_context_manager = init_continuous_batching

    # Each hook below overrides the method of this name in GenerationMixin.

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **kwargs):
        plan = kwargs.get("structure_plan")
        parent: Any = super()
        input_ids, kwargs = parent._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **kwargs)
        if plan is not None:
            kwargs["structure_plan"] = plan.expand(expand_size)
        return input_ids, kwargs

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, mode, batch_size, max_cache_length):
        plan = model_kwargs.get("structure_plan")
        if plan is not None and plan.columns < max_cache_length:
            raise ValueError(
                f"the plan has {plan.columns} columns, but prompt and response may have {max_cache_length + 1} tokens, of "
                "which only the last needs none: plan more, or ask for fewer new tokens"
            )
        parent: Any = super()
        parent._prepare_cache_for_generation(generation_config, model_kwargs, mode, batch_size, max_cache_length)
        has_pairs = self.structure_rule is not None if plan is None else plan.attention_mask is not None
        cache = model_kwargs.get("cache")
        is_own = type(cache) is DynamicCache and not getattr(cache, "_is_user_defined", False)
        if has_pairs and is_own and any(getattr(layer, "is_sliding", False) for layer in _layers_of(cache)):
            # A mask of pairs may show any token, so layers with windows keep them all.
            model_kwargs["cache"] = DynamicCache()

    def prepare_inputs_for_generation(self, input_ids, *arguments, structure_plan=None, **kwargs):
        """Give the next tokens their part of the plan, or of what the rule says of all tokens so far."""
        parent: Any = super()
        inputs, plan = parent.prepare_inputs_for_generation(input_ids, *arguments, **kwargs), structure_plan
        if plan is None and self.structure_rule is None:
            return inputs
        tokens = inputs["input_ids" if inputs.get("input_ids") is not None else "inputs_embeds"]
        batch, cache = tokens.shape[0], _cache_of(inputs)
        columns = tokens.shape[1] + (0 if cache is None else int(cache.get_seq_length()))
        if plan is None:
            if columns != input_ids.shape[1]:
                raise ValueError(
                    f"the rule {name_of(self._rule)} reads all tokens so far, and got {input_ids.shape[1]} of {columns}: "
                    "give generate() the input_ids of those that are in the cache, or are given as embeddings, too"
                )
            mask = kwargs.get("attention_mask")
            mask = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
            plan = self.ask_rule(input_ids, mask, tokens.shape[1])
        inputs |= self._structure_of(plan, columns - tokens.shape[1], columns, batch, cache)
        return _masked_ids(inputs, batch, columns)


def _widened(replaced: Any, method: Any, further: Sequence[str]) -> Any:
    """Return a function that calls a method of a mixin, with the signature of the own class's method and further arguments.

    Trainer keeps the columns of rows that it finds in signatures, and `generate()` the arguments.
    """
    shape = signature(replaced)
    parameters = [*shape.parameters.values()]
    last = len(parameters) - (parameters[-1].kind == Parameter.VAR_KEYWORD)
    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in further if name not in shape.parameters]

    @wraps(method)
    def call(*arguments, **kwargs):
        return method(*arguments, **kwargs)

    call.__signature__ = shape.replace(parameters=[*parameters[:last], *added, *parameters[last:]])  # type: ignore
    return call


@cache
def _structured_class(base: Any) -> Any:
    """Return the subclass of a model's class that takes structure, of the same name."""
    own_parameters = [
        parameter for parameter in signature(base.forward).parameters.values() if parameter.kind != Parameter.VAR_KEYWORD
    ]
    body = {
        "own_class": base,
        "own_parameters": tuple(parameter.name for parameter in own_parameters if parameter.name != "self"),
        "__module__": base.__module__,
        "__doc__": base.__doc__,
    }
    mixin: Any = StructuredModel
    if issubclass(base, GenerationMixin):
        mixin, name = StructuredGeneration, "prepare_inputs_for_generation"
        body[name] = _widened(getattr(base, name), getattr(mixin, name), ["structure_plan"])
    body["forward"] = _widened(base.forward, mixin.forward, [*PARTS, "position_ids"])
    return type(base.__name__, (mixin, base), body)


def _new_structured(base: Any) -> Any:
    """Return a model without weights, of the subclass of a class that takes structure."""
    kind = _structured_class(base)
    return kind.__new__(kind)


_FILE_OPTIONS = ("cache_dir", "force_download", "token", "revision", "local_files_only", "subfolder")


def with_structure(
    model: PreTrainedModel,
    folder_or_repo: str | Path | None = None,
    *,
    num_relations: int | None = None,
    levels: int | None = None,
    relation_range: int | Sequence[int] | None = None,
    relations_enter: str = "score",
    share_layers: bool = False,
    trainable: str = "structure",
    rule: StructureRule | None = None,
    trust_remote_code: bool = False,
    **files: Any,
) -> Any:
    """Let a model of transformers take structure, and return it: the same object, of a subclass of its class.

    Its forward pass then takes `pair_map`, `position_bias` and `position_ids` of several levels, and `generate()` plans of
    them, see `StructuredModel.forward` and `StructuredGeneration.generate`. Without structure, and with tables of zeros, the
    model answers as before. It has `save_structure(folder)`.

    Args:
        model: a decoder or encoder of texts, all of whose tokens read others by transformers' attention interface.
        folder_or_repo: a folder that `save_structure` or `save_pretrained` wrote, or a repository on the Hub; then all
            arguments below that say what structure is come from there, except a rule that is given.
        num_relations: number of relations of the pair maps that calls or the rule give; by default the rule's own
            `num_relations`, if it has one.
        levels: number of ids of a token in the `position_ids` (batch or 1, levels, tokens) that calls give; their relations
            are the differences of ids, see `coupled_pair_map`. Without both, there are no tables.
        relation_range: the largest distinct difference on both sides, by default 2, or the smallest and the largest, for all
            levels or for each level in turn.
        relations_enter: what a relation adds to: the `"score"`, as a number for each head, or the `"key"` or `"query"`, as a
            vector for each head.
        share_layers: whether all layers have one table.
        trainable: `"structure"`, so that all other parameters are frozen, or `"all"`.
        rule: `(input_ids, attention_mask) -> structure`, by which the model derives its structure where a call gives none,
            see `structure_rules.py`.
        trust_remote_code: whether to run the file of a rule that the folder or repository holds.
        files: options by which `from_pretrained` finds files, such as `revision` and `token`.

    Raises:
        ValueError: the model cannot carry structure, or an argument is not legal.
    """
    if trainable not in ("structure", "all"):
        raise ValueError(f"trainable must be 'structure' or 'all', got {trainable!r}")
    if unknown := sorted(files.keys() - {*_FILE_OPTIONS}):
        raise ValueError(f"with_structure takes no {', '.join(unknown)}")
    if relation_range is None and levels is not None:
        relation_range = 2
    if rule is not None:
        check_callable(rule)
    if num_relations is None and levels is None and folder_or_repo is None:
        num_relations = getattr(rule, "num_relations", None)
    bounds: Any = (-relation_range, relation_range) if isinstance(relation_range, int) else relation_range
    config = StructureConfig(num_relations, levels, bounds, relations_enter, share_layers)
    state = None
    if folder_or_repo is not None:
        if config != StructureConfig():
            raise ValueError(
                f"the structure of {folder_or_repo} has its own relations: give a folder or relations, not both"
            )
        config, state = _load_structure(str(folder_or_repo), files)
        if rule is None and config.rule is not None:
            rule = load_rule(config.rule, str(folder_or_repo), trust_remote_code, files)
    _check_model(model)
    sizes = _reach(model)
    if folder_or_repo is not None:
        config.check_fits(sizes, type(model).__name__)
    else:
        known: dict[str, Any] = {"model_class": type(model).__name__, "base_model": model.config.name_or_path}
        config = replace(config, **known, **sizes)
    structure = _make_tables(model, config, state, str(folder_or_repo)) if config.relations else None
    _take_class(model, config)
    structured: Any = model
    structured.structure_rule = rule
    if structured.base_model is not model:
        # Some trainers call a model's base and its head by themselves.
        _take_class(structured.base_model, config)
        structured.base_model.has_tables = [model]
        structured.base_model.structure_rule = rule
    if structure is not None:
        if trainable == "structure":
            model.requires_grad_(False)
        structured.structure = structure
    return model


def _make_tables(model: PreTrainedModel, config: StructureConfig, state: dict[str, Tensor] | None, source: str) -> Structure:
    """Return tables of zeros, or those that were saved; raise ValueError if these have other shapes."""
    structure = Structure(config, torch.promote_types(model.dtype, torch.float32), device_of_inputs(model))
    if state is not None:
        shapes = {name: tuple(weights.shape) for name, weights in structure.state_dict().items()}
        if shapes != (got := {name: tuple(weights.shape) for name, weights in state.items()}):
            raise ValueError(f"{WEIGHTS_FILE} of {source} must hold {shapes}, got {got}")
        structure.load_state_dict(state)
    return structure


def structure_parameters(
    model: nn.Module, learning_rate: float, *, table_rate: float = 20.0, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Return the trainable parameters of a model with structure as two groups for an optimizer.

        optimizer = torch.optim.AdamW(structure_parameters(model, learning_rate=2e-3))
        Trainer(model, arguments, optimizers=(optimizer, None), ...)

    Trainer makes the schedule from its arguments, for both rates.

    Args:
        model: a model with structure, or what PEFT made of it.
        learning_rate: rate of all parameters but the tables, and of nothing else if there are none.
        table_rate: how many times this rate tables have: their numbers must grow from 0 to about 5 to single out a key.
        weight_decay: of all but the tables, which have none.

    Raises:
        ValueError: nothing is trainable.
    """
    named = [(name, weights) for name, weights in model.named_parameters() if weights.requires_grad]
    # PEFT keeps tables that it trains under a longer name.
    tables = [weights for name, weights in named if "structure" in name.split(".")]
    others = [weights for name, weights in named if "structure" not in name.split(".")]
    if not named:
        raise ValueError(f"no parameter of {type(model).__name__} is trainable")
    groups = [
        {"params": others, "lr": learning_rate, "weight_decay": weight_decay},
        {"params": tables, "lr": learning_rate * table_rate, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _check_model(model: object) -> None:
    """Raise ValueError for a model that cannot carry structure, as far as this can be told without asking it."""
    name = type(model).__name__
    if isinstance(model, LonghandPreTrainedModel):
        raise ValueError(f"{name} takes structure by itself: see coupling and pair_maps 'given' of its configuration")
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"with_structure takes a model of transformers, got {name}: PEFT and wrappers come after it")
    if isinstance(model, StructuredModel):
        raise ValueError(f"this {name} has structure: load the model again to give it another one")
    config: Any = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"{name} has an encoder and a decoder: structure is for models of one sequence, such as Llama or BERT"
        )
    if name in MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES.values():
        raise ValueError(f"{name} reads the texts of several choices in a row: structure is for one text, as BERT reads it")
    if config.get_text_config() is not config:
        raise ValueError(f"{name} reads more than text: give its language model")
    if config._attn_implementation not in IMPLEMENTATIONS:
        raise ValueError(
            f"structure is read by attn_implementation {', '.join(IMPLEMENTATIONS)}, and this {name} has "
            f"{config._attn_implementation!r}: load it with one of these"
        )


def _reach(model: PreTrainedModel) -> dict[str, Any]:
    """Let every attention of a model read structure; return the sizes of its tables.

    Raises:
        ValueError: something that mixes tokens would not read it, or layers differ in their heads.
    """
    reached = find_attention(model)
    if len({(attention.heads, attention.head_dim) for attention in reached}) > 1:
        raise ValueError(f"layers of {type(model).__name__} differ in their heads: structure is for equal layers")
    for place, attention in enumerate(reached):
        setattr(attention.module, LAYER, place)
    return {"layers": len(reached), "heads": reached[0].heads, "head_dim": reached[0].head_dim}


def _take_class(model: PreTrainedModel, config: StructureConfig) -> None:
    """Make a model one of the subclass that takes structure."""
    structured: Any = model
    _set_class(model, _structured_class(structured.__class__))
    structured.structure_config = config


def _set_class(model: Any, kind: Any) -> None:
    """Make a model one of another class, and call its forward pass where an object keeps that of the class before.

    Accelerate's hooks keep it as `_old_forward`, and call it from a `forward` of the object's own.
    """
    before, forward = type(model).forward, MethodType(kind.forward, model)
    model.__class__ = kind
    for name, value in list(vars(model).items()):
        if isinstance(value, MethodType) and value.__func__ is before:
            setattr(model, name, forward)
        elif isinstance(getattr(value, "__wrapped__", None), MethodType) and value.__wrapped__.__func__ is before:
            value.__wrapped__ = forward


def _load_structure(folder_or_repo: str, files: dict[str, Any]) -> tuple[StructureConfig, dict[str, Tensor]]:
    """Return what `save_structure` wrote; raise ValueError if it is damaged, OSError if it is not there."""
    try:
        config_file = cached_file(folder_or_repo, CONFIG_FILE, **files)
        weights_file = cached_file(folder_or_repo, WEIGHTS_FILE, **files)
    except OSError as error:
        shown = " ".join(str(error).split())
        raise OSError(
            f"no {CONFIG_FILE} in {folder_or_repo}, which must be a folder or a repository: {shown:.200}"
        ) from error
    try:
        values = json.loads(Path(str(config_file)).read_text(encoding="utf-8"))
        config = StructureConfig(**values)
        state = load_state_dict(str(weights_file))
    # Damaged weights end with an error class of safetensors, which is no ValueError.
    except Exception as error:
        raise ValueError(f"{CONFIG_FILE} or {WEIGHTS_FILE} of {folder_or_repo} is damaged: {error}") from error
    return config, state


def coupled_generate(
    model: Any,
    coupling: str | CouplingRule | Tensor,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    **options: Any,
):
    """Return `model.generate(input_ids, **options)` of another model, such as GPT-2 or Llama, with coupled or given ids.

    The model was trained on these ids as its `position_ids`. By itself `generate()` gives a new token the id of the last
    token plus one.

        tokens          $ 6 5 3 + 0 4 9 = 2 0 7 0 $
        rule's ids      0 2 3 4 5 2 3 4 5 4 3 2 1 0
        by `generate`   0 2 3 4 5 2 3 4 5 6 7 8 9 10

    Args:
        model: a causal language model of transformers that takes `position_ids` (batch, tokens), with longhand's tokens; or
            one that `with_structure` gave as many levels as the rule has.
        coupling: a rule, or its name, such as "addition"; or the position ids (batch or 1, [levels,] columns) of prompt and
            response, for any vocabulary.
        input_ids: (batch, tokens), padded on the left or not at all.
        options: what else `generate()` takes; by default at most the rule's longest response is generated, or as many tokens
            as there are ids.

    Raises:
        ValueError: the rule has several ids for each token, and the model reads one or none; or a prompt is not of the
            rule's form; or there are fewer ids than tokens, or they are none.
    """
    rule = None if isinstance(coupling, Tensor) else find_rule(coupling)
    levels = getattr(getattr(model, "structure_config", None), "levels", None) or 1
    if rule is not None and rule.levels not in (1, levels):
        raise ValueError(
            f"the coupling rule {rule.name!r} gives a token {rule.levels} ids, and position_ids of this model hold "
            f"{levels}: with_structure(model, levels={rule.levels}) lets it learn from several"
        )
    if rule is None:
        position_ids: Any = coupling
        if position_ids.ndim == 3 and not isinstance(model, StructuredModel):
            shape = tuple(position_ids.shape)
            raise ValueError(f"position ids of this model must be (batch or 1, columns) of prompt and response, got {shape}")
        padding = model.config.pad_token_id
    else:
        planned = int(rule.plan(input_ids, 1).response_length)
        options = options if "max_length" in options else {"max_new_tokens": planned} | options
        asked = options.get("max_length") or input_ids.shape[1] + options["max_new_tokens"]
        position_ids = plan_position_ids(rule, input_ids, max(input_ids.shape[1] + planned, asked))
        position_ids, padding = position_ids.squeeze(1) if rule.levels == 1 else position_ids, PAD
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids) if padding is None else (input_ids != padding).long()
    kind = type(model)
    if position_ids.ndim == 2:
        _check_reads_ids(model)
    if not isinstance(model, StructuredModel):
        _take_class(model, StructureConfig())
    try:
        return model.generate(input_ids, attention_mask=attention_mask, position_ids=position_ids, **options)
    finally:
        if type(model) is not kind:
            _set_class(model, kind)
            del model.structure_config


@torch.no_grad()
def _check_reads_ids(model: Any) -> None:
    """Raise ValueError if a model answers the same whatever its position ids (batch, tokens) are."""
    tokens = torch.arange(2, 5, device=model.device).unsqueeze(0)
    answers = []
    if "position_ids" in signature(model.forward).parameters:
        for ids in ([0, 1, 2], [0, 2, 1]):
            given = {"position_ids": torch.tensor([ids], device=model.device), "attention_mask": torch.ones_like(tokens)}
            answers.append(model(input_ids=tokens, **given).logits)
    if not answers or torch.equal(*answers):
        raise ValueError(f"{type(model).__name__} reads no position_ids, so it cannot have those of a coupling rule")
