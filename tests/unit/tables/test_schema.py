import json
from importlib import resources
from typing import get_args

import pytest

from offsetstream.tables.names import (
    CLUSTER,
    DECODED_LOGS,
    DECODED_TABLES,
    END_OFFSETS,
    JOB_LEASE,
    LEDGER,
    OFFSETS_PARTITIONS,
    PARTITION_EVENTS,
    RECORD_TABLES,
    STATE_TABLES,
    TOPIC_PARTITIONS,
    TOPICS,
    LoadState,
)
from offsetstream.tables.schema import TableSchema, all_schemas, load_schema

SCHEMAS = list(all_schemas().values())
FROM_THE_LOG = {"offsets_partition", "record_offset", "record_timestamp", "log_id"}
WHO_WROTE = ("checkpoint_id", "batch_id", "written_day")

every_table = pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)


def test_each_table_has_a_name_and_a_file_named_after_it() -> None:
    of_ends = (TOPIC_PARTITIONS, END_OFFSETS, CLUSTER)
    others = (OFFSETS_PARTITIONS, PARTITION_EVENTS, TOPICS, JOB_LEASE, LEDGER, DECODED_LOGS, *of_ends)
    assert sorted([*STATE_TABLES, *RECORD_TABLES, *DECODED_TABLES, *others]) == sorted(all_schemas())
    folder = resources.files("offsetstream.tables") / "schemas"
    files = [file for file in folder.iterdir() if file.name.endswith(".json")]
    assert {json.loads(file.read_text("utf-8"))["name"] + ".json" for file in files} == {file.name for file in files}
    assert len(files) == len(SCHEMAS)


def test_each_load_state_is_in_the_schema() -> None:
    (comment,) = [column.comment for column in load_schema(OFFSETS_PARTITIONS).columns if column.name == "load_state"]
    assert sorted(comment.replace(" or ", ", ").split(", ")) == sorted(get_args(LoadState))


@every_table
def test_columns_are_explained_and_have_names_that_need_no_quotes(schema: TableSchema) -> None:
    assert schema.comment
    assert all(column.comment for column in schema.columns)
    assert len(set(schema.column_names)) == len(schema.columns)
    assert not {"offset", "group", "end"} & set(schema.column_names)  # DuckDB and others reject these without quotes
    assert tuple(schema.arrow.names) == schema.column_names


@every_table
def test_a_table_is_state_with_a_key_or_history_that_says_who_wrote_it(schema: TableSchema) -> None:
    assert set(schema.key) <= set(schema.column_names)
    with_statistics = schema.properties.get("delta.dataSkippingStatsColumns", "")
    assert set(filter(None, with_statistics.split(","))) <= set(schema.column_names)
    if schema.kind == "state":
        assert schema.key
        assert schema.partitioned_by == ()
        assert schema.properties["delta.enableDeletionVectors"] == "false"
        assert schema.properties["delta.columnMapping.mode"] == "none"
    else:
        assert schema.kind == "history"
        assert schema.column_names[-3:] == WHO_WROTE
        assert schema.partitioned_by == ("written_day",)


def test_rows_from_the_log_say_where_they_are_from() -> None:
    for name in ("committed_offsets", "offset_commits", "group_cells", "group_records", "undecodable_records"):
        assert set(load_schema(name).column_names) >= FROM_THE_LOG


def test_keys_begin_with_the_offsets_partition_since_a_group_may_be_in_two() -> None:
    for name in ("committed_offsets", "groups", "group_members", "member_assignments", "group_cells"):
        assert load_schema(name).key[0] == "offsets_partition"
