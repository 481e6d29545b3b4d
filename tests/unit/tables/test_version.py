"""Tables of other schema versions. Commit 4c061db wrote tables_v1.tar.gz with its own write functions."""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from offsetstream.errors import TablesError
from offsetstream.tables.arrow_rows import append_rows, merge_rows
from offsetstream.tables.create import create_tables
from offsetstream.tables.lease import Lease, note_history_kept_from, read_lease, request_stop
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas, load_schema
from offsetstream.tables.small_tables import insert_rows, overwrite_rows, read_rows
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.upgrade import upgrade_tables
from offsetstream.tables.version import PROPERTY, SCHEMA_VERSION

CLUSTER = "cluster-1"
NEWER = str(SCHEMA_VERSION + 1)
LAST_BATCH = BatchId(1, 4)  # of the job that created the tables
NEXT_BATCH = BatchId(1, 5)
# Tables that were added after version 1.
NEW_TABLES = {
    *("history_ledger", "group_history", "member_history", "assignment_history", "decoded_logs"),
    *("topic_partitions", "end_offsets", "cluster"),
}
OLD_TABLES = [name for name in all_schemas() if name not in NEW_TABLES]
WHEN = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def old(tmp_path: Path) -> PathStore:
    with tarfile.open(Path(__file__).with_name("tables_v1.tar.gz")) as made:
        made.extractall(tmp_path / "tables", filter="data")
    return PathStore(str(tmp_path / "tables"))


@pytest.fixture
def current(tmp_path: Path) -> PathStore:
    tables = PathStore(str(tmp_path))
    create_tables(tables, CLUSTER, "new")
    return tables


def rows(tables: PathStore, name: str) -> list[dict[str, Any]]:
    return read_rows(tables.open(name))


def open_again(tables: PathStore) -> list[str]:
    """Open the tables like a job that starts."""
    create_tables(tables, CLUSTER, "new")
    return upgrade_tables(tables)


def make_newer(tables: PathStore, name: str) -> None:
    """Change a table as the next version of the program might."""
    table = DeltaTable(tables.table(name))
    table.alter.add_columns([Field("of_the_future", PrimitiveType("string"))])
    table.alter.set_table_properties({PROPERTY: NEWER}, raise_if_not_exists=False)


def test_an_upgrade_adds_what_a_table_lacks_and_keeps_its_rows(old: PathStore) -> None:
    before = {name: rows(old, name) for name in OLD_TABLES}
    assert open_again(old) == OLD_TABLES
    assert {name for name in NEW_TABLES if rows(old, name)} == set()
    lacked = set()
    for name, schema in all_schemas().items():
        table = DeltaTable(old.table(name))
        fields = {field.name: (field.nullable, field.metadata) for field in table.schema().fields}
        assert fields == {column.name: (True, {"comment": column.comment}) for column in schema.columns}
        assert table.metadata().configuration.items() >= schema.properties.items()
        assert table.metadata().configuration["offsetstream.cluster_id"] == CLUSTER
        for was, now in zip(before.get(name, []), rows(old, name), strict=True):
            lacked |= {(name, column) for column in now.keys() - was.keys()}
            assert now == dict.fromkeys(schema.column_names) | was
    assert lacked >= {("offsets_partitions", "last_stable_offset_since"), ("job_lease", "history_kept_from")}
    assert open_again(old) == []


USERS = {
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 9 days",
    "delta.checkpointInterval": "7",
}


def make_it_a_users(tables: PathStore, name: str) -> None:
    table = DeltaTable(tables.table(name))
    table.alter.set_table_properties(USERS, raise_if_not_exists=False)
    for column, comment in {"offsets_partition": "Ours, said by them", "log_id": ""}.items():
        table.alter.set_column_metadata(column, {"comment": comment})


def is_the_users(tables: PathStore, name: str) -> bool:
    table = DeltaTable(tables.table(name))
    comments = {field.name: field.metadata["comment"] for field in table.schema().fields}
    has_comments = (comments["offsets_partition"], comments["log_id"]) == ("Ours, said by them", "")
    return has_comments and table.metadata().configuration.items() >= USERS.items()


@pytest.mark.parametrize("name", ["offsets_partitions", "offset_commits"])
def test_a_users_changes_survive_an_upgrade_and_each_start(old: PathStore, name: str) -> None:
    make_it_a_users(old, name)
    for _ in range(2):
        open_again(old)
        assert is_the_users(old, name)
        configuration = DeltaTable(old.table(name)).metadata().configuration
        assert {*load_schema(name).properties} <= {*configuration}
        assert configuration[PROPERTY] == str(SCHEMA_VERSION)


@pytest.mark.parametrize("name", ["offsets_partitions", "offset_commits"])
def test_a_users_changes_survive_each_start(current: PathStore, name: str) -> None:
    make_it_a_users(current, name)
    for _ in range(2):
        assert open_again(current) == []
        assert is_the_users(current, name)


