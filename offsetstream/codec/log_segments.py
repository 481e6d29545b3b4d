"""Find Kafka's log segments (`00000000000000000000.log`), read them as record batches, and check each checksum.

`find_transactions` tells what a consumer with `isolation.level=read_committed` reads of them (KIP-98).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

from offsetstream.codec.batches import (
    HEADER_BYTES,
    LAST_DELTA_AT,
    MAGIC,
    MAGIC_AT,
    PREFIX,
    SMALLEST_SIZE,
    ControlType,
    Extent,
    Header,
    RecordBatch,
    control_type,
    has_crc32c,
    is_transactional_or_control,
    matches_checksum,
    read_batch,
)
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import SegmentError, UsageError

WINDOW_BYTES = 4 << 20  # bytes to read and check at a time; more if a batch is larger
_HEADER_UP_TO_MAGIC = MAGIC_AT + 1  # offset, size and magic: what a broker reads first
# A .swap file is a cleaned segment that is about to replace older ones; a broker finishes this when it starts.
# Indexes, snapshots, *.cleaned and *.deleted files are not part of the log.
SEGMENT_NAME = re.compile(r"(\d{20})\.log(\.swap)?")
_PARTITION = re.compile(r".+-(\d{1,9})")
OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_PARTITION = f"{OFFSETS_TOPIC}-[0-9]*"
_EXAMPLE = f"{OFFSETS_TOPIC}-12"
_ADVICE = f"give a log segment, a folder of segments, or a folder that contains folders such as {_EXAMPLE}"

Report = Callable[[str], None]
_AtEnd = Callable[[int, str, str], None]  # gets the position of what a segment ends in, what it is, and a sentence


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file. Only its first `size` bytes are read: its size when it was found."""

    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class LogPartition:
    """The segments of a partition in offset order. `number` is None if no folder name has it."""

    number: int | None
    segments: tuple[Segment, ...]
    path: Path


def find_partitions(places: Sequence[str | Path]) -> list[LogPartition]:
    """Find the log segments in files and folders, by partition.

    Each place is a segment file, a folder of segments, or a folder that contains folders of offsets partitions, at any
    depth. Raises UsageError if a place has no segments, or if two places have the same partition.
    """
    found = _found(places)
    for one, other in pairwise(found):
        if one.number == other.number:
            places = f"{one.path} and {other.path}"
            if one.number is None:
                raise UsageError(f"{places}: no folder name has a partition number; read them one at a time")
            raise UsageError(f"{places} both hold partition {one.number}: read them one at a time")
    return found


def find_replicas(places: Sequence[str | Path]) -> list[LogPartition]:
    """Find the same, in the order of their numbers, where several places may have replicas of a partition.

    Raises UsageError if a place has no segments, or if no folder name has the number of a partition.
    """
    found = _found(places)
    for partition in found:
        if partition.number is None:
            raise UsageError(f"{partition.path}: its folder's name has no partition number, as in {_EXAMPLE}")
    return found


def _found(places: Sequence[str | Path]) -> list[LogPartition]:
    found = (each for place in places for each in _partitions_at(Path(place)))
    return sorted(found, key=lambda partition: -1 if partition.number is None else partition.number)


def _partitions_at(place: Path) -> list[LogPartition]:
    try:
        if not place.is_dir():
            return [LogPartition(_number(place.resolve().parent), (_segment(place),), place)]
        below = (path for path in place.rglob(_OFFSETS_PARTITION) if _number(path) is not None and path.is_dir())
        folders = [place] if _segments(place) else list(below)
        found = [LogPartition(_number(folder.resolve()), _segments(folder), folder) for folder in folders]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {place}: {reason}; {_ADVICE}") from error
    if not found:
        raise UsageError(f"{place} has no log segments: {_ADVICE}")
    return found


def _number(folder: Path) -> int | None:
    named = _PARTITION.fullmatch(folder.name)
    return int(named[1]) if named else None


def _segment(path: Path) -> Segment:
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file or a folder: {_ADVICE}")
    return Segment(path, path.stat().st_size)


