"""`verify` on real brokers with groups of all types: no unexplained difference, and every change is found."""

import copy
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from offsetstream.cluster.client import Cluster
from offsetstream.codec.log_segments import find_partitions, read_segments
from offsetstream.coordinator import GroupMetadataCache
from offsetstream.tables.lease import is_job_alive
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.verify.compare import COLUMNS, KEYS, Explanations, TablePosition, differences, read_position
from offsetstream.verify.difference import ROW, Difference
from offsetstream.verify.records import HISTORY, disagreements, read_records
from offsetstream.verify.sources import Answers, TableRows, read_tables
from testkit.processes import offsetstream
from tests.conformance.state_rows import snapshot, without_empty_assignments
from tests.kafka.every_group.all_groups import CLASSIC, NEWEST, RELEASES, AllGroups
from tests.kafka.jobs import JobRunner

some_releases = pytest.mark.parametrize("every_group", [CLASSIC, "4.3.1", NEWEST], indirect=True)


def read(runner: JobRunner) -> TableRows:
    return read_tables(Lookup(runner.tables))


def read_table_position(every_group: AllGroups, runner: JobRunner) -> TablePosition:
    has_job = partial(is_job_alive, runner.tables, print)
    return read_position(Cluster(every_group.kafka.bootstrap_server), has_job, read(runner))


def unexplained(tables: TableRows, answers: Answers, position: TablePosition) -> list[Difference]:
    explanations = Explanations(tables, answers, position)
    return [each for each in differences(tables, answers) if explanations.of(each) is None]


@some_releases
def test_no_difference_is_unexplained(every_group: AllGroups, loaded: JobRunner) -> None:
    answers, tables = every_group.admin.answers(), read(loaded)
    assert len(answers.groups) >= 100
    position = read_table_position(every_group, loaded)
    assert unexplained(tables, answers, position) == []
    assert position.lags == {}
    blocked = [number for number in tables.partitions if position.is_blocked(number)]
    assert len(blocked) <= 2  # the two open transactions: everything else was compared


@some_releases
def test_verify_names_each_value_that_differs(every_group: AllGroups, loaded: JobRunner) -> None:
    answers, tables, position = every_group.admin.answers(), read(loaded), read_table_position(every_group, loaded)
    without_blocked = {number for number in tables.partitions if not position.is_blocked(number)}
    for table, columns in COLUMNS.items():
        for column in columns:
            if column == "coordinator_id":
                continue  # it belongs to the partition: see below
            changed, key = _change_one(tables, answers, table, column, without_blocked)
            if key is not None:
                assert [(d.table, d.key, d.column) for d in unexplained(changed, answers, position)] == [
                    (table, key, column)
                ]
    partition = copy.deepcopy(tables)
    for row in partition.partitions.values():
        row["coordinator_id"] = 99
    all_rows = {(d.table, d.column) for d in unexplained(partition, answers, position)}
    assert all_rows == {("groups", "coordinator_id")}


@some_releases
def test_each_column_of_each_state_table_is_compared_with_the_records(
    every_group: AllGroups, loaded: JobRunner
) -> None:
    rows = read_records(loaded.tables)
    assert disagreements(rows) == []
    known_by_records = {(r["offsets_partition"], r["group_id"]) for name in HISTORY for r in rows[name]}
    for table in (*DERIVED_TABLES, "committed_offsets"):  # the public tables
        key = load_schema(table).key
        assert rows[table]
        for column in load_schema(table).column_names:
            at, changed = _changed(rows[table], column, known_by_records)
            other_differences = {
                (d.table, d.key, d.column) for d in disagreements({**rows, table: changed}) if d.table == table
            }
            row_key = tuple(rows[table][at][name] for name in key)
            if column in key:  # the changed row counts as another row, and the original one as missing
                changed_key = tuple(changed[at][name] for name in key)
                assert {row_key, changed_key} & {all_rows[1] for all_rows in other_differences}
            else:
                assert other_differences == {(table, row_key, column)}, column


