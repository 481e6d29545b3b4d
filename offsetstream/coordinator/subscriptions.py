"""The subscription rows of members: topics by name, by a resolved regular expression, or by a streams topology."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

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
        for topic in _topics(member["subscription"])
    ]


@dataclass(frozen=True)
class Meanings:
    """The records of a group that say what its members subscribe to beside topics by name (reference 1.4 to 1.6)."""

    expressions: Mapping[str, Cell]
    topology: Cell | None

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> Self:
        """Find them among the records of a consumer, share or streams group."""
        found = [cell for cell in cells if cell.key_type in (_REGEX, _TOPOLOGY)]
        expressions = {cell.key["regularExpression"]: cell for cell in found if cell.key_type == _REGEX}
        return cls(expressions, next((cell for cell in found if cell.key_type == _TOPOLOGY), None))

    def expression_of(self, metadata: Cell | None) -> Cell | None:
        """Return the record that resolves the regular expression of a member, by the member's metadata record."""
        return None if metadata is None else self.expressions.get(metadata.value.get("subscribedTopicRegex") or "")


def modern_subscriptions(group_id: str, member_id: str, metadata: Cell, meanings: Meanings) -> list[Row]:
    """Return the rows of a member of a consumer, share or streams group.

    A topic that it subscribes to twice is one row: that by name.
    """
    found: dict[str, tuple[Cell, str]] = {}
    if meanings.topology is not None:
        found |= dict.fromkeys(_source_topics(meanings.topology), (meanings.topology, "topology"))
    expression = meanings.expression_of(metadata)
    if expression is not None:
        found |= dict.fromkeys(expression.value["topics"], (expression, "regex"))
    found |= dict.fromkeys(metadata.value.get("subscribedTopicNames", ()), (metadata, "name"))
    return [
        _row(record, group_id, member_id, topic, subscribed_by)
        for topic, (record, subscribed_by) in sorted(found.items())
    ]


def _source_topics(topology: Cell) -> Iterator[str]:
    for subtopology in topology.value["subtopologies"] or ():
        yield from subtopology["sourceTopics"]
        yield from (topic["name"] for topic in subtopology["repartitionSourceTopics"])


@lru_cache(maxsize=64)  # few, as each may have a megabyte: the members of most groups say the same, again and again
def _topics(subscription: str) -> tuple[str, ...]:
    """Return the topics that a subscription in base64 names, each once."""
    try:
        decoded = decode_subscription(base64.b64decode(subscription))
    except DecodeError:  # empty bytes are ordinary (reference 5.10)
        return ()
    return tuple(dict.fromkeys(decoded["topics"]))


def _row(record: Cell, group_id: str, member_id: str, topic: str, subscribed_by: str) -> Row:
    return subscription_row(record, group_id=group_id, member_id=member_id, topic=topic, subscribed_by=subscribed_by)
