"""Each command works with exactly the rights in docs/reference/rights.md. Without one of them it names the missing
right and exits with code 3.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from offsetstream import CommittedOffset
from offsetstream.cluster.log_ends import TopicPartitionKey
from offsetstream.cluster.properties import read_properties
from offsetstream.cluster.rights import (
    ALL_GROUPS,
    ALL_TOPICS,
    COMMANDS,
    OFFSETS_TOPIC,
    READ_ALL_TOPICS,
    TRANSACTION_IDS,
    Right,
)
from offsetstream.embedded.clients import QUIET
from offsetstream.operations.plan import Change
from offsetstream.operations.undo import Snapshot, write_snapshot
from offsetstream.stream.sampling.log_tails import LogTails
from offsetstream.stream.sampling.sample_book import Holder
from offsetstream.tables.lease import request_reload
from testkit.waiting import SECONDS
from tests.kafka.jobs import JobRunner
from tests.kafka.security.broker import Secured
from tests.kafka.security.commands import offsetstream

pytestmark = pytest.mark.long

ARGUMENTS = {
    "run": ("run", "--once"),
    "dump --bootstrap-server": ("dump", "--format", "kafka"),
    "verify": ("verify",),
    "verify --history": ("verify", "--history"),
    "coordinator --bootstrap-server": ("coordinator", "--group", "billing"),
    "offsets list --live": ("offsets", "list", "--live", "--group", "billing"),
    "partitions --blocked": ("partitions", "--blocked"),
    "partitions --blocked --group": ("partitions", "--blocked", "--group", "billing"),
    "partitions --blocked --topic": ("partitions", "--blocked", "--topic", "orders"),
    "lag --exact": ("lag", "--exact", "--group", "billing"),
    "lag --exact --topic": ("lag", "--exact", "--group", "billing", "--topic", "orders"),
    "peek --group": ("peek", "--group", "billing"),
    "peek --topic": ("peek", "--topic", "orders", "--partition", "0", "--offset", "0"),
    "topics describe": ("topics", "describe"),
    "topics describe --topic": ("topics", "describe", "--topic", "orders"),
    "offsets reset --topic": ("offsets", "reset", "--group", "billing", "--topic", "orders", "--to-current"),
    "offsets reset --all-topics": ("offsets", "reset", "--group", "billing", "--all-topics", "--to-current"),
    "offsets import": ("offsets", "import", "FILE", "--same-log"),
    "offsets export --with-times": ("offsets", "export", "--group", "billing", "--with-times"),
    "offsets undo": ("offsets", "undo", "CHANGED"),
    "offsets undo (of offsets that were created)": ("offsets", "undo", "CREATED"),
    "offsets delete": ("offsets", "delete", "--group", "billing", "--topic", "orders"),
    "groups delete": ("groups", "delete", "--group", "billing"),
    "groups describe --offsets --bootstrap-server": ("groups", "describe", "--group", "billing"),
    "groups describe --state --bootstrap-server": ("groups", "describe", "--group", "billing", "--state"),
}
NAMES = {"<group>": ("billing",), "<topic>": ("orders",), "<topic of the group>": ("orders", "payments")}


def concrete(command: str) -> list[Right]:
    """Return the rights that the command needs, for the group and topics of the tests."""
    needed = [right for right in COMMANDS[command] if right.without is None]
    return [replace(right, name=name) for right in needed for name in NAMES.get(right.name, (right.name,))]


FEWER = [(command, right) for command in COMMANDS for right in concrete(command)]


@pytest.fixture
def connection(secured: Secured, tables: Path, tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "offsets.csv").write_text("billing,orders,0,5\n", "utf-8")
    cluster_id, now = str(secured.admin.list_topics(timeout=SECONDS).cluster_id), datetime.now(UTC)
    for name, before in (("changed", CommittedOffset(4)), ("created", None)):
        done = Change("billing", "orders", 0, before, CommittedOffset(5))
        written = write_snapshot(tmp_path, Snapshot(name, "reset", cluster_id, now, (done,)))
        written.rename(tmp_path / f"{name}.json")
    return ("--bootstrap-server", secured.kafka.bootstrap_server, "--command-config", str(secured.file_of("bob")))


def arguments(command: str, connection: tuple[str, ...], tables: Path, folder: Path) -> tuple[str, ...]:
    places = {
        "run": ("--tables", str(folder / "tables"), "--checkpoint", str(folder / "checkpoints")),
        "dump --bootstrap-server": (),
        "peek --group": (),
        "peek --topic": (),
    }
    files = {"FILE": folder / "offsets.csv", "CHANGED": folder / "changed.json", "CREATED": folder / "created.json"}
    named = [str(files.get(each, each)) for each in ARGUMENTS[command]]
    return (*named, *connection, *places.get(command, ("--tables", str(tables))))


@pytest.mark.parametrize(("command", "right"), FEWER, ids=str)
def test_a_missing_right_is_named(
    secured: Secured, connection: tuple[str, ...], tables: Path, tmp_path: Path, command: str, right: Right
) -> None:
    with secured.granted("bob", [each for each in concrete(command) if each != right]):
        done = offsetstream(*arguments(command, connection, tables, tmp_path))
    assert (done.returncode, f"lacks {right};" in done.stderr) == (3, True), done.stderr
    # No job renews these tables: after two minutes, a look-up also says that they are old.
    assert len([line for line in done.stderr.splitlines() if not line.startswith("STALE: ")]) == 1
    assert done.stdout == ""


@pytest.mark.nightly
@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "run"])
def test_no_more_rights_are_needed(
    secured: Secured, connection: tuple[str, ...], tables: Path, tmp_path: Path, command: str
) -> None:
    with secured.granted("bob", concrete(command)):
        done = offsetstream(*arguments(command, connection, tables, tmp_path))
    assert done.returncode == 0, done.stderr
    assert "lacks" not in done.stderr


@pytest.mark.nightly
def test_the_job_needs_no_more_rights_and_reports_what_optional_ones_would_add(
    secured: Secured, spark: SparkSession, tmp_path: Path
) -> None:
    runner = JobRunner(spark, secured.kafka.bootstrap_server, tmp_path)
    runner.settings = replace(runner.settings, properties=read_properties(str(secured.file_of("bob"))))
    with secured.granted("bob", concrete("run")):
        runner.run_once()
    rows = runner.rows("committed_offsets", "group_id", "topic", "committed_offset")
    assert {row[1:] for row in rows if row[0] == "billing"} == {("orders", 5), ("payments", 5)}
    messages = " ".join(runner.said.getvalue().split())
    for right in set(COMMANDS["run"]) - {READ_ALL_TOPICS, TRANSACTION_IDS}:  # reported only when they are needed
        assert (str(right) in messages) == (right.without is not None), messages
    assert messages.count("The ends of the topic orders and 1 more are not sampled") == 1
    sampled = runner.rows("topic_partitions", "topic", "high_watermark", "error")
    hidden = {(topic, None, "TOPIC_AUTHORIZATION_FAILED") for topic in ("orders", "payments")}
    assert {row for row in sampled if row[0] != OFFSETS_TOPIC} == hidden
    assert runner.rows("cluster", "group_coordinator", "offsets_retention_ms") == [("new", None)]


def test_the_ends_of_transactional_logs_are_unknown_without_more_rights(secured: Secured, spark: SparkSession) -> None:
    place, messages = TopicPartitionKey("ledger", 0), list[str]()
    login = secured.kafka.librdkafka_properties("admin")
    secured.admin.create_topics([NewTopic("ledger", 1)])["ledger"].result(SECONDS)
    producer = Producer(
        {"bootstrap.servers": secured.kafka.bootstrap_server, "transactional.id": "ledger-writer", **login},
        logger=QUIET,
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("ledger", b"value")
    producer.flush(SECONDS)
    tails = LogTails(
        spark, secured.kafka.bootstrap_server, read_properties(str(secured.file_of("bob"))), messages.append
    )
    warnings = [f"Without {right}, {right.without}" for right in (READ_ALL_TOPICS, TRANSACTION_IDS)]
    with secured.granted("bob", [Right("DESCRIBE", "topic", "ledger")]):
        assert (tails.holders([place]), messages) == ({}, warnings[:1])
    with secured.granted("bob", [Right("READ", "topic", "ledger")]):
        assert (tails.holders([place]), messages) == ({place: Holder(None, None)}, warnings)
    producer.commit_transaction(SECONDS)  # a record at 0 and a marker at 1
    with secured.granted("bob", [Right("DESCRIBE", "topic", "ledger")]):
        assert tails.first_readable({place: 1}) == {}
    with secured.granted("bob", [Right("READ", "topic", "ledger")]):
        assert [tails.first_readable({place: offset}) for offset in (0, 1)] == [{place: 0}, {place: None}]
    assert messages == warnings


@pytest.mark.parametrize(
    "denied", [Right("DESCRIBE", "group", "billing"), Right("DESCRIBE", "topic", "payments")], ids=str
)
def test_verify_does_not_report_denied_objects_as_missing(
    secured: Secured, connection: tuple[str, ...], tables: Path, denied: Right
) -> None:
    """The cluster omits it from its lists without an error, so that only the tables have it."""
    with secured.granted("bob", [ALL_GROUPS, ALL_TOPICS]), secured.granted("bob", [denied], "DENY"):
        done = offsetstream("verify", *connection, "--tables", str(tables), "--settle", "0")
    assert (done.returncode, f"lacks {denied};" in done.stderr) == (3, True), done.stderr


def test_a_topic_hidden_from_the_job_is_not_recorded_as_deleted(
    secured: Secured, spark: SparkSession, tmp_path: Path
) -> None:
    runner = JobRunner(spark, secured.kafka.bootstrap_server, tmp_path)
    runner.settings = replace(runner.settings, properties=read_properties(str(secured.file_of("bob"))))
    with secured.granted("bob", COMMANDS["run"]):
        runner.run_once()
        with secured.granted("bob", [Right("DESCRIBE", "topic", "payments")], "DENY"):
            request_reload(runner.tables, [0])  # a load lists the topics
            runner.run_once()
    deleted = dict(runner.rows("topics", "topic", "deleted_at"))
    assert deleted.items() >= {"orders": None, "payments": None, OFFSETS_TOPIC: None}.items()
    assert {*deleted.values()} == {None}


def test_the_rights_for_a_plan_also_allow_its_execution(
    secured: Secured, connection: tuple[str, ...], tables: Path, tmp_path: Path
) -> None:
    secured.commit("leaving", "orders", "payments")
    own = (*connection, "--tables", str(tables), "--snapshots", str(tmp_path / "snapshots"), "--execute")
    group = Right("READ", "group", "leaving"), Right("DELETE", "group", "leaving")
    topics = [Right("READ", "topic", topic) for topic in ("orders", "payments")]
    steps = [
        (("offsets", "reset", "--group", "leaving", "--topic", "orders", "--to-latest"), (group[0], topics[0])),
        (("offsets", "undo"), (group[0], topics[0])),
        (("offsets", "delete", "--group", "leaving", "--topic", "orders"), (group[1], topics[0])),
        (("groups", "delete", "--group", "leaving"), (group[1], ALL_TOPICS)),
    ]
    for command, rights in steps:
        with secured.granted("bob", rights):
            done = offsetstream(*command, *own)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout.splitlines()[-1].startswith(("Done: 1 offset of 1 group", "Done: 1 group deleted")), (
            done.stdout
        )
