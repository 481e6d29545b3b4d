import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from offsetstream.errors import TablesError
from offsetstream.tables.create import create_tables, require_cluster
from offsetstream.tables.lease import Lease, read_lease, request_stop
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import PROPERTY, SCHEMA_VERSION, all_schemas
from offsetstream.views.reader import ViewReader


@pytest.fixture
def tables(tmp_path: Path) -> PathStore:
    """A store without tables."""
    return PathStore(str(tmp_path / "tables"))


def versions(tables: PathStore) -> dict[str, int]:
    return {name: DeltaTable(tables.table(name)).version() for name in all_schemas()}


@pytest.mark.parametrize("name", all_schemas())
def test_a_table_has_its_columns_comments_and_properties(tables: PathStore, name: str) -> None:
    create_tables(tables, "cluster-1", "classic")
    table, schema = DeltaTable(tables.table(name)), all_schemas()[name]
    metadata = table.metadata()
    types = {"INT": "integer", "BIGINT": "long"}
    assert [(field.name, field.type.type, field.nullable, field.metadata) for field in table.schema().fields] == [
        (column.name, types.get(column.type, column.type.lower()), True, {"comment": column.comment})
        for column in schema.columns
    ]
    assert (metadata.name, metadata.description) == (name, schema.comment)
    assert tuple(metadata.partition_columns) == schema.partitioned_by
    assert metadata.configuration == schema.properties | {
        "offsetstream.cluster_id": "cluster-1",
        "offsetstream.coordinator": "classic",
    }


@pytest.mark.parametrize("name", all_schemas())
def test_a_table_has_the_oldest_protocol_and_no_feature(tables: PathStore, name: str) -> None:
    create_tables(tables, "cluster-1", "new")
    protocol = DeltaTable(tables.table(name)).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert (protocol.reader_features, protocol.writer_features) == (None, None)


def test_creating_again_changes_nothing(tables: PathStore) -> None:
    create_tables(tables, "cluster-1", "new")
    create_tables(tables, "cluster-1", "new")
    assert set(versions(tables).values()) == {0}


def test_only_what_is_missing_is_created(tables: PathStore) -> None:
    create_tables(tables, "cluster-1", "new")
    kept = DeltaTable(tables.table("groups")).metadata().id
    shutil.rmtree(tables.table("offset_commits"))
    create_tables(tables, "cluster-1", "new")
    assert DeltaTable(tables.table("groups")).metadata().id == kept
    assert DeltaTable(tables.table("offset_commits")).version() == 0


def test_tables_of_another_cluster_are_refused(tables: PathStore) -> None:
    create_tables(tables, "cluster-1", "new")
    before = versions(tables)
    with pytest.raises(TablesError) as raised:
        create_tables(tables, "cluster-2", "new")
    message = str(raised.value)
    assert "belongs to the cluster cluster-1, but this is the cluster cluster-2" in message
    assert tables.root in message
    assert "\n" not in message
    assert versions(tables) == before


def test_no_table_is_created_if_one_is_refused(tables: PathStore) -> None:
    create_tables(tables, "cluster-1", "new")
    others = [name for name in all_schemas() if name != "undecodable_records"]
    for name in others:
        shutil.rmtree(tables.table(name))
    with pytest.raises(TablesError, match="belongs to the cluster cluster-1"):
        create_tables(tables, "cluster-2", "new")
    assert not any(Path(tables.table(name)).exists() for name in others)


def test_a_delta_table_of_another_program_is_refused(tables: PathStore) -> None:
    DeltaTable.create(tables.table("groups"), schema_of_one_column())
    with pytest.raises(TablesError, match=r"groups/? belongs to the cluster unknown"):
        create_tables(tables, "cluster-1", "new")


def schema_of_one_column() -> Schema:
    return Schema([Field("a", PrimitiveType("string"))])


