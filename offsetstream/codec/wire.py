"""Kafka's variable-length primitives read from one buffer at a position, with Kafka's own strictness.

Each reader takes (buffer, position) and returns (value, next position). Reference 2.3, 2.4 and 2.9.
"""

from offsetstream.errors import OffsetstreamError
from offsetstream.codec.text import java_utf8, uuid_text

TRUNCATED = "truncated"
NEGATIVE_LENGTH = "negative length"
TOO_LONG = "string over 32767 bytes"
BAD_VARINT = "varint over five bytes"

_MAX_STRING = 0x7FFF
_MAX_INT32 = 0x7FFFFFFF
_MAX_VARINT_BYTES = 5


class Malformed(OffsetstreamError, ValueError):  # noqa: N818 - a finding about a record, mostly reported as a value
    """Bytes, or the JSON to encode, are not what their schema says; the text is the reason."""


def placed(reason: str, where: str) -> str:
    """Say where a reason was found: `truncated key`, `negative length in value`."""
    return f"{TRUNCATED} {where}" if reason == TRUNCATED else f"{reason} in {where}"


def as_int32(value: int) -> int:
    """Wrap to a signed 32-bit integer, as Java's arithmetic does."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def read_uvarint(buffer: bytes, at: int) -> tuple[int, int]:
    """Read an UNSIGNED_VARINT as a signed int32; longer forms than needed are accepted, six bytes are not."""
    end = len(buffer)
    if at < end and buffer[at] < 0x80:  # noqa: PLR2004 - by far the most common case
        return buffer[at], at + 1
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= end:
            raise Malformed(TRUNCATED)
        byte = buffer[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return as_int32(value), at + index + 1
    raise Malformed(BAD_VARINT)


def read_compact_length(buffer: bytes, at: int) -> tuple[int, int]:
    """Read a compact length: the varint less one; negative means null."""
    value, at = read_uvarint(buffer, at)
    return as_int32(value - 1), at


def read_int16(buffer: bytes, at: int) -> tuple[int, int]:
    """Read an INT16."""
    if at + 2 > len(buffer):
        raise Malformed(TRUNCATED)
    return int.from_bytes(buffer[at : at + 2], "big", signed=True), at + 2


def read_uint16(buffer: bytes, at: int) -> tuple[int, int]:
    """Read a UINT16."""
    value, at = read_int16(buffer, at)
    return value & 0xFFFF, at


def read_int8(buffer: bytes, at: int) -> tuple[int, int]:
    """Read an INT8."""
    if at >= len(buffer):
        raise Malformed(TRUNCATED)
    byte = buffer[at]
    return byte - 256 if byte > 127 else byte, at + 1  # noqa: PLR2004 - two's complement


def read_int32(buffer: bytes, at: int) -> tuple[int, int]:
    """Read an INT32."""
    if at + 4 > len(buffer):
        raise Malformed(TRUNCATED)
    return int.from_bytes(buffer[at : at + 4], "big", signed=True), at + 4


def read_int64(buffer: bytes, at: int) -> tuple[int, int]:
    """Read an INT64."""
    if at + 8 > len(buffer):
        raise Malformed(TRUNCATED)
    return int.from_bytes(buffer[at : at + 8], "big", signed=True), at + 8


def read_uuid(buffer: bytes, at: int) -> tuple[str, int]:
    """Read a UUID as its 22 characters."""
    return uuid_text(read_slice(buffer, at, 16)), at + 16


def read_slice(buffer: bytes, at: int, length: int) -> bytes:
    """Take `length` bytes, all of which must be there."""
    if length > len(buffer) - at:
        raise Malformed(TRUNCATED)
    return buffer[at : at + length]


def read_text(buffer: bytes, at: int, length: int) -> str:
    """Take a string of `length` bytes; Kafka refuses more than 32,767 even if all are there."""
    if length > _MAX_STRING:
        raise Malformed(TOO_LONG)
    return java_utf8(read_slice(buffer, at, length))
