"""How long a commit takes from the client to a reader of `committed_offsets`, while other groups commit too."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from deltalake import DeltaTable, QueryBuilder
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from benchmarks.broker import CLIENT_PARTITIONS
from benchmarks.commit_log import CLIENT_TOPIC, Groups, write
from testkit.waiting import at_work

_GROUP = "freshness"
_RETRIED = retry(retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(60), wait=wait_fixed(0.2))
_EVERY_SECONDS = 0.1
_LOOK_SECONDS = 0.05
_AT_MOST_SECONDS = 600.0  # after the last commit: a job that falls behind is measured, too
_WARM_UP_SECONDS = 15.0


def delays(
    bootstrap_server: str,
    table: Path,
    groups: Groups,
    commits_per_second: int,
    seconds: float,
    every: float = _EVERY_SECONDS,
) -> list[float]:
    """Commit `every` so many seconds for `seconds`. Return the seconds until each commit, or a later one, was read."""
    sent: dict[int, float] = {}
    with _noise(bootstrap_server, groups, commits_per_second):
        time.sleep(_WARM_UP_SECONDS)
        committer = threading.Thread(target=_commit, args=(bootstrap_server, seconds, every, sent))
        committer.start()
        found = _await(table, sent, committer)
        committer.join()
    return found


def _commit(bootstrap_server: str, seconds: float, every: float, sent: dict[int, float]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap_server, "group.id": _GROUP, "enable.auto.commit": False})
    commit, ended = _RETRIED(consumer.commit), time.monotonic() + seconds  # a busy broker may not know its groups yet
    for number in count(1):
        if time.monotonic() > ended:
            break
        started = time.monotonic()
        place = TopicPartition(CLIENT_TOPIC, number % CLIENT_PARTITIONS, number)
        commit(offsets=[place], asynchronous=False)
        sent[number] = started
        time.sleep(every)
    consumer.close()


def _await(table: Path, sent: dict[int, float], committer: threading.Thread) -> list[float]:
    found: dict[int, float] = {}
    last_look, deadline = -1, float("inf")
    while committer.is_alive() or len(found) < len(sent):
        if not committer.is_alive():
            deadline = min(deadline, time.monotonic() + _AT_MOST_SECONDS)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(sent) - len(found)} commits were never seen in {table}")
        now = DeltaTable(table)
        if now.version() != last_look:
            last_look, committed = now.version(), _committed(now)
            seen = time.monotonic()
            for number, at in list(sent.items()):
                if number not in found and committed.get(number % CLIENT_PARTITIONS, -1) >= number:
                    found[number] = seen - at
        time.sleep(_LOOK_SECONDS)
    return list(found.values())


def _committed(table: DeltaTable) -> dict[int, int]:
    query = f"SELECT partition, committed_offset FROM rows WHERE group_id = '{_GROUP}'"  # noqa: S608 - our own SQL
    rows = pa.table(QueryBuilder().register("rows", table).execute(query)).to_pylist()
    return {row["partition"]: row["committed_offset"] for row in rows}


@contextmanager
def _noise(bootstrap_server: str, groups: Groups, commits_per_second: int) -> Iterator[None]:
    """Commit offsets of other groups once a second."""

    def commit(ended: threading.Event) -> None:
        started = time.monotonic()
        for second in count():
            write(bootstrap_server, groups.commits(second * commits_per_second, commits_per_second))
            if ended.wait(max(0, started + second + 1 - time.monotonic())):
                break

    with at_work(commit):
        yield
