"""The history tables have every record of a log (tests/spark/log.py) once, whatever is repeated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from offsetstream.codec import decode_records
from offsetstream.stream.apply.history import History, history_positions
from offsetstream.stream.apply.log_pass import pass_over
from offsetstream.stream.records import collect
from offsetstream.tables.ledger import greatest_offsets
from offsetstream.tables.names import LEDGER, RECORD_TABLES
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter
from offsetstream.verify.ledger import ledger_differences
from tests.spark.log import PARTITIONS, Record, decode, frame, random_log

Way = Literal["small", "pass"]  # by the driver alone, or by tasks in a pass over the log
every_way = pytest.mark.parametrize("way", ["small", "pass"])
LOG_IDS = {0: 0, 1: 3, 2: 1, 3: 0}
BEFORE = datetime.now(UTC).date()


def rows(tables: PathStore, name: str) -> list[dict[str, Any]]:
    return read_rows(tables.open(name))


def places(tables: PathStore) -> dict[str, Counter[tuple[int, int]]]:
    return {
        name: Counter((row["offsets_partition"], row["record_offset"]) for row in rows(tables, name))
        for name in RECORD_TABLES
    }


def table_of(record: Record) -> str:
    if not record.key_json:
        return "undecodable_records"
    return "offset_commits" if record.key_type in (0, 1) else "group_records"


def expected_places(log: Iterable[Record]) -> dict[str, Counter[tuple[int, int]]]:
    found: dict[str, Counter[tuple[int, int]]] = {name: Counter() for name in RECORD_TABLES}
    for record in log:
        found[table_of(record)][record.offsets_partition, record.record_offset] += 1
    return found


def greatest(log: Iterable[Record], table: str) -> dict[int, int]:
    own = [record for record in log if table_of(record) == table]
    return {record.offsets_partition: record.record_offset for record in own}  # they are in order


def append(
    history: History,
    spark: SparkSession,
    log: Iterable[Record],
    batch: BatchId,
    way: Way = "small",
) -> None:
    decoded = decode(frame(spark, log), PARTITIONS)
    if way != "small":
        with pass_over(frame(spark, log), history.target(batch), PARTITIONS) as passed:
            history.append_passed(passed, batch)()
    else:
        history.append_uncounted(collect(decoded), batch)()


@every_way
def test_a_record_is_appended_once_whatever_is_repeated(
    spark: SparkSession, writer: TableWriter, tables: PathStore, way: Way
) -> None:
    log = random_log(4, 25)
    first = [record for record in log if record.record_offset < 40]
    history = History(writer, LOG_IDS, {})
    assert history_positions(greatest_offsets(writer.tables, "offset_commits"), LOG_IDS) == {}
    append(history, spark, first, BatchId(1, 0), way)
    assert places(tables) == expected_places(first)
    append(history, spark, first, BatchId(1, 0), way)  # the same batch again
    assert places(tables) == expected_places(first)

    # The next job starts with a load, which reads everything again.
    positions = {table: history_positions(greatest_offsets(writer.tables, table), LOG_IDS) for table in RECORD_TABLES}
    assert positions == {table: greatest(first, table) for table in RECORD_TABLES}
    append(History(writer, LOG_IDS, positions), spark, log, BatchId(2, -1), way)
    assert places(tables) == expected_places(log)
    found = rows(tables, "offset_commits")
    batches = {(row["checkpoint_id"], row["batch_id"], row["record_offset"] < 40) for row in found}
    assert batches == {(1, 0, True), (2, -1, False)}
    assert ledger_differences(tables, checksums=True) == []
    counted = Counter(
        {name: sum(row["rows"] for row in rows(tables, LEDGER) if row["history"] == name) for name in places(tables)}
    )
    assert counted == {name: own.total() for name, own in expected_places(log).items()}


def test_positions_are_in_the_current_log_above_the_applied_offset(spark: SparkSession, writer: TableWriter) -> None:
    commits = "offset_commits"
    log = [record for record in random_log(4, 25) if table_of(record) == commits]
    last = greatest(log, commits)

    def positions(log_ids: dict[int, int], above: int = 0) -> dict[int, int]:
        return history_positions(greatest_offsets(writer.tables, commits, above), log_ids)

    append(History(writer, LOG_IDS, {}), spark, log, BatchId(1, -1))
    assert positions(LOG_IDS) == last
    above = sorted(last.values())[2]
    assert positions(LOG_IDS, above) == {partition: at for partition, at in last.items() if at >= above}
    # A partition with a new log starts again, whatever the offsets of the old log were.
    other = LOG_IDS | {1: 4}
    assert positions(other) == {partition: at for partition, at in last.items() if partition != 1}
    append(History(writer, other, {commits: positions(other)}), spark, log, BatchId(2, -1))
    ids = Counter((row.offsets_partition, row.log_id) for row in writer.rows(commits).collect())
    count = Counter(record.offsets_partition for record in log)
    assert ids == {(0, 0): count[0], (1, 3): count[1], (1, 4): count[1], (2, 1): count[2], (3, 0): count[3]}


@every_way
def test_records_missing_from_an_interrupted_batch_are_found(
    spark: SparkSession, writer: TableWriter, way: Way
) -> None:
    """Its leader's log was compacted further than the log of the broker that serves the records now."""
    log = random_log(6, 25)
    given = [record for record in log if record.offsets_partition != 2 or record.record_offset % 5]
    append(History(writer, LOG_IDS, {}), spark, given, BatchId(1, 0), "small")
    positions = {table: greatest(given, table) for table in RECORD_TABLES}
    history, decoded = History(writer, LOG_IDS, positions), decode(frame(spark, log), PARTITIONS)
    starts, ends = dict.fromkeys(LOG_IDS, 0), dict.fromkeys(LOG_IDS, max(record.record_offset for record in log) + 1)
    hidden = [record for record in log if record not in given]
    assert any(positions[table_of(record)][2] > record.record_offset for record in hidden)
    read: Callable[[str], Mapping[int, int]] = partial(history.already_in, decoded=collect(decoded))
    if way != "small":
        with pass_over(frame(spark, log), history.target(BatchId(2, 0)), PARTITIONS) as passed:
            read = passed.written.__getitem__
    assert history.lacks(read, starts, ends) == {2}
    assert history.lacks(read, ends, ends) == set()  # all records are applied
    assert History(writer, LOG_IDS, {}).lacks(read, starts, ends) == set()  # it will be appended

    no_history = History(writer, LOG_IDS, positions, ["offset_commits"])
    assert no_history.lacks(read, starts, ends) == set()

    last = max(record.record_offset for record in hidden)
    later = decode(frame(spark, [record for record in log if record.record_offset > last]), PARTITIONS)
    of_later = partial(history.already_in, decoded=collect(later))
    assert history.lacks(of_later, dict.fromkeys(LOG_IDS, last + 1), ends) == set()


