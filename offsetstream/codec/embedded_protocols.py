"""Messages inside the bytes of group members: the consumer protocol and that of Connect workers (reference 3).

Each is an INT16 version, then fields that are never flexible. A version above the highest known one is read as the
highest. Empty bytes and negative versions are errors. The layouts are in `schemas/embedded`.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from offsetstream.codec import wire
from offsetstream.codec.record_layouts import embedded_shape
from offsetstream.codec.serde import JsonObject, message_reader, message_writer
from offsetstream.codec.wire import DecodeError, reason_in_part

_SUBSCRIPTION, _ASSIGNMENT = "consumer_protocol_subscription", "consumer_protocol_assignment"
LATEST_VERSION = 3
_PREFIX = struct.Struct(">h")
_GROUP_METADATA, _CONSUMER_MEMBER = 2, 5
_MAX_CACHED_BYTES = 1024
_Decoder: TypeAlias = Callable[[bytes], JsonObject]


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


def decode_connect_assignment(data: bytes) -> JsonObject:
    """Decode a worker's assignment. Raises DecodeError with the reason.

    Fields: error, leader, leaderUrl, configOffset, and the connectors with their task numbers (-1 is the connector
    itself). From version 1 also the connectors and tasks to revoke, and the delay in milliseconds.
    """
    return decode_embedded("connect_assignment", data)


def decode_connect_subscription(data: bytes) -> JsonObject:
    """Decode a worker's state. Raises DecodeError with the reason.

    Fields: url, configOffset, and from version 1 `allocation`: what the worker still runs, as an assignment, or None.
    """
    state = decode_embedded("connect_subscription", data)
    if state.get("allocation") is not None:
        state["allocation"] = decode_connect_assignment(state["allocation"])
    return state


def decode_embedded(name: str, data: bytes) -> JsonObject:
    """Decode a message by the name of its file in `schemas/embedded`. Raises DecodeError with the reason."""
    shape = embedded_shape(name)
    try:
        version, at = wire.read_int16(data, 0)
        result: JsonObject = (
            message_reader(shape, min(version, shape.versions.last))(data, at)[0] if version >= 0 else {}
        )
    except DecodeError as reason:
        raise DecodeError(reason_in_part(str(reason), name)) from None
    if version < 0:
        raise DecodeError(f"negative version {version} of {name}")
    return result


def encode_embedded(name: str, version: int, data: Any) -> bytes:
    """Encode a message by the name of its file. Raises DecodeError if the version or the data do not match the file."""
    shape = embedded_shape(name)
    if version not in shape.versions:
        raise DecodeError(f"unsupported version {version} of {name}")
    out = bytearray(_PREFIX.pack(version))
    message_writer(shape, version)(out, data)
    return bytes(out)


def with_embedded_decoded(key_type: int, data: JsonObject) -> JsonObject:
    """Return the value with its embedded bytes decoded; the same object if it has none of a known format.

    Embedded bytes are in the members of a GroupMetadataValue, in the format of its protocol type, and in the classic
    protocols of a ConsumerGroupMemberMetadataValue. Bytes that cannot be decoded stay bytes.
    """
    if key_type == _GROUP_METADATA and data["members"] and data["protocolType"] in _BY_PROTOCOL_TYPE:
        subscription, assignment = _BY_PROTOCOL_TYPE[data["protocolType"]]
        decoders = {"subscription": subscription, "assignment": assignment}
        return {**data, "members": [_with_decoded_fields(member, decoders) for member in data["members"]]}
    if key_type == _CONSUMER_MEMBER and data.get("classicMemberMetadata"):
        classic = data["classicMemberMetadata"]
        protocols = [
            _with_decoded_fields(protocol, {"metadata": decode_subscription})
            for protocol in classic["supportedProtocols"]
        ]
        return {**data, "classicMemberMetadata": {**classic, "supportedProtocols": protocols}}
    return data


def _with_decoded_fields(document: JsonObject, decoders: dict[str, _Decoder]) -> JsonObject:
    return {**document, **{name: _decode_embedded(decoder, document[name]) for name, decoder in decoders.items()}}


def _decode_embedded(decoder: _Decoder, data: bytes) -> Any:
    return _decode_cached(decoder, data) if len(data) <= _MAX_CACHED_BYTES else _decode_or_keep(decoder, data)


def _decode_or_keep(decoder: _Decoder, data: bytes) -> Any:
    try:
        return decoder(data)
    except DecodeError:
        return data


# Most members of a group send the same bytes as others, and as in the group's earlier records.
_decode_cached = lru_cache(maxsize=4096)(_decode_or_keep)
_BY_PROTOCOL_TYPE: dict[str, tuple[_Decoder, _Decoder]] = {
    "consumer": (decode_subscription, decode_assignment),
    "connect": (decode_connect_subscription, decode_connect_assignment),
}
