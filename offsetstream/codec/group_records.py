"""Decode records other than offset commits into JSON texts: key, value, and value with embedded bytes decoded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from offsetstream.codec import records
from offsetstream.codec.connect_protocol import decode_connect_assignment, decode_connect_subscription
from offsetstream.codec.consumer_protocol import decode_assignment, decode_subscription
from offsetstream.codec.readers import JsonObject
from offsetstream.codec.text import jackson
from offsetstream.codec.wire import DecodeError

_Decoder: TypeAlias = Callable[[bytes], JsonObject]

_GROUP_METADATA, _CONSUMER_MEMBER = 2, 5
_BY_PROTOCOL_TYPE: dict[str, tuple[_Decoder, _Decoder]] = {
    "consumer": (decode_subscription, decode_assignment),
    "connect": (decode_connect_subscription, decode_connect_assignment),
}
_MAX_CACHED_BYTES = 1024
JSON_COLUMNS = ("key_json", "value_json", "value_decoded_json")


@dataclass
class GroupRecords:
    """The JSON texts of records, in their order, and the reasons of those that could not be decoded."""

    key_json: list[str | None] = field(default_factory=list)
    value_json: list[str | None] = field(default_factory=list)
    value_decoded_json: list[str | None] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    bad_keys: list[int] = field(default_factory=list)


def decode_group_records(keys: Sequence[bytes], values: Sequence[bytes | None]) -> GroupRecords:
    """Decode records one by one. `reasons` and `bad_keys` number the records from 0."""
    result = GroupRecords()
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        texts: tuple[str | None, ...] = (None, None, None)
        try:
            key_type, key_data = records.decode_key(key)
        except DecodeError as reason:
            result.bad_keys.append(index)
            result.reasons[index] = str(reason)
        else:
            try:
                texts = (jackson({"type": key_type, "data": key_data}), *_value_texts(key_type, value))
            except DecodeError as reason:
                result.reasons[index] = str(reason)
        result.key_json.append(texts[0])
        result.value_json.append(texts[1])
        result.value_decoded_json.append(texts[2])
    return result


def _value_texts(key_type: int, value: bytes | None) -> tuple[str | None, str | None]:
    if value is None:
        return None, None
    version, data = records.decode_value(key_type, value)
    text = jackson({"version": version, "data": data})
    decoded = with_embedded_decoded(key_type, data)
    return text, text if decoded is data else jackson({"version": version, "data": decoded})


def with_embedded_decoded(key_type: int, data: JsonObject) -> JsonObject:
    """Return the value with its embedded bytes decoded; the same object if it has none of a known format.

    Embedded bytes are in the members of a GroupMetadataValue, in the format of its protocol type, and in the classic
    protocols of a ConsumerGroupMemberMetadataValue. Bytes that cannot be decoded stay bytes.
    """
    if key_type == _GROUP_METADATA and data["members"] and data["protocolType"] in _BY_PROTOCOL_TYPE:
        subscription, assignment = _BY_PROTOCOL_TYPE[data["protocolType"]]
        decoders = {"subscription": subscription, "assignment": assignment}
        return {**data, "members": [_with_decoded_fields(member, decoders) for member in data["members"]]}
    if key_type == _CONSUMER_MEMBER and data.get("classicMemberMetadata"):
        classic = data["classicMemberMetadata"]
        protocols = [
            _with_decoded_fields(protocol, {"metadata": decode_subscription})
            for protocol in classic["supportedProtocols"]
        ]
        return {**data, "classicMemberMetadata": {**classic, "supportedProtocols": protocols}}
    return data


def _with_decoded_fields(document: JsonObject, decoders: dict[str, _Decoder]) -> JsonObject:
    return {**document, **{name: _decode_embedded(decoder, document[name]) for name, decoder in decoders.items()}}


def _decode_embedded(decoder: _Decoder, data: bytes) -> Any:
    return _decode_cached(decoder, data) if len(data) <= _MAX_CACHED_BYTES else _decode_or_keep(decoder, data)


def _decode_or_keep(decoder: _Decoder, data: bytes) -> Any:
    try:
        return decoder(data)
    except DecodeError:
        return data


# Most members of a group send the same bytes as others, and as in the group's earlier records.
_decode_cached = lru_cache(maxsize=4096)(_decode_or_keep)
