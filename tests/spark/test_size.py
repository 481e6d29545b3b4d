"""What bounds the memory of the driver and of the Python workers, whatever the records are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from offsetstream.codec.encode import encode_record
from offsetstream.stream.decode import decode
from offsetstream.stream.state.size import Share, by_partition, measure
from offsetstream.tables.engines import SMALL_BYTES
from tests.spark.log import PARTITIONS, RAW

_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_RECORDS, _ROW_BYTES = 16, 10_000_000


def test_a_batch_is_as_large_as_its_json(spark: SparkSession) -> None:
    """A value can be many times shorter than its JSON, which the driver would hold three times."""
    topics = [{"topicId": _TOPIC_ID, "partitions": []}] * 40_000  # 18 bytes each, in JSON 55
    key, value = encode_record(
        {"type": 7, "data": {"groupId": "g", "memberId": "m"}}, {"version": 0, "data": {"topicPartitions": topics}}
    )
    assert value is not None
    assert _RECORDS * len(value) < SMALL_BYTES
    rows = [(0, offset, 0, key, value) for offset in range(_RECORDS)]
    raw = spark.createDataFrame(
        pa.Table.from_arrays(
            [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), RAW, strict=True)], schema=RAW
        )
    )
    size = measure(decode(raw, PARTITIONS))
    assert size.records == {"offset_commits": 0, "group_records": _RECORDS, "undecodable_records": 0}
    assert not size.size.is_small()


def test_spark_counts_records_as_arrow_does(spark: SparkSession) -> None:
    times = "timestamp_millis(CASE WHEN id < 90 THEN id END)"
    records = spark.range(100).select(
        F.expr("int(id % 3) AS offsets_partition"), F.expr(f"{times} AS record_timestamp")
    )
    expected = {0: Share(34, 87), 1: Share(33, 88), 2: Share(33, 89)}
    assert by_partition(records) == by_partition(records.toArrow()) == expected


def test_python_workers_get_few_large_records_at_a_time(spark: SparkSession) -> None:
    def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    large = spark.range(8).repartition(1).select(F.expr(f"cast(repeat('x', {_ROW_BYTES}) as binary)").alias("value"))
    found = [row.rows for row in large.mapInArrow(sizes, "rows BIGINT").collect()]
    assert sum(found) == 8
    assert max(found) <= 4
