"""The look-ups say of each group what Kafka's own Admin client says, on brokers of each release."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from click.testing import CliRunner

from offsetstream.cli.main import main
from offsetstream.cluster.client import Cluster
from offsetstream.tables.lookup import Lookup
from offsetstream.verify.answers import Answers
from offsetstream.verify.table_lag import read_position
from offsetstream.verify.tables import read_tables
from tests.kafka.every_group.all_groups import RELEASES, AllGroups
from tests.kafka.jobs import JobRunner

Row = dict[str, Any]
pytestmark = pytest.mark.parametrize("every_group", RELEASES, indirect=True)
_OF_CONSUMERS = ("Classic", "Consumer")  # of which Kafka's tool describes offsets and owners


class Compared:
    """Admin's answers and the look-ups' rows, without the groups that an open transaction holds back."""

    def __init__(self, every_group: AllGroups, runner: JobRunner) -> None:
        tables = read_tables(Lookup(runner.tables))
        stands = read_position(Cluster(every_group.kafka.bootstrap_server), lambda: False, tables)
        self._held = {number for number in tables.partitions if stands.is_blocked(number)}
        self._placement, self._root = tables.placement, runner.tables.root
        self.state_not_told = tables.not_validated  # of streams groups, by brokers of 4.1 (reference 5.10 item 11)
        self.admin: Answers = every_group.admin.answers()
        self.types = {row["group_id"]: row["group_type"] for row in self.admin.groups}

    def told(self, *command: str) -> list[Row]:
        done = CliRunner().invoke(main, [*command, "--output", "json", "--tables", self._root])
        assert done.exit_code == 0, done.output
        rows: list[Row] = json.loads(done.stdout)
        return rows

    def values(self, rows: Iterable[Row], *names: str, types: Collection[str] | None = None) -> list[tuple[Any, ...]]:
        """The rows' values; of groups that Admin lists, of these types."""
        kept = (row for row in rows if types is None or self.types.get(row[names[0]]) in types)
        return sorted((tuple(row[n] for n in names) for row in kept if self._is_whole(row[names[0]])), key=repr)

    def _is_whole(self, group_id: str) -> bool:
        return self._placement.of(group_id) not in self._held


@pytest.fixture(scope="module")
def compared(every_group: AllGroups, loaded: JobRunner) -> Compared:
    return Compared(every_group, loaded)


def test_groups_list(compared: Compared) -> None:
    rows, told = compared.told("groups", "list"), compared.admin.groups
    for row in [*rows, *told]:
        row["state"] = row["state"] if row.get("group", row.get("group_id")) not in compared.state_not_told else None
    ours = compared.values(rows, "group", "type", "state", "members")
    theirs = compared.values(told, "group_id", "group_type", "state", "member_count")
    assert len(theirs) > 90
    # A coordinator remembers a group that only aborted its commits until it moves (reference 5.9 row 6).
    assert ours == [each for each in theirs if each[0] != "transactions-aborted"]


def test_members(compared: Compared) -> None:
    rows = compared.told("groups", "describe", "--all-groups", "--members")
    ours = compared.values([row for row in rows if row["consumer_id"]], "group", "consumer_id", "client_id", "host")
    assert ours == compared.values(compared.admin.members, "group_id", "member_id", "client_id", "client_host")


def test_offsets(compared: Compared) -> None:
    theirs = compared.values(compared.admin.offsets, "group_id", "topic", "partition", "committed_offset")
    listed = compared.told("offsets", "list")
    place = ("group", "topic", "partition")
    assert compared.values(listed, *place, "committed_offset", types=set(compared.types.values())) == theirs
    described = [
        row for row in compared.told("groups", "describe", "--all-groups") if row["current_offset"] is not None
    ]
    assert compared.values(described, *place, "current_offset", types=_OF_CONSUMERS) == [
        each for each in theirs if compared.types[each[0]] in _OF_CONSUMERS
    ]


def test_owners(compared: Compared) -> None:
    """Of a partition that a group committed and a member has now."""
    rows = [row for row in compared.told("groups", "describe", "--all-groups") if row["consumer_id"] and row["topic"]]
    ours = compared.values(rows, "group", "topic", "partition", "consumer_id", types=_OF_CONSUMERS)
    current = [row for row in compared.admin.assignments if row["kind"] == "assigned"]
    assert ours == compared.values(current, "group_id", "topic", "partition", "member_id", types=_OF_CONSUMERS)
