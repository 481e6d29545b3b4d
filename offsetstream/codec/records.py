"""Any record, one at a time, driven by its layout: bytes to the form of Kafka's JSON (see `readers`)."""

from functools import cache
from typing import Any

from offsetstream.codec import wire
from offsetstream.codec.readers import JsonObject, Reader, message_reader
from offsetstream.codec.record_layouts import RecordType, record_types
from offsetstream.codec.wire import DecodeError, placed


@cache
def _key_reader(key_type: int) -> Reader:
    return message_reader(record_types()[key_type].key, 0)


@cache
def _value_readers(key_type: int, version: int) -> tuple[Reader, tuple[Reader, ...]]:
    record = record_types()[key_type]
    older = tuple(message_reader(shape, version) for shape in record.older_values)
    return message_reader(record.value, version), older


def unsupported_version(key_type: int, version: int) -> str:
    """Return the reason for a value whose version no release wrote under this key type."""
    return f"unsupported value version {version} of key type {key_type}"


def known_type(key_type: int) -> RecordType:
    """Look up the record type of an id; raises DecodeError for an unknown one."""
    record = record_types().get(key_type)
    if record is None:
        raise DecodeError(f"unknown key type {key_type}")
    return record


def decode_key(key: bytes) -> tuple[int, JsonObject]:
    """Decode a record's key into its type and its fields; raises DecodeError with the reason."""
    key_type, at = _placing("key", wire.read_int16, key, 0)
    known_type(key_type)
    return key_type, _placing("key", _key_reader(key_type), key, at)[0]


def decode_value(key_type: int, value: bytes) -> tuple[int, JsonObject]:
    """Decode the value of a known key type into its version and its fields; raises DecodeError with the reason.

    What Kafka 4.3.1 reads is read as it reads it, trailing bytes and all. What it rejects is tried in the layouts
    that older releases wrote under the same version, and taken if one fits to the last byte.
    """
    version, at = _placing("value", wire.read_int16, value, 0)
    if version not in known_type(key_type).value.versions:
        raise DecodeError(unsupported_version(key_type, version))
    reader, older = _value_readers(key_type, version)
    try:
        return version, _placing("value", reader, value, at)[0]
    except DecodeError as reason:
        return version, _decode_older(older, value, at, reason)


def _placing(where: str, reader: Reader, data: bytes, at: int) -> tuple[Any, int]:
    try:
        return reader(data, at)
    except DecodeError as reason:
        raise DecodeError(placed(str(reason), where)) from None


def _decode_older(readers: tuple[Reader, ...], value: bytes, at: int, reason: DecodeError) -> JsonObject:
    for reader in readers:
        try:
            result, end = reader(value, at)
        except DecodeError:
            continue
        if end == len(value):
            found: JsonObject = result
            return found
    raise reason
