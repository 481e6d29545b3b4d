"""Ids that nobody would choose, on a real broker: the tables, every output and the comparison with it take them."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import DEFAULT_VERSION, EmbeddedKafka
from tests.kafka.java_admin import JavaAdmin
from tests.kafka.java_clients import JavaClients, java_clients
from tests.kafka.jobs import JobRunner

IDS = (
    "a,b",
    "line\nfeed",
    "cr\rlf\r\n",
    'q"uo"te',
    "nul\0nul",
    "😀" * 99,
    "\x1b[31mred",
    " ",
    "it's; --",
    "g" * 32_000,
)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        yield kafka


@pytest.fixture(scope="module")
def clients(kafka: EmbeddedKafka) -> Iterator[JavaClients]:
    with java_clients(kafka.bootstrap_server, DEFAULT_VERSION) as clients:
        yield clients


@pytest.fixture(scope="module")
def runner(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> JobRunner:
    return JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("job"))


def run(*arguments: str) -> bytes:
    done = subprocess.run([sys.executable, "-m", "offsetstream", *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ids_that_nobody_would_choose(kafka: EmbeddedKafka, clients: JavaClients, runner: JobRunner) -> None:
    """The broker takes them, so the tables, every output and the comparison with the broker must too."""
    admin = JavaAdmin(clients)
    for number, group_id in enumerate(IDS):
        offsets = {("orders", partition): number for partition in (0, 1)}
        admin.alter_offsets(group_id, offsets, group_id[:1000])
    runner.run_once()
    assert {*runner.rows("committed_offsets", "group_id", "partition", "metadata")} == {
        (group_id, partition, group_id[:1000]) for group_id in IDS for partition in (0, 1)
    }
    tables = ("--tables", runner.tables.root)
    rows = json.loads(run("offsets", "list", *tables, "--output", "json"))
    assert {(row["group"], row["partition"]): row["committed_offset"] for row in rows} == {
        (group_id, partition): number for number, group_id in enumerate(IDS) for partition in (0, 1)
    }
    text = run("groups", "describe", "--all-groups", *tables, "--output", "csv").decode()
    assert {row["group"] for row in csv.DictReader(io.StringIO(text, newline=""), strict=True)} == set(IDS)
    server = ("--bootstrap-server", kafka.bootstrap_server)
    assert run("verify", *tables, *server, "--output", "json") == b"[]\n"
    # No command line can hold a NUL.
    wanted = [option for group_id in IDS if "\0" not in group_id for option in ("--group", group_id)]
    found = json.loads(run("coordinator", *wanted, *tables, *server, "--output", "json"))
    assert [row["group"] for row in found] == wanted[1::2]
    assert not any(row["differs"] for row in found)
