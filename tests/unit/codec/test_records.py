"""One record at a time: every layout cut at every byte, unknown tags, older layouts, and what cannot be encoded."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetstream.codec.embedded_protocols import encode_subscription
from offsetstream.codec.record_layouts import record_types
from offsetstream.codec.records import decode_key, decode_value, encode_record, encode_value, jackson
from offsetstream.codec.serde import JsonObject, WithUnknownTags, message_reader
from offsetstream.codec.wire import DecodeError
from testkit.codec_records import Layout, older_layouts, present_layouts

LAYOUTS = [*present_layouts(), *older_layouts()]
_FLEXIBLE = [layout for layout in present_layouts() if layout.version in layout.shape.flexible]


def _full(layout: Layout) -> bytes:
    """Return a value with an element in every array."""
    for seed in range(200):
        value = layout.random_value(Random(seed))
        data = encode_value(layout.type, value) or b""
        if len(data) < 700 and "[]" not in json.dumps(value):
            return data
    return data


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_value_cut_at_any_byte_is_an_error(layout: Layout) -> None:
    value = _full(layout)
    reader = message_reader(layout.shape, layout.version)
    for length in range(2, len(value)):
        with pytest.raises(DecodeError, match=r"^truncated|^negative length"):
            reader(value[:length], 2)
    for length in (0, 1):
        with pytest.raises(DecodeError, match=r"^truncated value"):
            decode_value(layout.type, value[:length])


@pytest.mark.parametrize("layout", present_layouts(), ids=str)
def test_trailing_bytes_are_ignored(layout: Layout) -> None:
    value = _full(layout)
    assert decode_value(layout.type, value + b"\0garbage") == decode_value(layout.type, value)


@pytest.mark.parametrize("key_type", record_types())
def test_a_key_cut_at_any_byte_is_truncated(key_type: int) -> None:
    key, _ = encode_record(Layout(key_type, 0).random_key(Random(key_type)), None)
    for length in range(len(key)):
        with pytest.raises(DecodeError, match=r"^truncated key"):
            decode_key(key[:length])
    assert decode_key(key + b"garbage") == decode_key(key)


@pytest.mark.parametrize("layout", present_layouts(), ids=str)
@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_decode_is_the_inverse_of_encode(layout: Layout, rng: Random) -> None:
    key, value = layout.random_key(rng), layout.random_value(rng)
    key_bytes, value_bytes = encode_record(key, value)
    assert decode_key(key_bytes) == (key["type"], key["data"])
    version, data = decode_value(layout.type, value_bytes or b"")
    assert encode_value(layout.type, {"version": version, "data": data}) == value_bytes
    assert encode_value(layout.type, json.loads(jackson({"version": version, "data": data}))) == value_bytes


def _with_unknown_tags(data: Any) -> Any:
    """Return the same value with tags of a later release in every struct."""
    if isinstance(data, list):
        return [_with_unknown_tags(item) for item in data]
    if not isinstance(data, dict):
        return data
    tagged = WithUnknownTags({name: _with_unknown_tags(cell) for name, cell in data.items()})
    tagged.unknown_tags = [(100, b""), (101, b"\0\1\2"), (20_000, b"x" * 200)]
    return tagged


def _unknown_tags_kept(data: Any) -> int:
    if isinstance(data, list):
        return sum(_unknown_tags_kept(item) for item in data)
    if not isinstance(data, dict):
        return 0
    return len(getattr(data, "unknown_tags", [])) + sum(_unknown_tags_kept(cell) for cell in data.values())


@pytest.mark.parametrize("layout", _FLEXIBLE, ids=str)
def test_unknown_tags_at_every_level_are_skipped_and_kept(layout: Layout) -> None:
    version, data = decode_value(layout.type, _full(layout))
    tagged = _with_unknown_tags(data)
    written = encode_value(layout.type, {"version": version, "data": tagged}) or b""
    assert len(written) > len(_full(layout))
    assert decode_value(layout.type, written) == (version, data)
    read = decode_value(layout.type, written)[1]
    assert jackson(read) == jackson(data)  # unknown tags are not in Kafka's JSON
    assert _unknown_tags_kept(read) == _unknown_tags_kept(tagged) > 0
    assert encode_value(layout.type, {"version": version, "data": read}) == written


def test_an_empty_struct_with_an_unknown_tag_is_not_the_default() -> None:
    member = json.loads(jackson(Layout(5, 0).random_value(Random(1))["data"])) | {"classicMemberMetadata": {}}
    empty = WithUnknownTags({"sessionTimeoutMs": 0, "supportedProtocols": []})
    empty.unknown_tags = [(7, b"x")]
    written = encode_value(5, {"version": 0, "data": member | {"classicMemberMetadata": empty}}) or b""
    assert decode_value(5, written)[1]["classicMemberMetadata"] == {"sessionTimeoutMs": 0, "supportedProtocols": []}


def test_tags_are_written_in_ascending_order() -> None:
    data = WithUnknownTags({"epoch": 10, "metadataHash": 1})
    data.unknown_tags = [(101, b"x"), (100, b"")]
    written = encode_value(3, {"version": 0, "data": data}) or b""
    assert written == bytes.fromhex("0000 0000000a 03 00 08 0000000000000001 64 00 65 01 78")


@pytest.mark.parametrize(("payload", "expected"), [(b"", {}), (b"\1", {}), (b"\0", {"assignmentEpochs": None})])
def test_tagged_arrays_are_empty_by_default_not_null(payload: bytes, expected: JsonObject) -> None:
    """Records 8 and 22: an absent or empty array is not shown, an explicit null is."""
    section = b"\1\0" + bytes([len(payload)]) + payload if payload else b"\0"
    current = b"\0\0" + b"\0\0\0\1" * 2 + b"\0" + b"\2" + bytes(16) + b"\1" + section + b"\1\0"
    (assigned,) = decode_value(8, current)[1]["assignedPartitions"]
    assert assigned == {"topicId": "A" * 22, "partitions": []} | expected
    tasks = ("activeTasks", "standbyTasks", "warmupTasks")
    for at, name in enumerate([*tasks, *(f"{each}PendingRevocation" for each in tasks)]):
        arrays = b"\1" * at + b"\2" + b"\2s\1" + section + b"\1" * (5 - at)
        streams = b"\0\0" + b"\0\0\0\1" * 2 + b"\1" + arrays + b"\0"
        assert decode_value(22, streams)[1][name] == [{"subtopologyId": "s", "partitions": []} | expected]


def test_tags_of_record_17() -> None:
    head = b"\0\0" + b"\0\0\0\5" + bytes(7) + b"\x09"
    plain = {"epoch": 5, "metadataHash": 9}
    assert decode_value(17, head + b"\0")[1] == plain
    defaults = b"\4" + b"\0\4\xff\xff\xff\xff" + b"\1\1\1" + b"\2\4\xff\xff\xff\xff" + b"\3\4\xff\xff\xff\xff"
    assert decode_value(17, head + defaults)[1] == plain
    given = b"\4" + b"\3\4\0\0\0\3" + b"\2\4\xff\xff\xff\xfe" + b"\1\1\0" + b"\0\4\0\0\0\0"  # any order
    assert list(decode_value(17, head + given)[1].items())[2:] == [
        ("validatedTopologyEpoch", 0),
        ("lastAssignmentConfigs", None),
        ("storedDescriptionTopologyEpoch", -2),
        ("failedDescriptionTopologyEpoch", 3),
    ]


def _member(**more: object) -> JsonObject:
    names = {"instanceId": None, "rackId": None, "clientId": "c", "clientHost": "/h", "subscribedTopicNames": ["t"]}
    return names | {"subscribedTopicRegex": None, "rebalanceTimeoutMs": 1, "serverAssignor": None} | more


_TOPIC = {"topicId": "MKXx1fIkQy2J9jXHhK8m1w", "partitions": [0, 1]}
_NAMED = {"topicId": "MKXx1fIkQy2J9jXHhK8m1w", "topicName": "t", "numPartitions": 1, "partitionMetadata": []}
_EARLY = {
    4: {"epoch": 3, "topics": [_NAMED]},
    5: _member(assignors=[]),
    7: {"error": 0, "topicPartitions": [_TOPIC], "metadataVersion": 0, "metadataBytes": b""},
    8: {
        "memberEpoch": 3,
        "previousMemberEpoch": 2,
        "targetMemberEpoch": 3,
        "assignedPartitions": [_TOPIC],
        "partitionsPendingRevocation": [],
        "partitionsPendingAssignment": [],
        "error": 0,
        "metadataVersion": 0,
        "metadataBytes": b"",
    },
    11: {"epoch": 9},
}


@pytest.mark.parametrize("key_type", _EARLY)
def test_layouts_of_older_releases_are_recognised(key_type: int) -> None:
    """The layouts of 3.7, and record 11 of 4.0, are used only if they fit to the last byte."""
    value = encode_value(key_type, {"version": 0, "data": _EARLY[key_type]}) or b""
    assert decode_value(key_type, value) == (0, _EARLY[key_type])
    for broken in (value + b"\0", value[:-1]):
        with pytest.raises(DecodeError, match=r"in value|truncated value"):
            decode_value(key_type, broken)


def test_the_layout_of_record_11_follows_from_its_length() -> None:
    assert decode_value(11, bytes.fromhex("0000 00000009 00")) == (0, {"epoch": 9})
    assert decode_value(11, bytes.fromhex("0000 00000009 00000000000000ff 00")) == (
        0,
        {"epoch": 9, "metadataHash": 255},
    )


def test_legacy_commits_with_later_values_are_read() -> None:
    for version in range(5):
        value = Layout(1, version).random_value(Random(version))
        data = encode_value(1, value) or b""
        assert decode_value(0, data) == decode_value(1, data)


@pytest.mark.parametrize("key_type", record_types())
def test_versions_outside_the_range_are_refused(key_type: int) -> None:
    last = record_types()[key_type].value.versions.last
    for version in (-32768, -1, last + 1, 32767):
        value = (version & 0xFFFF).to_bytes(2, "big") + b"\0" * 60
        with pytest.raises(DecodeError, match=rf"unsupported value version {version} of key type {key_type}$"):
            decode_value(key_type, value)


@pytest.mark.parametrize("group", ["", "a,b]", "a\nb", "nul\0", "😀𝄞", "\u2028"])
def test_odd_group_ids(group: str) -> None:
    key, _ = encode_record({"type": 2, "data": {"group": group}}, None)
    assert decode_key(key) == (2, {"group": group})


@pytest.mark.parametrize(
    ("marker", "rest", "expected"),
    [
        (b"\xff", b"", None),
        (b"\x80", b"", None),
        (b"\1", b"\2h\0\1\0", {"host": "h", "port": 1}),
        (b"\0", b"\2h\0\1\0", {"host": "h", "port": 1}),
        (b"\x7f", b"\2h\xff\xff\0", {"host": "h", "port": 65535}),
    ],
)
def test_user_endpoint_markers(marker: bytes, rest: bytes, expected: object) -> None:
    head = bytes.fromhex("0000 00 00 02 63 03 2f68 ffffffff 00000001 02 70")
    _, data = decode_value(19, head + marker + rest + b"\1\0")
    assert data["userEndpoint"] == expected


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"\0", None),
        (b"\x80\x80\x80\x80\x08", None),
        (b"\1\0\0\0\5\1\0", {"sessionTimeoutMs": 5, "supportedProtocols": []}),
    ],
)
def test_classic_member_markers(payload: bytes, expected: object) -> None:
    head = encode_value(5, {"version": 0, "data": _member()}) or b""
    assert decode_value(5, head[:-1] + b"\1\0\x63" + payload)[1]["classicMemberMetadata"] == expected


def test_numbers_and_arrays_longer_than_the_value_are_refused() -> None:
    for key_type, body in ((7, b"\xff\xff\xff\xff\x0f"), (16, b"\x80\x80\x80\x80\x08"), (7, b"\x05")):
        with pytest.raises(DecodeError, match=r"truncated value|negative length in value"):
            decode_value(key_type, b"\0\0" + body)


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
