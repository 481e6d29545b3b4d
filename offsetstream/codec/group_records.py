"""Records other than offset commits: Kafka's JSON of key and value, and the value with embedded bytes decoded."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from offsetstream.codec import records
from offsetstream.codec.consumer_protocol import with_embedded_decoded
from offsetstream.codec.text import jackson
from offsetstream.codec.wire import Malformed

JSON_COLUMNS = ("key_json", "value_json", "value_decoded_json")


@dataclass
class GroupRecords:
    """The JSON texts of some records, in their order, and what was wrong with which of them."""

    key_json: list[str | None] = field(default_factory=list)
    value_json: list[str | None] = field(default_factory=list)
    value_decoded_json: list[str | None] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    bad_keys: list[int] = field(default_factory=list)


def decode_group_records(keys: Sequence[bytes], values: Sequence[bytes | None]) -> GroupRecords:
    """Decode records one by one; `reasons` and `bad_keys` number them from 0."""
    result = GroupRecords()
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        texts: tuple[str | None, ...] = (None, None, None)
        try:
            key_type, key_data = records.decode_key(key)
        except Malformed as reason:
            result.bad_keys.append(index)
            result.reasons[index] = str(reason)
        else:
            try:
                texts = (jackson({"type": key_type, "data": key_data}), *_value_texts(key_type, value))
            except Malformed as reason:
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
    decoded: dict[str, Any] = with_embedded_decoded(key_type, data)
    return text, text if decoded is data else jackson({"version": version, "data": decoded})
