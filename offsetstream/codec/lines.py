"""Records as lines of JSON: what the commands `decode` and `encode` do with each line, and what `replay` reads.

A raw line is `{"key": base64 | null, "value": base64 | null, …}`; other fields are copied in their place. `decode_line`
and `encode_line` do not raise for a line that they cannot use: they return it with an `error`.

A line of `dump --format records`, or of any other export of the topic, also has `partition`, `offset` and `timestamp`;
one from a log segment may have `producer_id`, `transactional` and `control_type`. Each becomes a batch of its own. A
coordinator compares commits by the first offset of their batch; batches never overlap, so comparing them by their own
offsets gives the same result.
"""

import json
import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Any

from offsetstream.codec.batches import NO_PRODUCER, NO_TIMESTAMP, ControlType, LogRecord, RecordBatch
from offsetstream.codec.records import decode_key, decode_value, encode_as_release, encode_record, jackson
from offsetstream.codec.serde import JsonObject
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import LineError

_LAST_OFFSET = (1 << 63) - 2  # so that there is a next offset
_MARKER = struct.Struct(">hh")  # version, type
_ABSENT = object()

Partitions = dict[int | None, list[RecordBatch]]


def decode_line(line: str) -> str:
    """Decode a raw line: key and value become what Kafka's JSON converters print. A tombstone's value is null.

    A record that cannot be decoded keeps its base64; the reason is in `error`, before the other fields.
    """
    return _converted(line, _decoded)


def encode_line(line: str, release: str | None = None) -> str:
    """Encode a line of `decode_line` back into a raw line. A line with an `error` gets its base64 back.

    With `release`, encode the record as a broker of that `inter.broker.protocol.version` writes it. Raises UsageError
    for an unknown release.
    """
    return _converted(line, lambda record: _encoded(record, release))


def parse_raw_line(line: str) -> tuple[bytes | None, bytes | None, JsonObject]:
    """Parse a raw line: return the bytes of key and value, and the JSON object. Raises DecodeError."""
    record = _parse(line)
    return _bytes(record, "key"), _bytes(record, "value"), record


def decode_pair(key: bytes | None, value: bytes | None) -> tuple[JsonObject, JsonObject | None]:
    """Decode a record into `{"type", "data"}` and `{"version", "data"}` (None for a tombstone). Raises DecodeError."""
    if key is None:
        raise DecodeError("null key")
    key_type, key_data = decode_key(key)
    document: JsonObject = {"type": key_type, "data": key_data}
    if value is None:
        return document, None
    version, data = decode_value(key_type, value)
    return document, {"version": version, "data": data}


def _converted(line: str, convert: Callable[[JsonObject], JsonObject]) -> str:
    record: JsonObject = {"line": line.rstrip("\r\n")}
    try:
        record = _parse(line)
        return jackson(convert(record))
    except DecodeError as reason:
        return jackson({"error": str(reason)} | {name: cell for name, cell in record.items() if name != "error"})


def _parse(line: str) -> JsonObject:
    try:
        record = json.loads(line, parse_float=_finite, parse_constant=_finite)
    except DecodeError:
        raise
    except ValueError:
        raise DecodeError("the line is not JSON") from None
    except RecursionError:
        raise DecodeError("the line is nested too deeply") from None
    if not isinstance(record, dict) or not {"key", "value"} <= record.keys():
        raise DecodeError('the line is not an object with "key" and "value"')
    return record


def _finite(number: str) -> float:
    """Return the number. Raises DecodeError for one that JSON cannot print again: 1e999, NaN, Infinity."""
    found = float(number)
    if not math.isfinite(found):
        raise DecodeError(f"the number {number} of the line is out of range")
    return found


def _bytes(record: JsonObject, name: str) -> bytes | None:
    text = record[name]
    if text is None:
        return None
    try:
        return b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise DecodeError(f"{name} is not base64") from None


def _decoded(record: JsonObject) -> JsonObject:
    key, value = decode_pair(_bytes(record, "key"), _bytes(record, "value"))
    return record | {"key": key, "value": value}


def _encoded(record: JsonObject, release: str | None) -> JsonObject:
    if "error" in record:  # decode_line kept the base64
        _bytes(record, "key"), _bytes(record, "value")
        return {name: cell for name, cell in record.items() if name != "error"}
    if release is None:
        key, value = encode_record(record["key"], record["value"])
    else:
        key, value = encode_as_release(record["key"], record["value"], release)
    return record | {"key": _base64(key), "value": _base64(value)}


def _base64(data: bytes | None) -> Any:
    return None if data is None else b64encode(data).decode("ascii")


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
        None if timestamp == NO_TIMESTAMP else timestamp,
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
