"""Hostile input on a real broker: strange group ids, garbage, records of 10 MB, a hanging transaction.

`python -m benchmarks.hostile` measures millions of records and their memory.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import DEFAULT_VERSION
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import UnreadableRecordError
from offsetstream.stream.lifecycle import live
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.small_tables import read_rows
from offsetstream.verify.records import disagreements, read_records
from testkit.garbage import garbage, produce
from testkit.processes import printed
from tests.conformance.builder import classic, classic_member
from tests.kafka.java_admin import JavaAdmin
from tests.kafka.java_clients import JavaClients, java_clients
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import commit_at, set_topic_config

pytestmark = pytest.mark.long

BROKER = {"message.max.bytes": "12000000", "replica.fetch.max.bytes": "12000000"}
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
GARBAGE, LARGE, LARGE_BYTES, NULL_KEYS = 20_000, 3, 10_000_000, 1
# A coordinator fails to load a partition with foreign records, and then serves none of its groups.
LITTERED = 40
PARTITIONS = 100_000
BIG, LONG = "big", "long"
SERVED = [f"served-{number}" for number in range(999) if partition_for(f"served-{number}", 50) >= LITTERED]
BIG_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties=BROKER) as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        yield kafka


@pytest.fixture(scope="module")
def clients(kafka: EmbeddedKafka) -> Iterator[JavaClients]:
    with java_clients(kafka.bootstrap_server, DEFAULT_VERSION) as clients:
        yield clients


@pytest.fixture(scope="module")
def runner(spark: SparkSession, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> JobRunner:
    return JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("job"))


def test_strange_group_ids_work_everywhere(kafka: EmbeddedKafka, clients: JavaClients, runner: JobRunner) -> None:
    """The broker accepts these ids, so the tables, every output and the comparison with the broker must handle them."""
    admin = JavaAdmin(clients)
    for number, group_id in enumerate(IDS):
        offsets = {("orders", partition): number for partition in (0, 1)}
        admin.alter_offsets(group_id, offsets, group_id[:1000])
    runner.run_once()
    assert {*runner.rows("committed_offsets", "group_id", "partition", "metadata")} == {
        (group_id, partition, group_id[:1000]) for group_id in IDS for partition in (0, 1)
    }
    tables = ("--tables", runner.tables.root)
    rows = json.loads(printed("offsets", "list", *tables, "--output", "json"))
    assert {(row["group"], row["partition"]): row["committed_offset"] for row in rows} == {
        (group_id, partition): number for number, group_id in enumerate(IDS) for partition in (0, 1)
    }
    text = printed("groups", "describe", "--all-groups", *tables, "--output", "csv")
    assert {row["group"] for row in csv.DictReader(io.StringIO(text, newline=""), strict=True)} == set(IDS)
    server = ("--bootstrap-server", kafka.bootstrap_server)
    assert printed("verify", *tables, *server, "--output", "json") == "[]\n"
    # No command line can hold a NUL.
    group_options = [option for group_id in IDS if "\0" not in group_id for option in ("--group", group_id)]
    found = json.loads(printed("coordinator", *group_options, *tables, *server, "--output", "json"))
    assert [row["group"] for row in found] == group_options[1::2]
    assert not any(row["differs"] for row in found)


def big_group() -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield the records of a group whose one member has 100,000 partitions."""
    member, assigned = {"groupId": BIG, "memberId": "m"}, [{"topicId": BIG_ID, "partitions": list(range(PARTITIONS))}]
    about: dict[str, Any] = {"instanceId": None, "rackId": None, "clientId": "c", "clientHost": "/h"}
    about |= {
        "subscribedTopicNames": ["t"],
        "subscribedTopicRegex": None,
        "rebalanceTimeoutMs": 1,
        "serverAssignor": None,
    }
    current = {"memberEpoch": 1, "previousMemberEpoch": 0, "state": 0, "assignedPartitions": assigned}
    values: tuple[tuple[int, dict[str, Any], dict[str, Any]], ...] = (
        (3, {"groupId": BIG}, {"epoch": 1}),
        (5, member, about | {"classicMemberMetadata": None}),
        (6, {"groupId": BIG}, {"assignmentEpoch": 1}),
        (7, member, {"topicPartitions": assigned}),
        (8, member, current | {"partitionsPendingRevocation": []}),
    )
    for key_type, key, value in values:
        yield partition_for(BIG, 50), *encode_record({"type": key_type, "data": key}, {"version": 0, "data": value})


