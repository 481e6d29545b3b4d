"""Write the tables of the samples, and read them when a job starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from offsetstream.cluster.log_ends import TopicPartitionKey
from offsetstream.stream.sampling.sample_book import AT_LEAST_EVERY
from offsetstream.tables.arrow_rows import append_to
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.names import END_OFFSETS, TOPIC_PARTITIONS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import overwrite, read_rows
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.transaction import BatchId, transaction_of

Rows = list[dict[str, Any]]


def read_samples(tables: Store) -> tuple[Rows, Mapping[TopicPartitionKey, Mapping[str, Any]]]:
    """Return the rows of `topic_partitions`, and the last row of each partition in `end_offsets`.

    Only the end of `end_offsets` is read: a sampled partition has a row there at least every ten minutes.
    """
    rows = read_rows(tables.open(TOPIC_PARTITIONS))
    times = [row["sampled_at"] for row in rows if row["sampled_at"] is not None]
    if not times:
        return rows, {}
    since = max(times) - AT_LEAST_EVERY - timedelta(minutes=5)
    query = (
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY topic, partition ORDER BY sampled_at DESC) AS newer "  # noqa: S608 - our own
        f"FROM rows WHERE sampled_at >= TIMESTAMP '{since:%Y-%m-%dT%H:%M:%SZ}') WHERE newer = 1"
    )
    found = tables.open(END_OFFSETS).query(query).read_all().to_pylist()
    return rows, {TopicPartitionKey(row["topic"], row["partition"]): row for row in found}


class SampleTables:
    """The two tables, opened once. On an object store, each opening reads the table's log since its checkpoint."""

    def __init__(self, tables: Store) -> None:
        self._tables = tables
        self._opened: dict[str, _OpenTable] = {}

    @again_on_conflict
    def write_topic_partitions(self, rows: Collection[Mapping[str, Any]], batch: BatchId) -> None:
        """Replace all rows of the table."""
        with self._write(TOPIC_PARTITIONS, batch) as (table, transaction):
            overwrite(table, rows, transaction)

    @again_on_conflict
    def write_end_offsets(self, rows: Sequence[Mapping[str, Any]], batch: BatchId) -> None:
        """Append the rows as one file."""
        schema = load_schema(END_OFFSETS).unsigned.arrow
        new = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
        with self._write(END_OFFSETS, batch) as (table, transaction):
            append_to(table, new, batch, transaction)

    @contextmanager
    def _write(self, name: str, batch: BatchId) -> Iterator[tuple[Snapshot, Transaction]]:
        opened = self._opened.pop(name, None)
        if opened is None:  # the first write, or the last one failed: somebody may have recreated the table
            opened = _OpenTable(self._tables.open(name))
        else:
            opened.table.refresh()
        before, transaction = opened.table.version, opened.transaction(batch)
        yield opened.table, transaction
        # If another write came in between, it is unknown which transaction is the last.
        opened.written = (before + 1, transaction) if opened.table.version == before + 1 else None
        self._opened[name] = opened


@dataclass
class _OpenTable:
    """An open table, with its version and transaction after our last write: finding that one means reading the log."""

    table: Snapshot
    written: tuple[int, Transaction] | None = None

    def transaction(self, batch: BatchId) -> Transaction:
        if self.written is not None and self.written[0] == self.table.version:
            app_id, last = self.written[1]
            if last >> 32 == batch.checkpoint_id:
                return Transaction(app_id, last + 1)
        return transaction_of(self.table, batch)
