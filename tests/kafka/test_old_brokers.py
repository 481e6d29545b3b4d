"""Brokers before 3.8 report no group types: `verify` does not compare what Admin cannot know."""

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cli.main import main
from offsetstream.demo.topics import commit_in_transaction, commit_plainly, create_topics
from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.lookup import Lookup
from offsetstream.verify.compare import differences
from offsetstream.verify.sources import kafka_admin, read_tables
from testkit.waiting import await_
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("version", ["3.6.2", "3.7.2"])
def test_the_tables_equal_an_old_broker(spark: SparkSession, tmp_path: Path, version: str) -> None:
    with EmbeddedKafka(version) as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        commit_plainly(kafka.bootstrap_server, {"plain": [TopicPartition("orders", 0, 1)]})
        commit_in_transaction(kafka.bootstrap_server, "in-transaction", [TopicPartition("orders", 0, 2)], abort=False)
        for group in ({"group.id": "left"}, {"group.id": "static", "group.instance.id": "one"}):
            consume(kafka, group)
        with closing(consume(kafka, {"group.id": "live"}, leaves=False)):
            runner = JobRunner(spark, kafka.bootstrap_server, tmp_path)
            runner.run_once()
            tables = read_tables(Lookup(runner.tables))
            assert {row["group_id"] for row in tables.rows["groups"]} >= {"plain", "left", "static", "live"}

            with kafka_admin(kafka.bootstrap_server, {}) as java:
                answers = java.answers()
            assert {row["group_id"] for row in answers.groups} >= {"plain", "left", "static", "live"}
            assert differences(tables, answers) == []
            arguments = ["verify", "--history", "--tables", runner.tables.root]
            result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", kafka.bootstrap_server])
            assert result.exit_code == 0, result.output


def consume(kafka: EmbeddedKafka, properties: dict[str, str], *, leaves: bool = True) -> Consumer:
    """Join a group, commit, and leave."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_server, **properties}, logger=QUIET)
    consumer.subscribe(["orders"])
    await_(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()))
    consumer.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
    if leaves:
        consumer.close()
    return consumer
