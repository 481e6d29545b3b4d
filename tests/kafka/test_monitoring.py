"""Dashboards and alerts on two scrapes of a running job: every metric exists, and every query has a result."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from offsetstream.demo.members import GroupPlan, Member
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import LOOPBACK, free_ports
from testkit.live_logs import create_topic, joined, numbered, write
from tests.kafka.jobs import JobRunner
from tests.kafka.test_metrics import is_ready
from tests.unit.monitoring.prometheus import ALERTS, DASHBOARDS, alerts, filled, metrics_in, promtool, queries

TOPIC = "monitored"
SCRAPED = 'job="offsetstream", instance="one", cluster="first"'  # what Prometheus adds
OF_GROUPS = re.compile(r"^kafka_consumergroup_lag\{.*\} 2\.0$", re.MULTILINE)
NEW_PROTOCOL = 'kafka_server_group_coordinator_metrics_consumer_group_count{coordinator="1",state="Stable"} 1.0'
Series = dict[str, float]


@dataclass(frozen=True)
class Scrapes:
    """Two scrapes as text, some batches apart, and the time of the second one."""

    first: str
    second: str
    at: int

    def series(self) -> list[dict[str, str]]:
        """Return promtool's input series: ten minutes of the first scrape, then ten of the second, every 15 seconds."""
        before, now = series_of(self.first), series_of(self.second)
        values = {name: f"{before.get(name, value)}x40 {value}x40" for name, value in now.items()}
        values |= {name: f"{value}+15x80" for name, value in now.items() if "_timestamp_seconds{" in name}
        values[f"up{{{SCRAPED}}}"] = "1x80"
        return [{"series": name, "values": each} for name, each in values.items()]


def series_of(text: str) -> Series:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ", ".join(f"{name}={json.dumps(value)}" for name, value in sample.labels.items())
            found[f"{sample.name}{{{', '.join(filter(None, (labels, SCRAPED)))}}}"] = sample.value
    return found


@pytest.fixture(scope="module")
def scrapes(
    own_kafka: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scrapes]:
    server, (port,) = own_kafka.bootstrap_server, free_ports(1)

    def scraped() -> str:
        with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    create_topic(server, TOPIC, 2)
    write(server, TOPIC, *numbered(5), partition=0)
    runner = JobRunner(spark, server, tmp_path_factory.mktemp("monitored"))
    new = Member(server, GroupPlan("new", (TOPIC,), 1, {"group.protocol": "consumer"}), 0)
    options = {"metrics_port": port, "group_metrics": "kafka-exporter", "sample_interval": 1.0}
    try:
        with closing(joined(server, "classic", TOPIC)), runner.running("1 seconds", **options):
            runner.await_(lambda: is_ready(port))
            commit_plainly(server, {"plain": [TopicPartition(TOPIC, 0, 1)]})
            runner.await_(lambda: 'kafka_consumergroup_lag{consumergroup="plain"' in scraped())
            first = scraped()
            commit_plainly(server, {"plain": [TopicPartition(TOPIC, 0, 3)]})
            runner.await_(lambda: bool(OF_GROUPS.search(scraped())) and NEW_PROTOCOL in scraped())
            yield Scrapes(first, scraped(), int(time.time()))
    finally:
        new.leave()
        new.join()


def rules_tested(folder: Path, tested: Mapping[str, object], *rule_files: Path) -> None:
    group = {"interval": "15s", **tested}
    test_file_content = {"rule_files": [*map(str, rule_files)], "evaluation_interval": "15s", "tests": [group]}
    file = folder / "test.yml"
    file.write_text(yaml.safe_dump(test_file_content), "utf-8")
    promtool("test", "rules", file)


@pytest.mark.long
def test_every_metric_of_dashboards_and_alerts_is_scraped(scrapes: Scrapes) -> None:
    named = {name for path in DASHBOARDS for query in queries(path) for name in metrics_in(query.expression)}
    named |= {name for alert in alerts() for name in metrics_in(alert["expr"])}
    assert len(named) > 30
    assert named - {name.partition("{")[0] for name in series_of(scrapes.second)} == {"up"}


@pytest.mark.nightly
@pytest.mark.parametrize("path", DASHBOARDS, ids=[path.stem for path in DASHBOARDS])
def test_every_query_has_results_with_distinct_legends(path: Path, scrapes: Scrapes, tmp_path: Path) -> None:
    query_tests = []
    for query in queries(path):
        for label in query.shows or ("instance",):
            has = f'count by (has) (label_replace({filled(query.expression)}, "has", "yes", "{label}", ".+")) > bool 0'
            query_tests.append(
                {"expr": has, "eval_time": "12m", "exp_samples": [{"labels": '{has="yes"}', "value": 1}]}
            )
    rules_tested(tmp_path, {"input_series": scrapes.series(), "promql_expr_test": query_tests})


@pytest.mark.nightly
def test_a_healthy_job_fires_no_alert(scrapes: Scrapes, tmp_path: Path) -> None:
    none = [{"alertname": alert["alert"], "eval_time": "19m"} for alert in alerts()]
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(scrapes.at))
    tested = {"start_timestamp": started, "input_series": scrapes.series(), "alert_rule_test": none}
    rules_tested(tmp_path, tested, ALERTS)


@pytest.mark.nightly
def test_promtool_accepts_our_own_metric_names(scrapes: Scrapes) -> None:
    """Skip the metrics of groups and coordinators, whose names come from other exporters."""
    ours = [line for line in scrapes.second.splitlines() if re.match(r"(# (HELP|TYPE) )?(offsetstream|process)_", line)]
    assert promtool("check", "metrics", given="\n".join(ours) + "\n") == ""