def _changed(
    rows: list[dict[str, Any]], column: str, known_by_records: set[tuple[int, str]]
) -> tuple[int, list[dict[str, Any]]]:
    """Return the rows with one value of the column changed, in a row where it is not null if there is one.

    Skip groups whose offsets were all deleted: only a coordinator knows them, so no record contradicts a wrong id.
    """
    known = [n for n, row in enumerate(rows) if (row["offsets_partition"], row["group_id"]) in known_by_records]
    at = next((number for number in known if rows[number][column] is not None), known[0])
    value = rows[at][column]
    changed_value: Any = "x" if value is None else f"{value}x"
    if isinstance(value, bool):
        changed_value = not value
    elif isinstance(value, int):
        changed_value = value + 1
    elif isinstance(value, datetime):
        changed_value = value + timedelta(milliseconds=1)
    elif column in ("key_json", "value_json"):
        changed_value = value + " "
    return at, [*rows[:at], {**rows[at], column: changed_value}, *rows[at + 1 :]]


@pytest.mark.long
@some_releases
def test_verify_names_each_missing_row(every_group: AllGroups, loaded: JobRunner) -> None:
    answers, tables = every_group.admin.answers(), read(loaded)
    for table in KEYS:
        reported = _answer_rows(answers, table)
        row = next(row for row in reported if row["group_id"] != "transactions-open")
        key = tuple(row[name] for name in KEYS[table])
        remaining = [r for r in tables.rows[table] if tuple(_as_answer(r, table)[name] for name in KEYS[table]) != key]
        assert len(remaining) == len(tables.rows[table]) - 1
        all_rows = differences(replace(tables, rows={**tables.rows, table: remaining}), answers)
        assert Difference(table, KEYS[table], key, ROW, False, True) in all_rows


def _change_one(
    tables: TableRows, answers: Answers, table: str, column: str, partitions: set[int]
) -> tuple[TableRows, tuple[Any, ...] | None]:
    """Return the tables with one value changed, in a row whose value the cluster reports."""
    reported = {
        tuple(row[n] for n in KEYS[table]) for row in _answer_rows(answers, table) if row.get(column) is not None
    }
    rows = copy.deepcopy(tables.rows)
    for row in rows[table]:
        key = tuple(row[name] for name in KEYS[table])
        if (
            key in reported
            and row["offsets_partition"] in partitions
            and not (column in ("is_simple", "protocol_type") and row["group_type"] != "Classic")
        ):
            value = row[column]
            row[column] = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}x"
            return replace(tables, rows=rows), key
    return tables, None


def _answer_rows(answers: Answers, table: str) -> list[dict[str, Any]]:
    return {
        "groups": answers.groups,
        "group_members": answers.members,
        "member_assignments": answers.assignments,
        "committed_offsets": answers.offsets,
    }[table]


def _as_answer(row: dict[str, Any], table: str) -> dict[str, Any]:
    tasks = table == "member_assignments" and row["subtopology_id"] is not None
    return {**row, "topic": None} if tasks else row


@some_releases
def test_tables_equal_a_replay_of_the_brokers_segments(every_group: AllGroups, loaded: JobRunner) -> None:
    """Skip partitions that an open transaction blocks, because the job reads with read_committed."""
    position = read_table_position(every_group, loaded)
    complete = {number for number in read(loaded).partitions if not position.is_blocked(number)}
    cache = GroupMetadataCache("classic" if every_group.kafka.version == "3.9.2" else "new")
    for partition in find_partitions([every_group.kafka.folder]):
        if partition.number in complete:
            assert cache.load_partition(partition.number, read_segments(partition.segments, pytest.fail)).error is None
    names = ("groups", "group_members", "member_assignments", "committed_offsets")
    all_rows = {name: read_rows(loaded.tables.open(name)) for name in names}
    rows = {
        name: [row for row in table_rows if row["offsets_partition"] in complete]
        for name, table_rows in all_rows.items()
    }
    expected = without_empty_assignments(cache.snapshot(every_group.admin.topic_names()))
    assert len(expected["groups"]) >= 90
    got = snapshot(rows)
    assert got["offsets"] == expected["offsets"]
    assert [row for row in got["groups"] if row not in expected["groups"]] == []
    lacking = [row["group_id"] for row in expected["groups"] if row not in got["groups"]]
    # A new coordinator keeps a group whose commits were all aborted (reference 5.9 row 6).
    assert lacking == ([] if every_group.kafka.version == "3.9.2" else ["transactions-aborted"])


@pytest.mark.parametrize("every_group", RELEASES, indirect=True)
def test_the_verify_command_finds_no_difference(every_group: AllGroups, loaded: JobRunner) -> None:
    server = ("--bootstrap-server", every_group.kafka.bootstrap_server)
    done = offsetstream("verify", "--history", *server, "--tables", loaded.tables.root, "--settle", "5")
    assert (done.returncode, "0 unexplained differences" in done.stderr) == (0, True), done.stdout + done.stderr
