"""Segments are found in a broker's folders, and read as batches: every format and compression, damage, and gaps."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from offsetstream.codec import log_segments
from offsetstream.codec.batches import ControlType, LogRecord, RecordBatch, control_type
from offsetstream.codec.log_segments import Segment, find_partitions, read_segments
from offsetstream.errors import SegmentError, UsageError
from testkit.segments import (
    COMMIT,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    batch,
    marker,
    message,
    record,
    write_segment,
)

RECORDS = [(b"k0", b"v0"), (b"k1", None), (None, b""), (b"", b"x" * 200)]


def read(*paths: Path, expected_notes: list[str] | None = None, transactions_only: bool = False) -> list[RecordBatch]:
    segments = [Segment(path, path.stat().st_size) for path in paths]
    notes: list[str] = []
    found = list(read_segments(segments, notes.append, transactions_only=transactions_only))
    assert notes == (expected_notes or [])
    return found


def content(batches: list[RecordBatch]) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    return [(r.offset, r.timestamp_ms, r.key, r.value) for each in batches for r in each.records]


def snappy(data: bytes) -> bytes:
    block: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return block


def xerial(data: bytes) -> bytes:
    """Compress as Java's SnappyOutputStream does, in blocks of 100 bytes."""
    blocks = [snappy(data[at : at + 100]) for at in range(0, len(data), 100)]
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"".join(struct.pack(">i", len(each)) + each for each in blocks)


def stream(name: str, data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as out:
        out.write(data)
    written: bytes = sink.getvalue().to_pybytes()
    return written


COMPRESSIONS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, bytes),
    "gzip": (1, gzip.compress),
    "snappy": (2, xerial),
    "snappy as one block": (2, snappy),
    "lz4": (3, lambda data: stream("lz4", data)),
    "zstd": (4, lambda data: stream("zstd", data)),
}


def test_a_batch_of_format_2(tmp_path: Path) -> None:
    data = batch(40, RECORDS, TRANSACTIONAL, (77, 3), base_ms=1000)
    records = [LogRecord(40 + at, 1000 + at, *each) for at, each in enumerate(RECORDS)]
    assert read(write_segment(tmp_path, 40, data)) == [
        RecordBatch(40, 44, tuple(records), 77, 3, is_transactional=True, size=len(data))
    ]


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_every_compression_of_format_2(tmp_path: Path, name: str) -> None:
    kind, compress = COMPRESSIONS[name]
    body = b"".join(record(at, *each, delta_ms=at) for at, each in enumerate(RECORDS))
    path = write_segment(tmp_path, 0, batch(0, RECORDS), batch(4, RECORDS, kind, body=compress(body), last_delta=3))
    plain, compressed = read(path)
    expected = [(4 + offset, ms, key, value) for offset, ms, key, value in content([plain])]
    assert content([compressed]) == expected


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("name", [name for name in COMPRESSIONS if name != "zstd"])
def test_messages_of_formats_0_and_1(tmp_path: Path, magic: int, name: str) -> None:
    kind, compress = COMPRESSIONS[name]
    # In format 1 the inner offsets are relative to the first message; compaction removed offset 11.
    inner = b"".join(message(at if magic else 10 + at, magic, *RECORDS[at]) for at in (0, 2, 3))
    wrapped = message(13, magic, None, compress(inner), kind) if kind else None
    plain = b"".join(message(10 + at, magic, *RECORDS[at]) for at in (0, 2, 3))
    batches = read(write_segment(tmp_path, 10, wrapped or plain))
    assert [(each.base_offset, each.next_offset) for each in batches] == (
        [(10, 14)] if kind else [(10, 11), (12, 13), (13, 14)]
    )
    assert content(batches) == [(10 + at, 5 if magic else None, *RECORDS[at]) for at in (0, 2, 3)]


def test_the_wrong_checksum_that_kafka_wrote_in_lz4_frames_of_format_0(tmp_path: Path) -> None:
    frame = bytearray(stream("lz4", message(0, 0, b"k", b"v" * 50)))
    frame = frame[:4] + b"\x60\x40\x82" + frame[7:] if frame[4:7] != b"\x60\x40\x82" else frame
    frame[6] ^= 0x55
    (found,) = read(write_segment(tmp_path, 0, message(0, 0, None, bytes(frame), 3)))
    assert found.records == (LogRecord(0, None, b"k", b"v" * 50),)


def test_log_append_time_replaces_the_records_timestamps(tmp_path: Path) -> None:
    inner = message(0, 1, b"a", b"b", ms=1) + message(1, 1, b"c", b"d", ms=2)
    path = write_segment(
        tmp_path,
        0,
        batch(0, RECORDS, LOG_APPEND_TIME, max_ms=4444),
        message(5, 1, None, gzip.compress(inner), 1 | LOG_APPEND_TIME, ms=5555),
        batch(6, RECORDS[:2], base_ms=-1),
    )
    assert [ms for _, ms, *_ in content(read(path))] == [*[4444] * 4, 5555, 5555, None, 0]


