"""Text is decoded and printed as in Java."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetstream.codec.records import jackson
from offsetstream.codec.wire import java_utf8, uuid_text
from offsetstream.java_hash import java_hash


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"plain", "plain"),
        ("日本😀".encode(), "日本😀"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0a", "\ufffda"),
        (b"\xed\xbf\xbf\xed\xa0\x80", "\ufffd\ufffd"),
        (b"\xe1\x80\xed\xa0\x80", "\ufffd\ufffd"),
        (b"\xed", "\ufffd"),
        (b"\xed\x9f\xbf", "\ud7ff"),
        (b"\xc0\xaf", "\ufffd\ufffd"),
        (b"\xf5\x80", "\ufffd\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_java_utf8(data: bytes, expected: str) -> None:
    assert java_utf8(data) == expected


@given(st.text())
def test_java_utf8_of_good_text(text: str) -> None:
    assert java_utf8(text.encode()) == text


def test_jackson_escapes_control_characters() -> None:
    assert jackson("\0\x01\x1f\x7f\x80\u2028é😀") == '"\\u0000\\u0001\\u001F\x7f\x80\u2028é😀"'
    assert jackson('\b\t\n\f\r"\\/') == '"\\b\\t\\n\\f\\r\\"\\\\/"'
    assert jackson("\\u001f\x1f") == '"\\\\u001f\\u001F"'
    assert jackson({"a": [1, None, b"\0\xff", -(1 << 63)]}) == '{"a":[1,null,"AP8=",-9223372036854775808]}'
    with pytest.raises(TypeError, match="set is not a type"):
        jackson({1})


@given(st.text())
def test_jackson_is_json(text: str) -> None:
    assert json.loads(jackson(text)) == text


def test_uuids() -> None:
    assert uuid_text(bytes.fromhex("30a5f1d5f224432d89f635c784af26d7")) == "MKXx1fIkQy2J9jXHhK8m1w"
    assert uuid_text(b"\xff" * 16) == "_____________________w"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("testgroup", -1172783827), ("polygenelubricants", -(1 << 31)), ("", 0), ("😀", 1772899), ("group-😀", 508083057)],
)
def test_java_hash(text: str, expected: int) -> None:
    assert java_hash(text) == expected
