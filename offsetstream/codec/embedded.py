"""Messages inside the bytes of a group member: an INT16 version, then fields that are never flexible (reference 3).

A version above the highest known one is read as the highest. Empty bytes and negative versions are errors.
"""

import struct
from functools import cache
from typing import Any

from offsetstream.codec import wire
from offsetstream.codec.readers import JsonObject, Reader, message_reader
from offsetstream.codec.record_layouts import embedded_shape
from offsetstream.codec.wire import DecodeError, reason_in_part
from offsetstream.codec.writers import Writer, message_writer

_PREFIX = struct.Struct(">h")


@cache
def _reader(name: str, version: int) -> Reader:
    return message_reader(embedded_shape(name), version)


@cache
def _writer(name: str, version: int) -> Writer:
    return message_writer(embedded_shape(name), version)


def decode_embedded(name: str, data: bytes) -> JsonObject:
    """Decode a message by the name of its file in `schemas/embedded`. Raises DecodeError with the reason."""
    try:
        version, at = wire.read_int16(data, 0)
        last = embedded_shape(name).versions.last
        result: JsonObject = _reader(name, min(version, last))(data, at)[0] if version >= 0 else {}
    except DecodeError as reason:
        raise DecodeError(reason_in_part(str(reason), name)) from None
    if version < 0:
        raise DecodeError(f"negative version {version} of {name}")
    return result


def encode_embedded(name: str, version: int, data: Any) -> bytes:
    """Encode a message by the name of its file. Raises DecodeError if the version or the data do not match the file."""
    if version not in embedded_shape(name).versions:
        raise DecodeError(f"unsupported version {version} of {name}")
    out = bytearray(_PREFIX.pack(version))
    _writer(name, version)(out, data)
    return bytes(out)
