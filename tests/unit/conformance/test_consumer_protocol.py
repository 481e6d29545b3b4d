"""Subscriptions and assignments of consumers (reference 3.1, 9.5)."""

from __future__ import annotations

import pytest

from offsetstream.codec.embedded_protocols import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from offsetstream.codec.wire import DecodeError

KAFKA_CLASS = "ConsumerProtocolTest"
VERSIONS = range(4)
OWNED = [{"topic": "foo", "partitions": [0, 1]}]
FULL = {"topics": ["foo", "bar"], "userData": b"\1", "ownedPartitions": OWNED, "generationId": 7, "rackId": "r"}
FIELDS = ("topics", "userData", "ownedPartitions", "generationId", "rackId")
FUTURE = b"\0\x64"


def of_version(version: int) -> dict[str, object]:
    return {name: FULL[name] for name in FIELDS[: version + 2]}


def test_deserialize_old_subscription_version() -> None:
    assert decode_subscription(encode_subscription(of_version(0), 0)) == of_version(0)


def test_deserialize_new_subscription_with_old_version() -> None:
    newer = encode_subscription(FULL, 3)
    assert decode_subscription(b"\0\0" + newer[2:]) == of_version(0)


def test_deserialize_future_subscription_version() -> None:
    assert decode_subscription(FUTURE + encode_subscription(FULL, 3)[2:] + b"more") == FULL


def test_deserialize_future_assignment_version() -> None:
    assignment = {"assignedPartitions": OWNED, "userData": None}
    assert decode_assignment(FUTURE + encode_assignment(assignment, 3)[2:] + b"more") == assignment


@pytest.mark.parametrize("version", VERSIONS)
def test_serialize_deserialize_null_subscription_user_data(version: int) -> None:
    data = of_version(version) | {"userData": None}
    assert decode_subscription(encode_subscription(data, version))["userData"] is None


@pytest.mark.parametrize("version", VERSIONS)
def test_deserialize_null_assignment_user_data(version: int) -> None:
    assert (
        decode_assignment(encode_assignment({"assignedPartitions": [], "userData": None}, version))["userData"] is None
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_serialize_deserialize_subscription_all_versions(version: int) -> None:
    assert decode_subscription(encode_subscription(of_version(version), version)) == of_version(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_serialize_deserialize_assignment_all_versions(version: int) -> None:
    data = {"assignedPartitions": OWNED, "userData": b"\1"}
    assert decode_assignment(encode_assignment(data, version)) == data


@pytest.mark.parametrize("version", VERSIONS)
def test_deserialize_subscription_throws_schema_exception_for_every_truncation(version: int) -> None:
    whole = encode_subscription(of_version(version), version)
    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_subscription(whole[:end])


@pytest.mark.parametrize("version", VERSIONS)
def test_deserialize_assignment_throws_schema_exception_for_every_truncation(version: int) -> None:
    whole = encode_assignment({"assignedPartitions": OWNED, "userData": b"\1"}, version)
    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_assignment(whole[:end])


def test_deserialize_version_throws_schema_exception_for_every_truncation() -> None:
    for decode in (decode_subscription, decode_assignment):
        for cut in (b"", b"\0"):
            with pytest.raises(DecodeError):
                decode(cut)


def test_deserialize_consumer_protocol_subscription_throws_schema_exception_for_every_truncation() -> None:
    # Read as a version that is yet to come, every field of the latest known one must be there.
    whole = FUTURE + encode_subscription(FULL, 3)[2:]
    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_subscription(whole[:end])
