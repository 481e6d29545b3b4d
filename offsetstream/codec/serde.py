"""Compile readers and writers of messages from their layouts: one closure per field.

A reader takes (buffer, position) and returns (value, next position); a writer appends to a buffer. Values have the form
of Kafka's generated JSON converters (reference 8.2). Field names and their order are those of the schema. Fields of
other versions are absent; so is a tagged field that equals its default. Readers keep bytes as `bytes`; writers take
base64 text, too. Like Kafka's generated classes, writers reject strings over 32,767 bytes, and by name a field that is
missing or that the version does not have.
"""

import binascii
import struct
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from offsetstream.codec import wire
from offsetstream.codec.record_layouts import Field, Shape
from offsetstream.codec.wire import MAX_STRING, NEGATIVE_LENGTH, TRUNCATED, DecodeError

JsonObject: TypeAlias = dict[str, Any]
Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
Writer: TypeAlias = Callable[[bytearray, Any], None]
Tags: TypeAlias = list[tuple[int, bytes]]

_FIXED: dict[str, Reader] = {
    "int8": wire.read_int8,
    "int16": wire.read_int16,
    "uint16": wire.read_uint16,
    "int32": wire.read_int32,
    "int64": wire.read_int64,
    "uuid": wire.read_uuid,
}
_TAKE: dict[str, Callable[[bytes, int, int], Any]] = {"string": wire.read_text, "bytes": wire.read_slice}
_READ_LENGTH: dict[str, Callable[[bytes, int], tuple[int, int]]] = {
    "string": wire.read_int16,
    "bytes": wire.read_int32,
}
_PLAIN_LENGTH = {"string": struct.Struct(">h"), "bytes": struct.Struct(">i")}
_COUNT = struct.Struct(">i")
_UUID_BYTES, _UUID_TEXT = 16, 22
_NULL_STRUCT, _PRESENT = b"\xff", b"\x01"


class WithUnknownTags(JsonObject):
    """A struct with tags of a later release. They are not in its JSON, and are written back unchanged."""

    unknown_tags: Tags


@cache
def message_reader(shape: Shape, version: int) -> Reader:
    """Compile the reader for one version of a message. It starts after the INT16 version."""
    return _struct_reader(shape.fields, version, version in shape.flexible)


@cache
def message_writer(shape: Shape, version: int) -> Writer:
    """Compile the writer for one version of a message. It does not write the INT16 version."""
    return _struct_writer(shape.fields, version, version in shape.flexible)


def _struct_reader(fields: tuple[Field, ...], version: int, flexible: bool) -> Reader:
    present = [field for field in fields if version in field.versions]
    plain = [(field.name, _field_reader(field, version, flexible)) for field in present if field.tag is None]
    if flexible:
        return _flexible_struct_reader(plain, [field for field in present if field.tag is not None], version)

    def read(buffer: bytes, at: int) -> tuple[JsonObject, int]:
        result = {}
        for name, reader in plain:
            result[name], at = reader(buffer, at)
        return result, at

    return read


def _flexible_struct_reader(plain: list[tuple[str, Reader]], tagged: list[Field], version: int) -> Reader:
    defaults = [(field.name, field.default_value(version)) for field in tagged]
    read_tags = _tag_section_reader({field.tag: (field.name, _tagged_reader(field, version)) for field in tagged})

    def read(buffer: bytes, at: int) -> tuple[JsonObject, int]:
        result: JsonObject = {}
        for name, reader in plain:
            result[name], at = reader(buffer, at)
        if at < len(buffer) and not buffer[at]:  # no tags: the usual case
            return result, at + 1
        found, unknown, at = read_tags(buffer, at)
        for name, default in defaults:  # in schema order
            if name in found and (found[name] != default or isinstance(found[name], WithUnknownTags)):
                result[name] = found[name]
        if unknown:
            result = WithUnknownTags(result)
            result.unknown_tags = unknown
        return result, at

    return read


def _tag_section_reader(
    known: dict[int | None, tuple[str, Reader]],
) -> Callable[[bytes, int], tuple[JsonObject, Tags, int]]:
    """Compile the reader of a tag section, as lenient as Kafka's.

    The declared size of a known tag is ignored, tags may come in any order, and the last of repeated tags wins.
    """

    def read(buffer: bytes, at: int) -> tuple[JsonObject, Tags, int]:
        count, at = wire.read_uvarint(buffer, at)
        found: JsonObject = {}
        unknown: Tags = []
        for _ in range(count):  # a count of 2^31 or more is negative here: no tags, as in Kafka
            tag, at = wire.read_uvarint(buffer, at)
            size, at = wire.read_uvarint(buffer, at)
            if tag in known:
                name, reader = known[tag]
                found[name], at = reader(buffer, at)
                continue
            if size < 0:
                raise DecodeError(NEGATIVE_LENGTH)
            unknown.append((tag, wire.read_slice(buffer, at, size)))
            at += size
        return found, unknown, at

    return read


