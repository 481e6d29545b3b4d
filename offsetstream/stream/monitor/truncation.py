"""Detects logs that are not those from which the tables were written: truncated, or of a recreated topic.

- A log that ends before the applied offset is another one (`PartitionRow.is_other_log`).
- A log may have been truncated and then grown past the applied offset, so that its end shows nothing. A recreated topic
  has another topic id. An unclean election, which truncates a log, raises the leader epoch. So after each rise the job
  requests the end of the last applied epoch from the leader (KIP-320; rule 5). If the epoch ends before the applied
  offset, or is unknown, the log is another one.
- An interrupted batch or load may have written more than is applied. If the epochs before the rise end before that, the
  log is another one too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.connection import LEADER_MOVES, NO_RIGHT
from offsetstream.cluster.rights import OFFSETS_TOPIC, READ_OFFSETS
from offsetstream.errors import ClusterError
from offsetstream.stream.monitor.broker_channel import BrokerChannel, BrokerTooOldError, Leaders, text
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.coordinators import EpochStart

_ANY_EPOCH = -1  # the leader answers whatever its epoch is
_OFFSET_FOR_LEADER_EPOCH = (23, 3)  # key and version
_CONSUMER = -1
_ASKED, _ANSWER = struct.Struct(">iii"), struct.Struct(">hiiq")
_MOVES = {*LEADER_MOVES, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.REPLICA_NOT_AVAILABLE}


class EpochEnd(NamedTuple):
    """The greatest epoch of a log up to the requested one, and its end offset (exclusive)."""

    epoch: int
    offset: int


UNKNOWN = EpochEnd(-1, -1)
EndsOfEpochs = Callable[[Mapping[int, tuple[int, int]]], Mapping[int, EpochEnd]]


class _Need(NamedTuple):
    """What a log must have: its epochs up to `highest` reach `end`, and the last of them is at least `lowest`."""

    lowest: int | None
    highest: int
    end: int

    def is_met_by(self, found: EpochEnd) -> bool:
        """Return whether the end of the epochs up to `highest` meets the need."""
        return found != UNKNOWN and found.offset >= self.end and found.epoch >= (self.lowest or 0)


class TruncationDetector:
    """Find the logs that were replaced.

    `known_id` is the topic id of the tables, if they know it. `topic_id` queries the current one, and `epoch_ends` the
    ends of epochs (`ends_of_epochs`). `unsettled`: the partitions of the last check whose leader epoch rose, but whose
    leader did not answer.
    """

    def __init__(
        self, book: PartitionBook, known_id: str | None, topic_id: Callable[[], str], epoch_ends: EndsOfEpochs
    ) -> None:
        self._book = book
        self._known_id = known_id
        self._topic_id = topic_id
        self._epoch_ends = epoch_ends
        self.unsettled: set[int] = set()

    def is_recreated(self) -> bool:
        """Return whether the topic has another id than at the last check. Raise ClusterError."""
        return self._topic_id() != self._known_id

    def lost(self, log_ids: Mapping[int, int], ends: Mapping[int, PartitionEnds]) -> list[int]:
        """Return the partitions with which a query that started with the logs `log_ids` must not continue.

        Either the book has another log id, or the log in `ends` does not reach the applied offset.
        """
        rows = self._book.rows
        return [
            number
            for number, log_id in log_ids.items()
            if rows[number].log_id != log_id or (number in ends and rows[number].has_lost_records(ends[number]))
        ]

    def start_all_new_logs(self, ends: Mapping[int, PartitionEnds]) -> set[int]:
        """Like `start_new_logs`, and start a new log also for partitions whose log ends before the applied offset."""
        cut = {number for number, end in ends.items() if self._book.rows[number].is_other_log(end)}
        for number in cut:
            self._book.start_log(number)
        return {*cut, *self.start_new_logs()}

    def start_new_logs(self) -> list[int]:
        """Start a new log in the book for each partition whose log was replaced, and return these partitions.

        Raise ClusterError if the cluster does not answer; the next call tries again.
        """
        before, self._known_id = self._known_id, self._topic_id()
        if before not in {None, self._known_id}:
            # A first load that was interrupted has written rows of the old log too.
            is_same = {number: False for number, row in self._book.rows.items() if row.load_state is not None}
        else:
            is_same = self._compare(self._led(self._book.coordinators.raised))
        rewritten = [number for number, same in is_same.items() if not same]
        for number in rewritten:
            self._book.start_log(number)
        self._book.coordinators.settle(is_same)
        self.unsettled = set(self._led(self._book.coordinators.raised))
        self._learn()
        return rewritten

    def _led(self, partitions: Collection[int]) -> list[int]:
        return [number for number in partitions if self._book.rows[number].coordinator_available]

    def _compare(self, raised: Collection[int]) -> dict[int, bool]:
        """Return whether each partition's log still has what the tables have. Skip leaders that do not answer."""
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
        """Return what the logs must have because it is applied."""
        needs = {}
        for number in raised:
            epoch, end = self._book.epochs.of(number), self._book.rows[number].next_offset
            # A partition that was never applied under an epoch has none: then it is at most the epoch before the rise.
            highest = self._epoch_before(number) if epoch is None else epoch
            if end is not None and highest is not None:
                needs[number] = _Need(epoch, highest, end)
        return needs

    def _written(self, raised: Collection[int]) -> dict[int, _Need]:
        """Return what the logs must have because it was written, although it is not applied yet.

        It was read before the leader epoch rose: queries and loads record the epochs before they write.
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
        """Find the start of the current leader epochs: it is the end of the epoch before."""
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


def ends_of_epochs(leaders: Leaders, asked: Mapping[int, tuple[int, int]]) -> dict[int, EpochEnd]:
    """Return the end of an epoch for each {offsets partition: (current leader epoch, requested epoch)}.

    The end is `UNKNOWN` if the log has no epochs, or if the leader is older than Kafka 2.3 and answers followers only.
    Partitions without a leader, or with another current epoch, are skipped. Raise ClusterError.
    """
    found: dict[int, EpochEnd] = {}
    for channel, numbers in leaders.channels(asked) if asked else ():
        try:
            found |= _ask(channel, {number: asked[number] for number in numbers}, leaders.cluster)
        except BrokerTooOldError:
            found |= dict.fromkeys(numbers, UNKNOWN)
    return found


def _ask(channel: BrokerChannel, asked: Mapping[int, tuple[int, int]], cluster: Cluster) -> dict[int, EpochEnd]:
    head = struct.pack(">ii", _CONSUMER, 1) + text(OFFSETS_TOPIC) + struct.pack(">i", len(asked))
    partitions = b"".join(_ASKED.pack(number, *epochs) for number, epochs in asked.items())
    answer = channel.ask(*_OFFSET_FOR_LEADER_EPOCH, head + partitions)
    at = 8 + len(text(OFFSETS_TOPIC)) + 4  # throttle time, one topic, count of partitions
    found = {}
    for error, number, epoch, offset in _ANSWER.iter_unpack(answer[at:]):
        if error in NO_RIGHT:
            raise cluster.lacks([READ_OFFSETS])
        if error and error not in _MOVES:
            raise ClusterError(f"no leader epochs of {OFFSETS_TOPIC}: {KafkaError(error).str()}")
        if not error:
            found[number] = EpochEnd(epoch, offset)
    return found
