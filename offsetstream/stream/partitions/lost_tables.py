"""Finds single tables that somebody deleted, and has their contents loaded again.

A table that was created again has no transaction of a job. Every other table has at least that of the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.tables.ledger import delete_entries
from offsetstream.tables.names import (
    CELL_TABLES,
    DECODED_LOGS,
    DECODED_TABLES,
    LEDGER,
    OFFSETS_PARTITIONS,
    PARTITION_EVENTS,
    RECORD_TABLES,
    STATE_TABLES,
)
from offsetstream.tables.small_tables import clear_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId, batch_versions, last_checkpoint_id

_LOADED = {OFFSETS_PARTITIONS, *STATE_TABLES, *RECORD_TABLES}
_DECODED = {*DECODED_TABLES, DECODED_LOGS}


def repair_lost_tables(book: PartitionBook, tables: Store) -> set[str]:
    """Return the deleted tables. If a load fills any of them, mark all partitions in the book to be loaded.

    The book is written at once: the next checkpoint gives the new tables a transaction. If a history table is missing,
    `history_complete_from` starts again. If `offsets_partitions` itself is missing, the other tables show the last log
    and load ids.
    """
    versions = batch_versions(tables)
    lost = {name for name, version in versions.items() if version is None} & (_LOADED | _DECODED)
    delete_entries(tables, lost & set(RECORD_TABLES))
    if not lost - _DECODED and not _has_decoded(book):
        return set()  # an upgrade has just created them
    if not lost or lost >= _LOADED:
        return set()
    if lost & _DECODED:
        _empty_decoded(book, tables)
    if OFFSETS_PARTITIONS in lost:
        _recall(book, tables)
    if not book.unload_all():
        return set()  # a first job was killed while it shut out older checkpoints
    if lost & set(RECORD_TABLES):
        book.claims.withdraw()
    book.write(BatchId(last_checkpoint_id(tables), -1))
    return lost


def is_ledger_lost(tables: Store) -> bool:
    """Return whether the other tables were written before, but the ledger of the history was not."""
    versions = batch_versions(tables)
    return versions.pop(LEDGER) is None and any(version is not None for version in versions.values())


def _has_decoded(book: PartitionBook) -> bool:
    return any(row.next_decoded_offset is not None for row in book.rows.values())


def _empty_decoded(book: PartitionBook, tables: Store) -> None:
    """Clear all tables of the decoded history, so that they are derived again from the records."""
    for name in _DECODED:
        clear_rows(tables, name)
    book.note_decoded(dict.fromkeys(book.rows))


def _recall(book: PartitionBook, tables: Store) -> None:
    """Fill the rows of an empty book with the last log id and load id of each partition in the other tables."""
    for row in _greatest(tables, PARTITION_EVENTS, "max(load_id) AS load_id"):
        if row["offsets_partition"] in book.rows:
            book.recall(row["offsets_partition"], row["log_id"], load_id=row["load_id"] or 0)
    for name in (*CELL_TABLES, *RECORD_TABLES):
        for row in _greatest(tables, name, "max(record_offset) + 1 AS next_offset"):
            if row["offsets_partition"] in book.rows:
                book.recall(row["offsets_partition"], row["log_id"], next_offset=row["next_offset"] or 0)


def _greatest(tables: Store, name: str, column: str) -> Iterator[dict[str, Any]]:
    query = f"SELECT offsets_partition, log_id, {column} FROM rows GROUP BY offsets_partition, log_id"  # noqa: S608 - the program's own SQL
    yield from tables.open(name).query(query).read_all().to_pylist()
