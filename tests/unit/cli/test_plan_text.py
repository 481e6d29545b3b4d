"""The sentence that says what a plan will do, and what was done of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from offsetstream.cli.changes import executed, planned
from offsetstream.cluster.answers import CommittedOffset
from offsetstream.operations.execute import CHANGED, Result
from offsetstream.operations.plan import Change, Plan

AT_5, AT_9 = CommittedOffset(5), CommittedOffset(9)
BACK, ON = (Change("g", "orders", number, *to) for number, to in enumerate([(AT_9, AT_5), (AT_5, AT_9)]))
GONE, ALSO_GONE = (Change(group, "orders", 2, AT_5, None) for group in ("g", "h"))


@pytest.mark.parametrize(
    ("plan", "will", "was"),
    [
        (Plan("reset", [BACK, ON]), "2 offsets of 1 group: 4 messages skipped, 4 read again", None),
        (
            Plan("delete-offsets", [GONE, ALSO_GONE]),
            "2 offsets of 2 groups to be deleted",
            "2 offsets of 2 groups deleted",
        ),
        (
            Plan("delete-groups", [GONE, ALSO_GONE], deleted_groups=["g", "h", "empty"]),
            "3 groups to be deleted, with 2 offsets",
            "3 groups deleted, with 2 offsets",
        ),
        (
            Plan("undo", [ON, GONE]),
            "1 offset of 1 group: 4 messages skipped, 0 read again; 1 offset of 1 group to be deleted",
            "1 offset of 1 group: 4 messages skipped, 0 read again; 1 offset of 1 group deleted",
        ),
    ],
    ids=lambda each: each.kind if isinstance(each, Plan) else "",
)
def test_closing_sentence_counts_what_changes(plan: Plan, will: str, was: str | None) -> None:
    assert planned(plan, ()) == f"{will}. Nothing was changed: this is the plan. Add --execute to make the change."
    result = Result(Path("snapshot.json"))
    result.errors |= {(each.group_id, each.place): None for each in plan.changes}
    result.groups |= dict.fromkeys(plan.deleted_groups)
    assert executed(plan, result).startswith(f"Done: {was or will}. The previous offsets are in snapshot.json: ")


def test_a_group_that_was_not_deleted_is_not_counted() -> None:
    plan = Plan("delete-groups", [GONE, ALSO_GONE], deleted_groups=["g", "h"])
    told = executed(plan, Result(Path("snapshot.json"), {}, {"g": None, "h": CHANGED}))
    assert told.startswith("Done: 1 group deleted, with 1 offset; 1 not changed. ")
