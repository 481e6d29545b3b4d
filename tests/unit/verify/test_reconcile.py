"""Rows of a history against the records of a log: what is in both, what compaction explains, and what nothing does."""

from typing import Any

import pyarrow as pa
import pytest

from offsetstream.tables.schema import load_schema
from offsetstream.verify.reconcile import Gathered, Records, reconcile

COMMITS = load_schema("offset_commits")
Row = tuple[int, int, str] | tuple[int, int, str, dict[str, Any]]  # partition, offset, topic, and other columns


def records(*rows: Row) -> Records:
    gathered = Gathered(COMMITS)
    for partition, offset, topic, *others in reversed(rows):  # pieces in any order
        row = {"offsets_partition": partition, "record_offset": offset, "topic": topic, "is_tombstone": False}
        row = dict.fromkeys(COMMITS.column_names) | row | (others[0] if others else {})
        gathered.add(pa.Table.from_pylist([row], schema=COMMITS.arrow))
    return gathered.records()


def told(rows: Records, log: Records, *, applied: int = 10, start: int = 0, is_thinned: bool = False) -> dict[str, Any]:
    ends, starts = (dict.fromkeys(range(3), at) for at in (applied, start))
    found = reconcile(rows, log, ends, starts, is_thinned=is_thinned, has_cells=True)
    values = {name: value if isinstance(value, int) else [*value.places()] for name, value in vars(found).items()}
    return {name: value for name, value in values.items() if value}


TOMBSTONE = {"is_tombstone": True}


def test_the_same() -> None:
    rows = records((0, 1, "a"), (0, 2, "b"), (2, 1, "a"))
    assert told(rows, rows) == {"both": 3}
    assert told(records(), records()) == {}


def test_a_record_that_the_tables_lack() -> None:
    assert told(records((0, 1, "a")), records((0, 1, "a"), (0, 4, "b"))) == {"both": 1, "missing": [(0, 4)]}
    assert told(records((0, 1, "a")), records((0, 1, "a"), (0, 10, "b"))) == {"both": 1}  # not applied yet


def test_a_row_that_the_log_lacks_is_superseded_or_wrong() -> None:
    rows = records((0, 1, "a"), (0, 2, "b"), (0, 3, "a"), (0, 4, "c", TOMBSTONE))
    assert told(rows, records((0, 3, "a"), (0, 2, "b"))) == {"both": 2, "superseded": 2}
    assert told(rows, records((0, 3, "a"))) == {"both": 1, "superseded": 2, "beyond": [(0, 2)]}
    assert told(rows, records((0, 3, "a"), (0, 11, "b"))) == {"both": 1, "superseded": 3}  # by what is not applied yet
    assert told(rows, records(), start=4) == {"superseded": 4}
    assert told(records((0, 1, "a")), records((1, 5, "a"))) == {"beyond": [(0, 1)], "missing": [(1, 5)]}


def test_a_row_that_says_something_else() -> None:
    other = {"committed_offset": 7}
    assert told(records((0, 1, "a", other)), records((0, 1, "a"))) == {"both": 1, "changed": [(0, 1)]}


@pytest.mark.parametrize("is_thinned", [False, True])
def test_what_retention_took(is_thinned: bool) -> None:
    rows, log = records((0, 3, "a")), records((0, 1, "a"), (0, 2, "b", TOMBSTONE), (0, 3, "a"), (0, 4, "c"))
    missing = [(0, 4)] if is_thinned else [(0, 1), (0, 2), (0, 4)]
    assert told(rows, log, is_thinned=is_thinned) == {"both": 1, "missing": missing} | (
        {"thinned": 2} if is_thinned else {}
    )