def test_compacted_batches_keep_their_offsets(tmp_path: Path) -> None:
    path = write_segment(
        tmp_path,
        0,
        batch(10, [RECORDS[0], RECORDS[1]], DELETE_HORIZON, base_ms=99_000, deltas=[3, 300], last_delta=999),
        batch(1010, [], TRANSACTIONAL, (7, 0), last_delta=4),
        batch(1015, [], 1, last_delta=0),
        marker(1016, COMMIT, (7, 0)),
    )
    first, empty, _, last = read(path)
    assert [(r.offset, r.timestamp_ms) for r in first.records] == [(13, 99_003), (310, 99_300)]
    assert (first.base_offset, first.next_offset) == (10, 1010)
    assert (empty.records, empty.next_offset, empty.producer_id, empty.is_transactional) == ((), 1015, 7, True)
    assert (last.is_control, last.is_transactional, last.producer_id) == (True, True, 7)
    assert control_type(last.records[0]) == ControlType.COMMIT


def test_record_headers_are_skipped(tmp_path: Path) -> None:
    body = record(0, b"k", b"v", headers=[(b"h", b"1"), (b"", None)]) + record(1, b"l", b"w")
    path = write_segment(tmp_path, 0, batch(0, [(b"k", b"v")] * 2, body=body))
    assert content(read(path)) == [(0, 1000, b"k", b"v"), (1, 1000, b"l", b"w")]


def test_transactions_only_skips_other_batches(tmp_path: Path) -> None:
    path = write_segment(
        tmp_path,
        0,
        message(0, 1, b"k", b"v"),
        batch(1, RECORDS),
        batch(5, RECORDS, TRANSACTIONAL, (7, 0)),
        marker(9, COMMIT, (7, 0)),
    )
    data, end = read(path, transactions_only=True)
    assert (data.base_offset, data.records, end.base_offset) == (5, (), 9)
    assert len(end.records) == 1


def test_a_segment_cut_at_any_byte_gives_its_complete_batches(tmp_path: Path) -> None:
    batches = [
        batch(0, RECORDS),
        marker(4, COMMIT, (7, 0)),
        message(5, 0, b"k", b"v"),
        batch(6, [], last_delta=0),
        message(7, 1, None, None),
        batch(8, RECORDS),
    ]
    path = write_segment(tmp_path, 0, *batches)
    whole, data = read(path), path.read_bytes()
    ends = [sum(map(len, batches[:count])) for count in range(len(batches) + 1)]
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        count = max(at for at, end in enumerate(ends) if end <= cut)
        note = (
            f"{path} ends within a batch: its last {cut - ends[count]} bytes, from position {ends[count]}, are not read"
        )
        assert read(path, expected_notes=[note] if cut != ends[count] else []) == whole[:count]


def test_a_gap_between_segments_is_refused(tmp_path: Path) -> None:
    first = write_segment(tmp_path, 0, batch(0, RECORDS)[:-1])
    with pytest.raises(SegmentError, match=r"ends within a batch: .* other segments follow: copy this segment again"):
        read(first, write_segment(tmp_path, 4, batch(4, RECORDS)))


