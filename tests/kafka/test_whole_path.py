"""One job as users run it, from its first load to `verify`. Each test continues where the previous one stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from offsetstream.cluster.offsets import fetch_offsets
from offsetstream.cluster.records import close
from offsetstream.demo.topics import commit_in_transaction, commit_plainly, create_topics
from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import LOOPBACK, free_ports
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from testkit.live_logs import numbered, write
from testkit.processes import JobProcess, offsetstream, within
from testkit.waiting import SECONDS

ORDERS = ("orders", 0)
FILTERS = ("--group-exclude", "noise-.*")


@dataclass
class Story:
    """A broker, the folder of a job's tables and checkpoints, and the port of its metrics."""

    server: str
    folder: Path
    port: int

    @property
    def tables(self) -> str:
        return str(self.folder / "tables")

    @property
    def options(self) -> tuple[str, ...]:
        return ("--bootstrap-server", self.server, "--tables", self.tables)

    def job(self) -> JobProcess:
        metrics = ("--metrics-port", str(self.port), "--group-metrics", "kafka-exporter")
        options = ("--trigger", "0 seconds", "--sample-interval", "1", *metrics, *FILTERS)
        return JobProcess(self.server, self.folder, *options)

    def commit(self, group: str, offset: int) -> None:
        commit_plainly(self.server, {group: [TopicPartition(*ORDERS, offset)]})

    def offsets(self) -> dict[str, int]:
        """Return the committed offsets in the tables for orders-0, by group."""
        if PathStore(self.tables).opened("committed_offsets") is None:
            return {}
        rows = Lookup(PathStore(self.tables)).rows("committed_offsets", ["group_id", "partition", "committed_offset"])
        return {row["group_id"]: row["committed_offset"] for row in rows if row["partition"] == ORDERS[1]}

    def group(self, group_id: str) -> dict[str, object] | None:
        found = Lookup(PathStore(self.tables)).rows(
            "groups", ["group_type", "state", "member_count"], {"group_id": [group_id]}
        )
        return next(iter(found), None)

    def lags(self) -> dict[str, float]:
        """Return the lags of orders-0 in the job's metrics, by group."""
        families = text_string_to_metric_families(self.scraped("/metrics"))
        samples = [each for family in families if family.name == "kafka_consumergroup_lag" for each in family.samples]
        return {each.labels["consumergroup"]: each.value for each in samples if each.labels["partition"] == "0"}

    def scraped(self, path: str) -> str:
        try:
            with urlopen(f"http://{LOOPBACK}:{self.port}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except URLError as error:  # it does not listen yet, or is not ready
            return str(error)


@pytest.fixture(scope="module")
def story(own_kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Story:
    server, (port,) = own_kafka.bootstrap_server, free_ports(1)
    create_topics(admin_client(server))
    write(server, ORDERS[0], *numbered(100))
    return Story(server, tmp_path_factory.mktemp("story") / "job", port)


@pytest.fixture(scope="module")
def job(story: Story) -> Iterator[JobProcess]:
    """Start the first job, with commits that were made before it."""
    for group in ("billing", "noise-1", "doomed"):
        story.commit(group, 5)
    with story.job() as running:
        yield running


def test_the_first_load_reads_earlier_commits(story: Story, job: JobProcess) -> None:
    job.await_(lambda: story.offsets() == {"billing": 5, "doomed": 5})
    assert "Loading 50 offsets partitions" in job.said()


def test_batches_apply_new_commits(story: Story, job: JobProcess) -> None:
    for offset in (6, 7):
        story.commit("billing", offset)
        job.await_(lambda: story.offsets()["billing"] == offset)  # noqa: B023 - awaited within


def test_filtered_groups_do_not_appear(story: Story, job: JobProcess) -> None:
    story.commit("noise-2", 8)
    story.commit("billing", 8)
    job.await_(lambda: story.offsets()["billing"] == 8)
    assert not [group for group in story.offsets() if group.startswith("noise")]


def test_only_committed_transactions_count(story: Story, job: JobProcess) -> None:
    places = [TopicPartition(*ORDERS, 9)]
    commit_in_transaction(story.server, "aborted", places, abort=True)
    commit_in_transaction(story.server, "in-transaction", places, abort=False)
    job.await_(lambda: story.offsets().get("in-transaction") == 9)
    assert "aborted" not in story.offsets()


def test_a_deleted_group_disappears(story: Story, job: JobProcess) -> None:
    admin = admin_client(story.server)  # a variable keeps it alive until its answer arrives
    admin.delete_consumer_groups(["doomed"])["doomed"].result(SECONDS)
    job.await_(lambda: "doomed" not in story.offsets() and story.group("doomed") is None)


def test_a_group_of_the_new_protocol_appears(story: Story, job: JobProcess) -> None:
    config = {"bootstrap.servers": story.server, "group.id": "kip-848", "group.protocol": "consumer"}
    member = Consumer(config, logger=QUIET)
    member.subscribe([ORDERS[0]])
    expected = {"group_type": "Consumer", "state": "Stable", "member_count": 1}
    try:

        def is_in_tables() -> bool:
            member.poll(0.1)
            return story.group("kip-848") == expected

        job.await_(is_in_tables)
    finally:
        close(member)


def test_metrics_show_the_lags(story: Story, job: JobProcess) -> None:
    job.await_(lambda: '"ready": true' in story.scraped("/readyz"))
    job.await_(lambda: story.lags().get("billing") == 92)
    assert "noise" not in story.scraped("/metrics")


def test_a_restart_after_a_kill_resumes_without_a_load(story: Story, job: JobProcess) -> None:
    story.commit("billing", 10)
    job.kill()
    story.commit("billing", 11)
    with story.job() as again:
        again.await_(lambda: story.offsets()["billing"] == 11)
        assert "Loading" not in again.said()  # it resumes from the tables' position
        done = offsetstream("stop", "--tables", story.tables)
        assert (done.returncode, again.ended()) == (0, 0), done.stderr
    commits = Lookup(PathStore(story.tables)).rows("offset_commits", ["committed_offset"], {"group_id": ["billing"]})
    assert sorted(row["committed_offset"] for row in commits) == [5, 6, 7, 8, 10, 11]


def test_a_reset_can_be_undone(story: Story) -> None:
    def committed() -> int | None:
        return fetch_offsets(story.server, "billing")[ORDERS].offset

    done = within(
        "offsets", "reset", "--group", "billing", "--all-topics", "--to-earliest", *story.options, "--execute"
    )
    assert (done.returncode, committed()) == (0, 0), done.stderr
    done = within("offsets", "undo", *story.options, "--execute")
    assert (done.returncode, committed()) == (0, 11), done.stderr


def test_verify_finds_that_tables_equal_the_cluster(story: Story) -> None:
    with story.job() as running:
        running.await_(lambda: '"ready": true' in story.scraped("/readyz"))
        done = offsetstream("verify", *story.options, "--history", "--settle", "60", "--output", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert [each for each in json.loads(done.stdout) if each["explanation"] is None] == []
        assert "0 only in the topic, 0 only in the tables, 0 changed" in done.stderr
