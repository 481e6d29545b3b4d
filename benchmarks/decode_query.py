"""Reads the whole topic in one Spark session, with and without decoding in turn, and prints the seconds as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from pyspark.sql import DataFrame

from offsetstream.cluster.client import Cluster
from offsetstream.spark.local import local_session
from offsetstream.spark.source import KafkaSource
from offsetstream.stream.records import Decoder, as_few_tasks


def main(bootstrap_server: str, rounds: int) -> None:
    spark = local_session()
    cluster = Cluster(bootstrap_server)
    ends = cluster.partition_ends(cluster.topic_partitions())
    start = {number: end.log_start_offset for number, end in ends.items()}
    stable = {number: end.last_stable_offset for number, end in ends.items()}
    source = KafkaSource(bootstrap_server, {})
    ways: dict[str, Callable[[DataFrame], DataFrame]] = {
        "not decoded": as_few_tasks,
        "decoded": lambda raw: Decoder(len(ends)).decode(raw),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            started = time.monotonic()
            way(source.read(spark, start, stable)).write.format("noop").mode("overwrite").save()
            if number:  # in the first round everything is cold
                times[name].append(time.monotonic() - started)
    print(json.dumps(times))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
