"""Decode raw records into rows of the history tables, one table per kind of record."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.codec.decoding import decode_records
from offsetstream.coordinator.reduction import COMMIT_KEY_TYPES
from offsetstream.tables.arrow_rows import is_null, renamed, supported_timestamps, timestamps_of
from offsetstream.tables.merge import DELETED
from offsetstream.tables.names import COMMITS, COMMITTED_OFFSETS, GROUP_CELLS, RECORD_TABLES, RECORDS, UNDECODABLE

RENAMED = {  # by history table: its columns that have another name in decoded records
    COMMITS: {"key_version": "key_type", "value_bytes": "value_size"},
    RECORDS: {"value_bytes": "value_size"},
    UNDECODABLE: {"reason": "error", "value_bytes": "value"},
}
CELLS_RENAMED = {  # the same for the tables of cells, which get the last record of each key
    COMMITTED_OFFSETS: RENAMED[COMMITS] | {DELETED: "is_tombstone"},
    GROUP_CELLS: RENAMED[RECORDS] | {DELETED: "is_tombstone"},
}


def decode_on_driver(raw: pa.Table) -> pa.Table:
    """Return the raw records with the decoded columns and timestamps added."""
    decoded = decode_records(raw["key"], raw["value"])
    derived = {
        "record_timestamp": supported_timestamps(raw["record_timestamp"]),
        "commit_timestamp": timestamps_of(decoded["commit_timestamp_ms"]),
        "expire_timestamp": timestamps_of(decoded["expire_timestamp_ms"]),
        "key_bytes": raw["key"],
        "value_size": pc.binary_length(raw["value"]),
    }
    columns = (dict(zip(rows.schema.names, rows.columns, strict=True)) for rows in (raw, decoded))
    return pa.table({name: column for part in (*columns, derived) for name, column in part.items()})


def belongs_to(table: str, decoded: pa.Table) -> pa.Array:
    """Return for each decoded record whether it belongs to the history table."""
    return by_table(decoded)[table]


def by_table(decoded: pa.Table) -> dict[str, pa.Array]:
    """Return for each history table which of the decoded records belong to it."""
    good = is_null(decoded, "error")
    commit = pc.is_in(decoded["key_type"], pa.array(COMMIT_KEY_TYPES, decoded["key_type"].type))
    kinds = (pc.and_(good, commit), pc.and_(good, pc.invert(commit)), pc.invert(good))
    return dict(zip(RECORD_TABLES, kinds, strict=True))


def with_history_columns(table: str, decoded: pa.Table) -> pa.Table:
    """Return the decoded records with the columns of the history table added."""
    return renamed(decoded, RENAMED[table])
