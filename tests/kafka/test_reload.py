"""Loads and maintenance while the job runs: requested loads, concurrent readers, and logs that the broker lost."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import StoreFaultError
from offsetstream.stream.lifecycle import live
from offsetstream.stream.state import StateTables
from offsetstream.tables.lookup import Lookup
from testkit.processes import offsetstream, printed
from testkit.tables import append_rows
from testkit.waiting import at_work, today
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import (
    GROUPS,
    all_at,
    commit,
    commits,
    is_loaded,
    load_ids,
    lose_the_log,
    set_topic_config,
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def runner(spark: SparkSession, own_kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> JobRunner:
    create_topics(admin_client(own_kafka.bootstrap_server))
    return JobRunner(spark, own_kafka.bootstrap_server, tmp_path_factory.mktemp("job"))


def reload(runner: JobRunner, *options: str) -> str:
    """Return the command's output."""
    done = offsetstream("reload", "--tables", runner.tables.root, *options)
    assert done.returncode == 0, done.stderr
    return done.stderr


class Reader:
    """Reads partition 7 in a loop. No read may return less, or older offsets, than the previous one."""

    def __init__(self, runner: JobRunner) -> None:
        self._runner = runner
        self.reads = 0
        self.states: set[str] = set()
        self.wrong: list[str] = []

    def read_until(self, ended: threading.Event) -> None:
        before: dict[tuple[str, int], int] = {}
        while not ended.is_set():
            now, lookup = commits(self._runner), Lookup(self._runner.tables)
            self.wrong += [
                f"{key}: {old}, then {now.get(key)}" for key, old in before.items() if now.get(key, -1) < old
            ]
            groups = {row["group_id"] for row in lookup.rows("groups", ["group_id"], {"offsets_partition": [7]})}
            self.wrong += [f"no row of {group}" for group in GROUPS if group not in groups]
            filters = {"offsets_partition": [7]}
            self.states |= {row["load_state"] for row in lookup.rows("offsets_partitions", ["load_state"], filters)}
            self.reads += 1
            before = now
            ended.wait(0.02)


@contextmanager
def reading(runner: JobRunner) -> Iterator[Reader]:
    reader = Reader(runner)
    with at_work(reader.read_until):
        yield reader


def test_no_reader_sees_an_older_or_partial_state(runner: JobRunner, own_kafka: EmbeddedKafka) -> None:
    commit(own_kafka, 0)
    with runner.running():
        runner.await_(lambda: is_loaded(runner))
        with reading(runner) as reader:
            for offset in (1, 3):
                commit(own_kafka, offset)
                output = reload(runner, "--offsets-partition", "7")
                assert output.endswith("Reloaded\n")
                commit(own_kafka, offset + 1)
            runner.await_(lambda: commits(runner) == all_at(4))
    assert reader.reads > 10
    assert reader.wrong == []
    loads = dict(runner.rows("offsets_partitions", "offsets_partition", "load_id"))
    assert loads == dict.fromkeys(range(50), 1) | {7: 3}
    events = [row for row in runner.rows("partition_events", "offsets_partition", "event", "load_id") if row[0] == 7]
    assert events == sorted(((7, event, load) for event in ("load started", "loaded") for load in (1, 2, 3)), key=repr)
    found = runner.rows("offset_commits", "record_offset", "offsets_partition")
    assert len(found) == len(set(found)) == 5 * len(all_at(0))


def test_the_next_job_executes_a_requested_reload(runner: JobRunner, own_kafka: EmbeddedKafka) -> None:
    assert "the next one reloads 2 offsets partitions" in reload(
        runner, *["--offsets-partition", "7", "--offsets-partition", "8"]
    )
    commit(own_kafka, 5)
    runner.run_once()
    assert commits(runner) == all_at(5)
    loads = dict(runner.rows("offsets_partitions", "offsets_partition", "load_id"))
    assert loads == dict.fromkeys(range(50), 1) | {7: 4, 8: 2}
    assert runner.rows("job_lease", "reload_requested") == [(None,)]


@pytest.fixture
def short_retention(own_kafka: EmbeddedKafka) -> Iterator[None]:
    set_topic_config(own_kafka, delete_retention_ms="100")
    yield
    set_topic_config(own_kafka, delete_retention_ms="86400000")


