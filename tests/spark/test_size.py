"""Memory limits of the driver and of the Python workers, whatever the records are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.codec.records import encode_record
from offsetstream.stream.apply.log_pass import HistoryTarget, pass_over
from offsetstream.stream.apply.raw_reader import RAW_SCHEMA
from offsetstream.stream.records import (
    Share,
    batch_size,
    collect,
    collect_small,
    with_value_offsets,
    without_filtered,
)
from offsetstream.tables.filters import Filters
from offsetstream.tables.rows import SMALL_BYTES
from tests.spark.log import PARTITIONS, decode

_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_RECORDS, _ROW_BYTES = 40, 10_000_000
FILTERS = Filters(group_exclude="left out")


def _commit(group: str, offset: int) -> tuple[bytes, bytes | None]:
    key = {"type": 1, "data": {"group": group, "topic": "t", "partition": 0}}
    value = {"version": 3, "data": {"offset": offset, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1}}
    return encode_record(key, value)


_KINDS = [
    (0, 0, None, *_commit("kept", 5)),
    (0, 1, None, *_commit("left out", 5)),
    (0, 2, None, _commit("kept", 5)[0], None),
    (1, 3, None, b"\x00\x63 no key", b"value"),
]


def _raw(spark: SparkSession, rows: Sequence[tuple[int, int, int | None, bytes, bytes | None]]) -> DataFrame:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), RAW_SCHEMA, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(columns, schema=RAW_SCHEMA))


def test_a_batch_counts_the_size_of_its_json(spark: SparkSession) -> None:
    """A value can be much shorter than its JSON, which the driver would hold three times."""
    topics = [{"topicId": _TOPIC_ID, "partitions": []}] * 40_000  # 18 bytes each, in JSON 55
    key, value = encode_record(
        {"type": 7, "data": {"groupId": "g", "memberId": "m"}}, {"version": 0, "data": {"topicPartitions": topics}}
    )
    assert value is not None
    assert _RECORDS * len(value) < SMALL_BYTES
    rows = [(0, offset, 0, key, value) for offset in range(_RECORDS)]
    with pass_over(_raw(spark, rows), HistoryTarget({}, {}, {}, is_decoded=True), PARTITIONS) as passed:
        assert passed.records == {"offset_commits": 0, "group_records": _RECORDS, "undecodable_records": 0}
        assert not passed.of_groups.size.fits_driver


def test_a_small_batch_read_by_one_spark_job_equals_one_read_by_two(spark: SparkSession) -> None:
    decoded = with_value_offsets(decode(_raw(spark, _KINDS), PARTITIONS, FILTERS))
    few = collect_small(decoded, len(_KINDS))
    assert few is not None
    kept, shares = without_filtered(few)
    by_two, _ = without_filtered(collect(decoded))
    assert kept.select(by_two.column_names).sort_by("record_offset").equals(by_two.sort_by("record_offset"))
    assert shares == {0: Share(3, None, filtered=1), 1: Share(1, None)}
    assert batch_size(kept).records == {"offset_commits": 2, "group_records": 0, "undecodable_records": 1}
    assert pc.count(kept["value"]).as_py() == 1, "the raw bytes of what cannot be decoded"


@pytest.mark.parametrize("at_most", [50, 10_000])
def test_a_value_above_its_share_is_read_unless_all_are_too_long(spark: SparkSession, at_most: int) -> None:
    """A value of a million bytes is below the share of one of fifty records, and above that of one of ten thousand."""
    long = (0, 1, None, b"\x00\x63 no key", b"v" * 1_000_000)
    decoded = with_value_offsets(decode(_raw(spark, [_KINDS[0], long, _KINDS[2], _KINDS[3]]), PARTITIONS)).persist()
    assert (len(long[4]) > SMALL_BYTES // at_most) is (at_most == 10_000)
    few, by_two = collect_small(decoded, at_most), collect(decoded)
    assert few is not None
    assert few.select(by_two.column_names).sort_by("record_offset").equals(by_two.sort_by("record_offset"))
    many = with_value_offsets(decode(_raw(spark, [long] * (SMALL_BYTES // len(long[4]) + 1)), PARTITIONS))
    assert collect_small(many, at_most) is None
    decoded.unpersist()


def test_python_workers_get_few_large_records_at_a_time(spark: SparkSession) -> None:
    def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    large = spark.range(8).repartition(1).select(F.expr(f"cast(repeat('x', {_ROW_BYTES}) as binary)").alias("value"))
    found = [row.rows for row in large.mapInArrow(sizes, "rows BIGINT").collect()]
    assert sum(found) == 8
    assert max(found) <= 4
