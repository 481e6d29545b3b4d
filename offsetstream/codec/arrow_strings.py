"""Arrow columns built from positions in a byte buffer: strings as Java reads them, UUIDs as Kafka prints them."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.codec.columns import Bools, Cursor, Positions, Slices
from offsetstream.codec.text import java_utf8

_MAX_OFFSET = (1 << 31) - 1
_LEAF = 32
_FAN_OUT = 8
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_PAIRS = np.stack([np.repeat(_ALPHABET, 64), np.tile(_ALPHABET, 64)], axis=1).copy().view(np.uint16)[:, 0]
_UUID_TEXT = 22
_TWELVE_BITS = 0xFFF


def bitmap(mask: Bools) -> pa.Buffer:
    """Make an Arrow validity bitmap: a set bit for each True."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def numbers(values: npt.NDArray[np.generic], valid: Bools | None) -> pa.Array:
    """Make a number column over a NumPy array, without a copy; null where not `valid`."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None if valid is None else bitmap(valid), pa.py_buffer(values)])


def strings(data: npt.NDArray[np.uint8], slices: list[Slices], valid: list[Bools]) -> list[pa.Array]:
    """Make string columns of slices that follow each other in every record; null where not `valid`.

    All slices and the gaps between them become one binary array over `data`, from which each column takes its
    elements. Raises ValueError for a buffer of 2 GiB or more: cut the batch.
    """
    if len(data) > _MAX_OFFSET:
        raise ValueError("the byte buffer is larger than 2 GiB; decode smaller batches")
    rows, step = len(slices[0].start), 2 * len(slices)
    offsets = np.empty(rows * step + 1, np.int32)
    for index, (part, mask) in enumerate(zip(slices, valid, strict=True)):
        offsets[2 * index : -1 : step] = part.start
        offsets[2 * index + 1 :: step] = part.end
        nulls = (~mask).nonzero()[0]
        offsets[nulls * step + 2 * index + 1] = part.start[nulls]
    offsets[-1] = offsets[-2] if rows else 0
    np.minimum(offsets, len(data), out=offsets)  # a record that is not valid may point beyond the end
    elements = pa.Array.from_buffers(pa.binary(), rows * step, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    columns = []
    for index, mask in enumerate(valid):
        taken = pc.take(elements, _every(step, 2 * index, rows), boundscheck=False)
        _, taken_offsets, taken_data = java_strings(taken).buffers()
        columns.append(pa.Array.from_buffers(pa.string(), rows, [bitmap(mask), taken_offsets, taken_data]))
    return columns


@lru_cache(maxsize=16)
def _every(step: int, first: int, rows: int) -> pa.Array:
    return pa.array(np.arange(first, rows * step, step, dtype=np.int32))


def java_strings(array: pa.Array) -> pa.Array:
    """Cast a binary array without nulls to strings; values that are not UTF-8 become what Java makes of them."""
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
    """Find the rows that are not UTF-8, part by part: Arrow only says that there are some."""
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
    """Make a column of the 22 characters of the UUID at each position; null where not `valid` or all zero."""
    rows = valid.nonzero()[0]
    if not len(rows):
        return pa.nulls(len(valid), pa.string())
    view = np.ndarray((len(cursor.data) - 15,), "V16", cursor.data.data, 0, (1,))
    words = view[start[rows]].view(np.int64).reshape(-1, 2).byteswap(inplace=True)
    zero = (words[:, 0] | words[:, 1]) == 0
    present = valid.copy()
    present[rows[zero]] = False
    ends = np.cumsum(present, dtype=np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), ends * np.int32(_UUID_TEXT)])
    text = pa.py_buffer(_uuid_texts(words[~zero] if zero.any() else words))
    return pa.Array.from_buffers(pa.string(), len(valid), [bitmap(present), pa.py_buffer(offsets), text])


def _uuid_texts(words: npt.NDArray[np.int64]) -> npt.NDArray[np.uint16]:
    """Print pairs of words, high and low, as URL-safe base64: two characters for each 12 bits."""
    high, low = words[:, 0], words[:, 1]
    text = np.empty((len(words), _UUID_TEXT // 2), np.uint16)
    for index, shift in enumerate((52, 40, 28, 16, 4)):
        text[:, index] = _PAIRS[(high >> shift) & _TWELVE_BITS]
    text[:, 5] = _PAIRS[((high & 0xF) << 8) | ((low >> 56) & 0xFF)]
    for index, shift in enumerate((44, 32, 20, 8), 6):
        text[:, index] = _PAIRS[(low >> shift) & _TWELVE_BITS]
    text[:, 10] = _PAIRS[(low & 0xFF) << 4]
    return text
