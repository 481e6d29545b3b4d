"""The job decodes Spark's rows exactly as the codec does, record by record."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow as pa
from pyspark.sql import SparkSession

from offsetstream.codec import DECODED_SCHEMA, decode_records
from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.stream.apply.raw_reader import RAW_SCHEMA
from offsetstream.stream.records import Share, without_filtered
from offsetstream.tables.rows import decode_on_driver
from testkit.codec_records import present_layouts
from tests.spark.log import SOME, decode, frame, random_log, some_filtered

PARTITIONS = 7
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999


def raw_records() -> pa.Table:
    """Records of every type and version, their tombstones, and records that no broker writes."""
    rng, records = Random(5), list[tuple[bytes | None, bytes | None]]()
    for layout in present_layouts():
        key, value = encode_record(layout.random_key(rng), layout.random_value(rng))
        assert value is not None
        records += [(key, value), (key, None), (key, value[:-1]), (key[:-1], value)]
    records += [(record.key, record.value) for record in random_log(2, 20)]
    times = (FIRST_MS - 1, FIRST_MS, -1, 0, 1, 1_767_225_600_123, LAST_MS, LAST_MS + 1, -(2**63), 2**63 - 1)
    records += [commit_at(time) for time in times]
    rows = [
        {
            "offsets_partition": rng.randrange(PARTITIONS),
            "record_offset": at,
            "record_timestamp": at * 1000,
            "key": k,
            "value": v,
        }
        for at, (k, v) in enumerate(records)
    ]
    return pa.Table.from_pylist(rows, schema=RAW_SCHEMA)


def test_filtered_records_are_counted_and_removed(spark: SparkSession) -> None:
    log = random_log(2, 20)
    kept, shares = without_filtered(decode(frame(spark, log), PARTITIONS, SOME).toArrow())
    others = [record for record in log if not some_filtered(record)]
    expected = decode(frame(spark, others), PARTITIONS).toArrow()
    assert kept.column_names == expected.column_names
    assert kept.to_pylist() == expected.to_pylist()
    times = defaultdict[int, list[int]](list)
    for record in log:
        times[record.offsets_partition].append(record.timestamp_ms)
    filtered = Counter(record.offsets_partition for record in log if some_filtered(record))
    assert shares == {number: Share(len(of), max(of), filtered[number]) for number, of in times.items()}
    again, shares_of_kept = without_filtered(expected)
    assert again is expected
    assert sum(share.records for share in shares_of_kept.values()) == len(others)
    assert not any(share.filtered for share in shares_of_kept.values())


def commit_at(milliseconds: int) -> tuple[bytes, bytes | None]:
    data = {"offset": 1, "metadata": "", "commitTimestamp": milliseconds, "expireTimestamp": milliseconds}
    key = {"type": 1, "data": {"group": "times", "topic": "t", "partition": 0}}
    return encode_record(key, {"version": 1, "data": data})


def test_every_record_is_decoded_as_the_codec_decodes_it(spark: SparkSession) -> None:
    raw = raw_records()
    decoded = decode(spark.createDataFrame(raw), PARTITIONS).toArrow().sort_by("record_offset")
    expected = decode_records(raw["key"], raw["value"])
    for name in DECODED_SCHEMA.names:
        assert decoded[name].to_pylist() == expected.column(name).to_pylist(), name
    assert decoded.select(RAW_SCHEMA.names).to_pylist() == raw.to_pylist()
    rows = decoded.to_pylist()
    assert len(rows) > 300
    for row in rows:
        home = None if row["group_id"] is None else partition_for(row["group_id"], PARTITIONS)
        assert row["in_coordinator_partition"] == (None if home is None else home == row["offsets_partition"])
        assert row["key_bytes"] == row["key"]
        assert row["value_size"] == (None if row["value"] is None else len(row["value"]))
        for name in ("commit_timestamp", "expire_timestamp"):
            at = row[f"{name}_ms"]
            assert (row[name] is not None) == (at is not None and FIRST_MS <= at <= LAST_MS)
            assert row[name] is None or row[name] == EPOCH + timedelta(milliseconds=at)
    assert len({row["in_coordinator_partition"] for row in rows}) == 3


def test_a_time_that_no_engine_can_store_is_null(spark: SparkSession) -> None:
    first, end = FIRST_MS * 1000, (LAST_MS + 1) * 1000
    times = [first - 1, first, -1000, 0, end - 1, end, 2**62]
    rows = [
        {"offsets_partition": 0, "record_offset": at, "record_timestamp": time, "key": b"", "value": None}
        for at, time in enumerate(times)
    ]
    raw = pa.Table.from_pylist(rows, schema=RAW_SCHEMA)
    in_spark = decode(spark.createDataFrame(raw), PARTITIONS).toArrow().sort_by("record_offset")
    for decoded in (in_spark, decode_on_driver(raw)):
        found = decoded["record_timestamp"].cast(pa.int64()).to_pylist()
        assert found == [time if first <= time < end else None for time in times]


def test_no_records_give_no_rows(spark: SparkSession) -> None:
    decoded = decode(frame(spark, []), PARTITIONS).toArrow()
    assert decoded.num_rows == 0
    assert set(decoded.schema.names) >= {*DECODED_SCHEMA.names, "in_coordinator_partition", "commit_timestamp"}
