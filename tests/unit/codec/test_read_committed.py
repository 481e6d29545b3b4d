"""The batches that a read_committed consumer gets: fixed cases, and random logs with known outcomes."""

from random import Random

import pytest

from offsetstream.codec.batches import ControlType, LogRecord, RecordBatch
from offsetstream.codec.log_segments import find_transactions


def data(offset: int, producer: int = -1, *, transactional: bool = False) -> RecordBatch:
    return RecordBatch(offset, offset + 1, (LogRecord(offset, 0, b"k", b"v"),), producer, 0, transactional)


def marker(offset: int, producer: int, kind: int, version: int = 0) -> RecordBatch:
    key = version.to_bytes(2, "big", signed=True) + kind.to_bytes(2, "big")
    return RecordBatch(offset, offset + 1, (LogRecord(offset, 0, key, b""),), producer, 0, True, is_control=True)


def visible(log: list[RecordBatch]) -> list[int]:
    only_transactions = [batch for batch in log if batch.is_transactional]
    return [batch.base_offset for batch in find_transactions(only_transactions).committed(log)]


def test_an_aborted_transaction_is_skipped_and_an_open_one_ends_the_log() -> None:
    log = [
        data(0),
        data(1, 7, transactional=True),
        data(2, 8, transactional=True),
        marker(3, 7, ControlType.ABORT),
        data(4, 7),  # same producer, but not transactional
        data(5, 7, transactional=True),
        marker(6, 8, ControlType.COMMIT),
        marker(7, 7, ControlType.COMMIT),
        marker(8, 9, ControlType.ABORT),  # a producer whose records were compacted away
        data(9, 8, transactional=True),
        data(10),
    ]
    assert visible(log) == [0, 2, 4, 5]
    assert visible(log[:9]) == [0, 2, 4, 5]
    assert find_transactions(log).first_open_offset == 9


def test_other_control_records_do_not_end_a_transaction() -> None:
    assert visible([data(0, 7, transactional=True), marker(1, 7, 5), data(2)]) == []
    assert visible([data(0, 7, transactional=True), marker(1, 7, 5), marker(2, 7, ControlType.COMMIT), data(3)]) == [
        0,
        3,
    ]


@pytest.mark.parametrize(("version", "expected"), [(-1, []), (0, [0, 2]), (1, [0, 2])])
def test_a_marker_of_a_newer_version_ends_a_transaction_and_of_a_negative_one_none(
    version: int, expected: list[int]
) -> None:
    """As in Kafka's ControlRecordType.parseTypeId: newer versions only append fields, a negative one is damage."""
    assert visible([data(0, 7, transactional=True), marker(1, 7, ControlType.COMMIT, version), data(2)]) == expected


def test_random_logs() -> None:
    rng = Random(5)
    for _ in range(300):
        log: list[RecordBatch] = []
        outcome: dict[int, bool | None] = {}  # by offset of a data batch: committed, aborted or open
        opened: dict[int, list[int]] = {}
        for offset in range(rng.randint(0, 40)):
            producer = rng.choice([-1, 1, 2, 3])
            if producer in opened and rng.random() < 0.5:
                kind = rng.choice(list(ControlType))
                outcome.update(dict.fromkeys(opened.pop(producer), kind == ControlType.COMMIT))
                log.append(marker(offset, producer, kind))
                continue
            transactional = producer > 0 and rng.random() < 0.8
            log.append(data(offset, producer, transactional=transactional))
            outcome[offset] = None if transactional else True
            if transactional:
                opened.setdefault(producer, []).append(offset)
        stable = min((offset for offset, committed in outcome.items() if committed is None), default=len(log))
        assert visible(log) == [offset for offset, committed in outcome.items() if committed and offset < stable]
