"""Read one Kafka type from many records at once, and build Arrow columns of what was read.

A `Cursor` has one position for each record of an Arrow binary column; all positions are in the column's one data
buffer. Each `read_<kafka type>` reads the value at every position and advances. `where` limits it to some records: the
others get `default` and do not advance. A record that cannot be read gets a reason (the first reason stays). Its values
are garbage from then on, so the caller makes them null by `Cursor.ok`. Nothing here loops over records. Strings become
what Java decodes, UUIDs what Kafka prints.
"""

from binascii import b2a_base64
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.codec import wire
from offsetstream.codec.wire import MAX_STRING, java_utf8

Bools = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]

OK, TRUNCATED, NEGATIVE_LENGTH, TOO_LONG, EXCLUDED, BY_RECORD = range(6)
REASONS = {
    TRUNCATED: wire.TRUNCATED,
    NEGATIVE_LENGTH: wire.NEGATIVE_LENGTH,
    TOO_LONG: wire.TOO_LONG,
}
"""The text of each reason. EXCLUDED: this reader ignores the record. BY_RECORD: decode the record by itself."""

_MIN_BUFFER = 16
_ENDLESS = np.iinfo(np.int64).max  # a failed record never fails again, wherever its position points
_MAX_VARINT_BYTE = 0x7F  # a larger byte has the continuation bit
# A tag section that has only a topic id: count 01, tag 00, size, 16 bytes.
_TOPIC_ID_TAG, _TOPIC_ID_AT, _EMPTY_TAG_BYTES, _TOPIC_ID_TAG_BYTES = 0, 3, 3, 19
_MAX_OFFSET = (1 << 31) - 1
_LEAF = 32
_FAN_OUT = 8
_UUID_TEXT = 22
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
# Base64 turns 3 bytes into 4 characters. A UUID padded to 18 bytes gives 24; the first 22 are the UUID's text.
_UUID_BYTES, _PADDED_BYTES, _PADDED_TEXT = 16, 18, 24


class Slices(NamedTuple):
    """The start and end of each record's string in the buffer."""

    start: Positions
    end: Positions


@dataclass
class Cursor:
    """A position in each record. `at` and `end` index `data`; `reason` is OK (0), or why the record cannot be read."""

    data: npt.NDArray[np.uint8]
    at: Positions
    end: Positions
    reason: npt.NDArray[np.uint8]

    @classmethod
    def over(cls, array: pa.Array) -> "Cursor":
        """Start at the first byte of each value of a binary or large_binary array. A null value is empty."""
        kind = np.dtype(np.int64 if pa.types.is_large_binary(array.type) else np.int32)
        _, offsets_buffer, data_buffer = array.buffers()
        offsets = np.frombuffer(offsets_buffer, kind, len(array) + 1, array.offset * kind.itemsize)
        data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
        if len(data) < _MIN_BUFFER:
            data = np.concatenate([data, np.zeros(_MIN_BUFFER, np.uint8)])
        at = offsets.astype(np.int64) - offsets[0]
        return cls(data, at[:-1], at[1:].copy(), np.zeros(len(array), np.uint8))

    @property
    def ok(self) -> Bools:
        """Which records have been read without an error so far."""
        readable: Bools = self.reason == OK
        return readable

    def fail(self, rows: Positions, reason: int) -> None:
        """Give records, by their row numbers, a reason unless they already have one."""
        if len(rows):
            self.reason[rows[self.reason[rows] == OK]] = reason
            self.end[rows] = _ENDLESS

    def advance(self, size: int | Positions) -> Positions:
        """Advance by `size` bytes and return the old positions. Records with fewer bytes left fail as truncated."""
        start = self.at
        self.at = start + size
        self.fail((self.at > self.end).nonzero()[0], TRUNCATED)
        return start

    def gather(self, start: Positions, dtype: str) -> Numbers:
        """Return the unaligned big-endian number at each `start`, in native byte order."""
        kind = np.dtype(dtype)
        view: Numbers = np.ndarray((len(self.data) - kind.itemsize + 1,), kind, self.data.data, 0, (1,))
        return view[np.minimum(start, len(view) - 1)].byteswap(inplace=True)


def bytes_at(data: npt.NDArray[np.uint8], at: Positions) -> npt.NDArray[np.uint8]:
    """Return the byte at each position. Only a failed record can point beyond the last byte."""
    return data[np.minimum(at, len(data) - 1)]


def _read_number(cursor: Cursor, dtype: str, where: Bools | None, default: int) -> Numbers:
    size = np.dtype(dtype).itemsize
    if where is None or where.all():
        return cursor.gather(cursor.advance(size), dtype)
    values = np.full(len(where), default, dtype)
    rows = where.nonzero()[0]
    if len(rows):
        values[rows] = cursor.gather(cursor.advance(where * np.int64(size))[rows], dtype)
    return values


