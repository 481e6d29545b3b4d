"""`topics describe` shows a real cluster's topics as Kafka's own tool does, and the groups that read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from offsetstream.cluster.client import Cluster
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import run_tool
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.live_logs import create_topic, numbered, transaction, write
from testkit.processes import Done, within
from testkit.tables import append_rows, new_tables
from testkit.waiting import SECONDS

TOPICS = {"orders": 3, "payments": 1}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with EmbeddedKafka() as kafka:
        for topic, partitions in TOPICS.items():
            create_topic(kafka.bootstrap_server, topic, partitions)
        write(kafka.bootstrap_server, "orders", *numbered(4), partition=1)
        yield kafka.bootstrap_server


def described(server: str, *options: str, tables: Path | None = None) -> Done:
    table_options = () if tables is None else ("--tables", str(tables))
    return within("topics", "describe", "--bootstrap-server", server, *table_options, *options)


def rows(server: str, *options: str, tables: Path | None = None) -> list[dict[str, Any]]:
    done = described(server, *options, "--output", "json", tables=tables)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def write_tables(folder: Path, cluster_id: str) -> Path:
    new_tables(folder, cluster_id=cluster_id)
    return folder


def rows_of_tool(server: str) -> dict[tuple[str, int], tuple[str, int | None, list[int], list[int]]]:
    """Return topic id, leader, replicas and in-sync replicas of each partition from kafka-topics."""
    printed = run_tool("org.apache.kafka.tools.TopicCommand", ["--bootstrap-server", server, "--describe"])
    ids = dict(re.findall(r"Topic: (\S+)\s+TopicId: (\S+)", printed))
    found = {}
    for line in re.findall(r"\tTopic: .*", printed):
        cells = dict(re.findall(r"(\w+): (\S*)", line))
        leader = None if cells["Leader"] == "none" else int(cells["Leader"])
        numbers = [[int(each) for each in cells[name].split(",") if each] for name in ("Replicas", "Isr")]
        found[cells["Topic"], int(cells["Partition"])] = (ids[cells["Topic"]], leader, numbers[0], sorted(numbers[1]))
    return found


def in_tool_format(found: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[str, int | None, list[int], list[int]]]:
    return {
        (row["topic"], row["partition"]): (row["topic_id"], row["leader"], row["replicas"], row["in_sync_replicas"])
        for row in found
    }


def test_topics_describe_equals_kafkas_own_tool(server: str) -> None:
    found = rows(server)
    assert in_tool_format(found) == rows_of_tool(server)
    assert {row["topic"] for row in found} >= set(TOPICS)
    ends = {
        row["partition"]: (row["log_start_offset"], row["log_end_offset"]) for row in found if row["topic"] == "orders"
    }
    assert ends == {0: (0, 0), 1: (0, 4), 2: (0, 0)}
    assert {row["leader_epoch"] for row in found} == {0}
    assert {row["groups"] for row in found} == {None}


def test_groups_that_read_a_topic_are_listed(server: str, tmp_path: Path) -> None:
    tables = write_tables(tmp_path / "tables", Cluster(server).cluster_id())
    table_options = {"topic": "orders", "offsets_partition": 0, "committed_offset": 1, "in_coordinator_partition": True}
    groups = [("billing", 1), ("search", 1), ("audit", 1), ("mail", 1), ("billing", 2)]
    append_rows(
        tables, "committed_offsets", [table_options | {"group_id": group, "partition": at} for group, at in groups]
    )
    found = rows(server, "--topic", "orders", tables=tables)
    assert [row["groups"] for row in found] == [[], ["audit", "billing", "mail", "search"], ["billing"]]
    text = described(server, "--topic", "orders", tables=tables).stdout.splitlines()
    assert [" ".join(line.split()[8:]) for line in text[1:4]] == ["- -", "audit,billing,mail and 1 more -", "billing -"]
    assert text[-1].startswith("1 topic, 3 partitions, 0 with replicas out of sync; as of ")
    append_rows(
        tables, "offsets_partitions", [{"offsets_partition": 0, "caught_up_at": datetime(2026, 1, 1, tzinfo=UTC)}]
    )
    assert described(server, tables=tables).stderr.startswith("STALE: nothing is known of the last ")
    assert described(server, "--max-age", "none", tables=tables).stderr == ""
    refused = described(server, tables=write_tables(tmp_path / "other", "another"))
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    assert described(server, tables=tmp_path / "none").returncode == 1


def test_an_open_transaction_is_shown(server: str) -> None:
    with transaction(server, "open", "payments", *numbered(2)) as producer:
        (row,) = rows(server, "--topic", "payments")
        assert (row["last_stable_offset"], row["log_end_offset"]) == (0, 2)
        producer.abort_transaction(30)


def test_text_output_works_without_tables(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = described(server, "--topic", "orders")
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[0].split()[:3]) == (0, ["TOPIC", "PARTITION", "LEADER"])
    assert lines[2].split()[:8] == ["orders", "1", "1", "0", "1", "1", "0", "4"]
    assert "the groups that read them are unknown: there are no tables; as of" in lines[-1]


def test_tables_of_another_cluster_that_nobody_named_are_left_out(
    server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    new_tables(tmp_path / "tables", cluster_id="another")
    shown = described(server)
    assert (shown.returncode, "Without groups: " in shown.stderr) == (0, True)
    named = described(server, "--tables", "tables")
    assert (named.returncode, named.stdout) == (1, "")


def test_unknown_topics_are_errors(server: str) -> None:
    done = described(server, "--topic", "nowhere", "--topic", "payments")
    assert (done.returncode, done.stderr) == (1, "Error: topic 'nowhere' is not there\n")
    assert "payments" in done.stdout
    create_topic(server, "deleted")
    admin = admin_client(server)  # a variable keeps it alive until its answer arrives
    admin.delete_topics(["deleted"])["deleted"].result(SECONDS)
    assert described(server, "--topic", "deleted").returncode == 1
    assert within("topics", "describe").returncode == 2
