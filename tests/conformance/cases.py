"""All conformance cases."""

from tests.conformance.classic_cases import CLASSIC_CASES
from tests.conformance.further_cases import FURTHER_CASES
from tests.conformance.new_cases import NEW_CASES

CASES = (*CLASSIC_CASES, *NEW_CASES, *FURTHER_CASES)
