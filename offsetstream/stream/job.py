"""The streaming job: wait for the offsets topic, take the lease, replay, and stop between two batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster, readable_partitions, sees_all_topics
from offsetstream.cluster.properties import librdkafka_config
from offsetstream.cluster.rights import TOPIC_NAMES
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.embedded.file_names import require_java_in_utf8
from offsetstream.errors import (
    LostPartError,
    NoOffsetsTopicError,
    StoreFaultError,
    TablesError,
    UnauthorisedError,
    UnreachableError,
)
from offsetstream.metrics.group_metrics import GroupMetrics, Shown
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.metrics.server import serving
from offsetstream.progress import Progress
from offsetstream.spark.failures import explain_ended_java, explain_failure
from offsetstream.spark.session import prepared, require_packages, restore_folders
from offsetstream.stream.controls import Controls, Heartbeat, Signals
from offsetstream.stream.lifecycle.attempt import Attempt, OffsetsTopic
from offsetstream.stream.lifecycle.leaders import LeadersChangedError, Leadership, partitions_text
from offsetstream.stream.lifecycle.patience import LOGIN_CHANGES, OUTAGES, Losses, Patience, Standstill
from offsetstream.stream.monitor.watch import TopicChangedError
from offsetstream.stream.own_session import own_session
from offsetstream.stream.settings import JobSettings
from offsetstream.stream.stall import LEASE, StallWatch
from offsetstream.tables.create import HEALED_BY_JOB, create_tables, require_whole_logs
from offsetstream.tables.lease import Lease, take_lease
from offsetstream.tables.location import damage_in
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.store import COSTLY_CHECK_SECONDS, Store
from offsetstream.tables.write import TableWriter

TOPIC_WAIT_SECONDS = 30.0
STORE_PAUSE_SECONDS = 5.0
_METRICS_SECONDS = 15.0  # between two queries of the tables
Result = TypeVar("Result")


def run(settings: JobSettings, spark: SparkSession | None = None) -> None:
    """Run the job in your Spark session, or in one that it starts and stops.

    Return when everything is applied (`once`), or after `offsetstream stop`. Your session needs Spark's Kafka source
    and Delta, and stays open; EnvironmentNotReadyError names what is missing. This function handles no signals: an
    interrupt is like a crash, and the next run repairs the tables.
    """
    session = own_session(settings) if spark is None else prepared(spark)
    Job(settings, session, Progress(as_json=settings.log_format == "json")).run()


class Job:
    """One run of the streaming job. It stops between two batches, when the event `stop` is set.

    `end` ends the process at once. It is called after twice `max_stall` without progress, since nothing in the process
    can end a thread that waits for ever. Without it, the log and /healthz say what the job waits for.
    """

    def __init__(
        self,
        settings: JobSettings,
        session: AbstractContextManager[SparkSession],
        progress: Progress,
        stop: threading.Event | None = None,
        end: Callable[[], None] | None = None,
    ) -> None:
        self._settings = settings
        self._session = session
        self._progress = progress
        self._signals = Signals(stop or threading.Event(), threading.Event())
        self._cluster = Cluster(settings.bootstrap_server, settings.properties, self._signals.stop.is_set)
        self._leaders = Leadership(self._cluster, self._signals.stop.wait)
        self._patience = Patience(settings.max_silence, self._signals.stop, progress.warn)
        self._end = end
        self._create: Callable[[Collection[str] | None], None]  # tables that are missing
        self._stalls = StallWatch(settings.max_stall, progress.warn, self._end_stalled)
        progress.on_line = self._stalls.beat_of_thread
        self._metrics = Metrics(settings, progress, lambda: self._stalls.stalled)

    def stop(self) -> None:
        """Stop the job after its current batch. A signal handler may call this."""
        self._signals.stop.set()

    def _stop_requested(self, by: str) -> None:
        is_first = not self._signals.stop.is_set()
        self.stop()  # whatever happens to the line
        if is_first:
            self._progress.say(f"Stop requested by {by}")

    def run(self) -> None:
        """Run until stopped or, with `once`, until everything that is in the topic now is applied.

        If the cluster does not answer, wait up to `max_silence`, and then raise UnreachableError.
        """
        try:
            with self._metrics.served(), self._stalls.watching():
                self._run()
        except UnreachableError:
            if not self._signals.stop.is_set():
                raise
        if self._signals.stop.is_set():
            self._progress.say("Stopped between two batches")
        else:
            leaderless = self._leaders.leaderless
            except_for = f", except {partitions_text(leaderless)}, which cannot be read now" if leaderless else ""
            self._progress.say(f"Everything is applied{except_for}")

    def _end_stalled(self, stalled: str) -> None:
        if self._end is not None:
            self._progress.error(f"{stalled}. Nothing is lost. The job ends: start it again when that answers")
            self._end()

    def _run(self) -> None:
        partitions = self._wait_for_topic()
        if self._signals.stop.is_set():
            return
        cluster_id, coordinator = self._patience.ask(lambda: (self._cluster.cluster_id(), self._coordinator()))
        self._progress.say(
            f"Cluster {cluster_id}: {len(partitions)} offsets partitions, {coordinator} group coordinator"
        )
        if filters := self._settings.filters:
            self._progress.say(f"Filtered: {filters}")
        self._metrics.job.belongs_to(cluster_id)
        self._metrics.job.answered(does_answer=True)
        if not self._patience.ask(lambda: sees_all_topics(self._cluster)):
            self._progress.warn(f"Without {TOPIC_NAMES}, {TOPIC_NAMES.without}")
        topic, store = OffsetsTopic(self._cluster, self._leaders, partitions, coordinator), self._settings.store
        if store.needs_spark:  # the lease needs it too: it is released before the session ends
            with self._started() as spark:
                self._run_on(store.read_by(spark).for_job(), nullcontext(spark), topic, cluster_id)
        else:
            self._run_on(store.for_job(), self._started(), topic, cluster_id)

    def _run_on(
        self, tables: Store, session: AbstractContextManager[SparkSession], topic: OffsetsTopic, cluster_id: str
    ) -> None:
        self._create = partial(create_tables, tables, cluster_id, topic.coordinator)
        # A job that gets no lease must not create a table that the running job has lost: neither would notice.
        self._repairing(tables, partial(self._create, [JOB_LEASE]))
        take = partial(take_lease, tables, self._progress.say, self._signals.stop, force=self._settings.force)
        lease = self._repairing(tables, take)
        if lease is None:
            return
        controls = Controls(lease, self._signals, self._progress, self._metrics.job, self._stalls)
        with (
            self._stalls.part(LEASE) as check,
            Heartbeat(
                lease,
                self._stop_requested,
                self._signals.reload.set,
                check,
                patience=self._settings.max_silence,
                on_fault=self._progress.warn,
            ),
        ):
            self._repairing(tables, partial(require_whole_logs, tables))
            self._repairing(tables, partial(self._create, None))
            with session as spark:
                tables.in_spark(spark).require_reachable()
                writer = TableWriter(spark, tables)
                with self._metrics.of_groups(tables):
                    self._stalls.uses(spark)
                    self._work(writer, topic, controls)

    @contextmanager
    def _started(self) -> Iterator[SparkSession]:
        with explain_ended_java(), self._session as spark:
            require_java_in_utf8(spark.sparkContext._jvm, (self._settings.tables, self._settings.checkpoint))
            require_packages(spark)
            yield spark

    def _repairing(self, tables: Store, work: Callable[[], Result]) -> Result:
        """Return the result of the work. A damaged table that can be filled again is set aside, and the work repeated.

        DamagedTableError if another table is damaged, or if the user switched this off.
        """
        while True:
            try:
                return work()
            except Exception as error:
                if not self._set_aside(tables, error):
                    raise

    def _set_aside(self, tables: Store, error: Exception) -> bool:
        """Set the table aside that is damaged and therefore caused the error; return False if there is none."""
        damaged = damage_in(error, tables)
        if damaged is None:
            return False
        folder = tables.folder(damaged.table)
        if folder is None or damaged.table not in HEALED_BY_JOB or not self._settings.repair:
            raise damaged from error
        place = folder.set_aside()
        self._progress.warn(
            f"The table {damaged.table} is made anew: {damaged.damage}. What is left of it is in {tables.name}/{place}"
        )
        self._create([damaged.table])
        return True

    def _work(self, writer: TableWriter, topic: OffsetsTopic, controls: Controls) -> None:
        """Make attempts until the work is done. After an outage, the next attempt starts at the tables' positions."""
        may_continue, standstill = True, Standstill(self._patience.limit)
        losses = Losses(self._signals.stop, self._progress.warn)
        while True:
            attempt = self._patience.ask(partial(self._new_attempt, writer, topic, controls))
            positions, started = attempt.positions, time.monotonic()
            try:
                if self._is_done(attempt, writer.tables, may_continue=may_continue):
                    return
            except LostPartError as error:
                losses.wait_after(error)
                if self._signals.stop.is_set():
                    return
                restore_folders(writer.spark)
            except (*OUTAGES, *LOGIN_CHANGES) as error:
                has_moved = attempt.positions != positions
                standstill.bear(error, started=started, has_loaded=attempt.has_loaded, has_moved=has_moved)
                self._sit_out(error, topic, controls.lease)
                if self._signals.stop.is_set():
                    return
            except LeadersChangedError as error:
                self._progress.warn(f"Restarting: {error}")
            except (TopicChangedError, NoOffsetsTopicError) as error:
                self._progress.warn(f"Restarting: {error}")
                topic = replace(topic, partitions=self._wait_for_topic())
                if self._signals.stop.is_set():  # an empty list then does not mean that all partitions are gone
                    return
            may_continue = False

    def _new_attempt(self, writer: TableWriter, topic: OffsetsTopic, controls: Controls) -> Attempt:
        with explain_failure(self._cluster):
            return self._repairing(writer.tables, partial(Attempt, self._settings, writer, topic, controls))

    def _is_done(self, attempt: Attempt, tables: Store, *, may_continue: bool) -> bool:
        """Make the attempt. Return False if it met a damaged or deleted table, which exists again now."""
        try:
            with explain_failure(self._cluster):
                attempt.run(may_continue=may_continue)
        except Exception as error:
            if not self._set_aside(tables, error) and not self._made_again(tables, error):
                raise
            return False
        return True

    def _made_again(self, tables: Store, error: Exception) -> bool:
        """Create the tables that someone deleted while the job ran; return False if there are none.

        Without the lease, as on a volume that is no longer mounted, the job must not write.
        """
        lost: list[str] = []
        if isinstance(error, (TablesError, PySparkException, Py4JJavaError)):
            with suppress(TablesError):  # the store fails
                lost = [name for name in all_schemas() if tables.opened(name) is None]
        if not lost or JOB_LEASE in lost:
            return False
        self._progress.warn(f"Someone deleted {', '.join(lost)} while the job ran: creating what is missing")
        self._create(lost)
        return True

    def _sit_out(self, error: Exception, topic: OffsetsTopic, lease: Lease) -> None:
        """Wait until the store takes a heartbeat again, or until the brokers answer and let the job in."""
        if isinstance(error, StoreFaultError):
            self._progress.warn(f"{error}; trying again from the tables' positions in {STORE_PAUSE_SECONDS:.0f} s")
            self._patience.ask(partial(self._try_store, lease))
            return
        self._metrics.job.answered(does_answer=False)
        is_silent = isinstance(error, UnreachableError)
        what = "continuing when it answers" if is_silent else "reading the client properties again"
        self._progress.warn(f"{error}; {what}")
        self._patience.ask(partial(self._return, topic))

    def _try_store(self, lease: Lease) -> None:
        if not self._signals.stop.wait(STORE_PAUSE_SECONDS):
            with explain_failure(self._cluster):
                lease.heartbeat()

    def _return(self, topic: OffsetsTopic) -> None:
        """Wait for leaders, and take the client properties of now. Raises UsageError if a file is not whole yet."""
        self._leaders.readable(topic.partitions)
        again = self._settings.read_again()
        librdkafka_config(again.properties, again.bootstrap_server)
        self._settings = again

    def _wait_for_topic(self) -> list[int]:
        while not self._signals.stop.is_set():
            try:
                return self._patience.ask(lambda: readable_partitions(self._cluster))
            except NoOffsetsTopicError as error:
                if self._settings.once:
                    raise
                self._progress.say(f"{error}: no group has committed yet; checking again in {TOPIC_WAIT_SECONDS:.0f} s")
                self._signals.stop.wait(TOPIC_WAIT_SECONDS)
        return []

    def _coordinator(self) -> Coordinator:
        if self._settings.coordinator is not None:
            return self._settings.coordinator
        try:
            return self._cluster.coordinator_kind()
        except UnauthorisedError as error:
            self._progress.warn(
                f"Cannot find out which group coordinator the brokers run, assuming the new one: {error}"
            )
            return "new"


