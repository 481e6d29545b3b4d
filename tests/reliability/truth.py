"""The expected tables: records that an independent read_committed consumer reads, and the model's replay of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.records import close
from offsetstream.codec.batches import LogRecord, RecordBatch
from offsetstream.coordinator import GroupMetadataCache
from offsetstream.embedded.clients import QUIET
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from offsetstream.verify.decoded_history import decoded_differences
from offsetstream.verify.ledger import doubled_rows, ledger_differences
from offsetstream.verify.records import disagreements, read_records
from offsetstream.verify.topic import TopicReader
from testkit import changes_model
from tests.conformance.state_rows import snapshot, without_empty_assignments

TOPIC = "__consumer_offsets"
Records = dict[int, list[LogRecord]]  # by offsets partition
HistoryRows = dict[tuple[str, int, int], dict[str, Any]]  # by table, offsets partition and record offset
STATE = ("groups", "group_members", "member_assignments", "committed_offsets")
_WHO_WROTE = {"checkpoint_id", "batch_id", "written_day"}
_POLL_SECONDS = 0.2


def read_topic(bootstrap_server: str) -> tuple[Records, dict[int, int]]:
    """Read the complete topic with read_committed. Returns the records and each partition's end (exclusive)."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_server,
            "group.id": "independent-list",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        },
        logger=QUIET,
    )
    partitions = Cluster(bootstrap_server).topic_partitions()
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in partitions])
    found, ends = defaultdict[int, list[LogRecord]](list), dict[int, int]()
    while len(ends) < len(partitions):
        for message in consumer.consume(1000, _POLL_SECONDS):
            if message.error():  # end of partition
                ends[message.partition()] = message.offset()
                continue
            ends.pop(message.partition(), None)
            record = LogRecord(message.offset(), message.timestamp()[1], message.key(), message.value())
            found[message.partition()].append(record)
    close(consumer)
    return dict(found), ends


def up_to(records: Records, ends: Mapping[int, int]) -> Records:
    """Return the records below the given ends (exclusive)."""
    return {number: [each for each in own if each.offset < ends.get(number, 0)] for number, own in records.items()}


def differences(tables: PathStore, bootstrap_server: str, topic_names: Mapping[str, str]) -> list[str]:
    """Return how the tables differ from the topic up to their own positions; empty if they do not.

    Groups, members, assignments and offsets equal the model's. Every state column follows from the history. No row is
    doubled. The history matches its ledger and the topic, and the decoded history equals a plain derivation from the
    records.
    """
    partitions = rows(tables, "offsets_partitions")
    applied = {row["offsets_partition"]: row["next_offset"] or 0 for row in partitions}
    records = up_to(read_topic(bootstrap_server)[0], applied)
    return [
        *(f"not loaded: {row}" for row in partitions if row["load_state"] != "OWNED"),
        *state_differences(tables, records, topic_names),
        *(str(each) for each in disagreements(read_records(tables))),
        *(str(each) for each in doubled_rows(tables)),
        *history_differences(tables, bootstrap_server),
        *(str(each) for each in decoded_differences(tables)),
        *decoding_differences(tables),
    ]


def behind(tables: PathStore, ends: Mapping[int, int]) -> list[str]:
    """Return the partitions that are not applied up to the given ends."""
    applied = {row["offsets_partition"]: row["next_offset"] or 0 for row in rows(tables, "offsets_partitions")}
    return [f"partition {n}: {applied.get(n)} < {end}" for n, end in ends.items() if applied.get(n, 0) < end]


def state_differences(tables: PathStore, records: Records, topic_names: Mapping[str, str]) -> list[str]:
    """Return how the state tables differ from the model that replayed the records."""
    cache = GroupMetadataCache("new")
    for number, own in records.items():
        loaded = cache.load_partition(number, _batches(own))
        assert loaded.error is None, loaded.error
    expected = without_empty_assignments(cache.snapshot(topic_names))
    got = snapshot({name: rows(tables, name) for name in STATE})
    return [
        f"{kind}: {what}: {each}"
        for kind in ("groups", "offsets")
        for what, some, others in (("lacking", expected, got), ("beyond", got, expected))
        for each in some[kind]
        if each not in others[kind]
    ]


def history_differences(tables: PathStore, bootstrap_server: str) -> list[str]:
    """Return how the history tables differ from their ledger and the topic; each record must be there once."""
    topic = TopicReader(Cluster(bootstrap_server), {}, tables, lambda _line: None).reconcile()
    found = [*ledger_differences(tables, checksums=True), *topic.differences]
    return [
        *map(str, found),
        *(f"not compared: partition {number}: {why}" for number, why in topic.not_compared.items()),
    ]


def decoding_differences(tables: PathStore) -> list[str]:
    """Return how the decoded history differs from its records' meaning; each change must be there once."""
    found = changes_model.difference(tables, {}, steps_may_be_split=True)
    return [f"{what}: {row}" for what, own in found.items() for row in own]


def history_rows(tables: PathStore) -> HistoryRows:
    """Return the history's content for each record, whoever wrote it."""
    return {
        (name, *place): {column: value for column, value in row.items() if column not in _WHO_WROTE}
        for name in ("offset_commits", "group_records")
        for row in rows(tables, name)
        for place in _places([row])
    }


def rows(tables: PathStore, table: str) -> list[dict[str, Any]]:
    return read_rows(tables.open(table))


def _places(of: Iterable[Mapping[str, Any]]) -> list[tuple[int, int]]:
    return [(row["offsets_partition"], row["record_offset"]) for row in of]


def _batches(records: Iterable[LogRecord]) -> Iterator[RecordBatch]:
    for record in records:
        yield RecordBatch(record.offset, record.offset + 1, (record,))
