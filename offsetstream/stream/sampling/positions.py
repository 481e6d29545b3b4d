"""Which partitions are sampled: of which the tables have a commit or an assignment, and all offsets partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.tables.names import ASSIGNMENTS, COMMITTED_OFFSETS
from offsetstream.tables.store import Snapshot, Store

Wanted = Mapping[str, set[int] | None]  # partitions of each topic; None: all
_READ = "SELECT DISTINCT topic, partition FROM rows WHERE topic IS NOT NULL AND partition IS NOT NULL"


class Positions:
    """Reads a table only when it has another version than when it was read last."""

    def __init__(self, tables: Store) -> None:
        self._tables = {name: _Read(tables.open(name)) for name in (COMMITTED_OFFSETS, ASSIGNMENTS)}

    def wanted(self) -> Wanted:
        """Return the partitions that are to be sampled now."""
        found: dict[str, set[int] | None] = {}
        numbers = defaultdict[str, set[int]](set)
        for each in self._tables.values():
            for topic, partition in each.partitions():
                numbers[topic].add(partition)
        found.update(numbers)
        return found | {OFFSETS_TOPIC: None}


class _Read:
    def __init__(self, table: Snapshot) -> None:
        self._table = table
        self._version: int | None = None
        self._partitions: set[tuple[str, int]] = set()

    def partitions(self) -> set[tuple[str, int]]:
        self._table.refresh()
        if self._table.version != self._version:
            rows = self._table.query(_READ).read_all()
            self._partitions = set(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
            self._version = self._table.version
        return self._partitions
