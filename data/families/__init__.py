"""The families of models: all differences between decoders and encoders, apart from how a task writes its text."""

from longhand.data.families.decoder import DECODER
from longhand.data.families.encoder import ENCODER
from longhand.data.families.family import Family

__all__ = ["DECODER", "ENCODER", "Family"]
