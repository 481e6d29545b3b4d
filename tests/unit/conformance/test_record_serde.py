"""Kafka's serde of records, by the codec (reference 9.5)."""

from __future__ import annotations

from random import Random

import pytest

from offsetstream.codec.record_layouts import record_types
from offsetstream.codec.records import decode_key, decode_value, encode_record
from offsetstream.codec.wire import DecodeError
from testkit.codec_records import Layout, present_layouts
from tests.conformance.builder import new

KAFKA_CLASS = "GroupCoordinatorRecordSerdeTest"
KEY, VALUE = new(3, {"epoch": 10})


def test_deserialize() -> None:
    assert KEY is not None
    assert VALUE is not None
    assert decode_key(KEY) == (3, {"groupId": "foo"})
    assert decode_value(3, VALUE) == (0, {"epoch": 10})


def test_deserialize_with_tombstone_for_value() -> None:
    key, value = new(3, None)
    assert key == KEY
    assert value is None


@pytest.mark.parametrize("layout", present_layouts(), ids=lambda layout: f"{layout.type} v{layout.version}")
def test_deserialize_all_record_types(layout: Layout) -> None:
    rng = Random(layout.type)
    key, value = layout.random_key(rng), layout.random_value(rng)
    encoded = encode_record(key, value)
    assert encoded[1] is not None
    assert decode_key(encoded[0])[0] == layout.type
    assert decode_value(layout.type, encoded[1])[0] == layout.version


def test_deserialize_with_invalid_record_type() -> None:
    with pytest.raises(DecodeError, match="unknown key type 255"):
        decode_key(b"\0\xff")


def test_deserialize_with_key_empty_buffer() -> None:
    with pytest.raises(DecodeError, match="truncated key"):
        decode_key(b"")


def test_deserialize_with_value_empty_buffer() -> None:
    with pytest.raises(DecodeError, match="truncated value"):
        decode_value(3, b"")


def test_deserialize_with_invalid_key_bytes() -> None:
    with pytest.raises(DecodeError, match="truncated key"):
        decode_key(b"\0\3\0\xff")


def test_deserialize_with_invalid_value_bytes() -> None:
    with pytest.raises(DecodeError, match="truncated value"):
        decode_value(3, b"\0\0\0")


@pytest.mark.parametrize("key_type", list(record_types()))
def test_deserialize_with_invalid_value_version(key_type: int) -> None:
    for version in (-1, 255):
        with pytest.raises(DecodeError, match=f"unsupported value version {version} of key type {key_type}"):
            decode_value(key_type, version.to_bytes(2, "big", signed=True) + bytes(100))


def test_serialize_key() -> None:
    assert KEY == b"\0\3\0\3foo"


def test_serialize_value() -> None:
    assert VALUE == b"\0\0\0\0\0\x0a\0"


def test_serialize_null_value() -> None:
    assert new(3, None)[1] is None
