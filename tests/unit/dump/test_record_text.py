"""Batches print the same lines as the codec prints record by record."""

import json
from base64 import b64encode
from random import Random

import pyarrow as pa
import pytest

from offsetstream.codec.kafka_text import kafka_json, kafka_text
from offsetstream.codec.lines import decode_line
from offsetstream.codec.records import encode_record
from offsetstream.codec.wire import DecodeError
from offsetstream.dump.formats import LINE_FORMATS, RAW_SCHEMA, format_batch
from testkit.codec_records import older_layouts, present_layouts

Record = tuple[bytes | None, bytes | None]


def random_records(count: int, seed: int) -> list[Record]:
    """Return records of every type and version, half of them offset commits; some are tombstones, cut or foreign."""
    rng = Random(seed)
    layouts = [*present_layouts(), *older_layouts()]
    commits = [layout for layout in layouts if layout.type < 2]
    records: list[Record] = [(None, None), (None, b"\0\0"), (b"", b""), (b"\0\1", None), (b"\0\x12\0\1g", b"\0\0")]
    while len(records) < count:
        layout = rng.choice(commits if rng.random() < 0.5 else layouts)
        key, value = encode_record(layout.random_key(rng), layout.random_value(rng))
        fate = rng.random()
        if fate < 0.1 and value:
            value = value[: rng.randrange(len(value))]
        elif fate < 0.15:
            value = None
        elif fate < 0.2:
            key = key[: rng.randrange(len(key))]
        elif fate < 0.25 and value:
            value = bytes([0, rng.randrange(7)]) + value[2:]
        records.append((key, value))
        if fate < 0.1:  # the same key again, broken and complete
            records += [(key, encode_record(layout.random_key(rng), layout.random_value(rng))[1]), (key, b"\0")]
    return records


def batch_of(records: list[Record]) -> pa.RecordBatch:
    rows = [(n % 50, 2**53 + n, 1_767_225_600_000 - n, *record) for n, record in enumerate(records)]
    columns = zip(*rows, strict=True) if rows else [[]] * len(RAW_SCHEMA)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, RAW_SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


def raw_line(number: int, record: Record) -> str:
    key, value = (None if cell is None else b64encode(cell).decode() for cell in record)
    place = {"partition": number % 50, "offset": 2**53 + number, "timestamp": 1_767_225_600_000 - number}
    return json.dumps(place | {"key": key, "value": value}, separators=(",", ":"))


def expected(line_format: str, number: int, record: Record) -> tuple[str | None, str | None]:
    """Return the line, or the reason why there is none."""
    if line_format in {"records", "json"}:
        line = raw_line(number, record)
        return (decode_line(line) if line_format == "json" else line) + "\n", None
    try:
        text = kafka_json(*record) if line_format == "kafka" else kafka_text(*record)
    except DecodeError as reason:
        return None, str(reason)
    return (text + "\n" if text is not None and line_format == "kafka" else text), None


@pytest.mark.parametrize("line_format", LINE_FORMATS)
def test_a_batch_prints_the_lines_of_its_records(line_format: str) -> None:
    records = random_records(3000, seed=len(line_format))
    wanted = [expected(line_format, number, record) for number, record in enumerate(records)]
    lines, broken = format_batch(batch_of(records), line_format)
    assert lines.to_pylist() == [line for line, _ in wanted]
    assert broken == {row: reason for row, (_, reason) in enumerate(wanted) if reason is not None}
    assert bool(broken) == line_format.startswith("kafka")


@pytest.mark.parametrize("line_format", LINE_FORMATS)
def test_small_batches_print_the_lines_of_their_records(line_format: str) -> None:
    key, _ = encode_record({"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}}, None)
    cases: list[list[Record]] = [[], [(key, None)], [(None, None)]]
    for records in cases:
        lines, broken = format_batch(batch_of(records), line_format)
        assert lines.to_pylist() == [expected(line_format, n, record)[0] for n, record in enumerate(records)]
        assert broken == {}


def test_a_slice_of_a_batch_prints_its_own_records() -> None:
    records = random_records(200, seed=9)
    whole, _ = format_batch(batch_of(records), "json")
    part, _ = format_batch(batch_of(records).slice(50, 100), "json")
    assert part.to_pylist() == whole.to_pylist()[50:150]
