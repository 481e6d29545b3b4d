"""The look-ups give the same answers as Kafka's own Admin client for each group, on brokers of each release."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from click.testing import CliRunner

from offsetstream.cli.main import main
from offsetstream.cluster.client import Cluster
from offsetstream.tables.lookup import Lookup
from offsetstream.verify.compare import read_position
from offsetstream.verify.sources import Answers, read_tables
from tests.kafka.every_group.all_groups import RELEASES, AllGroups
from tests.kafka.jobs import JobRunner
from tests.reliability.truth import read_topic

Row = dict[str, Any]
pytestmark = pytest.mark.parametrize("every_group", RELEASES, indirect=True)
_IN_DELETED_TOPIC = "offsets-in-deleted-topic"
_CONSUMER_TYPES = ("Classic", "Consumer")  # types whose offsets and owners Kafka's tool describes


class Compared:
    """Admin's answers and the look-ups' rows, without the groups that an open transaction blocks."""

    def __init__(self, every_group: AllGroups, runner: JobRunner) -> None:
        tables = read_tables(Lookup(runner.tables))
        position = read_position(Cluster(every_group.kafka.bootstrap_server), lambda: False, tables)
        self._blocked = {number for number in tables.partitions if position.is_blocked(number)}
        self._placement, self._root = tables.placement, runner.tables.root
        self.without_state = tables.not_validated  # streams groups on brokers of 4.1 (reference 5.10 item 11)
        self.admin: Answers = every_group.admin.answers()
        records, _ = read_topic(every_group.kafka.bootstrap_server)
        commits = [each.key for own in records.values() for each in own if each.key and each.value is not None]
        self.log_has_deleted_topic = any(_IN_DELETED_TOPIC.encode() in key for key in commits)
        self.types = {row["group_id"]: row["group_type"] for row in self.admin.groups}

    def look_up(self, *command: str) -> list[Row]:
        done = CliRunner().invoke(main, [*command, "--output", "json", "--tables", self._root])
        assert done.exit_code == 0, done.output
        rows: list[Row] = json.loads(done.stdout)
        return rows

    def values(self, rows: Iterable[Row], *names: str, types: Collection[str] | None = None) -> list[tuple[Any, ...]]:
        """Return the sorted values of the rows; with `types`, only of groups that Admin lists with these types."""
        selected = (row for row in rows if types is None or self.types.get(row[names[0]]) in types)
        return sorted((tuple(row[n] for n in names) for row in selected if self._is_complete(row[names[0]])), key=repr)

    def _is_complete(self, group_id: str) -> bool:
        return self._placement.of(group_id) not in self._blocked


@pytest.fixture(scope="module")
def compared(every_group: AllGroups, loaded: JobRunner) -> Compared:
    return Compared(every_group, loaded)


def test_groups_list_equals_admin(compared: Compared) -> None:
    rows, admin_groups = compared.look_up("groups", "list"), compared.admin.groups
    for row in [*rows, *admin_groups]:
        row["state"] = row["state"] if row.get("group", row.get("group_id")) not in compared.without_state else None
    our_values = compared.values(rows, "group", "type", "state", "members")
    admin_values = compared.values(admin_groups, "group_id", "group_type", "state", "member_count")
    assert len(admin_values) > 90
    # A coordinator remembers a group after its last offset is gone (reference 5.9 rows 6 and 13). The tables have what
    # the log has. A group whose only topic was deleted is in the log for as long as the cleaner has left its commit.
    lost = {"transactions-aborted", *([] if compared.log_has_deleted_topic else [_IN_DELETED_TOPIC])}
    assert our_values == [each for each in admin_values if each[0] not in lost]


def test_members_equal_admin(compared: Compared) -> None:
    rows = compared.look_up("groups", "describe", "--all-groups", "--members")
    our_values = compared.values(
        [row for row in rows if row["consumer_id"]], "group", "consumer_id", "client_id", "host"
    )
    assert our_values == compared.values(compared.admin.members, "group_id", "member_id", "client_id", "client_host")


def test_offsets_equal_admin(compared: Compared) -> None:
    admin_values = compared.values(compared.admin.offsets, "group_id", "topic", "partition", "committed_offset")
    listed = compared.look_up("offsets", "list")
    key = ("group", "topic", "partition")
    assert compared.values(listed, *key, "committed_offset", types=set(compared.types.values())) == admin_values
    described = [
        row for row in compared.look_up("groups", "describe", "--all-groups") if row["current_offset"] is not None
    ]
    assert compared.values(described, *key, "current_offset", types=_CONSUMER_TYPES) == [
        each for each in admin_values if compared.types[each[0]] in _CONSUMER_TYPES
    ]


def test_owners_equal_admin(compared: Compared) -> None:
    """Compare the owner of each partition that has a committed offset and is assigned now."""
    rows = [
        row for row in compared.look_up("groups", "describe", "--all-groups") if row["consumer_id"] and row["topic"]
    ]
    our_values = compared.values(rows, "group", "topic", "partition", "consumer_id", types=_CONSUMER_TYPES)
    current = [row for row in compared.admin.assignments if row["kind"] == "assigned"]
    assert our_values == compared.values(current, "group_id", "topic", "partition", "member_id", types=_CONSUMER_TYPES)
