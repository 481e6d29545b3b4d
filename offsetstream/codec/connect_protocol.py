"""Decode the member bytes of Connect workers: groups with the protocol type `connect` (reference 3.2)."""

from offsetstream.codec.embedded import decode_embedded
from offsetstream.codec.readers import JsonObject


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
