"""Derive the assignment rows of consumer, share and streams groups: topics by id, streams tasks by subtopology.

If a topic or subtopology is listed twice, the last entry counts: a broker puts the entries into a map.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.rows import AssignmentKey, Assignments, NamedPartitions, Partitions, assignments_of

Entries = list[dict[str, Any]]  # {topicId or subtopologyId, partitions, assignmentEpochs?}
Names = Mapping[str, str]  # topic id to topic name; an id without a name is used as the name

_TASKS = {"activeTasks": "active", "standbyTasks": "standby", "warmupTasks": "warmup"}
_SHARE_CURRENT = 14


def current_partitions(group_id: str, member_id: str, cell: Cell, names: Names) -> Assignments:
    """Return a member's current partitions and those pending revocation: a record of type 8, or 14 (no epochs)."""
    epoch = None if cell.key_type == _SHARE_CURRENT else max(cell.value["memberEpoch"], 0)
    fields = {"assignedPartitions": "assigned", "partitionsPendingRevocation": "pending_revocation"}
    found = (_partitions(kind, cell.value.get(name, []), epoch, names) for name, kind in fields.items())
    return assignments_of(cell, group_id, member_id, chain.from_iterable(found))


def target_partitions(group_id: str, member_id: str, cell: Cell, names: Names) -> Assignments:
    """Return a member's target partitions: a record of type 7 or 13."""
    found = _partitions("target", cell.value["topicPartitions"], None, names)
    return assignments_of(cell, group_id, member_id, found)


def current_tasks(group_id: str, member_id: str, cell: Cell, _names: Names) -> Assignments:
    """Return a streams member's current tasks by role, and those pending revocation: a record of type 22."""
    fields = _TASKS | {f"{name}PendingRevocation": "pending_revocation" for name in _TASKS}
    found = (
        _tasks(kind, cell.value[name], cell.value["memberEpoch"] if name.startswith("active") else None)
        for name, kind in fields.items()
    )
    return assignments_of(cell, group_id, member_id, chain.from_iterable(found))


def target_tasks(group_id: str, member_id: str, cell: Cell, _names: Names) -> Assignments:
    """Return a streams member's target tasks of all roles: a record of type 21."""
    found = (_tasks("target", cell.value[name], None) for name in _TASKS)
    return assignments_of(cell, group_id, member_id, chain.from_iterable(found))


def _partitions(
    kind: str, entries: Entries, epoch: int | None, names: Names
) -> Iterator[tuple[AssignmentKey, NamedPartitions]]:
    for topic_id, partitions in _partitions_by_id("topicId", entries, epoch):
        yield (kind, None, topic_id, None), (names.get(topic_id, topic_id), partitions)


def _tasks(kind: str, entries: Entries, epoch: int | None) -> Iterator[tuple[AssignmentKey, NamedPartitions]]:
    for subtopology_id, partitions in _partitions_by_id("subtopologyId", entries, epoch):
        yield (kind, subtopology_id, None, None), (None, partitions)


def _partitions_by_id(name: str, entries: Entries, epoch: int | None) -> Iterator[tuple[str, Partitions]]:
    for entry in {entry[name]: entry for entry in entries}.values():
        partitions = entry["partitions"]
        epochs = (entry.get("assignmentEpochs") or []) if epoch is not None else []
        if len(epochs) != len(partitions):  # no epochs, or not one per partition: the member's epoch applies to all
            epochs = [epoch] * len(partitions)
        yield entry[name], dict(zip(partitions, epochs, strict=True))
