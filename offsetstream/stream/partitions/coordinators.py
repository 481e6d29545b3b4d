"""The coordinators of the offsets partitions, and their leader epochs (rule 6, KIP-320)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.stream.partitions.rows import PartitionEvents, PartitionRow, PartitionRows
from offsetstream.tables.names import COMMITTED_OFFSETS, GROUPS
from offsetstream.tables.small_tables import rows_per_partition
from offsetstream.tables.store import Store


class Leader(NamedTuple):
    """The broker that leads and so coordinates a partition, and its leader epoch."""

    coordinator_id: int | None
    coordinator_epoch: int | None


class Coordinators:
    """Track the coordinator of each partition, and write its changes as events.

    `raised`: the leader before the rise, for each partition whose leader epoch rose, so that its log may have been
    truncated (rule 5). Until the log is checked, the rows are written with that leader: so the check is not lost if the
    job is killed or the cluster stops answering.
    """

    def __init__(self, tables: Store, rows: PartitionRows, events: PartitionEvents) -> None:
        self._tables = tables
        self._rows = rows
        self._events = events
        self.raised: dict[int, Leader] = {}
        self._restarted: set[int] = set()

    def observe(self, ends: Mapping[int, PartitionEnds]) -> None:
        """Take the current leaders of the partitions."""
        now = datetime.now(UTC)
        found = {number: self._observe(self._rows[number], seen) for number, seen in ends.items()}
        before = {number: leader for number, leader in found.items() if leader is not None}
        moved = {
            number for number, leader in before.items() if leader.coordinator_id != self._rows[number].coordinator_id
        }
        self._unload(moved, before, now)
        self._restarted |= before.keys()
        for number, leader in before.items():
            event = "coordinator moved" if number in moved else "leader epoch changed"
            self._events.add(self._rows[number], event, source="broker", event_at=now, **_previous(leader))
            self.raised.setdefault(number, leader)

    def _observe(self, row: PartitionRow, seen: PartitionEnds) -> Leader | None:
        """Update the leader of a partition. Return the leader before, if it was another broker or an older epoch."""
        before = Leader(row.coordinator_id, row.coordinator_epoch)
        epoch = row.coordinator_epoch if seen.coordinator_epoch is None else seen.coordinator_epoch
        if row.coordinator_epoch is not None and epoch is not None and epoch < row.coordinator_epoch:
            return None  # this broker does not know of the change yet
        if seen.coordinator_id is None:
            self.lose([row.offsets_partition])
            return None
        present = Leader(seen.coordinator_id, epoch)
        self._rows.learn(row.offsets_partition, **present._asdict(), coordinator_available=True)
        is_same = before.coordinator_id == seen.coordinator_id and before.coordinator_epoch in {None, epoch}
        return None if before.coordinator_id is None or is_same else before

    def _unload(self, partitions: Collection[int], before: Mapping[int, Leader], now: datetime) -> None:
        """Add events that coordinators unloaded the partitions, with the counts of groups and offsets in the tables."""
        if not partitions:
            return
        groups, offsets = (rows_per_partition(self._tables, table) for table in (GROUPS, COMMITTED_OFFSETS))
        for number in partitions:
            row, counts = self._rows[number], dict[str, int]()
            if row.is_owned:  # otherwise the tables do not have all of them
                counts = {"groups": groups.get(number, 0), "offsets": offsets.get(number, 0)}
                row = self._rows.learn(number, **{f"{name}_count": count for name, count in counts.items()})
            self._events.add(row, "unloaded", source="broker", event_at=now, **_previous(before[number]), **counts)

    def take_restarted(self) -> set[int]:
        """Return the partitions that a coordinator has loaded since the last call."""
        restarted, self._restarted = self._restarted, set()
        return restarted

    def lose(self, partitions: Iterable[int]) -> None:
        """Record that no broker leads the partitions now."""
        for number in partitions:
            self._rows.learn(number, coordinator_available=False)

    def settle(self, partitions: Iterable[int]) -> None:
        """Record that the logs of the partitions were checked for their current leader epochs."""
        for number in partitions:
            self._rows.has_news |= self.raised.pop(number, None) is not None

    @property
    def known_epochs(self) -> dict[int, int | None]:
        """The last leader epoch of each partition for which the log was checked. The rows are written with these."""
        return {row.offsets_partition: row.coordinator_epoch for row in self.known_rows()}

    def known_rows(self) -> list[PartitionRow]:
        """Return the rows, each with the last leader for which the log was checked."""
        leaders = {number: leader._asdict() for number, leader in self.raised.items()}
        return [replace(row, **leaders.get(number, {})) for number, row in self._rows.items()]


def _previous(leader: Leader) -> dict[str, int | None]:
    return {f"previous_{name}": value for name, value in leader._asdict().items()}


class EpochStart(NamedTuple):
    """The first offset of a leader epoch, and the greatest epoch before it; None if the leader does not know them."""

    epoch: int
    start: int | None
    before: int | None


class AppliedEpochs:
    """The column `applied_leader_epoch`: that of the last applied offset, to compare with a later leader's log.

    `starts`: where the current leader epochs start.

    The current epoch of a leader is not enough: if nothing was written in an epoch, the log does not show it.
    """

    def __init__(self, rows: PartitionRows) -> None:
        self._rows = rows
        self.starts: dict[int, EpochStart] = {}

    def of(self, partition: int) -> int | None:
        """Return the leader epoch of the last applied offset, or None if it is unknown."""
        row, known = self._rows[partition], self.starts.get(partition)
        if known is None or row.next_offset is None:
            return row.applied_leader_epoch
        return known.epoch if known.start is not None and row.next_offset > known.start else known.before

    def note(self) -> None:
        """Set the epochs in the rows, before the rows are written."""
        for number in self._rows:
            self._rows.set(number, applied_leader_epoch=self.of(number))

    def forget(self, partition: int) -> None:
        """Reset a partition that has a new log, of which nothing is applied."""
        self._rows.set(partition, applied_leader_epoch=None)
        self.starts.pop(partition, None)
