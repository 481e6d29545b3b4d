"""Of which leader epoch the last applied offset of each partition is: what a later leader is asked for (KIP-320)."""

from __future__ import annotations

from typing import NamedTuple

from offsetstream.stream.partitions.partition_rows import PartitionRows


class EpochStart(NamedTuple):
    """Where a leader epoch began in the log, and the greatest one before it; None where the leader does not tell."""

    epoch: int
    start: int | None
    before: int | None


class AppliedEpochs:
    """The epochs of the rows of `offsets_partitions`; `starts` are those of the present leader epochs, if known.

    Which epoch a leader has now does not tell: nothing may have been written in it, and then it leaves no trace.
    """

    def __init__(self, rows: PartitionRows) -> None:
        self._rows = rows
        self.starts: dict[int, EpochStart] = {}

    def of(self, partition: int) -> int | None:
        """Return the leader epoch of the last applied offset, None where that is not known."""
        row, known = self._rows[partition], self.starts.get(partition)
        if known is None or row.next_offset is None:
            return row.applied_leader_epoch
        return known.epoch if known.start is not None and row.next_offset > known.start else known.before

    def note(self) -> None:
        """Note the epochs in the rows, before these are written."""
        for number in self._rows:
            self._rows.set(number, applied_leader_epoch=self.of(number))

    def forget(self, partition: int) -> None:
        """Note that the partition has another log, of which nothing is applied."""
        self._rows.set(partition, applied_leader_epoch=None)
        self.starts.pop(partition, None)
