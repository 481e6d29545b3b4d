"""Decode batches of records: Arrow columns of keys and values in, decoded columns out."""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.codec import offset_commits, records
from offsetstream.codec.arrow_strings import bitmap, numbers, spread
from offsetstream.codec.columns import EXCLUDED, Bools, Cursor, Numbers, read_int16
from offsetstream.codec.decode_reasons import DecodeReasons
from offsetstream.codec.group_records import JSON_COLUMNS, decode_group_records
from offsetstream.codec.record_layouts import record_types
from offsetstream.codec.wire import DecodeError

BinaryColumn: TypeAlias = pa.Array | pa.ChunkedArray | Iterable[bytes | None]

DECODED_SCHEMA = pa.schema(
    [
        ("key_type", pa.int16()),
        ("value_version", pa.int16()),
        ("is_tombstone", pa.bool_()),
        ("error", pa.string()),
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed_offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_timestamp_ms", pa.int64()),
        ("expire_timestamp_ms", pa.int64()),
        ("topic_id", pa.string()),
        *((name, pa.string()) for name in JSON_COLUMNS),
    ]
)
"""The columns that `decode_records` returns."""

_NAMES = DECODED_SCHEMA.names
_ROWS = 1 << 16  # decoded at a time, so that the working arrays fit in the CPU cache
_COMMIT_FIELDS = {
    "committed_offset": "offset",
    "leader_epoch": "leaderEpoch",
    "metadata": "metadata",
    "commit_timestamp_ms": "commitTimestamp",
    "expire_timestamp_ms": "expireTimestamp",
    "topic_id": "topicId",
}
_NULL_AT_MINUS_ONE = ("leader_epoch", "expire_timestamp_ms")


def decode_records(keys: BinaryColumn, values: BinaryColumn) -> pa.RecordBatch:
    """Decode records of `__consumer_offsets` into the columns of `DECODED_SCHEMA`: one row per record, in order.

    `keys` and `values` have the same length. Each is a binary or large_binary array, a pandas Series or a list of
    bytes; a null value is a tombstone. A record that cannot be decoded does not affect others. It has a reason in
    `error`; its key type, value version and group id are there as far as they could be read, and all other fields are
    null. Offset commits are decoded as whole columns, other records one by one. Offsets and epochs are Kafka's;
    times are milliseconds since 1970. Raises ValueError for arrays of different length or more than 2 GiB of bytes,
    TypeError for other types.
    """
    keys, values = _one_array(keys, "keys"), _one_array(values, "values")
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys but {len(values)} values: pass one value, or null, for each key")
    parts = [
        _Batch(keys.slice(at, _ROWS), values.slice(at, _ROWS)).decode() for at in range(0, max(1, len(keys)), _ROWS)
    ]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _one_array(column: BinaryColumn, name: str) -> pa.Array:
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        column = pa.array(column, pa.binary(), from_pandas=True)
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        raise TypeError(f"{name} are {column.type}: pass a binary or large_binary Arrow array")
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(combined, pa.ChunkedArray):
        raise ValueError(f"{name} are more than 2 GiB: pass smaller batches, or large_binary")  # noqa: TRY004
    return combined


def _known_types() -> Bools:
    table = np.zeros(1 << 16, np.bool_)
    table[list(record_types())] = True
    return table


_KNOWN = _known_types()


