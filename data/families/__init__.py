"""The families of models: all differences between decoders and encoders, apart from how a task writes its text."""

from longhand.data.families.decoder import DECODER
from longhand.data.families.encoder import ENCODER
from longhand.data.families.family import FAMILIES, Family, register_family

__all__ = ["DECODER", "ENCODER", "FAMILIES", "Family", "register_family"]
