"""The assignment rows of consumer, share and streams groups: topics by id, streams tasks by subtopology.

A broker puts the entries into a map: of a topic or subtopology named twice, the last entry stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from offsetstream.coordinator.cells import Cell
from offsetstream.coordinator.rows import Row, assignment_row, distinct_assignments

Entries = list[dict[str, Any]]  # {topicId or subtopologyId, partitions, assignmentEpochs?}

_TASKS = {"activeTasks": "active", "standbyTasks": "standby", "warmupTasks": "warmup"}
_SHARE_CURRENT = 14


def current_partitions(group_id: str, member_id: str, cell: Cell) -> list[Row]:
    """Return what a member has and is to give up: a record of type 8, or of type 14 (no epochs)."""
    epoch = None if cell.key_type == _SHARE_CURRENT else max(cell.value["memberEpoch"], 0)
    fields = {"assignedPartitions": "assigned", "partitionsPendingRevocation": "pending_revocation"}
    return distinct_assignments(
        assignment_row(cell, group_id=group_id, member_id=member_id, kind=kind, **partition)
        for name, kind in fields.items()
        for partition in _partitions("topic_id", "topicId", cell.value.get(name, []), epoch)
    )


def target_partitions(group_id: str, member_id: str, cell: Cell) -> list[Row]:
    """Return what a member is to have: a record of type 7 or 13."""
    return distinct_assignments(
        assignment_row(cell, group_id=group_id, member_id=member_id, kind="target", **partition)
        for partition in _partitions("topic_id", "topicId", cell.value["topicPartitions"], None)
    )


def current_tasks(group_id: str, member_id: str, cell: Cell) -> list[Row]:
    """Return a streams member's tasks, by their role, and those it is to give up: a record of type 22."""
    fields = _TASKS | {f"{name}PendingRevocation": "pending_revocation" for name in _TASKS}
    return distinct_assignments(
        assignment_row(cell, group_id=group_id, member_id=member_id, kind=kind, **task)
        for name, kind in fields.items()
        for task in _tasks(cell.value[name], cell.value["memberEpoch"] if name.startswith("active") else None)
    )


def target_tasks(group_id: str, member_id: str, cell: Cell) -> list[Row]:
    """Return the tasks that a streams member is to have, whatever their role: a record of type 21."""
    return distinct_assignments(
        assignment_row(cell, group_id=group_id, member_id=member_id, kind="target", **task)
        for name in _TASKS
        for task in _tasks(cell.value[name], None)
    )


def _tasks(entries: Entries, epoch: int | None) -> Iterator[Row]:
    return _partitions("subtopology_id", "subtopologyId", entries, epoch)


def _partitions(column: str, name: str, entries: Entries, epoch: int | None) -> Iterator[Row]:
    for entry in {entry[name]: entry for entry in entries}.values():
        partitions = entry["partitions"]
        epochs = (entry.get("assignmentEpochs") or []) if epoch is not None else []
        if len(epochs) != len(partitions):  # none, or not one for each: the member's epoch stands for all
            epochs = [epoch] * len(partitions)
        for partition, assigned_at in zip(partitions, epochs, strict=True):
            yield {column: entry[name], "partition": partition, "assignment_epoch": assigned_at}
