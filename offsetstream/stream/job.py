"""The main loop: wait for the topic, take the lease, work, and stop between two batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial

from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.permissions import readable_partitions, sees_all_topics
from offsetstream.cluster.rights import TOPIC_NAMES
from offsetstream.coordinator.kinds import Coordinator
from offsetstream.embedded.file_names import require_java_in_utf8
from offsetstream.errors import NoOffsetsTopicError, UnauthorisedError, UnreachableError
from offsetstream.progress import Progress
from offsetstream.spark.executors import require_packages
from offsetstream.spark.failures import explain_lost_java
from offsetstream.spark.session import prepared
from offsetstream.stream.controls import Controls, Signals
from offsetstream.stream.lifecycle.attempt import Attempt, OffsetsTopic
from offsetstream.stream.lifecycle.heartbeat import Heartbeat
from offsetstream.stream.lifecycle.leaders import LeadersChangedError, Leadership, in_words
from offsetstream.stream.lifecycle.patience import Patience
from offsetstream.stream.metrics import Metrics
from offsetstream.stream.monitor.observer import PartitionsChangedError
from offsetstream.stream.own_session import own_session
from offsetstream.stream.settings import JobSettings
from offsetstream.tables.create import create_tables
from offsetstream.tables.engines import StateWrites
from offsetstream.tables.lease_wait import take_lease
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.store import Store
from offsetstream.tables.upgrade import upgrade_tables
from offsetstream.tables.version import SCHEMA_VERSION
from offsetstream.tables.write import TableWriter

TOPIC_WAIT_SECONDS = 30.0


def run(settings: JobSettings, spark: SparkSession | None = None) -> None:
    """Run the job in a session of yours, which it leaves as it was, or else in one that it starts and ends.

    Returns once all is applied (`once`), or after `offsetstream stop`. The session needs Spark's Kafka source and
    Delta: EnvironmentNotReadyError names what is missing. It takes no signals: an interrupt ends it as a crash would,
    which the next run mends.
    """
    session = own_session(settings) if spark is None else prepared(spark)
    Job(settings, session, Progress(as_json=settings.log_format == "json")).run()


class Job:
    """One run of the streaming job, from start to a stop between two batches, for which `stop` asks when it is set."""

    def __init__(
        self,
        settings: JobSettings,
        session: AbstractContextManager[SparkSession],
        progress: Progress,
        stop: threading.Event | None = None,
    ) -> None:
        self._settings = settings
        self._session = session
        self._progress = progress
        self._signals = Signals(stop or threading.Event(), threading.Event())
        self._cluster = Cluster(settings.bootstrap_server, settings.properties, self._signals.stop.is_set)
        self._leaders = Leadership(self._cluster, self._signals.stop.wait)
        self._patience = Patience(settings.max_silence, self._signals.stop, progress.warn)
        self._metrics = Metrics(settings, progress)

    def stop(self) -> None:
        """Ask the job to end after its present batch; may be called from a signal handler."""
        self._signals.stop.set()

    def _asked_to_stop(self, by: str) -> None:
        if not self._signals.stop.is_set():
            self._progress.say(f"{by} asks this job to stop")
        self.stop()

    def run(self) -> None:
        """Run until stopped or, with `once`, until everything that is there now is applied.

        A cluster that does not answer is waited for, at the start and later; UnreachableError if it takes too long.
        """
        try:
            with self._metrics.served():
                self._run()
        except UnreachableError:
            if not self._signals.stop.is_set():
                raise
        if self._signals.stop.is_set():
            self._progress.say("Stopped between two batches")
        else:
            leaderless = self._leaders.leaderless
            but = f", but for {in_words(leaderless)}, which cannot be read now" if leaderless else ""
            self._progress.say(f"Everything is applied{but}")

    def _run(self) -> None:
        partitions = self._wait_for_topic()
        if self._signals.stop.is_set():
            return
        cluster_id, coordinator = self._patience.ask(lambda: (self._cluster.cluster_id(), self._coordinator()))
        self._progress.say(
            f"Cluster {cluster_id}: {len(partitions)} offsets partitions, {coordinator} group coordinator"
        )
        if filters := self._settings.filters:
            self._progress.say(f"Left out: {filters}")
        self._metrics.job.belongs_to(cluster_id)
        self._metrics.job.answered(does_answer=True)
        if not self._patience.ask(lambda: sees_all_topics(self._cluster)):
            self._progress.warn(f"Without {TOPIC_NAMES}, {TOPIC_NAMES.without}")
        topic, store = OffsetsTopic(self._cluster, self._leaders, partitions, coordinator), self._settings.store
        if store.needs_spark:  # for the lease too, which is given back before the session ends
            with self._started() as spark:
                self._run_on(store.read_by(spark), nullcontext(spark), topic, cluster_id)
        else:
            self._run_on(store, self._started(), topic, cluster_id)

    def _run_on(
        self, tables: Store, session: AbstractContextManager[SparkSession], topic: OffsetsTopic, cluster_id: str
    ) -> None:
        # A job that is refused must not make anew a table that the live one has lost: neither would notice.
        create_tables(tables, cluster_id, topic.coordinator, [JOB_LEASE])
        lease = take_lease(tables, self._progress.say, self._signals.stop, force=self._settings.force)
        if lease is None:
            return
        with Heartbeat(lease, self._asked_to_stop, self._signals.reload.set):
            create_tables(tables, cluster_id, topic.coordinator)
            if upgraded := upgrade_tables(tables):
                self._progress.say(f"{len(upgraded)} tables are upgraded to schema version {SCHEMA_VERSION}")
            with session as spark:
                tables.in_spark(spark).require_reachable()
                writer = TableWriter(spark, tables, StateWrites(self._settings.state_writes))
                with self._metrics.of_groups(tables):
                    self._work(writer, topic, Controls(lease, self._signals, self._progress, self._metrics.job))

    @contextmanager
    def _started(self) -> Iterator[SparkSession]:
        with explain_lost_java(), self._session as spark:
            require_java_in_utf8(spark.sparkContext._jvm, (self._settings.tables, self._settings.checkpoint))
            require_packages(spark)
            yield spark

    def _work(self, writer: TableWriter, topic: OffsetsTopic, controls: Controls) -> None:
        """Attempt it until it is done: after an outage of the cluster anew, from the tables' positions."""
        goes_on, silent_since = True, None
        while True:
            attempt = Attempt(self._settings, writer, topic, controls)
            before, began = attempt.positions, time.monotonic()
            try:
                return attempt.run(goes_on=goes_on)
            except UnreachableError as error:
                self._metrics.job.answered(does_answer=False)
                # A cluster that answers questions but gives no records must not be tried for ever.
                went_well = timedelta(seconds=time.monotonic() - began) > self._patience.limit
                if silent_since is None or went_well or attempt.positions != before:
                    silent_since = time.monotonic()
                if timedelta(seconds=time.monotonic() - silent_since) > self._patience.limit:
                    raise
                self._progress.warn(f"{error}; going on when it answers")
                self._patience.ask(partial(self._leaders.readable, topic.partitions))
            except LeadersChangedError as error:
                self._progress.warn(f"Beginning anew: {error}")
            except (PartitionsChangedError, NoOffsetsTopicError) as error:
                self._progress.warn(f"Beginning anew: {error}")
                topic = replace(topic, partitions=self._wait_for_topic())
                if self._signals.stop.is_set():  # none may have been found, which does not mean that all are gone
                    return None
            goes_on = False

    def _wait_for_topic(self) -> list[int]:
        while not self._signals.stop.is_set():
            try:
                return self._patience.ask(lambda: readable_partitions(self._cluster))
            except NoOffsetsTopicError as error:
                if self._settings.once:
                    raise
                self._progress.say(f"{error}: no group has committed yet; looking again in {TOPIC_WAIT_SECONDS:.0f} s")
                self._signals.stop.wait(TOPIC_WAIT_SECONDS)
        return []

    def _coordinator(self) -> Coordinator:
        if self._settings.coordinator is not None:
            return self._settings.coordinator
        try:
            return self._cluster.coordinator_kind()
        except UnauthorisedError as error:
            self._progress.warn(f"Taking the brokers' group coordinator for the new one: {error}")
            return "new"
