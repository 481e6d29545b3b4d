"""Whether a query may continue: it must read the logs that the tables are from, and these must have lost nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.errors import DoubledRowsError, TablesError, UnreachableError
from offsetstream.stream.lifecycle.leaders import partitions_text
from offsetstream.stream.lifecycle.refusals import REFUSALS, LeadersChangedSinceStartError, StopRequestedError
from offsetstream.stream.lifecycle.turns import POLL_SECONDS
from offsetstream.stream.monitor.observer import Observer
from offsetstream.stream.partitions.book import PartitionBook

MOVING_SECONDS = 30.0  # for new leaders to be known and to answer


class QueryCheck:
    """Compare the logs of the partitions that a query is `reading` with the logs at its start.

    `stop_if_ending` raises if the query is to end. `failure` is the error of the tables that a batch met.
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
        self._late: list[int] = []  # partitions of a batch that were not read for too long
        self._refused: list[int] = []  # partitions for which a batch was refused
        self.failure: TablesError | None = None

    def before_writing(self, batch_ends: Mapping[int, int]) -> None:
        """Refuse a batch if a log may not be the one that the tables are from, or may have lost tombstones.

        The check comes after the batch was read: a log is cut before its new leader returns records. Raises:

        - StopRequestedError: partitions must be loaded; `lost` returns them.
        - UnreachableError: the cluster does not answer, so the batch may be from a log that was not compared.
        - LedAnewError: a new leader has everything that is applied, but may have other records after that.
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
                raise UnreachableError(f"the leader of {partitions_text(moving)} does not answer")
            self._stop_if_ending()
            time.sleep(POLL_SECONDS)
        self._require_same_leaders()

    def lost(self, ends: Mapping[int, PartitionEnds]) -> list[int]:
        """Return the partitions with which the query must not continue, in the order of the query."""
        lost = {*self._observer.watch.truncation.lost(self._log_ids, ends), *self._late, *self._doubled}
        return [number for number in self._log_ids if number in lost]

    def lost_by_now(self, lost: list[int]) -> list[int]:
        """Return `lost`, or what a load found lost. Raise LedAnewError if nothing is lost but leaders changed."""
        found = lost or self.lost({})
        if not found:
            self._require_same_leaders()
        return found

    def explained(self, error: Exception) -> list[int]:
        """Return the partitions for which the query ended with `error`. If it ended for another reason, raise that."""
        ends = self._observer.look()
        if lost := sorted({*self._refused, *self.lost(ends or {})}):
            return lost
        self._require_same_leaders()
        if self.failure is not None:
            raise self.failure
        if ends is None and any(refusal.__name__ in str(error) for refusal in REFUSALS):
            raise UnreachableError("the cluster stopped answering when a batch was refused") from error
        raise error

    def log_reasons(self, lost: Collection[int], warn: Callable[[str], None]) -> None:
        """Log why the query cannot continue with these partitions."""
        late = len(set(lost) & set(self._late))
        if lost and self._doubled:
            warn(f"{self.failure}: they are loaded again")
        if others := len(set(lost) - {*self._late, *self._doubled}):
            warn(f"The logs of {others} offsets partitions lost unread records or are new: they are loaded again")
        if late:
            warn(
                f"{late} offsets partitions were not read for longer than delete.retention.ms, so tombstones may be "
                "gone: they are loaded again"
            )

    def _require_same_leaders(self) -> None:
        epochs = self._book.coordinators.known_epochs
        if changed := sum(epochs[number] != self._epochs[number] for number in self._log_ids):
            raise LeadersChangedSinceStartError(f"{changed} offsets partitions have a new leader")

    def _behind_for_too_long(self, batch_ends: Mapping[int, int]) -> list[int]:
        """Return partitions with records in the batch that were unread for so long that tombstones may be gone."""
        applied, at_most = self._book.next_offsets, self._observer.watch.settings.safe_retention
        behind = (number for number, end in batch_ends.items() if applied.get(number, end) < end)
        return [number for number in behind if self._book.behind_for(number) > at_most]

    @property
    def _doubled(self) -> frozenset[int]:
        return self.failure.partitions if isinstance(self.failure, DoubledRowsError) else frozenset()
