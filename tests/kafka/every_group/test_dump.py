"""`offsetstream dump` prints the same as Kafka's own console consumer and formatters."""

import json
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from json import JSONDecoder
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_in_transaction, commit_plainly, create_topics
from offsetstream.dump import topic
from offsetstream.embedded.artifacts import classpath, resolve
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.java import java_executable
from offsetstream.embedded.jvm import DEFAULT_VERSION
from offsetstream.spark.source import KafkaSource
from testkit.brokers import BrokerUnderTest
from testkit.live_logs import joined
from testkit.processes import JAVAS_LINE, OFFSETSTREAM, offsetstream, printed
from testkit.waiting import SECONDS
from tests.kafka.every_group.all_groups import AllGroups

pytestmark = pytest.mark.nightly

TOPIC = "dump-topic"
CONSOLE = "console-consumer-"  # the tool's own groups: each run adds one
OFFSETS_FORMATTER, GROUPS_FORMATTER = "OffsetsMessageFormatter", "GroupMetadataMessageFormatter"


@pytest.fixture(scope="module")
def server(kafka: BrokerUnderTest) -> str:
    """The broker with commits of every kind, and with groups, one of them deleted."""
    admin = admin_client(kafka.bootstrap_server)
    create_topics(admin)  # the topic `ledger`, which the transactions use
    admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result(SECONDS)
    offsets = [TopicPartition(TOPIC, number, number * 10, 'a "note"\n\x01 é😀') for number in range(3)]
    commit_plainly(kafka.bootstrap_server, {f"dump-{number}": offsets for number in range(20)})
    commit_in_transaction(kafka.bootstrap_server, "dump-committed", offsets, abort=False)
    commit_in_transaction(kafka.bootstrap_server, "dump-aborted", offsets, abort=True)
    joined(kafka.bootstrap_server, "dump-live", TOPIC).close()
    admin.delete_consumer_groups(["dump-0"])["dump-0"].result(SECONDS)
    return kafka.bootstrap_server


def dump(spark: SparkSession, server: str, line_format: str) -> bytes:
    """Return the dump of the whole topic, made in the tests' Spark session."""
    cluster, target = Cluster(server), BytesIO()
    ends = cluster.partition_ends(cluster.topic_partitions())
    ranges = {number: (end.log_start_offset, end.last_stable_offset) for number, end in ends.items()}
    assert topic.dump(spark, KafkaSource(server, {}), ranges, line_format, target) is None
    return target.getvalue()


