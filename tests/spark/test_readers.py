"""Text filters in Spark find the driver's rows, as in the engines without a JVM (tests/unit/tables)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from testkit.engines import require_that_all_read
from testkit.tables import new_tables
from tests.unit.tables.small_writes import WRITES

pytestmark = pytest.mark.long


@pytest.mark.nightly
def test_spark_filters_the_rows_of_every_write(spark: SparkSession, tmp_path: Path) -> None:
    def by_spark(path: str, column: str, text: str) -> int:
        return spark.read.format("delta").load(path).filter(F.col(column) == text).count()

    for number, write in enumerate(WRITES):
        tables = new_tables(tmp_path / str(number))
        write.prepare(tables)
        write.run(tables)
        assert require_that_all_read(tables, write.table, by_spark), write.name
