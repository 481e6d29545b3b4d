"""Logs that were written anew behind the same offsets, and have grown past what was applied: their ends tell nothing.

A recreated topic has another id. After an unclean election, which cuts a log, the leader epoch is higher: so after each
rise the leader is asked where the epoch of the last applied offset ends in its log (KIP-320; design, rule 5). A log in
which it ends before that offset, or is unknown, is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from offsetstream.stream.applied_epochs import EpochStart
from offsetstream.stream.epoch_ends import UNKNOWN, EpochEnd
from offsetstream.stream.partition_book import PartitionBook

TopicId = Callable[[], str]
EndsOfEpochs = Callable[[Mapping[int, tuple[int, int]]], Mapping[int, EpochEnd]]


class RewrittenLogs:
    """Finds the logs that were written anew.

    ``known_id`` is the id of the topic that the tables are from, where they know it; ``topic_id`` asks for the present
    one, ``epoch_ends`` where epochs end (:meth:`EpochEnds.of`). ``unsettled`` are the partitions, of the last look,
    whose leader epoch rose, and whose leader did not tell whether their log is the same.
    """

    def __init__(self, book: PartitionBook, known_id: str | None, topic_id: TopicId, epoch_ends: EndsOfEpochs) -> None:
        self._book = book
        self._known_id = known_id
        self._topic_id = topic_id
        self._epoch_ends = epoch_ends
        self.unsettled: set[int] = set()

    def begin(self) -> list[int]:
        """Begin a new log in the book for each partition that has one, and return these.

        Raises ClusterError where the cluster does not answer; then the next call asks again.
        """
        before, self._known_id = self._known_id, self._topic_id()
        if before not in {None, self._known_id}:
            # A first load that did not end has rows of the old log, too.
            is_same = {number: False for number, row in self._book.rows.items() if row["load_state"] is not None}
        else:
            is_same = self._compare(self._led(self._book.epochs_raised))
        rewritten = [number for number, same in is_same.items() if not same]
        for number in rewritten:
            self._book.begin_log(number)
        self._book.take_epochs(is_same)
        self.unsettled = set(self._led(self._book.epochs_raised))
        self._learn()
        return rewritten

    def _led(self, partitions: Collection[int]) -> list[int]:
        return [number for number in partitions if self._book.rows[number]["coordinator_available"]]

    def _compare(self, raised: Collection[int]) -> dict[int, bool]:
        """Tell of each partition whether its log still has what was applied; those that do not answer are left out."""
        applied = {number: self._book.epochs.of(number) for number in raised}
        # Tables of before version 4 do not know it: then it is at most the epoch of before the rise.
        at_most = {number: self._book.epochs_raised[number]["coordinator_epoch"] for number in raised}
        epochs = {number: at_most[number] if epoch is None else epoch for number, epoch in applied.items()}
        is_empty = {number: number not in self._book.next_offsets for number in raised}
        is_same = {number: empty for number, empty in is_empty.items() if empty or epochs[number] is None}
        asked = {
            number: (self._book.rows[number]["coordinator_epoch"], epoch)
            for number, epoch in epochs.items()
            if epoch is not None and number not in is_same
        }
        for number, end in self._epoch_ends(asked).items():
            reaches = end != UNKNOWN and end.offset >= self._book.next_offsets[number]
            is_same[number] = reaches and applied[number] in {None, end.epoch}
        return is_same

    def _learn(self) -> None:
        """Learn where the present leader epochs began, by where the one before ends."""
        asked: dict[int, tuple[int, int]] = {}
        for number in self._led(self._book.rows.keys() - self._book.epochs_raised.keys()):
            epoch, known = self._book.rows[number]["coordinator_epoch"], self._book.epochs.starts.get(number)
            if epoch is None or (known is not None and known.epoch == epoch):
                continue
            if epoch in {0, self._book.epochs.of(number)}:
                self._book.epochs.starts[number] = EpochStart(epoch, -1, None)
            else:
                asked[number] = (epoch, epoch - 1)
        for number, end in self._epoch_ends(asked).items():
            epoch = asked[number][0]
            is_known = end != UNKNOWN
            self._book.epochs.starts[number] = EpochStart(
                epoch, *((end.offset, end.epoch) if is_known else (None, None))
            )
