"""Since when the history of each offsets partition is complete: the job sets this time, and moves it when it must."""

from __future__ import annotations

from datetime import UTC, datetime

from offsetstream.stream.partitions.caught_up_marks import SKEW, Clocks
from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.stream.partitions.partition_rows import PartitionRows


class HistoryClaims:
    """The column `history_complete_from` of the rows. Its times are of the clock that is ahead (`clocks`).

    `keeps_history`: whether the job writes the history. If not, no history is complete any more.
    """

    def __init__(self, rows: PartitionRows, clocks: Clocks, *, keeps_history: bool) -> None:
        self._rows = rows
        self._clocks = clocks
        self.keeps_history = keeps_history
        if not keeps_history:
            self.withdraw()

    @property
    def missing(self) -> list[int]:
        """The loaded partitions of which an earlier job wrote no history, but this job writes it."""
        rows = self._rows.values() if self.keeps_history else ()
        return [row.offsets_partition for row in rows if row.is_owned and row.history_complete_from is None]

    def withdraw(self) -> None:
        """Mark the history of all partitions as not complete."""
        for number in self._rows:
            self._rows.set(number, history_complete_from=None)

    def thinned_before(self, instant: datetime | None) -> None:
        """Record that retention may have thinned the history before the instant."""
        for number, row in self._rows.items():
            since = row.history_complete_from
            if instant is not None and since is not None and since < instant:
                self._rows.learn(number, history_complete_from=instant)

    def complete_since(self, partition: int, instant: datetime) -> None:
        """Record that the log had all records from the instant on."""
        self._rows.set(partition, history_complete_from=instant)

    def advance(self, partition: int, *, is_incomplete: bool) -> None:
        """Take a batch. `is_incomplete`: some of its records were gone before the job read them."""
        if is_incomplete or self._is_in_the_future(self._rows[partition]):
            self._rows.set(partition, history_complete_from=self._clocks.since(partition, datetime.now(UTC)))

    def _is_in_the_future(self, row: PartitionRow) -> bool:
        """Return whether the time lies ahead of all clocks: then it came from a record with a wrong timestamp."""
        number, since = row.offsets_partition, row.history_complete_from
        reached = self._clocks.since(number, datetime.now(UTC))
        return self._clocks.has_read(number) and since is not None and since - reached > SKEW

    def loaded(self, partition: int, load_started_at: datetime, *, is_behind: bool) -> None:
        """Take a load. `is_behind`: the load ended beyond what the stream had read."""
        if self.keeps_history and (is_behind or self._rows[partition].history_complete_from is None):
            # Compaction may have removed records that the stream had not read before the load.
            self._rows.set(partition, history_complete_from=self._clocks.since(partition, load_started_at))
