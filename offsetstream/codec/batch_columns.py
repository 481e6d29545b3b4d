"""Read the records of many batches into Arrow columns: a loop over the records' lengths, and the rest with NumPy.

`batches.read_batch` defines what a valid batch is. It also reads the batches that are unusual here: those with
headers, of older formats, and damaged ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.codec.batches import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    Header,
    LogRecord,
    decompress,
    read_batch,
    read_varint,
)
from offsetstream.codec.columns import Bools, bitmap, bytes_at
from offsetstream.codec.wire import DecodeError

RECORD_COLUMNS = pa.schema(
    [("record_offset", pa.int64()), ("timestamp_ms", pa.int64()), ("key", pa.binary()), ("value", pa.binary())]
)
_AT_ONCE = 32 << 20  # bytes of records; Arrow's offsets reach to 2 GiB
_VARINT_BYTES, _CONTINUED, _SEVEN_BITS, _ONE = 10, 0x80, np.uint8(0x7F), np.uint64(1)
_MOST_OFFSETS, _MOST_MS = 1 << 31, 1 << 53  # beyond the first, or of the second, from a batch's own
Numbers = npt.NDArray[np.int64]


class _Body(NamedTuple):
    """The records of a batch, decompressed; `number` is the batch's place among the others."""

    number: int
    header: Header
    data: bytes


class _Slices(NamedTuple):
    """The start and the end of each record's string in the data, and whether it is null."""

    start: Numbers
    end: Numbers
    is_null: Bools


class _Part(NamedTuple):
    """Records, and the number of each one's batch."""

    rows: pa.Table
    numbers: Numbers


def read_columns(batches: Sequence[bytes]) -> pa.Table:
    """Return the records of batches in their order, with `RECORD_COLUMNS`; a timestamp may be null.

    The caller has checked the checksums. Raises DecodeError for a batch that `read_batch` refuses.
    """
    parts = list(_parts(batches))
    rows = pa.concat_tables([RECORD_COLUMNS.empty_table(), *(part.rows for part in parts)])
    numbers = np.concatenate([np.zeros(0, np.int64), *(part.numbers for part in parts)])
    is_in_order = bool((numbers[1:] >= numbers[:-1]).all())
    return rows if is_in_order else rows.take(pa.array(np.argsort(numbers, kind="stable")))


def _parts(batches: Sequence[bytes]) -> Iterator[_Part]:
    bodies, size = list[_Body](), 0
    for number, data in enumerate(batches):
        if data[MAGIC_AT] != MAGIC:
            yield _one_by_one(number, read_batch(data).records)
            continue
        header = Header.of(data)
        if header.count:
            bodies.append(_Body(number, header, decompress(header.compression, data[HEADER_BYTES:])))
            size += len(bodies[-1].data)
        if size >= _AT_ONCE:
            yield from _all_at_once(batches, bodies)
            bodies, size = [], 0
    yield from _all_at_once(batches, bodies)


def _one_by_one(number: int, records: Sequence[LogRecord]) -> _Part:
    cells = [
        {"record_offset": r.offset, "timestamp_ms": r.timestamp_ms, "key": r.key, "value": r.value} for r in records
    ]
    try:
        return _Part(pa.Table.from_pylist(cells, schema=RECORD_COLUMNS), np.full(len(records), number))
    except OverflowError:
        raise DecodeError("the offset or the time of a record is beyond 64 bits") from None


def _all_at_once(batches: Sequence[bytes], bodies: Sequence[_Body]) -> Iterator[_Part]:
    """Yield the records of the bodies; those of a body that is unusual one by one."""
    starts = {body.number: found for body in bodies if (found := _starts(body.data, body.header.count)) is not None}
    usual = [body for body in bodies if body.number in starts]
    unusual = {body.number for body in bodies} - starts.keys()
    if usual:
        part, is_bad = _read(usual, [np.array(starts[body.number], np.int64) for body in usual])
        unusual |= set(part.numbers[is_bad].tolist())
        good = ~np.isin(part.numbers, list(unusual))
        yield _Part(part.rows.filter(pa.array(good)), part.numbers[good]) if unusual else part
    for number in sorted(unusual):
        yield _one_by_one(number, read_batch(batches[number]).records)


