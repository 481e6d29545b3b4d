"""How far the tables are behind the cluster, by what it says of its log now: what the job noted of that may be old."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.cluster.client import Cluster, takes_records
from offsetstream.errors import NoOffsetsTopicError, UnauthorisedError
from offsetstream.verify.tables import TableRows


@dataclass(frozen=True)
class Standing:
    """How far each offsets partition is `applied`, the log's `ends` of a later moment, and whether a job runs.

    `forgets`: whether retention takes records of the topic, which a coordinator has until it moves or starts again.
    """

    applied: Mapping[int, int]
    ends: Mapping[int, PartitionEnds]
    has_job: bool
    forgets: bool = False

    def lag(self, partition: int) -> int:
        """Return how many offsets a reader of committed records sees that are not applied."""
        end = self.ends[partition].last_stable_offset if partition in self.ends else 0
        return max(0, end - self.applied.get(partition, 0))

    @property
    def lags(self) -> dict[int, int]:
        """The partitions that are behind, and by how much."""
        return {number: lag for number in sorted(self.ends) if (lag := self.lag(number))}

    def is_blocked(self, partition: int) -> bool:
        """Tell whether all that can be applied is, and an open transaction blocks the rest."""
        if partition not in self.ends or self.lag(partition):
            return False
        end = self.ends[partition]
        return end.last_stable_offset < end.high_watermark

    def may_lack(self, partition: int) -> bool:
        """Tell whether the log of the partition lacks records that a coordinator, or the tables, may still have."""
        return self.forgets and partition in self.ends and self.ends[partition].log_start_offset > 0

    def has_passed(self, other: Standing, partition: int) -> bool:
        """Tell whether everything is applied that the log had at another moment."""
        return partition not in other.ends or (
            self.applied.get(partition, 0) >= other.ends[partition].last_stable_offset
        )

    def stands_still(self, before: Standing, partition: int) -> bool:
        """Tell whether the partition was behind before, and nothing of it was applied since."""
        return before.lag(partition) > 0 and self.applied.get(partition) == before.applied.get(partition)


def ask_standing(cluster: Cluster, has_job: Callable[[], bool], tables: TableRows) -> Standing:
    """Ask for the ends of the log, and whether a job runs: after the tables and the groups were read."""
    applied = {number: row["next_offset"] or 0 for number, row in tables.partitions.items()}
    try:
        ends = _ends(cluster, sorted(applied.keys() & set(cluster.topic_partitions())))
    except NoOffsetsTopicError:  # no group ever committed
        ends = {}
    return Standing(applied, ends, has_job(), _forgets(cluster))


def _forgets(cluster: Cluster) -> bool:
    try:
        return takes_records(cluster.topic_settings())
    except (UnauthorisedError, NoOffsetsTopicError):
        return False


def _ends(cluster: Cluster, partitions: list[int]) -> dict[int, PartitionEnds]:
    """Return the log's ends, the last stable offset being of a later moment than the high watermark.

    A single question asks for them the other way round: what is committed in between looks like an open transaction.
    """
    first, later = cluster.partition_ends(partitions), cluster.partition_ends(partitions)
    return {
        number: replace(end, last_stable_offset=later[number].last_stable_offset)
        for number, end in first.items()
        if number in later
    }
