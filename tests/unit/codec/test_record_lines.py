"""Raw lines as record batches: fields, order, and lines that are not records."""

import json
import struct
from base64 import b64encode
from typing import Any

import pytest

from offsetstream.codec.batches import LogRecord, RecordBatch
from offsetstream.codec.lines import parse_record_line, read_record_lines
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import LineError

COMMIT_KEY = struct.pack(">hh", 0, 1)


def line(**fields: Any) -> str:
    return json.dumps({"partition": 3, "offset": 5, "timestamp": 7, "key": "aw==", "value": None} | fields)


def test_a_plain_record() -> None:
    batch = RecordBatch(5, 6, (LogRecord(5, 7, b"k", None),))
    assert parse_record_line(line()) == (3, batch)
    assert parse_record_line(line(partition=None, producer_id=None, transactional=None)) == (None, batch)
    bare = json.dumps({"offset": 5, "key": None, "value": ""})
    for text in (bare, line(partition=None, timestamp=-1, key=None, value="")):
        assert parse_record_line(text) == (None, RecordBatch(5, 6, (LogRecord(5, None, None, b""),)))


@pytest.mark.parametrize(
    ("control_type", "key"),
    [("COMMIT", COMMIT_KEY), ("ABORT", bytes(4)), (1, COMMIT_KEY), (-1, b"\0\0\xff\xff"), (None, b"k")],
)
def test_transactional_and_control_records(control_type: Any, key: bytes) -> None:
    data = RecordBatch(5, 6, (LogRecord(5, 7, b"k", None),), producer_id=8, is_transactional=True)
    assert parse_record_line(line(producer_id=8, transactional=True)) == (3, data)
    _, marker = parse_record_line(line(producer_id=8, transactional=True, control_type=control_type))
    assert (marker.is_control, marker.is_transactional, marker.producer_id) == (True, True, 8)
    assert marker.records == (LogRecord(5, 7, key, None),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "the line is not JSON"),
        ("{}", 'not an object with "key" and "value"'),
        (line(key="?"), "key is not base64"),
        (line(offset=None), "offset is not a number of 0 or more"),
        (line(offset=-1), "offset is not a number of 0 or more"),
        (line(offset=2**63 - 1), "offset is not a number of 0 or more"),
        (line(offset="5"), "offset is not a whole number"),
        (line(offset=True), "offset is not a whole number"),
        (line(timestamp=1.5), "timestamp is not a whole number"),
        (line(partition="3"), "partition is not a whole number"),
        (line(producer_id="8"), "producer_id is not a whole number"),
        (line(producer_id=8, transactional=1), "transactional is not true or false"),
        (line(transactional=True), "has no producer_id"),
        (line(control_type="COMMIT"), "has no producer_id"),
        (line(producer_id=8, control_type="commit"), "control_type is not COMMIT, ABORT or"),
        (line(producer_id=8, control_type=True), "control_type is not"),
        (line(producer_id=8, control_type=1 << 15), "control_type is not"),
    ],
)
def test_lines_that_are_not_records_are_refused(text: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        parse_record_line(text)
    with pytest.raises(LineError, match=f"^records.jsonl, line 2: .*{reason}"):
        read_record_lines([line(offset=0).encode(), text.encode()], "records.jsonl")


def test_lines_may_come_in_any_order_and_twice() -> None:
    places = [(3, 9), (None, 4), (3, 5), (2, 0), (3, 9), (3, 7)]
    found = read_record_lines([line(partition=p, offset=o).encode() for p, o in places], "-")
    assert {p: [batch.base_offset for batch in of] for p, of in found.items()} == {3: [5, 7, 9], None: [4], 2: [0]}
    assert read_record_lines([], "-") == {}


def test_two_logs_in_one_file_are_refused() -> None:
    other = line(key=b64encode(b"other").decode()).encode()
    with pytest.raises(LineError, match=r"file, lines 1 and 3: partition 3 has two different records at offset 5"):
        read_record_lines([line().encode(), line(offset=6).encode(), other], "file")