def _starts(body: bytes, count: int) -> list[int] | None:
    """Return where each record starts. None if the lengths do not lead to the end of the body."""
    starts, at, end = [], 0, len(body)
    try:
        for _ in range(count):
            starts.append(at)
            byte = body[at]
            if byte & 1:
                return None  # a negative length
            if byte < _CONTINUED:
                at += 1 + (byte >> 1)
            else:
                second = body[at + 1]
                if second >= _CONTINUED:
                    length, at = read_varint(body, at)
                    at += length
                else:
                    at += 2 + ((byte & 0x7F | second << 7) >> 1)
    except (IndexError, DecodeError):
        return None
    return starts if at == end else None


def _read(bodies: Sequence[_Body], starts: Sequence[Numbers]) -> tuple[_Part, Bools]:
    """Read all records of the bodies. Also return which of them are unusual: their columns are garbage."""
    counts = np.array([len(each) for each in starts])
    ends = np.cumsum([len(body.data) for body in bodies])
    at = np.concatenate(starts) + np.repeat(ends - [len(body.data) for body in bodies], counts)
    data = np.frombuffer(b"".join(body.data for body in bodies), np.uint8)
    scan = _Scan(data, at)
    scan.varint()  # the length
    scan.at = scan.at + 1  # the attributes, which are unused
    time, offset, key, value = scan.varint(), scan.varint(), scan.bytes(), scan.bytes()
    has_headers = scan.varint() != 0
    scan.is_bad |= has_headers | (scan.at != np.append(at[1:], len(data)))
    scan.is_bad |= (offset < 0) | (offset > _MOST_OFFSETS) | (abs(time) > _MOST_MS)
    offset += np.repeat([body.header.base_offset for body in bodies], counts)
    time += np.repeat([body.header.base_ms for body in bodies], counts)
    appended = np.repeat([body.header.append_ms is not None for body in bodies], counts)
    if appended.any():
        np.copyto(time, np.repeat([body.header.append_ms or 0 for body in bodies], counts), where=appended)
    times = pa.array(time, mask=time == NO_TIMESTAMP)
    columns = [pa.array(offset), times, *_binary(data, (key, value), scan.is_bad)]
    numbers = np.repeat([body.number for body in bodies], counts)
    return _Part(pa.table(columns, schema=RECORD_COLUMNS), numbers), scan.is_bad


class _Scan:
    """A position in each record. `is_bad` says which records are unusual, or not valid."""

    def __init__(self, data: npt.NDArray[np.uint8], at: Numbers) -> None:
        self.data = data
        self.at = at
        self.is_bad = np.zeros(len(at), np.bool_)

    def varint(self) -> Numbers:
        """Read a zigzag varint of each record."""
        byte = bytes_at(self.data, self.at)
        number = (byte & _SEVEN_BITS).astype(np.uint64)
        self.at = self.at + 1
        rows = (byte >= _CONTINUED).nonzero()[0]
        for shift in range(7, 7 * _VARINT_BYTES, 7):
            if not len(rows):
                break
            byte = bytes_at(self.data, self.at[rows])
            number[rows] |= (byte & _SEVEN_BITS).astype(np.uint64) << np.uint64(shift)
            self.at[rows] += 1
            rows = rows[byte >= _CONTINUED]
        self.is_bad[rows] = True
        values: Numbers = (number >> _ONE).astype(np.int64) ^ -(number & _ONE).astype(np.int64)
        return values

    def bytes(self) -> _Slices:
        """Read the length of a byte string of each record, and the string."""
        length = self.varint()
        self.is_bad |= length > len(self.data)
        start = self.at
        self.at = start + np.where(self.is_bad, 0, np.maximum(length, 0))
        return _Slices(start, self.at, length < 0)


def _binary(data: npt.NDArray[np.uint8], slices: Sequence[_Slices], is_bad: Bools) -> Iterator[pa.Array]:
    """Return columns of the slices, which follow one another in each record."""
    rows, step = len(is_bad), 2 * len(slices)
    offsets = np.empty(rows * step + 1, np.int32)
    offsets[-1] = len(data)
    for place, part in enumerate(slices):
        for bound, positions in enumerate((part.start, part.end)):
            offsets[2 * place + bound : -1 : step] = np.where(is_bad, 0, positions)
    elements = pa.Array.from_buffers(pa.binary(), rows * step, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    for place, part in enumerate(slices):
        taken = pc.take(elements, pa.array(np.arange(2 * place, rows * step, step)), boundscheck=False)
        valid = bitmap(~part.is_null) if part.is_null.any() else None
        yield pa.Array.from_buffers(pa.binary(), rows, [valid, *taken.buffers()[1:]])
