"""Changes the protocol of running groups on a real broker: classic to KIP-848 and back, member by member.

`python -m tests.kafka.protocol_changes FILE` records what the coordinator writes, as raw lines of JSON.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import ConsumerGroupState, KafkaException

from offsetstream.cluster.records import read_log
from offsetstream.codec.decoding import COMMIT_KEY_TYPES, decode_records
from offsetstream.codec.lines import read_record_lines
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.group_history.decoding import Span, decoded_changes
from offsetstream.tables.names import COMMITS, DECODED_TABLES
from offsetstream.tables.rows import flat_rows
from testkit.live_logs import create_topic, write
from testkit.processes import RunningProcess
from testkit.sampled_logs import instant
from testkit.waiting import await_

BROKER = {
    "group.consumer.migration.policy": "bidirectional",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
}
_TOPIC, _PARTITIONS = "orders", 4
_CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
_PROTOCOLS: Mapping[str, Mapping[str, Any]] = {"classic": _CLASSIC, "consumer": {"group.protocol": "consumer"}}
_TOPIC_ID = re.compile('"topicId":"([^"]+)"')
_MEMBER = """
import json, signal, sys
from confluent_kafka import Consumer

ends = []
signal.signal(signal.SIGTERM, lambda *_: ends.append(1))
consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe(sys.argv[2:])
while not ends:
    consumer.poll(0.2)
consumer.close()
"""


@dataclass(frozen=True)
class Act:
    """What a client does: `joins`, `leaves`, or `times out` after it is killed."""

    word: str
    client: str
    protocol: str = ""


def _joins(protocol: str, *clients: str) -> list[Act]:
    return [Act("joins", client, protocol) for client in clients]


def _leave(*clients: str) -> list[Act]:
    return [Act("leaves", client) for client in clients]


_UP = [
    _joins("classic", "a1", "b1"),
    [*_leave("a1"), *_joins("consumer", "a2")],
    [*_leave("b1"), *_joins("consumer", "b2")],
    [*_leave("a2"), *_joins("classic", "a3")],
]
GROUPS: Mapping[str, Sequence[Sequence[Act]]] = {
    "leaves": [*_UP, [*_leave("b2"), *_joins("classic", "b3")], _leave("a3", "b3")],
    "times-out": [*_UP, [Act("times out", "b2")], _leave("a3")],
    "static": [*_UP, [*_leave("b2"), *_joins("classic", "b3")]],
    "static-times-out": [*_UP, [Act("times out", "b2")]],
    "empty-between": [
        _joins("classic", "a1", "b1"),
        _leave("a1", "b1"),
        _joins("consumer", "a2", "b2"),
        _leave("a2", "b2"),
        _joins("classic", "a3", "b3"),
        _leave("a3", "b3"),
    ],
}


@dataclass(frozen=True)
class Done:
    """An act of a group's member, and when it began, in milliseconds since 1970."""

    group: str
    act: Act
    at_ms: int


def play(server: str, folder: Path, pause: float) -> list[Done]:
    """Play the steps of each group, with `pause` seconds between steps. Return what was done, oldest first."""
    create_topic(server, _TOPIC, _PARTITIONS)
    done: list[Done] = []
    with ExitStack() as stack:
        members: dict[tuple[str, str], RunningProcess] = {}
        for step in range(max(map(len, GROUPS.values()))):
            for group, acts in ((group, steps[step]) for group, steps in GROUPS.items() if step < len(steps)):
                for act in acts:
                    done.append(Done(group, act, round(time.time() * 1000)))
                    if act.word == "joins":
                        process = _member(server, group, act, folder)
                        members[group, act.client] = stack.enter_context(process)
                    elif act.word == "leaves":
                        leaving = members.pop((group, act.client))
                        leaving.signal(signal.SIGTERM)
                        assert leaving.ended() == 0
                    else:
                        members.pop((group, act.client)).kill()
            _await_stable(server, members)
            for partition in range(_PARTITIONS):
                write(server, _TOPIC, {"value": str(step)}, partition=partition)
            time.sleep(pause)
    return done


