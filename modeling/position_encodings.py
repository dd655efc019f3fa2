"""Position encodings of the decoder: how a model consumes position ids or the relations between them.

An encoding overrides the hooks that it needs; the model calls all hooks and knows no encoding by name. `POSITION_ENCODINGS`
holds all encodings. A file outside this package adds its own with `position_encoding`.
"""

# Used by: configuration_coupled_gpt.py, modeling_coupled_gpt.py, who_sees_whom.py, data, hub_cards/evaluation,
# hub_cards/training. Bound by: the digest of the code that travels with a checkpoint: run .ci/code.

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.models.t5.modeling_t5 import T5Attention

from .registry import check_free, pickled_with
from .relations import (
    FAVOUR,
    LARGEST_ID,
    Neighbours,
    coupled_neighbours,
    coupled_pair_map,
    num_coupled_relations,
)
from .stored_names import read_stored_names
from .values import require_range, send

POSITION_ENCODINGS: dict[str, type["PositionEncoding"]] = {}
"""All encodings by name; `position_encoding` fills it."""

EncodingClass = TypeVar("EncodingClass", bound=type["PositionEncoding"])


def position_encoding(name: str) -> Callable[[EncodingClass], EncodingClass]:
    """Register the decorated subclass of `PositionEncoding` under a name, a legal value of `config.position_encoding`.

    Raises:
        ValueError: the name is taken by another class.
    """

    def add(encoding: EncodingClass) -> EncodingClass:
        check_free("position encoding", name, encoding, POSITION_ENCODINGS.get(name))
        POSITION_ENCODINGS[name] = encoding
        return encoding

    return add


@position_encoding("none")
class PositionEncoding(nn.Module):
    """No position encoding at all (NoPE, Kazemnejad et al., 2023), and the base class of all encodings."""

    uses_position_ids = False
    """Whether the encoding reads position ids, so that missing ones must be derived."""

    embeds_position_ids = False
    """Whether `embed` changes the token embeddings."""

    uses_pair_map = False
    """Whether `bias` reads relations, so that a missing pair map must be derived."""

    windowed = False
    """Whether a query attends only to its neighbours."""

    reads_token_distances = False
    """Whether differences of ids must be distances in tokens; only the rule `sequential` gives such ids."""

    position_samplings: tuple[str, ...] = ("fixed",)
    """Legal ways to vary position ids in training, names of `POSITION_SAMPLINGS` of the collator."""

    largest_id = LARGEST_ID
    """The largest legal position id."""

    stored_names: ClassVar[Mapping[str, str]] = {}
    """Names in files of parameters that are called otherwise here, see `stored_names.py`."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.register_load_state_dict_pre_hook(read_stored_names)

    def __reduce_ex__(self, protocol):
        """Pickle with the file that defines the encoding, see `pickled_with`."""
        return pickled_with([type(self)], cast(Any, super().__reduce_ex__(protocol)))

    def init_weights(self) -> None:
        """Draw the initial values of the parameters that the encoding itself owns."""

    num_relations: int | None = None
    """Number of relations that `bias` reads, 0 to this number - 1; None if no table ends."""

    @property
    def reads_single_ids(self) -> bool:
        """Whether `embed` or `rotate` read ids, and not `bias` alone, by relations of two."""
        return self.embeds_position_ids or type(self).rotate is not PositionEncoding.rotate

    def check(self, position_ids: Tensor) -> None:
        """Raise ValueError for ids that the encoding cannot represent: negative ones, and ids above `largest_id`."""

        def legal() -> str:
            return (
                f"position ids of {self.config.position_encoding!r} must be in 0..{self.largest_id}, 0 for none (by the "
                f"coupling rule {self.config.coupling!r} the longest that fits is "
                f"{self.config.rule.capacity(self.largest_id)})"
            )

        require_range(position_ids, 0, self.largest_id, legal)

    def embed(self, token_embeddings: Tensor, position_ids: Tensor) -> Tensor:
        """Return the first layer's input (batch, tokens, hidden), for ids (batch or 1, levels, tokens)."""
        return token_embeddings

    def rotate(self, states: Tensor, position_ids: Tensor) -> Tensor:
        """Return queries or keys (batch, heads, tokens, head_dim) rotated by their ids (batch or 1, levels, tokens)."""
        return states

    def pair_map(self, query_ids: Tensor, key_ids: Tensor) -> Tensor | None:
        """Return the relations (batch or 1, queries, keys) for `bias`, or None; ids are (batch or 1, levels, tokens)."""
        return None

    def neighbours(self, query_ids: Tensor, key_ids: Tensor, query_columns: Tensor, present: Tensor | None) -> Neighbours:
        """Return the keys of every query, for an encoding that is `windowed`; see `coupled_neighbours`."""
        raise NotImplementedError

    def bias(self, relations: Tensor, layer: int) -> Tensor | None:
        """Return a bias (*relations.shape, heads) for the scaled scores, or None."""
        return None


