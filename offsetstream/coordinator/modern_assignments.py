"""The assignment rows of consumer, share and streams groups: topics by id, streams tasks by subtopology.

A broker puts the entries into a map: of a topic or subtopology named twice, the last entry stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.rows import Row, Share, assignment_rows

Entries = list[dict[str, Any]]  # {topicId or subtopologyId, partitions, assignmentEpochs?}

_TASKS = {"activeTasks": "active", "standbyTasks": "standby", "warmupTasks": "warmup"}
_SHARE_CURRENT = 14


def current_partitions(group_id: str, member_id: str, cell: Cell) -> list[Row]:
    """Return what a member has and is to give up: a record of type 8, or of type 14 (no epochs)."""
    epoch = None if cell.key_type == _SHARE_CURRENT else max(cell.value["memberEpoch"], 0)
    fields = {"assignedPartitions": "assigned", "partitionsPendingRevocation": "pending_revocation"}
    shares = (_partitions(kind, cell.value.get(name, []), epoch) for name, kind in fields.items())
    return assignment_rows(cell, group_id, member_id, chain.from_iterable(shares))


def target_partitions(group_id: str, member_id: str, cell: Cell) -> list[Row]:
    """Return what a member is to have: a record of type 7 or 13."""
    return assignment_rows(cell, group_id, member_id, _partitions("target", cell.value["topicPartitions"], None))


def current_tasks(group_id: str, member_id: str, cell: Cell) -> list[Row]:
    """Return a streams member's tasks, by their role, and those it is to give up: a record of type 22."""
    fields = _TASKS | {f"{name}PendingRevocation": "pending_revocation" for name in _TASKS}
    shares = (
        _tasks(kind, cell.value[name], cell.value["memberEpoch"] if name.startswith("active") else None)
        for name, kind in fields.items()
    )
    return assignment_rows(cell, group_id, member_id, chain.from_iterable(shares))


def target_tasks(group_id: str, member_id: str, cell: Cell) -> list[Row]:
    """Return the tasks that a streams member is to have, whatever their role: a record of type 21."""
    shares = (_tasks("target", cell.value[name], None) for name in _TASKS)
    return assignment_rows(cell, group_id, member_id, chain.from_iterable(shares))


def _partitions(kind: str, entries: Entries, epoch: int | None) -> Iterator[Share]:
    for topic_id, partition, assigned_at in _shares("topicId", entries, epoch):
        yield (kind, None, topic_id, None, partition), assigned_at


def _tasks(kind: str, entries: Entries, epoch: int | None) -> Iterator[Share]:
    for subtopology_id, partition, assigned_at in _shares("subtopologyId", entries, epoch):
        yield (kind, subtopology_id, None, None, partition), assigned_at


def _shares(name: str, entries: Entries, epoch: int | None) -> Iterator[tuple[str, int, int | None]]:
    for entry in {entry[name]: entry for entry in entries}.values():
        partitions = entry["partitions"]
        epochs = (entry.get("assignmentEpochs") or []) if epoch is not None else []
        if len(epochs) != len(partitions):  # none, or not one for each: the member's epoch stands for all
            epochs = [epoch] * len(partitions)
        for partition, assigned_at in zip(partitions, epochs, strict=True):
            yield entry[name], partition, assigned_at
