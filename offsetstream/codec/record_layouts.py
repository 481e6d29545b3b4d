"""Record layouts, loaded from the data files in `schemas/`.

Each file describes one record type: the fields of its key and value, in Kafka's order and with Kafka's names (the JSON
converters print them); the versions of each field; where null is allowed; tagged fields with their defaults; and the
release that the file was taken from. `older_values` lists layouts that an earlier release wrote under the same version
(reference 1.4, 1.5). To add a record type or a version, change only these files.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

LAST_VERSION = 32767
ZERO_UUID = "A" * 22


@dataclass(frozen=True)
class Versions:
    """A closed range of versions. It is empty if `first` is above `last`."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str | None) -> "Versions":
        """Read Kafka's notation: `0`, `0-4`, `3+`; None or `none` is the empty range."""
        if text is None or text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), LAST_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


@dataclass(frozen=True)
class Field:
    """One field of a message.

    `type` is Kafka's type name, with `[]` before it for an array. `since` is the first release that wrote the field. In
    the versions `may_be_missing`, the bytes may end before the field; it then has its default.
    """

    name: str
    type: str
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    fields: tuple["Field", ...]
    since: str | None = None
    may_be_missing: Versions = Versions(0, -1)

    @classmethod
    def parse(cls, document: dict[str, Any]) -> "Field":
        """Build a field from its JSON object."""
        return cls(
            name=document["name"],
            type=document["type"],
            versions=Versions.parse(document["versions"]),
            nullable=Versions.parse(document.get("nullable")),
            tag=document.get("tag"),
            default=document.get("default"),
            fields=tuple(cls.parse(field) for field in document.get("fields", ())),
            since=document.get("since"),
            may_be_missing=Versions.parse(document.get("may_be_missing")),
        )

    def default_value(self, version: int) -> Any:
        """Return the value of an absent field. For a struct, its own fields have their defaults."""
        if self.type != "struct" or self.default is None:
            return self.default
        plain = [field for field in self.fields if version in field.versions and field.tag is None]
        return {field.name: field.default or _zero(field.type) for field in plain}


def _zero(kind: str) -> Any:
    if kind.startswith("[]"):
        return []
    return {"string": "", "bytes": b"", "uuid": ZERO_UUID}.get(kind, 0)


@dataclass(frozen=True, eq=False)
class Shape:
    """The layout of one message: its versions, which of them are flexible, and its fields.

    Compared by identity, so a compiled reader or writer is found quickly.
    """

    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]

    @classmethod
    def parse(cls, document: dict[str, Any]) -> "Shape":
        """Build a layout from its JSON object."""
        return cls(
            versions=Versions.parse(document["versions"]),
            flexible=Versions.parse(document["flexible"]),
            fields=tuple(Field.parse(field) for field in document["fields"]),
        )


@dataclass(frozen=True)
class RecordType:
    """A record type of `__consumer_offsets`. `type` is the first INT16 of its keys (reference 1.1).

    `older_releases` has, for each layout in `older_values`, the last release that wrote it. `written_versions` has
    pairs: a release, and the value version written from that release on. A value with an expiry is written in
    `with_expiry_version` (reference 6).
    """

    type: int
    name: str
    key: Shape
    value: Shape
    older_values: tuple[Shape, ...]
    older_releases: tuple[str, ...]
    written_since: str
    written_until: str | None
    written_versions: tuple[tuple[str, int], ...]
    with_expiry_version: int | None

    @classmethod
    def parse(cls, document: dict[str, Any]) -> "RecordType":
        """Build a record type from its JSON document. Keys are never flexible and have one version each."""
        value = document["value"]
        older = document.get("older_values", ())
        return cls(
            type=document["type"],
            name=document["name"],
            key=Shape.parse({"versions": "0", "flexible": "none", "fields": document["key"]}),
            value=Shape.parse(value),
            older_values=tuple(Shape.parse({**value, "fields": shape["fields"]}) for shape in older),
            older_releases=tuple(shape["release"] for shape in older),
            written_since=document["written_since"],
            written_until=document.get("written_until"),
            written_versions=tuple((step["from"], step["version"]) for step in document.get("written_versions", ())),
            with_expiry_version=document.get("with_expiry_version"),
        )


def _schemas() -> Traversable:
    return files(__package__).joinpath("schemas")


@cache
def record_types() -> dict[int, RecordType]:
    """Return every record type that the codec knows, by key type."""
    documents = [entry for entry in _schemas().iterdir() if entry.name.endswith(".json")]
    known = [RecordType.parse(json.loads(document.read_text("utf-8"))) for document in documents]
    return {record.type: record for record in sorted(known, key=lambda record: record.type)}


@cache
def embedded_shape(name: str) -> Shape:
    """Load the layout of a message inside a member's bytes, by its file name in `schemas/embedded`."""
    return Shape.parse(json.loads(_schemas().joinpath("embedded", f"{name}.json").read_text("utf-8")))
