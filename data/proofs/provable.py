"""What a certificate asks of the models of each family: whether one is possible, by which window, and up to which sizes."""

# Used by: certificate.py, check.py, hub_cards/training. Changed freely.

from abc import ABC, abstractmethod
from typing import ClassVar

from transformers import PreTrainedModel

from longhand.data.families import DECODER
from longhand.data.proofs.windows.networks import DecoderRounding, EncoderRounding, NetworkRounding
from longhand.data.proofs.windows.rounding import CLEAR
from longhand.data.tasks.task import Task
from longhand.modeling import CoupledGPTConfig, PairwiseBertConfig
from longhand.modeling.coupling import COUPLING_RULES
from longhand.modeling.relations import MOST_TOKENS, Window, largest_neighbour_id
from longhand.modeling.settling import MOST_TOKENS as MOST_SETTLING_TOKENS

LARGEST_RATIO = CLEAR
"""The largest quotient of a lead and its bound that can be asked for; above it, bounds are only as fine as is needed."""


class Provable(ABC):
    """The models of one family, as a certificate sees them.

    Attributes:
        network: their formulas, with a bound of rounding.
    """

    network: ClassVar[type[NetworkRounding]]

    @abstractmethod
    def check_certifiable(self, task: Task, model: PreTrainedModel) -> None:
        """Raise ValueError if no certificate is possible for the model, whatever its weights."""

    @abstractmethod
    def window(self, model: PreTrainedModel) -> Window:
        """The window of a model that `check_certifiable` accepts, see `modeling/relations.py`."""

    def own_window(self, task: Task, model: PreTrainedModel) -> tuple[Window, int]:
        """The window by the task's own coupling rule, and the place of its first relation in the window of the model.

        They differ if the model's rule joins the task's rule with others: then no other relation holds between two tokens of
        a problem of the task (see `joined_rule`).
        """
        return self.window(model), 0

    @abstractmethod
    def largest_sizes(self, model: PreTrainedModel) -> dict[str, int]:
        """The most `tokens` of a problem that the code takes, and the largest of `position_ids` if a model reads them."""


class ProvableDecoder(Provable):
    network = DecoderRounding

    def check_certifiable(self, task, model):
        config = model.config
        check_derives(config)
        if not model.model.position_encoding.windowed:
            raise ValueError(
                f"the model has no window (position_encoding {config.position_encoding!r}, windowed {config.windowed}), so "
                "its predictions may depend on the whole input and infinitely many cases remain"
            )
        if config.coupling not in task.couplings:
            legal = " or ".join(map(repr, task.couplings))
            raise ValueError(f"the model has the coupling rule {config.coupling!r}, not {legal}")
        DECODER.check_greedy(task, model)

    def window(self, model):
        return model.model.position_encoding.window

    def own_window(self, task, model):
        window, rule = self.window(model), COUPLING_RULES.get(model.config.coupling)
        if rule is None or task.coupling not in rule.members or tuple(window) != rule.relations:
            return window, 0
        before = rule.members[: rule.members.index(task.coupling)]
        return COUPLING_RULES[task.coupling].relations, sum(len(COUPLING_RULES[name].relations) for name in before)

    def largest_sizes(self, model):
        window, levels = self.window(model), model.config.position_levels or 1
        return {"position_ids": largest_neighbour_id(window, levels), "tokens": MOST_TOKENS}


class ProvableEncoder(Provable):
    network = EncoderRounding

    def check_certifiable(self, task, model):
        check_derives(model.config)
        if not model.config.label_states:
            raise ValueError(
                "an encoder does not write token by token, so the proof's induction does not apply, and its depth limits "
                "the cascades of carries; one with label_states has an induction over passes"
            )
        if (names := model.config.id2label) != dict(enumerate(task.labels)):
            raise ValueError(f"the labels of {task.name!r} are {task.labels!r}, but id2label names {names}")
        if (rule := model.config.head_maps[0]) != task.settling_map:
            raise ValueError(f"the cases of {task.name!r} are those of pair_maps {task.settling_map!r}, not {rule!r}")

    def window(self, model):
        return model.config.relation_range

    def largest_sizes(self, model):
        return {"tokens": MOST_SETTLING_TOKENS}


def check_derives(config: CoupledGPTConfig | PairwiseBertConfig) -> None:
    """Raise ValueError for a model to which every call gives ids or maps; certificates are about derived ones."""
    if config.takes_structure:
        raise ValueError(
            "every call gives the model its ids or maps ('given'), and a certificate speaks of those that a rule derives"
        )


_DECODERS = ProvableDecoder()
_ENCODERS = ProvableEncoder()


def provable(task: Task) -> Provable:
    """What a certificate asks of the models of a task."""
    return _DECODERS if task.family is DECODER else _ENCODERS
