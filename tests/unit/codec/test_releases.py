"""What each broker release writes: the thresholds of reference 6.1 and 6.2, and the records that Kafka refuses."""

from typing import Any

import pytest

from offsetstream.codec.records import decode_key, decode_value, encode_as_release, parse_release
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import UsageError

_KEY = {"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}}
_TOPIC_ID = "MKXx1fIkQy2J9jXHhK8m1w"
_COMMIT = {"offset": 1, "leaderEpoch": 2, "metadata": "m", "commitTimestamp": 3}


def _commit(release: str, **more: object) -> tuple[int, int, dict[str, Any]]:
    key, value = encode_as_release(_KEY, {"version": 4, "data": _COMMIT | more}, release)
    assert value is not None
    return decode_key(key)[0], *decode_value(1, value)


@pytest.mark.parametrize(
    ("release", "key_type", "version", "version_with_expiry"),
    [
        ("0.8.2", 0, 0, 0),
        ("0.8.2.2", 0, 0, 0),
        ("0.9.0", 1, 1, 1),
        ("0.10.0", 1, 1, 1),
        ("0.10.1-IV2", 1, 1, 1),
        ("0.11.0", 1, 1, 1),
        ("2.0", 1, 1, 1),
        ("2.1-IV0", 1, 2, 1),
        ("2.1-IV1", 1, 3, 1),
        ("2.1", 1, 3, 1),
        ("3.9", 1, 3, 1),
        ("4.0", 1, 3, 1),
        ("4.1", 1, 4, 1),
        ("4.1-IV0", 1, 4, 1),
        ("4.3.1", 1, 4, 1),
        ("4.4", 1, 4, 1),
    ],
)
def test_commit_versions(release: str, key_type: int, version: int, version_with_expiry: int) -> None:
    assert _commit(release)[:2] == (key_type, version)
    assert _commit(release, expireTimestamp=-1)[:2] == (key_type, version)
    assert _commit(release, expireTimestamp=9)[:2] == (key_type, version_with_expiry)


def test_a_commit_keeps_the_fields_of_its_release() -> None:
    assert _commit("0.8.2", expireTimestamp=9)[2] == {"offset": 1, "metadata": "m", "commitTimestamp": 3}
    assert _commit("2.0")[2]["expireTimestamp"] == -1
    assert _commit("4.4", expireTimestamp=9)[2].keys() == {"offset", "metadata", "commitTimestamp", "expireTimestamp"}
    assert _commit("4.1", topicId=_TOPIC_ID)[2] == _COMMIT | {"topicId": _TOPIC_ID}
    assert _commit("4.0", topicId=_TOPIC_ID)[2] == _COMMIT


def test_a_missing_epoch_is_written_as_minus_one() -> None:
    _, value = encode_as_release(
        _KEY, {"version": 0, "data": {"offset": 1, "metadata": "", "commitTimestamp": 3}}, "3.0"
    )
    assert decode_value(1, value or b"")[1]["leaderEpoch"] == -1


_MEMBER = {
    "memberId": "m",
    "clientId": "c",
    "clientHost": "/h",
    "sessionTimeout": 7,
    "subscription": "",
    "assignment": "",
}
_GROUP = {"protocolType": "consumer", "generation": 1, "protocol": "range", "leader": "m", "members": [_MEMBER]}


def _group(release: str, **changes: object) -> tuple[int, dict[str, Any]]:
    _, value = encode_as_release({"type": 2, "data": {"group": "g"}}, {"version": 0, "data": _GROUP | changes}, release)
    assert value is not None
    return decode_value(2, value)


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("0.9.0", 0),
        ("0.10.0-IV1", 0),
        ("0.10.1-IV0", 1),
        ("2.0", 1),
        ("2.1-IV0", 2),
        ("2.2", 2),
        ("2.3-IV0", 3),
        ("4.4", 3),
    ],
)
def test_group_versions(release: str, version: int) -> None:
    assert _group(release)[0] == version


def test_a_group_of_version_0_takes_the_session_timeout_for_the_rebalance_timeout() -> None:
    _, data = _group("3.9")
    assert data["currentStateTimestamp"] == -1
    assert data["members"][0]["rebalanceTimeout"] == 7
    assert data["members"][0]["groupInstanceId"] is None


def test_kafka_refuses_to_write_some_groups() -> None:
    with pytest.raises(DecodeError, match=r"^Attempted to write non-empty group metadata with no defined protocol\.$"):
        _group("3.9", protocol=None)
    for member in (_MEMBER | {"assignment": None}, {name: _MEMBER[name] for name in _MEMBER if name != "assignment"}):
        with pytest.raises(DecodeError, match=r"^Attempted to write member m of group g with no assignment\.$"):
            _group("3.9", members=[member])
    assert _group("3.9", protocol=None, leader=None, members=[])[1]["protocol"] is None


@pytest.mark.parametrize(
    ("key_type", "release", "reason"),
    [
        (2, "0.8.2", "Kafka 0.8.2 does not write records of type 2 (GroupMetadata); 0.9.0 was the first to do so"),
        (
            10,
            "3.9",
            "Kafka 3.9 does not write records of type 10 (ShareGroupMemberMetadata); 4.0 was the first to do so",
        ),
        (17, "4.0", "Kafka 4.0 does not write records of type 17 (StreamsGroupMetadata); 4.1 was the first to do so"),
        (
            4,
            "4.1",
            "Kafka 4.1 does not write records of type 4 (ConsumerGroupPartitionMetadata); 4.0 was the last to do so",
        ),
    ],
)
def test_records_that_a_release_does_not_write_are_refused(key_type: int, release: str, reason: str) -> None:
    data = {"group": "g"} if key_type == 2 else {"groupId": "g"} | ({"memberId": "m"} if key_type == 10 else {})
    with pytest.raises(DecodeError) as refused:
        encode_as_release({"type": key_type, "data": data}, {"version": 0, "data": {}}, release)
    assert str(refused.value) == reason


def test_tombstones_of_record_4_are_still_written() -> None:
    assert encode_as_release({"type": 4, "data": {"groupId": "g"}}, None, "4.4")[1] is None


def test_fields_and_shapes_follow_the_release() -> None:
    key, value = {"type": 3, "data": {"groupId": "g"}}, {"version": 0, "data": {"epoch": 1, "metadataHash": 5}}
    lengths = [len(encode_as_release(key, value, release)[1] or b"") for release in ("4.0", "4.1")]
    assert lengths == [7, 17]
    key = {"type": 11, "data": {"groupId": "g"}}
    lengths = [len(encode_as_release(key, value, release)[1] or b"") for release in ("4.0", "4.1")]
    assert lengths == [7, 15]
    with pytest.raises(DecodeError, match="field 'metadataHash' is missing"):
        encode_as_release(key, {"version": 0, "data": {"epoch": 1}}, "4.1")


@pytest.mark.parametrize("text", ["", "4", "4.5", "0.8.1", "x.y", "2.1-IV", "5.0", "2.1-IV1x", "-1.0"])
def test_unknown_releases_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a release from 0\.8\.2 to 4\.4"):
        parse_release(text)


def test_releases_are_ordered() -> None:
    ordered = ["0.8.2", "0.9.0", "0.10.0", "0.10.1-IV0", "0.10.1", "1.0", "2.1-IV0", "2.1-IV1", "2.1", "2.10", "4.4"]
    assert sorted(ordered, key=parse_release) == ordered
