"""Read the offsets topic with Spark: `assign` to its partitions, read_committed, in batches or as a stream."""

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
    """The cluster and the client properties for reading the topic. Offsets are {offsets partition: offset}.

    `partition_count` is the number of partitions of the topic. Set it to read only partitions that have a leader.
    """

    bootstrap_server: str
    properties: Mapping[str, str] = field(repr=False)
    partition_count: int | None = None

    def _options(self, partitions: list[int]) -> dict[str, str]:
        # assign: with subscribe, the job would join a group and so write into the topic that it reads.
        return {
            **spark_options(self.properties),
            "kafka.bootstrap.servers": self.bootstrap_server,
            "kafka.isolation.level": "read_committed",
            # With the default of 500, each task waits half a second at the end of its range (design, section 5).
            "kafka.fetch.max.wait.ms": self.properties.get("fetch.max.wait.ms", "5"),
            # With the default of 500, Spark spends its time on iterators. 10,000 saves a third of the time.
            "kafka.max.poll.records": self.properties.get("max.poll.records", "10000"),
            # With the defaults of one and two minutes, a partition whose leader dies blocks the others for minutes.
            "kafka.default.api.timeout.ms": self.properties.get("default.api.timeout.ms", "10000"),
            "kafkaConsumer.pollTimeoutMs": "30000",
            "kafka.group.id": self._group(partitions),
            "failOnDataLoss": "true",
            "assign": json.dumps({OFFSETS_TOPIC: partitions}),
        }

    def _group(self, partitions: Collection[int]) -> str:
        """Return a group id for Spark's consumers whose coordinator answers.

        With `partition_count`, the coordinator is a leader of one of `partitions`. Spark gives each consumer a group,
        and the driver's consumer first requests committed offsets, which nobody needs. Without an answer it waits
        forever. No setting prevents this.
        """
        deadline = time.monotonic() + connection.TIMEOUT
        while time.monotonic() < deadline:
            group = f"{GROUP_PREFIX}-{uuid4()}"
            is_led = self.partition_count is None or partition_for(group, self.partition_count) in partitions
            if is_led and is_coordinated(self.bootstrap_server, self.properties, group):
                return group
        raise UnreachableError(f"No group coordinator for Spark's consumers answers at {self.bootstrap_server}")

    def read(self, spark: SparkSession, start: Mapping[int, int], end: Mapping[int, int]) -> DataFrame:
        """Return the raw records of each partition from `start` to `end` (exclusive), with schema `RAW_TYPE`."""
        if not start:
            return spark.createDataFrame([], RAW_TYPE)
        set_java_properties(spark, self.properties)
        frame = (
            spark.read.format("kafka")
            .options(**self._options(sorted(start)))
            .option("startingOffsets", _offsets(start))
            .option("endingOffsets", _offsets(end))
            .load()
        )
        return _raw(frame)

    def stream(self, spark: SparkSession, start: Mapping[int, int], max_offsets: int) -> DataFrame:
        """Return the stream of raw records from `start`. A query with a checkpoint continues there instead."""
        set_java_properties(spark, self.properties)
        reader = spark.readStream.format("kafka").options(**self._options(sorted(start)))
        reader = reader.option("maxOffsetsPerTrigger", max_offsets).option("startingOffsets", _offsets(start))
        return _raw(reader.load())


def set_java_properties(spark: SparkSession, properties: Mapping[str, str]) -> None:
    """Set the Java system properties that Kafka's clients in Spark's driver need."""
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]  # never None while Spark runs
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
