"""The Fetch request (version 11, of brokers since Kafka 2.3) for partitions of the offsets topic, without a session."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.codec.batches import MAGIC_AT, SMALLEST_SIZE
from offsetstream.codec.wire import DecodeError
from offsetstream.stream.monitor.broker_channel import text

FETCH = (1, 11)  # key and version
_PLACE = struct.Struct(">qi")  # of a batch: base offset, size of the rest
_IN_REQUEST = struct.Struct(">iiqqi")  # partition, leader epoch, offset, log start of a follower, most bytes
# partition, error, high watermark, last stable offset, log start offset, count of aborted transactions
_IN_ANSWER = struct.Struct(">ihqqqi")
_ABORTED = struct.Struct(">qq")  # producer id, first offset


class Place(NamedTuple):
    """From which offset of a partition to read, and its leader epoch; None if that is unknown.

    A broker with another epoch refuses: a former leader that does not know of the change may have another log.
    """

    number: int
    epoch: int | None
    offset: int


class Fetched(NamedTuple):
    """What an answer has of a partition. `aborted`: producer id and first offset of aborted transactions in it."""

    number: int
    error: int
    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]]
    records: memoryview

    @property
    def batches(self) -> Iterator[bytes]:
        """The complete batches. The size limit of the fetch may have cut the last one."""
        at = 0
        while at + MAGIC_AT < len(self.records):
            end = at + _PLACE.size + int(_PLACE.unpack_from(self.records, at)[1])
            if end - at < _PLACE.size + SMALLEST_SIZE or end > len(self.records):
                return
            yield bytes(self.records[at:end])
            at = end


def fetch_request(places: Sequence[Place], most_bytes: int, wait_ms: int = 0, *, read_committed: bool = False) -> bytes:
    """Return the body of a fetch. Every partition may fill the whole answer; the broker begins with the first one.

    `wait_ms`: how long the broker waits for a record, if it has none.
    """
    head = struct.pack(">iiiibii", -1, wait_ms, bool(wait_ms), most_bytes, read_committed, 0, -1)
    each = (
        _IN_REQUEST.pack(place.number, -1 if place.epoch is None else place.epoch, place.offset, -1, most_bytes)
        for place in places
    )
    topic = text(OFFSETS_TOPIC) + struct.pack(">i", len(places)) + b"".join(each)
    return head + struct.pack(">i", 1) + topic + struct.pack(">i", 0) + text("")


def fetched(answer: bytes) -> tuple[int, list[Fetched]]:
    """Return for how long the broker throttles this client (milliseconds), and the parts of its answer.

    When it throttles, the answer may have no part. Raises DecodeError if the answer is an error, or is cut.
    """
    try:
        throttled_ms, error, _, topics = struct.unpack_from(">ihii", answer)
        if error:
            raise DecodeError(f"the broker answers a fetch with error {error}")
        return throttled_ms, list(_parts(answer)) if topics else []
    except struct.error:
        raise DecodeError("the broker's answer to a fetch is cut") from None


def _parts(answer: bytes) -> Iterator[Fetched]:
    at = 14 + len(text(OFFSETS_TOPIC))
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    for _ in range(count):
        number, error, high_watermark, stable, _, aborted_count = _IN_ANSWER.unpack_from(answer, at)
        at += _IN_ANSWER.size
        aborted = [_ABORTED.unpack_from(answer, at + _ABORTED.size * each) for each in range(aborted_count)]
        at += _ABORTED.size * len(aborted) + 4  # and the preferred replica
        (size,) = struct.unpack_from(">i", answer, at)
        records = memoryview(answer)[at + 4 : at + 4 + max(0, size)]
        yield Fetched(number, error, high_watermark, stable, aborted, records)
        at += 4 + len(records)
