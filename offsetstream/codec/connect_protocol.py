"""Connect's worker state and assignments inside group members (reference 3.2)."""

from offsetstream.codec import wire
from offsetstream.codec.readers import JsonObject, Reader, message_reader
from offsetstream.codec.shapes import embedded_shape
from offsetstream.codec.wire import Malformed

_SUBSCRIPTION, _ASSIGNMENT = "connect_subscription", "connect_assignment"


def _decode(message: str, data: bytes) -> JsonObject:
    version, at = wire.read_int16(data, 0)
    if version < 0:
        raise Malformed(f"negative version {version} of {message}")
    shape = embedded_shape(message)
    reader: Reader = message_reader(shape, min(version, shape.versions.last))
    result: JsonObject = reader(data, at)[0]
    return result


def decode_connect_assignment(data: bytes) -> JsonObject:
    """Decode a worker's assignment: error, leader, leaderUrl, configOffset, connectors with task numbers
    (-1 is the connector itself), and from version 1 what it must give up, and the delay in milliseconds.

    Raises Malformed with the reason.
    """
    return _decode(_ASSIGNMENT, data)


def decode_connect_subscription(data: bytes) -> JsonObject:
    """Decode a worker's state: url, configOffset, and from version 1 the `allocation` it still runs (or None).

    Raises Malformed with the reason.
    """
    result = _decode(_SUBSCRIPTION, data)
    allocation = result.get("allocation")
    if allocation is not None:
        result["allocation"] = decode_connect_assignment(allocation)
    return result
