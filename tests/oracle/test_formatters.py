"""Output of the console consumer's formatters, record by record: 4.3.1 and 4.4.0 (JSON), 3.9.2 (text)."""

import struct
from random import Random
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from offsetstream.codec import kafka_text as ours
from offsetstream.codec.records import encode_record
from offsetstream.codec.wire import DecodeError
from testkit.codec_records import Layout, present_layouts
from tests.oracle.kafka_classes import KafkaClasses

Record = tuple[bytes | None, bytes | None]
STOPS = "stops"


class Formatter:
    """A Kafka message formatter, fed record by record."""

    def __init__(self, gateway: JavaGateway, kafka: KafkaClasses, name: str) -> None:
        self._java, self._kafka = gateway.jvm.java, kafka
        self._name, self._formatter = name, kafka.new(name)

    def print(self, record: Record) -> str | None:
        """Return its output for the record; None if it prints nothing, STOPS if it raises."""
        out = self._java.io.ByteArrayOutputStream()
        consumed = self._kafka.new("org.apache.kafka.clients.consumer.ConsumerRecord", "t", 0, 0, *record)
        try:
            self._kafka.call(self._name, "writeTo", self._formatter, consumed, self._java.io.PrintStream(out))
        except Py4JJavaError:
            return STOPS
        data: bytes = out.toByteArray()
        return data.decode() or None


def _ours(function: Any, record: Record, types: frozenset[int]) -> str | None:
    try:
        text: str | None = function(*record, types)
    except DecodeError:
        return STOPS
    return text


def random_records(layouts: list[Layout], count: int, seed: int) -> list[Record]:
    """Good, truncated and deleted records of the layouts, including null keys and unknown types and versions."""
    rng = Random(seed)
    records: list[Record] = [
        (None, b"\0\0"),
        (b"", b"\0\0"),
        (b"\0", None),
        *((struct.pack(">h", unknown) + b"\0\1g", b"\0\0") for unknown in (18, 24, 32767, -1)),
        *((encode_record(layout.random_key(rng), None)[0], b"\0\x63") for layout in layouts),
    ]
    for layout in layouts:
        for _ in range(count):
            key, value = encode_record(layout.random_key(rng), layout.random_value(rng, "4.3"))
            fate = rng.random()
            if fate < 0.1 and value:
                value = value[: rng.randrange(len(value))]
            elif fate < 0.2:
                value = None
            elif fate < 0.25:
                key = key[: rng.randrange(2, len(key))]
            records.append((key, value))
    return records


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("OffsetsMessageFormatter", ours.OFFSETS_FORMATTER),
        ("GroupMetadataMessageFormatter", ours.GROUP_METADATA_FORMATTER),
        ("ShareGroupMessageFormatter", ours.SHARE_GROUP_FORMATTER),
    ],
)
@pytest.mark.parametrize("tools", ["tools_4_3", pytest.param("tools_4_4", marks=pytest.mark.nightly)])
def test_json_formatters(
    name: str, types: frozenset[int], tools: str, gateway: JavaGateway, request: pytest.FixtureRequest
) -> None:
    formatter = Formatter(gateway, request.getfixturevalue(tools), f"org.apache.kafka.tools.consumer.{name}")
    # Without records that only older releases read: key type 9, key type 0 with later values.
    layouts = [layout for layout in present_layouts() if layout.type != 9 and (layout.type or not layout.version)]
    records = random_records(layouts, 6, 43)
    expected = [formatter.print(record) for record in records]
    assert [_ours(ours.kafka_json, record, types) for record in records] == expected
    assert {None, STOPS} < set(expected)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("OffsetsMessageFormatter", ours.OFFSETS_FORMATTER),
        ("GroupMetadataMessageFormatter", ours.GROUP_METADATA_FORMATTER),
    ],
)
def test_text_formatters_of_3_9(
    name: str, types: frozenset[int], gateway: JavaGateway, broker_3_9: KafkaClasses
) -> None:
    formatter = Formatter(gateway, broker_3_9, f"kafka.coordinator.group.GroupMetadataManager${name}")
    records = random_records([layout for layout in present_layouts() if layout.type < 3], 20, 39)
    expected = [formatter.print(record) for record in records]
    assert [_ours(ours.kafka_text, record, types) for record in records] == expected
    assert {None, STOPS} < set(expected)


def _group(members: list[dict[str, object]], **fields: object) -> Record:
    data = {"protocolType": "consumer", "generation": 3, "protocol": "range", "leader": "m", "currentStateTimestamp": 1}
    value = {"version": 3, "data": data | fields | {"members": members}}
    return encode_record({"type": 2, "data": {"group": "g"}}, value)


def _member(member_id: str, instance: str | None) -> dict[str, object]:
    timeouts: dict[str, object] = {"rebalanceTimeout": 1, "sessionTimeout": 2}
    names: dict[str, object] = {"memberId": member_id, "groupInstanceId": instance, "clientId": "c", "clientHost": "/h"}
    return names | timeouts | {"subscription": "", "assignment": ""}


def test_text_of_groups_with_many_members(gateway: JavaGateway, broker_3_9: KafkaClasses) -> None:
    formatter = Formatter(
        gateway, broker_3_9, "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter"
    )
    rng = Random(7)
    records = [_group([], protocolType="", protocol=None, leader=None), _group([], protocol=None)]
    records.append(_group([_member("a", None)], protocolType=""))
    records.append(_group([_member("a", "i"), _member("b", "i")]))
    records.append(_group([_member("a", None), _member("a", None)]))
    for count in (1, 2, 11, 12, 13, 23, 24, 25, 60):
        members = [_member(f"consumer-{rng.getrandbits(40):x}😀", rng.choice([None, f"i{n}"])) for n in range(count)]
        records.append(_group([_member("Aa", None), _member("BB", None), *members]))  # equal hashes
    expected = [formatter.print(record) for record in records]
    assert [_ours(ours.kafka_text, record, ours.GROUP_METADATA_FORMATTER) for record in records] == expected
