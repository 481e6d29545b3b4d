"""Decode and print text as Kafka's Java code does."""

import re
from base64 import b64encode, urlsafe_b64encode
from json import JSONEncoder

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()
_ESCAPE = re.compile(r"\\(?:u00[0-9a-f]{2}|.)")


def java_utf8(data: bytes) -> str:
    """Decode bytes as Java's `new String(bytes, UTF_8)`: malformed input becomes U+FFFD, and nothing raises.

    Python replaces the same sequences, with one exception: an encoded surrogate becomes two or three U+FFFD in Python,
    and one in Java (reference 2.9).
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


def uuid_text(data: bytes) -> str:
    """Print a UUID of 16 bytes as Kafka does: 22 characters of URL-safe base64, no padding."""
    return urlsafe_b64encode(data)[:22].decode("ascii")


def _base64(data: object) -> str:
    if isinstance(data, bytes):
        return b64encode(data).decode("ascii")
    raise TypeError(f"{type(data).__name__} is not a type of Kafka's JSON")


def _upper_hex(match: re.Match[str]) -> str:
    escape = match.group()
    return "\\u" + escape[2:].upper() if escape.startswith("\\u") else escape


_ENCODER = JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, default=_base64)


def jackson(value: object) -> str:
    r"""Print JSON as Kafka's Jackson does: compact, bytes as base64, control characters as `\u001F`."""
    printed = _ENCODER.encode(value)
    return _ESCAPE.sub(_upper_hex, printed) if "\\u00" in printed else printed
