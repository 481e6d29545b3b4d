"""Many batches read at once have the records that `read_batch` finds in each of them."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from offsetstream.codec.batch_columns import RECORD_COLUMNS, read_columns
from offsetstream.codec.batches import read_batch
from offsetstream.codec.wire import DecodeError
from testkit.segments import LOG_APPEND_TIME, batch, message, record

Row = tuple[int, int | None, bytes | None, bytes | None]

texts = st.none() | st.binary(max_size=12) | st.binary(min_size=60, max_size=300)
times = st.integers(-1, 5) | st.integers(-(2**62), 2**62)
deltas = st.integers(0, 300)


def one_by_one(batches: Sequence[bytes]) -> list[Row] | None:
    """Return the records as our reader of single batches finds them; None if it refuses one."""
    try:
        read = [read_batch(data) for data in batches]
    except DecodeError:
        return None
    return [(each.offset, each.timestamp_ms, each.key, each.value) for part in read for each in part.records]


def at_once(batches: Sequence[bytes]) -> list[Row] | None:
    try:
        found = read_columns(batches)
    except DecodeError:
        return None
    found.validate(full=True)
    assert found.schema == RECORD_COLUMNS
    return list(zip(*(found[name].to_pylist() for name in RECORD_COLUMNS.names), strict=True))


@st.composite
def any_batch(draw: st.DrawFn) -> bytes:
    if draw(st.integers(0, 9)) == 0:
        return message(draw(deltas), draw(st.integers(0, 1)), draw(texts), draw(texts))
    headers = st.lists(st.tuples(st.binary(max_size=3), texts), max_size=draw(st.sampled_from([0, 0, 0, 2])))
    records = draw(st.lists(st.tuples(deltas, texts, texts, times, headers), max_size=8))
    compressed = draw(st.sampled_from([0, 0, 1]))
    body = b"".join(record(*each) for each in records)
    return batch(
        draw(deltas),
        [],
        compressed | draw(st.sampled_from([0, 0, LOG_APPEND_TIME])),
        base_ms=draw(times),
        max_ms=draw(st.integers(-1, 9)),
        last_delta=300,
        body=gzip.compress(body) if compressed else body,
        count=len(records),
    )


@given(st.lists(any_batch(), max_size=6))
def test_batches_at_once_equal_single_ones(batches: list[bytes]) -> None:
    assert at_once(batches) == one_by_one(batches)


@given(st.lists(any_batch(), min_size=1, max_size=4), st.data())
def test_damaged_batches_are_refused_as_single_ones_are(batches: list[bytes], data: st.DataObject) -> None:
    """Their checksums are not read here: as if the damage were the writer's."""
    damaged = bytearray(batches[-1])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(57, len(damaged) - 1)) if len(damaged) > 57 else -1] ^= data.draw(
            st.integers(1, 255)
        )
    assert at_once([*batches[:-1], bytes(damaged)]) == one_by_one([*batches[:-1], bytes(damaged)])
