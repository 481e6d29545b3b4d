"""The vectorized readers, one Kafka type at a time."""

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from offsetstream.codec.columns import (
    BY_RECORD,
    NEGATIVE_LENGTH,
    OK,
    TOO_LONG,
    TRUNCATED,
    Cursor,
    read_compact_string,
    read_int16,
    read_int32,
    read_int64,
    read_string,
    read_topic_id_tag,
)

_READERS = {read_int16: ">h", read_int32: ">i", read_int64: ">q"}


def _cursor(records: Sequence[bytes | None]) -> Cursor:
    return Cursor.over(pa.array(records, pa.binary()))


@pytest.mark.parametrize("reader", _READERS, ids=lambda reader: reader.__name__)
def test_numbers_are_read_at_any_position(reader) -> None:  # type: ignore[no-untyped-def]  # a reader, whose type says nothing here
    layout = _READERS[reader]
    bits = 8 * struct.calcsize(layout)
    values = [0, 1, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1))]
    cursor = _cursor([b"x" * at + struct.pack(layout, value) for at, value in enumerate(values)])
    cursor.advance(np.arange(len(values)))
    assert reader(cursor).tolist() == values
    assert cursor.ok.all()
    assert (cursor.at == cursor.end).all()


@pytest.mark.parametrize("reader", _READERS, ids=lambda reader: reader.__name__)
def test_records_outside_where_get_the_default_and_do_not_advance(reader) -> None:  # type: ignore[no-untyped-def]  # as above
    data = struct.pack(_READERS[reader], 7)
    cursor = _cursor([data, data, b""])
    assert reader(cursor, np.array([True, False, False]), -5).tolist() == [7, -5, -5]
    assert (cursor.end - cursor.at).tolist() == [0, len(data), 0]
    assert cursor.ok.all()


@pytest.mark.parametrize("reader", _READERS, ids=lambda reader: reader.__name__)
def test_truncated_numbers_get_a_reason(reader) -> None:  # type: ignore[no-untyped-def]  # as above
    data = struct.pack(_READERS[reader], 7)
    cursor = _cursor([data[:-1], data, b"", None])
    assert reader(cursor)[1] == 7
    assert cursor.reason.tolist() == [TRUNCATED, OK, TRUNCATED, TRUNCATED]


def test_strings_are_read_or_get_a_reason() -> None:
    records = [b"\0\3abc", b"\0\0", b"\0\3ab", b"\xff\xffab", b"\0", b"\x80\0"]
    cursor = _cursor(records)
    start, end = read_string(cursor)
    assert [bytes(cursor.data[start[row] : end[row]]) for row in (0, 1)] == [b"abc", b""]
    assert cursor.reason.tolist() == [OK, OK, TRUNCATED, NEGATIVE_LENGTH, TRUNCATED, NEGATIVE_LENGTH]


def test_compact_strings_are_read_or_get_a_reason() -> None:
    records = [
        b"\4abc",
        b"\1",
        b"\0",
        b"\4ab",
        b"\x84\0abc",
        b"\x84\x80\0abc",
        b"\x84\x80\x80\0abc",
        b"\x84",
        b"\x81\x80\2",
    ]
    cursor = _cursor(records)
    start, end = read_compact_string(cursor, np.ones(len(records), np.bool_))
    texts = [bytes(cursor.data[start[row] : end[row]]) for row in (0, 1, 4, 5)]
    assert texts == [b"abc", b"", b"abc", b"abc"]
    expected = [OK, OK, NEGATIVE_LENGTH, TRUNCATED, OK, OK, BY_RECORD, TRUNCATED, TOO_LONG]
    assert cursor.reason.tolist() == expected


def test_only_a_plain_topic_id_tag_is_read() -> None:
    uuid = bytes(range(16))
    records = [
        b"\0",
        b"\1\0\x10" + uuid,
        b"\1\0\x10" + uuid[:15],
        b"\1\0",
        b"\1\1\x10" + uuid,
        b"\2\0\x10" + uuid,
        b"\1\0\x0f" + uuid,
        b"",
    ]
    cursor = _cursor(records)
    tagged, at = read_topic_id_tag(cursor, np.ones(len(records), np.bool_))
    assert tagged.tolist() == [False, True, False, False, False, False, True, False]
    assert bytes(cursor.data[at[1] : at[1] + 16]) == uuid
    expected = [OK, OK, TRUNCATED, TRUNCATED, BY_RECORD, BY_RECORD, OK, TRUNCATED]
    assert cursor.reason.tolist() == expected


def test_the_first_reason_of_a_record_stays() -> None:
    cursor = _cursor([b"\0", b"\0\0\0\0"])
    cursor.fail(np.array([0]), BY_RECORD)
    read_int32(cursor)
    read_int64(cursor)
    assert cursor.reason.tolist() == [BY_RECORD, TRUNCATED]


def test_a_sliced_array_is_read_from_its_first_record() -> None:
    array = pa.array([b"\0\1", b"\0\2", b"\0\3"]).slice(1, 2)
    assert read_int16(Cursor.over(array)).tolist() == [2, 3]
    assert read_int16(Cursor.over(array.cast(pa.large_binary()))).tolist() == [2, 3]
