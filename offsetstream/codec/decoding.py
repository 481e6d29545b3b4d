"""Decode batches of records: Arrow columns of keys and values in, decoded columns out.

Nearly every record of a real topic is an offset commit, so these are decoded as whole columns (reference 1.2). Others
are decoded one by one into JSON texts.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.codec.columns import (
    BY_RECORD,
    EXCLUDED,
    REASONS,
    Bools,
    Cursor,
    Numbers,
    Positions,
    Slices,
    bitmap,
    numbers,
    read_compact_string,
    read_int16,
    read_int32,
    read_int64,
    read_string,
    read_topic_id_tag,
    spread,
    strings,
    uuids,
)
from offsetstream.codec.embedded_protocols import with_embedded_decoded
from offsetstream.codec.record_layouts import record_types
from offsetstream.codec.records import decode_key, decode_value, jackson, unsupported_version
from offsetstream.codec.wire import DecodeError, reason_in_part

JSON_COLUMNS = ("key_json", "value_json", "value_decoded_json")
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
COMMIT_KEY_TYPES = (0, 1)
_VALUE_VERSIONS = range(5)  # of offset commits
_EXPIRES, _HAS_EPOCH, _FLEXIBLE = 1, 3, 4
_NONE = -1


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
        self.findings = _Reasons(len(keys))
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
            **_key_columns(self.key, self.read_key, self.key_read, good_commit),
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
        has_commit_type = self.key.ok & (self.key_type >= 0) & (self.key_type <= max(COMMIT_KEY_TYPES))
        self.read_key = _read_keys(self.key, has_commit_type)
        self.findings.add_cursor(self.key, "key")
        self.key_read: Bools = self.key.ok
        self.is_commit: Bools = has_commit_type & self.key_read

    def _read_values(self) -> None:
        self.value.fail(self.tombstone.nonzero()[0], EXCLUDED)
        self.version: Numbers = read_int16(self.value)
        self.versioned: Bools = self.value.ok
        supported = (self.version >= 0) & (self.version < len(_VALUE_VERSIONS))
        pairs = (self.key_type.astype(np.int64) << 16) | (self.version & np.int64(0xFFFF))
        self.findings.add_by_number(self.is_commit & self.versioned & ~supported, pairs, _unsupported)
        wanted = self.is_commit & self.versioned & supported
        self.read_value = _read_values(self.value, self.version, wanted)
        self.findings.add_cursor(self.value, "value")

    def _read_group_records(self) -> dict[str, pa.Array]:
        rows = (self.key_read & ~self.is_commit).nonzero()[0]
        if not len(rows):
            return dict.fromkeys(JSON_COLUMNS, pa.nulls(len(self.keys), pa.string()))
        records = zip(self.keys.take(rows).to_pylist(), self.values.take(rows).to_pylist(), strict=True)
        read = [_group_record(key, value) for key, value in records]
        bad = [(row, each) for row, each in zip(rows, read, strict=True) if each.reason is not None]
        self.findings.add_each([int(row) for row, _ in bad], [each.reason or "" for _, each in bad])
        self.key_read[[row for row, each in bad if not each.has_key]] = False
        texts = {name: pa.array([getattr(each, name) for each in read], pa.string()) for name in JSON_COLUMNS}
        return {name: spread(column, rows, len(self.keys)) for name, column in texts.items()}

    def _value_columns(self) -> dict[str, pa.Array]:
        columns = _value_columns(self.value, self.read_value, self.value.ok)
        found = {row: self._commit_by_record(int(row)) for row in (self.value.reason == BY_RECORD).nonzero()[0]}
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
            _, data = decode_value(int(self.key_type[row]), self.values[row].as_py())
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
    return unsupported_version(pair >> 16, ((pair & 0xFFFF) ^ 0x8000) - 0x8000)


@dataclass
class _CommitKeys:
    """The position of each key's strings, and its partition."""

    group: Slices
    topic: Slices
    partition: Numbers


@dataclass
class _CommitValues:
    """The fields of each value. `topic_id` is the position of its 16 bytes, for records in `has_topic_id`."""

    committed_offset: Numbers
    leader_epoch: Numbers
    metadata: Slices
    commit_timestamp: Numbers
    expire_timestamp: Numbers
    has_topic_id: Bools
    topic_id: Positions


def _read_keys(keys: Cursor, is_commit: Bools) -> _CommitKeys:
    """Read the group id of every key, and topic and partition of the offset commits."""
    where = None if is_commit.all() else is_commit
    return _CommitKeys(read_string(keys), read_string(keys, where), read_int32(keys, where))


