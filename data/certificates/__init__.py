"""Certificates: a finite check of a trained network that proves its answers right for problems of every size."""

from longhand.data.certificates.certificate import ROUNDING_FACTOR, Certificate, certify, find_difference, hash_weights
from longhand.data.certificates.check import CannotCertify, Check, Failure, check_neighbourhoods, covering

__all__ = [
    "ROUNDING_FACTOR",
    "CannotCertify",
    "Certificate",
    "Check",
    "Failure",
    "certify",
    "check_neighbourhoods",
    "covering",
    "find_difference",
    "hash_weights",
]
