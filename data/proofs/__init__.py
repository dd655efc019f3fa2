"""Certificates: a finite check of a trained network that proves its answers right for problems of every size."""

from longhand.data.proofs.certificate import LARGEST_RATIO as LARGEST_RATIO
from longhand.data.proofs.certificate import ROUNDING_FACTOR as ROUNDING_FACTOR
from longhand.data.proofs.certificate import Certificate as Certificate
from longhand.data.proofs.certificate import certify as certify
from longhand.data.proofs.certificate import check_thoroughly as check_thoroughly
from longhand.data.proofs.certificate import find_difference as find_difference
from longhand.data.proofs.certificate import hash_weights as hash_weights
from longhand.data.proofs.check import CannotCertify as CannotCertify
from longhand.data.proofs.check import Check as Check
from longhand.data.proofs.check import Failure as Failure
from longhand.data.proofs.check import check_neighbourhoods as check_neighbourhoods
from longhand.data.proofs.check import covering as covering
from longhand.data.proofs.check import coverings as coverings
from longhand.data.proofs.lengths.up_to_length import LengthProver as LengthProver
from longhand.data.proofs.lengths.up_to_length import LengthVerdict as LengthVerdict
