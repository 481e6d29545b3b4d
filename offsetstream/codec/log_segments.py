"""Read Kafka's log segments (`00000000000000000000.log`) as record batches, and check each batch's checksum."""

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
    is_transactional_or_control,
    read_batch,
)
from offsetstream.codec.crc32c import crc32c
from offsetstream.codec.message_format import SMALLEST_SIZE, read_message
from offsetstream.codec.record_batches import RecordBatch
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import SegmentError

WINDOW_BYTES = 4 << 20  # bytes to read and check at a time; more if a batch is larger
_PREFIX = struct.Struct(">qi")  # base offset, size of the rest: the same in every format
_MAGIC_AT = 16
_HEADER_UP_TO_MAGIC = _MAGIC_AT + 1  # offset, size and magic: what a broker reads first

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file. Only its first `size` bytes are read: its size when it was found."""

    path: Path
    size: int


class _Frame(NamedTuple):
    """A batch's bytes, and their position in the file."""

    position: int
    data: bytes


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
        report_end = report if number == len(segments) else _refuse_gap
        for batch in read_segment(segment, report_end, transactions_only=transactions_only):
            if batch.next_offset <= next_offset:
                continue
            if batch.base_offset < next_offset:
                kept = tuple(record for record in batch.records if record.offset >= next_offset)
                yield replace(batch, base_offset=next_offset, records=kept)
            else:
                yield batch
            next_offset = batch.next_offset


def read_segment(segment: Segment, report: Report, *, transactions_only: bool = False) -> Iterator[RecordBatch]:
    """Read the batches of one segment as they are in the file. See `read_segments`."""
    next_offset = 0
    path = segment.path
    try:
        with path.open("rb") as file:
            for frames in _windows(segment, file, report, transactions_only):
                for frame, matches in zip(frames, _match_checksums(frames), strict=True):
                    batch = _batch(path, frame, matches, with_data=not transactions_only)
                    if batch.base_offset < next_offset:
                        raise _damaged(path, frame, f"the batch before it ends at offset {next_offset - 1}")
                    next_offset = batch.next_offset
                    yield batch
    except OSError as error:
        raise SegmentError(f"cannot read {path}: {error.strerror or error}") from error


def _windows(segment: Segment, file: BinaryIO, report: Report, transactions_only: bool) -> Iterator[list[_Frame]]:
    """Yield the file's batches, a window of them at a time."""
    path, data = segment.path, b""
    position, wanted = 0, WINDOW_BYTES
    while read := file.read(min(wanted, segment.size - position - len(data))):
        data += read
        frames, end = _complete_batches(position, data, transactions_only)
        yield frames
        position, data = position + end, data[end:]
        if data.startswith(bytes(_HEADER_UP_TO_MAGIC)):
            _skip_zeros(_Frame(position, data), segment, file, report)
            return
        wanted = max(WINDOW_BYTES, _missing_bytes(path, _Frame(position, data)))
    if _has_successor(data):
        raise _damaged(
            path, _Frame(position, data), "its length goes beyond the end of the file, but another batch follows it"
        )
    if data:
        report(f"{path} ends within a batch: its last {len(data)} bytes, from position {position}, are not read")


def _complete_batches(position: int, data: bytes, transactions_only: bool) -> tuple[list[_Frame], int]:
    """Return the complete batches in `data`, and where they end in it. `data` starts at `position` in the file."""
    frames, at, length = [], 0, len(data)
    while at + _HEADER_UP_TO_MAGIC <= length:
        offset, size = _PREFIX.unpack_from(data, at)
        end = at + _PREFIX.size + size
        if end > length or offset < 0 or size < SMALLEST_SIZE or data[at + _MAGIC_AT] > MAGIC:
            break
        if not transactions_only or is_transactional_or_control(data, at):
            frames.append(_Frame(position + at, data[at:end]))
        at = end
    return frames, at


def _missing_bytes(path: Path, start: _Frame) -> int:
    """Return how many bytes of a batch are missing, 0 if unknown yet. Raises SegmentError if it is not a batch."""
    if len(start.data) < _HEADER_UP_TO_MAGIC:
        return 0
    offset, size = _PREFIX.unpack_from(start.data)
    if offset >= 0 and size >= SMALLEST_SIZE and start.data[_MAGIC_AT] <= MAGIC:
        return _PREFIX.size + int(size) - len(start.data)
    if start.position == 0:
        raise SegmentError(f"{path} is not a Kafka log segment: it does not start with a record batch")
    raise _damaged(path, start, "its size or its format is not valid")


def _has_successor(data: bytes) -> bool:
    """Whether the next batch of the log follows inside a batch that seems incomplete. If so, its length is wrong."""
    if not _has_crc32c(data):
        return False
    offset = _PREFIX.unpack_from(data)[0] + int.from_bytes(data[LAST_DELTA_AT : LAST_DELTA_AT + 4], "big") + 1
    next_batch_start = offset.to_bytes(9, "big")[1:]
    at = data.find(next_batch_start, HEADER_BYTES)
    while 0 <= at <= len(data) - HEADER_BYTES:
        batch = data[at : at + _PREFIX.size + max(0, _PREFIX.unpack_from(data, at)[1])]
        if _has_crc32c(batch) and all(_match_checksums([_Frame(at, batch)])):
            return True
        at = data.find(next_batch_start, at + 1)
    return False


def _skip_zeros(start: _Frame, segment: Segment, file: BinaryIO, report: Report) -> None:
    """Skip space that a broker has preallocated: zeros up to the end of the file."""
    data, end = start.data, start.position
    while data:
        if data.strip(b"\0"):
            raise _damaged(segment.path, start, "it starts with zeros, but other bytes follow")
        end += len(data)
        data = file.read(min(WINDOW_BYTES, segment.size - end))
    count = end - start.position
    report(f"{segment.path} ends in {count} zero bytes, from position {start.position}: nothing was written there yet")


def _match_checksums(frames: Sequence[_Frame]) -> list[bool]:
    """Return for each batch whether its CRC-32C matches. `read_message` checks the older formats' own checksum."""
    present = [frame.data for frame in frames if _has_crc32c(frame.data)]
    expected = [int.from_bytes(data[CHECKSUM_AT:CHECKED_FROM], "big") for data in present]
    matches = iter((crc32c([memoryview(data)[CHECKED_FROM:] for data in present]) == expected).tolist())
    return [not _has_crc32c(frame.data) or next(matches) for frame in frames]


def _has_crc32c(data: bytes) -> bool:
    return len(data) >= HEADER_BYTES and data[_MAGIC_AT] == MAGIC


def _batch(path: Path, frame: _Frame, matches: bool, *, with_data: bool) -> RecordBatch:
    if not matches:
        raise _damaged(path, frame, "its checksum (CRC-32C) does not match")
    try:
        return (
            read_batch(frame.data, with_data=with_data) if frame.data[_MAGIC_AT] == MAGIC else read_message(frame.data)
        )
    except DecodeError as reason:
        raise _damaged(path, frame, str(reason)) from reason


def _damaged(path: Path, frame: _Frame, reason: str) -> SegmentError:
    offset = int.from_bytes(frame.data[:8], "big", signed=True)
    return SegmentError(f"{path}: the batch at position {frame.position} (offset {offset}) is damaged: {reason}")


def _refuse_gap(note: str) -> NoReturn:
    raise SegmentError(f"{note}, and other segments follow: copy this segment again")
