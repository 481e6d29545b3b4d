"""A program for spark-submit: the job's requests to a broker, by Spark's source and Kafka's classes in Spark's JVM."""

from __future__ import annotations

import sys

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.properties import read_properties
from offsetstream.spark.session import launchers_session
from offsetstream.spark.source import KafkaSource
from offsetstream.stream.monitor.broker_channel import Leaders
from offsetstream.stream.monitor.truncation import ends_of_epochs


def main(server: str, file: str) -> None:
    """Read the topic and query its leaders; print the numbers of records and answers."""
    properties = read_properties(file)
    ends = Cluster(server, properties).partition_ends(range(50))
    starts = {number: end.log_start_offset for number, end in ends.items()}
    with launchers_session() as spark:
        stops = {number: end.last_stable_offset for number, end in ends.items()}
        read = KafkaSource(server, properties).read(spark, starts, stops).count()
        leaders = Leaders(spark, Cluster(server, properties), properties)
        answers = ends_of_epochs(leaders, dict.fromkeys(ends, (0, 0)))
        print(f"read {read}, asked {len(answers)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
