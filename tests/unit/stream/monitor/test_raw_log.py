"""Batches as compaction leaves them, in fetch responses that are built byte by byte."""

import struct
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.codec.batches import HEADER_BYTES, read_batch
from offsetstream.errors import UnreachableError
from offsetstream.stream.monitor import raw_log
from offsetstream.stream.monitor.broker_channel import text
from offsetstream.stream.monitor.raw_log import RawLog
from testkit.segments import ABORT, CONTROL, TRANSACTIONAL, batch, marker, message

KEY = (b"key", b"value")
PRODUCER = (7, 0)
LOG = [
    batch(0, [KEY] * 3),
    batch(3, [KEY] * 2, deltas=[1, 3], last_delta=4),  # 3, 5 and 7 are gone
    batch(8, [KEY] * 2, TRANSACTIONAL, PRODUCER),
    marker(10, ABORT, PRODUCER),
    batch(15, [], CONTROL | TRANSACTIONAL, PRODUCER, last_delta=0),  # 11 to 14 are gone; this was a marker
    batch(16, [], producer=PRODUCER, last_delta=1),  # kept for its producer: 16 and 17 are gone
    message(18, 1, *KEY),
    message(20, 0, *KEY),  # 19 is gone
]
GONE = {3, 5, 7, 11, 12, 13, 14, 16, 17, 19, *range(21, 30)}
END = 30
EPOCH = 6
# What a leader says to who asks by an older epoch than its own, and by a newer one.
FENCED, UNKNOWN = 74, 75


class Leader:
    """The leader of partitions 1 and 2, which have the same log. It answers fetch requests like a broker."""

    def __init__(self, error: int = 0, most: int = 1 << 20) -> None:
        self.error = error
        self.most = most
        self.asked = 0

    def channels(self, partitions: Collection[int]) -> Iterator[tuple[Any, list[int]]]:
        yield self, sorted({1, 2} & set(partitions))
        if 3 in partitions:
            raise UnreachableError("no broker answers")

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        assert (api_key, version) == (1, 11)
        self.asked += 1
        (number, epoch, offset) = struct.unpack_from(">iiq", body, 25 + 4 + len(text(OFFSETS_TOPIC)) + 4)
        error = self.error or (0 if epoch in {-1, EPOCH} else FENCED if epoch < EPOCH else UNKNOWN)
        ends = [each.next_offset for each in map(_read, LOG)]
        data = b"".join(each for each, end in zip(LOG, ends, strict=True) if end > offset)
        head = struct.pack(">ihii", 0, 0, 0, 1) + text(OFFSETS_TOPIC) + struct.pack(">ii", 1, number)
        aborted = struct.pack(">qq", 7, 8)
        partition = struct.pack(">hqqqi", error, END, END, 0, 1) + aborted + struct.pack(">i", -1)
        sent = data[: max(self.most, len(data) and 12 + int.from_bytes(data[8:12], "big"))]
        return head + partition + struct.pack(">i", len(sent)) + sent


def _read(data: bytes) -> Any:
    return read_batch(data, with_data=False)


def log_of(leader: Any, epoch: int | None = EPOCH) -> RawLog:
    return RawLog(leader, lambda: {1: epoch, 2: None})


@pytest.mark.parametrize("most", [1 << 20, 100, 1])
def test_lost_offsets_of_each_range_of_the_log(most: int) -> None:
    log = log_of(Leader(most=most))
    ranges = [(start, end) for end in range(END + 1) for start in range(end + 1)]
    told = {(start, end): log.lost_offsets({1: (start, end)})[1] for start, end in ranges}
    assert told == {(start, end): len(GONE & set(range(start, end))) for start, end in ranges}


def test_a_range_without_an_answer_is_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (0, END)
    assert log_of(Leader()).lost_offsets({1: whole, 2: whole, 3: whole, 9: whole}).keys() == {1, 2}
    assert log_of(Leader(error=1)).lost_offsets({1: whole}) == {}
    assert log_of(Leader()).lost_offsets({1: (0, END + 1), 2: whole}).keys() == {2}
    monkeypatch.setattr(raw_log, "MOST_BYTES", 1000)
    assert log_of(Leader()).lost_offsets({1: whole, 2: whole}).keys() == {1}


def test_a_range_with_a_damaged_batch_is_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = LOG[1][:HEADER_BYTES] + bytes([0xFF]) * (len(LOG[1]) - HEADER_BYTES)
    monkeypatch.setitem(globals(), "LOG", [LOG[0], broken, *LOG[2:]])
    assert log_of(Leader()).lost_offsets({1: (0, 3), 2: (0, 8)}) == {1: 0}


@pytest.mark.parametrize(("epoch", "told"), [(EPOCH, {1, 2}), (EPOCH - 1, {2}), (EPOCH + 1, {2}), (None, {1, 2})])
def test_a_leader_of_another_epoch_gives_no_answer(epoch: int | None, told: set[int]) -> None:
    assert log_of(Leader(), epoch).lost_offsets({1: (0, END), 2: (0, END)}).keys() == told


class ThrottlingLeader(Leader):
    """Its answer has no partition: the client is to wait."""

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        answer = super().ask(api_key, version, body)
        return struct.pack(">ih", 500, 0) + answer[6:10] + bytes(4)


def test_an_answer_of_a_leader_that_throttles_says_nothing() -> None:
    assert log_of(ThrottlingLeader()).lost_offsets({1: (0, END)}) == {}
