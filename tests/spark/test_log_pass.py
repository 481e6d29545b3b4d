"""A pass over the log in Spark: which rows reach the driver in the task reports."""

import pytest
from pyspark.sql import SparkSession

from offsetstream.stream.apply import log_pass
from offsetstream.stream.apply.log_pass import HistoryTarget, pass_over
from tests.spark.log import PARTITIONS, frame, random_log


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
    with pass_over(frame(spark, log), None, PARTITIONS) as passed:
        assert passed.cells.brought is None
        assert passed.cells.decoded.count() == passed.cells.size.rows > 0
