"""End offsets of leader epochs (KIP-320): followers and consumers use them to detect that a log was truncated."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError

from offsetstream.cluster.connection import LEADER_MOVES, NO_RIGHT
from offsetstream.cluster.rights import OFFSETS_TOPIC, READ_OFFSETS
from offsetstream.errors import ClusterError
from offsetstream.stream.monitor.broker_channel import BrokerChannel, BrokerTooOldError, Leaders, text

_OFFSET_FOR_LEADER_EPOCH = (23, 3)  # key and version
_CONSUMER = -1
_ASKED, _ANSWER = struct.Struct(">iii"), struct.Struct(">hiiq")
_MOVES = {*LEADER_MOVES, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.REPLICA_NOT_AVAILABLE}


class EpochEnd(NamedTuple):
    """The greatest epoch of a log up to the requested one, and its end offset (exclusive)."""

    epoch: int
    offset: int


UNKNOWN = EpochEnd(-1, -1)


class EpochEnds:
    """Requests end offsets of leader epochs from the leaders."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders

    def of(self, asked: Mapping[int, tuple[int, int]]) -> dict[int, EpochEnd]:
        """Return the end of an epoch for each {offsets partition: (current leader epoch, requested epoch)}.

        The end is `UNKNOWN` if the log has no epochs, or if the leader is older than Kafka 2.3 and answers followers
        only. Partitions without a leader, or with another current epoch, are skipped. Raise ClusterError.
        """
        found: dict[int, EpochEnd] = {}
        for channel, numbers in self._leaders.channels(asked) if asked else ():
            try:
                found |= self._ask(channel, {number: asked[number] for number in numbers})
            except BrokerTooOldError:
                found |= dict.fromkeys(numbers, UNKNOWN)
        return found

    def _ask(self, channel: BrokerChannel, asked: Mapping[int, tuple[int, int]]) -> dict[int, EpochEnd]:
        head = struct.pack(">ii", _CONSUMER, 1) + text(OFFSETS_TOPIC) + struct.pack(">i", len(asked))
        partitions = b"".join(_ASKED.pack(number, *epochs) for number, epochs in asked.items())
        answer = channel.ask(*_OFFSET_FOR_LEADER_EPOCH, head + partitions)
        at = 8 + len(text(OFFSETS_TOPIC)) + 4  # throttle time, one topic, count of partitions
        found = {}
        for error, number, epoch, offset in _ANSWER.iter_unpack(answer[at:]):
            if error in NO_RIGHT:
                raise self._leaders.cluster.lacks([READ_OFFSETS])
            if error and error not in _MOVES:
                raise ClusterError(f"no leader epochs of {OFFSETS_TOPIC}: {KafkaError(error).str()}")
            if not error:
                found[number] = EpochEnd(epoch, offset)
        return found
