"""Convert records as lines of JSON: what the commands `decode` and `encode` do with each line.

A raw line is `{"key": base64 | null, "value": base64 | null, …}`; other fields are copied in their place. `decode_line`
and `encode_line` do not raise for a line that they cannot use: they return it with an `error`.
"""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from offsetstream.codec.encode import encode_record
from offsetstream.codec.readers import JsonObject
from offsetstream.codec.records import decode_key, decode_value
from offsetstream.codec.releases import encode_as_release
from offsetstream.codec.text import jackson
from offsetstream.codec.wire import DecodeError


def decode_line(line: str) -> str:
    """Decode a raw line: key and value become what Kafka's JSON converters print. A tombstone's value is null.

    A record that cannot be decoded keeps its base64; the reason is in `error`, before the other fields.
    """
    return _converted(line, _decoded)


def encode_line(line: str, release: str | None = None) -> str:
    """Encode a line of `decode_line` back into a raw line. A line with an `error` gets its base64 back.

    With `release`, encode the record as a broker of that `inter.broker.protocol.version` writes it. Raises UsageError
    for an unknown release.
    """
    return _converted(line, lambda record: _encoded(record, release))


def parse_raw_line(line: str) -> tuple[bytes | None, bytes | None, JsonObject]:
    """Parse a raw line: return the bytes of key and value, and the JSON object. Raises DecodeError."""
    record = _parse(line)
    return _bytes(record, "key"), _bytes(record, "value"), record


def decode_pair(key: bytes | None, value: bytes | None) -> tuple[JsonObject, JsonObject | None]:
    """Decode a record into `{"type", "data"}` and `{"version", "data"}` (None for a tombstone). Raises DecodeError."""
    if key is None:
        raise DecodeError("null key")
    key_type, key_data = decode_key(key)
    document: JsonObject = {"type": key_type, "data": key_data}
    if value is None:
        return document, None
    version, data = decode_value(key_type, value)
    return document, {"version": version, "data": data}


def _converted(line: str, convert: Callable[[JsonObject], JsonObject]) -> str:
    record: JsonObject = {"line": line.rstrip("\r\n")}
    try:
        record = _parse(line)
        return jackson(convert(record))
    except DecodeError as reason:
        return jackson({"error": str(reason)} | {name: cell for name, cell in record.items() if name != "error"})


def _parse(line: str) -> JsonObject:
    try:
        record = json.loads(line, parse_float=_finite, parse_constant=_finite)
    except DecodeError:
        raise
    except ValueError:
        raise DecodeError("the line is not JSON") from None
    except RecursionError:
        raise DecodeError("the line is nested too deeply") from None
    if not isinstance(record, dict) or not {"key", "value"} <= record.keys():
        raise DecodeError('the line is not an object with "key" and "value"')
    return record


def _finite(number: str) -> float:
    """Return the number. Raises DecodeError for one that JSON cannot print again: 1e999, NaN, Infinity."""
    found = float(number)
    if not math.isfinite(found):
        raise DecodeError(f"the number {number} of the line is out of range")
    return found


def _bytes(record: JsonObject, name: str) -> bytes | None:
    text = record[name]
    if text is None:
        return None
    try:
        return b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise DecodeError(f"{name} is not base64") from None


def _decoded(record: JsonObject) -> JsonObject:
    key, value = decode_pair(_bytes(record, "key"), _bytes(record, "value"))
    return record | {"key": key, "value": value}


def _encoded(record: JsonObject, release: str | None) -> JsonObject:
    if "error" in record:  # decode_line kept the base64
        _bytes(record, "key"), _bytes(record, "value")
        return {name: cell for name, cell in record.items() if name != "error"}
    if release is None:
        key, value = encode_record(record["key"], record["value"])
    else:
        key, value = encode_as_release(record["key"], record["value"], release)
    return record | {"key": _base64(key), "value": _base64(value)}


def _base64(data: bytes | None) -> Any:
    return None if data is None else b64encode(data).decode("ascii")
