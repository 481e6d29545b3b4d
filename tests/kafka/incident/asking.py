"""What the script of the incident asks, of the cluster and of the job: and waits until it is so."""

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
from offsetstream.codec.record_batches import LogRecord
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.tools import CONSUMER_GROUPS, run_tool
from offsetstream.errors import ClusterError
from testkit.waiting import await_
from tests.kafka.incident.book import Book, Cell, Place
from tests.kafka.java_admin import JavaAdmin
from tests.kafka.java_clients import JavaClients
from tests.kafka.jobs import JobRunner
from tests.reliability.truth import Records, read_topic

_TIMEOUT, _OFFSETS = 60.0, "__consumer_offsets"


class Asking:
    """Admin, Kafka's tool, the offsets topic and the job of one incident, and the book in which it is written down."""

    def __init__(self, kafka: EmbeddedKafka, clients: JavaClients, runner: JobRunner, book: Book) -> None:
        self.kafka, self.clients, self.runner, self.book = kafka, clients, runner, book
        self.admin = JavaAdmin(clients)
        self.cluster = Cluster(kafka.bootstrap_server)
        self._topics = admin_client(kafka.bootstrap_server)
        self._records: dict[int, dict[int, LogRecord]] = {}  # also those that compaction took
        self._present: Records = {}
        self.lost_log: Records = {}  # what was in a log before it was cut

    # Of the cluster

    def assigned(self, group: str) -> dict[str, list[Place]]:
        """The partitions of each client of a group, by Admin."""
        found = self.admin.answers({group})
        clients = {row["member_id"]: row["client_id"] for row in found.members}
        places: dict[str, list[Place]] = {client: [] for client in clients.values()}
        for row in found.assignments:
            if row["kind"] == "assigned":
                places[clients[row["member_id"]]].append((row["topic"], row["partition"]))
        return {client: sorted(own) for client, own in places.items()}

    def type_of(self, group: str) -> str:
        [row] = [row for row in self.admin.list_groups() if row["group_id"] == group]
        return str(row["group_type"])

    def tool(self, group: str, *arguments: str) -> str:
        return run_tool(
            CONSUMER_GROUPS, ["--bootstrap-server", self.kafka.bootstrap_server, "--group", group, *arguments]
        )

    def listed(self) -> set[str]:
        return {row["group_id"] for row in self.admin.list_groups()}

    def offsets(self, groups: Iterable[str]) -> dict[Cell, int]:
        """The committed offsets of groups, by Admin."""
        return {
            Cell(row["group_id"], row["topic"], row["partition"]): row["committed_offset"]
            for row in self.admin.committed_offsets(groups)
        }

    def await_brokers(self, wanted: set[int]) -> None:
        self.await_(lambda: set(self._topics.list_topics(timeout=_TIMEOUT).brokers) == wanted, f"not {wanted}")

    # The offsets topic

    def keep_records(self) -> Records:
        """Read the topic; return all that was there when it was read, now or earlier."""
        self._present, _ = read_topic(self.kafka.bootstrap_server)
        for number, own in self._present.items():
            self._records.setdefault(number, {}).update({record.offset: record for record in own})
        return {number: [own[offset] for offset in sorted(own)] for number, own in self._records.items()}

    def start_log(self, number: int) -> None:
        """What was read of an offsets partition was its log before it was cut."""
        self.lost_log[number] = [record for _, record in sorted(self._records.pop(number).items())]

    def lost_to_compaction(self, number: int) -> bool:
        """Whether records of an offsets partition were there once, and are no more."""
        return len(self._present.get(number, [])) < len(self._records[number])

    def configure_offsets_topic(self, config: Mapping[str, str]) -> None:
        entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in config.items()]
        topic = ConfigResource(ResourceType.TOPIC, _OFFSETS, incremental_configs=entries)
        self._topics.incremental_alter_configs([topic])[topic].result(_TIMEOUT)

    # The job

    def await_applied(self) -> None:
        """Wait until the job has applied all that is in the topic now."""
        ends = {number: end.last_stable_offset for number, end in self.cluster.partition_ends(range(50)).items()}

        def is_applied() -> bool:
            told = dict(self.runner.rows("offsets_partitions", "offsets_partition", "next_offset"))
            return all((told[number] or 0) >= end for number, end in ends.items())

        self.await_job(is_applied)

    def await_sampled(self, places: Collection[Place]) -> None:
        """Wait until the job has sampled where these logs end now."""
        columns, ends = (
            ("topic", "partition", "high_watermark"),
            {(*place, self.book.ends[place][-1]) for place in places},
        )
        self.await_job(lambda: ends <= set(self.runner.rows("topic_partitions", *columns)))
        self.book.seen |= dict.fromkeys(places, time.time_ns() // 1_000_000)

    def await_ends(self, ends: Mapping[Place, tuple[int, int, int]]) -> None:
        """Wait until the job has sampled these ends wherever it samples."""
        columns = ("topic", "partition", "log_start_offset", "last_stable_offset", "high_watermark", "error")

        def is_sampled() -> bool:
            found = {row[:2]: row[2:] for row in self.runner.rows("topic_partitions", *columns)}
            return all((*end, None) == found[place] for place, end in ends.items() if place in found)

        self.await_job(is_sampled)

    def await_blocked(self, number: int, last_stable_offset: int | None) -> None:
        """Wait until the job has sampled that an offsets partition is blocked at an offset, or no more."""
        columns = ("topic", "partition", "last_stable_offset", "high_watermark")

        def is_sampled() -> bool:
            [(stable, end)] = [
                row[2:] for row in self.runner.rows("topic_partitions", *columns) if row[:2] == (_OFFSETS, number)
            ]
            return bool(stable == end if last_stable_offset is None else last_stable_offset == stable < end)

        self.await_job(is_sampled)

    def look_at_coordinators(self) -> dict[int, tuple[int | None, int | None]]:
        """Who coordinates which offsets partition, once the job has seen it, too."""
        found: dict[int, tuple[int | None, int | None]] = {}

        def is_told() -> bool:
            try:
                ends = self.cluster.partition_ends(range(50))
            except ClusterError:  # leaders are moving
                return False
            found.update({number: (end.coordinator_id, end.coordinator_epoch) for number, end in ends.items()})
            columns = ("offsets_partition", "coordinator_id", "coordinator_epoch")
            told = {number: of for number, *of in self.runner.rows("offsets_partitions", *columns)}
            return {number: tuple(of) for number, of in told.items()} == found

        self.await_job(is_told)
        self.book.coordinators.append(dict(found))
        return found

    def await_(self, condition: Callable[[], bool], told: str) -> None:
        await_(condition, lambda: f"{told}\n{self.runner.said.getvalue()[-4000:]}", pause=0.3)

    def await_job(self, condition: Callable[[], bool]) -> None:
        self.await_(condition, "the job has not seen it")

    def _id_of(self, topic: str) -> str:
        return next(topic_id for topic_id, name in self.admin.topic_names().items() if name == topic)

    def _is_deleted(self, topic_id: str) -> bool:
        return dict(self.runner.rows("topics", "topic_id", "deleted_at"))[topic_id] is not None
