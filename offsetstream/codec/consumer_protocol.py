"""Subscription and assignment bytes inside group members (reference 3.1).

A version above the highest known one is read as the highest; zero bytes or a negative version are an error.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from offsetstream.codec import wire
from offsetstream.codec.connect_protocol import decode_connect_assignment, decode_connect_subscription
from offsetstream.codec.readers import JsonObject, Reader, message_reader
from offsetstream.codec.shapes import embedded_shape
from offsetstream.codec.wire import Malformed

GROUP_METADATA, CONSUMER_MEMBER = 2, 5


@cache
def _reader(message: str, version: int) -> Reader:
    return message_reader(embedded_shape(message), version)


def _decode(message: str, data: bytes) -> JsonObject:
    version, at = wire.read_int16(data, 0)
    if version < 0:
        raise Malformed(f"negative version {version} of {message}")
    result: JsonObject = _reader(message, min(version, embedded_shape(message).versions.last))(data, at)[0]
    return result


def decode_subscription(data: bytes) -> JsonObject:
    """Decode a ConsumerProtocolSubscription: `topics`, `userData` (bytes or None), and by version `ownedPartitions`,
    `generationId`, `rackId`.

    Raises Malformed with the reason.
    """
    return _decode("consumer_protocol_subscription", data)


def decode_assignment(data: bytes) -> JsonObject:
    """Decode a ConsumerProtocolAssignment: `assignedPartitions` (`topic`, `partitions`) and `userData`.

    Raises Malformed with the reason.
    """
    return _decode("consumer_protocol_assignment", data)


_Decoder = Callable[[bytes], JsonObject]
_BY_PROTOCOL_TYPE: dict[str, tuple[_Decoder, _Decoder]] = {
    "consumer": (decode_subscription, decode_assignment),
    "connect": (decode_connect_subscription, decode_connect_assignment),
}


def _try(decoder: _Decoder, data: bytes) -> Any:
    try:
        return decoder(data)
    except Malformed:
        return data


def with_embedded_decoded(key_type: int, data: JsonObject) -> JsonObject:
    """The value of a record with the embedded bytes it is known to hold decoded; the same object if it has none.

    Concerns the members of GroupMetadataValue, by its protocol type, and the classic protocols of a
    ConsumerGroupMemberMetadataValue. Bytes that cannot be decoded stay bytes.
    """
    if key_type == GROUP_METADATA and data["members"]:
        return _group_decoded(data)
    if key_type == CONSUMER_MEMBER and data.get("classicMemberMetadata"):
        classic = data["classicMemberMetadata"]
        protocols = [
            {**protocol, "metadata": _try(decode_subscription, protocol["metadata"])}
            for protocol in classic["supportedProtocols"]
        ]
        return {**data, "classicMemberMetadata": {**classic, "supportedProtocols": protocols}}
    return data


def _group_decoded(data: JsonObject) -> JsonObject:
    decoders = _BY_PROTOCOL_TYPE.get(data["protocolType"])
    if decoders is None:
        return data
    subscription, assignment = decoders
    members = [
        {
            **member,
            "subscription": _try(subscription, member["subscription"]),
            "assignment": _try(assignment, member["assignment"]),
        }
        for member in data["members"]
    ]
    return {**data, "members": members}
