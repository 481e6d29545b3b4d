"""Compile writers from layouts, the inverse of `readers`. Each writer appends the bytes of one field to a buffer.

The input has the form of Kafka's JSON: bytes as base64 text or `bytes`, UUIDs as 22 characters. Like Kafka's generated
classes, writers omit tagged fields that equal their default and reject strings over 32,767 bytes. A missing field, or
one that the version does not have, is rejected by name.
"""

import binascii
import struct
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable
from typing import Any, TypeAlias

from offsetstream.codec.readers import JsonObject, WithUnknownTags
from offsetstream.codec.record_layouts import Field, Shape
from offsetstream.codec.wire import DecodeError

Writer: TypeAlias = Callable[[bytearray, Any], None]

_FIXED = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q"}
_PLAIN_LENGTH = {"string": struct.Struct(">h"), "bytes": struct.Struct(">i")}
_COUNT = struct.Struct(">i")
_MAX_STRING = 0x7FFF
_UUID_BYTES, _UUID_TEXT = 16, 22
_NULL_STRUCT, _PRESENT = b"\xff", b"\x01"


def message_writer(shape: Shape, version: int) -> Writer:
    """Compile the writer for one version of a message. It does not write the INT16 version."""
    return _struct_writer(shape.fields, version, version in shape.flexible)


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an UNSIGNED_VARINT in its shortest form."""
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _struct_writer(fields: tuple[Field, ...], version: int, flexible: bool) -> Writer:
    present = [field for field in fields if version in field.versions]
    names = frozenset(field.name for field in present)
    plain = [
        (field.name, _named(field, _field_writer(field, version, flexible))) for field in present if field.tag is None
    ]
    write_tags = _tag_section_writer([field for field in present if field.tag is not None], version)

    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, dict):
            raise DecodeError(f"expected an object, got {value!r}")
        for name in value.keys() - names:
            raise DecodeError(f"version {version} has no field {name!r}")
        for name, writer in plain:
            if name not in value:
                raise DecodeError(f"field {name!r} is missing: version {version} requires it")
            writer(out, value[name])
        if flexible:
            write_tags(out, value)

    return write


def _tag_section_writer(tagged: list[Field], version: int) -> Callable[[bytearray, JsonObject], None]:
    known = [
        (field.tag or 0, field.name, field.default_value(version), _named(field, _tagged_writer(field, version)))
        for field in tagged
    ]

    def write(out: bytearray, value: JsonObject) -> None:
        payloads = dict(value.unknown_tags) if isinstance(value, WithUnknownTags) else {}
        for tag, name, default, writer in known:
            cell = value.get(name, default)
            if cell != default or isinstance(cell, WithUnknownTags):
                payload = bytearray()
                writer(payload, cell)
                payloads[tag] = bytes(payload)
        write_uvarint(out, len(payloads))
        for tag in sorted(payloads):
            write_uvarint(out, tag)
            write_uvarint(out, len(payloads[tag]))
            out += payloads[tag]

    return write


def _named(field: Field, writer: Writer) -> Writer:
    """Put the field's name in front of the writer's error."""

    def write(out: bytearray, value: Any) -> None:
        try:
            writer(out, value)
        except DecodeError as reason:
            raise DecodeError(f"{field.name}: {reason}") from None

    return write


def _field_writer(field: Field, version: int, flexible: bool) -> Writer:
    nullable = version in field.nullable
    if field.type.startswith("[]"):
        return _array_writer(_type_writer(field, field.type[2:], version, flexible), flexible, nullable)
    if field.type in _PLAIN_LENGTH:
        return _sized_writer(field.type, flexible, nullable)
    body = _type_writer(field, field.type, version, flexible)
    return _nullable_writer(body, _NULL_STRUCT) if field.type == "struct" and nullable else body


def _tagged_writer(field: Field, version: int) -> Writer:
    if field.type != "struct":
        return _field_writer(field, version, flexible=True)
    body = _struct_writer(field.fields, version, flexible=True)
    return _nullable_writer(body, b"\0") if version in field.nullable else body


def _nullable_writer(body: Writer, null: bytes) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        out += null if value is None else _PRESENT
        if value is not None:
            body(out, value)

    return write


def _type_writer(field: Field, kind: str, version: int, flexible: bool) -> Writer:
    if kind == "struct":
        return _struct_writer(field.fields, version, flexible)
    if kind in _PLAIN_LENGTH:
        return _sized_writer(kind, flexible, nullable=False)
    return _write_uuid if kind == "uuid" else _number_writer(kind)


def _number_writer(kind: str) -> Writer:
    layout = struct.Struct(_FIXED[kind])

    def write(out: bytearray, value: Any) -> None:
        if type(value) is not int:
            raise DecodeError(f"expected a whole number, got {value!r}")
        try:
            out += layout.pack(value)
        except struct.error:
            raise DecodeError(f"{value} does not fit {kind}") from None

    return write


def _write_uuid(out: bytearray, value: Any) -> None:
    try:
        data = urlsafe_b64decode(value + "==")
    except (TypeError, ValueError):
        data = b""
    if len(data) != _UUID_BYTES or len(value) != _UUID_TEXT:
        raise DecodeError(f"expected a UUID of {_UUID_TEXT} characters, got {value!r}")
    out += data


def _array_writer(element: Writer, flexible: bool, nullable: bool) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if not isinstance(value, list) and not (nullable and value is None):
            raise DecodeError(f"expected a list, got {value!r}")
        count = -1 if value is None else len(value)
        if flexible:
            write_uvarint(out, count + 1)
        else:
            out += _COUNT.pack(count)
        for item in value or ():
            element(out, item)

    return write


def _sized_writer(kind: str, flexible: bool, nullable: bool) -> Writer:
    encode = _string_bytes if kind == "string" else _raw_bytes
    plain_length = _PLAIN_LENGTH[kind]

    def write(out: bytearray, value: Any) -> None:
        data = None if nullable and value is None else encode(value)
        length = -1 if data is None else len(data)
        if flexible:
            write_uvarint(out, length + 1)
        else:
            out += plain_length.pack(length)
        out += data or b""

    return write


def _string_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise DecodeError(f"expected a string, got {value!r}")
    data = value.encode("utf-8", "replace")  # Java writes `?` for an unpaired surrogate
    if len(data) > _MAX_STRING:
        raise DecodeError(f"the string is too long to be serialized ({len(data)} bytes, at most {_MAX_STRING})")
    return data


def _raw_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return b64decode(value, validate=True)
    except (TypeError, binascii.Error, ValueError):
        raise DecodeError(f"expected bytes in base64, got {value!r}") from None
