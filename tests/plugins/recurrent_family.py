"""A family of a user's own: a recurrent network reads a sum in both directions and labels its tokens."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, AutoModelForTokenClassification, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import TokenClassifierOutput

from longhand.data.families.encoder import Encoder
from longhand.data.families.family import register_family
from longhand.data.tasks.encoder_addition import EncoderAddition
from longhand.data.tasks.registry import register_task
from longhand.hub_cards.publishing.examples import FAMILY_CARDS, EncoderCard
from longhand.modeling.vocabulary import ENCODER_TOKENS, LABELS, PAD


@strict
class RecurrentConfig(PreTrainedConfig):
    """A bidirectional GRU.

    Args:
        hidden_size: width of each direction.
        num_hidden_layers: number of recurrent layers.
    """

    model_type = "recurrent"

    vocab_size: int = len(ENCODER_TOKENS)
    pad_token_id: int | None = PAD
    hidden_size: int = 32
    num_hidden_layers: int = 1

    def __post_init__(self, **kwargs):
        kwargs.setdefault("id2label", dict(enumerate(LABELS)))
        super().__post_init__(**kwargs)


class RecurrentForTokenClassification(PreTrainedModel):
    config: RecurrentConfig
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        sizes = {"num_layers": config.num_hidden_layers, "bidirectional": True, "batch_first": True}
        self.layers = nn.GRU(config.hidden_size, config.hidden_size, **sizes)
        self.classifier = nn.Linear(2 * config.hidden_size, len(LABELS))
        self.post_init()

    def forward(self, input_ids, attention_mask=None, labels=None, **kwargs):
        logits = self.classifier(self.layers(self.embed_tokens(input_ids))[0])
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return TokenClassifierOutput(loss=loss, logits=logits)


class RecurrentFamily(Encoder):
    """Everything is as for the encoders of the package, except the model and its limits: no input is too long for it."""

    name = "recurrent"
    model_class = RecurrentForTokenClassification

    def check_inputs(self, task, model, batch):
        return None


class RecurrentCard(EncoderCard):
    """The card's words about the family."""

    def introduction(self, task, config, parameters):
        return f"A recurrent network of {parameters:,} parameters for the task `{task.name}`, made with longhand."

    def limits(self, config):
        return ["It reads tokens one after the other: a carry that goes far is easily forgotten."]


AutoConfig.register(RecurrentConfig.model_type, RecurrentConfig)
AutoModelForTokenClassification.register(RecurrentConfig, RecurrentForTokenClassification)
FAMILY_CARDS["recurrent"] = RecurrentCard()
RECURRENT = register_family(RecurrentFamily())


@register_task
class RecurrentAddition(EncoderAddition):
    """Sums in the encoder's format."""

    family = RECURRENT
    name: ClassVar[str] = "recurrent_addition"