def read_int16(cursor: Cursor, where: Bools | None = None) -> Numbers:
    """Read an INT16 from each record, byte by byte: much faster than an unaligned gather."""
    start = cursor.advance(2 if where is None else where * np.int64(2))
    start = np.minimum(start, len(cursor.data) - 2)
    values = cursor.data[start].astype(np.int16)
    values <<= 8
    values |= cursor.data[1:][start]
    if where is not None:
        np.copyto(values, 0, where=~where)
    return values


def read_int32(cursor: Cursor, where: Bools | None = None, default: int = 0) -> Numbers:
    """Read an INT32 from each record."""
    return _read_number(cursor, "<i4", where, default)


def read_int64(cursor: Cursor, where: Bools | None = None, default: int = 0) -> Numbers:
    """Read an INT64 from each record."""
    return _read_number(cursor, "<i8", where, default)


def read_string(cursor: Cursor, where: Bools | None = None) -> Slices:
    """Read a STRING from each record: INT16 byte length, then the bytes."""
    length = read_int16(cursor, where)
    cursor.fail((length < 0).nonzero()[0], NEGATIVE_LENGTH)
    start = cursor.advance(np.maximum(length, 0, out=length))
    return Slices(start, cursor.at)


def read_compact_string(cursor: Cursor, where: Bools) -> Slices:
    """Read a COMPACT_STRING from the records in `where`: byte length + 1 as UNSIGNED_VARINT, then the bytes."""
    start = cursor.advance(where.astype(np.int64))
    length = bytes_at(cursor.data, start).astype(np.int64)
    np.copyto(length, 1, where=~where)
    long = length > _MAX_VARINT_BYTE
    if long.any():
        _read_longer_varint(cursor, length, long)
    length -= 1
    cursor.fail((length < 0).nonzero()[0], NEGATIVE_LENGTH)
    start = cursor.advance(np.maximum(length, 0, out=length))
    return Slices(start, cursor.at)


def _read_longer_varint(cursor: Cursor, length: Positions, long: Bools) -> None:
    """Add the second and third byte of a varint. Records with a longer varint get BY_RECORD."""
    for shift in (7, 14):
        start = cursor.advance(long.astype(np.int64))
        byte = bytes_at(cursor.data, start).astype(np.int64)
        length += np.where(long, (byte - 1) << shift, 0)  # minus 1: removes the continuation bit of the byte before
        long = long & (byte > _MAX_VARINT_BYTE)
    cursor.fail(long.nonzero()[0], BY_RECORD)
    cursor.fail((length > MAX_STRING + 1).nonzero()[0], TOO_LONG)


def read_topic_id_tag(cursor: Cursor, where: Bools) -> tuple[Bools, Positions]:
    """Read a tag section that is empty or has only tag 0, the topic id. Any other one makes its record BY_RECORD.

    Returns which records have the tag, and the position of its 16 bytes. Like Kafka, ignore the tag's declared size.
    """
    start = cursor.advance(where.astype(np.int64))
    count = bytes_at(cursor.data, start)
    rows = (where & (count != 0) & cursor.ok).nonzero()[0]
    tagged = np.zeros(len(where), np.bool_)
    if len(rows):
        at = start[rows]
        room = cursor.end[rows] - at
        alone = count[rows] == 1
        plain = (
            alone
            & (bytes_at(cursor.data, at + 1) == _TOPIC_ID_TAG)
            & (bytes_at(cursor.data, at + 2) <= _MAX_VARINT_BYTE)
        )
        short = (alone & (room < _EMPTY_TAG_BYTES)) | (plain & (room < _TOPIC_ID_TAG_BYTES))
        tagged[rows] = plain & ~short
        cursor.fail(rows[short], TRUNCATED)
        cursor.fail(rows[~plain], BY_RECORD)
    return tagged, start + _TOPIC_ID_AT


def bitmap(mask: Bools) -> pa.Buffer:
    """Return an Arrow validity bitmap: a set bit for each True."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def numbers(values: npt.NDArray[np.generic], valid: Bools | None) -> pa.Array:
    """Return a number column over a NumPy array, without a copy. Null where not `valid`."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None if valid is None else bitmap(valid), pa.py_buffer(values)])


