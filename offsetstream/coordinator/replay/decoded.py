"""Decode records of the log for a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offsetstream.codec.batches import LogRecord
from offsetstream.codec.record_layouts import record_types
from offsetstream.codec.records import decode_key, decode_value
from offsetstream.codec.serde import JsonObject
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.replay.release_rules import MAX_ARRAY_ELEMENTS, Rule, Rules

CLASSIC_TYPES = frozenset({0, 1, 2})
NEW_TYPES = frozenset(record_types()) - {9}  # brokers from 4.1 on do not know type 9 (reference 1.1)
STREAMS_TYPES = frozenset({17, 19, 20, 21, 22, 23})


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """One record: its key type, the data of key and value (None for a tombstone), offset, and timestamp in ms."""

    key_type: int
    key: JsonObject
    version: int
    value: JsonObject | None
    offset: int
    timestamp_ms: int | None

    @property
    def group_id(self) -> str:
        """The group id in the key."""
        name: str = self.key["group"] if "group" in self.key else self.key["groupId"]
        return name


def decode_record(record: LogRecord, known_types: frozenset[int], rules: Rules) -> DecodedRecord | None:
    """Decode a record. None for a key type that the coordinator does not know, and so ignores (reference 4.5, 5.4).

    Raises DecodeError for a null or damaged key, a damaged value, or a value version out of range. It accepts more than
    any single release does: values of version 1-4 under key type 0 (4.1 and later reject them), and the layouts of 3.7.
    """
    if record.key is None:
        raise DecodeError("null key")
    if len(record.key) >= 2:  # noqa: PLR2004 - the two bytes of the key type
        key_type = int.from_bytes(record.key[:2], "big", signed=True)
        if key_type not in known_types:
            return None
    key_type, key = decode_key(record.key)
    version, value = (-1, None) if record.value is None else decode_value(key_type, record.value)
    # Every element takes at least one byte, so a small value cannot exceed the limit.
    if Rule.LARGE_ARRAYS_ARE_REFUSED in rules and len(record.value or b"") > MAX_ARRAY_ELEMENTS:
        _refuse_large_arrays(value)
    return DecodedRecord(key_type, key, version, value, record.offset, record.timestamp_ms)


def _refuse_large_arrays(cell: Any) -> None:
    if isinstance(cell, list) and len(cell) > MAX_ARRAY_ELEMENTS:
        raise DecodeError(
            f"an array has {len(cell)} elements; brokers from 4.4.0 on accept at most {MAX_ARRAY_ELEMENTS}"
        )
    for inner in cell.values() if isinstance(cell, dict) else cell if isinstance(cell, list) else ():
        _refuse_large_arrays(inner)
