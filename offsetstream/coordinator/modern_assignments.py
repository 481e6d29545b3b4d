"""The assignment rows of consumer, share and streams groups: topics by id, streams tasks by subtopology.

A broker puts the entries into a map: of a topic or subtopology named twice, the last entry stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.rows import Assignments, Partitions, Place, Share, assignments_of

Entries = list[dict[str, Any]]  # {topicId or subtopologyId, partitions, assignmentEpochs?}
Names = Mapping[str, str]  # of topic ids; one without a name stands for itself

_TASKS = {"activeTasks": "active", "standbyTasks": "standby", "warmupTasks": "warmup"}
_SHARE_CURRENT = 14


def current_partitions(group_id: str, member_id: str, cell: Cell, names: Names) -> Assignments:
    """Return what a member has and is to give up: a record of type 8, or of type 14 (no epochs)."""
    epoch = None if cell.key_type == _SHARE_CURRENT else max(cell.value["memberEpoch"], 0)
    fields = {"assignedPartitions": "assigned", "partitionsPendingRevocation": "pending_revocation"}
    shares = (_partitions(kind, cell.value.get(name, []), epoch, names) for name, kind in fields.items())
    return assignments_of(cell, group_id, member_id, chain.from_iterable(shares))


def target_partitions(group_id: str, member_id: str, cell: Cell, names: Names) -> Assignments:
    """Return what a member is to have: a record of type 7 or 13."""
    shares = _partitions("target", cell.value["topicPartitions"], None, names)
    return assignments_of(cell, group_id, member_id, shares)


def current_tasks(group_id: str, member_id: str, cell: Cell, _names: Names) -> Assignments:
    """Return a streams member's tasks, by their role, and those it is to give up: a record of type 22."""
    fields = _TASKS | {f"{name}PendingRevocation": "pending_revocation" for name in _TASKS}
    shares = (
        _tasks(kind, cell.value[name], cell.value["memberEpoch"] if name.startswith("active") else None)
        for name, kind in fields.items()
    )
    return assignments_of(cell, group_id, member_id, chain.from_iterable(shares))


def target_tasks(group_id: str, member_id: str, cell: Cell, _names: Names) -> Assignments:
    """Return the tasks that a streams member is to have, whatever their role: a record of type 21."""
    shares = (_tasks("target", cell.value[name], None) for name in _TASKS)
    return assignments_of(cell, group_id, member_id, chain.from_iterable(shares))


def _partitions(kind: str, entries: Entries, epoch: int | None, names: Names) -> Iterator[tuple[Place, Share]]:
    for topic_id, partitions in _shares("topicId", entries, epoch):
        yield (kind, None, topic_id, None), (names.get(topic_id, topic_id), partitions)


def _tasks(kind: str, entries: Entries, epoch: int | None) -> Iterator[tuple[Place, Share]]:
    for subtopology_id, partitions in _shares("subtopologyId", entries, epoch):
        yield (kind, subtopology_id, None, None), (None, partitions)


def _shares(name: str, entries: Entries, epoch: int | None) -> Iterator[tuple[str, Partitions]]:
    for entry in {entry[name]: entry for entry in entries}.values():
        partitions = entry["partitions"]
        epochs = (entry.get("assignmentEpochs") or []) if epoch is not None else []
        if len(epochs) != len(partitions):  # none, or not one for each: the member's epoch stands for all
            epochs = [epoch] * len(partitions)
        yield entry[name], dict(zip(partitions, epochs, strict=True))
