"""Connect's worker states and assignments: member bytes of groups with the protocol type `connect` (reference 3.2)."""

from offsetstream.codec.embedded import decode_embedded
from offsetstream.codec.readers import JsonObject


def decode_connect_assignment(data: bytes) -> JsonObject:
    """Decode a worker's assignment: error, leader, leaderUrl, configOffset, the connectors with their task numbers
    (-1 is the connector itself), and from version 1 what it must give up, and the delay in milliseconds.

    Raises DecodeError with the reason.
    """
    return decode_embedded("connect_assignment", data)


def decode_connect_subscription(data: bytes) -> JsonObject:
    """Decode a worker's state: url, configOffset, and from version 1 the `allocation` that it still runs, or None.

    Raises DecodeError with the reason.
    """
    state = decode_embedded("connect_subscription", data)
    if state.get("allocation") is not None:
        state["allocation"] = decode_connect_assignment(state["allocation"])
    return state
