"""Random records of every type and version in Kafka's JSON form, generated from the layouts and a seed."""

from base64 import b64encode
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from offsetstream.codec.record_layouts import ZERO_UUID, Field, Shape, record_types
from offsetstream.codec.records import LAST_RELEASE, parse_release
from offsetstream.codec.serde import JsonObject
from offsetstream.codec.wire import uuid_text

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_ALPHABET = 'abcXYZ019-_./,]:"\\ \n\t\b\f\r\0\x01\x1f\x7f\x80\xa0éßłя日本\u2028\u2029\ufffd\uffff😀𝄞'


def text(rng: Random) -> str:
    """Return a string: often short, sometimes empty, sometimes too long for a length of one or two bytes."""
    length = rng.choice([0, 1, 2, 5, 9, 20, 20, 126, 127, 128])
    alphabet = _ALPHABET if rng.random() < 0.5 else _ALPHABET[:20]
    repeats = 1 if rng.random() < 0.98 else 60
    return "".join(rng.choices(alphabet, k=length)) * repeats


def number(rng: Random, kind: str) -> int:
    """Return a number of the type; extremes, 0 and -1 are included."""
    if kind == "uint16":
        return rng.choice([0, 1, 9092, 65535, rng.getrandbits(16)])
    half = 1 << (_BITS[kind] - 1)
    return rng.choice([0, 1, -1, 7, half - 1, -half, rng.getrandbits(_BITS[kind]) - half])


def _cell(rng: Random, field: Field, kind: str, version: int) -> Any:
    if kind.startswith("[]"):
        return [_cell(rng, field, kind[2:], version) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    if kind == "struct":
        return message(rng, field.fields, version)
    if kind == "string":
        return text(rng)
    if kind == "bytes":
        return b64encode(rng.randbytes(rng.choice([0, 1, 15, 127, 128, 300]))).decode()
    if kind == "uuid":
        return rng.choice([ZERO_UUID, uuid_text(rng.randbytes(16))])
    return number(rng, kind)


def message(rng: Random, fields: tuple[Field, ...], version: int) -> JsonObject:
    """Return a message with the fields of a version; tagged fields are absent, default, null or set."""
    result: JsonObject = {}
    for field in fields:
        if version not in field.versions or (field.tag is not None and rng.random() < 0.4):
            continue
        if version in field.nullable and rng.random() < 0.3:
            result[field.name] = None
        else:
            result[field.name] = _cell(rng, field, field.type, version)
    return result


def fields_of(fields: tuple[Field, ...], release: str) -> tuple[Field, ...]:
    """Return the fields that a release has."""
    known = [f for f in fields if not f.since or parse_release(f.since) <= parse_release(release)]
    return tuple(replace(field, fields=fields_of(field.fields, release)) for field in known)


def shape_of(shape: Shape, release: str) -> Shape:
    """Return a layout with the fields that a release has."""
    return replace(shape, fields=fields_of(shape.fields, release))


@dataclass(frozen=True)
class Layout:
    """One version of one value layout. `older` is its index in the type's older layouts; -1 is the current layout."""

    type: int
    version: int
    older: int = -1

    @property
    def shape(self) -> Shape:
        """The layout itself."""
        record = record_types()[self.type]
        return record.value if self.older < 0 else record.older_values[self.older]

    def random_value(self, rng: Random, release: str = LAST_RELEASE) -> JsonObject:
        """Return a random value as its JSON `{"version", "data"}`."""
        fields = fields_of(self.shape.fields, release)
        return {"version": self.version, "data": message(rng, fields, self.version)}

    def random_key(self, rng: Random) -> JsonObject:
        """Return a random key of the type as its JSON `{"type", "data"}`."""
        return {"type": self.type, "data": message(rng, record_types()[self.type].key.fields, 0)}


def present_layouts() -> list[Layout]:
    """Return every version of every record type in its current layout."""
    types = record_types().values()
    return [Layout(r.type, v) for r in types for v in range(r.value.versions.first, r.value.versions.last + 1)]


def older_layouts() -> list[Layout]:
    """Return the layouts that older releases had under the same version number."""
    return [Layout(r.type, 0, older) for r in record_types().values() for older in range(len(r.older_values))]
