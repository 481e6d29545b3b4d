"""A job whose tables are compared with the topic after each run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.demo.topics import commit_plainly
from tests.kafka.jobs import JobRunner
from tests.reliability.truth import behind, differences, read_topic


class CheckedJob:
    """Tables and checkpoints in a folder, and the job that writes to them in the session of this process."""

    def __init__(self, spark: SparkSession, bootstrap_server: str, folder: Path) -> None:
        self._spark, self._server = spark, bootstrap_server
        self._cluster = Cluster(bootstrap_server)
        self._commits = 0
        self.runner = JobRunner(spark, bootstrap_server, folder)

    def commit(self) -> None:
        """Write new records to the topic."""
        self._commits += 1
        places = [TopicPartition("orders", number, self._commits) for number in (0, 1)]
        commit_plainly(self._server, {f"between-{number}": places for number in range(4)})

    def run(self, *, force: bool = False) -> list[str]:
        """Apply everything that is in the topic now. Returns the differences of the tables."""
        ends = read_topic(self._server)[1]
        self.runner.job(once=True, force=force).run()
        tables, names = self.runner.tables, {topic.topic_id: topic.name for topic in self._cluster.topics()}
        return [*behind(tables, ends), *differences(tables, self._server, names)]

    def beside(self, folder: Path) -> CheckedJob:
        """Return a job with its own tables and this one's checkpoints."""
        other = CheckedJob(self._spark, self._server, folder)
        other.runner.settings = replace(other.runner.settings, checkpoint=self.runner.settings.checkpoint)
        return other
