"""Kafka's log segments (`00000000000000000000.log`) as record batches, each checked against its checksum."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

from offsetstream.codec.batch_format import (
    CHECKED_FROM,
    CHECKSUM_AT,
    HEADER_BYTES,
    LAST_DELTA_AT,
    MAGIC,
    may_be_of_transaction,
    read_batch,
)
from offsetstream.codec.crc32c import crc32c
from offsetstream.codec.message_format import SMALLEST_SIZE, read_message
from offsetstream.codec.record_batches import RecordBatch
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import SegmentError

WINDOW_BYTES = 4 << 20  # read, and checked, at once; more where a batch is larger
_PLACE = struct.Struct(">qi")  # base offset, size of what follows: in every format
_MAGIC_AT = 16
_HEAD = _MAGIC_AT + 1  # what a broker reads of a batch to see how it goes on

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file, and how many of its bytes are read: those that it had when it was found."""

    path: Path
    size: int


class _Frame(NamedTuple):
    """A batch's bytes, and where in the file they begin."""

    position: int
    data: bytes


def read_segments(
    segments: Sequence[Segment], report: Report, *, transactions_only: bool = False
) -> Iterator[RecordBatch]:
    """Read the segments of one partition, given in the order of their offsets, as one log.

    A cleaner that was interrupted leaves segments with the same offsets: whatever lies below an offset that was read
    is left out. `report` is told where the last segment ends within a batch, as that of a broker that runs or
    crashed may. With `transactions_only` only transactional and control batches are read, and records of the latter
    alone. Raises SegmentError for a damaged batch, a file that is no segment, and a hole: a segment that ends within
    a batch although others follow it.
    """
    next_offset = 0
    for number, segment in enumerate(segments, 1):
        told = report if number == len(segments) else _refuse
        for batch in read_segment(segment, told, transactions_only=transactions_only):
            if batch.next_offset <= next_offset:
                continue
            if batch.base_offset < next_offset:
                kept = tuple(record for record in batch.records if record.offset >= next_offset)
                yield replace(batch, base_offset=next_offset, records=kept)
            else:
                yield batch
            next_offset = batch.next_offset


def read_segment(segment: Segment, report: Report, *, transactions_only: bool = False) -> Iterator[RecordBatch]:
    """Read the batches of one segment as they lie in it; see `read_segments`."""
    next_offset = 0
    path = segment.path
    try:
        with path.open("rb") as file:
            for frames in _windows(segment, file, report, transactions_only):
                for frame, fits in zip(frames, _fit_their_checksums(frames), strict=True):
                    batch = _batch(path, frame, fits, with_data=not transactions_only)
                    if batch.base_offset < next_offset:
                        raise _damaged(path, frame, f"it comes after offset {next_offset - 1}")
                    next_offset = batch.next_offset
                    yield batch
    except OSError as error:
        raise SegmentError(f"cannot read {path}: {error.strerror or error}") from error


def _windows(segment: Segment, file: BinaryIO, report: Report, transactions_only: bool) -> Iterator[list[_Frame]]:
    """Cut the file into batches: as many at a time as a window holds."""
    path, data = segment.path, b""
    position, wanted = 0, WINDOW_BYTES
    while read := file.read(min(wanted, segment.size - position - len(data))):
        data += read
        frames, end = _whole_batches(position, data, transactions_only)
        yield frames
        position, data = position + end, data[end:]
        if data.startswith(bytes(_HEAD)):
            _pass_zeros(_Frame(position, data), segment, file, report)
            return
        wanted = max(WINDOW_BYTES, _missing(path, _Frame(position, data)))
    if _has_successor(data):
        raise _damaged(path, _Frame(position, data), "its length reaches beyond the file, but another batch follows it")
    if data:
        report(f"{path} ends within a batch: its last {len(data)} bytes, from position {position}, are not read")


