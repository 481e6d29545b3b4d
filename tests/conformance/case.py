"""A conformance case: a log, and the coordinator's expected state after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from offsetstream.codec.batches import RecordBatch
from offsetstream.coordinator.partitioning import Coordinator

BOTH: tuple[Coordinator, ...] = ("classic", "new")
CLASSIC: tuple[Coordinator, ...] = ("classic",)
NEW: tuple[Coordinator, ...] = ("new",)


@dataclass(frozen=True)
class Case:
    """`groups` are exactly the expected groups, each with at least the given fields of the snapshot.

    `offsets` are exactly the committed offsets, by (group, topic, partition). `fails` says that a broker's load
    fails. `name` is the name of Kafka's own test in `kafka_class`, or of the case in reference 9.6.
    """

    kafka_class: str
    name: str
    coordinators: tuple[Coordinator, ...]
    batches: tuple[RecordBatch, ...]
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    offsets: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    fails: bool = False

    def differences(self, snapshot: Mapping[str, Any]) -> dict[str, Any]:
        """Return how a snapshot (GroupMetadataCache.snapshot) differs; empty if it is as expected."""
        groups = {group["group_id"]: group for group in snapshot["groups"]}
        found: dict[str, Any] = {}
        if groups.keys() != self.groups.keys() or len(groups) != len(snapshot["groups"]):
            found["groups"] = sorted(group["group_id"] for group in snapshot["groups"])
        for group_id, expected in self.groups.items():
            got = {name: groups.get(group_id, {}).get(name) for name in expected}
            if got != expected:
                found[group_id] = got
        offsets = {(row["group_id"], row["topic"], row["partition"]): row["offset"] for row in snapshot["offsets"]}
        if offsets != self.offsets:
            found["offsets"] = offsets
        return found
