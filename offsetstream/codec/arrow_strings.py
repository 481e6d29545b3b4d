"""Build Arrow columns from positions in a byte buffer: strings as Java decodes them, UUIDs as Kafka prints them."""

from binascii import b2a_base64
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
_UUID_TEXT = 22
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
# Base64 turns 3 bytes into 4 characters. A UUID padded to 18 bytes gives 24; the first 22 are the UUID's text.
_UUID_BYTES, _PADDED_BYTES, _PADDED_TEXT = 16, 18, 24


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