def test_a_table_that_lacks_a_column_is_refused(tables: PathStore) -> None:
    create_tables(tables, "cluster-1", "new")
    properties = DeltaTable(tables.table("groups")).metadata().configuration
    shutil.rmtree(tables.table("groups"))
    DeltaTable.create(
        tables.table("groups"), schema_of_one_column(), configuration=properties, raise_if_key_not_exists=False
    )
    with pytest.raises(TablesError, match=r"groups/? .*: it lacks the columns assignment_epoch, "):
        create_tables(tables, "cluster-1", "new")


def test_a_table_with_other_types_is_refused_and_unchanged(tables: PathStore) -> None:
    create_tables(tables, "cluster-1", "new")
    table = DeltaTable(tables.table("groups"))
    fields = [field for field in table.schema().fields if field.name != "generation"]
    DeltaTable.create(
        tables.table("groups"),
        Schema([*fields, Field("generation", PrimitiveType("string"))]),
        mode="overwrite",
        partition_by=["group_type"],
        configuration=table.metadata().configuration,
        raise_if_key_not_exists=False,
    )
    before = versions(tables)
    said = "generation is STRING, not INT; it is partitioned by group_type: name another place with --tables"
    with pytest.raises(TablesError, match=rf"groups/? differs from schema version {SCHEMA_VERSION}: {said}"):
        create_tables(tables, "cluster-1", "new")
    assert versions(tables) == before


@pytest.mark.parametrize("name", ["offsets_partitions", "offset_commits"])
def test_a_users_properties_and_comments_survive_each_start(tables: PathStore, name: str) -> None:
    create_tables(tables, "cluster-1", "new")
    table, users = DeltaTable(tables.table(name)), {"delta.logRetentionDuration": "interval 30 days"}
    table.alter.set_table_properties(users)
    table.alter.set_column_metadata("log_id", {"comment": "Ours, said by them"})
    before = versions(tables)
    for _ in range(2):
        create_tables(tables, "cluster-1", "new")
    assert versions(tables) == before


def ask_for_groups(tables: PathStore) -> None:
    Lookup(tables).rows("groups", ["group_id"])


def read_a_view(tables: PathStore) -> None:
    ViewReader(tables).rows("idle_groups")


def start_a_job(tables: PathStore) -> None:
    create_tables(tables, "cluster-1", "new")


@pytest.mark.parametrize("ask", [start_a_job, ask_for_groups, read_a_view, read_lease, request_stop, Lease.acquire])
@pytest.mark.parametrize("version", [str(SCHEMA_VERSION + 1), "0", None])
def test_everybody_refuses_tables_of_another_schema_version(
    tables: PathStore, ask: Callable[[PathStore], object], version: str | None
) -> None:
    create_tables(tables, "cluster-1", "new")
    for name in all_schemas():
        table = DeltaTable(tables.table(name))
        properties = table.metadata().configuration | {PROPERTY: version}
        DeltaTable.create(
            tables.table(name),
            table.schema(),
            mode="overwrite",
            partition_by=table.metadata().partition_columns,
            configuration={key: value for key, value in properties.items() if value},
            raise_if_key_not_exists=False,
        )
    before = versions(tables)
    said = "has no schema version" if version is None else f"has schema version {version}, and this offsetstream knows"
    with pytest.raises(TablesError, match=rf"^the table (file://)?{tables.root}/\w+/? {said}.*--tables[^\n]*$"):
        ask(tables)
    assert versions(tables) == before


def test_look_ups_refuse_tables_of_another_cluster(tables: PathStore) -> None:
    require_cluster(tables, "cluster-2")  # there are no tables yet; the reader reports that
    create_tables(tables, "cluster-1", "new")
    require_cluster(tables, "cluster-1")
    with pytest.raises(TablesError, match="belongs to the cluster cluster-1, but this is the cluster cluster-2"):
        require_cluster(tables, "cluster-2")


def test_a_place_without_write_access_is_reported_in_one_line() -> None:
    with pytest.raises(TablesError, match=r"^cannot create the table .* name another folder with --tables$"):
        create_tables(PathStore("/proc/version/tables"), "cluster-1", "new")
