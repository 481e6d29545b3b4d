"""Offsets below zero, which some clients commit: they are none, and what leaves them out says so."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from offsetstream.codec.encode import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.commits import commit_plainly
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.tools import CONSUMER_GROUPS, run_tool
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
    """A group with an offset, and two below zero: our clients refuse them, so that they are written into the log."""
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
        kafka.restart()  # coordinators read the log when they begin
        yield kafka.bootstrap_server


@pytest.fixture(scope="module")
def tables(spark: SparkSession, server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    runner = JobRunner(spark, server, tmp_path_factory.mktemp("job"))
    runner.run_once()
    return runner.tables.root


def asked(*arguments: str, code: int = 0) -> Done:
    done = within(*arguments)
    assert done.returncode == code, done.stderr
    return done


def rows(*arguments: str, code: int = 0) -> dict[int, dict[str, Any]]:
    found = json.loads(asked(*arguments, "--output", "json", code=code).stdout)
    return {row["partition"]: row for row in found}


def standing(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("current_offset", "lag", "note"))


@pytest.mark.parametrize("is_live", [False, True], ids=["tables", "live"])
def test_describe_and_lag_show_none_as_kafkas_tool_does(server: str, tables: str, is_live: bool) -> None:
    there = ("--group", GROUP, "--tables", tables)
    live = ("--bootstrap-server", server) if is_live else ()
    own = {0: (4, 6, None), 1: (None, None, WHY[1]), 2: (None, None, WHY[2])}
    assert {number: standing(row) for number, row in rows("groups", "describe", *there, *live).items()} == own
    assert {number: standing(row) for number, row in rows("lag", *there).items()} == own
    told = run_tool(CONSUMER_GROUPS, ["--bootstrap-server", server, "--describe", "--group", GROUP])
    theirs = [line.split()[2:6] for line in told.splitlines() if line.startswith(GROUP)]
    assert sorted(theirs) == [["0", "4", "10", "6"], ["1", "-", "10", "-"], ["2", "-", "10", "-"]]


def test_the_tables_and_the_coordinator_agree(server: str, tables: str) -> None:
    there = ("--tables", tables, "--bootstrap-server", server)
    asked("offsets", "list", "--live", "--group", GROUP, *there)
    asked("verify", *there)


def test_lag_exact_names_them(server: str) -> None:
    found = rows("lag", "--exact", "--group", GROUP, "--bootstrap-server", server)
    assert (found[0]["lag"], found[0]["note"]) == (6, None)
    assert [(found[number]["lag"], found[number]["note"]) for number in (1, 2)] == [(None, LEFT_OUT)] * 2


def test_peek_names_them(server: str) -> None:
    done = asked("peek", "--group", GROUP, "--bootstrap-server", server)
    assert [f"{TOPIC}-{number}: {LEFT_OUT}" in done.stderr for number in range(3)] == [False, True, True]


def test_export_names_them(tables: str) -> None:
    done = asked("offsets", "export", "--group", GROUP, "--tables", tables)
    assert done.stdout == f"{TOPIC},0,4\n"
    for number in (1, 2):
        assert f"group '{GROUP}' {TOPIC}-{number} is skipped ({WHY[number]})" in done.stderr


def test_reset_names_them(server: str, tables: str, tmp_path: Path) -> None:
    there = ("offsets", "reset", "--group", GROUP, "--bootstrap-server", server, "--tables", tables)
    done = asked(*there, "--all-topics", "--shift-by", "1")
    for number in (1, 2):
        assert f"Note: group '{GROUP}' {TOPIC}-{number} is skipped ({LEFT_OUT})" in done.stderr
    planned = rows(*there, "--topic", TOPIC, "--to-current")
    assert {number: (row["current_offset"], row["new_offset"]) for number, row in planned.items()} == {
        0: (4, 4),
        1: (None, 10),
        2: (None, 10),
    }
