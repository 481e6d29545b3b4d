"""Batches written by Kafka's own MemoryRecordsBuilder, in every format and compression, are read the same."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from offsetstream.codec.batches import LogRecord
from offsetstream.codec.log_segments import Segment, read_segments
from testkit.examples import examples
from tests.oracle.kafka_classes import KafkaClasses

RECORD = "org.apache.kafka.common.record"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in CODECS if magic == 2 or codec != "zstd"]
_NO_HORIZON, _NO_APPEND_TIME = -1, -1


class Writer:
    """Builds batches with Kafka's classes of one release only: py4j caches methods by class name."""

    def __init__(self, kafka: KafkaClasses, magic: int, codec: str) -> None:
        self._kafka, self._magic = kafka, magic
        self._compression = kafka.call("org.apache.kafka.common.compress.Compression", codec).build()

    def batch(
        self, records: list[LogRecord], base: int, *, append_ms: int = _NO_APPEND_TIME, horizon_ms: int = _NO_HORIZON
    ) -> bytes:
        kind = "CREATE_TIME" if append_ms == _NO_APPEND_TIME else "LOG_APPEND_TIME"
        builder: Any = self._kafka.new(
            f"{RECORD}.MemoryRecordsBuilder",
            self._kafka.new("org.apache.kafka.common.utils.ByteBufferOutputStream", 1 << 20, False),
            *(self._magic, self._compression, self._kafka.call(f"{RECORD}.TimestampType", "valueOf", kind)),
            *(base, append_ms, *((4711, 3, 0) if self._magic == 2 else (-1, -1, -1))),
            *(self._magic == 2, False, 5, 1 << 20, horizon_ms),
        )
        for each in records:
            time = -1 if each.timestamp_ms is None else each.timestamp_ms
            builder.appendWithOffset(each.offset, time, each.key, each.value)
        buffer = builder.build().buffer()
        data: bytes = buffer.array()
        return data[: buffer.limit()]


def random_records(rng: Random, base: int, magic: int) -> list[LogRecord]:
    """Records with offset gaps, as compaction leaves them, and timestamps that go back and forth."""
    records, offset = [], base
    for _ in range(rng.choice([1, 1, 2, 20])):
        sizes = [rng.choice([None, 0, 1, 30, 63, 64, 200, 9000]) for _ in "kv"]
        key, value = (None if size is None else rng.choice([rng.randbytes(size), bytes(size)]) for size in sizes)
        time = None if magic == 0 else 1_700_000_000_000 + rng.randint(-(10**6), 10**6)
        records.append(LogRecord(offset, time, key, value))
        offset += rng.choice([1, 1, 2, 70, 10_000])
    return records


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_random_batches(kafka_3_9: KafkaClasses, tmp_path: Path, magic: int, codec: str) -> None:
    rng, writer, base = Random(f"{magic} {codec}"), Writer(kafka_3_9, magic, codec), 0
    data, written = b"", []
    for _ in range(examples(8)):
        records = random_records(rng, base, magic)
        append_ms = rng.choice([-1, -1, 1_600_000_000_000]) if magic else -1
        horizon_ms = rng.choice([-1, 1_800_000_000_000]) if magic == 2 and append_ms < 0 else -1
        data += writer.batch(records, base, append_ms=append_ms, horizon_ms=horizon_ms)
        written += [
            LogRecord(r.offset, append_ms if append_ms > 0 else r.timestamp_ms, r.key, r.value) for r in records
        ]
        base = records[-1].offset + rng.choice([1, 2, 1000])
    path = tmp_path / "segment"
    path.write_bytes(data)
    batches = list(read_segments([Segment(path, len(data))], pytest.fail))
    assert [record for batch in batches for record in batch.records] == written
    assert sum(batch.size for batch in batches) == len(data)
    if magic == 2:
        assert {(each.producer_id, each.producer_epoch, each.is_transactional) for each in batches} == {(4711, 3, True)}
