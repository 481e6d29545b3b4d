"""The metrics of a running job, scraped as by Prometheus; group metrics equal the view and Kafka's own tool."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from confluent_kafka import TopicPartition
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

import offsetstream
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.jvm import CONSUMER_GROUPS, run_tool
from offsetstream.embedded.ports import LOOPBACK, free_ports
from offsetstream.metrics.families import COORDINATORS, job_families, queried_families
from testkit.brokers import BrokerUnderTest
from testkit.live_logs import create_topic, numbered, write
from tests.kafka.jobs import JobRunner

TOPIC, GROUPS = "metered", ("metered-one", "metered-two")
LAG = {
    "kafka-exporter": ("kafka_consumergroup_lag", ("consumergroup", "topic", "partition")),
    "kminion": ("kminion_kafka_consumer_group_topic_partition_lag", ("group_id", "topic_name", "partition_id")),
}
# A release on whose broker no group has members.
MAY_BE_EMPTY = {
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    "kminion_kafka_consumer_group_topic_members",
    "kminion_kafka_consumer_group_topic_assigned_partitions",
}
_ROW = re.compile(r"(metered-\S+) +(\S+) +(\d+) +\d+ +\d+ +(\d+) ")  # a line of the tool, up to LAG
_TIME = "offsetstream_group_metrics_timestamp_seconds"
Lag = dict[tuple[str, str, int], int]


def is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=10) as answer:
            return bool(json.load(answer)["ready"])
    except HTTPError as error:
        assert (error.code, json.load(error)["ready"]) == (503, False)
    except URLError:
        pass  # it does not listen yet
    return False


def scraped(port: int) -> dict[str, Metric]:
    with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=10) as answer:
        return {each.name: each for each in text_string_to_metric_families(answer.read().decode())}


def metric_lags(families: dict[str, Metric], names: str) -> Lag:
    name, labels = LAG[names]
    metrics = (([each.labels[label] for label in labels], each.value) for each in families[name].samples)
    return {(group, topic, int(partition)): int(lag) for (group, topic, partition), lag in metrics if group in GROUPS}


def view_lags(runner: JobRunner) -> Lag:
    # Query all groups, because naming a group that the job does not know yet is an error.
    rows = offsetstream.open_tables(runner.tables.root).view("lag").to_pylist()
    return {(row["group_id"], row["topic"], row["partition"]): row["lag"] for row in rows if row["group_id"] in GROUPS}


def tool_lags(server: str) -> Lag:
    groups = [argument for group in GROUPS for argument in ("--group", group)]
    printed = run_tool(CONSUMER_GROUPS, ["--bootstrap-server", server, "--describe", *groups])
    return {(group, topic, int(number)): int(lag) for group, topic, number, lag in _ROW.findall(printed)}


@pytest.mark.long
@pytest.mark.parametrize("names", LAG)
def test_a_running_job_is_scraped(kafka: BrokerUnderTest, spark: SparkSession, tmp_path: Path, names: str) -> None:
    server, (port,) = kafka.bootstrap_server, free_ports(1)
    topic = f"{TOPIC}-{names}"
    create_topic(server, topic, 2)
    write(server, topic, *numbered(9), partition=1)
    commit_plainly(server, {GROUPS[0]: [TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 4)]})
    runner = JobRunner(spark, server, tmp_path)
    options = {"metrics_port": port, "group_metrics": names, "sample_interval": 1.0}
    with runner.running("1 seconds", **options):
        runner.await_(lambda: is_ready(port))
        write(server, topic, *numbered(3), partition=0)
        commit_plainly(server, {GROUPS[1]: [TopicPartition(topic, 0, 1)]})
        known: Lag = {(GROUPS[0], topic, 0): 3, (GROUPS[0], topic, 1): 5, (GROUPS[1], topic, 0): 2}
        runner.await_(lambda: view_lags(runner).items() >= known.items())
        quiet_since = time.time()
        runner.await_(lambda: _TIME in scraped(port) and scraped(port)[_TIME].samples[0].value > quiet_since)
        metrics = scraped(port)
        assert metric_lags(metrics, names) == view_lags(runner) == tool_lags(server)
        declared = {each.removesuffix("_total") for each in job_families()}
        declared |= {
            each.name for file in (COORDINATORS, names) for rows in queried_families(file) for each in rows.families
        }
        assert declared <= metrics.keys()
        assert {name for name in declared if not metrics[name].samples} <= MAY_BE_EMPTY
        assert metrics["offsetstream_cluster_answers"].samples[0].value == 1
        assert metrics["offsetstream_batch_seconds"].samples
    with pytest.raises(URLError):
        scraped(port)
