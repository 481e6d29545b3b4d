"""The topic as Spark reads it: by `assign` over all its partitions, read_committed, in batches or as a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.cluster import connection
from offsetstream.cluster.coordinators import is_coordinated
from offsetstream.cluster.properties import java_system_properties, spark_options
from offsetstream.cluster.rights import GROUP_PREFIX, OFFSETS_TOPIC
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.errors import UnreachableError

RAW_TYPE = "offsets_partition INT, record_offset BIGINT, record_timestamp TIMESTAMP, key BINARY, value BINARY"


@dataclass(frozen=True)
class KafkaSource:
    """Where the topic is and how to read it; offsets are {offsets partition: offset}.

    `partition_count`: how many partitions the topic has, for who reads only those that a broker leads.
    `group`: that of Spark's consumers; without one each reading has one of its own.
    """

    bootstrap_server: str
    properties: Mapping[str, str] = field(repr=False)
    partition_count: int | None = None

    def _options(self, partitions: list[int]) -> dict[str, str]:
        # assign: a subscribing job would join a group and write into the very topic that it reads.
        return {
            **spark_options(self.properties),
            "kafka.bootstrap.servers": self.bootstrap_server,
            "kafka.isolation.level": "read_committed",
            # At its default of 500 each task waits half a second at the end of its range (design, section 5).
            "kafka.fetch.max.wait.ms": self.properties.get("fetch.max.wait.ms", "5"),
            # At its default of 500 Spark copies iterators more than records: 10,000 take a third off the reading time.
            "kafka.max.poll.records": self.properties.get("max.poll.records", "10000"),
            # At their defaults of one and two minutes a partition whose leader dies holds up the others for minutes.
            "kafka.default.api.timeout.ms": self.properties.get("default.api.timeout.ms", "10000"),
            "kafkaConsumer.pollTimeoutMs": "30000",
            "kafka.group.id": self._group(partitions),
            "failOnDataLoss": "true",
            "assign": json.dumps({OFFSETS_TOPIC: partitions}),
        }

    def _group(self, partitions: Collection[int]) -> str:
        """Return a group for Spark's consumers that has a coordinator, among the partitions' leaders if all is known.

        Before the driver's consumer is told where to read, it asks for committed offsets, which nobody needs, and waits
        for ever if it gets no answer. No setting keeps it from that: Spark gives each consumer a group.
        """
        deadline = time.monotonic() + connection.TIMEOUT
        while time.monotonic() < deadline:
            group = f"{GROUP_PREFIX}-{uuid4()}"
            is_led = self.partition_count is None or partition_for(group, self.partition_count) in partitions
            if is_led and is_coordinated(self.bootstrap_server, self.properties, group):
                return group
        raise UnreachableError(f"{self.bootstrap_server} has no coordinator for a group of Spark's consumers")

    def read(self, spark: SparkSession, start: Mapping[int, int], end: Mapping[int, int]) -> DataFrame:
        """Return the raw records from `start` to `end` (exclusive) of each partition, as `RAW_TYPE`."""
        if not start:
            return spark.createDataFrame([], RAW_TYPE)
        tell_java(spark, self.properties)
        frame = (
            spark.read.format("kafka")
            .options(**self._options(sorted(start)))
            .option("startingOffsets", _offsets(start))
            .option("endingOffsets", _offsets(end))
            .load()
        )
        return _raw(frame)

    def stream(self, spark: SparkSession, start: Mapping[int, int], max_offsets: int) -> DataFrame:
        """Return the unbounded raw records from `start`; a query with a checkpoint goes on where that says."""
        tell_java(spark, self.properties)
        reader = spark.readStream.format("kafka").options(**self._options(sorted(start)))
        reader = reader.option("maxOffsetsPerTrigger", max_offsets).option("startingOffsets", _offsets(start))
        return _raw(reader.load())


def tell_java(spark: SparkSession, properties: Mapping[str, str]) -> None:
    """Tell Spark's driver what Kafka's clients in it must know besides their properties."""
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]  # it is there while Spark is
    for name, value in java_system_properties(properties).items():
        system.setProperty(name, system.getProperty(name, value))


def _offsets(offsets: Mapping[int, int]) -> str:
    return json.dumps({OFFSETS_TOPIC: {str(partition): offset for partition, offset in offsets.items()}})


def _raw(frame: DataFrame) -> DataFrame:
    return frame.select(
        F.col("partition").alias("offsets_partition"),
        F.col("offset").alias("record_offset"),
        F.col("timestamp").alias("record_timestamp"),
        "key",
        "value",
    )
