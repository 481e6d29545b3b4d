"""The fields of a message as Kafka's generated classes declare them and as our schemas do, in one comparable form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from py4j.java_collections import JavaList
from py4j.java_gateway import JavaObject

from offsetstream.codec.record_layouts import Field, Shape
from tests.oracle.kafka_classes import KafkaClasses

_TYPES = "org.apache.kafka.common.protocol.types"
_SIZED = {"string", "bytes"}


@dataclass(frozen=True)
class Declared:
    """A field: its type in the terms of Kafka's Schema, its class default, and the fields of its struct."""

    name: str
    type: str
    tag: int | None
    default: Any
    fields: tuple[Declared, ...]


def ours(shape: Shape, version: int) -> tuple[Declared, ...]:
    """Return the fields of one message version from our schema."""
    return _ours(shape.fields, version, "COMPACT_" if version in shape.flexible else "")


def _ours(fields: tuple[Field, ...], version: int, compact: str) -> tuple[Declared, ...]:
    present = [field for field in fields if version in field.versions]
    return tuple(
        Declared(
            field.name,
            _type(field, compact, "NULLABLE_" if version in field.nullable else ""),
            field.tag,
            field.default_value(version) if _has_default(field) else None,
            _ours(field.fields, version, compact),
        )
        for field in sorted(present, key=lambda field: -1 if field.tag is None else field.tag)
    )


def _has_default(field: Field) -> bool:
    """Whether the default matters. A field without a tag is always present; its default is only of use to writers."""
    return field.tag is not None or field.default is not None


def _type(field: Field, compact: str, nullable: str) -> str:
    if field.type.startswith("[]"):
        element = field.type[2:]
        return f"{compact}{nullable}ARRAY({compact if element in _SIZED else ''}{element.upper()})"
    if field.type in _SIZED:
        return f"{compact}{nullable}{field.type.upper()}"
    return field.type.upper()  # before 4.3 Kafka's Schema does not say whether a struct may be null; the bytes do


class Declarations:
    """The message classes of one release, read by reflection."""

    def __init__(self, kafka: KafkaClasses) -> None:
        self._kafka = kafka

    def versions(self, message: str) -> tuple[int, int]:
        """The first and the last version of a message class."""
        first, last = (self._kafka.constant(message, f"{end}_SUPPORTED_VERSION") for end in ("LOWEST", "HIGHEST"))
        return first, last

    def fields(self, message: str, version: int, like: Shape) -> tuple[Declared, ...]:
        """Return the fields of one message version; defaults only where `like` states them."""
        name = f"SCHEMA_{version}"
        structs = self._kafka.nested(message, name)
        return self._struct(message, self._kafka.constant(message, name), structs, like.fields)

    def _struct(
        self, owner: str, schema: Any, structs: dict[str, Any], like: tuple[Field, ...]
    ) -> tuple[Declared, ...]:
        found = []
        for bound in self._kafka.call(f"{_TYPES}.Schema", "fields", schema):
            field = _get(bound, "def")
            kind = _get(field, "type")
            if _class_of(kind) == "TaggedFields":
                tagged = _tagged(kind)
                found += [self._field(owner, tag, tagged[tag], structs, like) for tag in sorted(tagged)]
            else:
                found.append(self._field(owner, None, field, structs, like))
        return tuple(found)

    def _field(
        self, owner: str, tag: int | None, field: Any, structs: dict[str, Any], like: tuple[Field, ...]
    ) -> Declared:
        name = re.sub("_([a-z])", lambda found: found[1].upper(), _get(field, "name"))
        kind, schema = self._type(_get(field, "type"))
        own = next((each for each in like if each.name == name), None)
        nested: tuple[Declared, ...] = ()
        if schema is not None:
            (of,) = [
                each for each, known in structs.items() if self._kafka.same(self._first(known), self._first(schema))
            ]
            nested = self._struct(of, schema, structs, own.fields if own else ())
        is_asked = tag is not None or (own is not None and _has_default(own))
        return Declared(name, kind, tag, self._default(owner, name, nested) if is_asked else None, nested)

    def _first(self, schema: Any) -> Any:
        """The first field of a schema: the same object in every schema made from that struct."""
        return _get(self._kafka.call(f"{_TYPES}.Schema", "fields", schema)[0], "def")

    def _type(self, kind: Any) -> tuple[str, Any]:
        """Return the type in Kafka's terms, and the schema of its struct."""
        name = _class_of(kind)
        if name.endswith("Schema"):  # since 4.3 a struct may be nullable
            return "STRUCT", kind
        if not name.endswith("ArrayOf"):
            return str(self._kafka.call("java.lang.Object", "toString", kind)), None
        array = f"{_TYPES}.{name}"
        nullable = "NULLABLE_" if self._kafka.call(array, "isNullable", kind) else ""
        element, schema = self._type(self._kafka.call(array, "arrayElementType", kind).get())
        return f"{'COMPACT_' if name.startswith('Compact') else ''}{nullable}ARRAY({element})", schema

    def _default(self, owner: str, name: str, nested: tuple[Declared, ...]) -> Any:
        """The default of a field: its value in a new object of the class."""
        return self._plain(self._kafka.call(owner, name, self._kafka.new(owner)), nested)

    def _plain(self, value: Any, nested: tuple[Declared, ...]) -> Any:
        if isinstance(value, JavaObject) and _class_of(value) == "Uuid":
            return self._kafka.call("java.lang.Object", "toString", value)
        if isinstance(value, JavaList):
            return list(value)
        if isinstance(value, JavaObject) and _class_of(value).endswith("Collection"):
            return list(value.toArray())
        if isinstance(value, JavaObject):
            owner = value.getClass().getName()
            plain = [field for field in nested if field.tag is None]
            return {each.name: self._plain(self._kafka.call(owner, each.name, value), each.fields) for each in plain}
        return value


def _tagged(kind: Any) -> dict[int, Any]:
    fields = kind.getClass().getDeclaredField("fields")  # private before 4.0
    fields.setAccessible(True)
    return dict(fields.get(kind))


def _get(java: Any, field: str) -> Any:
    return java.getClass().getField(field).get(java)


def _class_of(java: Any) -> str:
    """The class name of a Java object, without its package."""
    name: str = java.getClass().getName()
    return name.rpartition(".")[2]
