"""What one event explains is one line of the audit, and does not bury what somebody did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testkit.sampled_logs import SECOND, START_MS, instant
from testkit.tables import new_tables
from tests.unit.cli.conftest import Run

SINCE = ("offsets", "audit", "--since", "2026-01-01")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Five groups begin anew as their topic is another one; of a sixth somebody moves an offset back."""
    commits = [
        commit(number, number, "orders", topic_id, offset) for number in range(5) for topic_id, offset in OLD_NEW
    ]
    commits += [commit(9, 9, "stock", "S", offset) for offset in (500, 20)]
    for offset, row in enumerate(commits):
        row |= {"record_offset": offset, "record_timestamp": instant(START_MS + offset * SECOND)}
        row["commit_timestamp_ms"] = START_MS + offset * SECOND
    new_tables(tmp_path, {"offset_commits": commits, "offsets_partitions": [{"offsets_partition": 0, "log_id": 0}]})
    return tmp_path


OLD_NEW = (("A", 900), ("B", 3))


def commit(group: int, partition: int, topic: str, topic_id: str, offset: int) -> dict[str, Any]:
    place = {"offsets_partition": 0, "log_id": 0, "group_id": f"g{group}", "topic": topic, "partition": partition}
    return place | {"topic_id": topic_id, "committed_offset": offset, "is_tombstone": False}


def test_the_recreation_of_a_topic_is_one_line(run: Run, tables: Path) -> None:
    lines = run(*SINCE, tables=tables).stdout.splitlines()
    assert len(lines) == 4  # with the heading, and the sentence
    (event,) = [line for line in lines if "recreated" in line]
    assert event.startswith("(5 groups) ")
    assert event.endswith("the topic was recreated: 5 commits of 5 groups began anew")
    (move,) = [line for line in lines if line.startswith("g9 ")]
    assert "moved back" in move
    assert len(json.loads(run(*SINCE, "--output", "json", tables=tables).stdout)) == 6


def test_that_of_one_group_is_told_with_its_offsets(run: Run, tables: Path) -> None:
    lines = run(*SINCE, "--group", "g2", tables=tables).stdout.splitlines()
    assert lines[1].split()[:5] == ["g2", "orders", "2", "900", "3"]