def _whole_batches(position: int, data: bytes, transactions_only: bool) -> tuple[list[_Frame], int]:
    """Return the whole batches in the data, which begins at a position of the file, and where they end in it."""
    frames, at, length = [], 0, len(data)
    while at + _HEAD <= length:
        offset, size = _PLACE.unpack_from(data, at)
        end = at + _PLACE.size + size
        if end > length or offset < 0 or size < SMALLEST_SIZE or data[at + _MAGIC_AT] > MAGIC:
            break
        if not transactions_only or may_be_of_transaction(data, at):
            frames.append(_Frame(position + at, data[at:end]))
        at = end
    return frames, at


def _missing(path: Path, start: _Frame) -> int:
    """Return how many bytes of a batch are missing, 0 if that is not known yet. Raises SegmentError if it is none."""
    if len(start.data) < _HEAD:
        return 0
    offset, size = _PLACE.unpack_from(start.data)
    if offset >= 0 and size >= SMALLEST_SIZE and start.data[_MAGIC_AT] <= MAGIC:
        return _PLACE.size + int(size) - len(start.data)
    if start.position == 0:
        raise SegmentError(f"{path} is no log segment of Kafka's: it does not begin with a batch of records")
    raise _damaged(path, start, "neither its size nor its format is one of Kafka's")


def _has_successor(data: bytes) -> bool:
    """Whether a batch that seems to be cut off is followed by the next one of the log: then its length is wrong."""
    if not _has_crc32c(data):
        return False
    offset = _PLACE.unpack_from(data)[0] + int.from_bytes(data[LAST_DELTA_AT : LAST_DELTA_AT + 4], "big") + 1
    begin = offset.to_bytes(9, "big")[1:]
    at = data.find(begin, HEADER_BYTES)
    while 0 <= at <= len(data) - HEADER_BYTES:
        batch = data[at : at + _PLACE.size + max(0, _PLACE.unpack_from(data, at)[1])]
        if _has_crc32c(batch) and all(_fit_their_checksums([_Frame(at, batch)])):
            return True
        at = data.find(begin, at + 1)
    return False


def _pass_zeros(start: _Frame, segment: Segment, file: BinaryIO, report: Report) -> None:
    """Pass the space that a broker has reserved: zeros to the end of the file."""
    data, end = start.data, start.position
    while data:
        if data.strip(b"\0"):
            raise _damaged(segment.path, start, "zeros stand in its place")
        end += len(data)
        data = file.read(min(WINDOW_BYTES, segment.size - end))
    count = end - start.position
    report(f"{segment.path} ends in {count} zero bytes, from position {start.position}: nothing was written there yet")


def _fit_their_checksums(frames: Sequence[_Frame]) -> list[bool]:
    """Tell of each batch whether its CRC-32C is right; older formats have another checksum, and check it themselves."""
    present = [frame.data for frame in frames if _has_crc32c(frame.data)]
    expected = [int.from_bytes(data[CHECKSUM_AT:CHECKED_FROM], "big") for data in present]
    fits = iter((crc32c([memoryview(data)[CHECKED_FROM:] for data in present]) == expected).tolist())
    return [not _has_crc32c(frame.data) or next(fits) for frame in frames]


def _has_crc32c(data: bytes) -> bool:
    return len(data) >= HEADER_BYTES and data[_MAGIC_AT] == MAGIC


def _batch(path: Path, frame: _Frame, fits: bool, *, with_data: bool) -> RecordBatch:
    if not fits:
        raise _damaged(path, frame, "its bytes do not fit their checksum (CRC-32C)")
    try:
        return (
            read_batch(frame.data, with_data=with_data) if frame.data[_MAGIC_AT] == MAGIC else read_message(frame.data)
        )
    except DecodeError as reason:
        raise _damaged(path, frame, str(reason)) from reason


def _damaged(path: Path, frame: _Frame, reason: str) -> SegmentError:
    offset = int.from_bytes(frame.data[:8], "big", signed=True)
    return SegmentError(f"{path}: the batch at position {frame.position} (offset {offset}) is damaged: {reason}")


def _refuse(note: str) -> NoReturn:
    raise SegmentError(f"{note}, and other segments follow: copy this one again")
