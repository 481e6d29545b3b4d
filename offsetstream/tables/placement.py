"""Find a group's own offsets partition, from the tables: by Kafka's rule, or by the group's latest records.

Kafka chooses a group's partition by the hash of its id. Redpanda does not. And when the topic gets more partitions,
Kafka's brokers still use the number that they started with (KAFKA-7771). In these cases a group's own partition is
the one with its latest records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from offsetstream.coordinator.partitioning import partition_for
from offsetstream.tables.names import COMMITTED_OFFSETS, GROUP_CELLS, GROUPS, OFFSETS_PARTITIONS

if TYPE_CHECKING:
    from offsetstream.tables.lookup import Lookup
    from offsetstream.tables.store import Store

PlacementRule: TypeAlias = Literal["java", "records"]
JAVA: PlacementRule = "java"
RECORDS: PlacementRule = "records"

# One row for each group and partition with its records: the time of the latest record, and whether all or any of its
# rows have in_coordinator_partition.
_COPIES = """
copies AS (
  SELECT group_id, offsets_partition, max(record_timestamp) AS newest,
         min(CASE WHEN in_coordinator_partition THEN 1 ELSE 0 END) AS all_own,
         max(CASE WHEN in_coordinator_partition THEN 1 ELSE 0 END) AS any_own
  FROM (
    SELECT group_id, offsets_partition, record_timestamp, in_coordinator_partition FROM rows
    UNION ALL SELECT group_id, offsets_partition, record_timestamp, in_coordinator_partition FROM cells
    UNION ALL SELECT group_id, offsets_partition, record_timestamp, in_coordinator_partition FROM derived
  ) r GROUP BY group_id, offsets_partition
)"""
_DOUBTFUL = f"""
SELECT * FROM (
  WITH {_COPIES}, doubtful AS (SELECT group_id FROM copies GROUP BY group_id HAVING count(*) > 1 OR min(all_own) = 0)
  SELECT c.group_id, offsets_partition, newest, all_own, any_own
  FROM copies c JOIN doubtful d ON c.group_id = d.group_id
) q"""  # noqa: S608
_LATEST = f"""
SELECT * FROM (
  WITH {_COPIES}, latest AS (
    SELECT group_id, max(newest) AS newest, count(*) AS copies FROM copies GROUP BY group_id
  )
  SELECT c.group_id, c.offsets_partition, c.newest, l.copies
  FROM copies c JOIN latest l ON c.group_id = l.group_id AND c.newest = l.newest
  ORDER BY c.newest DESC, c.group_id LIMIT {{at_most}}
) q"""  # noqa: S608


class Latest(NamedTuple):
    """The partition with a group's latest records, their time, and the number of partitions with its records."""

    group_id: str
    offsets_partition: int
    newest: datetime
    copies: int


@dataclass(frozen=True)
class Placement:
    """The groups' own partitions: by Kafka's hash over `partitions`, or from `homes` if the records decide."""

    partitions: int
    homes: Mapping[str, int] | None = None

    def of(self, group_id: str) -> int | None:
        """Return the group's own partition; None if the tables do not know it."""
        if self.homes is not None:
            return self.homes.get(group_id)
        return partition_for(group_id, self.partitions) if self.partitions else None

    def is_own(self, group_id: str, partition: int) -> bool | None:
        """Return whether the partition is the group's own one; None if the tables do not know it."""
        own = self.of(group_id)
        return None if own is None else own == partition


def read_placement(lookup: Lookup) -> Placement:
    """Return the placement of groups that the tables use."""
    rows = lookup.rows(OFFSETS_PARTITIONS, ("offsets_partition", "placement_rule"))
    if all(row["placement_rule"] != RECORDS for row in rows):
        return Placement(len(rows))
    own = {"in_coordinator_partition": [True]}
    homes = {
        row["group_id"]: row["offsets_partition"]
        for table in (COMMITTED_OFFSETS, GROUPS)
        for row in lookup.rows(table, ("group_id", "offsets_partition"), own, distinct=True)
    }
    return Placement(len(rows), homes)


def uncertain_homes(tables: Store) -> tuple[dict[str, int], bool]:
    """Return the partition with the latest records, for groups in several partitions or in none of their own.

    The second value is whether `in_coordinator_partition` is right in all of their rows.
    """
    copies = _copies(tables, _DOUBTFUL)
    homes = latest_homes(copies)
    is_right = all(
        (copy["all_own"] if homes[copy["group_id"]] == copy["offsets_partition"] else not copy["any_own"])
        for copy in copies
    )
    return homes, is_right


def latest_homes(copies: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the partition with each group's latest records; if several have the same time, the greatest number.

    `copies` have `group_id`, `offsets_partition` and `newest`; a null in `newest` counts as oldest.
    """
    found: dict[str, tuple[bool, Any, int]] = {}
    for copy in copies:
        group_id, newest = copy["group_id"], copy["newest"]
        rank = (newest is not None, newest or 0, copy["offsets_partition"])
        found[group_id] = max(found.get(group_id, rank), rank)
    return {group_id: partition for group_id, (_, _, partition) in found.items()}


def latest_groups(tables: Store, at_most: int) -> list[Latest]:
    """Return up to `at_most` groups, those with the latest records first."""
    found = [Latest(**row) for row in _copies(tables, _LATEST.format(at_most=at_most))]
    return sorted(found, key=lambda each: each.newest, reverse=True)


def _copies(tables: Store, query: str) -> list[dict[str, Any]]:
    offsets, cells, groups = map(tables.open, (COMMITTED_OFFSETS, GROUP_CELLS, GROUPS))
    found: list[dict[str, Any]] = offsets.query(query, cells=cells, derived=groups).read_all().to_pylist()
    return found
