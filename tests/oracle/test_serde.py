"""Which complete records the coordinators of 4.3.1 and 4.0.2 accept: key types, versions, mismatched values."""

import struct
from random import Random

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from offsetstream.codec import decode_records
from offsetstream.codec.records import encode_record, encode_value
from testkit.codec_records import Layout, older_layouts, present_layouts
from tests.oracle.kafka_classes import KafkaClasses
from tests.oracle.test_generated_classes import damaged

Record = tuple[bytes | None, bytes | None]
_SERDE = "org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde"


def _accepts(gateway: JavaGateway, kafka: KafkaClasses, records: list[Record]) -> list[bool]:
    serde, wrap = kafka.new(_SERDE), gateway.jvm.java.nio.ByteBuffer.wrap
    verdicts = []
    for record in records:
        key, value = (None if data is None else wrap(data) for data in record)
        try:
            kafka.call(_SERDE, "deserialize", serde, key, value)
        except Py4JJavaError:
            verdicts.append(False)
        else:
            verdicts.append(True)
    return verdicts


def _ours(records: list[Record]) -> list[bool]:
    keys, values = [key for key, _ in records], [value for _, value in records]
    return [error is None for error in decode_records(keys, values)["error"].to_pylist()]


def _pairs(layouts: list[Layout], seed: int) -> list[Record]:
    rng = Random(seed)
    records: list[Record] = [(None, None), (None, b"\0\0"), (b"", None), (b"\0", b"")]
    for layout in layouts:
        key = encode_record(layout.random_key(rng), None)[0]
        value = encode_value(layout.type, layout.random_value(rng, "4.0")) or b""
        records += [(key, value), (key, None), (key, b""), (key, b"\0"), (key + b"more", value + b"more")]
        records += [(damaged(rng, key), value) for _ in range(3)]
        records += [(key, struct.pack(">h", version) + value[2:]) for version in (-1, 5, 99)]
        # A value under a key of another type is decoded if its bytes happen to fit.
        records += [(key, encode_value(other.type, other.random_value(rng, "4.0"))) for other in layouts]
    return records


def _only_older_releases_read(record: Record) -> bool:
    key = record[0] or b""
    return key[:2] == b"\0\x09" or key[:2] == b"\0\0"


@pytest.mark.parametrize("release", ["kafka_4_3", pytest.param("kafka_4_4", marks=pytest.mark.nightly)])
def test_records_are_accepted_as_since_4_1(release: str, gateway: JavaGateway, request: pytest.FixtureRequest) -> None:
    older = {layout.type for layout in older_layouts()}
    layouts = [layout for layout in present_layouts() if layout.type and layout.type not in older | {9}]
    records = [record for record in _pairs(layouts, 43) if not _only_older_releases_read(record)]
    expected = _accepts(gateway, request.getfixturevalue(release), records)
    assert _ours(records) == expected
    assert {True, False} == set(expected)


def test_records_are_accepted_as_4_0_accepts_them(gateway: JavaGateway, kafka_4_0: KafkaClasses) -> None:
    layouts = [layout for layout in present_layouts() if layout.type in (0, 9, 10, 12)]
    layouts.append(Layout(11, 0, 0))
    # The value of record 11 may fit its 4.1 layout, which comes first here; its own key has a separate test.
    records = [record for record in _pairs(layouts, 40) if (record[0] or b"")[:2] != b"\0\x0b"]
    expected = _accepts(gateway, kafka_4_0, records)
    assert _ours(records) == expected


@pytest.mark.parametrize("unknown", [18, 24, 99, 32767, -1, -32768])
def test_unknown_key_types(unknown: int, gateway: JavaGateway, kafka_4_3: KafkaClasses) -> None:
    records: list[Record] = [(struct.pack(">h", unknown) + b"\0\1g", value) for value in (None, b"", b"\0\0")]
    assert _accepts(gateway, kafka_4_3, records) == _ours(records) == [False] * 3
