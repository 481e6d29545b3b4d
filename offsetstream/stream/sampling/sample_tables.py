"""The tables of the samples: how they are written, and what a job that begins finds in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from offsetstream.cluster.log_ends import TopicPlace
from offsetstream.stream.sampling.sample_book import AT_LEAST_EVERY
from offsetstream.tables.arrow_rows import append_to
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.names import END_OFFSETS, TOPIC_PARTITIONS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import overwrite, read_rows
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.transaction import BatchId, transaction_of

Rows = list[dict[str, Any]]


def read_samples(tables: Store) -> tuple[Rows, Mapping[TopicPlace, Mapping[str, Any]]]:
    """Return the rows of `topic_partitions`, and the last row that `end_offsets` has of each partition.

    Only what is as new as the former: of a partition that was sampled until then there is a row every ten minutes.
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
    return rows, {TopicPlace(row["topic"], row["partition"]): row for row in found}


class SampleTables:
    """The two tables, opened once: on an object store each opening reads the log since its last checkpoint."""

    def __init__(self, tables: Store) -> None:
        self._tables = tables
        self._held: dict[str, _Held] = {}

    @again_on_conflict
    def write_topic_partitions(self, rows: Iterable[Mapping[str, Any]], batch: BatchId) -> None:
        """Make the rows the table's only ones."""
        with self._write(TOPIC_PARTITIONS, batch) as (table, transaction):
            overwrite(table, rows, transaction)

    @again_on_conflict
    def write_end_offsets(self, rows: Sequence[Mapping[str, Any]], batch: BatchId) -> None:
        """Append the rows, as one file."""
        schema = load_schema(END_OFFSETS).unsigned.arrow
        new = pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
        with self._write(END_OFFSETS, batch) as (table, transaction):
            append_to(table, new, batch, transaction)

    @contextmanager
    def _write(self, name: str, batch: BatchId) -> Iterator[tuple[Snapshot, Transaction]]:
        held = self._held.pop(name, None)
        if held is None:  # it is the first time, or the last one failed: it may be another table by now
            held = _Held(self._tables.open(name))
        else:
            held.table.refresh()
        before, transaction = held.table.version, held.transaction(batch)
        yield held.table, transaction
        # Where something was let through between, nobody knows whose transaction is the last.
        held.written = (before + 1, transaction) if held.table.version == before + 1 else None
        self._held[name] = held


@dataclass
class _Held:
    """A table, and its version after our last write with the transaction of that: to look for it is to read the log."""

    table: Snapshot
    written: tuple[int, Transaction] | None = None

    def transaction(self, batch: BatchId) -> Transaction:
        if self.written is not None and self.written[0] == self.table.version:
            app_id, last = self.written[1]
            if last >> 32 == batch.checkpoint_id:
                return Transaction(app_id, last + 1)
        return transaction_of(self.table, batch)
