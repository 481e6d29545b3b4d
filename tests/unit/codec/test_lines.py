"""JSON lines: `decode` and `encode` with the fields that pass through both, and lines as record batches."""

import json
import struct
from base64 import b64encode
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetstream.codec.batches import LogRecord, RecordBatch
from offsetstream.codec.lines import decode_line, encode_line, parse_raw_line, parse_record_line, read_record_lines
from offsetstream.codec.records import encode_record
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import LineError, UsageError
from testkit.codec_records import present_layouts

_KEY = "AAEAAWcAAXQAAAAA"
_VALUE = "AAMAAAAAAAAAZAAAAAoABG1ldGEAAAAAAAAE0g=="
_RAW = f'{{"key":"{_KEY}","value":"{_VALUE}"}}'
_DECODED = (
    '{"key":{"type":1,"data":{"group":"g","topic":"t","partition":0}},"value":{"version":3,"data":'
    '{"offset":100,"leaderEpoch":10,"metadata":"meta","commitTimestamp":1234}}}'
)


def test_a_record() -> None:
    assert decode_line(_RAW) == _DECODED
    assert encode_line(_DECODED) == _RAW


def test_further_fields_keep_their_place() -> None:
    raw = f'{{"partition":3,"key":"{_KEY}","value":"{_VALUE}","offset":9007199254740993,"headers":[{{"a":"\\u001F"}}]}}'
    decoded = decode_line(raw + "\n")
    assert list(json.loads(decoded)) == ["partition", "key", "value", "offset", "headers"]
    assert '"offset":9007199254740993,"headers":[{"a":"\\u001F"}]' in decoded
    assert encode_line(decoded) == raw


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (f'{{"key":null,"value":"{_VALUE}","offset":1}}', "null key"),
        ('{"key":"","value":null}', "truncated key"),
        ('{"key":"ABIAAWc=","value":null}', "unknown key type 18"),
        (f'{{"key":"{_KEY}","value":""}}', "truncated value"),
        (f'{{"key":"{_KEY}","value":"AAk="}}', "unsupported value version 9 of key type 1"),
    ],
)
def test_what_cannot_be_decoded_stays_as_it_is(raw: str, error: str) -> None:
    decoded = decode_line(raw)
    assert json.loads(decoded) == {"error": error, **json.loads(raw)}
    assert decoded.startswith('{"error":')
    assert encode_line(decoded) == raw


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("", "the line is not JSON"),
        ("nonsense", "the line is not JSON"),
        ("[]", 'the line is not an object with "key" and "value"'),
        (f'{{"key":"{_KEY}"}}', 'the line is not an object with "key" and "value"'),
        ('{"key":null,"value":null,"seen":1e999}', "the number 1e999 of the line is out of range"),
        ('{"key":null,"value":null,"seen":[NaN]}', "the number NaN of the line is out of range"),
    ],
)
def test_lines_of_another_form(line: str, error: str) -> None:
    for convert in (decode_line, encode_line):
        assert json.loads(convert(line + "\r\n")) == {"error": error, "line": line}


def test_what_cannot_be_encoded_gets_a_reason() -> None:
    line = '{"key":{"type":1,"data":{"group":"g"}},"value":null,"offset":4}'
    encoded = json.loads(encode_line(line))
    assert encoded == {"error": "key: field 'topic' is missing: version 0 requires it", **json.loads(line)}
    # … and an error line whose bytes are not base64 either.
    assert json.loads(encode_line('{"error":"x","key":"?","value":null}'))["error"] == "key is not base64"


def test_by_release() -> None:
    encoded = json.loads(encode_line(_DECODED, "2.0"))
    assert json.loads(decode_line(json.dumps(encoded)))["value"]["version"] == 1
    with pytest.raises(UsageError, match=r"'9\.9' is not a release"):
        encode_line(_DECODED, "9.9")


@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_encode_is_the_inverse_of_decode(rng: Random) -> None:
    layout = rng.choice(present_layouts())
    key, value = encode_record(layout.random_key(rng), rng.choice([None, layout.random_value(rng)]))
    document = {"key": b64encode(key).decode(), "value": value and b64encode(value).decode(), "offset": 3}
    decoded = decode_line(json.dumps(document))
    assert "\n" not in decoded
    assert json.loads(encode_line(decoded)) == document


def test_raw_lines_are_parsed() -> None:
    key, value, record = parse_raw_line(_RAW)
    assert (key or b"")[:2] == b"\0\1"
    assert (value or b"")[:2] == b"\0\3"
    assert record == json.loads(_RAW)
    with pytest.raises(DecodeError, match="value is not base64"):
        parse_raw_line(f'{{"key":"{_KEY}","value":3}}')


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
