"""One task of a pass over the log, without Spark, compared with a plain loop over the records."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetstream.codec.decoding import COMMIT_KEY_TYPES, DECODED_SCHEMA, decode_records
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.errors import TablesError
from offsetstream.stream.apply import log_pass
from offsetstream.stream.apply.log_pass import HistoryTarget, reduce_log
from offsetstream.tables.filters import NO_FILTERS, Filters
from offsetstream.tables.names import COMMITS, RECORD_TABLES, RECORDS, UNDECODABLE
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.task_rows import TaskRows
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import append_from_tasks
from tests.spark.log import PARTITIONS, SOME, Record, random_log, raw_rows, some_filtered

DAY = date(2026, 1, 2)
LOG_IDS = {1: 3}
ONLY_DECODED, NOTHING = (HistoryTarget({}, {}, {}, is_decoded=each) for each in (True, False))
OFFSETS = ("record_offset", "value_offset", "tombstone_offset")


def batches(log: Iterable[Record], cuts: Iterable[int]) -> list[pa.RecordBatch]:
    rows = raw_rows(log)
    ends = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    return [batch for a, b in pairwise(ends) for batch in rows.slice(a, b - a).to_batches()]


def of_kind(passed: Iterable[pa.RecordBatch], kind: str) -> list[dict[str, Any]]:
    return [row for batch in passed for row in batch.to_pylist() if row["kind"] == kind]


def is_commit(record: Record) -> bool:
    return bool(record.key_json) and record.key_type in {0, 1}


def expected_cells(log: Iterable[Record]) -> dict[tuple[int, bytes | None], dict[str, Any]]:
    found: dict[tuple[int, bytes | None], dict[str, Any]] = {}
    log = list(log)
    whole = decode_records([record.key for record in log], [record.value for record in log]).to_pylist()
    for record, decoded in zip(log, whole, strict=True):
        if record.key_json:
            cell = found.setdefault((record.offsets_partition, record.key), dict.fromkeys(OFFSETS))
            cell["value_offset" if record.value is not None else "tombstone_offset"] = record.record_offset
            cell["record_offset"] = record.record_offset
            home = partition_for(decoded["group_id"], PARTITIONS)
            cell |= decoded | {"in_coordinator_partition": home == record.offsets_partition}
            found[record.offsets_partition, record.key] = cell
    return found


def by_key(log: Iterable[Record], cells: Iterable[dict[str, Any]]) -> dict[tuple[int, bytes | None], dict[str, Any]]:
    keys = {(record.offsets_partition, record.record_offset): record.key for record in log}
    found = {}
    for row in cells:
        place = (row["offsets_partition"], row["record_offset"])
        columns = (*OFFSETS, *DECODED_SCHEMA.names, "in_coordinator_partition")
        found[place[0], keys[place]] = {name: row[name] for name in columns}
    return found  # the later one wins


def record_table(record: Record) -> str:
    if not record.key_json:
        return UNDECODABLE
    return COMMITS if record.key_type in COMMIT_KEY_TYPES else RECORDS


def report(passed: Iterable[pa.RecordBatch]) -> dict[str, Any]:
    (row,) = of_kind(passed, "report")
    found: dict[str, Any] = json.loads(row["report"])
    return found


@given(st.integers(0, 1000), st.lists(st.integers(0, 10_000), max_size=5))
@settings(max_examples=30)
def test_the_last_record_of_each_key_is_kept(seed: int, cuts: list[int]) -> None:
    log = random_log(seed, 20)
    passed = list(reduce_log(batches(log, cuts), NOTHING, PARTITIONS))
    cells = of_kind(passed, "cell")
    found = by_key(log, cells)
    assert len(cells) == len(found)
    assert found == expected_cells(log)
    of_partitions = Counter(record.offsets_partition for record in log)
    assert report(passed)["rows"] == ({"cell": len(cells)} if cells else {})
    assert {row["kind"] for each in passed for row in each.to_pylist()} <= {"cell", "report"}
    assert {number: records for number, records, *_ in report(passed)["shares"]} == of_partitions
    of_tables = Counter(record_table(record) for record in log)
    assert {table: count for table, count in report(passed)["records"].items() if count} == of_tables


@pytest.mark.parametrize("cuts", [(), (3, 40), range(0, 500, 7)])
@pytest.mark.parametrize("has_history", [False, True])
def test_a_filtered_log_equals_a_log_without_the_filtered_records(
    tables: PathStore, cuts: Iterable[int], has_history: bool
) -> None:
    log = random_log(2, 40)
    kept = [record for record in log if not some_filtered(record)]
    assert len(log) / 3 < len(kept) < len(log)

    def passed(records: list[Record], batch: int, filters: Filters) -> list[pa.RecordBatch]:
        commits = history(tables, BatchId(1, batch), {}) if has_history else NOTHING
        return list(reduce_log(batches(records, cuts), commits, PARTITIONS, filters))

    found, expected = passed(log, 0, SOME), passed(kept, 1, NO_FILTERS)
    for kind in ("cell", "group record"):
        assert by_key(log, of_kind(found, kind)) == by_key(kept, of_kind(expected, kind))
    for table in RECORD_TABLES if has_history else ():
        paths = [Path(tables.table(table)) / made(each, table).files[0].path for each in (found, expected)]
        rows = [pq.read_table(path, partitioning=None).drop(["batch_id"]).to_pylist() for path in paths]
        assert rows[0] == rows[1]
    filtered = Counter(record.offsets_partition for record in log if some_filtered(record))
    assert {number: count for number, _, _, count in report(found)["shares"]} == filtered
    assert [share[:2] for share in report(found)["shares"]] == [
        [number, count] for number, count in Counter(record.offsets_partition for record in log).items()
    ]


@pytest.mark.parametrize("limit", ["_MOST_ROWS", "_MOST_BYTES"])
def test_kept_rows_are_bounded(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(log_pass, limit, 1)
    log = random_log(5, 30)
    cells = of_kind(reduce_log(batches(log, range(0, 500, 10)), NOTHING, PARTITIONS), "cell")
    last = {key: cell["record_offset"] for key, cell in by_key(log, cells).items()}
    assert last == {key: cell["record_offset"] for key, cell in expected_cells(log).items()}
    assert (len(cells) > len(last)) is (limit == "_MOST_BYTES")


def test_the_first_rows_are_collected_with_the_report_up_to_a_limit_of_bytes() -> None:
    log = random_log(5, 30)
    in_parts = batches(log, range(0, 500, 10))

    def marks(brought_bytes: int) -> list[bool]:
        passed = list(reduce_log(in_parts, ONLY_DECODED, PARTITIONS, brought_bytes=brought_bytes))
        assert [row["collected_with_report"] for row in of_kind(passed, "report")] == [True]
        rows = [row for batch in passed for row in batch.to_pylist() if row["kind"] != "report"]
        return [row["collected_with_report"] for row in rows]

    all_rows = len(marks(0))
    counts = [sum(marks(brought)) for brought in (0, 2000, 5000, 1 << 20)]
    assert counts == sorted(counts)
    assert counts[0] == 0 < counts[1] < counts[2] < counts[3] == all_rows
    assert marks(5000) == [True] * counts[2] + [False] * (all_rows - counts[2])


def test_bytes_count_the_text_columns() -> None:
    log = random_log(5, 30)
    passed = list(reduce_log(batches(log, [7]), ONLY_DECODED, PARTITIONS))
    for kind, size in report(passed)["bytes"].items():
        rows = of_kind(passed, kind)
        least = sum(len(row[name] or "") for row in rows for name in ("group_id", "key_json", "value_json"))
        assert least < size < 4 * least + 200 * len(rows)


def history(tables: PathStore, batch: BatchId, written: dict[int, int]) -> HistoryTarget:
    writers = {table: tables.task_writer(table, batch.signature(DAY)) for table in RECORD_TABLES}
    return HistoryTarget(writers, LOG_IDS, dict.fromkeys(RECORD_TABLES, written), is_decoded=True)


def made(passed: Iterable[pa.RecordBatch], table: str = COMMITS) -> TaskRows:
    return TaskRows.of([report(passed)["history"][table]])


def places(tables: PathStore, table: str) -> Counter[tuple[int, int, int]]:
    rows = read_rows(tables.open(table))
    return Counter((row["log_id"], row["offsets_partition"], row["record_offset"]) for row in rows)


@pytest.mark.parametrize("cuts", [(), (3, 40), range(0, 500, 7)])
def test_new_records_go_to_files_and_those_of_groups_to_spark_too(tables: PathStore, cuts: Iterable[int]) -> None:
    log = random_log(2, 25)
    passed = list(reduce_log(batches(log, cuts), history(tables, BatchId(1, 0), {2: 30}), PARTITIONS))
    of_groups = Counter((row["offsets_partition"], row["record_offset"]) for row in of_kind(passed, "group record"))
    assert of_groups == Counter((r.offsets_partition, r.record_offset) for r in log if record_table(r) == RECORDS)
    written = Counter[tuple[str, int]]()
    for table in RECORD_TABLES:
        for _ in range(2):  # the same batch again
            append_from_tasks(tables, table, made(passed, table), BatchId(1, 0))
        own = [record for record in log if record_table(record) == table]
        new = [record for record in own if not (record.offsets_partition == 2 and record.record_offset <= 30)]
        assert places(tables, table) == Counter(
            (LOG_IDS.get(r.offsets_partition, 0), r.offsets_partition, r.record_offset) for r in new
        )
        assert sum(entry.rows for entry in made(passed, table).entries) == len(new)
        written += Counter({(table, 2): len(own) - len(new)})
    assert Counter({(table, number): count for table, number, count in report(passed)["written"]}) == written


def test_without_a_history_only_undecodable_records_are_written(tables: PathStore) -> None:
    log = random_log(2, 25)
    writers = {UNDECODABLE: tables.task_writer(UNDECODABLE, BatchId(1, 0).signature(DAY))}
    passed = list(reduce_log(batches(log, [7]), HistoryTarget(writers, LOG_IDS, {}, is_decoded=False), PARTITIONS))
    assert {row["kind"] for each in passed for row in each.to_pylist()} == {"cell", "report"}
    assert made(passed, UNDECODABLE).count == len([record for record in log if record_table(record) == UNDECODABLE]) > 0
    assert report(passed)["history"].keys() == {UNDECODABLE}


def test_a_file_has_the_statistics_by_which_readers_skip_it(tables: PathStore) -> None:
    log = [record for record in random_log(2, 25) if is_commit(record)]
    passed = list(reduce_log(batches(log, [7]), history(tables, BatchId(4, 9), {}), PARTITIONS))
    append_from_tasks(tables, COMMITS, made(passed), BatchId(4, 9))
    (added,) = pa.table(DeltaTable(tables.table(COMMITS)).get_add_actions(flatten=True)).to_pylist()
    offsets = [record.record_offset for record in log]
    assert (added["num_records"], added["partition.written_day"]) == (len(log), DAY)
    assert (added["min.record_offset"], added["max.record_offset"]) == (min(offsets), max(offsets))
    assert (added["min.offsets_partition"], added["max.offsets_partition"]) == (0, 3)
    assert (added["min.checkpoint_id"], added["max.batch_id"]) == (4, 9)
    assert added["size_bytes"] == (Path(tables.table(COMMITS)) / added["path"]).stat().st_size


def test_without_commits_there_is_no_file(tables: PathStore) -> None:
    log = [record for record in random_log(2, 25) if not is_commit(record)]
    for raw in (batches(log, []), []):
        none = made(reduce_log(raw, history(tables, BatchId(1, 0), {}), PARTITIONS))
        assert none == TaskRows()
        append_from_tasks(tables, COMMITS, none, BatchId(1, 0))
    assert DeltaTable(tables.table(COMMITS)).version() == 0


def test_a_file_that_the_driver_cannot_see_is_not_committed(tables: PathStore) -> None:
    """As if Spark's tasks wrote to the disks of other machines."""
    log = [record for record in random_log(2, 25) if is_commit(record)]
    rows = made(reduce_log(batches(log, []), history(tables, BatchId(1, 0), {}), PARTITIONS))
    (Path(tables.table(COMMITS)) / rows.files[0].path).unlink()
    with pytest.raises(TablesError, match="the driver cannot find files that Spark's tasks wrote"):
        append_from_tasks(tables, COMMITS, rows, BatchId(1, 0))
    assert DeltaTable(tables.table(COMMITS)).version() == 0
