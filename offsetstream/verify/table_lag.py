"""How far the tables are behind the cluster.

The end offsets come from the cluster now: those that the job noted may be old.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.cluster.client import Cluster, deletes_records
from offsetstream.errors import NoOffsetsTopicError, UnauthorisedError
from offsetstream.verify.tables import TableRows


@dataclass(frozen=True)
class TablePosition:
    """The next offset to apply per offsets partition (`applied`), later end offsets (`ends`), and whether a job runs.

    `forgets`: whether retention deletes records of the topic, which a coordinator keeps until it moves or restarts.
    """

    applied: Mapping[int, int]
    ends: Mapping[int, PartitionEnds]
    has_job: bool
    forgets: bool = False

    def lag(self, partition: int) -> int:
        """Return the number of offsets below the last stable offset that are not applied."""
        end = self.ends[partition].last_stable_offset if partition in self.ends else 0
        return max(0, end - self.applied.get(partition, 0))

    @property
    def lags(self) -> dict[int, int]:
        """Return the partitions that are behind, with the number of offsets."""
        return {number: lag for number in sorted(self.ends) if (lag := self.lag(number))}

    def is_blocked(self, partition: int) -> bool:
        """Return whether everything readable is applied and an open transaction blocks the rest."""
        if partition not in self.ends or self.lag(partition):
            return False
        end = self.ends[partition]
        return end.last_stable_offset < end.high_watermark

    def may_lack(self, partition: int) -> bool:
        """Return whether the log may lack records that a coordinator or the tables still have."""
        return self.forgets and partition in self.ends and self.ends[partition].log_start_offset > 0

    def has_passed(self, other: TablePosition, partition: int) -> bool:
        """Return whether everything that the log had in `other` is applied."""
        return partition not in other.ends or (
            self.applied.get(partition, 0) >= other.ends[partition].last_stable_offset
        )

    def applied_nothing_since(self, before: TablePosition, partition: int) -> bool:
        """Return whether the partition was behind in `before` and nothing was applied since."""
        return before.lag(partition) > 0 and self.applied.get(partition) == before.applied.get(partition)


def read_position(cluster: Cluster, has_job: Callable[[], bool], tables: TableRows) -> TablePosition:
    """Read the end offsets of the log and whether a job runs. Call it after reading the tables and the groups."""
    applied = {number: row["next_offset"] or 0 for number, row in tables.partitions.items()}
    try:
        ends = _ends(cluster, sorted(applied.keys() & set(cluster.topic_partitions())))
    except NoOffsetsTopicError:  # no group ever committed
        ends = {}
    return TablePosition(applied, ends, has_job(), _forgets(cluster))


def _forgets(cluster: Cluster) -> bool:
    try:
        return deletes_records(cluster.topic_settings())
    except (UnauthorisedError, NoOffsetsTopicError):
        return False


def _ends(cluster: Cluster, partitions: list[int]) -> dict[int, PartitionEnds]:
    """Return the end offsets; the last stable offset is read later than the high watermark.

    A single request reads them in the opposite order, so a commit in between would look like an open transaction.
    """
    first, later = cluster.partition_ends(partitions), cluster.partition_ends(partitions)
    return {
        number: replace(end, last_stable_offset=later[number].last_stable_offset)
        for number, end in first.items()
        if number in later
    }
