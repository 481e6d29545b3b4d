"""One record at a time, in the form of Kafka's JSON: decode it, encode it, or encode it as a given release writes it.

Decoded fields and their order are those of Kafka's generated JSON converters (reference 8.2); bytes stay `bytes`.
Releases: reference 6.1, 6.2.
"""

import re
import struct
from base64 import b64encode
from json import JSONEncoder
from typing import Any, TypeAlias

from offsetstream.codec import wire
from offsetstream.codec.record_layouts import Field, RecordType, Shape, record_types
from offsetstream.codec.serde import JsonObject, Reader, message_reader, message_writer
from offsetstream.codec.wire import DecodeError, reason_in_part
from offsetstream.errors import UsageError

FIRST_RELEASE, LAST_RELEASE = "0.8.2", "4.4"
Release: TypeAlias = tuple[int, int, int, int]

_PREFIX = struct.Struct(">h")
_LEGACY_COMMIT, _COMMIT, _GROUP = 0, 1, 2
_NO_TIME = -1
_LATEST = 1 << 30
_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)?(?:-IV(\d+))?")
_ESCAPE = re.compile(r"\\(?:u00[0-9a-f]{2}|.)")


def decode_key(key: bytes) -> tuple[int, JsonObject]:
    """Decode a key into its key type and fields. Raises DecodeError with the reason."""
    key_type, at = _read_part("key", wire.read_int16, key, 0)
    return key_type, _read_part("key", message_reader(known_type(key_type).key, 0), key, at)[0]


def decode_value(key_type: int, value: bytes) -> tuple[int, JsonObject]:
    """Decode the value of a known key type into its version and fields. Raises DecodeError with the reason.

    Whatever Kafka 4.3.1 reads is read the same way; trailing bytes are ignored. If Kafka 4.3.1 would reject the value,
    the layouts that older releases wrote under the same version are tried. One is used if it fits to the last byte.
    """
    version, at = _read_part("value", wire.read_int16, value, 0)
    record = known_type(key_type)
    if version not in record.value.versions:
        raise DecodeError(unsupported_version(key_type, version))
    try:
        return version, _read_part("value", message_reader(record.value, version), value, at)[0]
    except DecodeError:
        for shape in record.older_values:
            try:
                data, end = message_reader(shape, version)(value, at)
            except DecodeError:
                continue
            if end == len(value):
                return version, data
        raise


def _read_part(part: str, reader: Reader, data: bytes, at: int) -> tuple[Any, int]:
    try:
        return reader(data, at)
    except DecodeError as reason:
        raise DecodeError(reason_in_part(str(reason), part)) from None


def known_type(key_type: int) -> RecordType:
    """Return the record type of a key type. Raises DecodeError if it is unknown."""
    record = record_types().get(key_type)
    if record is None:
        raise DecodeError(f"unknown key type {key_type}")
    return record


def unsupported_version(key_type: int, version: int) -> str:
    """Return the reason for a value version that no release wrote under this key type."""
    return f"unsupported value version {version} of key type {key_type}"


def encode_record(key: Any, value: Any) -> tuple[bytes, bytes | None]:
    """Encode a record: `key` is `{"type": …, "data": {…}}`, `value` is `{"version": …, "data": {…}}` or None.

    A value in a layout that an older release wrote under the same version is recognised by its fields. Raises
    DecodeError with the field and what is wrong with it.
    """
    key_type, _ = _open_document(key, "key", "type")
    return encode_key(key), encode_value(key_type, value)


def encode_key(key: Any) -> bytes:
    """Encode the key of a record: `{"type": …, "data": {…}}`. Raises DecodeError."""
    key_type, data = _open_document(key, "key", "type")
    return _encode(known_type(key_type).key, 0, key_type, data, "key")


def encode_value(key_type: int, value: Any) -> bytes | None:
    """Encode a value for a key type. None, a tombstone, stays None. Raises DecodeError."""
    if value is None:
        return None
    version, data = _open_document(value, "value", "version")
    record = known_type(key_type)
    if version not in record.value.versions:
        raise DecodeError(unsupported_version(key_type, version))
    shapes = (record.value, *record.older_values)
    shape = next((shape for shape in shapes if _has_fields_of(data, shape, version)), record.value)
    return _encode(shape, version, version, data, "value")


def _open_document(document: Any, name: str, number: str) -> tuple[int, Any]:
    """Split a key or value document into its number and its data. Raises DecodeError if it has another form."""
    if not isinstance(document, dict) or document.keys() != {number, "data"} or type(document[number]) is not int:
        raise DecodeError(f'{name} is not {{"{number}": a number, "data": {{…}}}}: {document!r}')
    return document[number], document["data"]


def _has_fields_of(data: Any, shape: Shape, version: int) -> bool:
    present = [field for field in shape.fields if version in field.versions]
    needed = {field.name for field in present if field.tag is None}
    return isinstance(data, dict) and needed <= data.keys() <= {field.name for field in present}


def _encode(shape: Shape, version: int, prefix: int, data: Any, part: str) -> bytes:
    out = bytearray(_PREFIX.pack(prefix))
    try:
        message_writer(shape, version)(out, data)
    except DecodeError as reason:
        raise DecodeError(f"{part}: {reason}") from None
    return bytes(out)


