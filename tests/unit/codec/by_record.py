"""Decode record by record, without NumPy: the reference for the hot path."""

from typing import Any

from offsetstream.codec import DECODED_SCHEMA
from offsetstream.codec.embedded_protocols import with_embedded_decoded
from offsetstream.codec.records import decode_key, decode_value, jackson
from offsetstream.codec.wire import DecodeError

Row = dict[str, Any]
Record = tuple[bytes | None, bytes | None]


def _prefix(data: bytes | None) -> int | None:
    return None if data is None or len(data) < 2 else int.from_bytes(data[:2], "big", signed=True)


def _unless_minus_one(value: int | None) -> int | None:
    return None if value == -1 else value


def _commit(key: dict[str, Any], value: dict[str, Any] | None) -> Row:
    row: Row = {"topic": key["topic"], "partition": key["partition"]}
    if value is not None:
        row |= {
            "committed_offset": value["offset"],
            "leader_epoch": _unless_minus_one(value.get("leaderEpoch")),
            "metadata": value["metadata"],
            "commit_timestamp_ms": value["commitTimestamp"],
            "expire_timestamp_ms": _unless_minus_one(value.get("expireTimestamp")),
            "topic_id": value.get("topicId"),
        }
    return row


def _others(key_type: int, key: dict[str, Any], decoded: tuple[int, dict[str, Any]] | None) -> Row:
    row: Row = {"key_json": jackson({"type": key_type, "data": key})}
    if decoded is not None:
        version, data = decoded
        row["value_json"] = jackson({"version": version, "data": data})
        row["value_decoded_json"] = jackson({"version": version, "data": with_embedded_decoded(key_type, data)})
    return row


def decode_one(record: Record) -> Row:
    """Return a row of DECODED_SCHEMA."""
    key_bytes, value_bytes = record
    row: Row = dict.fromkeys(DECODED_SCHEMA.names)
    row |= {"key_type": _prefix(key_bytes), "value_version": _prefix(value_bytes), "is_tombstone": value_bytes is None}
    if key_bytes is None:
        return row | {"error": "null key"}
    try:
        key_type, key = decode_key(key_bytes)
        row["group_id"] = key.get("group", key.get("groupId"))
        decoded = None if value_bytes is None else decode_value(key_type, value_bytes)
    except DecodeError as reason:
        return row | {"error": str(reason)}
    if key_type in (0, 1):
        return row | _commit(key, decoded and decoded[1])
    return row | _others(key_type, key, decoded)