class PositionTable(nn.Embedding):
    """A vector per position id; row 0 belongs to special tokens."""

    def __init__(self, config):
        super().__init__(config.max_position_ids + 1, config.hidden_size)
        self.orthogonal = config.position_init == "orthogonal"

    def init_weights(self) -> None:
        """Draw rows from N(0, 1), or orthogonal rows of the same mean length."""
        if self.orthogonal:
            init.orthogonal_(self.weight, gain=max(self.weight.shape) ** 0.5)
        else:
            init.normal_(self.weight)


@position_encoding("learned")
class LearnedTable(PositionEncoding):
    """A learned vector per id, added to the token embedding: position coupling as in paper 1, Sec. 3.

    With several levels, the vectors of all levels are added. These vectors come from one table
    (`share_level_tables`) or from one table per level. Ids go up to `config.max_position_ids`.
    """

    uses_position_ids = True
    embeds_position_ids = True
    position_samplings = ("fixed", "random_start", "batch_start", "randomized")

    def __init__(self, config):
        super().__init__(config)
        self.largest_id = config.max_position_ids
        self.num_tables = 1 if config.share_level_tables else config.position_levels
        self.tables = nn.ModuleList(PositionTable(config) for _ in range(self.num_tables))

    def embed(self, token_embeddings, position_ids):
        for level, ids in enumerate(position_ids.unbind(1)):
            token_embeddings = token_embeddings + self.tables[level % self.num_tables](ids)
        return token_embeddings


@position_encoding("sinusoidal")
class SinusoidalEncoding(PositionEncoding):
    """Sines and cosines of the ids of all levels, added to the token embedding (Vaswani et al., 2017, Sec. 3.5).

    At id p, component 2i is sin(p / 10000^(2i / hidden_size)) and component 2i + 1 the cosine. No table limits the ids.
    """

    uses_position_ids = True
    embeds_position_ids = True
    position_samplings = ("fixed", "random_start", "batch_start", "multiplier", "randomized")

    def embed(self, token_embeddings, position_ids):
        half = token_embeddings.shape[-1] // 2
        exponent = torch.arange(half, device=token_embeddings.device, dtype=torch.float32) / half
        angle = position_ids.float().unsqueeze(-1) * 10000.0**-exponent
        waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).sum(1)
        return token_embeddings + waves.to(token_embeddings.dtype)


