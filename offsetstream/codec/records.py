"""Decode one record at a time by its layout, into the form of Kafka's JSON (see `readers`)."""

from functools import cache
from typing import Any

from offsetstream.codec import wire
from offsetstream.codec.readers import JsonObject, Reader, message_reader
from offsetstream.codec.record_layouts import RecordType, record_types
from offsetstream.codec.wire import DecodeError, reason_in_part


@cache
def _key_reader(key_type: int) -> Reader:
    return message_reader(record_types()[key_type].key, 0)


@cache
def _value_readers(key_type: int, version: int) -> tuple[Reader, tuple[Reader, ...]]:
    record = record_types()[key_type]
    older = tuple(message_reader(shape, version) for shape in record.older_values)
    return message_reader(record.value, version), older


def unsupported_version(key_type: int, version: int) -> str:
    """Return the reason for a value version that no release wrote under this key type."""
    return f"unsupported value version {version} of key type {key_type}"


def known_type(key_type: int) -> RecordType:
    """Return the record type of a key type. Raises DecodeError if it is unknown."""
    record = record_types().get(key_type)
    if record is None:
        raise DecodeError(f"unknown key type {key_type}")
    return record


def decode_key(key: bytes) -> tuple[int, JsonObject]:
    """Decode a key into its key type and fields. Raises DecodeError with the reason."""
    key_type, at = _read_part("key", wire.read_int16, key, 0)
    known_type(key_type)
    return key_type, _read_part("key", _key_reader(key_type), key, at)[0]


def decode_value(key_type: int, value: bytes) -> tuple[int, JsonObject]:
    """Decode the value of a known key type into its version and fields. Raises DecodeError with the reason.

    Whatever Kafka 4.3.1 reads is read the same way; trailing bytes are ignored. If Kafka 4.3.1 would reject the value,
    the layouts that older releases wrote under the same version are tried. One is used if it fits to the last byte.
    """
    version, at = _read_part("value", wire.read_int16, value, 0)
    if version not in known_type(key_type).value.versions:
        raise DecodeError(unsupported_version(key_type, version))
    reader, older = _value_readers(key_type, version)
    try:
        return version, _read_part("value", reader, value, at)[0]
    except DecodeError as reason:
        return version, _decode_older(older, value, at, reason)


def _read_part(part: str, reader: Reader, data: bytes, at: int) -> tuple[Any, int]:
    try:
        return reader(data, at)
    except DecodeError as reason:
        raise DecodeError(reason_in_part(str(reason), part)) from None


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
