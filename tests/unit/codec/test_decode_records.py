"""The hot path decodes any mix of records exactly as record-by-record decoding does."""

import struct
from random import Random

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetstream.codec import DECODED_SCHEMA, decode_records, decoding
from offsetstream.codec.records import encode_record, encode_value
from testkit.codec_records import Layout, older_layouts, present_layouts
from testkit.examples import examples
from tests.unit.codec.by_record import Record, decode_one

_KEY, _ = encode_record({"type": 1, "data": {"group": "grüppe", "topic": "topic", "partition": 3}}, None)
_COMMITS = [Layout(key_type, version) for key_type in (0, 1) for version in range(5)]
_MEMBER = {"groupInstanceId": None, "rebalanceTimeout": 1, "sessionTimeout": 1, "subscription": "", "assignment": ""}
_TAGS = [b"\0", b"\1\0\x10" + bytes(range(16)), b"\1\0\0" + bytes(range(16)), b"\1\x64\3abc", b"\2\0\x10" + b"x" * 16]


def decode(records: list[Record]) -> list[dict[str, object]]:
    keys, values = [key for key, _ in records], [value for _, value in records]
    batch = decode_records(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    batch.validate(full=True)
    assert batch.schema == DECODED_SCHEMA
    rows: list[dict[str, object]] = batch.to_pylist()
    return rows


def check(records: list[Record]) -> list[dict[str, object]]:
    rows = decode(records)
    assert rows == [decode_one(record) for record in records]
    return rows


def _damage(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    pieces = [b"", b"\xff\xff", b"\x80\x80", b"\xed\xa0\x80", rng.randbytes(3)]
    return rng.choice([data[:at], data[:at] + rng.choice(pieces) + data[at + rng.randrange(3) :], data + b"more"])


def _record(rng: Random) -> Record:
    layout = rng.choice(_COMMITS if rng.random() < 0.8 else [*present_layouts(), *older_layouts()])
    key, value = encode_record(layout.random_key(rng), layout.random_value(rng))
    if layout.type < 2 and layout.version == 4 and value and rng.random() < 0.3:
        value = value[:-1] + rng.choice(_TAGS) if value.endswith(b"\0") else value
    fate = rng.random()
    if fate < 0.1:
        return key, None
    if fate < 0.2:
        return _damage(rng, key), value
    if fate < 0.4 and value:
        return key, _damage(rng, value)
    if fate < 0.45:
        return rng.choice([None, b"", b"\0", b"\0\x12\0\1g", b"\xff\xff"]), rng.choice([None, b"", value])
    return key, value


@pytest.mark.parametrize("seed", range(8))
def test_mixed_batches_equal_record_by_record(seed: int) -> None:
    rng = Random(seed)
    rows = check([_record(rng) for _ in range(800)])
    assert {row["key_type"] for row in rows} >= {0, 1, 2, None}
    assert any(row["topic_id"] for row in rows)


@given(rng=st.randoms(use_true_random=False), count=st.integers(0, 12))
@settings(max_examples=examples(75))
def test_any_batch_equals_record_by_record(rng: Random, count: int) -> None:
    check([_record(rng) for _ in range(count)])


@given(keys=st.lists(st.none() | st.binary(max_size=40), max_size=8), value=st.none() | st.binary(max_size=60))
@settings(max_examples=examples(100))
def test_any_bytes_equal_record_by_record(keys: list[bytes | None], value: bytes | None) -> None:
    check([(key, value) for key in keys] + [(_KEY, value)])


@pytest.mark.parametrize("layout", _COMMITS, ids=str)
def test_a_commit_cut_at_any_byte_is_truncated(layout: Layout) -> None:
    data = {"offset": 100, "metadata": "metá", "commitTimestamp": 1234}
    data |= {"leaderEpoch": 10} if layout.version >= 3 else {}
    data |= {"expireTimestamp": 5678} if layout.version == 1 else {}
    data |= {"topicId": "MKXx1fIkQy2J9jXHhK8m1w"} if layout.version == 4 else {}
    value = encode_value(layout.type, {"version": layout.version, "data": data}) or b""
    key = struct.pack(">h", layout.type) + _KEY[2:]
    rows = check([(key, value[:length]) for length in range(len(value))])
    assert {row["error"] for row in rows} == {"truncated value"}
    rows = check([(key, value), (key, value + b"\0"), (key, value + b"garbage" * 9)])
    assert [row["committed_offset"] for row in rows] == [100] * 3
    rows = check([(key[:length], value) for length in range(len(key))])
    assert {row["error"] for row in rows} == {"truncated key"}
    assert check([(key + b"garbage", value)])[0]["group_id"] == "grüppe"


_V4 = b"\0\4" + b"\0" * 7 + b"\x64" + b"\0\0\0\x0a"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("short form", _V4 + b"\5meta" + b"\0" * 8 + b"\0", "meta"),
        ("two bytes", _V4 + b"\x85\0meta" + b"\0" * 8 + b"\0", "meta"),
        ("three bytes", _V4 + b"\x85\x80\0meta" + b"\0" * 8 + b"\0", "meta"),
        ("four bytes", _V4 + b"\x85\x80\x80\0meta" + b"\0" * 8 + b"\0", "meta"),
        ("five bytes, bits 4-6 dropped", _V4 + b"\x85\x80\x80\x80\x70meta" + b"\0" * 8 + b"\0", "meta"),
        ("six bytes", _V4 + b"\x85\x80\x80\x80\x80\0meta" + b"\0" * 9, "varint over five bytes in value"),
        ("null", _V4 + b"\0" + b"\0" * 9, "negative length in value"),
        ("null in two bytes", _V4 + b"\x80\0" + b"\0" * 9, "negative length in value"),
        ("largest", _V4 + b"\x80\x80\2" + b"m" * 32767 + b"\0" * 9, "m" * 32767),
        (
            "too long, although complete",
            _V4 + b"\x81\x80\2" + b"m" * 32768 + b"\0" * 9,
            "string over 32767 bytes in value",
        ),
        ("long and cut", _V4 + b"\x85\x80", "truncated value"),
        ("128 bytes", _V4 + b"\x81\1" + b"m" * 128 + b"\0" * 9, "m" * 128),
    ],
)
def test_compact_string_lengths(name: str, value: bytes, expected: str) -> None:
    (row,) = check([(_KEY, value)])
    assert expected in (row["metadata"], row["error"])
    # Also between other records, and at the end of the buffer.
    check([(_KEY, value), (_KEY, _V4 + b"\1" + b"\0" * 9), (_KEY, None), (None, None), (_KEY, value)])


