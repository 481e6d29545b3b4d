"""Which partitions are sampled: those with a commit or an assignment in the tables, and all offsets partitions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.cluster.log_ends import TopicPartitionKey
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.stream.sampling.sample_book import Tail
from offsetstream.tables.names import ASSIGNMENTS, COMMITTED_OFFSETS
from offsetstream.tables.store import Snapshot, Store

Wanted = Mapping[str, set[int] | None]  # partitions of each topic; None: all
_OFFSETS = "SELECT DISTINCT topic, partition, committed_offset FROM rows WHERE committed_offset >= 0"
_NEAR = 1000  # offsets below an end: they may all be markers, or records of aborted transactions
_PAUSE = 20  # times the duration of a query: pause before the next one, so that it takes a twentieth of a core
_PARTITIONS = "SELECT DISTINCT topic, partition FROM rows WHERE topic IS NOT NULL AND partition IS NOT NULL"


class Positions:
    """Committed and assigned partitions. A table is read again only when its version has changed."""

    def __init__(self, tables: Store) -> None:
        self._tables = {name: _TablePartitions(tables.open(name)) for name in (COMMITTED_OFFSETS, ASSIGNMENTS)}
        self._empty_for: tuple[int, Mapping[TopicPartitionKey, Tail]] = -1, {}
        self._paused_until = 0.0

    def wanted(self) -> Wanted:
        """Return the partitions to sample now."""
        found: dict[str, set[int] | None] = {}
        numbers = defaultdict[str, set[int]](set)
        for each in self._tables.values():
            for topic, partition in each.partitions():
                numbers[topic].add(partition)
        found.update(numbers)
        return found | {OFFSETS_TOPIC: None}

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
