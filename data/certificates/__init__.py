"""Certificates: a finite check of a trained network that proves its answers right for problems of every size."""

from longhand.data.certificates.certificate import (
    LARGEST_RATIO,
    ROUNDING_FACTOR,
    Certificate,
    certify,
    check_thoroughly,
    find_difference,
    hash_weights,
)
from longhand.data.certificates.check import (
    CannotCertify,
    Check,
    Failure,
    check_neighbourhoods,
    covering,
    coverings,
)

__all__ = [
    "LARGEST_RATIO",
    "ROUNDING_FACTOR",
    "CannotCertify",
    "Certificate",
    "Check",
    "Failure",
    "certify",
    "check_neighbourhoods",
    "check_thoroughly",
    "covering",
    "coverings",
    "find_difference",
    "hash_weights",
]
