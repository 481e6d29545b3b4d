"""All conformance cases."""

from tests.conformance.classic_cases import CLASSIC_CASES
from tests.conformance.consumer_cases import CONSUMER_CASES, OFFSET_CASES
from tests.conformance.further_cases import FURTHER_CASES
from tests.conformance.order_cases import ORDER_CASES
from tests.conformance.shard_cases import SHARD_CASES
from tests.conformance.share_and_streams_cases import SHARE_AND_STREAMS_CASES

CASES = (
    *CLASSIC_CASES,
    *OFFSET_CASES,
    *CONSUMER_CASES,
    *SHARE_AND_STREAMS_CASES,
    *SHARD_CASES,
    *ORDER_CASES,
    *FURTHER_CASES,
)