class Metrics:
    """The metrics of one run: its own, and those of groups. They are served if the settings have a port.

    `stalled` returns what makes no progress, for /healthz. Raise UsageError if a regular expression is invalid.
    """

    def __init__(self, settings: JobSettings, progress: Progress, stalled: Callable[[], str | None]) -> None:
        self.job = JobMetrics()
        self._settings, self._progress, self._stalled = settings, progress, stalled
        self._shown = Shown(
            settings.group_metrics, settings.metrics_groups, settings.metrics_topics, settings.metrics_max_series
        )
        self._shown.require_patterns()

    @contextmanager
    def served(self) -> Iterator[None]:
        """Serve the metrics while the context lasts. Raise UsageError if the address or port cannot be used."""
        port, address = self._settings.metrics_port, self._settings.metrics_address
        if not port:
            yield
            return
        hosts = self._settings.metrics_allowed_host
        with serving(address, port, self.job.registry, self.job.standing, hosts, self._stalled) as url:
            self._progress.say(f"Serving metrics at {url}/metrics")
            yield

    @contextmanager
    def of_groups(self, tables: Store) -> Iterator[None]:
        """Read the metrics of coordinators and groups from the tables, every some seconds, while the context lasts."""
        if not self._settings.metrics_port:
            yield
            return
        groups = GroupMetrics(
            self._shown, COSTLY_CHECK_SECONDS if tables.is_costly else _METRICS_SECONDS, self._progress.warn
        )
        self.job.registry.register(groups)
        groups.start(tables)
        try:
            yield
        finally:
            groups.end()
            self.job.registry.unregister(groups)
