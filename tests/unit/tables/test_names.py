from typing import get_args

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
from offsetstream.tables.schema import all_schemas, load_schema


def test_each_table_has_a_name() -> None:
    of_ends = (TOPIC_PARTITIONS, END_OFFSETS, CLUSTER)
    others = (OFFSETS_PARTITIONS, PARTITION_EVENTS, TOPICS, JOB_LEASE, LEDGER, DECODED_LOGS, *of_ends)
    assert sorted([*STATE_TABLES, *RECORD_TABLES, *DECODED_TABLES, *others]) == sorted(all_schemas())


def test_each_load_state_is_in_the_schema() -> None:
    (comment,) = [column.comment for column in load_schema(OFFSETS_PARTITIONS).columns if column.name == "load_state"]
    assert sorted(comment.replace(" or ", ", ").split(", ")) == sorted(get_args(LoadState))
