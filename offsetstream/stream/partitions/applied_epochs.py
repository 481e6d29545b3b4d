"""The leader epoch of the last applied offset of each partition, to compare with a later leader's log (KIP-320)."""

from __future__ import annotations

from typing import NamedTuple

from offsetstream.stream.partitions.partition_rows import PartitionRows


class EpochStart(NamedTuple):
    """The first offset of a leader epoch, and the greatest epoch before it; None if the leader does not know them."""

    epoch: int
    start: int | None
    before: int | None


class AppliedEpochs:
    """The column `applied_leader_epoch` of `offsets_partitions`. `starts`: where the current leader epochs start.

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