def strings(data: npt.NDArray[np.uint8], slices: list[Slices], valid: list[Bools]) -> list[pa.Array]:
    """Return string columns of slices that follow each other in every record. Null where not `valid`.

    All slices and the gaps between them form one binary array over `data`; each column takes its elements from it.
    Raises ValueError for a buffer of 2 GiB or more: decode smaller batches.
    """
    if len(data) > _MAX_OFFSET:
        raise ValueError("the byte buffer is larger than 2 GiB; decode smaller batches")
    rows, step = len(slices[0].start), 2 * len(slices)
    offsets = np.empty(rows * step + 1, np.int32)
    for index, (part, mask) in enumerate(zip(slices, valid, strict=True)):
        offsets[2 * index : -1 : step] = part.start
        offsets[2 * index + 1 :: step] = part.end
        nulls = (~mask).nonzero()[0] * step + 2 * index
        offsets[nulls] = offsets[nulls + 1] = 0  # an invalid record may point outside the buffer
    offsets[-1] = len(data)
    elements = pa.Array.from_buffers(pa.binary(), rows * step, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    columns = []
    for index, mask in enumerate(valid):
        taken = pc.take(elements, _every(step, 2 * index, rows), boundscheck=False)
        _, taken_offsets, taken_data = java_strings(taken).buffers()
        columns.append(pa.Array.from_buffers(pa.string(), rows, [bitmap(mask), taken_offsets, taken_data]))
    return columns


def spread(texts: pa.Array, rows: Positions, count: int) -> pa.Array:
    """Return a column of `count` strings that has the texts in these ascending rows, and null in all others.

    It shares their bytes. Arrow's `take` would allocate the mean length of the texts for each of the rows.
    """
    is_text = np.zeros(count, np.bool_)
    is_text[rows] = True
    valid = is_text.copy()
    valid[rows] = texts.is_valid().to_numpy(zero_copy_only=False)
    _, offsets, data = texts.buffers()
    before = np.concatenate([[0], np.cumsum(is_text)])  # texts before each row
    positions = np.frombuffer(offsets, np.int32, len(texts) + 1)[before]
    return pa.Array.from_buffers(pa.string(), count, [bitmap(valid), pa.py_buffer(positions), data])


@lru_cache(maxsize=16)
def _every(step: int, first: int, rows: int) -> pa.Array:
    return pa.array(np.arange(first, rows * step, step, dtype=np.int32))


def java_strings(array: pa.Array) -> pa.Array:
    """Cast a binary array without nulls to strings. Values that are not UTF-8 are decoded as Java does."""
    _, offsets, data = array.buffers()
    if _is_ascii(data):
        return pa.Array.from_buffers(pa.string(), len(array), [None, offsets, data], offset=array.offset)
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        bad = _not_utf8(array)
        mask = np.zeros(len(array), np.bool_)
        mask[bad] = True
        repaired = pa.array([java_utf8(array[row].as_py()).encode() for row in bad], pa.binary())
        return pc.replace_with_mask(array, pa.array(mask), repaired).cast(pa.string())


def _is_ascii(data: pa.Buffer | None) -> bool:
    return not data or int(np.frombuffer(data, np.uint8).max()) < 0x80  # noqa: PLR2004


def _not_utf8(array: pa.Array) -> list[int]:
    """Return the rows that are not UTF-8. Arrow only reports that there are some, so search part by part."""
    bad: list[int] = []
    pending = [(0, len(array))]
    while pending:
        start, length = pending.pop()
        if length <= 1 or length > _LEAF:
            try:
                array.slice(start, length).cast(pa.string())
                continue
            except pa.ArrowInvalid:
                if length == 1:
                    bad.append(start)
                    continue
        part = max(1, length // _FAN_OUT) if length > _LEAF else 1
        pending.extend((at, min(part, start + length - at)) for at in range(start, start + length, part))
    return sorted(bad)


def uuids(cursor: Cursor, start: Positions, valid: Bools) -> pa.Array:
    """Return a column of the UUID at each position, as 22 characters. Null where not `valid` or all zero."""
    rows = valid.nonzero()[0]
    if not len(rows):
        return pa.nulls(len(valid), pa.string())
    view = np.ndarray((len(cursor.data) - 15,), "V16", cursor.data.data, 0, (1,))
    raw = pa.py_buffer(view[start[rows]])
    # Many commits share a small number of topics: format each id only once.
    distinct = pa.Array.from_buffers(pa.binary(16), len(rows), [None, raw]).dictionary_encode()
    texts = pa.concat_arrays([_uuid_texts(distinct.dictionary), pa.nulls(1, pa.string())])
    index = np.full(len(valid), len(texts) - 1, np.int32)
    index[rows] = distinct.indices.to_numpy()
    return texts.take(pa.array(index))


def _uuid_texts(ids: pa.Array) -> pa.Array:
    words = np.frombuffer(ids.buffers()[1], np.uint64, 2 * len(ids)).reshape(-1, 2)
    padded = np.zeros((len(ids), _PADDED_BYTES), np.uint8)
    padded[:, :_UUID_BYTES] = words.view(np.uint8)
    text = b2a_base64(padded.tobytes(), newline=False).translate(_URL_SAFE)
    characters = np.frombuffer(text, np.uint8).reshape(-1, _PADDED_TEXT)[:, :_UUID_TEXT]
    offsets = np.arange(0, _UUID_TEXT * len(ids) + 1, _UUID_TEXT, dtype=np.int32)
    present = bitmap((words[:, 0] | words[:, 1]) != 0)
    return pa.Array.from_buffers(
        pa.string(), len(ids), [present, pa.py_buffer(offsets), pa.py_buffer(characters.tobytes())]
    )
