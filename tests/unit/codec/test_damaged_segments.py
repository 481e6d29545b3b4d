"""Logs with a damaged batch: all others are read, nothing is made up, and what is missing is said."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from offsetstream.codec.damaged_segments import find_surviving, read_undamaged
from offsetstream.codec.log_segments import Segment, Skip, find_partitions, read_segments
from testkit.examples import examples
from testkit.segments import ABORT, COMMIT, TRANSACTIONAL, Record, batch, marker, message, write_segment

RECORDS: list[Record] = [(b"k0", b"v0"), (b"k1", None)]
Rows = list[tuple[int, bytes | None, bytes | None]]


@dataclass
class Read:
    rows: Rows
    skips: list[Skip]
    notes: list[str]


def read(*paths: Path) -> Read:
    found = Read([], [], [])
    segments = [Segment(path, path.stat().st_size) for path in paths]
    for each in read_undamaged(segments, found.notes.append, found.skips.append):
        found.rows += [(record.offset, record.key, record.value) for record in each.records]
    return found


def rows(base: int, records: list[Record]) -> Rows:
    return [(base + at, *record) for at, record in enumerate(records)]


def spans(found: Read) -> list[tuple[int, int, int | None, int | None]]:
    return [(skip.position, skip.end, skip.first_offset, skip.next_offset) for skip in found.skips]


def v1(base: int, records: list[Record]) -> bytes:
    return b"".join(message(base + at, 1, *record) for at, record in enumerate(records))


@pytest.mark.parametrize("damaged", [batch(2, RECORDS), message(2, 1, *RECORDS[0]), message(2, 0, *RECORDS[0])])
def test_every_flipped_bit_costs_its_batch_only(tmp_path: Path, damaged: bytes) -> None:
    """All batches have one size, so that some damaged lengths end where another batch ends."""
    before, after = batch(0, RECORDS), [batch(base, RECORDS) for base in (4, 6, 8, 10)]
    others = rows(0, RECORDS) + [row for base in (4, 6, 8, 10) for row in rows(base, RECORDS)]
    own = rows(2, RECORDS)
    for bit in range(8 * len(damaged)):
        flipped = bytearray(damaged)
        flipped[bit // 8] ^= 1 << bit % 8
        found = read(write_segment(tmp_path, 0, before, bytes(flipped), *after))
        answered = [row for row in found.rows if row not in own]
        if bit // 8 == 7 and damaged[16] < 2 and flipped[7] == 3:
            assert sorted([*others, (3, *RECORDS[0])]) == answered  # an offset that fits: nobody can see it
            continue
        assert answered == others
        if 12 * 8 <= bit < 16 * 8 and damaged[16] == 2:  # the leader epoch, which no checksum covers and nobody needs
            assert (found.skips, len(found.rows)) == ([], len(others) + 2)
        else:
            assert spans(found) == [(len(before), len(before) + len(damaged), 2, 4)]
            assert found.rows == others


def flip(data: bytes, at: int, mask: bytes) -> bytes:
    changed = bytes(a ^ b for a, b in zip(data[at:], mask, strict=False))
    return data[:at] + changed + data[at + len(changed) :]


def overwrite(data: bytes, at: int, filler: bytes) -> bytes:
    return data[:at] + filler[: len(data) - at] + data[at + len(filler) :]


def insert(data: bytes, at: int, filler: bytes) -> bytes:
    return data[:at] + filler + data[at:]


def remove(data: bytes, at: int, filler: bytes) -> bytes:
    return data[:at] + data[at + len(filler) :]


def zero(data: bytes, at: int, filler: bytes) -> bytes:
    return overwrite(data, at, bytes(len(filler)))


DAMAGES = [flip, overwrite, insert, remove, zero]
CELLS = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=200))
BATCHES = st.lists(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=3), min_size=2, max_size=12)


@settings(max_examples=examples(300), deadline=None)
@given(
    batches=BATCHES,
    formats=st.lists(st.sampled_from([batch, v1]), min_size=12, max_size=12),
    gaps=st.lists(st.sampled_from([0, 0, 1, 500]), min_size=12, max_size=12),
    split=st.integers(1, 11),
    which=st.integers(0, 11),
    where=st.integers(0, 10_000),
    damage=st.sampled_from(DAMAGES),
    filler=st.binary(min_size=1, max_size=90).filter(any),
)
@example([[(b"", b"")]] * 5, [batch] * 12, [0] * 12, 9, 1, 11, flip, b"\x80")
def test_with_any_damage_to_one_batch_all_others_are_read(
    batches: list[list[Record]],
    formats: list[Callable[[int, list[Record]], bytes]],
    gaps: list[int],
    split: int,
    which: int,
    where: int,
    damage: Callable[[bytes, int, bytes], bytes],
    filler: bytes,
) -> None:
    split, which = min(split, len(batches) - 1), which % len(batches)
    written, expected, own, offset = [], [], [], 0
    for number, records in enumerate(batches):
        offset += gaps[number]
        data, content = formats[number](offset, records), rows(offset, records)
        if number == which:
            own, at = content, where % len(data)
            intact, data = data, damage(data, at, filler)
            base = offset
        else:
            expected += content
        written.append((offset, data))
        offset += len(records)
    behind = b"".join(each for _, each in written[which:])
    assume(damage is not remove or not behind.startswith(intact))  # it took its last zeros from the next batch, whole
    with TemporaryDirectory() as folder:
        paths = [
            write_segment(Path(folder), part[0][0], *(data for _, data in part))
            for part in (written[:split], written[split:])
        ]
        found = read(*paths)
    answered = [row for row in found.rows if row not in own]
    if at < 8 or formats[which] is v1 or damage in (insert, remove):
        # Another offset of the damaged batch that fits the batches around is seen by nobody: no checksum covers it.
        answered = [row for row in answered if row in expected or row[1:] not in batches[which]]
    assert answered == expected
    changed = written[which][1]
    if changed != intact and flip is damage and formats[which] is batch and at >= 16:
        missing = {row[0] for row in own} - {row[0] for row in found.rows}
        assert missing
        for skip in found.skips:
            assert skip.first_offset is not None
            assert skip.first_offset <= base
            assert skip.next_offset is None or skip.next_offset > base
        assert len(found.skips) + len(found.notes) >= 1


@pytest.mark.parametrize("bit", range(64))
def test_a_wrong_offset_at_the_end_of_a_segment_does_not_hide_the_next_one(tmp_path: Path, bit: int) -> None:
    last = bytearray(batch(2, RECORDS))
    last[7 - bit // 8] ^= 1 << bit % 8
    first = write_segment(tmp_path, 0, batch(0, RECORDS), bytes(last))
    found = read(first, write_segment(tmp_path, 4, batch(4, RECORDS), batch(6, RECORDS)))
    answered = [row for row in found.rows if row[0] != 3]  # 3 is an offset that fits the batch before
    assert answered == rows(0, RECORDS) + rows(4, RECORDS) + rows(6, RECORDS)


def test_a_batch_within_a_record_is_not_taken_for_one_of_the_log(tmp_path: Path) -> None:
    inner = batch(3, [(b"made", b"up")])
    damaged = batch(2, [(b"k", b"." + inner + inner)] * 3)
    parts = [batch(0, RECORDS), damaged, batch(5, RECORDS)]
    for at in (8, 11, 20, 30, 60, len(damaged) - 1):  # 8 to 11: its length
        for mask in (b"\x01", b"\x10", b"\x80"):
            path = write_segment(tmp_path, 0, parts[0], flip(damaged, at, mask), parts[2])
            assert read(path).rows == rows(0, RECORDS) + rows(5, RECORDS)


def test_the_first_batch_of_a_segment_may_be_the_damaged_one(tmp_path: Path) -> None:
    good = batch(102, RECORDS)
    path = write_segment(tmp_path, 100, b"\xff" * 20 + batch(100, RECORDS)[20:], good)
    found = read(path)
    assert found.rows == rows(102, RECORDS)
    assert spans(found) == [(0, path.stat().st_size - len(good), 100, 102)]
    unnamed = path.rename(tmp_path / "sent.log")
    found = read(unnamed)
    assert (found.rows, spans(found)[0][2:]) == (rows(102, RECORDS), (None, 102))
    assert str(found.skips[0]) == (
        f"{unnamed}: skipped {len(good)} bytes at position 0: it does not start with a record batch; "
        "offsets before 102 are missing"
    )


def test_a_segment_whose_rest_is_lost_and_the_next_one(tmp_path: Path) -> None:
    first = write_segment(tmp_path, 0, batch(0, RECORDS), b"\xff" * 500)
    last = write_segment(tmp_path, 9, batch(10, RECORDS))
    found = read(first, last)
    assert found.rows == rows(0, RECORDS) + rows(10, RECORDS)
    (skip,) = found.skips
    assert skip.is_rest
    assert "the rest of the segment: its size or its format is not valid; offsets 2 to 8 are missing" in str(skip)
    assert "offsets are missing at the end of the log, from 2 on" in str(read(first).skips[0])


def test_a_cut_segment_before_others(tmp_path: Path) -> None:
    cut = batch(2, RECORDS)[:-1]
    first = write_segment(tmp_path, 0, batch(0, RECORDS), cut)
    found = read(first, write_segment(tmp_path, 4, batch(4, RECORDS)))
    assert found.rows == rows(0, RECORDS) + rows(4, RECORDS)
    assert [(skip.next_offset, skip.reason) for skip in found.skips] == [(4, "the segment ends within a batch")]
    alone = read(first)  # as a running broker's last segment may be
    assert (alone.skips, len(alone.notes)) == ([], 1)


def test_a_hole_of_zeros(tmp_path: Path) -> None:
    """What a file system leaves of pages that it had not written at a crash."""
    parts = [batch(at, RECORDS) for at in range(0, 40, 2)]
    data = b"".join(parts)
    size = len(parts[0])
    path = write_segment(tmp_path, 0, data[: 3 * size + 7] + bytes(5 * size) + data[8 * size + 7 :])
    found = read(path)
    assert found.rows == [row for at in (0, 2, 4, *range(16, 40, 2)) for row in rows(at, RECORDS)]
    assert spans(found) == [(3 * size, 8 * size, 6, 16)]  # the first seven bytes of an offset are zeros


def test_a_log_without_damage_is_read_as_ever(tmp_path: Path) -> None:
    """Also after a cleaner that was killed: two segments with the same offsets."""
    paths = [
        write_segment(tmp_path, 0, batch(2, RECORDS[:1], last_delta=1), batch(6, RECORDS)),
        write_segment(tmp_path, 4, batch(4, RECORDS), batch(6, RECORDS), batch(8, RECORDS), bytes(100)),
    ]
    segments = [Segment(path, path.stat().st_size) for path in paths]
    notes: list[str] = []
    plain = list(read_segments(segments, notes.append))
    skips: list[Skip] = []
    assert list(read_undamaged(segments, notes.append, skips.append)) == plain
    assert (notes[1:], skips) == (notes[:1], [])


ONE, OTHER = (7, 0), (8, 0)
LOST = batch(90, RECORDS)[:-1] + b"?"


def put(*parts: bytes) -> list[bytes]:
    """Number the batches one after the other: each has one offset."""
    return [struct.pack(">q", at) + part[8:] for at, part in enumerate(parts)]


def data(producer: tuple[int, int]) -> bytes:
    return batch(0, RECORDS[:1], TRANSACTIONAL, producer)


@pytest.mark.parametrize(
    ("log", "committed", "unknown"),
    [
        # The marker after a lost batch ends the transaction, whatever that batch was.
        ([data(ONE), LOST, marker(0, COMMIT, ONE), data(OTHER), marker(0, COMMIT, OTHER)], [0, 3], {}),
        ([data(ONE), LOST, marker(0, ABORT, ONE), batch(0, RECORDS[:1])], [3], {}),
        # Was it the marker? Then the second marker is another transaction's.
        ([data(ONE), LOST, data(ONE), marker(0, COMMIT, ONE)], [2], {7: [(0, 1)]}),
        ([data(ONE), LOST, data(ONE), marker(0, ABORT, ONE)], [], {7: [(0, 1)]}),
        # It does not block the log, as an open transaction does.
        ([data(ONE), LOST, batch(0, RECORDS[:1])], [2], {7: [(0, 1)]}),
        ([LOST, data(ONE), batch(0, RECORDS[:1])], [], {}),
        # Two lost batches may have been a marker and another transaction's start.
        ([data(ONE), LOST, LOST, marker(0, COMMIT, ONE), batch(0, RECORDS[:1])], [4], {7: [(0, 1)]}),
    ],
)
def test_transactions_whose_end_may_be_lost(
    tmp_path: Path, log: list[bytes], committed: list[int], unknown: dict[int, list[tuple[int, int]]]
) -> None:
    write_segment(tmp_path / "__consumer_offsets-0", 0, *put(*log))
    (partition,) = find_partitions([tmp_path])
    notes: list[str] = []
    transactions, batches = find_surviving(partition, notes.append, lambda _: None)
    assert [each.base_offset for each in transactions.committed(batches)] == committed
    assert transactions.unknown == unknown
    assert len(notes) == len(unknown)
