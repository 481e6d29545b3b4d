"""`dump --files` of a real broker's segments equals the topic and Kafka's own DumpLogSegments."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from offsetstream.cli.main import main
from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.codec.batches import LogRecord, RecordBatch
from offsetstream.codec.damaged_segments import read_undamaged
from offsetstream.codec.log_segments import Skip, find_partitions, read_segments
from offsetstream.demo.topics import commit_in_transaction, commit_plainly, create_topics
from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.jvm import DEFAULT_VERSION, run_tool
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.waiting import SECONDS

pytestmark = pytest.mark.long

TOPIC = "segments"


@contextmanager
def open_transaction(server: str, group: str) -> Iterator[None]:
    """Keep a transaction with offsets open while the block runs."""
    consumer = Consumer({"bootstrap.servers": server, "group.id": group}, logger=QUIET)
    producer = Producer({"bootstrap.servers": server, "transactional.id": group}, logger=QUIET)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 1)], consumer.consumer_group_metadata(), 30)
    yield
    producer.abort_transaction(30)
    consumer.close()


def fill(server: str) -> None:
    admin = admin_client(server)
    create_topics(admin)
    admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result(SECONDS)
    offsets = [TopicPartition(TOPIC, number, number * 10, "a note " * 20) for number in range(3)]
    commit_plainly(server, {f"plain-{number}": offsets for number in range(60)})
    for number in range(4):
        commit_in_transaction(server, f"ledger-{number}", offsets, abort=bool(number % 2))
    admin.delete_consumer_groups(["plain-0"])["plain-0"].result(SECONDS)


def topic_as_a_consumer_sees_it(server: str) -> dict[tuple[int, int], tuple[int, bytes | None, bytes | None]]:
    settings = {"bootstrap.servers": server, "group.id": "reader", "isolation.level": "read_committed"}
    more = {"enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(settings | more, logger=QUIET)
    consumer.assign([TopicPartition(OFFSETS_TOPIC, number, 0) for number in range(50)])
    found, ended = {}, 0
    while ended < 50:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error():
            ended += 1
            continue
        found[message.partition(), message.offset()] = (message.timestamp()[1], message.key(), message.value())
    consumer.close()
    return found


def batches_in(folder: Path) -> dict[int | None, list[RecordBatch]]:
    return {each.number: list(read_segments(each.segments, pytest.fail)) for each in find_partitions([folder])}


def dump(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main, ["dump", *arguments])
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout_bytes.decode().split("\n")[:-1]]


@pytest.mark.parametrize(("version", "codec"), [(DEFAULT_VERSION, 0), (DEFAULT_VERSION, 3), ("3.9.2", 4)])
def test_the_dump_of_segments_equals_what_a_consumer_sees(version: str, codec: int) -> None:
    settings = {"offsets.topic.compression.codec": str(codec)}  # none, lz4, zstd; the oracle's tests cover all codecs
    with EmbeddedKafka(version, properties=settings) as kafka:
        server = kafka.bootstrap_server
        fill(server)
        with open_transaction(server, "open"):
            expected = topic_as_a_consumer_sees_it(server)
            lines = dump("--files", str(kafka.folder), "--format", "json")
            everything = batches_in(kafka.folder)
    assert [(line["partition"], line["offset"]) for line in lines] == sorted(expected)
    records = {(number, r.offset): r for number, log in everything.items() for each in log for r in each.records}
    for line in lines:
        position = (line["partition"], line["offset"])
        record = records[position]
        assert (record.timestamp_ms, record.key, record.value) == expected[position]
        assert line["timestamp"] == record.timestamp_ms
        assert "error" not in line
    # Consumers do not see the three commits of each aborted and of the open ledger, nor any marker.
    hidden = [each for log in everything.values() for each in log if each.is_transactional and not each.is_control]
    assert sum(len(each.records) for each in hidden) == 4 * 3 + 1
    assert len([line for line in lines if line["key"]["data"].get("group", "").startswith("ledger")]) == 2 * 3
    assert sum(each.is_control for log in everything.values() for each in log) == 4


@pytest.fixture(scope="module")
def filled_kafka(own_kafka: EmbeddedKafka) -> EmbeddedKafka:
    fill(own_kafka.bootstrap_server)
    return own_kafka


def test_batches_equal_kafkas_dump_log_segments(filled_kafka: EmbeddedKafka) -> None:
    filled_kafka.restart()  # gives another leader epoch, and snapshots next to the segments
    partitions = [each for each in find_partitions([filled_kafka.folder]) if each.segments[0].size]
    files = ",".join(str(each.segments[0].path) for each in partitions)
    printed = run_tool("org.apache.kafka.tools.DumpLogSegments", ["--files", files, "--print-data-log"])
    parts = re.split(r"^Dumping .*/__consumer_offsets-(\d+)/.*$", printed, flags=re.MULTILINE)[1:]
    shown = dict(zip(map(int, parts[::2]), parts[1::2], strict=True))
    assert set(shown) == {each.number for each in partitions}
    for each in partitions:
        log = list(read_segments(each.segments, pytest.fail))
        assert [_batch_line(batch) for batch in log] == _BATCH.findall(shown[each.number or 0])
        records = [_record_line(record) for batch in log for record in batch.records]
        assert records == _RECORD.findall(shown[each.number or 0])


def test_skip_damaged_reads_the_batches_that_dump_log_segments_calls_valid(
    filled_kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    found = find_partitions([filled_kafka.folder])
    most = max(found, key=lambda each: each.segments[0].size)
    data = bytearray(most.segments[0].path.read_bytes()[: most.segments[0].size])
    sizes = [batch.size for batch in read_segments(most.segments, pytest.fail)]
    assert len(sizes) > 2
    data[sum(sizes[: len(sizes) // 2]) + sizes[len(sizes) // 2] - 1] ^= 1
    damaged = tmp_path / most.path.name / most.segments[0].path.name
    damaged.parent.mkdir()
    damaged.write_bytes(data)
    printed = run_tool("org.apache.kafka.tools.DumpLogSegments", ["--files", str(damaged)])
    valid = re.findall(r"^baseOffset: (\d+) .*isvalid: (\w+)", printed, re.MULTILINE)
    skips: list[Skip] = []
    (partition,) = find_partitions([damaged])
    read = [each.base_offset for each in read_undamaged(partition.segments, pytest.fail, skips.append)]
    assert read == [int(offset) for offset, is_valid in valid if is_valid == "true"]
    assert [skip.first_offset for skip in skips] == [int(offset) for offset, is_valid in valid if is_valid == "false"]


_BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* producerId: (-?\d+) producerEpoch: (-?\d+) .*"
    r"isTransactional: (\w+) isControl: (\w+) .*size: (\d+) ",
    re.MULTILINE,
)
_RECORD = re.compile(r"^\| offset: (\d+) CreateTime: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) ", re.MULTILINE)


def _batch_line(batch: RecordBatch) -> tuple[str, ...]:
    last, bits = batch.next_offset - 1, (batch.is_transactional, batch.is_control)
    numbers = [batch.base_offset, last, len(batch.records), batch.producer_id, batch.producer_epoch]
    return (*map(str, numbers), *(str(bit).lower() for bit in bits), str(batch.size))


def _record_line(record: LogRecord) -> tuple[str, ...]:
    sizes = [-1 if cell is None else len(cell) for cell in (record.key, record.value)]
    return tuple(map(str, [record.offset, record.timestamp_ms, *sizes]))


def test_a_replay_of_segments_equals_a_replay_of_their_dump(own_kafka: EmbeddedKafka, tmp_path: Path) -> None:
    commit_plainly(own_kafka.bootstrap_server, {"replayed": [TopicPartition(TOPIC, 1, 41, "a note")]})
    lines = tmp_path / "lines"
    with open_transaction(own_kafka.bootstrap_server, "replayed-open"):
        dump("--files", str(own_kafka.folder), "--format", "records", "--file", str(lines))
        for coordinator in ("new", "classic"):
            results = [
                CliRunner().invoke(main, ["replay", str(source), "--coordinator", coordinator])
                for source in (own_kafka.folder, lines)
            ]
            assert [result.exit_code for result in results] == [0, 0]
            assert results[0].stdout == results[1].stdout
    offsets = json.loads(results[0].stdout)["offsets"]
    assert [row["offset"] for row in offsets if row["group_id"] == "replayed"] == [41]
    assert "replayed-open" not in {row["group_id"] for row in offsets}