@pytest.mark.parametrize("count", [1, 16, 17, 100, 100_000])
def test_preallocated_space_is_skipped(tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_segments, "WINDOW_BYTES", 1000)
    data = batch(0, RECORDS)
    path = write_segment(tmp_path, 0, data, bytes(count))
    note = f"{path} ends in {count} zero bytes, from position {len(data)}: nothing was written there yet"
    if count < 17:
        note = f"{path} ends within a batch: its last {count} bytes, from position {len(data)}, are not read"
    assert len(read(path, expected_notes=[note])) == 1
    if count >= 17:
        write_segment(tmp_path, 0, data, bytes(count), batch(4, RECORDS))
        with pytest.raises(SegmentError, match=rf"position {len(data)} .*: it starts with zeros"):
            read(path)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    before, after = batch(0, RECORDS[:1]), batch(6, RECORDS[:1])
    for damaged in (batch(1, RECORDS[:2], TRANSACTIONAL, (7, 0), last_delta=4), message(5, 0, b"k", b"v")):
        # No checksum covers the first twelve bytes: a wrong length is found by what follows, a wrong offset may not be.
        for bit in range(8 * 8, 8 * len(damaged)):
            flipped = bytearray(damaged)
            flipped[bit // 8] ^= 1 << bit % 8
            path = write_segment(tmp_path, 0, before, bytes(flipped), after)
            notes: list[str] = []
            found: list[RecordBatch] = []
            error = ""
            try:
                for each in read_segments([Segment(path, path.stat().st_size)], notes.append):
                    found.append(each)
            except SegmentError as raised:
                error = str(raised)
            if 12 * 8 <= bit < 16 * 8 and damaged[16] == 2:  # the leader epoch, which no checksum covers either
                assert (len(found), notes, error) == (3, [], "")
                continue
            assert len(found) == 1
            assert error or damaged[16] < 2  # in those formats a large length looks like a cut file
            assert f"position {len(before)}" in "".join([*notes, error])
            assert str(path) in "".join([*notes, error])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (batch(0, RECORDS, count=5), "truncated record 4 of 5"),
        (batch(0, RECORDS, count=3), "bytes are left after its 3 records"),
        (batch(0, RECORDS, count=-1), "negative number of records or offsets"),
        (batch(0, RECORDS, last_delta=-2), "negative number of records or offsets"),
        (batch(0, RECORDS, 5), "unknown compression type 5"),
        (batch(0, RECORDS, 1), r"cannot be decompressed \(gzip\)"),
        (batch(0, RECORDS, 2), r"cannot be decompressed \(snappy\)|varint|truncated"),
        (
            batch(0, RECORDS, 2, body=xerial(bytes(300))[:-1]),
            r"cannot be decompressed \(snappy\): a block is truncated",
        ),
        (batch(0, RECORDS, 3), r"cannot be decompressed \(lz4\)"),
        (batch(0, RECORDS, 4), r"cannot be decompressed \(zstd\)"),
        (batch(0, RECORDS, 4, body=stream("zstd", bytes(99))[:-5]), r"cannot be decompressed \(zstd\)"),
        (
            batch(0, [(b"k", b"v")], body=b"\x12" + record(0, b"k", b"v")[1:] + b"\0"),
            "states 9 bytes but has 8",
        ),
        (batch(0, [(b"k", b"v")], body=record(0, b"k", b"v", headers=[(None, b"")])), "a header has no key"),
        (batch(0, [(b"k", b"v")], body=b"\x0c\0\0\0\1\1\1"), "negative number of headers"),
        (batch(0, [(b"k", b"v")], body=b"\xff" * 20), "varint over ten bytes"),
        (message(0, 0, None, b"", 1), r"cannot be decompressed|is empty"),
        (message(0, 1, None, None, 1), "a compressed message has no value"),
        (message(0, 1, None, b"?", 4), "unknown compression type 4"),
        (message(0, 1, None, gzip.compress(message(0, 0, b"", b"")), 1), "or another format inside"),
        (message(0, 1, None, gzip.compress(b""), 1), "is empty"),
        (message(3, 1, None, gzip.compress(message(14, 1, b"", b"")), 1), "is below the offsets inside it"),
        (message(3, 1, None, gzip.compress(message(0, 1, b"", b"")[:-1]), 1), "is truncated"),
    ],
    ids=lambda cell: cell if isinstance(cell, str) else "data",
)
def test_damaged_batches_with_a_correct_checksum_are_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    before = batch(0, RECORDS[:1])
    path = write_segment(tmp_path, 0, before, struct.pack(">q", 9) + data[8:])
    with pytest.raises(SegmentError, match=reason) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}: the batch at position {len(before)} (offset 9) is damaged: ")


@pytest.mark.parametrize(
    "data", [b'{"partition":0,"offset":1}\n', b"\x7fELF" * 9, b"\0" * 12 + b"\1" * 9, b"PK\3\4" * 9]
)
def test_a_file_that_is_not_a_segment_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(SegmentError, match="file is not a Kafka log segment"):
        read(path)


def test_offsets_that_go_back_are_refused(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, batch(5, RECORDS), batch(8, RECORDS))
    with pytest.raises(SegmentError, match="the batch before it ends at offset 8"):
        read(path)


