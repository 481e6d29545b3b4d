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
    assert event.endswith("the topic was recreated: 5 commits of 5 groups started again")
    (move,) = [line for line in lines if line.startswith("g9 ")]
    assert "moved back" in move
    assert len(json.loads(run(*SINCE, "--output", "json", tables=tables).stdout)) == 6


def test_that_of_one_group_is_told_with_its_offsets(run: Run, tables: Path) -> None:
    lines = run(*SINCE, "--group", "g2", tables=tables).stdout.splitlines()
    assert lines[1].split()[:5] == ["g2", "orders", "2", "900", "3"]


@pytest.mark.parametrize("generation", [2, 3])
def test_who_gives_a_partition_up_commits_it_once_more(run: Run, tmp_path: Path, generation: int) -> None:
    """As a cooperative member does, after the record of the generation that takes it away; later it is another's."""

    def at(offset: int) -> dict[str, Any]:
        return {"record_offset": offset, "record_timestamp": instant(START_MS + offset * SECOND)}

    place = {"offsets_partition": 0, "log_id": 0, "group_id": "g0"}
    kind = {"group_type": "Classic", "protocol_type": "consumer", "state": "Stable", "member_count": 2}
    owned = place | {"member_id": "m", "kind": "assigned", "topic": "orders", "partition": 0}
    commits = [commit(0, 0, "orders", "A", offset) | at(number) for number, offset in ((2, 10), (6, 12))]
    for row in commits:
        row["commit_timestamp_ms"] = START_MS + row["record_offset"] * SECOND
    generations = [(1, 1), (4, 2)] + [(5, 3)] * (generation == 3)
    new_tables(
        tmp_path,
        {
            "offset_commits": commits,
            "offsets_partitions": [{"offsets_partition": 0, "log_id": 0}],
            "decoded_logs": [{"offsets_partition": 0, "log_id": 0, "decoded_from_offset": 0}],
            "group_history": [
                place | kind | at(number) | {"generation": each, "is_removed": False} for number, each in generations
            ],
            "assignment_history": [
                owned | at(1) | {"change": "assigned", "epoch": 1},
                owned | at(4) | {"change": "revoked", "epoch": 2},
            ],
        },
    )
    found = run(*SINCE, tables=tmp_path).stdout
    assert ("committed by a client that is not the owner" in found) == (generation == 3)
    assert ("0 unusual offset moves in 0 groups" in found) == (generation == 2)
