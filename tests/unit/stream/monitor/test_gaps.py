"""Gaps in the offsets of a batch, and the batches that compaction leaves: fetch responses built byte by byte."""

import struct
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.codec.batches import HEADER_BYTES, read_batch
from offsetstream.errors import UnreachableError
from offsetstream.stream.monitor import gaps
from offsetstream.stream.monitor.broker_channel import text
from offsetstream.stream.monitor.gaps import Gaps, LostOffsets, Ranges, lost_offsets
from offsetstream.stream.monitor.topics import TopicSettings
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.records import Share
from offsetstream.tables.path_store import PathStore
from testkit.segments import ABORT, CONTROL, TRANSACTIONAL, batch, marker, message

PARTITIONS = range(3)
ENDS = dict.fromkeys(PARTITIONS, 150)
SHARES = {0: Share(50, None), 1: Share(49, None)}  # so 1 and 2 have gaps


class Topic(Cluster):
    """A cluster that returns a setting of the topic."""

    def __init__(self, lag_ms: int) -> None:
        super().__init__("127.0.0.1:1")  # nobody is asked
        self.lag_ms = lag_ms

    def topic_settings(self, *_: str) -> dict[str, str | None]:
        return {"min.compaction.lag.ms": str(self.lag_ms)}


class Log:
    """A log that returns its lost offsets, or that does not answer."""

    def __init__(self, told: Mapping[int, int] | None = None) -> None:
        self._told = told
        self.asked: list[Ranges] = []

    def __call__(self, ranges: Ranges) -> Mapping[int, int]:
        self.asked.append(ranges)
        if self._told is None:
            raise UnreachableError("no broker answers")
        return self._told


def settings(lag_ms: int = 0) -> TopicSettings:
    told = TopicSettings(Topic(lag_ms), print)
    told.look()
    return told


def loaded(tables: PathStore, *, minutes_ago: int = 0, high: int = 100, keeps_history: bool = True) -> PartitionBook:
    book = PartitionBook(tables, PARTITIONS, keeps_history=keeps_history)
    at = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    book.observe({number: PartitionEnds(0, 100, high, 1, 1, at) for number in PARTITIONS})
    book.start_load(dict.fromkeys(PARTITIONS, 100))
    for number in PARTITIONS:
        book.finish_load(number, 100, 1, 1)
    return book


def test_fewer_records_than_offsets_are_a_gap(tables: PathStore) -> None:
    log = Log()
    assert Gaps(loaded(tables), settings(), log).incomplete(ENDS, SHARES) == [1, 2]
    assert log.asked == [{1: (100, 150), 2: (100, 150)}]
    assert Gaps(loaded(tables), settings(), log).incomplete(dict.fromkeys(PARTITIONS, 100), {}) == []
    assert len(log.asked) == 1


def test_the_log_distinguishes_markers_from_lost_records(tables: PathStore) -> None:
    assert Gaps(loaded(tables), settings(), Log({1: 0, 2: 3})).incomplete(ENDS, SHARES) == [2]
    assert Gaps(loaded(tables), settings(), Log({1: 0})).incomplete(ENDS, SHARES) == [2]  # it cannot tell of 2


@pytest.mark.parametrize(("minutes_ago", "broken"), [(50, []), (55, [1, 2])])
def test_records_too_young_to_be_compacted_are_no_gap(tables: PathStore, minutes_ago: int, broken: list[int]) -> None:
    told = settings(3_600_000)
    told.uncompacted_since -= timedelta(days=1)
    assert Gaps(loaded(tables, minutes_ago=minutes_ago), told, Log()).incomplete(ENDS, SHARES) == broken


def test_a_setting_does_not_protect_records_from_before_it(tables: PathStore) -> None:
    assert Gaps(loaded(tables, minutes_ago=1), settings(3_600_000), Log()).incomplete(ENDS, SHARES) == [1, 2]


def test_records_that_an_open_transaction_blocked_may_have_any_age(tables: PathStore) -> None:
    told = settings(3_600_000)
    told.uncompacted_since -= timedelta(days=1)
    assert Gaps(loaded(tables, high=120), told, Log()).incomplete(ENDS, SHARES) == [1, 2]


def test_a_partition_without_complete_history_has_no_gaps(tables: PathStore) -> None:
    log = Log()
    assert Gaps(loaded(tables, keeps_history=False), settings(), log).incomplete(ENDS, SHARES) == []
    assert log.asked == []


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


def log_of(leader: Any, epoch: int | None = EPOCH) -> LostOffsets:
    return partial(lost_offsets, leader, {1: epoch, 2: None})


@pytest.mark.parametrize("most", [1 << 20, 100, 1])
def test_lost_offsets_of_each_range_of_the_log(most: int) -> None:
    log = log_of(Leader(most=most))
    ranges = [(start, end) for end in range(END + 1) for start in range(end + 1)]
    told = {(start, end): log({1: (start, end)})[1] for start, end in ranges}
    assert told == {(start, end): len(GONE & set(range(start, end))) for start, end in ranges}


def test_a_range_without_an_answer_is_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (0, END)
    assert log_of(Leader())({1: whole, 2: whole, 3: whole, 9: whole}).keys() == {1, 2}
    assert log_of(Leader(error=1))({1: whole}) == {}
    assert log_of(Leader())({1: (0, END + 1), 2: whole}).keys() == {2}
    monkeypatch.setattr(gaps, "MOST_BYTES", 1000)
    assert log_of(Leader())({1: whole, 2: whole}).keys() == {1}


def test_a_range_with_a_damaged_batch_is_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = LOG[1][:HEADER_BYTES] + bytes([0xFF]) * (len(LOG[1]) - HEADER_BYTES)
    monkeypatch.setitem(globals(), "LOG", [LOG[0], broken, *LOG[2:]])
    assert log_of(Leader())({1: (0, 3), 2: (0, 8)}) == {1: 0}


@pytest.mark.parametrize(("epoch", "told"), [(EPOCH, {1, 2}), (EPOCH - 1, {2}), (EPOCH + 1, {2}), (None, {1, 2})])
def test_a_leader_of_another_epoch_gives_no_answer(epoch: int | None, told: set[int]) -> None:
    assert log_of(Leader(), epoch)({1: (0, END), 2: (0, END)}).keys() == told


class ThrottlingLeader(Leader):
    """Its answer has no partition: the client is to wait."""

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        answer = super().ask(api_key, version, body)
        return struct.pack(">ih", 500, 0) + answer[6:10] + bytes(4)


def test_an_answer_of_a_leader_that_throttles_says_nothing() -> None:
    assert log_of(ThrottlingLeader())({1: (0, END)}) == {}
