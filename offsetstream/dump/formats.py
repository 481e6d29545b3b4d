"""Format batches of records as lines of text, whole columns at a time.

The lines are the same as those of `codec.lines` and `codec.kafka_text`, which format one record at a time. These two
format the records that are not offset commits or cannot be decoded: a small part of a topic.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.codec.decoding import decode_records
from offsetstream.codec.kafka_text import GROUP_METADATA_FORMATTER, OFFSETS_FORMATTER, kafka_json, kafka_text
from offsetstream.codec.lines import decode_line
from offsetstream.codec.records import jackson
from offsetstream.codec.wire import DecodeError
from offsetstream.control_characters import for_terminal, without_controls

RAW_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""The columns of a batch to format. Timestamps are milliseconds since 1970.

A column `more` may follow: the JSON text of fields that only a log segment has, which ends the line.
"""

Lines: TypeAlias = tuple[pa.Array, dict[int, str]]
_NONE = -1
_HAS_EPOCH, _EXPIRES = (3, 4), (1,)  # the value versions of an offset commit with this field


@dataclass
class UnprintableRecords:
    """Records that a format cannot print: their number, and the first of them with its reason."""

    count: int
    offsets_partition: int | None
    record_offset: int
    reason: str


def first_unprintable(unprintable: Sequence[UnprintableRecords]) -> UnprintableRecords | None:
    """Return the first by partition and offset, with the count of all; None if there are none."""
    first = min(unprintable, key=lambda each: (each.offsets_partition or 0, each.record_offset), default=None)
    return None if first is None else replace(first, count=sum(each.count for each in unprintable))


def format_batch(raw: pa.RecordBatch, line_format: str) -> Lines:
    """Format a batch of RAW_SCHEMA as `records`, `json`, `kafka` or `kafka-text`.

    Returns one text per record, with its newline, null for a record that the format skips. Also returns, by row number,
    why records could not be printed. Only Kafka's formats have such records: they cannot show a reason in the line.
    """
    return _FORMATS[line_format](raw)


def text_bytes(lines: pa.Array) -> memoryview | bytes:
    """Return the texts concatenated, without a copy."""
    if not len(lines):
        return b""
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(lines.buffers()[2])[offsets[0] : offsets[-1]]


def escaped_text(lines: pa.Array, line_format: str, *, on_terminal: bool) -> memoryview | bytes:
    """Return the texts concatenated, control characters escaped: always in our JSON, on a terminal in other formats."""
    data = text_bytes(lines)
    if line_format == "json":
        data = bytes(data)
        return data if data.isascii() and b"\x7f" not in data else without_controls(data.decode()).encode()
    return for_terminal(bytes(data).decode()).encode() if on_terminal else data


def _records(raw: pa.RecordBatch) -> Lines:
    key, value = (_json_null(pa.array(map(_base64, raw[name].to_pylist()), pa.string())) for name in ("key", "value"))
    return _record_lines(raw, key, value, raw["more"] if "more" in raw.schema.names else ""), {}


def _json(raw: pa.RecordBatch) -> Lines:
    decoded = decode_records(raw["key"], raw["value"])
    lines = _record_lines(raw, *_json_columns(raw, decoded))
    rows = pc.indices_nonzero(decoded["error"].is_valid())
    originals, _ = _records(raw.select(RAW_SCHEMA.names).take(rows))
    return _replace(lines, rows, [decode_line(line) + "\n" for line in originals.to_pylist()]), {}


def _kafka(raw: pa.RecordBatch) -> Lines:
    decoded = decode_records(raw["key"], raw["value"])
    key, value = _json_columns(raw, decoded)
    printed = pc.is_in(decoded["key_type"], pa.array([*OFFSETS_FORMATTER, *GROUP_METADATA_FORMATTER], pa.int16()))
    if not pc.all(printed).as_py():
        key = pc.if_else(printed, key, None)
    lines = _join('{"key":', key, ',"value":', value, "}\n")
    return _by_record(raw, lines, pc.indices_nonzero(decoded["error"].is_valid()), _kafka_json_line)


def _kafka_text(raw: pa.RecordBatch) -> Lines:
    decoded = decode_records(raw["key"], raw["value"])
    epoch, expiry = _texts(decoded["leader_epoch"]), _texts(decoded["expire_timestamp_ms"])
    value = _join(
        *("OffsetAndMetadata(offset=", _texts(decoded["committed_offset"])),
        *(", leaderEpoch=", _or(_join("Optional[", epoch, "]"), "Optional.empty"), ", metadata=", decoded["metadata"]),
        *(", commitTimestamp=", _texts(decoded["commit_timestamp_ms"])),
        *(", expireTimestamp=", _or(_join("Some(", expiry, ")"), "None"), ")"),
    )
    lines = _join(
        *("[", decoded["group_id"], ",", decoded["topic"], ",", _texts(decoded["partition"]), "]::"),
        *(pc.if_else(decoded["is_tombstone"], "NULL", value), "\n"),
    )
    is_group_metadata = pc.is_in(decoded["key_type"], pa.array([*GROUP_METADATA_FORMATTER], pa.int16()))
    rows = pc.indices_nonzero(pc.or_(decoded["error"].is_valid(), is_group_metadata))
    return _by_record(raw, lines, rows, kafka_text)


