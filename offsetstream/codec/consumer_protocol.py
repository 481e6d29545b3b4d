"""Decode and encode the consumer protocol: subscription and assignment bytes of group members (reference 3.1)."""

from typing import Any

from offsetstream.codec.embedded import decode_embedded, encode_embedded
from offsetstream.codec.readers import JsonObject

_SUBSCRIPTION, _ASSIGNMENT = "consumer_protocol_subscription", "consumer_protocol_assignment"
LATEST_VERSION = 3


def decode_subscription(data: bytes) -> JsonObject:
    """Decode a subscription: `topics`, `userData` (bytes or None), `ownedPartitions`, `generationId`, `rackId`.

    `ownedPartitions` is there from version 1, `generationId` from 2, `rackId` from 3. Later versions are read as
    version 3. Raises DecodeError with the reason, also for empty bytes.
    """
    return decode_embedded(_SUBSCRIPTION, data)


def decode_assignment(data: bytes) -> JsonObject:
    """Decode an assignment: `assignedPartitions`, a list of `topic` and `partitions`, and `userData` (bytes or None).

    Later versions are read as version 3. Raises DecodeError with the reason, also for empty bytes: a member has those
    if the leader assigned nothing to it.
    """
    return decode_embedded(_ASSIGNMENT, data)


def encode_subscription(data: Any, version: int = LATEST_VERSION) -> bytes:
    """Encode a subscription in a version 0-3: the inverse of `decode_subscription`. Raises DecodeError."""
    return encode_embedded(_SUBSCRIPTION, version, data)


def encode_assignment(data: Any, version: int = LATEST_VERSION) -> bytes:
    """Encode an assignment in a version 0-3: the inverse of `decode_assignment`. Raises DecodeError."""
    return encode_embedded(_ASSIGNMENT, version, data)
