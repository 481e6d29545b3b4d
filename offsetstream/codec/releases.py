"""Encode a record as a given broker release writes it (reference 6.1, 6.2)."""

import re
from typing import Any, TypeAlias

from offsetstream.codec.encode import CURRENT, encode_key, encode_layout, open_document
from offsetstream.codec.readers import JsonObject
from offsetstream.codec.record_layouts import Field, RecordType
from offsetstream.codec.records import known_type
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import UsageError

FIRST_RELEASE, LAST_RELEASE = "0.8.2", "4.4"
_LEGACY_COMMIT, _COMMIT, _GROUP = 0, 1, 2
_NO_TIME = -1
_LATEST = 1 << 30
_PATTERN = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)?(?:-IV(\d+))?")

Release: TypeAlias = tuple[int, int, int, int]


def parse_release(text: str) -> Release:
    """Parse an `inter.broker.protocol.version`, `0.8.2` to `4.4`. Without `-IVn`, it means the last IV of the release.

    Raises UsageError for anything else.
    """
    release = _parse(text, _LATEST)
    if release is None or not _parse(FIRST_RELEASE, 0) <= release <= _parse(LAST_RELEASE, _LATEST):  # type: ignore[operator]
        raise UsageError(
            f"{text!r} is not a release from {FIRST_RELEASE} to {LAST_RELEASE}: write 0.10.1, 2.1-IV0 or 4.3"
        )
    return release


def _parse(text: str, default_iv: int) -> Release | None:
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    major, minor, patch, iv = (None if part is None else int(part) for part in match.groups())
    assert major is not None and minor is not None  # noqa: S101 - the pattern has them
    # Protocol versions have three numbers up to 0.11.0, and two from 1.0 on.
    return major, minor, (patch or 0) if major == 0 else 0, default_iv if iv is None else iv


def _threshold(text: str) -> Release:
    release = _parse(text, -1)
    if release is None:
        raise ValueError(f"{text!r} in the schema files is not a release")
    return release


def encode_as_release(key: Any, value: Any, release: str) -> tuple[bytes, bytes | None]:
    """Encode a record as a broker of `release` writes it, whatever version `key` and `value` have.

    Fields that the release does not have are dropped. Fields that it adds get Kafka's defaults. Raises UsageError for
    an unknown release, DecodeError for a record that the release never wrote or refuses to write.
    """
    number = parse_release(release)
    key_type, key_data = open_document(key, "key", "type")
    if key_type in (_LEGACY_COMMIT, _COMMIT):
        key_type = _COMMIT if number >= _threshold(known_type(_COMMIT).written_since) else _LEGACY_COMMIT
    record = known_type(key_type)
    _check_written(record, value is None, number, release)
    key_bytes = encode_key({"type": key_type, "data": key_data})
    if value is None:
        return key_bytes, None
    _, data = open_document(value, "value", "version")
    if key_type == _GROUP:
        data = _completed_group(key_data, data)
    version, older = _version(record, data, number), _layout(record, number)
    shape = record.value if older == CURRENT else record.older_values[older]
    return key_bytes, encode_layout(key_type, version, older, _project(data, shape.fields, version, number))


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


def _layout(record: RecordType, number: Release) -> int:
    """Return the layout of a release: the first older layout that it still wrote, else the current one."""
    older = [n for n, release in enumerate(record.older_releases) if number[:3] <= _threshold(release)[:3]]
    return older[0] if older else CURRENT


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
