"""Write the golden files of the unit tier again: `python -m tests.oracle.make_golden`.

Kafka's own classes of the named release wrote every record and printed its JSON or text.
"""

import json
import struct
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from random import Random

from py4j.java_gateway import JavaGateway

from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.jvm import java_gateway
from testkit.codec_records import present_layouts
from tests.oracle.cases import CASES, Case
from tests.oracle.kafka_classes import KafkaClasses
from tests.oracle.test_formatters import Formatter, random_records

GOLDEN = Path(__file__).parent.parent / "unit" / "codec" / "golden"
_EACH, _OUT_OF = 4, 24


def _records(case: Case, kafka: KafkaClasses) -> Iterator[dict[str, object]]:
    rng, key_type, version = Random(f"golden {case}"), case.layout.type, case.layout.version
    values = _small([json.dumps(case.layout.random_value(rng, case.release)["data"]) for _ in range(_OUT_OF)])
    keys = _small([json.dumps(case.layout.random_key(rng)["data"]) for _ in range(_OUT_OF)])
    value_bytes = kafka.write(case.message("Value"), version, values)
    key_bodies = [data[2:] for data in kafka.write(case.message("Key"), case.key_version, keys)]
    value_texts = kafka.read(case.message("Value"), version, [data[2:] for data in value_bytes])
    key_texts = kafka.read(case.message("Key"), case.key_version, key_bodies)
    for key, value, key_text, value_text in zip(key_bodies, value_bytes, key_texts, value_texts, strict=True):
        yield {
            "kafka": case.release,
            "key": b64encode(struct.pack(">h", key_type) + key).decode(),
            "value": b64encode(value).decode(),
            "key_json": f'{{"type":{key_type},"data":{key_text}}}',
            "value_json": f'{{"version":{version},"data":{value_text}}}',
        }


def _texts(gateway: JavaGateway) -> Iterator[dict[str, object]]:
    broker = KafkaClasses(gateway, resolve(["org.apache.kafka:kafka_2.13:3.9.2"]), "3.9.2")
    names = ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")
    formatters = [Formatter(gateway, broker, f"kafka.coordinator.group.GroupMetadataManager${name}") for name in names]
    for key, value in random_records([layout for layout in present_layouts() if layout.type < 3], 4, 392):
        record: dict[str, object] = {"kafka": "3.9.2", "key": _base64(key), "value": _base64(value)}
        yield record | dict(zip(names, (formatter.print((key, value)) for formatter in formatters), strict=True))


def _small(texts: list[str]) -> list[str]:
    """Some of the smaller ones, in no order of size: people read the files too."""
    half = sorted(texts, key=len)[2 : len(texts) // 3]
    return half[:: len(half) // _EACH][:_EACH]


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _write(name: str, lines: Iterator[dict[str, object]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in lines)
    (GOLDEN / name).write_text(text, encoding="ascii")


def main() -> None:
    with java_gateway() as gateway:
        releases = {case.release for case in CASES}
        kafka = {
            release: KafkaClasses(gateway, resolve([f"org.apache.kafka:kafka-group-coordinator:{release}"]), release)
            for release in releases
        }
        _write("records.jsonl", (line for case in CASES for line in _records(case, kafka[case.release])))
        _write("formatters_3.9.2.jsonl", _texts(gateway))


if __name__ == "__main__":
    main()
