"""Encode records, the inverse of decoding: from the JSON form of a record to the bytes of its key and value."""

import struct
from functools import cache
from typing import Any

from offsetstream.codec.record_layouts import Shape, record_types
from offsetstream.codec.records import known_type, unsupported_version
from offsetstream.codec.wire import DecodeError
from offsetstream.codec.writers import Writer, message_writer

CURRENT = -1
_PREFIX = struct.Struct(">h")


def encode_record(key: Any, value: Any) -> tuple[bytes, bytes | None]:
    """Encode a record: `key` is `{"type": …, "data": {…}}`, `value` is `{"version": …, "data": {…}}` or None.

    A value in a layout that an older release wrote under the same version is recognised by its fields. Raises
    DecodeError with the field and what is wrong with it.
    """
    key_type, _ = open_document(key, "key", "type")
    return encode_key(key), encode_value(key_type, value)


def encode_key(key: Any) -> bytes:
    """Encode the key of a record: `{"type": …, "data": {…}}`. Raises DecodeError."""
    key_type, data = open_document(key, "key", "type")
    known_type(key_type)
    return _encode(_key_writer(key_type), key_type, data, "key")


def encode_value(key_type: int, value: Any) -> bytes | None:
    """Encode a value for a key type. None, a tombstone, stays None. Raises DecodeError."""
    if value is None:
        return None
    version, data = open_document(value, "value", "version")
    record = known_type(key_type)
    if version not in record.value.versions:
        raise DecodeError(unsupported_version(key_type, version))
    fitting = [index for index, shape in enumerate(record.older_values) if _has_fields_of(data, shape, version)]
    current = not fitting or _has_fields_of(data, record.value, version)
    return encode_layout(key_type, version, CURRENT if current else fitting[0], data)


def encode_layout(key_type: int, version: int, older: int, data: Any) -> bytes:
    """Encode a value in one layout of its version: CURRENT, or an index into `older_values`. Raises DecodeError."""
    return _encode(_value_writer(key_type, version, older), version, data, "value")


def open_document(document: Any, name: str, number: str) -> tuple[int, Any]:
    """Split a key or value document into its number and its data. Raises DecodeError if it has another form."""
    if not isinstance(document, dict) or document.keys() != {number, "data"} or type(document[number]) is not int:
        raise DecodeError(f'{name} is not {{"{number}": a number, "data": {{…}}}}: {document!r}')
    return document[number], document["data"]


def _has_fields_of(data: Any, shape: Shape, version: int) -> bool:
    present = [field for field in shape.fields if version in field.versions]
    needed = {field.name for field in present if field.tag is None}
    return isinstance(data, dict) and needed <= data.keys() <= {field.name for field in present}


@cache
def _key_writer(key_type: int) -> Writer:
    return message_writer(record_types()[key_type].key, 0)


@cache
def _value_writer(key_type: int, version: int, older: int) -> Writer:
    record = record_types()[key_type]
    return message_writer(record.value if older == CURRENT else record.older_values[older], version)


def _encode(writer: Writer, prefix: int, data: Any, part: str) -> bytes:
    out = bytearray(_PREFIX.pack(prefix))
    try:
        writer(out, data)
    except DecodeError as reason:
        raise DecodeError(f"{part}: {reason}") from None
    return bytes(out)
