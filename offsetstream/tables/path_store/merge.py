"""Merge rows on the driver with delta-rs: some milliseconds for a small merge, where Spark takes over a second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.errors import DoubledRowsError
from offsetstream.tables.matching import find_changes, regrouped, with_users_columns
from offsetstream.tables.merge import DELETED, Merge
from offsetstream.tables.row_keys import RowKeys, rows_without_keys
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Transaction

if TYPE_CHECKING:
    from offsetstream.tables.path_store.snapshot import PathSnapshot

_SMALL_BYTES = 8 << 20  # of files; their rows need several times as much memory


def merge_by_delta_rs(table: PathSnapshot, source: pa.Table, merge: Merge, transactions: Sequence[Transaction]) -> None:
    """Merge `source` (the table's columns and `_deleted`), as `Snapshot.merge` describes."""
    schema, key = merge.schema, merge.schema.key
    is_deleted, rows = source[DELETED].combine_chunks(), source.select(schema.column_names).cast(schema.arrow)
    if merge.replace_where is not None:
        rows = with_users_columns(table, merge.replace_where, rows.filter(pc.invert(is_deleted)), key)
        table.replace(merge.replace_where, [rows], *transactions)
        return
    same_partitions = in_partitions(sorted(pc.unique(rows["offsets_partition"]).to_pylist()))
    stored = _rows_reader(table, same_partitions)
    changes = find_changes(stored(), rows, is_deleted, key, newer_only=merge.newer_only)
    if changes.doubled:
        raise DoubledRowsError(schema.name, changes.doubled)
    if not changes.removed.num_rows:
        if changes.added.num_rows:  # a merge that changes nothing must not make a version
            table.append([changes.added], *transactions)
        return
    removed = RowKeys(changes.removed, key)
    kept = (rows_without_keys(part, removed) for part in regrouped(stored(), changes.removed.num_rows))
    table.replace(same_partitions, chain(kept, [changes.added]), *transactions)


def _rows_reader(table: PathSnapshot, where: str) -> Callable[[], Iterable[pa.Table]]:
    """Return a function that returns these rows at each call: from memory for a small table, else by a new read."""
    if sum(pa.table(table.delta.get_add_actions())["size_bytes"].to_pylist()) > _SMALL_BYTES:
        return lambda: table.rows(where)
    parts = list(table.rows(where))
    cached = [pa.concat_tables(parts)] if parts else parts
    return lambda: cached
