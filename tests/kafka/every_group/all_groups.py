"""At least a hundred groups, of every type that the broker supports. Real clients make them, mostly Kafka's Java ones.

`all_groups` returns once nothing changes any more: the members stay alive, nothing is written to
`__consumer_offsets`, and the cleaner has compacted it and is then switched off. Two reads give the same result.
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
from offsetstream.embedded.jvm import DEFAULT_VERSION
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.properties import parse_release
from testkit.waiting import SECONDS
from tests.kafka.java_clients import SESSION_MS, java_clients
from tests.kafka.stage import Stage

_DEMO_GROUPS = 90
# Other releases than the default one; each takes a minute. The oldest supported one reports no group types. Then come
# the last with the classic coordinator, one in between, and the newest.
OLDEST, CLASSIC, OLDER, NEWEST = (
    pytest.param(release, marks=pytest.mark.nightly) for release in ("3.6.2", "3.9.2", "4.1.2", "4.4.0")
)
RELEASES = (OLDEST, CLASSIC, OLDER, DEFAULT_VERSION, NEWEST)
_QUIET_SECONDS = 1.5
_NEW_COORDINATOR = (4, 0)
# The cleaner compacts at once. A crashed client stays a member for the rest of the test. Heartbeats are quick.
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
    """The workload: its broker, Kafka's Admin client, and the expected (type, state, members) by group."""

    jmx_port: int

    def __init__(self, kafka: EmbeddedKafka, stage: Stage, stack: ExitStack) -> None:
        self.kafka, self.admin = kafka, stage.admin
        self.expected, self.deleted = stage.expected, stage.deleted
        self._stack = stack

    def stop_clients(self) -> None:
        """Stop all clients and the Admin client: the demo's members leave, the Java ones disappear as in a crash."""
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
    """Return the group types that a broker of this release supports."""
    has_new = parse_release(version) >= _NEW_COORDINATOR
    return {"Classic", "Consumer", "Share", "Streams"} if has_new else {"Classic"}


def client_release(version: str) -> str:
    """Return the Java clients' release for a broker: its own (for Streams groups), or the newest for an old broker."""
    return version if parse_release(version) >= _NEW_COORDINATOR else DEFAULT_VERSION


def broker_properties(version: str) -> dict[str, str]:
    """Return the extra properties that the workload's broker of this release needs."""
    return {**_PROPERTIES, **(_STREAMS_GROUPS_OF_4_1 if parse_release(version) == (4, 1) else {})}


def await_quiet(folder: Path) -> None:
    """Wait until the broker has neither appended to the offsets topic nor cleaned it for a while."""
    previous_sizes: dict[Path, int] = {}
    since = monotonic()
    while monotonic() - since < _QUIET_SECONDS:
        sleep(0.2)
        try:
            sizes = {path: path.stat().st_size for path in folder.glob(f"**/{OFFSETS_TOPIC}-*/*.log")}
        except FileNotFoundError:
            sizes = {}  # cleaned away between the two
        if sizes != previous_sizes:
            previous_sizes, since = sizes, monotonic()


def _stop_cleaning(bootstrap_server: str) -> None:
    lag = ConfigEntry("min.compaction.lag.ms", str(24 * 3_600_000), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, OFFSETS_TOPIC, incremental_configs=[lag])
    admin = admin_client(bootstrap_server)  # it must outlive its request
    admin.incremental_alter_configs([topic])[topic].result(SECONDS)
