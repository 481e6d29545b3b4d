"""The protocol bytes inside group members, compared with Kafka's own consumer and Connect protocols."""

import json
import struct
from random import Random
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from offsetstream.codec.embedded_protocols import (
    decode_assignment,
    decode_connect_assignment,
    decode_connect_subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from offsetstream.codec.record_layouts import embedded_shape
from offsetstream.codec.records import jackson
from offsetstream.codec.wire import DecodeError
from offsetstream.embedded.artifacts import resolve
from testkit.codec_records import message
from tests.oracle.kafka_classes import CLIENT_MESSAGES, FAILED, KafkaClasses
from tests.oracle.test_generated_classes import damaged

_CONSUMER_PROTOCOL = "org.apache.kafka.clients.consumer.internals.ConsumerProtocol"
_CONNECT = "org.apache.kafka.connect.runtime.distributed"
_KINDS = {
    "ConsumerProtocolSubscription": ("consumer_protocol_subscription", decode_subscription, encode_subscription),
    "ConsumerProtocolAssignment": ("consumer_protocol_assignment", decode_assignment, encode_assignment),
}


def _read(decoder: Any, data: bytes) -> str | None:
    try:
        return jackson(decoder(data))
    except DecodeError:
        return None


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("name", _KINDS)
def test_consumer_protocol_agrees(name: str, version: int, kafka_4_3: KafkaClasses) -> None:
    schema, decoder, encoder = _KINDS[name]
    rng = Random(f"{name} {version}")
    texts = [json.dumps(message(rng, embedded_shape(schema).fields, version)) for _ in range(300)]
    written = kafka_4_3.write(f"{CLIENT_MESSAGES}.{name}", version, texts)
    assert [encoder(json.loads(text), version) for text in texts] == written

    bodies = [data[2:] for data in written]
    bodies += [damaged(rng, body) for body in bodies]
    printed = kafka_4_3.read(f"{CLIENT_MESSAGES}.{name}", version, bodies)
    expected = [None if text.startswith(FAILED) else text for text in printed]
    assert [_read(decoder, struct.pack(">h", version) + body) for body in bodies] == expected


@pytest.mark.parametrize("version", [-32768, -1, 0, 3, 4, 100, 32767])
@pytest.mark.parametrize(
    ("method", "decoder", "encoder", "data"),
    [
        (
            "deserializeSubscription",
            decode_subscription,
            encode_subscription,
            {"topics": ["t", "t"], "userData": None, "ownedPartitions": [], "generationId": 3, "rackId": "r"},
        ),
        (
            "deserializeAssignment",
            decode_assignment,
            encode_assignment,
            {"assignedPartitions": [{"topic": "t", "partitions": [0, 1]}], "userData": None},
        ),
    ],
)
def test_versions_are_clamped_as_kafka_clamps_them(
    version: int, method: str, decoder: Any, encoder: Any, data: Any, gateway: JavaGateway, kafka_4_3: KafkaClasses
) -> None:
    body = encoder(data, 3)[2:]
    for content in (struct.pack(">h", version) + body, struct.pack(">h", version) + body + b"more", b"\0", b""):
        buffer = gateway.jvm.java.nio.ByteBuffer.wrap(content)
        try:
            kafka_4_3.call(_CONSUMER_PROTOCOL, method, buffer)
        except Py4JJavaError:
            with pytest.raises(DecodeError):
                decoder(content)
        else:
            assert decoder(content) in (data, {key: data[key] for key in ("topics", "userData") if key in data})


@pytest.fixture(scope="module")
def connect(gateway: JavaGateway) -> KafkaClasses:
    names = ["kafka:connect-runtime:4.3.1", "kafka:connect-api:4.3.1", "kafka:kafka-clients:4.3.1"]
    jars = resolve([f"org.apache.{name}" for name in names] + ["org.slf4j:slf4j-api:1.7.36"], transitive=False)
    return KafkaClasses(gateway, jars, "4.3.1")


def _bytes(buffer: Any) -> bytes:
    data: bytes = buffer.array()
    return data


def _list(gateway: JavaGateway, items: list[Any]) -> Any:
    result = gateway.jvm.java.util.ArrayList()
    for item in items:
        result.add(item)
    return result


def test_connect_version_0(gateway: JavaGateway, connect: KafkaClasses) -> None:
    state = connect.new(f"{_CONNECT}.ConnectProtocol$WorkerState", "http://w:8083/", 17)
    protocol = f"{_CONNECT}.ConnectProtocol"
    data = _bytes(connect.call(protocol, "serializeMetadata", state))
    assert decode_connect_subscription(data) == {"url": "http://w:8083/", "configOffset": 17}

    task = connect.new("org.apache.kafka.connect.util.ConnectorTaskId", "c", 3)
    connectors, tasks = _list(gateway, ["c"]), _list(gateway, [task])
    assignment = connect.new(f"{protocol}$Assignment", 1, "m-1", "http://l/", -1, connectors, tasks)
    assert decode_connect_assignment(_bytes(connect.call(protocol, "serializeAssignment", assignment))) == {
        "error": 1,
        "leader": "m-1",
        "leaderUrl": "http://l/",
        "configOffset": -1,
        "assignment": [{"connector": "c", "tasks": [-1, 3]}],
    }


@pytest.mark.parametrize("sessioned", [False, True])
def test_connect_versions_1_and_2(sessioned: bool, gateway: JavaGateway, connect: KafkaClasses) -> None:
    task = connect.new("org.apache.kafka.connect.util.ConnectorTaskId", "c", 3)
    empty, connectors, tasks = _list(gateway, []), _list(gateway, ["c"]), _list(gateway, [task])
    version = 2 if sessioned else 1
    assignment = connect.new(
        f"{_CONNECT}.ExtendedAssignment", version, 0, "m-1", "u", 9, empty, tasks, connectors, empty, 250
    )
    protocol = f"{_CONNECT}.IncrementalCooperativeConnectProtocol"
    expected: dict[str, Any] = {"error": 0, "leader": "m-1", "leaderUrl": "u", "configOffset": 9}
    expected["assignment"] = [{"connector": "c", "tasks": [3]}]
    expected["revoked"], expected["delay"] = [{"connector": "c", "tasks": [-1]}], 250
    data = _bytes(connect.call(protocol, "serializeAssignment", assignment, sessioned))
    assert struct.unpack_from(">h", data) == (version,)
    assert decode_connect_assignment(data) == expected

    state = connect.new(f"{_CONNECT}.ExtendedWorkerState", "w", 9, assignment)
    data = _bytes(connect.call(protocol, "serializeMetadata", state, sessioned))
    assert decode_connect_subscription(data) == {"url": "w", "configOffset": 9, "allocation": expected}

    idle = connect.new(f"{_CONNECT}.ExtendedWorkerState", "w", 9, None)
    without = _bytes(connect.call(protocol, "serializeMetadata", idle, sessioned))
    assert decode_connect_subscription(without) == {"url": "w", "configOffset": 9, "allocation": None}
    # In Kafka's schema the last field may be missing, but not truncated.
    wrap = gateway.jvm.java.nio.ByteBuffer.wrap
    connect.call(protocol, "deserializeMetadata", wrap(without[:-4]))
    assert decode_connect_subscription(without[:-4]) == {"url": "w", "configOffset": 9, "allocation": None}
    with pytest.raises(Py4JJavaError):
        connect.call(protocol, "deserializeMetadata", wrap(without[:-3]))
    with pytest.raises(DecodeError):
        decode_connect_subscription(without[:-3])