def group_of_6_mib() -> tuple[int, bytes, bytes]:
    """Return the partition, key and value of a group record that is larger than a broker's load buffer (5 MiB)."""
    key, value = classic(
        *(classic_member(f"m{number}", subscription=bytes(1024)) for number in range(6000)), group=LONG
    )
    assert key is not None
    assert value is not None
    assert len(value) > 6 * 1024 * 1024
    return partition_for(LONG, 50), key, value


def write_garbage(kafka: EmbeddedKafka, seed: int) -> None:
    small = garbage(GARBAGE, 10, 300, seed)
    produce(kafka.bootstrap_server, ((number % LITTERED, *record) for number, record in enumerate(small)))
    large = garbage(LARGE, LARGE_BYTES, LARGE_BYTES, seed)
    produce(kafka.bootstrap_server, ((7, *record) for record in large), LARGE_BYTES)
    # A compacted topic refuses null keys, but may have some from before it was compacted.
    set_topic_config(kafka, cleanup_policy="delete")
    once_taken = retry(retry=retry_if_exception_type(RuntimeError), stop=stop_after_delay(30), wait=wait_fixed(0.2))
    once_taken(lambda: produce(kafka.bootstrap_server, iter([(8, None, b"\0")] * NULL_KEYS)))()
    set_topic_config(kafka, cleanup_policy="compact")


def assert_garbage_is_kept(runner: JobRunner, seeds: int) -> None:
    found = runner.rows("undecodable_records", "offsets_partition", "record_offset", "reason")
    assert len(found) == len({row[:2] for row in found}) == seeds * (GARBAGE + LARGE + NULL_KEYS)
    assert Counter(row[2] for row in found)["null key"] == seeds * NULL_KEYS
    table = runner.tables.open("undecodable_records")
    kept_records = {(row["key_bytes"], row["value_bytes"]) for row in read_rows(table, "offsets_partition = 7")}
    assert kept_records >= {
        record for seed in range(seeds) for record in garbage(LARGE, LARGE_BYTES, LARGE_BYTES, seed)
    }


def test_garbage_is_kept_and_hides_no_other_record(
    spark: SparkSession, kafka: EmbeddedKafka, runner: JobRunner
) -> None:
    before = runner.rows("committed_offsets")
    write_garbage(kafka, 0)
    produce(kafka.bootstrap_server, iter([*big_group(), group_of_6_mib()]), LARGE_BYTES)
    runner.run_once()
    assert "Continuing from checkpoint" in runner.said.getvalue()
    assert runner.rows("committed_offsets") == before
    assert_garbage_is_kept(runner, 1)
    described = printed(
        "groups", "describe", "--group", BIG, "--members", "--tables", runner.tables.root, "--output", "json"
    )
    (member,) = json.loads(described)
    assert member["partitions"] == PARTITIONS
    assert member["target_assignment"] == member["current_assignment"]
    assert member["current_assignment"].endswith(f",{PARTITIONS - 2},{PARTITIONS - 1}")
    assert (LONG, "Stable", 6000) in runner.rows("groups", "group_id", "state", "member_count")


def test_a_load_gives_the_same_tables(
    spark: SparkSession, kafka: EmbeddedKafka, runner: JobRunner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write_garbage(kafka, 1)
    runner.run_once()
    loaded = JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("load"))
    loaded.run_once()
    for either in (runner, loaded):
        assert_garbage_is_kept(either, 2)
    count = 2 * (GARBAGE + LARGE + NULL_KEYS)
    assert f"Cannot decode {count:,} records: see the table undecodable_records" in loaded.said.getvalue()
    for table in ("committed_offsets", "groups", "group_members", "member_assignments", "group_cells"):
        assert loaded.rows(table) == runner.rows(table)