class _Batch:
    """A batch while it is decoded. `key_read` marks the records with a readable key; `findings` has the reasons."""

    def __init__(self, keys: pa.Array, values: pa.Array) -> None:
        self.keys, self.values = keys, values
        self.findings = DecodeReasons(len(keys))
        self.tombstone = _nulls(values)
        self.key, self.value = Cursor.over(keys), Cursor.over(values)

    def decode(self) -> pa.RecordBatch:
        self._read_keys()
        self._read_values()
        json = self._read_group_records()
        value_columns = self._value_columns()  # may add reasons, so it comes before `ok` is read
        good_commit = self.is_commit & self.findings.ok
        columns = {
            "key_type": numbers(self.key_type, self.typed),
            "value_version": numbers(self.version, self.versioned),
            "is_tombstone": pa.Array.from_buffers(pa.bool_(), len(self.values), [None, bitmap(self.tombstone)]),
            "error": self.findings.column(),
            **offset_commits.key_columns(self.key, self.read_key, self.key_read, good_commit),
            **value_columns,
            **json,
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in _NAMES], schema=DECODED_SCHEMA)

    def _read_keys(self) -> None:
        null_key = _nulls(self.keys)
        self.findings.add(null_key, "null key")
        self.key.fail(null_key.nonzero()[0], EXCLUDED)
        self.key_type: Numbers = read_int16(self.key)
        self.typed: Bools = self.key.ok
        unknown = self.typed & ~_KNOWN[self.key_type.view(np.uint16)]
        self.findings.add_by_number(unknown, self.key_type, lambda key_type: f"unknown key type {key_type}")
        self.key.fail(unknown.nonzero()[0], EXCLUDED)
        has_commit_type = (
            self.key.ok & (self.key_type >= 0) & (self.key_type <= max(offset_commits.OFFSET_COMMIT_TYPES))
        )
        self.read_key = offset_commits.read_keys(self.key, has_commit_type)
        self.findings.add_cursor(self.key, "key")
        self.key_read: Bools = self.key.ok
        self.is_commit: Bools = has_commit_type & self.key_read

    def _read_values(self) -> None:
        self.value.fail(self.tombstone.nonzero()[0], EXCLUDED)
        self.version: Numbers = read_int16(self.value)
        self.versioned: Bools = self.value.ok
        supported = (self.version >= 0) & (self.version < len(offset_commits.VALUE_VERSIONS))
        pairs = (self.key_type.astype(np.int64) << 16) | (self.version & np.int64(0xFFFF))
        self.findings.add_by_number(self.is_commit & self.versioned & ~supported, pairs, _unsupported)
        wanted = self.is_commit & self.versioned & supported
        self.read_value = offset_commits.read_values(self.value, self.version, wanted)
        self.findings.add_cursor(self.value, "value")

    def _read_group_records(self) -> dict[str, pa.Array]:
        rows = (self.key_read & ~self.is_commit).nonzero()[0]
        if not len(rows):
            return dict.fromkeys(JSON_COLUMNS, pa.nulls(len(self.keys), pa.string()))
        decoded = decode_group_records(self.keys.take(rows).to_pylist(), self.values.take(rows).to_pylist())
        self.findings.add_each([rows[index] for index in decoded.reasons], list(decoded.reasons.values()))
        self.key_read[rows[decoded.bad_keys]] = False
        texts = {name: pa.array(getattr(decoded, name), pa.string()) for name in JSON_COLUMNS}
        return {name: spread(column, rows, len(self.keys)) for name, column in texts.items()}

    def _value_columns(self) -> dict[str, pa.Array]:
        columns = offset_commits.value_columns(self.value, self.read_value, self.value.ok)
        found = {row: self._commit_by_record(int(row)) for row in offset_commits.by_record(self.value).nonzero()[0]}
        commits = {row: commit for row, commit in found.items() if commit}
        if not commits:
            return columns
        mask = np.zeros(len(self.values), np.bool_)
        mask[list(commits)] = True
        return {
            name: pc.replace_with_mask(column, mask, pa.array([row[name] for row in commits.values()], column.type))
            for name, column in columns.items()
        }

    def _commit_by_record(self, row: int) -> dict[str, object] | None:
        try:
            _, data = records.decode_value(int(self.key_type[row]), self.values[row].as_py())
        except DecodeError as reason:
            self.findings.add_each([row], [str(reason)])
            return None
        commit = {name: data.get(field) for name, field in _COMMIT_FIELDS.items()}
        return {name: None if name in _NULL_AT_MINUS_ONE and value == -1 else value for name, value in commit.items()}


def _nulls(array: pa.Array) -> Bools:
    if array.null_count == 0:
        return np.zeros(len(array), np.bool_)
    byte, bit = divmod(array.offset, 8)
    bits = np.frombuffer(array.buffers()[0], np.uint8, offset=byte)
    mask: Bools = np.unpackbits(bits, count=bit + len(array), bitorder="little")[bit:] == 0
    return mask


def _unsupported(pair: int) -> str:
    return records.unsupported_version(pair >> 16, ((pair & 0xFFFF) ^ 0x8000) - 0x8000)
