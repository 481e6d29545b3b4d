"""Records and texts written by Kafka's own classes (see `tests.oracle.make_golden`)."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from offsetstream.codec.kafka_text import GROUP_METADATA_FORMATTER, OFFSETS_FORMATTER, kafka_text
from offsetstream.codec.lines import decode_pair
from offsetstream.codec.record_layouts import record_types
from offsetstream.codec.records import encode_record, jackson
from offsetstream.codec.wire import DecodeError

_FOLDER = Path(__file__).parent / "golden"


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_FOLDER / name).read_text("ascii").splitlines()]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


RECORDS = _lines("records.jsonl")


def test_the_golden_files_have_every_type() -> None:
    assert {json.loads(line["key_json"])["type"] for line in RECORDS} == set(record_types())


@pytest.mark.parametrize("line", RECORDS, ids=lambda line: f"{line['kafka']}-{line['key'][:6]}-{line['value'][:4]}")
def test_records_of_kafka_are_decoded_and_encoded_as_kafka_does(line: dict[str, Any]) -> None:
    key, value = decode_pair(b64decode(line["key"]), b64decode(line["value"]))
    assert (jackson(key), jackson(value)) == (line["key_json"], line["value_json"])
    encoded = encode_record(json.loads(line["key_json"]), json.loads(line["value_json"]))
    assert encoded == (b64decode(line["key"]), b64decode(line["value"]))


@pytest.mark.parametrize("line", _lines("formatters_3.9.2.jsonl"), ids=lambda line: str(line["key"])[:12])
def test_the_text_equals_that_of_the_old_formatters(line: dict[str, Any]) -> None:
    record = _bytes(line["key"]), _bytes(line["value"])
    formatters = {
        "OffsetsMessageFormatter": OFFSETS_FORMATTER,
        "GroupMetadataMessageFormatter": GROUP_METADATA_FORMATTER,
    }
    for name, types in formatters.items():
        if line[name] == "stops":
            with pytest.raises(DecodeError):
                kafka_text(*record, types)
        else:
            assert kafka_text(*record, types) == line[name]
