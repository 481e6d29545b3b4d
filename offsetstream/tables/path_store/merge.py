"""Merge rows on the driver: some milliseconds for a small merge, where Spark takes over a second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.coordinator.reduction import GROUP
from offsetstream.errors import DoubledRowsError
from offsetstream.tables.matching import Changes, find_changes, regrouped, with_all_columns, with_users_columns
from offsetstream.tables.merge import DELETED, Merge
from offsetstream.tables.path_store.features import refuse_features
from offsetstream.tables.path_store.file_commits import exchange, replace_by_groups
from offsetstream.tables.path_store.group_files import StoredFile, hashes_of
from offsetstream.tables.row_keys import RowKeys, rows_without_keys
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Transaction

if TYPE_CHECKING:
    from offsetstream.tables.path_store.snapshot import PathSnapshot

_SMALL_BYTES = 8 << 20  # of files; their rows need several times as much memory


def merge_on_path(table: PathSnapshot, source: pa.Table, merge: Merge, transactions: Sequence[Transaction]) -> None:
    """Merge `source` (the table's columns and `_deleted`), as `Snapshot.merge` describes."""
    schema = merge.schema
    is_deleted, rows = source[DELETED].combine_chunks(), source.select(schema.column_names).cast(schema.arrow)
    if merge.replace_where is not None:
        rows = with_users_columns(table, merge.replace_where, rows.filter(pc.invert(is_deleted)), schema.key)
        if table.has_group_files:
            replace_by_groups(table, merge.replace_where, rows, transactions)
        else:
            table.replace(merge.replace_where, [rows], *transactions)
    elif table.has_group_files:
        _by_groups(table, rows, is_deleted, merge, transactions)
    else:
        _by_partitions(table, rows, is_deleted, merge, transactions)


def _by_groups(
    table: PathSnapshot, rows: pa.Table, is_deleted: pa.Array, merge: Merge, transactions: Sequence[Transaction]
) -> None:
    """Rewrite the files that have a group with a change."""
    refuse_features(table.delta)
    files = table.group_files
    stored = (part for _, part in files.rows(table, files.of(hashes_of(rows))))
    changes = _changes(stored, rows, is_deleted, merge)
    if not changes.removed.num_rows and not changes.added.num_rows:
        return  # a merge that changes nothing must not make a version
    changed = pa.concat_tables([each.select(GROUP) for each in (changes.removed, changes.added)])
    gone = files.changed(hashes_of(changed))
    removed = RowKeys(changes.removed, merge.schema.key)

    def kept() -> Iterator[tuple[StoredFile | None, pa.Table]]:
        for file, part in files.rows(table, gone):
            yield file, rows_without_keys(part, removed)
        yield None, with_all_columns(changes.added, table.arrow)

    new, before = files.rewritten(table.where, kept()), table.version
    exchange(table, [file.path for file in gone], new.files, transactions)
    files.exchanged(table, gone, new, before)


def _by_partitions(
    table: PathSnapshot, rows: pa.Table, is_deleted: pa.Array, merge: Merge, transactions: Sequence[Transaction]
) -> None:
    """Let delta-rs rewrite the rows of the same offsets partitions."""
    same_partitions = in_partitions(sorted(pc.unique(rows["offsets_partition"]).to_pylist()))
    stored = _rows_reader(table, same_partitions)
    changes = _changes(stored(), rows, is_deleted, merge)
    if not changes.removed.num_rows:
        if changes.added.num_rows:  # a merge that changes nothing must not make a version
            table.append([changes.added], *transactions)
        return
    removed = RowKeys(changes.removed, merge.schema.key)
    kept = (rows_without_keys(part, removed) for part in regrouped(stored(), changes.removed.num_rows))
    table.replace(same_partitions, chain(kept, [changes.added]), *transactions)


def _changes(stored: Iterable[pa.Table], rows: pa.Table, is_deleted: pa.Array, merge: Merge) -> Changes:
    changes = find_changes(stored, rows, is_deleted, merge.schema.key, newer_only=merge.newer_only)
    if changes.doubled:
        raise DoubledRowsError(merge.schema.name, changes.doubled)
    return changes


def _rows_reader(table: PathSnapshot, where: str) -> Callable[[], Iterable[pa.Table]]:
    """Return a function that returns these rows at each call: from memory for a small table, else by a new read."""
    if sum(pa.table(table.delta.get_add_actions())["size_bytes"].to_pylist()) > _SMALL_BYTES:
        return lambda: table.rows(where)
    parts = list(table.rows(where))
    cached = [pa.concat_tables(parts)] if parts else parts
    return lambda: cached
