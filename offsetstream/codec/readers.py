"""Compile readers from layouts: one closure per field, (buffer, position) -> (value, next position).

Results have the form of Kafka's generated JSON converters (reference 8.2). Field names and their order are those of the
schema. Fields of other versions are absent; so is a tagged field that equals its default. Bytes stay `bytes`.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from offsetstream.codec import wire
from offsetstream.codec.record_layouts import Field, Shape
from offsetstream.codec.wire import NEGATIVE_LENGTH, TRUNCATED, DecodeError

JsonObject: TypeAlias = dict[str, Any]
Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
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
_PLAIN_LENGTH: dict[str, Callable[[bytes, int], tuple[int, int]]] = {
    "string": wire.read_int16,
    "bytes": wire.read_int32,
}


class WithUnknownTags(JsonObject):
    """A struct with tags of a later release. They are not in its JSON, and are written back unchanged."""

    unknown_tags: Tags


def message_reader(shape: Shape, version: int) -> Reader:
    """Compile the reader for one version of a message. It starts after the INT16 version."""
    return _struct_reader(shape.fields, version, version in shape.flexible)


def _sized_reader(kind: str, flexible: bool, nullable: bool) -> Reader:
    take = _TAKE[kind]
    read_length = wire.read_compact_length if flexible else _PLAIN_LENGTH[kind]

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


def _optional_reader(field: Field, reader: Reader) -> Reader:
    def read(buffer: bytes, at: int) -> tuple[Any, int]:
        return (field.default, at) if at == len(buffer) else reader(buffer, at)

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
