"""Compute on the driver what a merge changes, with Arrow columns: the rows to remove and the rows to add."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.coordinator.reduction import GROUP
from offsetstream.in_parts import in_parts
from offsetstream.tables.row_keys import RowKeys
from offsetstream.tables.store import Snapshot


@dataclass(frozen=True)
class Changes:
    """`removed`: the keys of the stored rows to remove, with their groups. `added`: the rows to add.

    `doubled`: the offsets partitions of rows whose key is stored more than once.
    """

    removed: pa.Table
    added: pa.Table
    doubled: frozenset[int]


def regrouped(parts: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the parts in pieces of at least `rows` rows (the last may have fewer).

    To look up keys among n rows takes time in proportion to n, so each look-up is done for at least as many rows.
    """
    for piece in in_parts(parts, rows, lambda part: part.num_rows):
        yield pa.concat_tables(piece)


def find_changes(
    stored: Iterable[pa.Table], source: pa.Table, is_deleted: pa.Array, key: Sequence[str], *, newer_only: bool
) -> Changes:
    """Compare stored rows with the rows of a source, whose keys are unique.

    A stored row with a key of the source is removed if `is_deleted` is true for it, and updated if a value differs;
    with `newer_only`, not if the stored row is newer. It keeps columns that the source lacks. Rows of the source whose
    key is not stored are added.
    """
    keys: RowKeys | None = None
    times = np.zeros(source.num_rows, np.int64)
    removed, added = [], []
    for part in regrouped(stored, source.num_rows):
        if keys is None:  # only when needed: a million rows take half a second, and often nothing is stored
            keys = RowKeys(source, key)
        at = keys.find(part)
        old, at = part.filter(pc.is_valid(at)), at.drop_null()
        np.add.at(times, at.to_numpy(), 1)
        new, deleted = source.take(at), is_deleted.take(at)
        changed = pc.or_(deleted, _differ(old, new))
        if newer_only:
            changed = pc.and_(changed, _is_newer(new, old))
        removed.append(at.filter(changed))
        updated = pc.and_(changed, pc.invert(deleted))
        added.append(_over(old.filter(updated), new.filter(updated)))
    added.append(source.filter(pc.and_(pa.array(times == 0), pc.invert(is_deleted))))
    doubled = source.filter(pa.array(times > 1))
    partitions = frozenset(doubled["offsets_partition"].to_pylist()) if doubled.num_rows else frozenset[int]()
    names = dict.fromkeys([*key, *(name for name in GROUP if name in source.column_names)])
    changed_keys = source.select(list(names)).take(pa.chunked_array(removed, pa.int32()).combine_chunks())
    return Changes(changed_keys, pa.concat_tables(added, promote_options="default"), partitions)


def with_all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with exactly the columns of the schema; missing columns are null."""
    columns: list[Any] = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def with_users_columns(table: Snapshot, where: str, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return `rows`, which will replace stored rows, with the stored values of a user's columns added by key."""
    users = [name for name in table.arrow.names if name not in rows.column_names]
    if not users:
        return rows
    keys, found, at = RowKeys(rows, key), [], []
    for part in table.rows(where, [*key, *users]):
        found.append(part.select(users))
        at.append(keys.find(part))
    if not found:
        return rows
    row_of_key = pc.index_in(pa.array(range(rows.num_rows), pa.int32()), value_set=pa.chunked_array(at))
    values = pa.concat_tables(found).take(row_of_key)
    for name in users:
        rows = rows.append_column(values.schema.field(name), values[name])
    return rows


def _over(old: pa.Table, new: pa.Table) -> pa.Table:
    """Return the new rows with the columns added that only the old rows have."""
    for name in old.column_names:
        if name not in new.column_names:
            new = new.append_column(old.schema.field(name), old[name])
    return new


def _is_newer(new: pa.Table, old: pa.Table) -> pa.ChunkedArray:
    same_log = pc.and_(
        pc.equal(new["log_id"], old["log_id"]), pc.greater_equal(new["record_offset"], old["record_offset"])
    )
    return pc.fill_null(pc.or_kleene(pc.greater(new["log_id"], old["log_id"]), same_log), False)


def _differ(old: pa.Table, new: pa.Table) -> Any:
    return reduce(pc.or_, (_differs(old[name], new[name]) for name in new.column_names))


def _differs(one: Any, other: Any) -> Any:
    is_one_null = pc.xor(pc.is_null(one), pc.is_null(other))
    return pc.or_(is_one_null, pc.fill_null(pc.not_equal(one, other), False))
