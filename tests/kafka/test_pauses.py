"""A job that paused longer than tombstones are kept must load again instead of reading the rest of the log (rule 5)."""

import signal
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.apply.batch import BatchWriter
from offsetstream.stream.lifecycle import live
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from testkit.processes import JobProcess, within
from testkit.waiting import SECONDS
from tests.kafka.jobs import JobRunner
from tests.kafka.partition_seven import (
    all_at,
    commit,
    commit_at,
    commits,
    is_loaded,
    load_ids,
    set_topic_config,
)
from tests.kafka.quick_compaction import DOOMED, commit_doomed, delete_doomed, quickly_compacting_kafka

pytestmark = pytest.mark.long

DOOMED_PLACE = {(DOOMED, 0): 5}


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with quickly_compacting_kafka() as kafka:
        yield kafka


@pytest.fixture
def retention(kafka: EmbeddedKafka) -> Iterator[None]:
    set_topic_config(kafka, delete_retention_ms="2000")
    yield
    set_topic_config(kafka, delete_retention_ms="86400000")


class ProcessTables:
    """Reads the tables of a job process, like `commits` and `is_loaded` for a JobRunner."""

    def __init__(self, folder: Path) -> None:
        self.tables = PathStore(str(folder / "tables"))

    def commits(self) -> dict[tuple[str, int], int]:
        if not Path(self.tables.table("committed_offsets")).exists():
            return {}
        filters = {"offsets_partition": [7]}
        found = Lookup(self.tables).rows("committed_offsets", ("group_id", "partition", "committed_offset"), filters)
        return {(row["group_id"], row["partition"]): row["committed_offset"] for row in found}

    def is_loaded(self) -> bool:
        filters = {"offsets_partition": [7]}
        return Lookup(self.tables).rows("offsets_partitions", ["load_state"], filters) == [{"load_state": "OWNED"}]


def test_deletions_while_the_job_was_stopped_are_applied(kafka: EmbeddedKafka, retention: None, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with JobProcess(kafka.bootstrap_server, folder, "--trigger", "0 seconds") as job:
        tables = ProcessTables(folder)
        job.await_(lambda: "Starting checkpoint" in job.said())
        commit_doomed(kafka)
        job.await_(lambda: DOOMED_PLACE.items() <= tables.commits().items())
        job.signal(signal.SIGSTOP)
        last = delete_doomed(kafka, 0)
        job.signal(signal.SIGCONT)
        job.await_(lambda: all_at(last).items() <= tables.commits().items())
        assert tables.commits() == all_at(last)
        set_topic_config(kafka, delete_retention_ms="86400000")  # otherwise a slow machine keeps loading
        job.await_(tables.is_loaded)
    options = ("--bootstrap-server", kafka.bootstrap_server, "--tables", tables.tables.root)
    done = within("verify", "--history", *options)  # the history correctly keeps records that the topic no longer has
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "1 from before history_complete_from that the topic lost while no job ran" in done.stderr


@pytest.fixture
def runner(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> JobRunner:
    return JobRunner(spark, kafka.bootstrap_server, tmp_path)


def test_deletions_while_the_machine_slept_are_applied(
    runner: JobRunner, kafka: EmbeddedKafka, retention: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monotonic clock did not count the sleep, so no sample is due at wake-up."""
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=count(0.0, 1e-6).__next__, sleep=time.sleep))
    asleep, awake = threading.Event(), threading.Event()
    apply = BatchWriter.apply

    def sleep_first(*arguments: Any) -> Any:
        asleep.set()
        assert awake.wait(SECONDS)
        return apply(*arguments)

    commit_doomed(kafka)
    with runner.running():
        runner.await_(lambda: is_loaded(runner) and DOOMED_PLACE.items() <= commits(runner).items())
        monkeypatch.setattr(BatchWriter, "apply", sleep_first)
        commit(kafka, 1001)  # an offset that no earlier test used; otherwise the first load would already have it
        assert asleep.wait(SECONDS)
        last = delete_doomed(kafka, 1001)
        awake.set()
        runner.await_(lambda: all_at(last).items() <= commits(runner).items())
    assert commits(runner) == all_at(last)


def test_record_times_reveal_a_clock_that_stood_still(runner: JobRunner, kafka: EmbeddedKafka) -> None:
    """A record with an impossible time causes one load, and nothing else."""
    set_topic_config(kafka, delete_retention_ms="1800000")
    with runner.running():
        runner.await_(lambda: is_loaded(runner))
        commit(kafka, 2001)
        runner.await_(lambda: all_at(2001).items() <= commits(runner).items())
        before = load_ids(runner)
        ahead = int(time.time() * 1000) + 50 * 60_000
        commit_at(kafka, DOOMED, ahead)
        runner.await_(lambda: (DOOMED, 0) in commits(runner))
        for offset in (2002, 2003):
            commit(kafka, offset)
            runner.await_(lambda: all_at(offset).items() <= commits(runner).items())  # noqa: B023 - awaited within
    assert load_ids(runner) == before | {7: before[7] + 1}
    assert "not read for longer than delete.retention.ms" in runner.said.getvalue()
