"""Tables that someone deleted while the others stayed: what they held is loaded anew, and the job says so.

A table that is made again has no transaction of a job, while every other one has at least that of the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.tables.ledger import forget
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
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.small_tables import clear_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId, app_id

_LOADED = {OFFSETS_PARTITIONS, *STATE_TABLES, *RECORD_TABLES}
_DECODED = {*DECODED_TABLES, DECODED_LOGS}


def last_checkpoint_id(tables: Store) -> int:
    """Return the greatest checkpoint id under which any table was written, 0 if none was: the lease may be lost too."""
    return max((version >> 32 for version in _versions(tables).values() if version is not None), default=0)


def mend_lost_tables(book: PartitionBook, tables: Store) -> set[str]:
    """Note in the book that all partitions must be loaded, if a table that loads fill was deleted; returns the deleted.

    It is written at once, before the next checkpoint gives the new tables their transaction. Without a history table
    `history_complete_from` begins anew; without the book itself, logs and loads are counted on from the other tables.
    """
    versions = _versions(tables)
    lost = {name for name, version in versions.items() if version is None} & (_LOADED | _DECODED)
    forget(tables, lost & set(RECORD_TABLES))
    if not lost - _DECODED and not _has_decoded(book):
        return set()  # they were made by the upgrade just now
    if not lost or lost >= _LOADED:
        return set()
    if lost & _DECODED:
        _empty_decoded(book, tables)
    if OFFSETS_PARTITIONS in lost:
        _recall(book, tables)
    if not book.unload_all():
        return set()  # a first job was killed while it set its fence
    if lost & set(RECORD_TABLES):
        book.claims.withdraw()
    book.write(BatchId(last_checkpoint_id(tables), -1))
    return lost


def is_ledger_lost(tables: Store) -> bool:
    """Tell whether the other tables were written to before, and the ledger of the history was not."""
    versions = _versions(tables)
    return versions.pop(LEDGER) is None and any(version is not None for version in versions.values())


def _has_decoded(book: PartitionBook) -> bool:
    return any(row.next_decoded_offset is not None for row in book.rows.values())


def _empty_decoded(book: PartitionBook, tables: Store) -> None:
    """Have the decoded history begin anew: it is derived from the records, all tables of it at once."""
    for name in _DECODED:
        clear_rows(tables, name)
    book.note_decoded(dict.fromkeys(book.rows))


def _versions(tables: Store) -> dict[str, int | None]:
    return {name: tables.open(name).transaction_version(app_id(name)) for name in all_schemas()}


def _recall(book: PartitionBook, tables: Store) -> None:
    """Fill the rows of an empty book with the present log and load of each partition, as the other tables have them."""
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