def _read_values(values: Cursor, version: Numbers, wanted: Bools) -> _CommitValues:
    """Read the values of the records in `wanted`, whose version is 0-4. The cursor is just after the version.

    Some records get the reason BY_RECORD: their tag section is neither empty nor only a topic id, or their string
    length is encoded in more bytes than needed.
    """
    values.fail((~wanted).nonzero()[0], EXCLUDED)
    flexible = wanted & (version == _FLEXIBLE)
    any_flexible = bool(flexible.any())
    committed_offset = read_int64(values)
    leader_epoch = read_int32(values, wanted & (version >= _HAS_EPOCH), _NONE)
    metadata = read_string(values, wanted & ~flexible) if any_flexible else read_string(values)
    if any_flexible:
        compact = read_compact_string(values, flexible)
        metadata = Slices(np.where(flexible, compact.start, metadata.start), compact.end)
    commit_timestamp = read_int64(values)
    expires = wanted & (version == _EXPIRES)
    expire_timestamp = read_int64(values, expires, _NONE) if expires.any() else np.full(len(version), _NONE)
    has_id, topic_id = read_topic_id_tag(values, flexible) if any_flexible else (flexible, values.at)
    return _CommitValues(committed_offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, has_id, topic_id)


def _key_columns(keys: Cursor, read: _CommitKeys, key_read: Bools, is_commit: Bools) -> dict[str, pa.Array]:
    """Return the columns of the keys: the group id where `key_read`, topic and partition where `is_commit`."""
    group, topic = strings(keys.data, [read.group, read.topic], [key_read, is_commit])
    return {"group_id": group, "topic": topic, "partition": numbers(read.partition, is_commit)}


def _value_columns(values: Cursor, read: _CommitValues, valid: Bools) -> dict[str, pa.Array]:
    """Return the value columns, null where not `valid`. An epoch or expiry of -1 and a zero topic id are null."""
    (metadata,) = strings(values.data, [read.metadata], [valid])
    return {
        "committed_offset": numbers(read.committed_offset, valid),
        "leader_epoch": numbers(read.leader_epoch, valid & (read.leader_epoch != _NONE)),
        "metadata": metadata,
        "commit_timestamp_ms": numbers(read.commit_timestamp, valid),
        "expire_timestamp_ms": numbers(read.expire_timestamp, valid & (read.expire_timestamp != _NONE)),
        "topic_id": uuids(values, read.topic_id, valid & read.has_topic_id),
    }


class _GroupRecord(NamedTuple):
    """The JSON texts of a record that is no offset commit, or the reason why it could not be decoded."""

    key_json: str | None = None
    value_json: str | None = None
    value_decoded_json: str | None = None
    reason: str | None = None
    has_key: bool = True


def _group_record(key: bytes, value: bytes | None) -> _GroupRecord:
    try:
        key_type, key_data = decode_key(key)
    except DecodeError as reason:
        return _GroupRecord(reason=str(reason), has_key=False)
    key_json = jackson({"type": key_type, "data": key_data})
    if value is None:
        return _GroupRecord(key_json)
    try:
        version, data = decode_value(key_type, value)
    except DecodeError as reason:
        return _GroupRecord(reason=str(reason))
    text = jackson({"version": version, "data": data})
    decoded = with_embedded_decoded(key_type, data)
    return _GroupRecord(key_json, text, text if decoded is data else jackson({"version": version, "data": decoded}))


class _Reasons:
    """Why records of a batch could not be decoded: an index into the distinct texts. The first reason of each stays."""

    def __init__(self, rows: int) -> None:
        self._texts: dict[str, int] = {}
        self._index = np.full(rows, -1, np.int32)

    @property
    def ok(self) -> Bools:
        """Which records have no reason."""
        return self._index < 0

    def add(self, mask: Bools, text: str) -> None:
        """Give every record in `mask` the same reason."""
        rows = mask.nonzero()[0]
        rows = rows[self._index[rows] < 0]
        if len(rows):
            self._index[rows] = self._number(text)

    def add_each(self, rows: Sequence[int], texts: Sequence[str]) -> None:
        """Give each of `rows` its own reason."""
        for row, text in zip(rows, texts, strict=True):
            self._index[row] = self._number(text)

    def add_by_number(self, mask: Bools, codes: Numbers, text: Callable[[int], str]) -> None:
        """Give each record in `mask` the reason for its code."""
        rows = mask.nonzero()[0]
        if len(rows):
            distinct, inverse = np.unique(codes[rows], return_inverse=True)
            found = np.array([self._number(text(int(code))) for code in distinct], np.int32)
            self._index[rows] = found[inverse]

    def add_cursor(self, cursor: Cursor, part: str) -> None:
        """Add the reasons of a cursor's failed records. `part` is `key` or `value`."""
        if cursor.ok.all():
            return
        for reason, text in REASONS.items():
            self.add(cursor.reason == reason, reason_in_part(text, part))

    def column(self) -> pa.Array:
        """Return the reasons as a string column, null for records without one."""
        if not self._texts:
            return pa.nulls(len(self._index), pa.string())
        texts = pa.array([*self._texts, None], pa.string())  # index -1 takes the null at the end
        return texts.take(pa.array(np.where(self.ok, len(self._texts), self._index)))

    def _number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))
