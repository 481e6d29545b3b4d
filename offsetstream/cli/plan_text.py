"""Print a plan for offsets of groups as a table: Kafka's columns, then objections and results."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeAlias

from offsetstream.cli.answers import Row
from offsetstream.cli.messages import counted, print_line
from offsetstream.cli.output import Column, Output
from offsetstream.operations.plan import JUDGED_BY_OPERATOR

if TYPE_CHECKING:
    from offsetstream.operations.execute import Result
    from offsetstream.operations.plan import Change, Objection, Plan

_SHOWN = 20  # objections and notes that are printed as sentences
_COLUMNS = (
    Column("group", "GROUP", 30),
    Column("topic", "TOPIC", 30),
    Column("partition", "PARTITION", 10, "id"),
    Column("new_offset", "NEW-OFFSET", 15, "id"),
    Column("current_offset", "CURRENT-OFFSET", 15, "id"),
    Column("skipped", "SKIPPED", 8, "number"),
    Column("read_again", "READ-AGAIN", 10, "number"),
    Column("log_start_offset"),
    Column("log_end_offset", "LOG-END-OFFSET", 15, "id"),
    Column("topic_id"),
    Column("current_leader_epoch"),
    Column("new_leader_epoch"),
    Column("current_metadata"),
    Column("new_metadata"),
    Column("objections", "OBJECTIONS", 10),
    Column("why"),
    Column("result", "RESULT", 8),
)
_Key: TypeAlias = tuple[str, tuple[str, int] | None]


def show_plan(
    output: Output, plan: Plan, objections: Collection[Objection], closing: str, result: Result | None = None
) -> None:
    """Print the change of each partition, also of those that have only objections, and then the objections."""
    by_key: dict[_Key, list[Objection]] = {}
    for each in objections:
        by_key.setdefault((each.group_id, each.place), []).append(each)
    rows = {(each.group_id, each.place): _row(each, result) for each in plan.changes}
    for group_id, place in by_key:
        if place is not None:
            topic, partition = place
            rows.setdefault((group_id, place), {"group": group_id, "topic": topic, "partition": partition})
    with_rows = {group_id for group_id, _ in rows}
    for group_id in {*plan.deleted_groups, *(group_id for group_id, _ in by_key)} - with_rows:
        rows[group_id, ("", 0)] = {"group": group_id, "result": _group_result(result, group_id)}
    shown = [rows[key] | _objections(key, by_key) for key in sorted(rows)]
    output.table(_COLUMNS, shown, closing=closing)
    for line in [*map(_sentence, objections), *(f"Note: {each}" for each in plan.notes)][:_SHOWN]:
        print_line(line)
    if (more := len(objections) + len(plan.notes) - _SHOWN) > 0:
        print_line(f"... and {more} more: --output json has all objections")


def planned(plan: Plan, remaining: Collection[Objection]) -> str:
    """Return the closing sentence of a plan that was not executed."""
    sums = _sums(plan.changes, plan.deleted_groups)
    if remaining:
        return f"{sums}. Nothing was changed: {counted(len(remaining), 'objection')}."
    if not plan.group_ids:
        return "There is nothing to do."
    return f"{sums}. Nothing was changed: this is the plan. Add --execute to make the change."


def done(plan: Plan, result: Result) -> str:
    """Return the closing sentence of an executed plan."""
    changed = [each for each in plan.changes if result.error_of(each) is None]
    failed = len(plan.changes) - len(changed)
    rest = f"; {failed} not changed" if failed else ""
    groups = [each for each in plan.deleted_groups if _group_result(result, each) == "done"]
    return (
        f"Done: {_sums(changed, groups, 'deleted')}{rest}. The previous offsets are in {result.snapshot}: "
        "'offsetstream offsets undo' with this file undoes the change."
    )


def _row(change: Change, result: Result | None) -> Row:
    present, new, distance = change.present, change.new, change.distance
    again = change.read_again if change.read_again is not None else max(-distance, 0) if distance is not None else None
    return {
        "group": change.group_id,
        "topic": change.topic,
        "partition": change.partition,
        "new_offset": new and new.offset,
        "current_offset": present and present.offset,
        "skipped": max(distance, 0) if distance is not None else None,
        "read_again": again,
        "log_start_offset": change.log_start,
        "log_end_offset": change.log_end,
        "topic_id": change.topic_id,
        "current_leader_epoch": present and present.leader_epoch,
        "new_leader_epoch": new and new.leader_epoch,
        "current_metadata": present and present.metadata,
        "new_metadata": new and new.metadata,
        "result": (result.error_of(change) or "done") if result else None,
    }


def _objections(key: _Key, by_key: dict[_Key, list[Objection]]) -> dict[str, Any]:
    objections = [*by_key.get((key[0], None), []), *by_key.get(key, [])]
    return {
        "objections": ", ".join(each.kind for each in objections) or None,
        "why": "; ".join(each.told for each in objections) or None,
    }


def _group_result(result: Result | None, group_id: str) -> str | None:
    return (result.groups.get(group_id, "not done") or "done") if result else None


def _sums(changes: Collection[Change], deleted_groups: Collection[str], deleted: str = "to be deleted") -> str:
    """Return how many offsets move, how many messages that skips or repeats, and how many offsets and groups go."""
    moved, gone = ([each for each in changes if (each.new is None) is is_gone] for is_gone in (False, True))
    skipped = sum(max(each.distance or 0, 0) for each in moved)
    again = sum(max(-(each.distance or 0), 0) if each.read_again is None else each.read_again for each in moved)
    parts = (
        [f"{_offsets_and_groups(moved)}: {counted(skipped, 'message')} skipped, {again} read again"] if moved else []
    )
    if deleted_groups:
        parts.append(f"{counted(len(deleted_groups), 'group')} {deleted}, with {counted(len(gone), 'offset')}")
    elif gone:
        parts.append(f"{_offsets_and_groups(gone)} {deleted}")
    return "; ".join(parts) or "0 offsets"


def _offsets_and_groups(changes: Collection[Change]) -> str:
    groups = len({each.group_id for each in changes})
    return f"{counted(len(changes), 'offset')} of {counted(groups, 'group')}"


def _sentence(objection: Objection) -> str:
    place = f" {objection.place[0]}-{objection.place[1]}" if objection.place else ""
    overrule = f" (--despite {objection.kind} overrules this)" if objection.kind in JUDGED_BY_OPERATOR else ""
    return f"Objection: group '{objection.group_id}'{place}: {objection.told}{overrule}"
