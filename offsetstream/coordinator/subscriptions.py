"""Derive members' subscription rows: topics by name, by a resolved regular expression, or by a streams topology."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from offsetstream.codec.embedded_protocols import decode_subscription
from offsetstream.codec.wire import DecodeError
from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.rows import Row, subscription_row

_CONSUMER = "consumer"
_REGEX, _TOPOLOGY = 16, 23  # the records with the topics of a regular expression or a topology


def classic_subscriptions(group_id: str, cell: Cell, members: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the rows of a classic group's members; none for a subscription that is not of the consumer protocol."""
    if cell.value["protocolType"] != _CONSUMER:
        return []
    return [
        _row(cell, group_id, member["memberId"], topic, "name")
        for member in members
        for topic in _topics(member["subscription"])
    ]


@dataclass(frozen=True)
class SubscriptionSources:
    """The records of a group that give its members more topics than those by name (reference 1.4 to 1.6)."""

    expressions: Mapping[str, Cell]
    topology: Cell | None

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> Self:
        """Find them among the records of a consumer, share or streams group."""
        found = [cell for cell in cells if cell.key_type in (_REGEX, _TOPOLOGY)]
        expressions = {cell.key["regularExpression"]: cell for cell in found if cell.key_type == _REGEX}
        return cls(expressions, next((cell for cell in found if cell.key_type == _TOPOLOGY), None))

    def regex_record(self, metadata: Cell | None) -> Cell | None:
        """Return the record that resolves a member's regular expression. `metadata` is the member's metadata record."""
        return None if metadata is None else self.expressions.get(metadata.value.get("subscribedTopicRegex") or "")


def modern_subscriptions(group_id: str, member_id: str, metadata: Cell, sources: SubscriptionSources) -> list[Row]:
    """Return the rows of a member of a consumer, share or streams group.

    A topic that a member subscribes to by name and in another way gives one row: the one by name.
    """
    found: dict[str, tuple[Cell, str]] = {}
    if sources.topology is not None:
        found |= dict.fromkeys(_source_topics(sources.topology), (sources.topology, "topology"))
    regex = sources.regex_record(metadata)
    if regex is not None:
        found |= dict.fromkeys(regex.value["topics"], (regex, "regex"))
    found |= dict.fromkeys(metadata.value.get("subscribedTopicNames", ()), (metadata, "name"))
    return [
        _row(record, group_id, member_id, topic, subscribed_by)
        for topic, (record, subscribed_by) in sorted(found.items())
    ]


def _source_topics(topology: Cell) -> Iterator[str]:
    for subtopology in topology.value["subtopologies"] or ():
        yield from subtopology["sourceTopics"]
        yield from (topic["name"] for topic in subtopology["repartitionSourceTopics"])


@lru_cache(maxsize=64)  # small, as an entry may have a megabyte; members of a group often repeat one subscription
def _topics(subscription: str) -> tuple[str, ...]:
    """Return the topics of a subscription in base64, each once."""
    try:
        decoded = decode_subscription(base64.b64decode(subscription))
    except DecodeError:  # empty bytes are normal (reference 5.10)
        return ()
    return tuple(dict.fromkeys(decoded["topics"]))


def _row(record: Cell, group_id: str, member_id: str, topic: str, subscribed_by: str) -> Row:
    return subscription_row(record, group_id=group_id, member_id=member_id, topic=topic, subscribed_by=subscribed_by)
