"""A group that has reached the last stable offset waits for an open transaction: it has not stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offsetstream.views.reader import ViewReader
from testkit.field_rules import Limits
from testkit.sampled_logs import SECOND, instant
from testkit.tables import reader_of, write_tables
from tests.unit.views.windows import NOW_MS, Window, tables_of

HELD = 1000


def reader(tmp_path: Path, *, open_for: int, committed: int, members: int, **known: Any) -> ViewReader:
    """A growing log, and a group that has read it up to a transaction opened `open_for` seconds ago."""
    ago = range(600, -1, -10)
    looks = tuple((HELD + 10 * (open_for - each), NOW_MS - each * SECOND) for each in ago)
    commits = tuple((min(end, committed), at) for end, at in looks if at <= NOW_MS - open_for * SECOND)
    rows = tables_of((Window(0, looks, commits, Limits(), window_seconds=300, members=members),))
    for each in (*rows["end_offsets"], *rows["topic_partitions"]):
        each["last_stable_offset"] = min(each["high_watermark"], HELD)
    for each in rows["topic_partitions"]:
        each.update(known)
    began = {"log_id": 0, "record_offset": 0, "record_timestamp": samples_at(600), "is_removed": False}
    rows["group_history"] = [rows["groups"][0] | began]
    del rows["group_history"][0]["in_coordinator_partition"]
    return reader_of(write_tables(tmp_path, rows), instant(NOW_MS))


def samples_at(seconds: int) -> Any:
    return instant(NOW_MS - seconds * SECOND)


# Seconds since the transaction was opened, committed offset, members: the verdict.
CASES = {
    "a minute is nothing yet": (10, HELD, 1, "ok"),
    "longer": (300, HELD, 1, "waiting"),
    "before the last stable offset messages wait": (300, HELD - 1, 1, "stopped"),
    "nobody is there who could wait": (310, HELD, 0, "dead"),
}


BEFORE = {"dead": {"stopped", "dead"}}  # for the first five minutes


@pytest.mark.parametrize("name", CASES)
def test_a_live_group_at_the_last_stable_offset_waits(tmp_path: Path, name: str) -> None:
    open_for, committed, members, verdict = CASES[name]
    found = reader(tmp_path, open_for=open_for, committed=committed, members=members)
    (row,) = found.rows("group_status")
    assert row["verdict"] == verdict, row["verdict_reason"]
    changes: list[dict[str, Any]] = sorted(found.rows("status_changes"), key=lambda each: each["changed_at"])
    assert {each["verdict"] for each in changes} - {"unknown", "catching up", "ok"} <= BEFORE.get(verdict, {verdict})
    assert verdict == "ok" or changes[-1]["verdict"] == verdict


def test_the_reason_says_how_long_the_transaction_is_open(tmp_path: Path) -> None:
    (row,) = reader(tmp_path, open_for=300, committed=HELD, members=1).rows("group_status")
    assert row["level"] == "WARN"
    assert row["verdict_reason"] == (
        "it has reached the last stable offset 1000, where an open transaction has blocked the log for 290 s"
    )


def test_the_reason_names_the_transaction_if_known(tmp_path: Path) -> None:
    known = {"open_transaction": "ledger-writer-7", "open_transaction_since": samples_at(295)}
    (row,) = reader(tmp_path, open_for=300, committed=HELD, members=1, **known).rows("group_status")
    assert row["cause"] == "the open transaction ledger-writer-7"
    assert row["verdict_reason"] == (
        "it has reached the last stable offset 1000, where the open transaction ledger-writer-7 has blocked the log "
        "for 290 s; it has been open for 295 s"
    )
