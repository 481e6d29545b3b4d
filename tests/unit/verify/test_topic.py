"""History rows against log records: what is in both, what compaction explains, and what nothing explains."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from offsetstream.tables.create import create_tables
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.verify.topic import Gathered, Records, reconcile, thinned_below
from testkit.tables import append_rows, snapshot_at

COMMITS = load_schema("offset_commits")
Row = tuple[int, int, str] | tuple[int, int, str, dict[str, Any]]  # partition, offset, topic, and other columns


def records(*rows: Row) -> Records:
    gathered = Gathered(COMMITS)
    for partition, offset, topic, *others in reversed(rows):  # the pieces come in any order
        row = {"offsets_partition": partition, "record_offset": offset, "topic": topic, "is_tombstone": False}
        row = dict.fromkeys(COMMITS.column_names) | row | (others[0] if others else {})
        gathered.add(pa.Table.from_pylist([row], schema=COMMITS.arrow))
    return gathered.records()


def told(
    rows: Records, log: Records, *, applied: int = 10, start: int = 0, thinned: int = 0, claimed: datetime | None = None
) -> dict[str, Any]:
    ends, starts, below = (dict.fromkeys(range(3), at) for at in (applied, start, thinned))
    claims = {} if claimed is None else dict.fromkeys(range(3), claimed)
    found = reconcile(rows, log, ends, starts, below, claims, has_cells=True)
    values = {name: value if isinstance(value, int) else [*value.places()] for name, value in vars(found).items()}
    return {name: value for name, value in values.items() if value}


TOMBSTONE = {"is_tombstone": True}
CLAIMED = datetime(2030, 6, 10, tzinfo=UTC)


def test_equal_rows_and_records_are_no_difference() -> None:
    rows = records((0, 1, "a"), (0, 2, "b"), (2, 1, "a"))
    assert told(rows, rows) == {"both": 3}
    assert told(records(), records()) == {}


def test_a_record_missing_from_the_tables_is_found() -> None:
    assert told(records((0, 1, "a")), records((0, 1, "a"), (0, 4, "b"))) == {"both": 1, "missing": [(0, 4)]}
    assert told(records((0, 1, "a")), records((0, 1, "a"), (0, 10, "b"))) == {"both": 1}  # not applied yet


def test_a_row_missing_from_the_log_is_superseded_or_wrong() -> None:
    rows = records((0, 1, "a"), (0, 2, "b"), (0, 3, "a"), (0, 4, "c", TOMBSTONE))
    assert told(rows, records((0, 3, "a"), (0, 2, "b"))) == {"both": 2, "superseded": 2}
    assert told(rows, records((0, 3, "a"))) == {"both": 1, "superseded": 2, "beyond": [(0, 2)]}
    assert told(rows, records((0, 3, "a"), (0, 11, "b"))) == {"both": 1, "superseded": 3}  # by a later record
    assert told(rows, records(), start=4) == {"superseded": 4}
    assert told(records((0, 1, "a")), records((1, 5, "a"))) == {"beyond": [(0, 1)], "missing": [(1, 5)]}


def test_rows_that_vanished_before_the_history_is_complete_are_explained() -> None:
    """A group was deleted and its tombstone cleaned away while no job ran: no record is left that superseded it."""
    before, after = ({"record_timestamp": CLAIMED + timedelta(microseconds=each)} for each in (-1, 0))
    rows = records((0, 1, "deleted", before), (0, 2, "lost", after), (0, 3, "there", before))
    log = records((0, 3, "there", before))
    assert told(rows, log, claimed=CLAIMED) == {"both": 1, "unclaimed": 1, "beyond": [(0, 2)]}
    assert told(rows, log) == {"both": 1, "beyond": [(0, 1), (0, 2)]}


def test_a_row_that_contradicts_its_record_is_found() -> None:
    other = {"committed_offset": 7}
    assert told(records((0, 1, "a", other)), records((0, 1, "a"))) == {"both": 1, "changed": [(0, 1)]}


@pytest.mark.parametrize(("thinned", "gone"), [(0, []), (2, []), (3, [(0, 2)]), (4, [(0, 1), (0, 2)])])
def test_rows_deleted_by_retention_are_explained(thinned: int, gone: list[tuple[int, int]]) -> None:
    rows, log = records((0, 3, "a")), records((0, 1, "a"), (0, 2, "b", TOMBSTONE), (0, 3, "a"), (0, 4, "c"))
    missing = [place for place in ((0, 1), (0, 2), (0, 4)) if place not in gone]
    assert told(rows, log, thinned=thinned) == {"both": 1, "missing": missing} | (
        {"thinned": len(gone)} if gone else {}
    )


def test_rows_that_retention_keeps_are_missed() -> None:
    """Retention keeps the last row of a cell before its horizon, and all rows after it."""
    log = records((0, 1, "a"), (0, 2, "a"), (0, 3, "a"), (0, 4, "a", TOMBSTONE), (0, 5, "b"), (0, 6, "b"))
    rows = records((0, 6, "b"))
    assert told(rows, log, thinned=3) == {"both": 1, "thinned": 1, "missing": [(0, 2), (0, 3), (0, 4), (0, 5)]}
    assert told(rows, log, thinned=5) == {"both": 1, "thinned": 4, "missing": [(0, 5)]}


TODAY = date(2030, 6, 10)
AGO = [TODAY - timedelta(days) for days in range(9)]


@pytest.mark.parametrize(
    ("written", "below"),
    [
        ([(0, 3, AGO[8]), (0, 7, AGO[3]), (0, 9, AGO[0])], 7),
        ([(0, 3, AGO[8])], None),  # no row since
        ([(1, 3, AGO[0]), (0, 5, AGO[0])], 5),  # from another log
        ([(0, 3, AGO[3]), (0, 4, AGO[8]), (0, 6, AGO[8]), (0, 7, AGO[3])], 7),  # a clock went back
    ],
)
def test_the_offset_below_which_retention_deleted_records(
    tmp_path: Path, written: list[tuple[int, int, date]], below: int | None
) -> None:
    create_tables(PathStore(str(tmp_path)), "cluster-1", "new")
    rows = [
        {"offsets_partition": 1, "log_id": log_id, "record_offset": offset, "written_day": day}
        for log_id, offset, day in written
    ]
    append_rows(tmp_path, "offset_commits", rows)
    nothing = np.iinfo(np.int64).max
    table = snapshot_at(tmp_path / "offset_commits")
    assert thinned_below(table, {1: 0, 2: 4}, AGO[3]) == {1: nothing if below is None else below, 2: nothing}
