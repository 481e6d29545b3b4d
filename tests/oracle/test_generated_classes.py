"""Every record type and version against the classes that Kafka generates from its own schemas."""

import json
import struct
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offsetstream.codec import decode_records
from offsetstream.codec.record_layouts import Shape, record_types
from offsetstream.codec.records import decode_key, decode_value, encode_record, encode_value, jackson
from offsetstream.codec.serde import JsonObject, message_reader
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.replay.release_rules import MAX_ARRAY_ELEMENTS
from testkit.codec_records import Layout
from tests.conformance.builder import topics
from tests.oracle.cases import CASES, EARLY_ACCESS, NIGHTLY, Case
from tests.oracle.kafka_classes import FAILED, GROUP_MESSAGES, KafkaClasses

RECORDS = 350  # of each version of each type: more than 10,000 in all


def _text(document: JsonObject) -> str:
    return json.dumps(document["data"])


def test_there_are_ten_thousand_records() -> None:
    assert RECORDS * sum(case.release == "4.3.1" for case in CASES) > 10_000
    assert {case.layout.type for case in CASES} == set(record_types())


@pytest.mark.parametrize("case", [*CASES, *NIGHTLY], ids=str)
def test_values_agree_byte_for_byte_and_in_json(case: Case, kafka: KafkaClasses) -> None:
    rng, message, version = Random(f"values {case}"), case.message("Value"), case.layout.version
    values = [case.layout.random_value(rng, case.release) for _ in range(RECORDS)]
    written = kafka.write(message, version, [_text(value) for value in values])
    printed = kafka.read(message, version, [data[2:] for data in written])

    read_by_us = [decode_value(case.layout.type, data) for data in written]
    assert [jackson(data) for _, data in read_by_us] == printed
    assert [encode_value(case.layout.type, value) for value in values] == written
    assert [encode_value(case.layout.type, {"version": v, "data": data}) for v, data in read_by_us] == written


@pytest.mark.parametrize("case", [*CASES, *NIGHTLY], ids=str)
def test_keys_agree_byte_for_byte_and_in_json(case: Case, kafka: KafkaClasses) -> None:
    rng, message, key_type = Random(f"keys {case}"), case.message("Key"), case.layout.type
    keys = [case.layout.random_key(rng) for _ in range(50)]
    bodies = [data[2:] for data in kafka.write(message, case.key_version, [_text(key) for key in keys])]
    printed = kafka.read(message, case.key_version, bodies)
    written = [struct.pack(">h", key_type) + body for body in bodies]

    assert [decode_key(data) for data in written] == [(key_type, json.loads(text)) for text in printed]
    assert [jackson(decode_key(data)[1]) for data in written] == printed
    assert [encode_record(key, None)[0] for key in keys] == written


def damaged(rng: Random, body: bytes) -> bytes:
    """Return the bytes truncated, padded, or with some bytes replaced."""
    data = bytearray(body)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = rng.randbytes(rng.choice([1, 2, 8]))
            case 2:
                del data[at : at + rng.choice([1, 2, 4])]
            case 3 if at < len(data):
                data[at] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            case _:
                data[at : at + 1] = rng.choice([b"\xed\xa0\x80", b"\xff\xff", b"\x80\x80\x00", b"\xff\xff\xff\xff\x0f"])
    return bytes(data)


def _read_strictly(shape: Shape, version: int, body: bytes) -> str | None:
    try:
        return jackson(message_reader(shape, version)(body, 0)[0])
    except DecodeError:
        return None


# A count of 2^31 or more, which no broker writes. Earlier releases read it as 0, and so do we (reference 2.9).
_REFUSED_SINCE_4_4 = f"{FAILED}java.lang.RuntimeException: Invalid negative number of tagged fields"


def _verdicts(printed: list[str]) -> list[str | None]:
    return [None if text.startswith(FAILED) else text for text in printed]


@pytest.mark.parametrize("case", [*CASES, *NIGHTLY], ids=str)
def test_damaged_values_are_rejected_alike_or_read_alike(case: Case, kafka: KafkaClasses) -> None:
    rng, message, version = Random(f"damage {case}"), case.message("Value"), case.layout.version
    values = [case.layout.random_value(rng, case.release) for _ in range(RECORDS)]
    bodies = [damaged(rng, (encode_value(case.layout.type, value) or b"")[2:]) for value in values]
    printed = kafka.read(message, version, bodies)
    ours, expected = [_read_strictly(case.shape, version, body) for body in bodies], _verdicts(printed)
    refused = [at for at, text in enumerate(printed) if text.startswith(_REFUSED_SINCE_4_4)]
    assert not refused or case.release == "4.4.0"
    assert ours == [ours[at] if at in refused else text for at, text in enumerate(expected)]
    assert any(text is None for text in expected)
    assert any(text is not None for text in expected)


@pytest.mark.parametrize("case", [*(case for case in CASES if case.release == "4.3.1"), *NIGHTLY], ids=str)
def test_damaged_keys_are_rejected_alike_or_read_alike(case: Case, kafka: KafkaClasses) -> None:
    rng, message = Random(f"damage {case}"), case.message("Key")
    keys = [encode_record(case.layout.random_key(rng), None)[0] for _ in range(50)]
    bodies = [damaged(rng, key[2:]) for key in keys]
    shape = record_types()[case.layout.type].key
    assert [_read_strictly(shape, 0, body) for body in bodies] == _verdicts(kafka.read(message, 0, bodies))


