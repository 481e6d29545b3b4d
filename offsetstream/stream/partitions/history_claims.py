"""From when on the history of each offsets partition is complete: what the job claims, and takes back."""

from __future__ import annotations

from datetime import UTC, datetime

from offsetstream.stream.partitions.caught_up_marks import SKEW, Clocks
from offsetstream.stream.partitions.partition_row import PartitionRow
from offsetstream.stream.partitions.partition_rows import PartitionRows


class HistoryClaims:
    """The column `history_complete_from` of the rows; instants are of the clock that is ahead (`clocks`).

    `keeps_history`: whether the job writes the history; one that does not ends what was complete of it.
    """

    def __init__(self, rows: PartitionRows, clocks: Clocks, *, keeps_history: bool) -> None:
        self._rows = rows
        self._clocks = clocks
        self.keeps_history = keeps_history
        if not keeps_history:
            self.withdraw()

    @property
    def missing(self) -> list[int]:
        """The loaded partitions of which an earlier job kept no history, and this one is to keep it."""
        rows = self._rows.values() if self.keeps_history else ()
        return [row.offsets_partition for row in rows if row.is_owned and row.history_complete_from is None]

    def withdraw(self) -> None:
        """Claim nothing any more, of no partition."""
        for number in self._rows:
            self._rows.set(number, history_complete_from=None)

    def thinned_before(self, instant: datetime | None) -> None:
        """Note that retention may have thinned the history from before the instant."""
        for number, row in self._rows.items():
            since = row.history_complete_from
            if instant is not None and since is not None and since < instant:
                self._rows.learn(number, history_complete_from=instant)

    def advance(self, partition: int, *, is_incomplete: bool) -> None:
        """Take in what the stream brought, of which some was gone unread if it is incomplete."""
        if is_incomplete or self._is_of_the_future(self._rows[partition]):
            self._rows.set(partition, history_complete_from=self._clocks.since(partition, datetime.now(UTC)))

    def _is_of_the_future(self, row: PartitionRow) -> bool:
        """Tell whether the claim is of a time that no clock has reached: some record's could not be."""
        number, since = row.offsets_partition, row.history_complete_from
        reached = self._clocks.since(number, datetime.now(UTC))
        return self._clocks.has_read(number) and since is not None and since - reached > SKEW

    def loaded(self, partition: int, load_started_at: datetime, *, is_behind: bool) -> None:
        """Take in what a load brought; `is_behind`: the stream had not been where the load ended."""
        if self.keeps_history and (is_behind or self._rows[partition].history_complete_from is None):
            # Of what the stream did not bring, compaction had taken its part before the load came.
            self._rows.set(partition, history_complete_from=self._clocks.since(partition, load_started_at))