@every_way
def test_a_row_has_the_content_of_its_record(
    spark: SparkSession, writer: TableWriter, tables: PathStore, way: Way
) -> None:
    log = random_log(9, 15)
    append(History(writer, LOG_IDS, {}), spark, log, BatchId(5, 6), way)
    records = {(record.offsets_partition, record.record_offset): record for record in log}
    for name in RECORD_TABLES:
        found = rows(tables, name)
        assert found
        for row in found:
            record = records[row["offsets_partition"], row["record_offset"]]
            assert round(row["record_timestamp"].timestamp() * 1000) == record.timestamp_ms
            assert row["log_id"] == LOG_IDS[record.offsets_partition]
            assert (row["checkpoint_id"], row["batch_id"]) == (5, 6)
            assert BEFORE <= row["written_day"] <= datetime.now(UTC).date()
            assert row_content(name, row) == record_content(name, record)


def row_content(name: str, row: dict[str, Any]) -> dict[str, Any]:
    if name == "undecodable_records":
        return {"key": row["key_bytes"], "value": row["value_bytes"], "reason": row["reason"]}
    same = {
        "value_bytes": row["value_bytes"],
        "is_tombstone": row["is_tombstone"],
        "value_version": row["value_version"],
    }
    if name == "group_records":
        json_of = {half: json.loads(row[half]) if row[half] else None for half in ("key_json", "value_json")}
        return same | json_of | {"key_type": row["key_type"], "group_id": row["group_id"]}
    columns = ("group_id", "topic", "partition", "committed_offset", "metadata", "commit_timestamp_ms", "key_version")
    return same | {column: row[column] for column in columns}


def record_content(name: str, record: Record) -> dict[str, Any]:
    if name == "undecodable_records":
        reason = decode_records(pa.array([record.key], pa.binary()), pa.array([record.value], pa.binary()))
        return {"key": record.key, "value": record.value, "reason": reason.column("error")[0].as_py()}
    key, value = record.key_json["data"], record.value_json
    same = {
        "value_bytes": None if record.value is None else len(record.value),
        "is_tombstone": value is None,
        "value_version": value["version"] if value else None,
    }
    if name == "group_records":
        group = key["group"] if "group" in key else key["groupId"]
        return same | {"key_json": record.key_json, "value_json": value, "key_type": record.key_type, "group_id": group}
    data = value["data"] if value else {"offset": None, "metadata": None, "commitTimestamp": None}
    return same | {
        "group_id": key["group"],
        "topic": key["topic"],
        "partition": key["partition"],
        "committed_offset": data["offset"],
        "metadata": data["metadata"],
        "commit_timestamp_ms": data["commitTimestamp"],
        "key_version": record.key_type,
    }
