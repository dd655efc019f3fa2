"""Certificates: a finite check of a trained network that proves its answers right for problems of every size."""

from typing import TYPE_CHECKING

from longhand.data.on_demand import names_on_demand

if TYPE_CHECKING:
    from longhand.data.proofs.certificate import Certificate as Certificate
    from longhand.data.proofs.certificate import certify as certify
    from longhand.data.proofs.certificate import check_thoroughly as check_thoroughly
    from longhand.data.proofs.certificate import find_difference as find_difference
    from longhand.data.proofs.certificate import hash_weights as hash_weights
    from longhand.data.proofs.check import ROUNDING_FACTOR as ROUNDING_FACTOR
    from longhand.data.proofs.check import CannotCertify as CannotCertify
    from longhand.data.proofs.check import Check as Check
    from longhand.data.proofs.check import Failure as Failure
    from longhand.data.proofs.check import check_neighbourhoods as check_neighbourhoods
    from longhand.data.proofs.check import covering as covering
    from longhand.data.proofs.check import coverings as coverings
    from longhand.data.proofs.lengths.up_to_length import LengthProver as LengthProver
    from longhand.data.proofs.lengths.up_to_length import LengthVerdict as LengthVerdict
    from longhand.data.proofs.provable import LARGEST_RATIO as LARGEST_RATIO
else:
    # Type checkers see the imports above instead.
    __getattr__, __dir__ = names_on_demand(
        __name__,
        {
            "CannotCertify": "longhand.data.proofs.check",
            "Certificate": "longhand.data.proofs.certificate",
            "Check": "longhand.data.proofs.check",
            "Failure": "longhand.data.proofs.check",
            "LARGEST_RATIO": "longhand.data.proofs.provable",
            "LengthProver": "longhand.data.proofs.lengths.up_to_length",
            "LengthVerdict": "longhand.data.proofs.lengths.up_to_length",
            "ROUNDING_FACTOR": "longhand.data.proofs.check",
            "certify": "longhand.data.proofs.certificate",
            "check_neighbourhoods": "longhand.data.proofs.check",
            "check_thoroughly": "longhand.data.proofs.certificate",
            "covering": "longhand.data.proofs.check",
            "coverings": "longhand.data.proofs.check",
            "find_difference": "longhand.data.proofs.certificate",
            "hash_weights": "longhand.data.proofs.certificate",
        },
    )