def test_segments_that_overlap_give_each_offset_once(tmp_path: Path) -> None:
    # A cleaner merged two segments and was killed before it deleted the second one.
    cleaned = write_segment(tmp_path, 0, batch(2, RECORDS[:1], last_delta=1), batch(6, RECORDS[:3]))
    left = write_segment(tmp_path, 4, batch(4, RECORDS), batch(8, RECORDS), batch(12, RECORDS))
    batches = read(cleaned, left)
    assert [offset for offset, *_ in content(batches)] == [2, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    assert [(each.base_offset, each.next_offset) for each in batches] == [(2, 4), (6, 9), (9, 12), (12, 16)]


@pytest.mark.parametrize("window", [1, 20, 61, 150, 1000])
def test_the_window_size_does_not_matter(tmp_path: Path, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(window)
    data, offset = [], 0
    for _ in range(40):
        records = [(rng.randbytes(4), rng.randbytes(rng.choice([0, 9, 500]))) for _ in range(rng.randint(1, 3))]
        data.append(batch(offset, records, rng.choice([0, TRANSACTIONAL]), (7, 0)))
        offset += len(records)
    path = write_segment(tmp_path, 0, *data, marker(offset, COMMIT, (7, 0)))
    whole = read(path)
    monkeypatch.setattr(log_segments, "WINDOW_BYTES", window)
    assert read(path) == whole
    assert [r.offset for each in whole for r in each.records] == list(range(offset + 1))


def test_a_segment_is_read_up_to_the_size_that_it_had_when_it_was_found(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, batch(0, RECORDS))
    found = Segment(path, path.stat().st_size)
    write_segment(tmp_path, 0, batch(0, RECORDS), batch(4, RECORDS))
    assert len(list(read_segments([found], pytest.fail))) == 1


def test_a_control_batch_without_records(tmp_path: Path) -> None:
    (found,) = read(write_segment(tmp_path, 0, batch(0, [], TRANSACTIONAL | CONTROL, (7, 0), last_delta=0)))
    assert (found.is_control, found.records) == (True, ())


DATA = batch(0, [(b"k", b"v")])


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A broker's log dir: three offsets partitions, other topics, and the other files next to the segments."""
    broker = tmp_path / "data" / "broker"  # its parent has nothing else
    for number in (2, 10, 1):
        for base in (0, 500):
            write_segment(broker / f"__consumer_offsets-{number}", base, DATA)
    write_segment(broker / "orders-0", 0, DATA)
    write_segment(broker / "__consumer_offsets-3.0a1b-delete", 0, DATA)
    write_segment(broker / "__consumer_offsets-4.0a1b-future", 0, DATA)
    folder = broker / "__consumer_offsets-2"
    for name in (
        *("00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000500.snapshot"),
        *("00000000000000000100.log.deleted", "00000000000000000000.log.cleaned", "leader-epoch-checkpoint"),
        *("partition.metadata", "0.log", "server.log"),
    ):
        (folder / name).write_bytes(b"?")
    return broker


def names(*places: Path) -> dict[int | None, list[str]]:
    return {each.number: [segment.path.name for segment in each.segments] for each in find_partitions(places)}


SEGMENTS = ["00000000000000000000.log", "00000000000000000500.log"]


def test_partitions_are_found_in_a_log_dir_and_in_folders_above_it(log_dir: Path) -> None:
    assert names(log_dir) == names(log_dir.parent) == {1: SEGMENTS, 2: SEGMENTS, 10: SEGMENTS}
    assert list(names(log_dir)) == [1, 2, 10]


def test_folders_and_single_files(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = log_dir / "__consumer_offsets-10"
    assert names(folder, log_dir / "__consumer_offsets-1") == {1: SEGMENTS, 10: SEGMENTS}
    assert names(folder / SEGMENTS[1]) == {10: [SEGMENTS[1]]}
    assert names(log_dir / "orders-0") == {0: SEGMENTS[:1]}
    monkeypatch.chdir(folder)
    assert names(Path()) == {10: SEGMENTS}
    assert names(Path(SEGMENTS[0])) == {10: SEGMENTS[:1]}
    (found,) = find_partitions([SEGMENTS[0]])
    assert found.segments[0].size == len(DATA)


def test_files_and_folders_with_other_names_have_no_partition_number(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "from a colleague", 0, DATA)
    assert names(path) == names(path.parent) == {None: SEGMENTS[:1]}


def test_a_swap_segment_comes_before_the_segments_that_it_replaces(log_dir: Path) -> None:
    folder = log_dir / "__consumer_offsets-1"
    (folder / "00000000000000000000.log.swap").write_bytes(DATA)
    assert names(folder) == {1: ["00000000000000000000.log.swap", *SEGMENTS]}


def test_places_without_usable_segments_are_refused(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    one, other = log_dir / "__consumer_offsets-1", log_dir / "other" / "__consumer_offsets-1"
    write_segment(other, 0, DATA)
    nameless = [write_segment(empty / name, 0, DATA) for name in ("a", "b")]
    for places, words in (
        ([tmp_path_factory.mktemp("bare")], "has no log segments: give a log segment, a folder"),
        ([empty / "none"], "cannot read .*none: No such file or directory; give a log segment"),
        ([Path("a\0b")], "cannot read a.b: .*null"),
        ([one, other], "both hold partition 1: read them one at a time"),
        ([log_dir], "both hold partition 1"),
        (nameless, "no folder name has a partition number"),
    ):
        with pytest.raises(UsageError, match=words):
            find_partitions(places)
