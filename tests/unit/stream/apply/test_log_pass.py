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

from offsetstream.codec.decoding import DECODED_SCHEMA, decode_records
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.coordinator.reduction import COMMIT_KEY_TYPES
from offsetstream.errors import TablesError
from offsetstream.stream.apply import log_pass
from offsetstream.stream.apply.log_pass import CommitHistory, reduce_log
from offsetstream.tables.files import NewFile, append_files
from offsetstream.tables.filters import NO_FILTERS, Filters
from offsetstream.tables.names import COMMITS, RECORDS, UNDECODABLE
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from tests.spark.log import PARTITIONS, SOME, Record, random_log, raw_rows, some_filtered

DAY = date(2026, 1, 2)
LOG_IDS = {1: 3}
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
    passed = list(reduce_log(batches(log, cuts), None, PARTITIONS))
    cells, others = of_kind(passed, "cell"), of_kind(passed, "other")
    found = by_key(log, cells)
    assert len(cells) == len(found)
    assert found == expected_cells(log)
    of_partitions = Counter(record.offsets_partition for record in log)
    rows = {kind: len(rows) for kind, rows in {"cell": cells, "other": others}.items() if rows}
    assert report(passed)["rows"] == rows
    assert {number: records for number, records, *_ in report(passed)["shares"]} == of_partitions
    of_tables = Counter(record_table(record) for record in log)
    assert {table: count for table, count in report(passed)["tables"].items() if count} == of_tables


@pytest.mark.parametrize("cuts", [(), (3, 40), range(0, 500, 7)])
@pytest.mark.parametrize("has_history", [False, True])
def test_a_filtered_log_equals_a_log_without_the_filtered_records(
    tables: PathStore, cuts: Iterable[int], has_history: bool
) -> None:
    log = random_log(2, 40)
    kept = [record for record in log if not some_filtered(record)]
    assert len(log) / 3 < len(kept) < len(log)

    def passed(records: list[Record], batch: int, filters: Filters) -> list[pa.RecordBatch]:
        commits = history(tables, BatchId(1, batch), {}) if has_history else None
        return list(reduce_log(batches(records, cuts), commits, PARTITIONS, filters))

    found, expected = passed(log, 0, SOME), passed(kept, 1, NO_FILTERS)
    for kind in ("cell", "other"):
        assert by_key(log, of_kind(found, kind)) == by_key(kept, of_kind(expected, kind))
    by_day = [files(each)[0].path if has_history else None for each in (found, expected)]
    if has_history:
        rows = [pq.read_table(Path(tables.table(COMMITS)) / str(path), partitioning=None) for path in by_day]
        assert rows[0].drop(["batch_id"]).to_pylist() == rows[1].drop(["batch_id"]).to_pylist()
    filtered = Counter(record.offsets_partition for record in log if some_filtered(record))
    assert {number: count for number, _, _, count in report(found)["shares"]} == filtered
    assert [share[:2] for share in report(found)["shares"]] == [
        [number, count] for number, count in Counter(record.offsets_partition for record in log).items()
    ]