def test_a_hanging_transaction_is_reported_and_blocks_only_its_partition(
    clients: JavaClients, runner: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.5)
    runner.settings = replace(runner.settings, max_transaction_timeout=timedelta(seconds=2))
    admin, (hanging, *other_groups) = JavaAdmin(clients), SERVED
    partition = partition_for(hanging, 50)
    blocked_group = next(group_id for group_id in other_groups if partition_for(group_id, 50) == partition)
    unblocked = next(group_id for group_id in other_groups if partition_for(group_id, 50) != partition)

    def row() -> dict[str, Any]:
        columns = ("last_stable_offset", "high_watermark", "last_stable_offset_since_ms", "load_state")
        (found,) = Lookup(runner.tables).rows("offsets_partitions", columns, {"offsets_partition": [partition]})
        return found

    def has(group_id: str) -> bool:
        return bool(Lookup(runner.tables).rows("committed_offsets", ("group_id",), {"group_id": [group_id]}))

    def lines_with(words: str) -> list[str]:
        lines = runner.said.getvalue().splitlines()
        return [line for line in lines if f" Offsets partition {partition} {words}" in line]

    with runner.running():
        runner.await_(lambda: runner.said.getvalue().count("Continuing from checkpoint") >= 3)
        clients.transaction(hanging, {("orders", 0): 5}, None)
        runner.await_(lambda: row()["last_stable_offset_since_ms"] is not None)
        admin.alter_offsets(blocked_group, {("orders", 0): 6})
        admin.alter_offsets(unblocked, {("orders", 0): 7})
        runner.await_(lambda: has(unblocked))  # all other partitions continue
        runner.await_(lambda: bool(lines_with("is blocked")))
        runner.await_(lambda: row()["high_watermark"] - row()["last_stable_offset"] >= 2)
        blocked = row()
        assert not has(hanging)
        assert not has(blocked_group)
        assert f"is blocked at offset {blocked['last_stable_offset']:,} by a transaction" in lines_with("is blocked")[0]
        # A new producer ends the old one's transaction.
        clients.transaction(hanging, {("orders", 0): 8}, "commitTransaction")
        runner.await_(lambda: row()["last_stable_offset_since_ms"] is None)
        runner.await_(lambda: has(blocked_group) and has(hanging))
    assert (len(lines_with("is blocked")), len(lines_with("is no longer blocked, after"))) == (1, 1)
    commits = runner.rows("committed_offsets", "group_id", "committed_offset")
    assert {(hanging, 8), (blocked_group, 6), (unblocked, 7)} <= set(commits)


def test_an_impossible_timestamp_ends_the_job_in_one_line(
    spark: SparkSession, kafka: EmbeddedKafka, runner: JobRunner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Brokers before Kafka 4.0 accept any timestamp. One that Spark's source cannot read ends the job in one line."""
    set_topic_config(kafka, message_timestamp_after_max_ms=str(2**63 - 1))
    commit_at(kafka, SERVED[2], 10**15)  # the year 33658
    runner.run_once()
    (row,) = Lookup(runner.tables).rows("committed_offsets", ("record_timestamp_ms",), {"group_id": [SERVED[2]]})
    assert row == {"record_timestamp_ms": None}
    assert disagreements(read_records(runner.tables)) == []
    offset = commit_at(kafka, SERVED[3], 2**63 - 1)
    location = f"at offset {offset} of partition {partition_for(SERVED[3], 50)} of __consumer_offsets"
    loaded = JobRunner(spark, kafka.bootstrap_server, tmp_path_factory.mktemp("times"))
    for job in (runner.job(once=True), loaded.job(once=True, load_by="spark")):  # stream, load
        with pytest.raises(UnreadableRecordError, match=location):
            job.run()
    loaded.run_once()  # a load that reads raw keeps the record, without a time
    (row,) = Lookup(loaded.tables).rows("committed_offsets", ("record_timestamp_ms",), {"group_id": [SERVED[3]]})
    assert row == {"record_timestamp_ms": None}
