"""The view `time_lag` against the timestamps of the records themselves, with steady, bursty and idle producers.

Samples are ten seconds apart, the default. Between two samples the view interpolates. At the start and end of a
burst, where groups that are behind stay longest, it interpolates between record times. A group that had read all
records at the time of the sample has caught up as of that time.
"""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import pytest
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.views.reader import ViewReader
from testkit.waiting import SECONDS, at_work
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.nightly

SAMPLE_SECONDS, RUN_SECONDS, LOOK_SECONDS = 10.0, 300.0, 2.0
LATE_SECONDS = 5.0  # on a busy machine samples are late
KINDS = ("steady", "bursty", "idle")  # a partition each
BEHIND = (1, 6, 15, 30, 60)  # seconds that a group is behind, a group each
TOPIC = "events"


class Answer(NamedTuple):
    """The view's time lag of a committed offset, the true one at the sample's time, and the true one now (seconds)."""

    kind: str
    method: str
    answered: float
    true: float
    true_now: float


class Producers:
    """Writes records and keeps the time of each: `times[partition][offset]`, in milliseconds."""

    def __init__(self, server: str, seed: int) -> None:
        self.times: list[list[int]] = [[] for _ in KINDS]
        self._producer = Producer({"bootstrap.servers": server, "linger.ms": 0})
        self._random = random.Random(seed)

    def write(self, stop: threading.Event) -> None:
        burst_ends = quiet_ends = idle_until = time.monotonic()
        while not stop.wait(self._random.expovariate(20)):
            now = time.monotonic()
            self._produce(0, self._random.randrange(1, 6))
            if now > quiet_ends:  # a new burst, then a quiet time
                burst_ends = now + self._random.uniform(20, 60)
                quiet_ends = burst_ends + self._random.uniform(20, 60)
            if now < burst_ends:
                self._produce(1, self._random.randrange(1, 20))
            if now > idle_until:  # a few records within seconds, then none for a minute or more
                self._produce(2, 1)
                idle_until = now + (self._random.uniform(60, 100) if self._random.random() < 0.02 else 0.0)
        self._producer.flush(SECONDS)

    def _produce(self, partition: int, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                TOPIC, b"value", partition=partition, timestamp=time.time_ns() // 10**6, on_delivery=self._delivered
            )
        self._producer.poll(0)

    def _delivered(self, error: object, message: Message) -> None:
        assert error is None
        times, (_, milliseconds) = self.times[message.partition() or 0], message.timestamp()
        assert len(times) == message.offset()
        times.append(milliseconds)

    def offset_at(self, partition: int, milliseconds: int) -> int:
        return bisect_left(self.times[partition], milliseconds)


@contextmanager
def produced(server: str) -> Iterator[Producers]:
    producers = Producers(server, 1)
    with at_work(producers.write):
        yield producers


def commit_behind(server: str, producers: Producers) -> None:
    now = time.time_ns() // 10**6
    commit_plainly(
        server,
        {
            f"behind-{seconds}": [
                TopicPartition(TOPIC, partition, producers.offset_at(partition, now - seconds * 1000))
                for partition in range(len(KINDS))
            ]
            for seconds in BEHIND
        },
    )


def look_up(runner: JobRunner, producers: Producers) -> Iterator[Answer]:
    now = datetime.now(UTC)
    clock = {"clock": f"SELECT TIMESTAMPTZ '{now}' AS now_at, TIMESTAMPTZ '{now - timedelta(days=1)}' AS since_at"}
    for row in ViewReader(runner.tables, clock).rows("time_lag", {"topic": [TOPIC]}):
        times, offset = producers.times[row["partition"]], row["committed_offset"]
        written = times[offset] / 1000 if offset < len(times) else now.timestamp()
        true = max(0.0, now.timestamp() - written)
        has_caught_up = row["method"] == "caught up" and written > row["sampled_at"].timestamp()
        true_at_sample = 0.0 if has_caught_up else true
        yield Answer(KINDS[row["partition"]], row["method"], row["time_lag_seconds"], true_at_sample, true)


def is_sampled(runner: JobRunner, producers: Producers) -> bool:
    methods = [each.method for each in look_up(runner, producers)]
    return len(methods) == len(KINDS) * len(BEHIND) and "no sample" not in methods


def summary(name: str, answers: list[Answer]) -> str:
    errors = sorted(abs(each.answered - each.true) for each in answers)
    errors_now = sorted(abs(each.answered - each.true_now) for each in answers)
    return (
        f"{name:12} {len(errors):5} answers, |error| median {median(errors):.2f} s, "
        f"95th percentile {quantiles(errors, n=20)[-1]:.2f} s, largest {errors[-1]:.2f} s; "
        f"with what came since the sample {median(errors_now):.2f}, {quantiles(errors_now, n=20)[-1]:.2f}, "
        f"{errors_now[-1]:.2f} s"
    )


def test_time_lag_is_the_age_of_the_next_record(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedKafka() as kafka:
        server = kafka.bootstrap_server
        admin = admin_client(server)
        admin.create_topics([NewTopic(TOPIC, len(KINDS), 1)])[TOPIC].result(SECONDS)
        runner = JobRunner(spark, server, tmp_path)
        answers: list[Answer] = []
        with produced(server) as producers, runner.running(sample_interval=SAMPLE_SECONDS):
            commit_behind(server, producers)
            runner.await_(lambda: runner.tables.opened("topic_partitions") is not None)
            runner.await_(lambda: is_sampled(runner, producers))
            ends = time.monotonic() + RUN_SECONDS
            while time.monotonic() < ends:
                commit_behind(server, producers)
                answers += look_up(runner, producers)
                time.sleep(LOOK_SECONDS)
    numbers = [each for each in answers if each.method in ("caught up", "interpolated")]
    older = [each for each in answers if each.method == "at least"]
    for kind in KINDS:
        print(summary(kind, [each for each in numbers if each.kind == kind]))
    print(summary("all", numbers), f"; at least: {len(older) / len(answers):.1%}")
    errors = [abs(each.answered - each.true) for each in numbers]
    assert len(numbers) + len(older) == len(answers)
    assert len(answers) > 500
    assert median(errors) <= 0.5
    assert quantiles(errors, n=20)[-1] <= 2.0
    assert max(errors) <= SAMPLE_SECONDS + LATE_SECONDS
    assert len(older) <= 0.25 * len(answers)
    assert all(each.answered <= each.true + SAMPLE_SECONDS for each in older)
