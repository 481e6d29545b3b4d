"""What a task makes of its part of a log, without Spark: against a plain loop over the records."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetstream.stream import log_pass
from offsetstream.stream.log_pass import COMMITS, CommitHistory, reduce_log
from offsetstream.tables.create import create_tables
from offsetstream.tables.files import FileWriter, NewFile, append_files
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.small import read_rows
from offsetstream.tables.transaction import BatchId
from tests.spark.log import RAW, Record, random_log

DAY = date(2026, 1, 2)
LOG_IDS = {1: 3}


def batches(log: Iterable[Record], cuts: Iterable[int]) -> list[pa.RecordBatch]:
    rows = [
        {
            "offsets_partition": record.offsets_partition,
            "record_offset": record.record_offset,
            "record_timestamp": record.timestamp_ms * 1000,
            "key": record.key,
            "value": record.value,
        }
        for record in log
    ]
    ends = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    return [pa.RecordBatch.from_pylist(rows[a:b], schema=RAW) for a, b in pairwise(ends)]


def of_kind(passed: Iterable[pa.RecordBatch], kind: str) -> list[dict[str, Any]]:
    return [row for batch in passed for row in batch.to_pylist() if row["kind"] == kind]


def is_commit(record: Record) -> bool:
    return bool(record.key_json) and record.key_type in {0, 1}


def expected_cells(log: Iterable[Record]) -> dict[tuple[int, bytes | None], tuple[Any, ...]]:
    found: dict[tuple[int, bytes | None], tuple[Any, ...]] = {}
    for record in log:
        if record.key_json:
            _, _, values, tombstones, count = found.get(
                (record.offsets_partition, record.key), (None, None, None, None, 0)
            )
            if record.value is None:
                tombstones = record.record_offset
            else:
                values = record.record_offset
            now = (record.record_offset, record.value, values, tombstones, count + 1)
            found[record.offsets_partition, record.key] = now
    return found


@given(st.integers(0, 1000), st.lists(st.integers(0, 10_000), max_size=5))
@settings(max_examples=30)
def test_the_last_of_each_key_is_kept(seed: int, cuts: list[int]) -> None:
    log = random_log(seed, 20)
    cells = of_kind(reduce_log(batches(log, cuts), None), "cell")
    found = {
        (row["offsets_partition"], row["key"]): tuple(
            row[name] for name in ("record_offset", "value", "value_offset", "tombstone_offset", "records")
        )
        for row in cells
    }
    assert len(cells) == len(found)
    assert found == expected_cells(log)


@pytest.mark.parametrize("limit", ["_MOST_ROWS", "_MOST_BYTES"])
def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(log_pass, limit, 1)
    log = random_log(5, 30)
    cells = of_kind(reduce_log(batches(log, range(0, 500, 10)), None), "cell")
    assert sum(row["records"] for row in cells) == sum(bool(record.key_json) for record in log)
    last = {(row["offsets_partition"], row["key"]): row["record_offset"] for row in cells}  # the later one wins
    assert last == {key: cell[0] for key, cell in expected_cells(log).items()}
    assert (len(cells) > len(last)) is (limit == "_MOST_BYTES")


@pytest.fixture
def tables(tmp_path: Path) -> TablesLocation:
    location = TablesLocation(str(tmp_path))
    create_tables(location, "cluster-1", "new")
    return location


def history(tables: TablesLocation, batch: BatchId, written: dict[int, int]) -> CommitHistory:
    return CommitHistory(FileWriter(tables, COMMITS, batch, DAY), LOG_IDS, written)


def files(passed: Iterable[pa.RecordBatch]) -> list[NewFile]:
    return [NewFile(**json.loads(row["file"])) for row in of_kind(passed, "file")]


def places(tables: TablesLocation) -> Counter[tuple[int, int, int]]:
    rows = read_rows(DeltaTable(tables.table(COMMITS)))
    return Counter((row["log_id"], row["offsets_partition"], row["record_offset"]) for row in rows)


@pytest.mark.parametrize("cuts", [(), (3, 40), range(0, 500, 7)])
def test_each_commit_that_is_new_is_in_a_file_and_all_others_go_on(tables: TablesLocation, cuts: Iterable[int]) -> None:
    log = random_log(2, 25)
    passed = list(reduce_log(batches(log, cuts), history(tables, BatchId(1, 0), {2: 30})))
    others = Counter((row["offsets_partition"], row["record_offset"]) for row in of_kind(passed, "other"))
    assert others == Counter((r.offsets_partition, r.record_offset) for r in log if not is_commit(r))
    assert sum(row["records"] for row in of_kind(passed, "other")) == sum(not record.key_json for record in log)
    append_files(tables, COMMITS, files(passed), BatchId(1, 0))
    append_files(tables, COMMITS, files(passed), BatchId(1, 0))  # the same batch again
    assert places(tables) == Counter(
        (LOG_IDS.get(r.offsets_partition, 0), r.offsets_partition, r.record_offset)
        for r in log
        if is_commit(r) and not (r.offsets_partition == 2 and r.record_offset <= 30)
    )


def test_a_file_says_what_readers_skip_it_by(tables: TablesLocation) -> None:
    log = [record for record in random_log(2, 25) if is_commit(record)]
    passed = list(reduce_log(batches(log, [7]), history(tables, BatchId(4, 9), {})))
    append_files(tables, COMMITS, files(passed), BatchId(4, 9))
    (added,) = pa.table(DeltaTable(tables.table(COMMITS)).get_add_actions(flatten=True)).to_pylist()
    offsets = [record.record_offset for record in log]
    assert (added["num_records"], added["partition.written_day"]) == (len(log), DAY)
    assert (added["min.record_offset"], added["max.record_offset"]) == (min(offsets), max(offsets))
    assert (added["min.offsets_partition"], added["max.offsets_partition"]) == (0, 3)
    assert (added["min.checkpoint_id"], added["max.batch_id"]) == (4, 9)
    assert added["size_bytes"] == (Path(tables.table(COMMITS)) / added["path"]).stat().st_size


def test_without_commits_there_is_no_file(tables: TablesLocation) -> None:
    log = [record for record in random_log(2, 25) if not is_commit(record)]
    assert files(reduce_log(batches(log, []), history(tables, BatchId(1, 0), {}))) == []
    assert files(reduce_log([], history(tables, BatchId(1, 0), {}))) == []
    append_files(tables, COMMITS, [], BatchId(1, 0))
    assert DeltaTable(tables.table(COMMITS)).version() == 0
