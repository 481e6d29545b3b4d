"""Print records as the message formatters of Kafka's console consumer do (reference 8.1, 8.2)."""

from collections.abc import Set as AbstractSet

from offsetstream.codec import wire
from offsetstream.codec.lines import decode_pair
from offsetstream.codec.record_layouts import record_types
from offsetstream.codec.records import decode_key, jackson
from offsetstream.codec.serde import JsonObject
from offsetstream.codec.wire import DecodeError
from offsetstream.java_hash import java_hash

OFFSETS_FORMATTER = frozenset({0, 1})
GROUP_METADATA_FORMATTER = frozenset({2})
SHARE_GROUP_FORMATTER = frozenset(range(10, 16))
BOTH_FORMATTERS = OFFSETS_FORMATTER | GROUP_METADATA_FORMATTER
_NONE = -1
_FIRST_TABLE = 16  # of Scala's HashMap
_LOAD_FACTOR = 0.75


def kafka_json(key: bytes | None, value: bytes | None, types: AbstractSet[int] = BOTH_FORMATTERS) -> str | None:
    """Print a record as the Kafka 4.x formatters of the key types in `types` do: JSON without a newline.

    Returns None for records that they skip: a null key, an unknown key type, or one that is not in `types`. Raises
    DecodeError where the formatters of 4.1 and later stop. They also stop at a broken record of another known type,
    because they decode it before they skip it.
    """
    if key is None or _key_type(key) not in record_types():
        return None
    document, content = decode_pair(key, value)
    return jackson({"key": document, "value": content}) if document["type"] in types else None


def kafka_text(key: bytes | None, value: bytes | None, types: AbstractSet[int] = BOTH_FORMATTERS) -> str | None:
    """Print a record as the formatters of Kafka 2.1 to 3.9 do: one line with its newline, without escapes.

    Returns None for records that they skip: a null key, or a key type that is not in `types`. Raises DecodeError where
    they stop, also at a broken key of the other formatter.
    """
    if key is None or _key_type(key) not in BOTH_FORMATTERS or decode_key(key)[0] not in types:
        return None
    document, content = decode_pair(key, value)
    data, group = document["data"], document["data"]["group"]
    if document["type"] in GROUP_METADATA_FORMATTER:
        return f"{group}::{'NULL' if content is None else _group_text(group, content)}\n"
    return f"[{group},{data['topic']},{data['partition']}]::{'NULL' if content is None else _offset_text(content)}\n"


def _key_type(key: bytes) -> int:
    try:
        return wire.read_int16(key, 0)[0]
    except DecodeError:
        raise DecodeError("truncated key") from None


def _offset_text(content: JsonObject) -> str:
    data = content["data"]
    epoch, expiry = data.get("leaderEpoch", _NONE), data.get("expireTimestamp", _NONE)
    epoch_text = "Optional.empty" if epoch == _NONE else f"Optional[{epoch}]"
    return (
        f"OffsetAndMetadata(offset={data['offset']}, leaderEpoch={epoch_text}, metadata={data['metadata']}, "
        f"commitTimestamp={data['commitTimestamp']}, expireTimestamp={_option(None if expiry == _NONE else expiry)})"
    )


def _group_text(group: str, content: JsonObject) -> str:
    """Print the group as the 3.9 coordinator builds it from the record."""
    data = content["data"]
    _check_static_members(group, data["members"])
    members = {member["memberId"]: _member_text(member, data["protocol"]) for member in data["members"]}
    printed = ", ".join(f"{member_id} -> {members[member_id]}" for member_id in in_hash_map_order(list(members)))
    protocol_type = data["protocolType"] if members else data["protocolType"] or None
    state = "Stable" if members else "Empty"
    return (
        f"GroupMetadata(groupId={group}, generation={data['generation']}, protocolType={_option(protocol_type)}, "
        f"currentState={state}, members=HashMap({printed}))"
    )


def _check_static_members(group: str, members: list[JsonObject]) -> None:
    instances = [member["groupInstanceId"] for member in members if member.get("groupInstanceId") is not None]
    for instance in {instance for instance in instances if instances.count(instance) > 1}:
        raise DecodeError(f"two members of group {group} have the group instance id {instance}")


def _member_text(member: JsonObject, protocol: str | None) -> str:
    session = member["sessionTimeout"]
    return (
        f"MemberMetadata(memberId={member['memberId']}, groupInstanceId={_option(member.get('groupInstanceId'))}, "
        f"clientId={member['clientId']}, clientHost={member['clientHost']}, sessionTimeoutMs={session}, "
        f"rebalanceTimeoutMs={member.get('rebalanceTimeout', session)}, "
        f"supportedProtocols=List({'null' if protocol is None else protocol}))"
    )


def _option(value: object) -> str:
    """Print an Option: `Some(x)` or `None`."""
    return "None" if value is None else f"Some({value})"


def in_hash_map_order(keys: list[str]) -> list[str]:
    """Return distinct strings in the order in which Scala 2.13's mutable HashMap prints them as keys."""
    size = _FIRST_TABLE
    while len(keys) >= int(size * _LOAD_FACTOR):
        size *= 2
    hashes = {key: _spread(java_hash(key)) for key in keys}
    return sorted(keys, key=lambda key: (hashes[key] & (size - 1), hashes[key]))


def _spread(value: int) -> int:
    mixed = (value ^ (value & 0xFFFFFFFF) >> 16) & 0xFFFFFFFF
    return mixed - (1 << 32) if mixed >= 1 << 31 else mixed
