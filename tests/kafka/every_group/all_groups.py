"""At least a hundred groups of every type that a broker has, made by real clients, most of them Kafka's own in Java.

All of it is at rest when it is there: while the members live on, nothing is written to `__consumer_offsets`, which the
cleaner has compacted and leaves alone from then on. So whatever is read of it twice is the same.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.demo import run_workload
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import DEFAULT_VERSION, EmbeddedKafka
from offsetstream.embedded.properties import parse_release
from testkit.waiting import SECONDS
from tests.kafka.java_clients import SESSION_MS, java_clients
from tests.kafka.stage import Stage

_DEMO_GROUPS = 90
# Releases beside the usual one, each of which takes a minute: the oldest that is tried, which names no group type; the
# last with the classic coordinator, one between, and the newest.
OLDEST, CLASSIC, OLDER, NEWEST = (
    pytest.param(release, marks=pytest.mark.nightly) for release in ("3.6.2", "3.9.2", "4.1.2", "4.4.0")
)
RELEASES = (OLDEST, CLASSIC, OLDER, DEFAULT_VERSION, NEWEST)
_QUIET_SECONDS = 1.5
_NEW_COORDINATOR = (4, 0)
# A log that the cleaner compacts at once; who crashes stays a member for the rest of the test; quick heartbeats.
_PROPERTIES = {
    "log.roll.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "group.streams.initial.rebalance.delay.ms": "0",
    **{
        f"group.{kind}.{limit}session.timeout.ms": str(SESSION_MS)
        for kind in ("consumer", "share", "streams")
        for limit in ("", "max.")
    },
    **{f"group.{kind}.{limit}heartbeat.interval.ms": "500" for kind in ("share", "streams") for limit in ("", "min.")},
}
_STREAMS_GROUPS_OF_4_1 = {
    "unstable.api.versions.enable": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
}


class AllGroups:
    """The workload: its broker, Kafka's Admin client, and what is there as (type, state, members) by group."""

    jmx_port: int

    def __init__(self, kafka: EmbeddedKafka, stage: Stage, stack: ExitStack) -> None:
        self.kafka, self.admin = kafka, stage.admin
        self.expected, self.deleted = stage.expected, stage.deleted
        self._stack = stack

    def stop_clients(self) -> None:
        """End all clients, the Admin client too: the demo's members leave, those in Java are gone as after a crash."""
        self._stack.close()


@contextmanager
def all_groups(kafka: EmbeddedKafka) -> Iterator[AllGroups]:
    """Make the groups on a broker that has `broker_properties` and no groups yet."""
    with ExitStack() as stack:
        demo = stack.enter_context(
            run_workload(kafka.bootstrap_server, groups=_DEMO_GROUPS, seed=7, say=lambda _line: None)
        )
        demo.more()
        clients = stack.enter_context(java_clients(kafka.bootstrap_server, client_release(kafka.version)))
        stage = Stage(kafka.bootstrap_server, clients, group_types(kafka.version))
        stage.play()
        stage.deleted |= demo.deleted
        await_quiet(kafka.folder)
        _stop_cleaning(kafka.bootstrap_server)
        yield AllGroups(kafka, stage, stack)


def group_types(version: str) -> set[str]:
    """The group types that the workload's broker of a release has."""
    has_new = parse_release(version) >= _NEW_COORDINATOR
    return {"Classic", "Consumer", "Share", "Streams"} if has_new else {"Classic"}


def client_release(version: str) -> str:
    """The release of the Java clients for a broker: its own, for its Streams groups; the newest for an old one."""
    return version if parse_release(version) >= _NEW_COORDINATOR else DEFAULT_VERSION


def broker_properties(version: str) -> dict[str, str]:
    """What the workload's broker of a release needs beside what every embedded one has."""
    return {**_PROPERTIES, **(_STREAMS_GROUPS_OF_4_1 if parse_release(version) == (4, 1) else {})}


def await_quiet(folder: Path) -> None:
    """Wait until the broker has neither appended to the offsets topic nor cleaned it for a while."""
    seen: dict[Path, int] = {}
    since = monotonic()
    while monotonic() - since < _QUIET_SECONDS:
        sleep(0.2)
        try:
            found = {path: path.stat().st_size for path in folder.glob(f"**/{OFFSETS_TOPIC}-*/*.log")}
        except FileNotFoundError:
            found = {}  # cleaned away between the two
        if found != seen:
            seen, since = found, monotonic()


def _stop_cleaning(bootstrap_server: str) -> None:
    lag = ConfigEntry("min.compaction.lag.ms", str(24 * 3_600_000), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, OFFSETS_TOPIC, incremental_configs=[lag])
    admin = admin_client(bootstrap_server)  # it must outlive its request
    admin.incremental_alter_configs([topic])[topic].result(SECONDS)
