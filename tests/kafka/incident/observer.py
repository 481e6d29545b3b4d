"""Queries of the incident's cluster and job, and waits for what they must show."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from offsetstream.cluster.client import Cluster
from offsetstream.codec.batches import LogRecord
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import CONSUMER_GROUPS, run_tool
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import ClusterError
from testkit.waiting import await_
from tests.kafka.incident.book import Book, Cell, Place
from tests.kafka.java_admin import JavaAdmin
from tests.kafka.java_clients import JavaClients
from tests.kafka.jobs import JobRunner
from tests.reliability.truth import Records, read_topic

_TIMEOUT, _OFFSETS = 60.0, "__consumer_offsets"


class Observer:
    """Reads Admin, Kafka's tool, the offsets topic and the job of one incident; keeps the book of what happened."""

    def __init__(self, kafka: EmbeddedKafka, clients: JavaClients, runner: JobRunner, book: Book) -> None:
        self.kafka, self.clients, self.runner, self.book = kafka, clients, runner, book
        self.admin = JavaAdmin(clients)
        self.cluster = Cluster(kafka.bootstrap_server)
        self._topics = admin_client(kafka.bootstrap_server)
        self._records: dict[int, dict[int, LogRecord]] = {}  # also those that compaction removed
        self._present: Records = {}
        self.lost_log: Records = {}  # the records of the log before it was cut

    # The cluster

    def assigned(self, group: str) -> dict[str, list[Place]]:
        """Return the partitions of each client of a group, from Admin."""
        answers = self.admin.answers({group})
        clients = {row["member_id"]: row["client_id"] for row in answers.members}
        places: dict[str, list[Place]] = {client: [] for client in clients.values()}
        for row in answers.assignments:
            if row["kind"] == "assigned":
                places[clients[row["member_id"]]].append((row["topic"], row["partition"]))
        return {client: sorted(assigned) for client, assigned in places.items()}

    def group_type(self, group: str) -> str:
        [row] = [row for row in self.admin.list_groups() if row["group_id"] == group]
        return str(row["group_type"])

    def tool(self, group: str, *arguments: str) -> str:
        return run_tool(
            CONSUMER_GROUPS, ["--bootstrap-server", self.kafka.bootstrap_server, "--group", group, *arguments]
        )

    def group_ids(self) -> set[str]:
        return {row["group_id"] for row in self.admin.list_groups()}

    def offsets(self, groups: Iterable[str]) -> dict[Cell, int]:
        """Return the committed offsets of groups, from Admin."""
        return {
            Cell(row["group_id"], row["topic"], row["partition"]): row["committed_offset"]
            for row in self.admin.committed_offsets(groups)
        }

    def await_brokers(self, wanted: set[int]) -> None:
        self.await_(lambda: set(self._topics.list_topics(timeout=_TIMEOUT).brokers) == wanted, f"not {wanted}")

    # The offsets topic

    def keep_records(self) -> Records:
        """Read the topic; return all records that this or an earlier read found."""
        self._present, _ = read_topic(self.kafka.bootstrap_server)
        for number, records in self._present.items():
            self._records.setdefault(number, {}).update({record.offset: record for record in records})
        return {number: [records[offset] for offset in sorted(records)] for number, records in self._records.items()}

    def keep_cut_log(self, number: int) -> None:
        """Keep the records read so far from an offsets partition as its log before the cut."""
        self.lost_log[number] = [record for _, record in sorted(self._records.pop(number).items())]

    def lost_to_compaction(self, number: int) -> bool:
        """Return whether records of an offsets partition have disappeared."""
        return len(self._present.get(number, [])) < len(self._records[number])

    def configure_offsets_topic(self, config: Mapping[str, str]) -> None:
        entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in config.items()]
        topic = ConfigResource(ResourceType.TOPIC, _OFFSETS, incremental_configs=entries)
        self._topics.incremental_alter_configs([topic])[topic].result(_TIMEOUT)

    # The job

    def await_applied(self) -> None:
        """Wait until the job has applied all records that are in the topic now."""
        ends = {number: end.last_stable_offset for number, end in self.cluster.partition_ends(range(50)).items()}

        def is_applied() -> bool:
            applied = dict(self.runner.rows("offsets_partitions", "offsets_partition", "next_offset"))
            return all((applied[number] or 0) >= end for number, end in ends.items())

        self.await_job(is_applied)

    def await_sampled(self, places: Collection[Place]) -> None:
        """Wait until the job has sampled the current end offsets of these partitions."""
        columns, ends = (
            ("topic", "partition", "high_watermark"),
            {(*place, self.book.ends[place][-1]) for place in places},
        )
        self.await_job(lambda: ends <= set(self.runner.rows("topic_partitions", *columns)))
        self.book.sampled_since_ms |= dict.fromkeys(places, time.time_ns() // 1_000_000)

    def await_ends(self, ends: Mapping[Place, tuple[int, int, int]]) -> None:
        """Wait until the job has sampled these end offsets, for all partitions that it samples."""
        columns = ("topic", "partition", "log_start_offset", "last_stable_offset", "high_watermark", "error")

        def is_sampled() -> bool:
            sampled = {row[:2]: row[2:] for row in self.runner.rows("topic_partitions", *columns)}
            return all((*end, None) == sampled[place] for place, end in ends.items() if place in sampled)

        self.await_job(is_sampled)

    def await_blocked(self, number: int, last_stable_offset: int | None) -> None:
        """Wait until the job has sampled that an offsets partition is blocked at an offset, or (None) not blocked."""
        columns = ("topic", "partition", "last_stable_offset", "high_watermark")

        def is_sampled() -> bool:
            [(stable, end)] = [
                row[2:] for row in self.runner.rows("topic_partitions", *columns) if row[:2] == (_OFFSETS, number)
            ]
            return bool(stable == end if last_stable_offset is None else last_stable_offset == stable < end)

        self.await_job(is_sampled)

    def await_coordinators(self) -> dict[int, tuple[int | None, int | None]]:
        """Return (coordinator id, epoch) by offsets partition, once the job's tables have the same."""
        coordinators: dict[int, tuple[int | None, int | None]] = {}

        def is_in_tables() -> bool:
            try:
                ends = self.cluster.partition_ends(range(50))
            except ClusterError:  # leaders are moving
                return False
            coordinators.update({number: (end.coordinator_id, end.coordinator_epoch) for number, end in ends.items()})
            columns = ("offsets_partition", "coordinator_id", "coordinator_epoch")
            in_tables = {number: values for number, *values in self.runner.rows("offsets_partitions", *columns)}
            return {number: tuple(values) for number, values in in_tables.items()} == coordinators

        self.await_job(is_in_tables)
        self.book.coordinators.append(dict(coordinators))
        return coordinators

    def await_(self, condition: Callable[[], bool], context: str) -> None:
        await_(condition, lambda: f"{context}\n{self.runner.said.getvalue()[-4000:]}", pause=0.3)

    def await_job(self, condition: Callable[[], bool]) -> None:
        self.await_(condition, "the job has not seen it")

    def _id_of(self, topic: str) -> str:
        return next(topic_id for topic_id, name in self.admin.topic_names().items() if name == topic)

    def _is_deleted(self, topic_id: str) -> bool:
        return dict(self.runner.rows("topics", "topic_id", "deleted_at"))[topic_id] is not None