def _tagged_reader(field: Field, version: int) -> Reader:
    body = _field_reader(field, version, flexible=True, nullable_struct=False)
    if field.type != "struct" or version not in field.nullable:
        return body

    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        marker, at = wire.read_uvarint(buffer, at)  # the marker of a tagged struct is a varint, otherwise an INT8
        return (None, at) if marker <= 0 else body(buffer, at)

    return read


def _field_reader(field: Field, version: int, flexible: bool, nullable_struct: bool = True) -> Reader:
    reader = _present_reader(field, version, flexible, nullable_struct)
    return _optional_reader(field, reader) if version in field.may_be_missing else reader


def _present_reader(field: Field, version: int, flexible: bool, nullable_struct: bool) -> Reader:
    nullable = version in field.nullable
    if field.type.startswith("[]") and field.type[2:] in wire.NUMBER_LAYOUTS:
        return _number_array_reader(field.type[2:], flexible, nullable)
    if field.type.startswith("[]"):
        return _array_reader(_type_reader(field, field.type[2:], version, flexible), flexible, nullable)
    if field.type in _TAKE:
        return _sized_reader(field.type, flexible, nullable)
    body = _type_reader(field, field.type, version, flexible)
    return _nullable_reader(body) if field.type == "struct" and nullable and nullable_struct else body


def _optional_reader(field: Field, reader: Reader) -> Reader:
    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        return (field.default, at) if at == len(buffer) else reader(buffer, at)

    return read


def _nullable_reader(body: Reader) -> Reader:
    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        marker, at = wire.read_int8(buffer, at)
        return (None, at) if marker < 0 else body(buffer, at)

    return read


def _type_reader(field: Field, kind: str, version: int, flexible: bool) -> Reader:
    if kind == "struct":
        return _struct_reader(field.fields, version, flexible)
    if kind in _TAKE:
        return _sized_reader(kind, flexible, nullable=False)
    return _FIXED[kind]


def _sized_reader(kind: str, flexible: bool, nullable: bool) -> Reader:
    take = _TAKE[kind]
    read_length = wire.read_compact_length if flexible else _READ_LENGTH[kind]

    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        length, at = read_length(buffer, at)
        if length < 0:
            if nullable:
                return None, at
            raise DecodeError(NEGATIVE_LENGTH)
        return take(buffer, at, length), at + length

    return read


def _array_reader(element: Reader, flexible: bool, nullable: bool) -> Reader:
    read_count = wire.read_compact_length if flexible else wire.read_int32

    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        count, at = read_count(buffer, at)
        if count < 0:
            if nullable:
                return None, at
            raise DecodeError(NEGATIVE_LENGTH)
        if count > len(buffer) - at:
            raise DecodeError(TRUNCATED)
        items = []
        for _ in range(count):
            item, at = element(buffer, at)
            items.append(item)
        return items, at

    return read


def _number_array_reader(kind: str, flexible: bool, nullable: bool) -> Reader:
    """Compile a reader that unpacks all numbers of an array in one call."""
    read_count = wire.read_compact_length if flexible else wire.read_int32
    layout = wire.NUMBER_LAYOUTS[kind]
    size = struct.calcsize(f">{layout}")

    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        count, at = read_count(buffer, at)
        if count < 0:
            if nullable:
                return None, at
            raise DecodeError(NEGATIVE_LENGTH)
        end = at + count * size
        if end > len(buffer):
            raise DecodeError(TRUNCATED)
        return list(struct.unpack_from(f">{count}{layout}", buffer, at)), end

    return read


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


def _tagged_writer(field: Field, version: int) -> Writer:
    if field.type != "struct":
        return _field_writer(field, version, flexible=True)
    body = _struct_writer(field.fields, version, flexible=True)
    return _nullable_writer(body, b"\0") if version in field.nullable else body


def _field_writer(field: Field, version: int, flexible: bool) -> Writer:
    nullable = version in field.nullable
    if field.type.startswith("[]"):
        return _array_writer(_type_writer(field, field.type[2:], version, flexible), flexible, nullable)
    if field.type in _PLAIN_LENGTH:
        return _sized_writer(field.type, flexible, nullable)
    body = _type_writer(field, field.type, version, flexible)
    return _nullable_writer(body, _NULL_STRUCT) if field.type == "struct" and nullable else body


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
    if len(data) > MAX_STRING:
        raise DecodeError(f"the string is too long to be serialized ({len(data)} bytes, at most {MAX_STRING})")
    return data


def _raw_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return b64decode(value, validate=True)
    except (TypeError, binascii.Error, ValueError):
        raise DecodeError(f"expected bytes in base64, got {value!r}") from None


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


def _number_writer(kind: str) -> Writer:
    layout = struct.Struct(f">{wire.NUMBER_LAYOUTS[kind]}")

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


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an UNSIGNED_VARINT in its shortest form."""
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
