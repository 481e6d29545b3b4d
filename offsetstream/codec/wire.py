"""Read Kafka's primitive types from a buffer, as strictly as Kafka does.

Each reader takes (buffer, position) and returns (value, next position). Reference 2.3, 2.4 and 2.9.
"""

import re
import struct
from base64 import urlsafe_b64encode
from collections.abc import Callable

from offsetstream.errors import OffsetstreamError

TRUNCATED = "truncated"
NEGATIVE_LENGTH = "negative length"
TOO_LONG = "string over 32767 bytes"
BAD_VARINT = "varint over five bytes"

MAX_STRING = 0x7FFF
_MAX_VARINT_BYTES = 5
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


class DecodeError(OffsetstreamError, ValueError):
    """Bytes do not match their schema, or JSON cannot be encoded. The text is the reason."""


def reason_in_part(reason: str, part: str) -> str:
    """Add to a reason where it was found: `truncated key`, `negative length in value`."""
    return f"{TRUNCATED} {part}" if reason == TRUNCATED else f"{reason} in {part}"


def as_int32(value: int) -> int:
    """Wrap to a signed 32-bit integer, as Java's arithmetic does."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def read_uvarint(buffer: bytes, at: int) -> tuple[int, int]:
    """Read an UNSIGNED_VARINT as a signed int32. Longer encodings than needed are accepted, up to five bytes."""
    end = len(buffer)
    if at < end and buffer[at] < 0x80:  # noqa: PLR2004 - one byte: the usual case
        return buffer[at], at + 1
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= end:
            raise DecodeError(TRUNCATED)
        byte = buffer[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return as_int32(value), at + index + 1
    raise DecodeError(BAD_VARINT)


def read_compact_length(buffer: bytes, at: int) -> tuple[int, int]:
    """Read a compact length: the varint minus one. Negative means null."""
    value, at = read_uvarint(buffer, at)
    return as_int32(value - 1), at


def _number_reader(layout: str, name: str) -> Callable[[bytes, int], tuple[int, int]]:
    number = struct.Struct(layout)
    unpack, size = number.unpack_from, number.size

    def read(buffer: bytes, at: int) -> tuple[int, int]:
        try:
            return unpack(buffer, at)[0], at + size
        except struct.error:
            raise DecodeError(TRUNCATED) from None

    read.__doc__ = f"Read {name}."
    return read


NUMBER_LAYOUTS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
"""Kafka's number types in the notation of `struct`, without the byte order."""

read_int8 = _number_reader(">b", "an INT8")
read_int16 = _number_reader(">h", "an INT16")
read_uint16 = _number_reader(">H", "a UINT16")
read_int32 = _number_reader(">i", "an INT32")
read_int64 = _number_reader(">q", "an INT64")


def read_uuid(buffer: bytes, at: int) -> tuple[str, int]:
    """Read a UUID as text of 22 characters."""
    return uuid_text(read_slice(buffer, at, 16)), at + 16


def read_slice(buffer: bytes, at: int, length: int) -> bytes:
    """Return `length` bytes. Raises DecodeError if fewer are left."""
    data = buffer[at : at + length]
    if len(data) < length:
        raise DecodeError(TRUNCATED)
    return data


def read_text(buffer: bytes, at: int, length: int) -> str:
    """Read a string of `length` bytes. Like Kafka, reject more than 32,767 bytes even if all are there."""
    if length > MAX_STRING:
        raise DecodeError(TOO_LONG)
    return java_utf8(read_slice(buffer, at, length))


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