@pytest.mark.parametrize(
    ("tags", "topic_id"),
    [
        (b"\0", None),
        (b"\1\0\x10" + b"\0" * 16, None),  # the default, written explicitly
        (b"\1\0\x10" + b"\1" * 16, "AQEBAQEBAQEBAQEBAQEBAQ"),
        (b"\1\0\0" + b"\1" * 16, "AQEBAQEBAQEBAQEBAQEBAQ"),  # the size of a known tag is ignored
        (b"\1\x80\0\x90\0" + b"\1" * 16, "AQEBAQEBAQEBAQEBAQEBAQ"),
        (b"\2\0\x10" + b"\1" * 16 + b"\0\x10" + b"\2" * 16, "AgICAgICAgICAgICAgICAg"),  # the last one wins
        (b"\2\x64\2xy\0\x10" + b"\1" * 16, "AQEBAQEBAQEBAQEBAQEBAQ"),
        (b"\3\0\x10" + b"\1" * 16 + b"\x64\0\x65\1x", "AQEBAQEBAQEBAQEBAQEBAQ"),
        (b"\x80\x80\x80\x80\x08rest", None),  # a count of 2^31 means no tags
        (b"\1\x64\3abc", None),
    ],
)
def test_tag_sections(tags: bytes, topic_id: str | None) -> None:
    value = _V4 + b"\5meta" + b"\0" * 8 + tags
    rows = check([(_KEY, value), (_KEY, None), (_KEY, value)])
    assert [(row["error"], row["topic_id"]) for row in rows] == [(None, topic_id), (None, None), (None, topic_id)]


@pytest.mark.parametrize(
    "tags", [b"", b"\1", b"\1\0", b"\1\0\x10", b"\1\0\x10" + b"x" * 15, b"\1\x64\3ab", b"\1\x64\xff\xff\xff\xff\x0f"]
)
def test_broken_tag_sections(tags: bytes) -> None:
    (row,) = check([(_KEY, _V4 + b"\5meta" + b"\0" * 8 + tags)])
    assert row["error"] in ("truncated value", "negative length in value")
    assert row["group_id"] == "grüppe"


