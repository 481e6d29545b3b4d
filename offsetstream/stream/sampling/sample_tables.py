"""The tables of the samples, and those that say what to sample. Each is opened once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.cluster.log_ends import TopicPartitionKey
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.stream.sampling.sample_book import AT_LEAST_EVERY, Tail
from offsetstream.tables.names import ASSIGNMENTS, COMMITTED_OFFSETS, END_OFFSETS, TOPIC_PARTITIONS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import append_to, overwrite, read_rows
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.transaction import BatchId, again_on_conflict, transaction_of

Rows = list[dict[str, Any]]
_OFFSETS = "SELECT DISTINCT topic, partition, committed_offset FROM rows WHERE committed_offset >= 0"
_NEAR = 1000  # offsets below an end: they may all be markers, or records of aborted transactions
_PAUSE = 20  # times the duration of a query: pause before the next one, so that it takes a twentieth of a core
_PARTITIONS = "SELECT DISTINCT topic, partition FROM rows WHERE topic IS NOT NULL AND partition IS NOT NULL"


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


class Positions:
    """The partitions to sample: those with a commit or an assignment, and all offsets partitions.

    A table is read again only when its version has changed.
    """

    def __init__(self, tables: Store) -> None:
        self._tables = {name: _TablePartitions(tables.open(name)) for name in (COMMITTED_OFFSETS, ASSIGNMENTS)}
        self._empty_for: tuple[int, Mapping[TopicPartitionKey, Tail]] = -1, {}
        self._paused_until = 0.0

    def wanted(self) -> Mapping[str, set[int] | None]:
        """Return the partitions of each topic to sample now; None: all."""
        found = defaultdict[str, set[int]](set)
        for each in self._tables.values():
            for topic, partition in each.partitions():
                found[topic].add(partition)
        return {**found, OFFSETS_TOPIC: None}

    def within(self, tails: Mapping[TopicPartitionKey, Tail]) -> dict[TopicPartitionKey, int]:
        """Return the greatest committed offset near the end of each tail, as of the last call of `wanted`.

        Return nothing if the last query was so recent that another one would use too much time.
        """
        started, table = time.monotonic(), self._tables[COMMITTED_OFFSETS].table
        if not tails or started < self._paused_until or (table.version, tails) == self._empty_for:
            return {}
        wanted = pa.Table.from_pylist([place._asdict() | tail._asdict() for place, tail in tails.items()])
        rows = table.query(_OFFSETS).read_all()
        columns = [rows[name].cast(kind) for name, kind in (("topic", pa.string()), ("partition", pa.int64()))]
        offsets = pa.table([*columns, rows["committed_offset"]], names=rows.column_names)
        joined = offsets.join(wanted, ["topic", "partition"], join_type="inner")
        committed, upper = joined["committed_offset"], joined["upper"]
        is_within = pc.and_(pc.greater(committed, joined["lower"]), pc.less(committed, upper))
        near = joined.filter(pc.and_(is_within, pc.less_equal(pc.subtract(upper, committed), _NEAR)))
        found = near.group_by(["topic", "partition"]).aggregate([("committed_offset", "max")]).to_pylist()
        self._empty_for = (-1, {}) if found else (table.version, tails)
        self._paused_until = started + _PAUSE * (time.monotonic() - started)
        return {TopicPartitionKey(row["topic"], row["partition"]): row["committed_offset_max"] for row in found}


class _TablePartitions:
    def __init__(self, table: Snapshot) -> None:
        self.table = table
        self._version: int | None = None
        self._partitions: set[tuple[str, int]] = set()

    def partitions(self) -> set[tuple[str, int]]:
        self.table.refresh()
        if self.table.version != self._version:
            rows = self.table.query(_PARTITIONS).read_all()
            self._partitions = set(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
            self._version = self.table.version
        return self._partitions
