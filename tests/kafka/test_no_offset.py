"""Negative offsets, which some clients commit, count as no offset; commands that skip them report it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.jvm import CONSUMER_GROUPS, run_tool
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.garbage import produce
from testkit.live_logs import create_topic, numbered, write
from testkit.processes import Done, within
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

GROUP, TOPIC = "negative", "orders"
WHY = {1: "no offset: -1 was committed", 2: "no offset: -2 was committed"}
LEFT_OUT = "no offset: a negative one was committed"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Run a broker with a group that has one valid and two negative offsets, written directly to the log."""
    with EmbeddedKafka() as kafka:
        create_topic(kafka.bootstrap_server, TOPIC, 3)
        for partition in range(3):
            write(kafka.bootstrap_server, TOPIC, *numbered(10), partition=partition)
        commit_plainly(kafka.bootstrap_server, {GROUP: [TopicPartition(TOPIC, 0, 4)]})
        records = []
        for partition in (1, 2):
            key = {"type": 1, "data": {"group": GROUP, "topic": TOPIC, "partition": partition}}
            value = {"offset": -partition, "metadata": "", "commitTimestamp": int(time.time() * 1000)}
            value |= {"leaderEpoch": -1}
            records.append((partition_for(GROUP, 50), *encode_record(key, {"version": 3, "data": value})))
        produce(kafka.bootstrap_server, iter(records))
        kafka.restart()  # coordinators read the log when they start
        yield kafka.bootstrap_server


@pytest.fixture(scope="module")
def tables(spark: SparkSession, server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    runner = JobRunner(spark, server, tmp_path_factory.mktemp("job"))
    runner.run_once()
    return runner.tables.root


def run(*arguments: str, code: int = 0) -> Done:
    done = within(*arguments)
    assert done.returncode == code, done.stderr
    return done


def rows(*arguments: str, code: int = 0) -> dict[int, dict[str, Any]]:
    found = json.loads(run(*arguments, "--output", "json", code=code).stdout)
    return {row["partition"]: row for row in found}


def offset_lag_and_note(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("current_offset", "lag", "note"))


@pytest.mark.parametrize("is_live", [False, True], ids=["tables", "live"])
def test_describe_and_lag_show_no_offset_like_kafkas_tool(server: str, tables: str, is_live: bool) -> None:
    options = ("--group", GROUP, "--tables", tables)
    live = ("--bootstrap-server", server) if is_live else ()
    expected = {0: (4, 6, None), 1: (None, None, WHY[1]), 2: (None, None, WHY[2])}
    assert {
        number: offset_lag_and_note(row) for number, row in rows("groups", "describe", *options, *live).items()
    } == expected
    assert {number: offset_lag_and_note(row) for number, row in rows("lag", *options).items()} == expected
    printed = run_tool(CONSUMER_GROUPS, ["--bootstrap-server", server, "--describe", "--group", GROUP])
    tool_lines = [line.split()[2:6] for line in printed.splitlines() if line.startswith(GROUP)]
    assert sorted(tool_lines) == [["0", "4", "10", "6"], ["1", "-", "10", "-"], ["2", "-", "10", "-"]]


def test_the_tables_and_the_coordinator_agree(server: str, tables: str) -> None:
    options = ("--tables", tables, "--bootstrap-server", server)
    run("offsets", "list", "--live", "--group", GROUP, *options)
    run("verify", *options)


def test_lag_exact_reports_negative_offsets(server: str) -> None:
    found = rows("lag", "--exact", "--group", GROUP, "--bootstrap-server", server)
    assert (found[0]["lag"], found[0]["note"]) == (6, None)
    assert [(found[number]["lag"], found[number]["note"]) for number in (1, 2)] == [(None, LEFT_OUT)] * 2


def test_peek_reports_negative_offsets(server: str) -> None:
    done = run("peek", "--group", GROUP, "--bootstrap-server", server)
    assert [f"{TOPIC}-{number}: {LEFT_OUT}" in done.stderr for number in range(3)] == [False, True, True]


def test_export_reports_negative_offsets(tables: str) -> None:
    done = run("offsets", "export", "--group", GROUP, "--tables", tables)
    assert done.stdout == f"{TOPIC},0,4\n"
    for number in (1, 2):
        assert f"group '{GROUP}' {TOPIC}-{number} is skipped ({WHY[number]})" in done.stderr


def test_reset_reports_negative_offsets(server: str, tables: str, tmp_path: Path) -> None:
    options = ("offsets", "reset", "--group", GROUP, "--bootstrap-server", server, "--tables", tables)
    done = run(*options, "--all-topics", "--shift-by", "1")
    for number in (1, 2):
        assert f"Note: group '{GROUP}' {TOPIC}-{number} is skipped ({LEFT_OUT})" in done.stderr
    planned = rows(*options, "--topic", TOPIC, "--to-current")
    assert {number: (row["current_offset"], row["new_offset"]) for number, row in planned.items()} == {
        0: (4, 4),
        1: (None, 10),
        2: (None, 10),
    }