def console_consumer(server: str, formatter: str, version: str = DEFAULT_VERSION) -> str:
    """Return what Kafka's console consumer prints for the whole topic with one of its formatters."""
    artifacts = [f"org.apache.kafka:{artifact}:{version}" for artifact in ("kafka-tools", "kafka_2.13")]
    tool = ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", server, "--topic", OFFSETS_TOPIC]
    # The tool stops after this long without a record; a busy machine must reach the end of the topic first.
    options = ["--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "20000"]
    java = [str(java_executable()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath(resolve(artifacts))]
    done = subprocess.run([*java, *tool, *options, "--formatter", formatter], capture_output=True, check=True)
    return done.stdout.decode()


def documents(text: str) -> Iterator[str]:
    """Split concatenated JSON documents."""
    at = 0
    while at < len(text.rstrip()):
        _, end = JSONDecoder().raw_decode(text, at)
        yield text[at:end]
        at = end


def _without_console_groups(printed: Iterable[str]) -> list[str]:
    return sorted(line for line in printed if not json.loads(line)["key"]["data"]["group"].startswith(CONSOLE))


def test_dump_prints_what_the_console_consumer_prints(every_group: AllGroups, spark: SparkSession) -> None:
    """On brokers of each release, with groups of every type (tests/kafka/every_group/all_groups.py)."""
    server = every_group.kafka.bootstrap_server
    names = [f"org.apache.kafka.tools.consumer.{name}" for name in (OFFSETS_FORMATTER, GROUPS_FORMATTER)]
    with ThreadPoolExecutor() as pool:
        shown = pool.map(partial(console_consumer, server), names)
        our_lines = dump(spark, server, "kafka").decode().split("\n")[:-1]
        kafka_lines = [line for text in shown for line in documents(text)]
    assert _without_console_groups(our_lines) == _without_console_groups(kafka_lines)
    groups = {json.loads(line)["key"]["data"]["group"] for line in our_lines}
    assert {"java-cooperative", "java-static", "streams-by-classic-count", "offsets-altered"} <= groups
    assert {"transactions-committed", "transactions-aborted-after-commit", "transactions-open-after-commit"} <= groups
    assert not {"transactions-aborted", "transactions-open"} & {
        json.loads(line)["key"]["data"]["group"] for line in our_lines if "topic" in json.loads(line)["key"]["data"]
    }
    assert any(json.loads(line)["value"] is None for line in our_lines)


@pytest.mark.parametrize("every_group", ["3.9.2"], indirect=True)
def test_dump_prints_what_the_older_formatters_print(every_group: AllGroups) -> None:
    """The dump reads the broker's own segments and prints the text format of the broker's release."""
    server, version = every_group.kafka.bootstrap_server, every_group.kafka.version
    names = [f"kafka.coordinator.group.GroupMetadataManager${name}" for name in (OFFSETS_FORMATTER, GROUPS_FORMATTER)]
    with ThreadPoolExecutor() as pool:
        shown = pool.map(partial(console_consumer, server, version=version), names)
        kafka_lines = [line for text in shown for line in text.split("\n")[:-1]]
    our_lines = printed("dump", "--format", "kafka-text", "--files", str(every_group.kafka.folder)).split("\n")[:-1]
    assert sorted(line for line in our_lines if CONSOLE not in line) == sorted(
        line for line in kafka_lines if CONSOLE not in line
    )
    assert any(line.startswith("java-cooperative::GroupMetadata(groupId=java-cooperative") for line in our_lines)


def test_records_are_in_order_and_decode_accepts_them(server: str, spark: SparkSession, tmp_path: Path) -> None:
    raw, documents = tmp_path / "raw", dump(spark, server, "json")
    raw.write_bytes(dump(spark, server, "records"))
    assert printed("decode", str(raw)).encode() == documents
    records: list[dict[str, Any]] = [json.loads(line) for line in documents.decode().split("\n")[:-1]]
    positions = [(record["partition"], record["offset"]) for record in records]
    assert positions == sorted(set(positions))
    assert list(records[0]) == ["partition", "offset", "timestamp", "key", "value"]
    commits = [record for record in records if record["key"]["data"].get("topic") == TOPIC and record["value"]]
    assert len(commits) > 60
    for record in commits:
        assert record["partition"] == partition_for(record["key"]["data"]["group"], 50)
        assert abs(record["timestamp"] - record["value"]["data"]["commitTimestamp"]) < 60_000


def test_dump_of_one_partition_in_the_format_of_older_releases(server: str) -> None:
    """The command as users run it: with its own Spark session, and only Java's own line on stderr."""
    home = partition_for("dump-committed", 50)
    chosen = ("--format", "kafka-text", "--offsets-partition", str(home))
    done = offsetstream("dump", "--bootstrap-server", server, *chosen)
    assert (done.returncode, done.stderr) == (0, "")
    for number in range(3):
        line_start = f"[dump-committed,{TOPIC},{number}]::OffsetAndMetadata(offset={number * 10}, leaderEpoch="
        assert done.stdout.count(line_start) == 1


def test_errors_are_one_line(server: str, tmp_path: Path) -> None:
    count = len(Cluster(server).topic_partitions())
    for arguments, exit_code, words in (
        (["--offsets-partition", str(count)], 2, f"no partition {count}"),
        (["--command-config", str(tmp_path / "none")], 2, "cannot read the client properties"),
        (["--file", str(tmp_path)], 2, f"cannot write {tmp_path}"),
    ):
        done = offsetstream("dump", "--bootstrap-server", server, *arguments)
        assert (done.returncode, done.stdout) == (exit_code, "")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_broken_pipe_ends_the_dump_quietly(server: str) -> None:
    command = [*OFFSETSTREAM, "dump", "--bootstrap-server", server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read().decode() == f"{JAVAS_LINE}\n"
        assert process.wait(SECONDS) == 1
