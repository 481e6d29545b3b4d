"""Records that cannot be encoded, and the reasons."""

from typing import Any

import pytest

from offsetstream.codec.embedded_protocols import encode_subscription
from offsetstream.codec.records import decode_value, encode_record, encode_value
from offsetstream.codec.wire import DecodeError

_KEY = {"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}}
_COMMIT = {"offset": 1, "leaderEpoch": 2, "metadata": "m", "commitTimestamp": 3}


def _commit(**changes: object) -> dict[str, object]:
    return {"version": 4, "data": _COMMIT | changes}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, None, "key is not"),
        ({"type": 1}, None, "key is not"),
        ({"type": "1", "data": {}}, None, "key is not"),
        ({"type": True, "data": {}}, None, "key is not"),
        ({"type": 18, "data": {}}, None, "unknown key type 18"),
        ({"type": 1, "data": None}, None, "key: expected an object, got None"),
        ({"type": 2, "data": {}}, None, "key: field 'group' is missing: version 0 requires it"),
        ({"type": 2, "data": {"group": "g", "topic": "t"}}, None, "key: version 0 has no field 'topic'"),
        ({"type": 2, "data": {"group": None}}, None, "key: group: expected a string, got None"),
        ({"type": 2, "data": {"group": "g" * 32768}}, None, "key: group: the string is too long to be serialized"),
        (_KEY, {"version": 5, "data": _COMMIT}, "unsupported value version 5 of key type 1"),
        (_KEY, {"version": -1, "data": _COMMIT}, "unsupported value version -1"),
        (_KEY, {"version": 3, "data": _COMMIT | {"topicId": "A" * 22}}, "version 3 has no field 'topicId'"),
        (_KEY, _commit(offset=1 << 63), "value: offset: 9223372036854775808 does not fit int64"),
        (_KEY, _commit(offset=1.0), "value: offset: expected a whole number, got 1.0"),
        (_KEY, _commit(offset=True), "value: offset: expected a whole number, got True"),
        (_KEY, _commit(topicId="short"), "value: topicId: expected a UUID of 22 characters, got 'short'"),
        (_KEY, _commit(topicId=5), "value: topicId: expected a UUID"),
        (
            {"type": 7, "data": {"groupId": "g", "memberId": "m"}},
            {"version": 0, "data": {"topicPartitions": {}}},
            "expected a list",
        ),
    ],
)
def test_what_is_refused(key: Any, value: Any, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason.replace("(", r"\(")):
        encode_record(key, value)


def test_bytes_may_be_base64_or_bytes() -> None:
    member = {"memberId": "m", "clientId": "c", "clientHost": "/h", "sessionTimeout": 1, "assignment": b""}
    group = {"protocolType": "consumer", "generation": 1, "protocol": None, "leader": None}
    one, other = (
        encode_value(2, {"version": 0, "data": group | {"members": [member | {"subscription": data}]}})
        for data in (b"\0\1", "AAE=")
    )
    assert one == other
    for wrong in ("AAE", "?", 5, None):
        with pytest.raises(DecodeError, match="members: subscription: expected bytes in base64"):
            encode_value(2, {"version": 0, "data": group | {"members": [member | {"subscription": wrong}]}})


def test_tombstones_stay_null() -> None:
    assert encode_record(_KEY, None)[1] is None
    assert encode_value(3, None) is None


def test_a_tagged_field_with_its_default_is_not_written() -> None:
    assert encode_value(1, _commit(topicId="A" * 22)) == encode_value(1, _commit())


def test_unpaired_surrogates_are_written_as_in_java() -> None:
    value = encode_value(1, _commit(metadata="a\ud83dz😀")) or b""
    assert decode_value(1, value)[1]["metadata"] == "a?z😀"


def test_strings_at_the_limit() -> None:
    value = encode_value(1, _commit(metadata="é" * 16383)) or b""
    assert decode_value(1, value)[1]["metadata"] == "é" * 16383
    with pytest.raises(DecodeError, match="too long"):
        encode_value(1, _commit(metadata="é" * 16384))


def test_embedded_versions_are_checked() -> None:
    with pytest.raises(DecodeError, match="unsupported version 4"):
        encode_subscription({"topics": [], "userData": None}, 4)