@pytest.mark.parametrize("limit", ["_MOST_ROWS", "_MOST_BYTES"])
def test_kept_rows_are_bounded(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(log_pass, limit, 1)
    log = random_log(5, 30)
    cells = of_kind(reduce_log(batches(log, range(0, 500, 10)), None, PARTITIONS), "cell")
    last = {key: cell["record_offset"] for key, cell in by_key(log, cells).items()}
    assert last == {key: cell["record_offset"] for key, cell in expected_cells(log).items()}
    assert (len(cells) > len(last)) is (limit == "_MOST_BYTES")


def test_the_first_rows_are_collected_with_the_report_up_to_a_limit_of_bytes() -> None:
    log = random_log(5, 30)
    in_parts = batches(log, range(0, 500, 10))

    def marks(brought_bytes: int) -> list[bool]:
        passed = list(reduce_log(in_parts, None, PARTITIONS, brought_bytes=brought_bytes))
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
    passed = list(reduce_log(batches(log, [7]), None, PARTITIONS))
    for kind, size in report(passed)["bytes"].items():
        rows = of_kind(passed, kind)
        least = sum(len(row[name] or "") for row in rows for name in ("group_id", "key_json", "value_json", "value"))
        assert least < size < 4 * least + 200 * len(rows)


def history(tables: PathStore, batch: BatchId, written: dict[int, int]) -> CommitHistory:
    return CommitHistory(tables.task_writer(COMMITS, batch, DAY), LOG_IDS, written)


def files(passed: Iterable[pa.RecordBatch]) -> list[NewFile]:
    file = report(passed)["file"]
    return [] if file is None else [NewFile(**file)]


def places(tables: PathStore) -> Counter[tuple[int, int, int]]:
    rows = read_rows(tables.open(COMMITS))
    return Counter((row["log_id"], row["offsets_partition"], row["record_offset"]) for row in rows)


@pytest.mark.parametrize("cuts", [(), (3, 40), range(0, 500, 7)])
def test_new_commits_go_to_a_file_and_other_records_to_spark(tables: PathStore, cuts: Iterable[int]) -> None:
    log = random_log(2, 25)
    passed = list(reduce_log(batches(log, cuts), history(tables, BatchId(1, 0), {2: 30}), PARTITIONS))
    others = Counter((row["offsets_partition"], row["record_offset"]) for row in of_kind(passed, "other"))
    assert others == Counter((r.offsets_partition, r.record_offset) for r in log if not is_commit(r))
    append_files(tables, COMMITS, files(passed), BatchId(1, 0))
    append_files(tables, COMMITS, files(passed), BatchId(1, 0))  # the same batch again
    assert places(tables) == Counter(
        (LOG_IDS.get(r.offsets_partition, 0), r.offsets_partition, r.record_offset)
        for r in log
        if is_commit(r) and not (r.offsets_partition == 2 and r.record_offset <= 30)
    )


def test_a_file_has_the_statistics_by_which_readers_skip_it(tables: PathStore) -> None:
    log = [record for record in random_log(2, 25) if is_commit(record)]
    passed = list(reduce_log(batches(log, [7]), history(tables, BatchId(4, 9), {}), PARTITIONS))
    append_files(tables, COMMITS, files(passed), BatchId(4, 9))
    (added,) = pa.table(DeltaTable(tables.table(COMMITS)).get_add_actions(flatten=True)).to_pylist()
    offsets = [record.record_offset for record in log]
    assert (added["num_records"], added["partition.written_day"]) == (len(log), DAY)
    assert (added["min.record_offset"], added["max.record_offset"]) == (min(offsets), max(offsets))
    assert (added["min.offsets_partition"], added["max.offsets_partition"]) == (0, 3)
    assert (added["min.checkpoint_id"], added["max.batch_id"]) == (4, 9)
    assert added["size_bytes"] == (Path(tables.table(COMMITS)) / added["path"]).stat().st_size


def test_without_commits_there_is_no_file(tables: PathStore) -> None:
    log = [record for record in random_log(2, 25) if not is_commit(record)]
    assert files(reduce_log(batches(log, []), history(tables, BatchId(1, 0), {}), PARTITIONS)) == []
    assert files(reduce_log([], history(tables, BatchId(1, 0), {}), PARTITIONS)) == []
    append_files(tables, COMMITS, [], BatchId(1, 0))
    assert DeltaTable(tables.table(COMMITS)).version() == 0


def test_a_file_that_the_driver_cannot_see_is_not_committed(tables: PathStore) -> None:
    """As if Spark's tasks wrote to the disks of other machines."""
    log = [record for record in random_log(2, 25) if is_commit(record)]
    (new,) = files(reduce_log(batches(log, []), history(tables, BatchId(1, 0), {}), PARTITIONS))
    (Path(tables.table(COMMITS)) / new.path).unlink()
    with pytest.raises(TablesError, match="the driver cannot find files that Spark's tasks wrote"):
        append_files(tables, COMMITS, [new], BatchId(1, 0))
    assert DeltaTable(tables.table(COMMITS)).version() == 0
