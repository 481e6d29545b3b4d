"""Whether a log is another one than the tables are from: all who must know ask here.

One that ends before what was applied is another (`PartitionRow.is_other_log`). Where a log was written anew
behind the same offsets, and has grown past what was applied, its ends tell nothing. But a recreated topic has another
id; and after an unclean election, which cuts a log, the leader epoch is higher: so after each rise the leader is asked
where the epoch of the last applied offset ends in its log (KIP-320; rule 5). A log in which it ends before that
offset, or is unknown, is another one. So is one that ends, in the epochs of before the rise, before what a batch or a
load that was interrupted had written already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.stream.monitor.epoch_ends import UNKNOWN, EpochEnd
from offsetstream.stream.partitions.applied_epochs import EpochStart
from offsetstream.stream.partitions.partition_book import PartitionBook

TopicId = Callable[[], str]
_ANY_EPOCH = -1  # asks a leader whatever its epoch is
EndsOfEpochs = Callable[[Mapping[int, tuple[int, int]]], Mapping[int, EpochEnd]]


class _Need(NamedTuple):
    """That the leader epochs of a log up to `highest` reach `end`, and the last of these is `lowest` at least."""

    lowest: int | None
    highest: int
    end: int

    def is_met_by(self, found: EpochEnd) -> bool:
        """Tell whether the log does, whose epochs up to the highest end there."""
        return found != UNKNOWN and found.offset >= self.end and found.epoch >= (self.lowest or 0)


class TruncationDetector:
    """Finds the logs that were written anew.

    `known_id` is the id of the topic that the tables are from, where they know it; `topic_id` asks for the present
    one, `epoch_ends` where epochs end (`EpochEnds.of`). `unsettled` are the partitions, of the last look,
    whose leader epoch rose, and whose leader did not tell whether their log is the same.
    """

    def __init__(self, book: PartitionBook, known_id: str | None, topic_id: TopicId, epoch_ends: EndsOfEpochs) -> None:
        self._book = book
        self._known_id = known_id
        self._topic_id = topic_id
        self._epoch_ends = epoch_ends
        self.unsettled: set[int] = set()

    def lost(self, log_ids: Mapping[int, int], ends: Mapping[int, PartitionEnds]) -> list[int]:
        """Return the partitions of which a reader cannot go on: it began with the logs of these ids.

        They have another one in the book, or the log does not reach to where it is applied, where `ends` tells of it.
        """
        rows = self._book.rows
        return [
            number
            for number, log_id in log_ids.items()
            if rows[number].log_id != log_id or (number in ends and rows[number].has_lost_records(ends[number]))
        ]

    def begin_all(self, ends: Mapping[int, PartitionEnds]) -> set[int]:
        """Do as `begin`, also for logs that end before what was applied of them: these are to be loaded."""
        cut = {number for number, end in ends.items() if self._book.rows[number].is_other_log(end)}
        for number in cut:
            self._book.begin_log(number)
        return {*cut, *self.begin()}

    def begin(self) -> list[int]:
        """Begin a new log in the book for each partition that has one, and return these.

        Raises ClusterError where the cluster does not answer; then the next call asks again.
        """
        before, self._known_id = self._known_id, self._topic_id()
        if before not in {None, self._known_id}:
            # A first load that did not end has rows of the old log, too.
            is_same = {number: False for number, row in self._book.rows.items() if row.load_state is not None}
        else:
            is_same = self._compare(self._led(self._book.coordinators.raised))
        rewritten = [number for number, same in is_same.items() if not same]
        for number in rewritten:
            self._book.begin_log(number)
        self._book.coordinators.settle(is_same)
        self.unsettled = set(self._led(self._book.coordinators.raised))
        self._learn()
        return rewritten

    def _led(self, partitions: Collection[int]) -> list[int]:
        return [number for number in partitions if self._book.rows[number].coordinator_available]

    def _compare(self, raised: Collection[int]) -> dict[int, bool]:
        """Tell of each partition whether its log still has what the tables have; who does not answer is left out."""
        is_same = dict.fromkeys(raised, True)
        for needed in (self._applied, self._written):
            needs = {number: need for number, need in needed(raised).items() if is_same.get(number)}
            ends = self._epoch_ends({number: (self._epoch(number), need.highest) for number, need in needs.items()})
            for number, need in needs.items():
                if number in ends:
                    is_same[number] = need.is_met_by(ends[number])
                else:
                    del is_same[number]
        return is_same

    def _applied(self, raised: Collection[int]) -> dict[int, _Need]:
        """Return what the logs must have of that which is applied."""
        needs = {}
        for number in raised:
            epoch, end = self._book.epochs.of(number), self._book.rows[number].next_offset
            # Tables of before version 4 do not know it: then it is at most the epoch of before the rise.
            highest = self._epoch_before(number) if epoch is None else epoch
            if end is not None and highest is not None:
                needs[number] = _Need(epoch, highest, end)
        return needs

    def _written(self, raised: Collection[int]) -> dict[int, _Need]:
        """Return what they must have of that which was written and never noted as applied.

        It was read before the leader epoch rose: a query, and a load, note the epochs before they write.
        """
        ends = self._book.written.ends() if raised else {}
        needs = {}
        for number in raised:
            highest = self._epoch_before(number)
            if number in ends and highest is not None:
                needs[number] = _Need(self._book.epochs.of(number), highest, ends[number])
        return needs

    def _epoch(self, number: int) -> int:
        epoch = self._book.rows[number].coordinator_epoch
        return _ANY_EPOCH if epoch is None else epoch

    def _epoch_before(self, number: int) -> int | None:
        return self._book.coordinators.raised[number].coordinator_epoch

    def _learn(self) -> None:
        """Learn where the present leader epochs began, by where the one before ends."""
        asked: dict[int, tuple[int, int]] = {}
        for number in self._led(self._book.rows.keys() - self._book.coordinators.raised.keys()):
            epoch, known = self._book.rows[number].coordinator_epoch, self._book.epochs.starts.get(number)
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
