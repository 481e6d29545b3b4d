"""Read raw lines of JSON as record batches: the output of `dump --format records`, or any other export of the topic.

A line is `{"partition", "offset", "timestamp", "key", "value"}`. A line from a log segment may also have `producer_id`,
`transactional` and `control_type`. Each line becomes a batch of its own. A coordinator compares commits by the first
offset of their batch; batches never overlap, so comparing them by their own offsets gives the same result.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from offsetstream.codec.lines import parse_raw_line
from offsetstream.codec.readers import JsonObject
from offsetstream.codec.record_batches import NO_PRODUCER, ControlType, LogRecord, RecordBatch
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import LineError

_NO_TIMESTAMP = -1
_LAST_OFFSET = (1 << 63) - 2  # so that there is a next offset
_MARKER = struct.Struct(">hh")  # version, type
_ABSENT = object()

Partitions = dict[int | None, list[RecordBatch]]


def parse_record_line(line: str) -> tuple[int | None, RecordBatch]:
    """Parse a raw line: return its partition (None if it has none) and its record as a batch. Raises DecodeError."""
    key, value, fields = parse_raw_line(line)
    offset = _number(fields, "offset", None)
    if offset is None or not 0 <= offset <= _LAST_OFFSET:
        raise DecodeError("offset is not a number of 0 or more")
    timestamp = _number(fields, "timestamp", None)
    producer_id = _number(fields, "producer_id", NO_PRODUCER)
    transactional = fields.get("transactional") or False
    if not isinstance(transactional, bool):
        raise DecodeError("transactional is not true or false")
    kind = fields.get("control_type", _ABSENT)
    if producer_id in (None, NO_PRODUCER) and (transactional or kind is not _ABSENT):
        raise DecodeError("a transactional or control record has no producer_id")
    record = LogRecord(
        offset,
        None if timestamp == _NO_TIMESTAMP else timestamp,
        key if kind in (_ABSENT, None) else _MARKER.pack(0, _control_number(kind)),
        value,
    )
    return _number(fields, "partition", None), RecordBatch(
        base_offset=offset,
        next_offset=offset + 1,
        records=(record,),
        producer_id=NO_PRODUCER if producer_id is None else producer_id,
        is_transactional=transactional,
        is_control=kind is not _ABSENT,
    )


def read_record_lines(lines: Iterable[bytes], name: str) -> Partitions:
    """Read all lines, in any order; return the batches of each partition in offset order.

    A record that appears twice is taken once. Raises LineError, with the file's `name` and the line number, for a line
    that is not a record, and for two different records of one partition with the same offset.
    """
    found: dict[int | None, dict[int, tuple[int, RecordBatch]]] = {}
    for number, line in enumerate(lines, 1):
        try:
            partition, batch = parse_record_line(line.decode("utf-8", "surrogateescape"))
        except DecodeError as reason:
            raise LineError(f"{name}, line {number}: {reason}") from reason
        before, present = found.setdefault(partition, {}).setdefault(batch.base_offset, (number, batch))
        if present != batch:
            raise LineError(
                f"{name}, lines {before} and {number}: partition {partition} has two different records at offset "
                f"{batch.base_offset}. The file mixes two logs: replay each log by itself"
            )
    return {partition: [by_offset[at][1] for at in sorted(by_offset)] for partition, by_offset in found.items()}


def _number(fields: JsonObject, name: str, default: int | None) -> int | None:
    number = fields.get(name, default)
    if number is None or (isinstance(number, int) and not isinstance(number, bool)):
        return number
    raise DecodeError(f"{name} is not a whole number")


def _control_number(kind: Any) -> int:
    if isinstance(kind, str) and kind in ControlType.__members__:
        return ControlType[kind]
    if isinstance(kind, int) and not isinstance(kind, bool) and -0x8000 <= kind < 0x8000:  # noqa: PLR2004 - 16 bits
        return kind
    raise DecodeError("control_type is not COMMIT, ABORT or a number of 16 bits")
