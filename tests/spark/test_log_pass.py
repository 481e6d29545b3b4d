"""A pass over the log: which rows reach the driver in the reports, and that the driver's own pass finds the same."""

from collections.abc import Generator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from offsetstream.stream import records
from offsetstream.stream.apply import log_pass
from offsetstream.stream.apply.log_pass import HistoryTarget, LogPass, pass_on_driver, pass_over
from offsetstream.stream.records import Part
from offsetstream.tables.names import RECORD_TABLES
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import task_writers
from testkit.tables import new_tables
from tests.spark.log import NO_HISTORY, PARTITIONS, frame, random_log


@pytest.mark.parametrize("records", [0, 40])
def test_small_results_reach_the_driver_unchanged(spark: SparkSession, records: int) -> None:
    target = HistoryTarget({}, {}, {}, is_decoded=True)
    with pass_over(frame(spark, random_log(3, records)), target, PARTITIONS) as passed:
        for part in (passed.cells, passed.of_groups):
            in_spark = part.decoded.toArrow()
            assert part.brought is not None
            assert part.brought.equals(in_spark)
            assert part.brought.num_rows == part.size.rows
            assert bool(part.size.rows) is bool(records)


@pytest.mark.parametrize("brought_bytes", [0, 4000])
def test_incomplete_results_are_not_sent_to_the_driver(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, brought_bytes: int
) -> None:
    log = random_log(3, 40)
    monkeypatch.setattr(log_pass, "_COLLECTED_BYTES", brought_bytes)
    with pass_over(frame(spark, log), NO_HISTORY, PARTITIONS) as passed:
        assert passed.cells.brought is None
        assert passed.cells.decoded.count() == passed.cells.size.rows > 0


def raw(spark: SparkSession, records: int) -> Generator[pa.RecordBatch]:
    """Return a log as the raw reader does, in several batches."""
    yield from frame(spark, random_log(3, records)).toArrow().to_batches(max_chunksize=7)


@pytest.mark.parametrize("held", [0, 1 << 30])
def test_the_drivers_own_pass_finds_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """Also if its results wait in files. Two tasks of Spark would each find a last record of a key."""
    monkeypatch.setattr(records, "few_tasks", lambda _: 1)
    monkeypatch.setattr(log_pass, "_MOST_HELD", held)

    def found(passed: LogPass) -> list[object]:
        return [rows(passed.cells), rows(passed.of_groups), passed.shares, passed.records, passed.written]

    def rows(part: Part) -> list[dict[str, object]]:
        return sorted(part.decoded.toArrow().to_pylist(), key=str)

    places = [new_tables(tmp_path / name) for name in ("tasks", "driver")]
    of_tasks, of_driver = (
        HistoryTarget(task_writers(tables, RECORD_TABLES, BatchId(1, -1)), {}, {}, is_decoded=True) for tables in places
    )
    with pass_over(frame(spark, random_log(3, 200)), of_tasks, PARTITIONS) as passed:
        expected, history = found(passed), {name: (each.count, each.entries) for name, each in passed.history.items()}
    with pass_on_driver(raw(spark, 200), spark, of_driver, PARTITIONS) as passed:
        assert (passed.cells.brought is None) == (held == 0)
        assert found(passed) == expected
        assert {name: (each.count, each.entries) for name, each in passed.history.items()} == history