def _kafka_json_line(key: bytes | None, value: bytes | None) -> str | None:
    text = kafka_json(key, value)
    return None if text is None else text + "\n"


_FORMATS: dict[str, Callable[[pa.RecordBatch], Lines]] = {
    "records": _records,
    "json": _json,
    "kafka": _kafka,
    "kafka-text": _kafka_text,
}
LINE_FORMATS = tuple(_FORMATS)


def _json_columns(raw: pa.RecordBatch, decoded: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """Return Kafka's JSON of key and value, null where a record could not be decoded."""
    keys = raw["key"].dictionary_encode("encode")  # most keys repeat in a batch, and so does their JSON
    good = np.flatnonzero(decoded["error"].is_null())
    row_of_key = np.zeros(len(keys.dictionary), np.int64)
    row_of_key[keys.indices.to_numpy()[good]] = good  # a record with an error may not have a decoded key
    key = _key_json(decoded.take(pa.array(row_of_key))).take(keys.indices)
    version = decoded["value_version"]
    value = _join(
        *('{"version":', _texts(version), ',"data":{"offset":', _texts(decoded["committed_offset"])),
        *_if_in(version, _HAS_EPOCH, ',"leaderEpoch":', decoded["leader_epoch"]),
        *(',"metadata":', _quoted(decoded["metadata"]), ',"commitTimestamp":', _texts(decoded["commit_timestamp_ms"])),
        *_if_in(version, _EXPIRES, ',"expireTimestamp":', decoded["expire_timestamp_ms"]),
        *_if_valid(',"topicId":"', decoded["topic_id"], '"'),  # a tagged field: absent if zero
        "}}",
    )
    value_text = _coalesce(value, decoded["value_json"])
    if pc.any(decoded["is_tombstone"]).as_py():
        value_text = pc.if_else(decoded["is_tombstone"], "null", value_text)
    return _coalesce(key, decoded["key_json"]), value_text


def _key_json(decoded: pa.RecordBatch) -> pa.Array:
    return _join(
        *('{"type":', _texts(decoded["key_type"]), ',"data":{"group":', _quoted(decoded["group_id"]), ',"topic":'),
        *(_quoted(decoded["topic"]), ',"partition":', _texts(decoded["partition"]), "}}"),
    )


def _record_lines(raw: pa.RecordBatch, key: pa.Array, value: pa.Array, more: pa.Array | str = "") -> pa.Array:
    labels = (f'{sign}"{name}":' for sign, name in zip("{,,", RAW_SCHEMA.names, strict=False))
    numbers = (_json_null(_texts(raw[name])) for name in RAW_SCHEMA.names[:3])
    pieces = (piece for pair in zip(labels, numbers, strict=True) for piece in pair)
    return _join(*pieces, ',"key":', key, ',"value":', value, more, "}\n")


def _by_record(raw: pa.RecordBatch, lines: pa.Array, rows: pa.Array, print_record: Callable[..., str | None]) -> Lines:
    texts: list[str | None] = []
    broken: dict[int, str] = {}
    selected = raw.take(rows)
    for row, key, value in zip(
        rows.to_pylist(), selected["key"].to_pylist(), selected["value"].to_pylist(), strict=True
    ):
        try:
            texts.append(print_record(key, value))
        except DecodeError as reason:
            texts.append(None)
            broken[row] = str(reason)
    return _replace(lines, rows, texts), broken


def _replace(lines: pa.Array, rows: pa.Array, texts: list[str | None] | list[str]) -> pa.Array:
    if not texts:
        return lines
    mask = pc.is_in(pa.array(range(len(lines)), pa.uint64()), rows)
    return pc.replace_with_mask(lines, mask, pa.array(texts, pa.string()))


def _join(*pieces: Any) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "")


def _texts(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string())


def _or(column: pa.Array, text: str) -> pa.Array:
    return pc.fill_null(column, text)


def _coalesce(column: pa.Array, other: pa.Array) -> pa.Array:
    """Like Arrow's coalesce, but without its copy of all texts if there is nothing to fill in."""
    return column if column.null_count == 0 or other.null_count == len(other) else pc.coalesce(column, other)


def _if_in(version: pa.Array, versions: tuple[int, ...], name: str, numbers: pa.Array) -> tuple[Any, ...]:
    """Return the pieces of a field that only these versions have. Most batches have one version."""
    present = pc.is_in(version, pa.array(versions, pa.int16()))
    if not pc.any(present).as_py():
        return ()
    pieces = (name, _texts(pc.fill_null(numbers, _NONE)))
    return pieces if pc.all(present).as_py() else (pc.if_else(present, _join(*pieces), ""),)


def _if_valid(before: str, column: pa.Array, after: str) -> tuple[Any, ...]:
    """Return the pieces of a field that is omitted where it is null."""
    return () if column.null_count == len(column) else (_or(_join(before, column, after), ""),)


def _json_null(column: pa.Array) -> pa.Array:
    return _or(column, "null")


def _quoted(column: pa.Array) -> pa.Array:
    """Return the texts as JSON strings. Most texts repeat in a batch, so each is encoded once."""
    encoded = column.dictionary_encode()
    return pa.array(map(jackson, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else f'"{b64encode(data).decode("ascii")}"'
