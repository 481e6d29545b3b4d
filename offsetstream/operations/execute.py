"""Execute a plan, group by group. Skip a group that has changed since the plan was made."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from offsetstream.cluster.answers import Place, with_offsets
from offsetstream.cluster.group_admin import NOT_FOUND, GroupAdmin
from offsetstream.errors import OffsetstreamError
from offsetstream.operations.journal import Journal
from offsetstream.operations.plan import CHANGED as CHANGED_GROUP
from offsetstream.operations.plan import Change, Objection, Plan
from offsetstream.operations.undo import Snapshot, write_snapshot

NOT_DONE, CHANGED = "not done", "the group changed since the plan was made"


@dataclass
class Result:
    """The result of a plan.

    `errors` has one entry for each attempted change (None: done). `ended_by` is the error that stopped the operation.
    """

    snapshot: Path
    errors: dict[tuple[str, Place], str | None] = field(default_factory=dict)
    groups: dict[str, str | None] = field(default_factory=dict)  # the error for each group to delete; None: deleted
    ended_by: OffsetstreamError | None = None
    journal_error: OffsetstreamError | None = None  # why the table `operations` lacks the result

    def error_of(self, change: Change) -> str | None:
        """Return why a change was not made, or None if it was made."""
        if change.group_id in self.groups:
            return self.groups[change.group_id]
        return self.errors.get((change.group_id, change.place), NOT_DONE)

    def status(self, plan: Plan) -> str:
        """Return the status for the table `operations`: done, partial, failed or ended."""
        if self.ended_by is not None:
            return "ended"
        errors = [self.error_of(each) for each in plan.changes] + [
            self.groups.get(each) for each in plan.deleted_groups
        ]
        failed = sum(each is not None for each in errors)
        return "done" if not failed else "failed" if failed == len(errors) else "partial"


def changed_since(admin: GroupAdmin, plan: Plan, tick: Callable[[str], None]) -> list[Objection]:
    """Return an objection for each group that is not as the plan says. Call it while the journal holds the groups.

    `tick` is called with each group's id.
    """
    by_group, objections = plan.by_group(), []
    for group_id in plan.group_ids:
        tick(group_id)
        if not _is_as_planned(admin, plan, group_id, by_group.get(group_id, [])):
            told = "it changed since the plan was made: run the command again without --execute to see a new plan"
            objections.append(Objection(CHANGED_GROUP, group_id, None, told))
    return objections


def execute(admin: GroupAdmin, plan: Plan, folder: Path, journal: Journal, tick: Callable[[str], None]) -> Result:
    """Execute a plan: write the snapshot, then a row of the table `operations`, then change each group.

    The journal must hold the groups. `tick` is called with each group's id. If the cluster stops answering, or another
    operation takes the groups over, this one ends, and `ended_by` of the result has the error. The state of the last
    group is then unknown; an undo handles both cases.
    Raises UsageError or TablesError if the snapshot or the row cannot be written; then nothing was changed.
    """
    snapshot = Snapshot.of_plan(plan, journal.operation_id, journal.cluster_id)
    result = Result(write_snapshot(folder, snapshot))
    journal.started(plan, str(result.snapshot))
    try:
        by_group = plan.by_group()
        for group_id in plan.group_ids:
            tick(group_id)
            journal.keep()
            _change_group(admin, plan, group_id, by_group.get(group_id, []), result)
    except OffsetstreamError as error:
        result.ended_by = error
    refused = [
        {"group": each.group_id, "topic": each.topic, "partition": each.partition, "error": result.error_of(each)}
        for each in plan.changes
        if result.error_of(each)
    ]
    ended_by = str(result.ended_by) if result.ended_by else None
    try:
        journal.ended(plan, str(result.snapshot), result.status(plan), {"refused": refused, "ended_by": ended_by})
    except OffsetstreamError as error:  # the caller still reports what was done
        result.journal_error = error
    return result


def _change_group(admin: GroupAdmin, plan: Plan, group_id: str, changes: Collection[Change], result: Result) -> None:
    places = {(group_id, each.place): each for each in changes}
    if not _is_as_planned(admin, plan, group_id, changes):
        result.errors |= dict.fromkeys(places, CHANGED)
        if group_id in plan.deleted_groups:
            result.groups[group_id] = CHANGED
        return
    if group_id in plan.deleted_groups:
        error = admin.delete_group(group_id)
        result.groups[group_id] = (
            None if error == NOT_FOUND else error
        )  # an earlier attempt deleted it, but its answer was lost
        return
    commits = {each.place: each.new for each in changes if each.new is not None}
    deleted = [each.place for each in changes if each.new is None]
    errors: dict[Place, str | None] = admin.commit(group_id, commits) if commits else {}
    errors |= admin.delete_offsets(group_id, deleted) if deleted else {}
    result.errors |= {(group_id, place): error for place, error in errors.items()}


def _is_as_planned(admin: GroupAdmin, plan: Plan, group_id: str, changes: Collection[Change]) -> bool:
    """Return whether the group is still inactive and its offsets are still those of the plan."""
    committed = with_offsets(admin.offsets(group_id))
    is_same = all(committed.get(each.place) == each.present for each in changes)
    if plan.kind == "delete-offsets":  # members are allowed here: the coordinator checks their subscriptions
        return is_same
    if group_id in plan.deleted_groups and len(committed) != len(changes):
        return False
    return is_same and admin.standing(group_id).state in {"Empty", "Dead"}
