"""`replay` of a broker's log segments gives the same groups and offsets as that broker after a restart."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.codec.log_segments import find_partitions, read_segments
from offsetstream.verify.sources import Answers, Row
from testkit.processes import offsetstream
from testkit.waiting import await_
from tests.kafka.every_group.all_groups import CLASSIC, NEWEST, AllGroups, client_release, group_types
from tests.kafka.java_admin import JavaAdmin
from tests.kafka.java_clients import java_clients

COORDINATORS = {"3.9.2": "classic", "4.3.1": "new", "4.4.0": "new"}
pytestmark = pytest.mark.parametrize("every_group", [CLASSIC, "4.3.1", NEWEST], indirect=True)
# The columns that both the Admin client and the replay report.
GROUP_COLUMNS = (
    *("group_id", "group_type", "state", "protocol_type", "protocol"),
    *("group_epoch", "assignment_epoch", "member_count"),
)
MEMBER_COLUMNS = ("group_id", "member_id", "group_instance_id", "client_id", "client_host", "member_epoch")


@dataclass
class Restarted:
    """A broker's answers after a restart without clients, and the folder of the segments that it loaded."""

    version: str
    answers: Answers
    topic_names: dict[str, str]
    folder: Path


@pytest.fixture(scope="package")
def after_restart(every_group: AllGroups) -> Restarted:
    """Stop the clients and restart. tests/conftest.py runs the users of this fixture last for each release."""
    every_group.stop_clients()
    kafka = every_group.kafka
    kafka.restart()
    with java_clients(kafka.bootstrap_server, client_release(kafka.version)) as clients:
        admin = JavaAdmin(clients)
        await_coordinators(admin)
        sizes_before = segment_sizes(kafka.folder)
        answers = admin.answers()
        names = admin.topic_names()
    # No session ended meanwhile: the answers belong to these segments.
    assert segment_sizes(kafka.folder) == sizes_before
    kafka.stop_broker(1)
    return Restarted(kafka.version, answers, names, kafka.folder)


def await_coordinators(admin: JavaAdmin) -> None:
    """Wait: a broker that has just started lists no groups until it is elected their coordinator."""
    await_(lambda: bool(admin.list_groups()))


def segment_sizes(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in folder.glob(f"**/{OFFSETS_TOPIC}-*/*.log")}


def test_replay_of_segments_equals_the_restarted_broker(after_restart: Restarted, tmp_path: Path) -> None:
    replayed = replay(after_restart, tmp_path / "topics.json")
    answered = after_restart.answers
    assert len(answered.groups) >= 100
    assert {row["group_type"] for row in answered.groups} == group_types(after_restart.version)
    assert rows(groups(replayed)) == rows(reduced(answered.groups, GROUP_COLUMNS))
    assert rows(members(replayed)) == rows(reduced(answered.members, MEMBER_COLUMNS))
    assert rows(assignments(replayed)) == rows([row for row in answered.assignments if row["kind"] != "target"])
    assert rows(offsets(replayed)) == rows(answered.offsets)


def test_the_log_was_compacted_and_has_open_transactions(after_restart: Restarted) -> None:
    """Without these records the test above would prove less than its name says."""
    gaps = open_transactions = 0
    for partition in find_partitions([after_restart.folder]):
        batches = list(read_segments(partition.segments, pytest.fail))
        offsets_read = [record.offset for batch in batches for record in batch.records]
        gaps += max(offsets_read, default=-1) + 1 - len(offsets_read)
        last_of_producer = {batch.producer_id: batch for batch in batches if batch.is_transactional}
        open_transactions += sum(not batch.is_control for batch in last_of_producer.values())
    assert gaps > 10
    assert open_transactions == 2


def replay(broker: Restarted, topics: Path) -> dict[str, Any]:
    """Return what `offsetstream replay` prints for the broker's folder."""
    topics.write_text(json.dumps(broker.topic_names))
    options = ("--topics", str(topics), "--coordinator", COORDINATORS[broker.version])
    done = offsetstream("replay", str(broker.folder), *options)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def groups(replayed: dict[str, Any]) -> Iterator[Row]:
    for group in replayed["groups"]:
        yield {
            "group_id": group["group_id"],
            "group_type": group["type"],
            "state": group["state"],
            "protocol_type": group["protocol_type"],
            "protocol": group["protocol"],
            "group_epoch": group.get("epoch"),
            "assignment_epoch": group.get("assignment_epoch"),
            "member_count": len(group["members"]),
        }


def members(replayed: dict[str, Any]) -> Iterator[Row]:
    for group in replayed["groups"]:
        for member in group["members"]:
            row = {name: member.get(name) for name in MEMBER_COLUMNS}
            yield row | {"group_id": group["group_id"]}


def assignments(replayed: dict[str, Any]) -> Iterator[Row]:
    for group in replayed["groups"]:
        for member in group["members"]:
            for entry in member["assignment"]:
                for partition in entry["partitions"]:
                    yield {
                        "group_id": group["group_id"],
                        "member_id": member["member_id"],
                        "kind": entry.get("role", "assigned"),
                        "subtopology_id": entry.get("subtopology_id"),
                        "topic": entry.get("topic"),
                        "partition": partition,
                    }


def offsets(replayed: dict[str, Any]) -> Iterator[Row]:
    for commit in replayed["offsets"]:
        row = {name: value for name, value in commit.items() if name not in ("offset", "commit_timestamp")}
        yield row | {"committed_offset": commit["offset"]}


def reduced(answered: Iterable[Row], columns: Iterable[str]) -> list[Row]:
    return [{name: row.get(name) for name in columns} for row in answered]


def rows(found: Iterable[Row]) -> list[str]:
    """Return the rows as sorted text, so that a failed comparison shows complete rows."""
    return sorted(json.dumps(row, sort_keys=True) for row in found)