def test_each_undecodable_record_has_its_reason() -> None:
    v3 = encode_value(1, Layout(1, 3).random_value(Random(1)))
    records: list[Record] = [
        (None, v3),
        (b"", v3),
        (b"\0", None),
        (b"\0\x12\0\1g", v3),
        (b"\0\x09\0\1g", None),
        (b"\x7f\xff", None),
        (b"\xff\xff", v3),
        (b"\0\1\xff\xff", v3),
        (b"\0\2\x80\0", None),
        (_KEY, b""),
        (_KEY, b"\0\x05"),
        (_KEY, b"\xff\xff"),
        (_KEY, b"\0\3" + b"\0" * 12 + b"\xff\xff" + b"\0" * 8),
        (b"\0\3\0\1g", b"\0\1" + b"\0" * 20),
        (b"\0\5\0\1g", None),
    ]
    assert [row["error"] for row in check(records)] == [
        "null key",
        "truncated key",
        "truncated key",
        "unknown key type 18",
        None,
        "unknown key type 32767",
        "unknown key type -1",
        "negative length in key",
        "negative length in key",
        "truncated value",
        "unsupported value version 5 of key type 1",
        "unsupported value version -1 of key type 1",
        "negative length in value",
        "unsupported value version 1 of key type 3",
        "truncated key",
    ]


def sample(count: int) -> list[Record]:
    """Return the same records at every call: all kinds, good and broken."""
    rng = Random(count)
    return [_record(rng) for _ in range(count)]


def test_slices_chunks_and_large_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    records = sample(300)
    keys, values = pa.array([key for key, _ in records], pa.binary()), pa.array([value for _, value in records])
    whole = decode_records(keys, values)
    assert decode_records(keys.slice(100, 50), values.slice(100, 50)) == whole.slice(100, 50)
    assert decode_records(keys.cast(pa.large_binary()), values.cast(pa.large_binary())) == whole
    chunked = [
        pa.chunked_array([keys.slice(0, 7), keys.slice(7)]),
        pa.chunked_array([values.slice(0, 99), values.slice(99)]),
    ]
    assert decode_records(*chunked) == whole
    assert decode_records(pd.Series(keys.to_pylist()), pd.Series(values.to_pylist())) == whole
    monkeypatch.setattr(decoding, "_ROWS", 64)
    assert decode_records(keys, values) == whole


def test_bytes_behind_a_null_are_ignored() -> None:
    """In Arrow, a null value may have bytes in the buffer."""
    value = encode_value(1, Layout(1, 3).random_value(Random(1))) or b""
    offsets = pa.py_buffer(struct.pack("<3i", 0, len(value), 2 * len(value)))
    values = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\2"), offsets, pa.py_buffer(value * 2)])
    rows = decode_records(pa.array([_KEY, _KEY]), values).to_pylist()
    assert rows == [decode_one((_KEY, None)), decode_one((_KEY, value))]


def test_no_records_give_an_empty_batch() -> None:
    empty = pa.array([], pa.binary())
    assert decode_records(empty, pa.chunked_array([], pa.binary())).num_rows == 0


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="2 keys but 1 values"):
        decode_records([b"", b""], [b""])
    with pytest.raises(TypeError, match="keys are int64"):
        decode_records(pa.array([1]), pa.array([b""]))


def test_invalid_utf8_among_many() -> None:
    good, bad = "日本".encode(), b"a\xed\xa0\x80b\xff"
    strings = [bad if row % 97 == 5 else good for row in range(1000)]
    values = [b"\0\2" + b"\0" * 8 + struct.pack(">h", len(text)) + text + b"\0" * 8 for text in strings]
    rows = check([(_KEY, value) for value in values])
    assert [row["metadata"] for row in rows] == ["a\ufffdb\ufffd" if text is bad else "日本" for text in strings]


def test_one_large_record_costs_its_own_bytes() -> None:
    """Arrow's `take` would allocate as many bytes for each of the others."""
    key, value = encode_record(
        {"type": 2, "data": {"group": "large"}},
        {
            "version": 3,
            "data": {
                "protocolType": "consumer",
                "generation": 1,
                "protocol": "range",
                "leader": None,
                "currentStateTimestamp": -1,
                "members": [dict.fromkeys(("memberId", "clientId", "clientHost"), "x" * 30_000) | _MEMBER] * 30,
            },
        },
    )
    commit, offset = _KEY, encode_value(1, {"version": 0, "data": {"offset": 1, "metadata": "", "commitTimestamp": 1}})
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        rows = decode([*[(commit, offset)] * 10_000, (key, value)])
    finally:
        pa.set_memory_pool(before)
    assert rows[-1]["error"] is None
    assert pool.max_memory() < 100_000_000
