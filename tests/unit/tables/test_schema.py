import json
from importlib import resources

import pytest

from offsetstream.tables.schema import ColumnSchema, TableSchema, all_schemas, load_schema

SCHEMAS = list(all_schemas().values())
FROM_THE_LOG = {"offsets_partition", "record_offset", "record_timestamp", "log_id"}
WHO_WROTE = ("checkpoint_id", "batch_id", "written_day")

every_table = pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)


def test_the_tables_of_the_first_job_are_there() -> None:
    wanted = "committed_offsets offset_commits groups group_members member_assignments offsets_partitions "
    assert set((wanted + "partition_events undecodable_records").split()) <= set(all_schemas())


def test_each_file_is_named_after_its_table() -> None:
    folder = resources.files("offsetstream.tables") / "schemas"
    files = [file for file in folder.iterdir() if file.name.endswith(".json")]
    assert {json.loads(file.read_text("utf-8"))["name"] + ".json" for file in files} == {file.name for file in files}
    assert len(files) == len(SCHEMAS)


@every_table
def test_a_table_and_each_of_its_columns_is_explained(schema: TableSchema) -> None:
    assert schema.comment
    assert all(column.comment for column in schema.columns)


@every_table
def test_columns_have_names_of_their_own_and_the_key_is_among_them(schema: TableSchema) -> None:
    assert len(set(schema.column_names)) == len(schema.columns)
    assert set(schema.key) <= set(schema.column_names)
    assert not {"offset", "group", "end"} & set(schema.column_names)  # DuckDB and others reject these without quotes


@every_table
def test_arrow_has_every_column_in_its_order(schema: TableSchema) -> None:
    assert tuple(schema.arrow.names) == schema.column_names


@every_table
def test_a_table_is_state_with_a_key_or_history_that_says_who_wrote_it(schema: TableSchema) -> None:
    if schema.kind == "state":
        assert schema.key
        assert schema.partitioned_by == ()
        assert schema.properties["delta.enableDeletionVectors"] == "false"
        assert schema.properties["delta.columnMapping.mode"] == "none"
    else:
        assert schema.kind == "history"
        assert schema.column_names[-3:] == WHO_WROTE
        assert schema.partitioned_by == ("written_day",)


@every_table
def test_columns_with_statistics_exist(schema: TableSchema) -> None:
    named = schema.properties.get("delta.dataSkippingStatsColumns", "")
    assert set(filter(None, named.split(","))) <= set(schema.column_names)


def test_rows_from_the_log_say_where_they_are_from() -> None:
    for name in ("committed_offsets", "offset_commits", "group_cells", "group_records", "undecodable_records"):
        assert set(load_schema(name).column_names) >= FROM_THE_LOG


def test_keys_begin_with_the_offsets_partition_since_a_group_may_be_in_two() -> None:
    for name in ("committed_offsets", "groups", "group_members", "member_assignments", "group_cells"):
        assert load_schema(name).key[0] == "offsets_partition"


def test_one_table_by_its_name() -> None:
    column = load_schema("committed_offsets").columns[0]
    assert column == ColumnSchema("offsets_partition", "INT", column.comment)
    with pytest.raises(KeyError, match="no_such_table"):
        load_schema("no_such_table")
