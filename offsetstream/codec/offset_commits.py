"""The hot path: OffsetCommit keys and values of versions 0-4, mixed, a batch at a time (reference 1.2).

Nearly every record of a real topic is an offset commit. Keys of all types start with the group id, so the group ids of
the other records are read here too.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from offsetstream.codec.arrow_strings import numbers, strings, uuids
from offsetstream.codec.columns import (
    BY_RECORD,
    EXCLUDED,
    Bools,
    Cursor,
    Numbers,
    Positions,
    Slices,
    read_compact_string,
    read_int32,
    read_int64,
    read_string,
    read_topic_id_tag,
)

OFFSET_COMMIT_TYPES = (0, 1)
VALUE_VERSIONS = range(5)
_EXPIRES, _HAS_EPOCH, _FLEXIBLE = 1, 3, 4
_NONE = -1


@dataclass
class CommitKeys:
    """The position of each key's strings, and its partition."""

    group: Slices
    topic: Slices
    partition: Numbers


@dataclass
class CommitValues:
    """The fields of each value. `topic_id` is the position of its 16 bytes, for records in `has_topic_id`."""

    committed_offset: Numbers
    leader_epoch: Numbers
    metadata: Slices
    commit_timestamp: Numbers
    expire_timestamp: Numbers
    has_topic_id: Bools
    topic_id: Positions


def read_keys(keys: Cursor, is_commit: Bools) -> CommitKeys:
    """Read the group id of every key, and topic and partition of the offset commits."""
    where = None if is_commit.all() else is_commit
    return CommitKeys(read_string(keys), read_string(keys, where), read_int32(keys, where))


def read_values(values: Cursor, version: Numbers, wanted: Bools) -> CommitValues:
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
    return CommitValues(committed_offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, has_id, topic_id)


def key_columns(keys: Cursor, read: CommitKeys, key_read: Bools, is_commit: Bools) -> dict[str, pa.Array]:
    """Return the columns of the keys: the group id where `key_read`, topic and partition where `is_commit`."""
    group, topic = strings(keys.data, [read.group, read.topic], [key_read, is_commit])
    return {"group_id": group, "topic": topic, "partition": numbers(read.partition, is_commit)}


def value_columns(values: Cursor, read: CommitValues, valid: Bools) -> dict[str, pa.Array]:
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


def by_record(values: Cursor) -> Bools:
    """Which values must be decoded one at a time."""
    mask: Bools = values.reason == BY_RECORD
    return mask