def test_a_partition_that_was_behind_for_too_long_is_loaded_again(
    runner: JobRunner, own_kafka: EmbeddedKafka, short_retention: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tombstones may be gone if the job was stopped, and also if it is slow."""
    before = load_ids(runner)
    commit(own_kafka, 6)
    runner.run_once()
    assert commits(runner) == all_at(6)
    assert load_ids(runner) == before | {7: before[7] + 1}
    assert "reading 1 offsets partitions again" in runner.said.getvalue()  # the load took longer, too
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.5)
    with runner.running(trigger="1 hour"):  # the first batch runs at once and is empty
        commit(own_kafka, 7)
        runner.await_(lambda: commits(runner) == all_at(7) and is_loaded(runner))
    assert load_ids(runner)[7] > before[7] + 1
    found = runner.rows("offset_commits", "record_offset", "offsets_partition")
    assert len(found) == len(set(found)) == 8 * len(all_at(0))


def test_a_failed_load_is_reported_and_repeated(
    runner: JobRunner, own_kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    reload(runner, "--offsets-partition", "7")
    commit(own_kafka, 8)
    before = load_ids(runner)[7]

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(StateTables, "apply", fail)
        with pytest.raises(StoreFaultError, match="A disk is full"):  # a job that has loaded nothing does not wait
            runner.run_once()
    assert dict(runner.rows("offsets_partitions", "offsets_partition", "load_state"))[7] == "FAILED"
    events = runner.rows("partition_events", "offsets_partition", "load_id", "event", "detail")
    (detail,) = (row[3] for row in events if row[:3] == (7, before + 1, "load failed"))
    assert str(detail).startswith("A disk is full")
    assert commits(runner) == all_at(7)  # the old state, until a load is complete
    runner.run_once()
    assert commits(runner) == all_at(8)
    assert load_ids(runner)[7] == before + 2
    found = runner.rows("offset_commits", "record_offset", "offsets_partition")
    assert len(found) == len(set(found)) == 9 * len(all_at(0))


def test_the_running_job_loads_a_log_that_the_broker_lost(
    runner: JobRunner, own_kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 1.0)
    with runner.running():
        commit(own_kafka, 9)
        runner.await_(lambda: commits(runner) == all_at(9))
        lose_the_log(own_kafka)
        runner.await_(lambda: dict(runner.rows("offsets_partitions", "offsets_partition", "log_id"))[7] == 1)
        runner.await_(lambda: is_loaded(runner))
        assert commits(runner) == {}
        commit(own_kafka, 1)
        runner.await_(lambda: commits(runner) == all_at(1))
    assert dict(runner.rows("offsets_partitions", "offsets_partition", "log_id")) == dict.fromkeys(range(50), 0) | {
        7: 1
    }
    found = runner.rows("offset_commits", "log_id", "offsets_partition", "record_offset")
    assert len(found) == len(set(found)) == 11 * len(all_at(0))
    assert len([row for row in found if row[:2] == (1, 7)]) == len(all_at(0))


def test_a_cut_log_that_grew_past_the_applied_offset_is_noticed(runner: JobRunner, own_kafka: EmbeddedKafka) -> None:
    """The end offsets do not show it: only the last applied record differs."""
    lose_the_log(own_kafka)
    for offset in range(10, 13):
        commit(own_kafka, offset)
    row = next(row for row in runner.rows("offsets_partitions", "offsets_partition", "next_offset") if row[0] == 7)
    assert row[1] < 3 * len(all_at(0))
    runner.run_once()
    assert commits(runner) == all_at(12)
    assert dict(runner.rows("offsets_partitions", "offsets_partition", "log_id"))[7] == 2
    found = runner.rows("offset_commits", "log_id", "offsets_partition", "record_offset")
    assert len([row for row in found if row[:2] == (2, 7)]) == 3 * len(all_at(0))


def test_maintenance_does_not_disturb_the_running_job(
    runner: JobRunner, own_kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SAMPLE_SECONDS", 0.5)
    commit(own_kafka, 100)
    runner.run_once()
    horizon = datetime.combine(today() - timedelta(days=30), datetime.min.time(), UTC)
    cell = {"offsets_partition": 7, "log_id": 0, "group_id": "of-long-ago", "topic": "orders", "partition": 0}
    days = [{"record_offset": -days, "written_day": today() - timedelta(days=days)} for days in (50, 40)]
    append_rows(Path(runner.tables.root), "offset_commits", [cell | day | {"is_tombstone": False} for day in days])
    long_ago = {"history_complete_from": "arrow_cast(0, 'Timestamp(Microsecond, Some(\"UTC\"))')"}
    DeltaTable(runner.tables.table("offsets_partitions")).update(updates=long_ago)
    started = runner.said.getvalue().count("Continuing from checkpoint") + 1
    with runner.running():
        runner.await_(lambda: runner.said.getvalue().count("Continuing from checkpoint") == started)
        with at_work(partial(commit_until, own_kafka)):
            maintain = ("maintain", "--tables", runner.tables.root, "--keep-history", "30d", "--output", "json")
            done = [json.loads(printed(*maintain)) for _ in range(2)]
        commit(own_kafka, 999)
        runner.await_(lambda: commits(runner) == all_at(999))
    thinned = [{row["table"]: row["rows_thinned"] for row in rows if row["rows_thinned"]} for rows in done]
    assert thinned == [{"offset_commits": 1}, {}]
    kept_rows = [row for row in runner.rows("offset_commits", "group_id", "record_offset") if row[0] == "of-long-ago"]
    assert kept_rows == [("of-long-ago", -40)]
    assert set(runner.rows("offsets_partitions", "history_complete_from_ms")) == {(horizon.timestamp() * 1000,)}
    found = runner.rows("offset_commits", "record_offset", "offsets_partition", "log_id")
    assert len(found) == len(set(found))


def commit_until(kafka: EmbeddedKafka, ended: threading.Event) -> None:
    offset = 100
    while not ended.is_set():
        offset += 1
        commit(kafka, offset)
