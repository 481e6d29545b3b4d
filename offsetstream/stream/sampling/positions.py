"""Which partitions are sampled: of which the tables have a commit or an assignment, and all offsets partitions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.cluster.log_ends import TopicPlace
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.stream.sampling.sample_book import Tail
from offsetstream.tables.names import ASSIGNMENTS, COMMITTED_OFFSETS
from offsetstream.tables.store import Snapshot, Store

Wanted = Mapping[str, set[int] | None]  # partitions of each topic; None: all
_OFFSETS = "SELECT DISTINCT topic, partition, committed_offset FROM rows WHERE committed_offset >= 0"
_NEAR = 1000  # records below an end: as many markers, or records of aborted transactions, may be all that is there
_SHARE = 20  # of the time that a question takes, for which it is not asked again: it takes a twentieth of one core
_READ = "SELECT DISTINCT topic, partition FROM rows WHERE topic IS NOT NULL AND partition IS NOT NULL"


class Positions:
    """Reads a table only when it has another version than when it was read last."""

    def __init__(self, tables: Store) -> None:
        self._tables = {name: _Read(tables.open(name)) for name in (COMMITTED_OFFSETS, ASSIGNMENTS)}
        self._without_any: tuple[int, Mapping[TopicPlace, Tail]] = -1, {}
        self._pauses_until = 0.0

    def wanted(self) -> Wanted:
        """Return the partitions that are to be sampled now."""
        found: dict[str, set[int] | None] = {}
        numbers = defaultdict[str, set[int]](set)
        for each in self._tables.values():
            for topic, partition in each.partitions():
                numbers[topic].add(partition)
        found.update(numbers)
        return found | {OFFSETS_TOPIC: None}

    def within(self, tails: Mapping[TopicPlace, Tail]) -> dict[TopicPlace, int]:
        """Return the greatest offset within each tail, near its end, that was committed when `wanted` looked.

        None at all while the last question is so short ago that another would be dear.
        """
        began, table = time.monotonic(), self._tables[COMMITTED_OFFSETS].table
        if not tails or began < self._pauses_until or (table.version, tails) == self._without_any:
            return {}
        wanted = pa.Table.from_pylist([place._asdict() | tail._asdict() for place, tail in tails.items()])
        rows = table.query(_OFFSETS).read_all()
        columns = [rows[name].cast(kind) for name, kind in (("topic", pa.string()), ("partition", pa.int64()))]
        offsets = pa.table([*columns, rows["committed_offset"]], names=rows.column_names)
        both = offsets.join(wanted, ["topic", "partition"], join_type="inner")
        committed, upper = both["committed_offset"], both["upper"]
        is_within = pc.and_(pc.greater(committed, both["lower"]), pc.less(committed, upper))
        near = both.filter(pc.and_(is_within, pc.less_equal(pc.subtract(upper, committed), _NEAR)))
        found = near.group_by(["topic", "partition"]).aggregate([("committed_offset", "max")]).to_pylist()
        self._without_any = (-1, {}) if found else (table.version, tails)
        self._pauses_until = began + _SHARE * (time.monotonic() - began)
        return {TopicPlace(row["topic"], row["partition"]): row["committed_offset_max"] for row in found}


class _Read:
    def __init__(self, table: Snapshot) -> None:
        self.table = table
        self._version: int | None = None
        self._partitions: set[tuple[str, int]] = set()

    def partitions(self) -> set[tuple[str, int]]:
        self.table.refresh()
        if self.table.version != self._version:
            rows = self.table.query(_READ).read_all()
            self._partitions = set(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
            self._version = self.table.version
        return self._partitions
