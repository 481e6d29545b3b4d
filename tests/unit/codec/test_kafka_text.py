"""Output of Kafka's formatters that the golden files and tests/unit/conformance/test_formatters.py do not cover."""

import pytest

from offsetstream.codec.kafka_text import (
    OFFSETS_FORMATTER,
    SHARE_GROUP_FORMATTER,
    in_hash_map_order,
    kafka_json,
    kafka_text,
)
from offsetstream.codec.records import encode_record
from offsetstream.codec.wire import DecodeError

_KEY = {"type": 1, "data": {"group": "g,\n", "topic": "t]", "partition": 0}}


def test_records_that_the_formatters_skip() -> None:
    group, _ = encode_record({"type": 2, "data": {"group": "g"}}, None)
    share, _ = encode_record({"type": 10, "data": {"groupId": "g", "memberId": "m"}}, None)
    for printer in (kafka_json, kafka_text):
        assert printer(None, b"\0\0") is None
        assert printer(b"\0\x12\0\1g", None) is None
        assert printer(share, None) is None
        assert printer(group, None, OFFSETS_FORMATTER) is None
    assert kafka_text(share, None, SHARE_GROUP_FORMATTER) is None
    assert (kafka_json(share, None, SHARE_GROUP_FORMATTER) or "").startswith('{"key":{"type":10,')


def test_records_at_which_the_formatters_stop() -> None:
    share, _ = encode_record({"type": 10, "data": {"groupId": "g", "memberId": "m"}}, None)
    with pytest.raises(DecodeError, match="truncated value"):
        kafka_json(share, b"", OFFSETS_FORMATTER)
    assert kafka_text(share, b"", OFFSETS_FORMATTER) is None
    for printer in (kafka_json, kafka_text):
        with pytest.raises(DecodeError, match="truncated key"):
            printer(b"\0", None)
        with pytest.raises(DecodeError, match="unsupported value version 9"):
            printer(encode_record(_KEY, None)[0], b"\0\x09")


def test_members_have_the_order_of_scalas_hash_map() -> None:
    """Sorted by spread hash, then by insertion. The oracle tier compares this with the output of Kafka 3.9.2."""
    assert in_hash_map_order(["BB", "Aa"]) == ["BB", "Aa"]
    assert in_hash_map_order(["Aa", "BB"]) == ["Aa", "BB"]
    assert in_hash_map_order(["c", "b", "a"]) == ["a", "b", "c"]
    assert in_hash_map_order(["q", "a"]) == ["a", "q"]  # 0x71 and 0x61 share a bucket in a table of 16
    assert in_hash_map_order(["s", "b", "c"]) == ["b", "c", "s"]
    assert in_hash_map_order([chr(0x61 + n) for n in range(11)] + ["q"])[:2] == ["a", "b"]  # 12 keys need a table of 32
    letters = ["a", "B", *(chr(0x63 + n) for n in range(22))]
    assert in_hash_map_order(letters[:23])[:2] == ["a", "B"]  # 0x61 and 0x42 in a table of 32
    assert in_hash_map_order(letters)[0] == "B"  # 24 keys need a table of 64
