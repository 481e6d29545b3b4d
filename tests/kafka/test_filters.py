"""Filtered groups and topics on a real broker: tables, histories, `verify`, changed filters, and a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from offsetstream.cluster.records import LogRecord, close, read_log
from offsetstream.codec.decoding import decode_records
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.schema import load_schema
from testkit.processes import Done, JobProcess, within
from testkit.tables import append_rows
from testkit.waiting import await_
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

FILTERS: dict[str, Any] = {
    "group_filter": "team-.*|console-.*",
    "group_exclude": "team-b.*",
    "topic_exclude": "page-views",
    "short_lived_groups": False,
}
AS_OPTIONS = ("--group-filter", "team-.*|console-.*", "--group-exclude", "team-b.*", "--topic-exclude", "page-views")
KEPT = ["console-consumer-mine", "team-a.billing", "team-a.live"]
FILTERED = ["console-consumer-42", "other", "team-b.billing"]
ONLY_VIEWS = "team-a.views"
TABLES = ("offset_commits", "committed_offsets", "group_records", "group_history", "groups", "group_members")


@pytest.fixture(scope="module")
def live(own_kafka: EmbeddedKafka) -> Iterator[None]:
    """A member with partitions of both topics: it stays complete, only its offsets in one topic are filtered."""
    create_topics(admin_client(own_kafka.bootstrap_server))
    configuration = {"bootstrap.servers": own_kafka.bootstrap_server, "group.id": "team-a.live"}
    consumer = Consumer(configuration, logger=QUIET)
    consumer.subscribe(["orders", "page-views"])
    try:
        await_(lambda: bool(consumer.poll(0.2)) or len(consumer.assignment()) == 14, lambda: "nothing was assigned")
        consumer.commit(
            offsets=[TopicPartition("orders", 1, 3), TopicPartition("page-views", 1, 3)], asynchronous=False
        )
        yield
    finally:
        close(consumer)


@pytest.fixture(scope="module")
def runner(
    spark: SparkSession, own_kafka: EmbeddedKafka, live: None, tmp_path_factory: pytest.TempPathFactory
) -> JobRunner:
    commit_everywhere(own_kafka.bootstrap_server, 1)
    runner = JobRunner(spark, own_kafka.bootstrap_server, tmp_path_factory.mktemp("filtered"))
    runner.job(once=True, **FILTERS).run()
    return runner


def commit_everywhere(server: str, offset: int) -> None:
    both = [TopicPartition("orders", 0, offset), TopicPartition("page-views", 0, offset)]
    groups = [group for group in KEPT + FILTERED if group != "team-a.live"]
    commit_plainly(server, dict.fromkeys(groups, both) | {ONLY_VIEWS: both[1:]})


def filtered_records(server: str) -> int:
    """Return how many records of the log are filtered, judged only by their names."""
    log: list[LogRecord] = [
        record for records_of_partition in read_log(server, {}, range(50)) for record in records_of_partition
    ]
    decoded = decode_records([record.key for record in log], [record.value for record in log]).to_pylist()
    return sum(row["group_id"] in FILTERED or row["topic"] == "page-views" for row in decoded)


def verified(runner: JobRunner, settle: str = "60") -> Done:
    server = runner.settings.bootstrap_server
    return within(
        "verify", "--bootstrap-server", server, "--tables", runner.tables.root, "--history", "--settle", settle
    )


def assert_is_filtered(runner: JobRunner) -> None:
    for table in TABLES:
        assert runner.values(table, "group_id") <= {*KEPT}, table
    assert runner.values("committed_offsets", "group_id") == {*KEPT}
    assert runner.values("committed_offsets", "topic") == runner.values("offset_commits", "topic") == {"orders"}
    assert runner.values("member_assignments", "topic") == {"orders", "page-views"}
    counted = sum(count or 0 for (count,) in runner.rows("offsets_partitions", "filtered_count"))
    assert counted == filtered_records(runner.settings.bootstrap_server) > 0
    done = verified(runner)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The filters of the tables exclude 3 groups of the cluster and 4 offsets of other groups" in done.stderr
    assert f", {counted} more skipped by the filters" in done.stderr


def assert_is_complete(runner: JobRunner) -> None:
    assert runner.values("groups", "group_id") >= {*KEPT, *FILTERED, ONLY_VIEWS}
    assert runner.values("committed_offsets", "topic") == {"orders", "page-views"}
    assert runner.values("offsets_partitions", "filters") == {None}
    assert runner.values("offsets_partitions", "filtered_count") == {None}
    done = verified(runner)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out" not in done.stderr
    assert "leave out" not in done.stderr


def test_a_load_and_batches_skip_the_same_records(runner: JobRunner, own_kafka: EmbeddedKafka) -> None:
    assert "Filtered: groups that do not match 'team-.*|console-.*'" in runner.said.getvalue()
    assert " filtered" in runner.said.getvalue()
    assert_is_filtered(runner)
    before = filtered_records(own_kafka.bootstrap_server)
    commit_everywhere(own_kafka.bootstrap_server, 2)
    job = runner.job(once=True, **FILTERS)
    job.run()
    counted = job._metrics.job.registry.get_sample_value("offsetstream_filtered_records_total")
    assert counted == filtered_records(own_kafka.bootstrap_server) - before > 0
    assert runner.values("offsets_partitions", "load_id") == {1}
    assert {offset for group, offset in runner.rows("committed_offsets", "group_id", "committed_offset")} == {2, 3}
    assert_is_filtered(runner)


def test_look_ups_report_the_filters(runner: JobRunner) -> None:
    lag_answer = within("lag", "--group", "team-b.billing", "--tables", runner.tables.root)
    assert lag_answer.returncode == 1
    assert "group 'team-b.billing' is filtered: the filters of the tables exclude it" in lag_answer.stderr
    result = within("partitions", "--tables", runner.tables.root)
    assert "records since the last loads: groups that do not match" in result.stderr


def test_filtered_offsets_are_not_taken_for_all_offsets(runner: JobRunner, own_kafka: EmbeddedKafka) -> None:
    tables = ("--tables", runner.tables.root)
    lag = within("lag", "--group", "team-a.live", "--output", "json", *tables)
    reasons = {row["topic"]: row["note"] for row in json.loads(lag.stdout) if row["partition"] == 2}
    assert reasons["page-views"] == "no offset: never committed, or skipped by the filters"
    result = within("offsets", "export", "--group", "team-a.billing", *tables)
    assert (result.returncode, result.stdout) == (0, "orders,0,2\n")
    assert "Note: the filters of the tables exclude groups that do not match 'team-" in result.stderr
    for reset_options, reason in (
        (("--group", "team-a.billing"), "Note: the filters of the tables exclude groups"),
        (("--group", "team-b.billing"), "The offsets of group 'team-b.billing' at "),
        (("--group", "team-a.billing", "--topic", "page-views"), "The offsets for topic 'page-views' at "),
    ):
        done = within(
            "offsets", "reset", *reset_options, "--at", "1s", "--bootstrap-server", own_kafka.bootstrap_server, *tables
        )
        assert reason in done.stdout + done.stderr
        assert "the filters of the tables exclude" in done.stdout + done.stderr
        assert "had no" not in done.stdout + done.stderr


def test_changed_filters_load_all_partitions_again(runner: JobRunner) -> None:
    history = runner.count("offset_commits")
    runner.run_once()
    assert "The filters have changed: all partitions are loaded again" in runner.said.getvalue()
    assert runner.values("offsets_partitions", "log_id") == {1}
    assert runner.count("offset_commits") > 2 * history
    complete = runner.rows("offsets_partitions", "history_complete_from")
    assert complete == runner.rows("offsets_partitions", "load_started_at")
    assert_is_complete(runner)
    runner.run_once()
    assert runner.values("offsets_partitions", "load_id") == {2}


@pytest.mark.nightly
def test_the_next_job_completes_a_killed_change_of_filters(runner: JobRunner) -> None:
    folder = Path(runner.tables.root).parent
    options = (*AS_OPTIONS, "--no-short-lived-groups", "--once")
    with JobProcess(runner.settings.bootstrap_server, folder, *options) as job:
        job.await_(lambda: "Loading 50 offsets partitions" in job.said())
        job.kill()
    runner.job(once=True, **FILTERS).run()
    assert runner.values("offsets_partitions", "log_id") <= {2, 3}
    present = dict(runner.rows("offsets_partitions", "offsets_partition", "log_id"))
    found = runner.rows("offset_commits", "offsets_partition", "log_id", "group_id", "topic")
    assert {(group, topic) for number, log_id, group, topic in found if present[number] == log_id} == {
        (group, "orders") for group in KEPT
    }
    assert runner.values("groups", "group_id") == {*KEPT}
    assert verified(runner).returncode == 0


def test_verify_reports_rows_that_the_filters_exclude(runner: JobRunner) -> None:
    (row,) = [row for row in runner.rows("groups") if "team-a.billing" in row]
    columns = load_schema("groups").column_names
    append_rows(Path(runner.tables.root), "groups", [dict(zip(columns, row, strict=True)) | {"group_id": "other"}])
    done = verified(runner, "2")
    assert done.returncode == 1
    assert "group_id 'other'" in done.stdout