@pytest.mark.parametrize("case", EARLY_ACCESS, ids=str)
def test_early_access_layouts_agree(case: Case, kafka: KafkaClasses) -> None:
    """Release 3.7 has no JSON converters for these: it reads our bytes and writes the same bytes again."""
    rng, message = Random(f"early {case}"), case.message("Value")
    values = [case.layout.random_value(rng) for _ in range(RECORDS)]
    written = [encode_value(case.layout.type, value) or b"" for value in values]
    assert kafka.rewrite(message, 0, [data[2:] for data in written]) == written

    bodies = [damaged(rng, data[2:]) for data in written]
    accepted = [data is not None for data in kafka.rewrite(message, 0, bodies)]
    assert [_read_strictly(case.shape, 0, body) is not None for body in bodies] == accepted


_LARGE = {
    "an array": (16, {"topics": [""] * (MAX_ARRAY_ELEMENTS + 1), "version": 1, "timestamp": 1}),
    "one inside another": (7, {"topicPartitions": topics(T1=[0] * (MAX_ARRAY_ELEMENTS + 1))}),
}


@pytest.mark.nightly
@pytest.mark.parametrize("key_type", [pytest.param(each, id=name) for name, (each, _) in _LARGE.items()])
def test_4_4_refuses_arrays_of_more_than_a_million(
    key_type: int, kafka_4_3: KafkaClasses, kafka_4_4: KafkaClasses
) -> None:
    """No broker record has that many. Our reader accepts what 4.3.1 reads; `replay --release 4.4` does not."""
    (data,) = (data for each, data in _LARGE.values() if each == key_type)
    body = (encode_value(key_type, {"version": 0, "data": data}) or b"")[2:]
    message = f"{GROUP_MESSAGES}.{record_types()[key_type].name}Value"
    (older,), (newer,) = kafka_4_3.read(message, 0, [body]), kafka_4_4.read(message, 0, [body])
    assert _read_strictly(record_types()[key_type].value, 0, body) == older
    assert newer.startswith(FAILED) and str(MAX_ARRAY_ELEMENTS + 1) in newer
    just_so = encode_value(
        16, {"version": 0, "data": {"topics": [""] * MAX_ARRAY_ELEMENTS, "version": 1, "timestamp": 1}}
    )
    (read,) = kafka_4_4.read(f"{GROUP_MESSAGES}.{record_types()[16].name}Value", 0, [(just_so or b"")[2:]])
    assert not read.startswith(FAILED)


_COLUMNS = {
    "offset": "committed_offset",
    "leaderEpoch": "leader_epoch",
    "metadata": "metadata",
    "commitTimestamp": "commit_timestamp_ms",
    "expireTimestamp": "expire_timestamp_ms",
    "topicId": "topic_id",
}


def _columns_of(text: str | None) -> JsonObject | None:
    """Return the columns of a commit derived from Kafka's JSON; None for a rejected one."""
    if text is None:
        return None
    data = json.loads(text)
    cells = {column: data.get(field) for field, column in _COLUMNS.items()}
    nullable = ("leader_epoch", "expire_timestamp_ms")
    return {column: None if column in nullable and cell == -1 else cell for column, cell in cells.items()}


def _decoded_columns(version: int, bodies: list[bytes]) -> list[JsonObject | None]:
    key, _ = encode_record({"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}}, None)
    values = [struct.pack(">h", version) + body for body in bodies]
    rows = decode_records(pa.array([key] * len(values)), pa.array(values, pa.binary())).to_pylist()
    return [None if row["error"] else {column: row[column] for column in _COLUMNS.values()} for row in rows]


@pytest.mark.parametrize("version", range(5))
def test_the_fast_decoder_accepts_and_rejects_the_same_as_kafka(version: int, kafka_4_3: KafkaClasses) -> None:
    rng, layout = Random(version), Layout(1, version)
    bodies = [(encode_value(1, layout.random_value(rng)) or b"")[2:] for _ in range(1500)]
    bodies = [damaged(rng, body) if rng.random() < 0.6 else body for body in bodies]
    printed = kafka_4_3.read(f"{GROUP_MESSAGES}.OffsetCommitValue", version, bodies)
    assert _decoded_columns(version, bodies) == [_columns_of(text) for text in _verdicts(printed)]


def test_invalid_utf8_decodes_as_in_java(kafka_4_3: KafkaClasses) -> None:
    rng = Random(0)
    pieces = [
        bytes([byte])
        for byte in (0x41, 0x80, 0xA0, 0xBF, 0x90, 0xC0, 0xC3, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF)
    ]
    strings = [b"".join(rng.choices(pieces, k=rng.randrange(1, 7))) for _ in range(20_000)]
    bodies = [b"\0" * 8 + struct.pack(">h", len(data)) + data + b"\0" * 8 for data in strings]
    printed = kafka_4_3.read(f"{GROUP_MESSAGES}.OffsetCommitValue", 2, bodies)
    assert _decoded_columns(2, bodies) == [_columns_of(text) for text in printed]


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_record_agrees(data: st.DataObject, kafka_4_3: KafkaClasses) -> None:
    case = data.draw(st.sampled_from([case for case in CASES if case.release == "4.3.1"]))
    rng = data.draw(st.randoms(use_true_random=False))
    value = case.layout.random_value(rng, case.release)
    message, version = case.message("Value"), case.layout.version
    written = encode_value(case.layout.type, value) or b""
    assert kafka_4_3.write(message, version, [_text(value)]) == [written]
    bodies = [written[2:], damaged(rng, written[2:])]
    expected = _verdicts(kafka_4_3.read(message, version, bodies))
    assert [_read_strictly(case.shape, version, body) for body in bodies] == expected
