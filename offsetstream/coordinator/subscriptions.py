"""The subscription rows of members: topics by name, by a resolved regular expression, or by a streams topology."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from offsetstream.codec.consumer_protocol import decode_subscription
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.rows import Row, subscription_row

_CONSUMER = "consumer"
_REGEX, _TOPOLOGY = 16, 23  # the records that say what a regular expression or a topology means


def classic_subscriptions(group_id: str, cell: Cell, members: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the rows of a classic group's members; none where a subscription is not of the consumer protocol."""
    if cell.value["protocolType"] != _CONSUMER:
        return []
    return [
        _row(cell, group_id, member["memberId"], topic, "name")
        for member in members
        for topic in dict.fromkeys(_topics(base64.b64decode(member["subscription"])))
    ]


def modern_subscriptions(group_id: str, cells: Sequence[Cell], metadata: Mapping[str, Cell]) -> list[Row]:
    """Return the rows of a consumer, share or streams group; `metadata` has its members' metadata records.

    A topic that a member subscribes to twice is one row: that by name. Reference 1.4 (records 5, 16), 1.5, 1.6.
    """
    resolved = {cell.key["regularExpression"]: cell for cell in cells if cell.key_type == _REGEX}
    topology = next((cell for cell in cells if cell.key_type == _TOPOLOGY), None)
    return [row for member, cell in metadata.items() for row in _of_member(group_id, member, cell, resolved, topology)]


def _of_member(
    group_id: str, member_id: str, cell: Cell, resolved: Mapping[str, Cell], topology: Cell | None
) -> Iterator[Row]:
    found: dict[str, tuple[Cell, str]] = {}
    if topology is not None:
        found |= dict.fromkeys(_source_topics(topology), (topology, "topology"))
    expression = resolved.get(cell.value.get("subscribedTopicRegex") or "")
    if expression is not None:
        found |= dict.fromkeys(expression.value["topics"], (expression, "regex"))
    found |= dict.fromkeys(cell.value.get("subscribedTopicNames", ()), (cell, "name"))
    for topic, (record, subscribed_by) in sorted(found.items()):
        yield _row(record, group_id, member_id, topic, subscribed_by)


def _source_topics(topology: Cell) -> Iterator[str]:
    for subtopology in topology.value["subtopologies"] or ():
        yield from subtopology["sourceTopics"]
        yield from (topic["name"] for topic in subtopology["repartitionSourceTopics"])


def _topics(subscription: bytes) -> list[str]:
    try:
        topics: list[str] = decode_subscription(subscription)["topics"]
    except DecodeError:  # empty bytes are ordinary (reference 5.10)
        return []
    return topics


def _row(record: Cell, group_id: str, member_id: str, topic: str, subscribed_by: str) -> Row:
    return subscription_row(record, group_id=group_id, member_id=member_id, topic=topic, subscribed_by=subscribed_by)