def _segments(folder: Path) -> tuple[Segment, ...]:
    """Return a folder's segments. If two start at the same offset, the cleaned one (.swap) comes first."""
    named = ((SEGMENT_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    segments = [(int(match[1]), match[2] is None, path) for match, path in named if match]
    return tuple(_segment(path) for *_, path in sorted(segments))


@dataclass(frozen=True, slots=True)
class Skip:
    """Bytes of a segment that were skipped, from `position` to `end`.

    `first_offset` is the first offset that may be missing, `next_offset` the next one that is not; None if unknown.
    `is_one_batch`: the log continues where this batch ends by its own length.
    """

    path: Path
    position: int
    end: int
    reason: str
    is_one_batch: bool = False
    is_rest: bool = False
    first_offset: int | None = None
    next_offset: int | None = None

    def __str__(self) -> str:
        rest = ", the rest of the segment" if self.is_rest else ""
        count = self.end - self.position
        return f"{self.path}: skipped {count} bytes at position {self.position}{rest}: {self.reason}; {self._missing()}"

    def _missing(self) -> str:
        if self.next_offset is None:
            return "offsets are missing at the end of the log" + (
                "" if self.first_offset is None else f", from {self.first_offset} on"
            )
        if self.first_offset is None:
            return f"offsets before {self.next_offset} are missing"
        if self.next_offset <= self.first_offset:
            return "no offset is missing"
        return f"offsets {self.first_offset} to {self.next_offset - 1} are missing"


class DamagedBatchError(SegmentError):
    """A batch is damaged, or no batch is where one should be: its position in the file, and why."""

    def __init__(self, message: str, position: int, reason: str) -> None:
        super().__init__(message)
        self.position, self.reason = position, reason


class Frame(NamedTuple):
    """A batch's bytes, and their position in the file."""

    position: int
    data: bytes


class Window(NamedTuple):
    """Some batches of a segment, whose checksums are not checked yet."""

    path: Path
    frames: list[Frame]

    def checked(self) -> Iterator[Frame]:
        """Yield the batches. Raises DamagedBatchError at one whose CRC-32C does not match."""
        for frame in self.frames:
            if not matches_checksum(frame.data):
                raise _damaged(self.path, frame, "its checksum (CRC-32C) does not match")
            yield frame

    def batch(self, frame: Frame, *, with_data: bool = True) -> RecordBatch:
        """Read a batch as `read_batch` does. Raises DamagedBatchError."""
        try:
            return read_batch(frame.data, with_data=with_data)
        except DecodeError as reason:
            raise _damaged(self.path, frame, str(reason)) from reason

    def extent(self, frame: Frame) -> Extent:
        """Return which offsets a batch covers. Raises DamagedBatchError."""
        if frame.data[MAGIC_AT] == MAGIC and len(frame.data) >= HEADER_BYTES:
            extent = Extent.of(frame.data)
            if extent.next_offset > extent.base_offset and extent.records >= 0:
                return extent
        batch = self.batch(frame)
        times = [-1, *(each.timestamp_ms for each in batch.records if each.timestamp_ms is not None)]
        return Extent(batch.base_offset, batch.next_offset, len(batch.records), max(times))


def read_segments(
    segments: Sequence[Segment], report: Report, *, transactions_only: bool = False
) -> Iterator[RecordBatch]:
    """Read the segments of one partition as one log. They must be in offset order.

    An interrupted log cleaner leaves segments with the same offsets: records below an offset that was already read are
    skipped. `report` gets a sentence if the last segment ends within a batch, as it can on a running or crashed broker.
    With `transactions_only`, only transactional and control batches are read, and only the records of control batches.
    Raises SegmentError for a damaged batch, for a file that is not a segment, and for a gap: a segment that ends within
    a batch although other segments follow.
    """
    next_offset = 0
    for number, segment in enumerate(segments, 1):
        at_end = partial(_at_end, report if number == len(segments) else None)
        end = 0  # of the offsets in this file
        for position, batch in read_batches(segment, at_end, transactions_only=transactions_only):
            require_order(segment.path, position, batch.base_offset, end)
            end = batch.next_offset
            if kept := without_earlier(batch, next_offset):
                yield kept
                next_offset = batch.next_offset


def require_order(path: Path, position: int, offset: int, end: int) -> None:
    """Raise DamagedBatchError if a batch begins before the offset `end` of the batch before it in the same file."""
    if offset < end:
        raise _damaged_batch(path, position, offset, f"the batch before it ends at offset {end - 1}")


def without_earlier(batch: RecordBatch, offset: int) -> RecordBatch | None:
    """Return the part of a batch from an offset on, None if it is before it."""
    if batch.next_offset <= offset:
        return None
    if batch.base_offset >= offset:
        return batch
    return replace(batch, base_offset=offset, records=tuple(each for each in batch.records if each.offset >= offset))


def read_batches(
    segment: Segment, at_end: _AtEnd, *, start: int = 0, transactions_only: bool = False
) -> Iterator[tuple[int, RecordBatch]]:
    """Read the batches of one segment from a position on, each with its position in the file, in the file's order.

    `at_end` is called if the segment ends within a batch, or in zeros. Raises DamagedBatchError. See `read_segments`.
    """
    for window in _windows(segment, at_end, start, transactions_only):
        for frame in window.checked():
            yield frame.position, window.batch(frame, with_data=not transactions_only)


def read_windows(segments: Sequence[Segment], report: Report) -> Iterator[Window]:
    """Read the segments of one partition in offset order, as `read_segments` does, but check no batch.

    After an interrupted log cleaner, segments may have the same offsets twice.
    """
    for number, segment in enumerate(segments, 1):
        yield from _windows(segment, partial(_at_end, report if number == len(segments) else None))


def _windows(segment: Segment, at_end: _AtEnd, start: int = 0, transactions_only: bool = False) -> Iterator[Window]:
    """Yield the batches of a segment from a position on, some megabytes at a time."""
    try:
        with segment.path.open("rb") as file:
            file.seek(start)
            for frames in _frames(segment, file, start, at_end, transactions_only):
                yield Window(segment.path, frames)
    except OSError as error:
        raise SegmentError(f"cannot read {segment.path}: {error.strerror or error}") from error


def _frames(
    segment: Segment, file: BinaryIO, start: int, at_end: _AtEnd, transactions_only: bool
) -> Iterator[list[Frame]]:
    path, data = segment.path, b""
    position, wanted = start, WINDOW_BYTES
    while read := file.read(min(wanted, segment.size - position - len(data))):
        data += read
        frames, end = _complete_batches(position, data, transactions_only)
        yield frames
        position, data = position + end, data[end:]
        if data.startswith(bytes(_HEADER_UP_TO_MAGIC)):
            _skip_zeros(Frame(position, data), segment, file, at_end)
            return
        wanted = max(WINDOW_BYTES, _missing_bytes(path, Frame(position, data)))
    if _has_successor(data):
        raise _damaged(
            path, Frame(position, data), "its length goes beyond the end of the file, but another batch follows it"
        )
    if data:
        note = f"{path} ends within a batch: its last {len(data)} bytes, from position {position}, are not read"
        at_end(position, "the segment ends within a batch", note)


def _complete_batches(position: int, data: bytes, transactions_only: bool) -> tuple[list[Frame], int]:
    """Return the complete batches in `data`, and where they end in it. `data` starts at `position` in the file."""
    frames, at, length = [], 0, len(data)
    while at + _HEADER_UP_TO_MAGIC <= length:
        offset, size = PREFIX.unpack_from(data, at)
        end = at + PREFIX.size + size
        if end > length or offset < 0 or size < SMALLEST_SIZE or data[at + MAGIC_AT] > MAGIC:
            break
        if not transactions_only or is_transactional_or_control(data, at):
            frames.append(Frame(position + at, data[at:end]))
        at = end
    return frames, at


def _missing_bytes(path: Path, start: Frame) -> int:
    """Return how many bytes of a batch are missing, 0 if unknown yet. Raises SegmentError if it is not a batch."""
    if len(start.data) < _HEADER_UP_TO_MAGIC:
        return 0
    offset, size = PREFIX.unpack_from(start.data)
    if offset >= 0 and size >= SMALLEST_SIZE and start.data[MAGIC_AT] <= MAGIC:
        return PREFIX.size + int(size) - len(start.data)
    if start.position == 0:
        reason = "it does not start with a record batch"
        raise DamagedBatchError(f"{path} is not a Kafka log segment: {reason}", 0, reason)
    raise _damaged(path, start, "its size or its format is not valid")


def _has_successor(data: bytes) -> bool:
    """Whether the next batch of the log follows inside a batch that seems incomplete. If so, its length is wrong."""
    if not has_crc32c(data):
        return False
    offset = PREFIX.unpack_from(data)[0] + int.from_bytes(data[LAST_DELTA_AT : LAST_DELTA_AT + 4], "big") + 1
    next_batch_start = offset.to_bytes(9, "big")[1:]
    at = data.find(next_batch_start, HEADER_BYTES)
    while 0 <= at <= len(data) - HEADER_BYTES:
        batch = data[at : at + PREFIX.size + max(0, PREFIX.unpack_from(data, at)[1])]
        if has_crc32c(batch) and matches_checksum(batch):
            return True
        at = data.find(next_batch_start, at + 1)
    return False


def _skip_zeros(start: Frame, segment: Segment, file: BinaryIO, at_end: _AtEnd) -> None:
    """Skip space that a broker has preallocated: zeros up to the end of the file."""
    data, end = start.data, start.position
    while data:
        if data.strip(b"\0"):
            raise _damaged(segment.path, start, "it starts with zeros, but other bytes follow")
        end += len(data)
        data = file.read(min(WINDOW_BYTES, segment.size - end))
    count = end - start.position
    note = f"{segment.path} ends in {count} zero bytes, from position {start.position}: nothing was written there yet"
    at_end(start.position, "the segment ends in zeros", note)


def _damaged(path: Path, frame: Frame, reason: str) -> DamagedBatchError:
    return _damaged_batch(path, frame.position, int.from_bytes(frame.data[:8], "big", signed=True), reason)


def _damaged_batch(path: Path, position: int, offset: int, reason: str) -> DamagedBatchError:
    """Return the error of a damaged batch."""
    message = f"{path}: the batch at position {position} (offset {offset}) is damaged: {reason}"
    return DamagedBatchError(message, position, reason)


def _at_end(report: Report | None, _position: int, _reason: str, note: str) -> None:
    """Report what a log's last segment ends in. For another segment it is a gap in the log."""
    if report is None:
        raise SegmentError(f"{note}, and other segments follow: copy this segment again")
    report(note)


@dataclass(frozen=True)
class Transactions:
    """The transactions of a log: where the first open one starts, and which were aborted."""

    first_open_offset: int | None = None
    """The first offset of the earliest transaction that is still open; None if none is."""
    aborted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By producer id: first offset and marker offset of each aborted transaction, in log order."""
    unknown: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By producer id: first offset and end of the records whose transaction's marker may be in a skipped part."""

    def committed(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the data batches before the first open transaction, without those of aborted transactions."""
        for batch in batches:
            if self.first_open_offset is not None and batch.base_offset >= self.first_open_offset:
                return
            if self.counts(batch):
                yield batch

    def counts(self, batch: RecordBatch | Header) -> bool:
        """Return whether a batch has records that are not aborted; those of an open transaction are not checked."""
        return not batch.is_control and not _is_in(self.aborted, batch) and not _is_in(self.unknown, batch)

    def known(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield the batches without those whose transaction's end is unknown."""
        return (batch for batch in batches if batch.is_control or not _is_in(self.unknown, batch))


def _is_in(ranges_by_producer: dict[int, list[tuple[int, int]]], batch: RecordBatch | Header) -> bool:
    ranges = ranges_by_producer.get(batch.producer_id, [])
    after = bisect_right(ranges, batch.base_offset, key=lambda each: each[0])
    return batch.is_transactional and after > 0 and batch.base_offset < ranges[after - 1][1]


class _Doubts:
    """The transactions whose markers may be in skipped parts of the log.

    The next marker after a skipped batch ends the transaction, unless that batch was a marker and another transaction
    of the producer started after it. So the records before it are in doubt once the producer writes again, or if no
    marker follows. Within more than one skipped batch, another transaction may even have started.
    """

    def __init__(self, skips: Sequence[Skip], opened: dict[int, int]) -> None:
        self.unknown: dict[int, list[tuple[int, int]]] = {}
        self._skips, self._opened, self._seen = skips, opened, 0
        self._suspect: dict[int, int] = {}  # by producer: the first offset that may be missing

    def skip(self) -> None:
        """Note what was skipped since the batch before."""
        for skipped in self._skips[self._seen :]:
            for producer in list(self._opened):
                is_second = producer in self._suspect
                self._suspect.setdefault(producer, skipped.first_offset or 0)
                if is_second or not skipped.is_one_batch:
                    self.give_up(producer)
        self._seen = len(self._skips)

    def give_up(self, producer: int) -> None:
        """Take the records of the producer's open transaction before the skipped part as unknown, if there is one."""
        if producer in self._suspect:
            part = (self._opened.pop(producer), self._suspect.pop(producer))
            self.unknown.setdefault(producer, []).append(part)

    def end(self, producer: int) -> None:
        """Note that a marker has ended the producer's transaction."""
        self._suspect.pop(producer, None)

    def give_up_all(self) -> None:
        """Take what is open at the end of the log as unknown, where a part was skipped since."""
        self.skip()
        for producer in list(self._suspect):
            self.give_up(producer)


def find_transactions(batches: Iterable[RecordBatch], skips: Sequence[Skip] = ()) -> Transactions:
    """Find the transactions of a complete log. Its non-transactional batches may be missing.

    `skips` grows before a batch if a part of the log before it could not be read.
    """
    opened: dict[int, int] = {}
    aborted: dict[int, list[tuple[int, int]]] = {}
    doubts = _Doubts(skips, opened)
    for batch in batches:
        doubts.skip()
        if batch.is_transactional and not batch.is_control:
            doubts.give_up(batch.producer_id)
            opened.setdefault(batch.producer_id, batch.base_offset)
        ended = {control_type(record) for record in batch.records} if batch.is_control else set()
        if ended & set(ControlType) and batch.producer_id in opened:
            first = opened.pop(batch.producer_id)
            doubts.end(batch.producer_id)
            if ControlType.ABORT in ended:
                aborted.setdefault(batch.producer_id, []).append((first, batch.base_offset))
    doubts.give_up_all()
    return Transactions(min(opened.values(), default=None), aborted, doubts.unknown)