@position_encoding("rotary")
class RotaryEncoding(PositionEncoding):
    """Rotary embedding (Su et al., 2021) by coupled ids; each of several levels has its share of a head's dimensions."""

    uses_position_ids = True
    position_samplings = ("fixed", "random_start", "batch_start", "multiplier", "randomized")

    def rotate(self, states, position_ids):
        levels = zip(states.chunk(position_ids.shape[1], dim=-1), position_ids.unbind(1), strict=True)
        return torch.cat([self._rotate_level(part, ids) for part, ids in levels], dim=-1)

    def _rotate_level(self, states, ids):
        half = states.shape[-1] // 2
        exponent = torch.arange(half, device=states.device, dtype=torch.float32) / half
        angle = ids.float().unsqueeze(-1) * self.config.rotary_base**-exponent
        cosine, sine = (value.to(states.dtype).unsqueeze(1) for value in (angle.cos(), angle.sin()))
        first, second = states[..., :half], states[..., half:]
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


@position_encoding("pairwise")
class PairwiseBias(PositionEncoding):
    """One learned number per layer, head and relation of coupled ids, added to the scores.

    The relation is the ids' difference within `config.relation_range`, or a relation that the coupling rule names. With
    `config.windowed`, all other keys are masked. So the window, and not the length of the input, bounds what a token sees:
    no table ends and no softmax dilutes. With `config.relation_init` "one_per_head", every head starts with the bias
    `FAVOUR` for one relation of its own and 0 for the others.
    """

    uses_position_ids = True
    uses_pair_map = True

    def __init__(self, config):
        super().__init__(config)
        self.windowed = config.windowed
        # Relations that calls give by number do not follow from ids.
        self.uses_position_ids = config.num_relations is None
        self.window = config.relation_range or config.rule.relations
        self.num_relations = config.num_relations or num_coupled_relations(self.window, config.position_levels)
        shape = (config.num_hidden_layers, self.num_relations, config.num_attention_heads)
        self.relation_bias = nn.Parameter(torch.empty(shape))

    def init_weights(self):
        if self.config.relation_init == "normal":
            init.normal_(self.relation_bias)
            return
        _, relations, heads = self.relation_bias.shape
        favoured = FAVOUR * nn.functional.one_hot(torch.arange(heads) % relations, relations).T
        init.copy_(self.relation_bias, favoured.expand_as(self.relation_bias))

    def pair_map(self, query_ids, key_ids):
        return coupled_pair_map(query_ids, key_ids, self.window, self.windowed)

    def neighbours(self, query_ids, key_ids, query_columns, present):
        return coupled_neighbours(query_ids, key_ids, query_columns, self.window, present)

    def bias(self, relations, layer):
        return nn.functional.embedding(relations.clamp(min=0), self.relation_bias[layer])


class TokenDistanceBias(PositionEncoding):
    """Base class of biases by the distance between two tokens, query id minus key id; 0 for keys after the query."""

    uses_position_ids = True
    uses_pair_map = True
    reads_token_distances = True
    position_samplings = ("fixed", "randomized")

    def pair_map(self, query_ids, key_ids):
        return (query_ids[:, 0].unsqueeze(-1) - key_ids[:, 0].unsqueeze(-2)).clamp(min=0).to(torch.int32)


def alibi_slopes(heads: int) -> list[float]:
    """Return the published slopes: 2^(-8/n), 2^(-16/n), ... for a number of heads n that is a power of two.

    For other numbers: the slopes of the largest power of two below, then every second slope of twice that power.
    """
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    between = [2 ** (-4 * head / power) for head in range(1, 2 * power + 1, 2)]
    return slopes + between[: heads - power]


@position_encoding("alibi")
class AlibiBias(TokenDistanceBias):
    """The distance times a fixed negative slope for each head (ALiBi: Press et al., 2022, Sec. 3)."""

    def __init__(self, config):
        super().__init__(config)
        self.slopes = alibi_slopes(config.num_attention_heads)

    def bias(self, relations, layer):
        slopes = send(torch.tensor(self.slopes), relations.device)
        return relations.unsqueeze(-1) * -slopes


