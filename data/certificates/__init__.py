"""Certificates: a finite check of a trained network that proves its answers right for problems of every size."""

from longhand.data.certificates.certificate import LARGEST_RATIO as LARGEST_RATIO
from longhand.data.certificates.certificate import ROUNDING_FACTOR as ROUNDING_FACTOR
from longhand.data.certificates.certificate import Certificate as Certificate
from longhand.data.certificates.certificate import certify as certify
from longhand.data.certificates.certificate import check_thoroughly as check_thoroughly
from longhand.data.certificates.certificate import find_difference as find_difference
from longhand.data.certificates.certificate import hash_weights as hash_weights
from longhand.data.certificates.check import CannotCertify as CannotCertify
from longhand.data.certificates.check import Check as Check
from longhand.data.certificates.check import Failure as Failure
from longhand.data.certificates.check import check_neighbourhoods as check_neighbourhoods
from longhand.data.certificates.check import covering as covering
from longhand.data.certificates.check import coverings as coverings
from longhand.data.certificates.up_to_length import LengthProver as LengthProver
from longhand.data.certificates.up_to_length import LengthVerdict as LengthVerdict
