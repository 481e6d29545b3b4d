"""A plan is carried out: its groups one after the other, each only while it is what the plan was made for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from offsetstream.cluster.committed import Place, with_offsets
from offsetstream.cluster.group_admin import NOT_FOUND, GroupAdmin
from offsetstream.errors import OffsetstreamError
from offsetstream.operations.journal import Journal
from offsetstream.operations.plan import Change, Plan
from offsetstream.operations.snapshot import Snapshot, write_snapshot

NOT_DONE, CHANGED = "not done", "the group changed since the plan was made"


@dataclass
class Result:
    """What became of a plan: each change's error (None: done; absent: never asked for), and what ended it early."""

    snapshot: Path
    errors: dict[tuple[str, Place], str | None] = field(default_factory=dict)
    groups: dict[str, str | None] = field(default_factory=dict)  # those that were to be deleted
    ended_by: OffsetstreamError | None = None
    unrecorded: OffsetstreamError | None = None  # why the table of operations does not say how it ended

    def error_of(self, change: Change) -> str | None:
        """Return why a change was not made, None where it was."""
        if change.group_id in self.groups:
            return self.groups[change.group_id]
        return self.errors.get((change.group_id, change.place), NOT_DONE)

    def status(self, plan: Plan) -> str:
        """Return how the operation ended, as the table of operations has it."""
        if self.ended_by is not None:
            return "ended"
        told = [self.error_of(each) for each in plan.changes] + [self.groups.get(each) for each in plan.deleted_groups]
        failed = sum(each is not None for each in told)
        return "done" if not failed else "failed" if failed == len(told) else "partial"


def execute(admin: GroupAdmin, plan: Plan, folder: Path, journal: Journal, tick: Callable[[str], None]) -> Result:
    """Carry out a plan: snapshot first, then a row of the operation, then its groups; `tick` hears of each.

    An answer that does not come ends it, and is in the result: what became of that group is then not known, and undoing
    finds out. Raises UsageError or TablesError where snapshot or row cannot be written: then nothing was done.
    """
    snapshot = Snapshot.of_plan(plan, journal.operation_id, journal.cluster_id)
    result = Result(write_snapshot(folder, snapshot))
    journal.started(plan, str(result.snapshot))
    try:
        by_group = plan.by_group()
        for group_id in plan.group_ids:
            tick(group_id)
            _one_group(admin, plan, group_id, by_group.get(group_id, []), result)
    except OffsetstreamError as error:
        result.ended_by = error
    refused = [
        {"group": each.group_id, "topic": each.topic, "partition": each.partition, "error": result.error_of(each)}
        for each in plan.changes
        if result.error_of(each)
    ]
    why = str(result.ended_by) if result.ended_by else None
    try:
        journal.ended(plan, str(result.snapshot), result.status(plan), {"refused": refused, "ended_by": why})
    except OffsetstreamError as error:  # what was done is told all the same
        result.unrecorded = error
    return result


def _one_group(admin: GroupAdmin, plan: Plan, group_id: str, changes: Collection[Change], result: Result) -> None:
    places = {(group_id, each.place): each for each in changes}
    if not _is_as_planned(admin, plan, group_id, changes):
        result.errors |= dict.fromkeys(places, CHANGED)
        if group_id in plan.deleted_groups:
            result.groups[group_id] = CHANGED
        return
    if group_id in plan.deleted_groups:
        error = admin.delete_group(group_id)
        result.groups[group_id] = None if error == NOT_FOUND else error  # the answer to a first try may be lost
        return
    commits = {each.place: each.new for each in changes if each.new is not None}
    deleted = [each.place for each in changes if each.new is None]
    told: dict[Place, str | None] = admin.commit(group_id, commits) if commits else {}
    told |= admin.delete_offsets(group_id, deleted) if deleted else {}
    result.errors |= {(group_id, place): error for place, error in told.items()}


def _is_as_planned(admin: GroupAdmin, plan: Plan, group_id: str, changes: Collection[Change]) -> bool:
    """Whether the group is as inactive, and its offsets are those, that the plan was made for."""
    committed = with_offsets(admin.offsets(group_id))
    same = all(committed.get(each.place) == each.present for each in changes)
    if plan.kind == "delete-offsets":  # of a topic that its members, if it has any, do not read: the coordinator sees
        return same
    if group_id in plan.deleted_groups and len(committed) != len(changes):
        return False
    return same and admin.standing(group_id).state in {"Empty", "Dead"}
