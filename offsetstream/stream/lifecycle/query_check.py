"""Whether a query may go on: what it reads is from the logs that the tables are from, and nothing of these is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.errors import DoubledRowsError, TablesError, UnreachableError
from offsetstream.stream.lifecycle.leaders import in_words
from offsetstream.stream.lifecycle.refusals import REFUSALS, LedAnewError, StopRequestedError
from offsetstream.stream.lifecycle.turns import POLL_SECONDS
from offsetstream.stream.monitor.observer import Observer
from offsetstream.stream.partitions.partition_book import PartitionBook

MOVING_SECONDS = 30.0  # that leaders may take to be known, or to answer


class QueryCheck:
    """Compares the logs of the partitions that a query is `reading` with those that it began with.

    `stop_if_ending` raises where the query is to end. `failure`: what a batch met in the tables.
    """

    def __init__(
        self,
        book: PartitionBook,
        observer: Observer,
        reading: Collection[int],
        stop_if_ending: Callable[[], None],
    ) -> None:
        self._book = book
        self._observer = observer
        self._stop_if_ending = stop_if_ending
        self._log_ids = {number: book.log_ids[number] for number in reading}
        self._epochs = book.coordinators.known_epochs
        self._late: list[int] = []  # those that a batch brought on from too long ago
        self._refused: list[int] = []  # those for which a batch was refused
        self.failure: TablesError | None = None

    def before_writing(self, batch_ends: Mapping[int, int]) -> None:
        """Refuse a batch if the log may be another one than the tables are from, or lack tombstones that it had.

        Then it is to be loaded. Looked at after the batch was read, since a log is cut before its new leader gives
        records. UnreachableError if the cluster does not answer, since the batch may be of a log that nobody has
        compared yet. LedAnewError if a new leader's log has all that was applied: behind that, it may have other
        records than were read.
        """
        deadline = time.monotonic() + MOVING_SECONDS
        while True:
            ends = self._observer.look()
            if ends is None:
                raise UnreachableError("the cluster did not answer before a batch was written")
            self._late = self._behind_for_too_long(batch_ends)
            self._refused = self.lost(ends)
            if self._refused:
                raise StopRequestedError
            moving = self._observer.moving & self._log_ids.keys()
            if not moving:
                break
            if time.monotonic() > deadline:
                raise UnreachableError(f"the leader of {in_words(moving)} does not answer")
            self._stop_if_ending()
            time.sleep(POLL_SECONDS)
        self._require_same_leaders()

    def lost(self, ends: Mapping[int, PartitionEnds]) -> list[int]:
        """Return the partitions of which the query may not go on, in the order in which it reads them."""
        lost = {*self._observer.watch.truncation.lost(self._log_ids, ends), *self._late, *self._doubled}
        return [number for number in self._log_ids if number in lost]

    def lost_by_now(self, lost: list[int]) -> list[int]:
        """Return these or, after a load, those that it found; LedAnewError if there are none, and others are led."""
        found = lost or self.lost({})
        if not found:
            self._require_same_leaders()
        return found

    def explained(self, error: Exception) -> list[int]:
        """Return the partitions for which the query ended with the error, and raise what else it ended for."""
        ends = self._observer.look()
        if lost := sorted({*self._refused, *self.lost(ends or {})}):
            return lost
        self._require_same_leaders()
        if self.failure is not None:
            raise self.failure
        if ends is None and any(refusal.__name__ in str(error) for refusal in REFUSALS):
            raise UnreachableError("the cluster ceased to answer when a batch was refused") from error
        raise error

    def say_why(self, lost: Collection[int], say: Callable[[str], None]) -> None:
        """Tell why the query cannot go on with these partitions."""
        late = len(set(lost) & set(self._late))
        if lost and self._doubled:
            say(f"{self.failure}: they are loaded anew")
        if others := len(set(lost) - {*self._late, *self._doubled}):
            say(f"The log of {others} offsets partitions lost records that were not read, or is new")
        if late:
            say(
                f"{late} offsets partitions were not read for longer than tombstones are sure to stay "
                "(delete.retention.ms): they are loaded anew"
            )

    def _require_same_leaders(self) -> None:
        epochs = self._book.coordinators.known_epochs
        if led_anew := sum(epochs[number] != self._epochs[number] for number in self._log_ids):
            raise LedAnewError(f"{led_anew} offsets partitions are led anew")

    def _behind_for_too_long(self, batch_ends: Mapping[int, int]) -> list[int]:
        """Return the partitions that a batch brings on, but from so long ago that tombstones may be gone."""
        applied, at_most = self._book.next_offsets, self._observer.watch.settings.safe_retention
        behind = (number for number, end in batch_ends.items() if applied.get(number, end) < end)
        return [number for number in behind if self._book.behind_for(number) > at_most]

    @property
    def _doubled(self) -> frozenset[int]:
        return self.failure.partitions if isinstance(self.failure, DoubledRowsError) else frozenset()
