"""Reading and writing records (reference 9.1, class S)."""

from __future__ import annotations

import pytest

from offsetstream.codec.records import decode_value, encode_as_release, encode_record
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.cache import GroupMetadataCache
from offsetstream.coordinator.replay.classic_group import classic_group_from_value
from offsetstream.coordinator.replay.offsets import offset_from_value
from tests.conformance.builder import TIMESTAMP, Log, classic, classic_member, commit

KAFKA_CLASS = "GroupMetadataManagerTest.scala"
RELEASES = ("0.10.2", "1.1", "2.0", "2.1", "2.3", "3.0", "3.9")
COMMIT_KEY = {"type": 1, "data": {"group": "foo", "topic": "t", "partition": 0}}
COMMIT = {"offset": 37, "leaderEpoch": 15, "metadata": "metadata", "commitTimestamp": TIMESTAMP}


def value_of(pair: tuple[bytes | None, bytes | None]) -> bytes:
    assert pair[1] is not None
    return pair[1]


def as_release(release: str, **fields: int) -> tuple[int, dict[str, object]]:
    _, value = encode_as_release(COMMIT_KEY, {"version": 4, "data": COMMIT | fields}, release)
    assert value is not None
    return decode_value(1, value)


def test_should_throw_exception_for_unsupported_group_metadata_version() -> None:
    with pytest.raises(DecodeError, match="-32768"):
        decode_value(2, b"\x80\0" + value_of(classic())[2:])


@pytest.mark.parametrize("release", RELEASES)
def test_current_state_timestamp_for_all_group_metadata_versions(release: str) -> None:
    key = {"type": 2, "data": {"group": "foo"}}
    _, data = decode_value(2, value_of(classic(classic_member())))
    _, value = encode_as_release(key, {"version": 3, "data": data}, release)
    assert value is not None
    version, written = decode_value(2, value)
    group = classic_group_from_value("foo", version, written)
    has_timestamp = tuple(int(part) for part in release.split(".")) >= (2, 1)
    assert group.current_state_timestamp_ms == (TIMESTAMP if has_timestamp else None)
    assert (version >= 2) == has_timestamp


@pytest.mark.parametrize("version", [0, 1, 2])
def test_read_from_old_group_metadata(version: int) -> None:
    number, value = decode_value(2, value_of(classic(classic_member("m", groupInstanceId="i"), version=version)))
    group = classic_group_from_value("foo", number, value)
    assert number == version
    assert (group.generation, group.protocol_type, group.protocol_name, group.leader_id) == (
        935,
        "consumer",
        "range",
        "m",
    )
    assert group.members["m"].group_instance_id is None
    assert group.static_members == {}


@pytest.mark.parametrize("release", RELEASES)
def test_serde_offset_commit_value(release: str) -> None:
    version, value = as_release(release)
    parts = tuple(int(part) for part in release.split("."))
    assert version == (3 if parts >= (2, 1) else 1)
    read = offset_from_value(value, 0)
    assert (read.offset, read.metadata, read.commit_timestamp_ms) == (37, "metadata", TIMESTAMP)
    assert read.leader_epoch == (15 if version >= 3 else None)


@pytest.mark.parametrize("release", RELEASES)
def test_serde_offset_commit_value_with_expire_timestamp(release: str) -> None:
    version, value = as_release(release, expireTimestamp=TIMESTAMP + 1)
    assert version == 1
    assert offset_from_value(value, 0).expire_timestamp_ms == TIMESTAMP + 1


@pytest.mark.parametrize("release", RELEASES)
def test_serde_offset_commit_value_with_none_expire_timestamp(release: str) -> None:
    version, value = as_release(release, expireTimestamp=-1)
    assert value.get("expireTimestamp", -1) == -1
    assert ("expireTimestamp" in value) == (version == 1)
    assert offset_from_value(value, 0).expire_timestamp_ms is None


def test_serialize_group_metadata_value_to_highest_non_flexible_version() -> None:
    assert value_of(classic())[:2] == b"\0\3"
    assert (
        value_of(
            encode_as_release(
                {"type": 2, "data": {"group": "g"}},
                {"version": 3, "data": decode_value(2, value_of(classic()))[1]},
                "3.9",
            )
        )[:2]
        == b"\0\3"
    )


def test_serialize_offset_commit_value_to_highest_non_flexible_version() -> None:
    assert as_release("3.9")[0] == 3


def test_deserialize_highest_supported_group_metadata_value_version() -> None:
    version, value = decode_value(2, value_of(classic(classic_member("m"), version=4)))
    assert version == 4
    assert list(classic_group_from_value("foo", version, value).members) == ["m"]


def test_deserialize_highest_supported_offset_commit_value_version() -> None:
    version, value = decode_value(1, value_of(commit("t", 0, 5, version=4, leaderEpoch=7)))
    assert (version, value["offset"], value["leaderEpoch"]) == (4, 5, 7)


def test_deserialize_future_offset_commit_value() -> None:
    # Kafka's own vector has tags 0 and 1; 0 has become topicId, so these are later ones.
    plain = value_of(commit("t", 0, 5, version=4))
    future = plain[:-1] + b"\2" + b"\x07\3abc" + b"\x08\4\0\0\0\1"
    assert decode_value(1, future) == decode_value(1, plain)


def test_deserialize_future_group_metadata_value() -> None:
    tag = b"\1\x07\3abc"
    plain = value_of(classic(classic_member("m"), version=4))
    assert plain.endswith(b"\0\0")  # the tags of the member, and those of the group
    assert decode_value(2, plain[:-2] + tag + tag) == decode_value(2, plain)


def test_read_message_key_can_read_unknown_message() -> None:
    unknown = (b"\x7f\xff\0\0", b"\0\0")
    assert GroupMetadataCache("classic").load_partition(0, Log().write(unknown).batches).status == "loaded"


def test_an_expiry_is_written_as_version_1_only() -> None:
    with pytest.raises(DecodeError):
        encode_record(COMMIT_KEY, {"version": 3, "data": COMMIT | {"expireTimestamp": 1}})