def _member(server: str, group: str, act: Act, folder: Path) -> RunningProcess:
    config = {
        "bootstrap.servers": server,
        "group.id": group,
        "client.id": act.client,
        "auto.commit.interval.ms": 1000,
        "auto.offset.reset": "earliest",
        **_PROTOCOLS[act.protocol],
        **({"group.instance.id": act.client[0]} if group.startswith("static") else {}),
    }
    command = [sys.executable, "-c", _MEMBER, json.dumps(config), _TOPIC]
    return RunningProcess(command, folder / f"{group}-{act.client}.txt")


def _await_stable(server: str, members: Mapping[tuple[str, str], object]) -> None:
    admin = admin_client(server)

    def seen() -> dict[str, set[str]]:
        # The broker may never answer a request that came before its coordinators were ready, so ask again soon.
        asked = admin.describe_consumer_groups(list(GROUPS), request_timeout=10.0)
        found: dict[str, set[str]] = {}
        for group, answer in asked.items():
            with suppress(KafkaException):  # its coordinator is not ready yet
                described = answer.result()
                if described.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY):
                    found[group] = {member.client_id for member in described.members}
        return found

    wanted = {group: {client for of, client in members if of == group} for group in GROUPS}
    await_(lambda: seen() == wanted)


def recorded(server: str) -> Iterator[str]:
    """Yield what the coordinator wrote, as raw lines."""
    for records in read_log(server, {}, range(int(BROKER["offsets.topic.num.partitions"]))):
        for each in records:
            texts = {"key": each.key, "value": each.value}
            line = {"partition": each.partition, "offset": each.offset, "timestamp": each.timestamp_ms}
            encoded = {name: None if data is None else b64encode(data).decode() for name, data in texts.items()}
            yield json.dumps(line | encoded)


def history(lines: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the commits and the rows of the decoded tables that the job's own functions make of such lines."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in (*DECODED_TABLES, COMMITS)}
    records: list[dict[str, Any]] = []
    for partition, batches in read_record_lines([line.encode() for line in lines], "recorded").items():
        own = [record for batch in batches for record in batch.records]
        keys, values = (pa.array([getattr(each, name) for each in own], pa.binary()) for name in ("key", "value"))
        for record, told in zip(own, decode_records(keys, values).to_pylist(), strict=True):
            at = instant(record.timestamp_ms or 0)
            place = {"offsets_partition": partition, "log_id": 0, "record_offset": record.offset}
            row = told | place | {"record_timestamp": at, "is_final": False}
            if told["key_type"] in COMMIT_KEY_TYPES:
                cell = {name: told[name] for name in ("group_id", "topic", "partition", "committed_offset")}
                found[COMMITS].append(cell | place | {"record_timestamp": at, "is_tombstone": record.value is None})
            else:
                records.append(row)
    records.sort(key=lambda row: (row["offsets_partition"], row["group_id"], row["record_offset"]))
    texts = [row["value_json"] for row in records if row["value_json"]]
    names = dict.fromkeys((topic_id for text in texts for topic_id in _TOPIC_ID.findall(text)), _TOPIC)
    spans = {(row["offsets_partition"], 0): Span(0, 1 << 62) for row in records}
    for changes in decoded_changes(records, spans, names, {table: {} for table in DECODED_TABLES}):
        for table, rows in changes.items():
            found[table] += map(_timed, flat_rows(rows))
    return found


def _timed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with times in the form of the tables."""
    names = ("record_timestamp", "state_timestamp")
    times = {name: row[f"{name}_ms"] for name in names if f"{name}_ms" in row}
    plain = {name: value for name, value in row.items() if not name.endswith("timestamp_ms")}
    return plain | {name: None if ms is None else instant(ms) for name, ms in times.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(properties=BROKER) as kafka:
        play(kafka.bootstrap_server, Path(folder), pause=10)
        Path(sys.argv[1]).write_text("".join(f"{line}\n" for line in recorded(kafka.bootstrap_server)), "utf-8")


if __name__ == "__main__":
    main()