def encode_as_release(key: Any, value: Any, release: str) -> tuple[bytes, bytes | None]:
    """Encode a record as a broker of `release` writes it, whatever version `key` and `value` have.

    Fields that the release does not have are dropped. Fields that it adds get Kafka's defaults. Raises UsageError for
    an unknown release, DecodeError for a record that the release never wrote or refuses to write.
    """
    number = parse_release(release)
    key_type, key_data = _open_document(key, "key", "type")
    if key_type in (_LEGACY_COMMIT, _COMMIT):
        key_type = _COMMIT if number >= _threshold(known_type(_COMMIT).written_since) else _LEGACY_COMMIT
    record = known_type(key_type)
    _check_written(record, value is None, number, release)
    key_bytes = encode_key({"type": key_type, "data": key_data})
    if value is None:
        return key_bytes, None
    _, data = _open_document(value, "value", "version")
    if key_type == _GROUP:
        data = _completed_group(key_data, data)
    version, shape = _version(record, data, number), _layout(record, number)
    return key_bytes, _encode(shape, version, version, _project(data, shape.fields, version, number), "value")


def parse_release(text: str) -> Release:
    """Parse an `inter.broker.protocol.version`, `0.8.2` to `4.4`. Without `-IVn`, it means the last IV of the release.

    Raises UsageError for anything else.
    """
    release = _parse_release(text, _LATEST)
    if release is None or not _parse_release(FIRST_RELEASE, 0) <= release <= _parse_release(LAST_RELEASE, _LATEST):  # type: ignore[operator]
        raise UsageError(
            f"{text!r} is not a release from {FIRST_RELEASE} to {LAST_RELEASE}: write 0.10.1, 2.1-IV0 or 4.3"
        )
    return release


def _parse_release(text: str, default_iv: int) -> Release | None:
    match = _RELEASE.fullmatch(text)
    if match is None:
        return None
    major, minor, patch, iv = (None if part is None else int(part) for part in match.groups())
    assert major is not None and minor is not None  # noqa: S101 - the pattern has them
    # Protocol versions have three numbers up to 0.11.0, and two from 1.0 on.
    return major, minor, (patch or 0) if major == 0 else 0, default_iv if iv is None else iv


def _threshold(text: str) -> Release:
    release = _parse_release(text, -1)
    if release is None:
        raise ValueError(f"{text!r} in the schema files is not a release")
    return release


def _check_written(record: RecordType, tombstone: bool, number: Release, release: str) -> None:
    name = f"type {record.type} ({record.name})"
    if number < _threshold(record.written_since):
        raise DecodeError(
            f"Kafka {release} does not write records of {name}; {record.written_since} was the first to do so"
        )
    if record.written_until and not tombstone and number[:3] > _threshold(record.written_until)[:3]:
        raise DecodeError(
            f"Kafka {release} does not write records of {name}; {record.written_until} was the last to do so"
        )


def _version(record: RecordType, data: Any, number: Release) -> int:
    expires = isinstance(data, dict) and data.get("expireTimestamp", _NO_TIME) != _NO_TIME
    if record.with_expiry_version is not None and expires:
        return record.with_expiry_version
    written = [version for since, version in record.written_versions if number >= _threshold(since)]
    return written[-1] if written else record.value.versions.last


def _layout(record: RecordType, number: Release) -> Shape:
    """Return the layout of a release: the first older layout that it still wrote, else the current one."""
    older = zip(record.older_values, record.older_releases, strict=True)
    return next((shape for shape, release in older if number[:3] <= _threshold(release)[:3]), record.value)


def _project(data: Any, fields: tuple[Field, ...], version: int, number: Release) -> Any:
    """Keep the fields of a version and release. A missing field gets its default, if it has one."""
    if not isinstance(data, dict):
        return data
    result: JsonObject = {}
    for field in fields:
        if version not in field.versions or (field.since and number < _threshold(field.since)):
            continue
        if field.name in data:
            result[field.name] = _project_cell(data[field.name], field, version, number)
        elif field.tag is None and (field.default is not None or version in field.nullable):
            result[field.name] = field.default
    return result


def _project_cell(cell: Any, field: Field, version: int, number: Release) -> Any:
    if not field.fields:
        return cell
    if isinstance(cell, list):
        return [_project(item, field.fields, version, number) for item in cell]
    return _project(cell, field.fields, version, number)


def _completed_group(key: Any, data: Any) -> Any:
    """Complete a classic group as the coordinator does before it writes. Raises DecodeError with Kafka's messages."""
    if not isinstance(data, dict) or not isinstance(data.get("members"), list) or not data["members"]:
        return data
    if data.get("protocol") is None:
        raise DecodeError("Attempted to write non-empty group metadata with no defined protocol.")
    members = [dict(member) for member in data["members"]]
    for member in members:
        if member.get("assignment") is None:
            group = key.get("group") if isinstance(key, dict) else None
            raise DecodeError(
                f"Attempted to write member {member.get('memberId')} of group {group} with no assignment."
            )
        # Version 0 has no rebalance timeout; the coordinator uses the session timeout instead.
        member.setdefault("rebalanceTimeout", member.get("sessionTimeout"))
    return {**data, "members": members}


def jackson(value: object) -> str:
    r"""Print JSON as Kafka's Jackson does: compact, bytes as base64, control characters as `\u001F`."""
    printed = _JACKSON.encode(value)
    return _ESCAPE.sub(_upper_hex, printed) if "\\u00" in printed else printed


def _base64(data: object) -> str:
    if isinstance(data, bytes):
        return b64encode(data).decode("ascii")
    raise TypeError(f"{type(data).__name__} is not a type of Kafka's JSON")


def _upper_hex(match: re.Match[str]) -> str:
    escape = match.group()
    return "\\u" + escape[2:].upper() if escape.startswith("\\u") else escape


_JACKSON = JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, default=_base64)
