"""Fields, versions, nullability, tags and defaults of our schemas against Kafka's generated classes.

The other tests of this folder draw their records from our schemas, so they never contain a field that our schemas
lack.
"""

from __future__ import annotations

import pytest

from offsetstream.codec.record_layouts import Shape, Versions, embedded_shape, record_types
from tests.oracle.cases import CASES, EARLY_ACCESS, NIGHTLY, Case
from tests.oracle.declared import Declarations, ours
from tests.oracle.kafka_classes import CLIENT_MESSAGES, GROUP_MESSAGES, KafkaClasses

_EMBEDDED = {
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
}


def _assert_declared(kafka: KafkaClasses, message: str, version: int, shape: Shape) -> None:
    assert ours(shape, version) == Declarations(kafka).fields(message, version, shape)


@pytest.mark.parametrize("case", [*CASES, *EARLY_ACCESS, *NIGHTLY], ids=str)
def test_values_have_the_fields_that_kafka_declares(case: Case, kafka: KafkaClasses) -> None:
    _assert_declared(kafka, case.message("Value"), case.layout.version, case.shape)


@pytest.mark.parametrize("case", [*CASES, *EARLY_ACCESS, *NIGHTLY], ids=str)
def test_keys_have_the_fields_that_kafka_declares(case: Case, kafka: KafkaClasses) -> None:
    version, shape = case.key_version, record_types()[case.layout.type].key
    first, last = Declarations(kafka).versions(case.message("Key"))
    assert first <= version <= last  # up to 4.0 one class served both keys of offset commits
    assert ours(shape, 0) == Declarations(kafka).fields(case.message("Key"), version, shape)


# From 4.1 on Kafka reads legacy commits of version 0 only; earlier releases, and we, read all versions.
@pytest.mark.parametrize(
    "case", [*(each for each in CASES if each.release == "4.3.1" and each.layout.type), *NIGHTLY[1:]], ids=str
)
def test_values_have_the_versions_that_kafka_declares(case: Case, kafka: KafkaClasses) -> None:
    first, last = Declarations(kafka).versions(case.message("Value"))
    assert case.shape.versions == Versions(first, last)


@pytest.mark.parametrize("name", _EMBEDDED)
def test_the_consumer_protocol_has_the_fields_that_kafka_declares(name: str, kafka_4_3: KafkaClasses) -> None:
    shape, message = embedded_shape(_EMBEDDED[name]), f"{CLIENT_MESSAGES}.{name}"
    first, last = Declarations(kafka_4_3).versions(message)
    assert shape.versions == Versions(first, last)
    for version in range(first, last + 1):
        _assert_declared(kafka_4_3, message, version, shape)


@pytest.mark.parametrize("release", ["kafka_4_3", pytest.param("kafka_4_4", marks=pytest.mark.nightly)])
def test_no_record_of_the_release_is_missing(release: str, request: pytest.FixtureRequest) -> None:
    kinds, kafka = f"{GROUP_MESSAGES}.CoordinatorRecordType", request.getfixturevalue(release)
    declared = {kafka.call(kinds, "id", each) for each in kafka.call(kinds, "values")}
    assert declared == set(record_types()) - {9}  # early access of share groups in 4.0