def test_an_upgrade_replaces_our_own_earlier_comments(old: PathStore) -> None:
    before = {
        field.name: field.metadata["comment"] for field in DeltaTable(old.table("offsets_partitions")).schema().fields
    }
    schema = load_schema("offsets_partitions")
    changed = [column for column in schema.columns if before.get(column.name, column.comment) != column.comment]
    assert {"log_id", "caught_up_at", "history_complete_from"} <= {column.name for column in changed}
    open_again(old)
    after = {
        field.name: field.metadata["comment"] for field in DeltaTable(old.table("offsets_partitions")).schema().fields
    }
    assert {column.name: after[column.name] for column in changed} == {each.name: each.comment for each in changed}


def test_an_upgraded_table_can_be_written(old: PathStore) -> None:
    open_again(old)
    (group,), (partition,) = rows(old, "groups"), rows(old, "offsets_partitions")
    groups = pa.Table.from_pylist([group | {"state": "Stable"}], schema=load_schema("groups").arrow)
    merge_rows(old, "groups", groups, LAST_BATCH)
    assert rows(old, "groups") == [group]  # the older program has already merged this batch
    merge_rows(old, "groups", groups, NEXT_BATCH)
    assert rows(old, "groups") == [group | {"state": "Stable"}]
    changed = partition | {"next_offset": 9, "last_stable_offset_since": WHEN}
    overwrite_rows(old, "offsets_partitions", [changed], NEXT_BATCH)
    assert rows(old, "offsets_partitions") == [changed]
    commit = (
        load_schema("offset_commits").arrow.empty_table().drop_columns(["checkpoint_id", "batch_id", "written_day"])
    )
    commit = pa.Table.from_pylist([{"offsets_partition": 3, "record_offset": 8}], schema=commit.schema)
    append_rows(old, "offset_commits", commit, NEXT_BATCH)
    assert sorted(row["record_offset"] for row in rows(old, "offset_commits")) == [7, 8]
    insert_rows(old, "partition_events", [{"offsets_partition": 3, "event": "unloaded", "log_id": 0}], NEXT_BATCH)
    assert {row["event"] for row in rows(old, "partition_events")} == {"loaded", "unloaded"}


def test_a_job_takes_the_lease_of_older_tables_before_it_upgrades_them(old: PathStore) -> None:
    create_tables(old, CLUSTER, "new")
    lease = Lease.acquire(old)
    assert lease.found.checkpoint_location == "checkpoints/1"
    upgrade_tables(old)
    lease.heartbeat()
    note_history_kept_from(old, WHEN)
    assert lease.read().history_kept_from == WHEN
    note_history_kept_from(old, datetime(2025, 1, 1, tzinfo=UTC))  # an earlier time must not replace a later one
    assert lease.read().history_kept_from == WHEN


def test_an_interrupted_upgrade_is_repeated(old: PathStore) -> None:
    open_again(old)
    DeltaTable(old.table("job_lease")).alter.set_table_properties({PROPERTY: "1"}, raise_if_not_exists=False)
    assert open_again(old) == ["job_lease"]
    assert open_again(old) == []


def test_a_table_that_cannot_be_upgraded_is_refused_and_unchanged(old: PathStore) -> None:
    path, configuration = old.table("groups"), DeltaTable(old.table("groups")).metadata().configuration
    fields = [field for field in DeltaTable(path).schema().fields if field.name != "generation"]
    other = pa.schema(DeltaTable(path).schema()).empty_table().select([field.name for field in fields])
    other = other.append_column("generation", pa.array([], pa.string()))
    DeltaTable.create(path, other.schema, mode="overwrite", configuration=configuration, raise_if_key_not_exists=False)
    versions = [DeltaTable(old.table(name)).version() for name in OLD_TABLES]
    with pytest.raises(TablesError) as raised:
        open_again(old)
    assert "groups" in str(raised.value)
    assert f"(schema version 1) cannot be upgraded to version {SCHEMA_VERSION}: " in str(raised.value)
    assert "generation is STRING, not INT: name another folder with --tables" in str(raised.value)
    assert [DeltaTable(old.table(name)).version() for name in OLD_TABLES] == versions


def test_tables_of_a_newer_version_are_always_refused(current: PathStore) -> None:
    said = rf"has schema version {NEWER}, .* knows versions up to {SCHEMA_VERSION}: upgrade offsetstream"
    make_newer(current, "groups")
    with pytest.raises(TablesError, match=said):
        create_tables(current, CLUSTER, "new")
    with pytest.raises(TablesError, match=said):
        Lookup(current).rows("groups", ["group_id"])
    make_newer(current, "job_lease")
    for ask in (read_lease, request_stop, Lease.acquire):
        with pytest.raises(TablesError, match=said):
            ask(current)