@position_encoding("t5")
class T5Bias(TokenDistanceBias):
    """One learned number per head and bucket of distances, shared by all layers (T5: Raffel et al., 2020, Sec. 2.1).

    The relation is the bucket. Half of the buckets hold one distance each. The others grow logarithmically up to
    `config.relative_attention_max_distance`, and the last bucket holds all larger distances.
    """

    def __init__(self, config):
        super().__init__(config)
        self.num_relations = config.relative_attention_num_buckets
        self.bucket_bias = nn.Parameter(torch.empty(config.relative_attention_num_buckets, config.num_attention_heads))

    def init_weights(self):
        init.normal_(self.bucket_bias, std=self.config.hidden_size**-0.5)

    def pair_map(self, query_ids, key_ids):
        sizes = self.config.relative_attention_num_buckets, self.config.relative_attention_max_distance
        return T5Attention._relative_position_bucket(-super().pair_map(query_ids, key_ids), False, *sizes).int()

    def bias(self, relations, layer):
        return nn.functional.embedding(relations, self.bucket_bias)


FIRE_IDS = 2**15
"""Number of distinct ids for FIRE: query id and distance share one int32."""


@position_encoding("fire")
class FireBias(TokenDistanceBias):
    """A small MLP of the distance relative to the query's own id (FIRE: Li et al., 2024, Sec. 3 and its code).

    The bias of distance d at id i is f(psi(d) / psi(max(L, i))) with psi(x) = log(|c| x + 1). Beyond the threshold L, the
    distances of a query fill 0 to 1, however long the input is; below L they are not stretched. f has one hidden layer of
    32 ReLUs and one output per head. Every layer learns its own c, L and f (the paper's FIRE; its FIRE-S shares them). As
    in the paper's code, c starts at 0.1, and L is 512 times a learned factor that starts at 1.
    """

    largest_id = FIRE_IDS - 1
    hidden_units = 32
    first_scale, first_threshold = 0.1, 512.0
    stored_names = {"bias_scale": "scale", "bias_threshold_factor": "threshold_factor"}

    def __init__(self, config):
        super().__init__(config)
        layers = config.num_hidden_layers
        self.bias_scale = nn.Parameter(torch.empty(layers))
        self.bias_threshold_factor = nn.Parameter(torch.empty(layers))
        self.hidden_weight = nn.Parameter(torch.empty(layers, self.hidden_units))
        self.hidden_bias = nn.Parameter(torch.empty(layers, self.hidden_units))
        self.output_weight = nn.Parameter(torch.empty(layers, self.hidden_units, config.num_attention_heads))
        self.output_bias = nn.Parameter(torch.empty(layers, config.num_attention_heads))

    def init_weights(self):
        """Draw the MLP as torch draws an `nn.Linear`."""
        init.constant_(self.bias_scale, self.first_scale)
        init.ones_(self.bias_threshold_factor)
        parameters = (self.hidden_weight, self.hidden_bias, self.output_weight, self.output_bias)
        for parameter, inputs in zip(parameters, (1, 1, self.hidden_units, self.hidden_units), strict=True):
            init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5)

    def pair_map(self, query_ids, key_ids):
        distance = super().pair_map(query_ids, key_ids)
        return query_ids[:, 0].unsqueeze(-1).to(torch.int32) * FIRE_IDS + distance

    def bias(self, relations, layer):
        precise = torch.promote_types(self.bias_scale.dtype, torch.float32)
        scale = self.bias_scale[layer].to(precise).abs()
        threshold = (self.bias_threshold_factor[layer] * self.first_threshold).abs()

        def psi(x: Tensor) -> Tensor:
            return torch.log(scale * x + 1)

        query_ids, distance = (part.to(precise) for part in (relations // FIRE_IDS, relations % FIRE_IDS))
        share = psi(distance) / (psi(torch.maximum(query_ids, threshold.to(precise))) + 1e-6)
        share = share.to(self.hidden_weight.dtype).unsqueeze(-1)
        hidden = nn.functional.relu(share * self.hidden_weight[layer] + self.hidden_bias[layer])
        return hidden @ self.output_weight[layer] + self.output_bias[layer]
