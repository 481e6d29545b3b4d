"""The demo's open shop, and the five groups that get into trouble. One command finds the cause of each trouble."""

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from offsetstream.cluster.client import Cluster
from offsetstream.demo.members import GroupPlan, LiveGroups, Member, await_
from offsetstream.demo.topics import ORDER_HISTORY, PARTITIONS, TOPICS, shop, write_records
from offsetstream.demo.workload import Say, run_workload
from offsetstream.embedded.clients import admin_client
from offsetstream.errors import ClusterError, UsageError

_ARCHIVE = GroupPlan("order-archive", (ORDER_HISTORY,), 1)
_SCORING = GroupPlan("fraud-scoring", ("payments",), 1)
_REMINDER = GroupPlan("cart-reminder", ("page-views",), 1, {"heartbeat.interval.ms": "200"})  # rejoins quickly
_MAILER = GroupPlan("invoice-mailer", ("invoices",), 1)
_LOYALTY = GroupPlan("loyalty-points", ("loyalty",), 1)

_PAUSE = 1.0  # seconds between two rounds of records
_RECORDS = 6  # for each topic in each round
_OLD_ORDERS, _SECONDS_PER_OLD_ORDER = 2000, 0.3
_COMMITS = 12  # enough for the verdict "stopped", which uses the last ten commits
_SECONDS_PER_PAYMENT, _MAX_LAG_SECONDS = 1.0, 5
_CRASHES = 5  # these cause at least six rebalances
_BAD_INVOICE = '{"id": 4711, "amount": '
_TIMEOUT = 30.0
_MAX_NAMED_TOPICS = 3


class Shop:
    """The five groups that will get into trouble, and a producer that writes records every second after `open`.

    One of the five reads old orders, which takes ten minutes. The other four have read everything at the start.
    """

    def __init__(self, bootstrap_server: str, seed: int) -> None:
        self.bootstrap_server = bootstrap_server
        self.admin = admin_client(bootstrap_server)
        self.live = LiveGroups(bootstrap_server, self.admin)
        self.producer = shop(bootstrap_server)
        self._rng = random.Random(seed)  # noqa: S311 - amounts, no secrets
        self._closed = threading.Event()
        self._writer = threading.Thread(target=self._write, name="shop", daemon=True)

    def __enter__(self) -> Self:
        try:
            for plan in (_ARCHIVE, _SCORING, _REMINDER, _MAILER, _LOYALTY):
                self.live.join(plan)
            self.live.settle()
            self.live.members(_ARCHIVE.group_id)[0].seconds_per_record = _SECONDS_PER_OLD_ORDER
            write_records(self.producer, [ORDER_HISTORY], _OLD_ORDERS, self._rng)
        except BaseException:
            self.live.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_producing()
        self.live.close()

    def open(self) -> None:
        """Start to produce records every second."""
        self._writer.start()

    def stop_producing(self) -> None:
        """Stop producing records; the groups stay."""
        self._closed.set()
        if self._writer.ident is not None:
            self._writer.join()

    def _write(self) -> None:
        while not self._closed.wait(_PAUSE):
            write_records(self.producer, PARTITIONS, _RECORDS, self._rng)


@dataclass(frozen=True)
class Trouble:
    """A trouble of one group, its verdict in `groups status`, and the command that answers the operator's question.

    `description` continues a sentence that starts with the group's name. `start` makes the trouble happen, within
    some seconds. With `needs_cluster`, the command also takes --bootstrap-server.
    """

    group: str
    description: str
    question: str
    verdict: str
    command: tuple[str, ...]
    start: Callable[[Shop], None]
    needs_cluster: bool = False


def _stop_consumer(shop: Shop) -> None:
    (member,) = shop.live.members(_ARCHIVE.group_id)
    await_(lambda: member.commits >= _COMMITS, lambda: f"The consumer {member.client_id} does not commit")
    shop.live.leave(_ARCHIVE.group_id)


def _slow_down(shop: Shop) -> None:
    for member in shop.live.members(_SCORING.group_id):
        member.seconds_per_record = _SECONDS_PER_PAYMENT


def _crash_repeatedly(shop: Shop) -> None:
    for _ in range(_CRASHES):
        member = Member(shop.bootstrap_server, _REMINDER, 2)
        try:
            await_(member.owns_partitions.is_set, lambda: f"The consumer {member.client_id} gets no partitions")  # noqa: B023 - awaited within
        finally:
            member.leave()
            member.join()


def _produce_unreadable_record(shop: Shop) -> None:
    for member in shop.live.members(_MAILER.group_id):
        member.retries_unreadable = True
    shop.producer.produce("invoices", _BAD_INVOICE, "customer-17")
    shop.producer.flush(_TIMEOUT)


def _reset_offsets(shop: Shop) -> None:
    shop.live.leave(_LOYALTY.group_id)
    start = [TopicPartition("loyalty", partition, 0) for partition in range(TOPICS["loyalty"])]
    request = ConsumerGroupTopicPartitions(_LOYALTY.group_id, start)
    for future in shop.admin.alter_consumer_group_offsets([request]).values():
        future.result(_TIMEOUT)


# Rows for the user's table `thresholds`: without a limit there, no group gets the verdict "late".
LIMITS = ({"group_id": _SCORING.group_id, "max_time_lag_seconds": _MAX_LAG_SECONDS},)
# The reset comes last, because its verdict changes again soon: when the group has been silent for longer than it
# existed before.
TROUBLES = (
    Trouble(
        _ARCHIVE.group_id,
        f"has {_OLD_ORDERS} old orders to read. Its only consumer stops.",
        "Which group stopped, and where?",
        "stopped",
        ("groups", "status", "--group", _ARCHIVE.group_id),
        _stop_consumer,
    ),
    Trouble(
        _SCORING.group_id,
        (
            f"now needs {_SECONDS_PER_PAYMENT:.0f} s for each payment, and {_RECORDS} payments arrive each second. "
            f"Your limit in the table `thresholds`: a message may wait {_MAX_LAG_SECONDS} s."
        ),
        "How far behind is it, in messages and in time?",
        "late",
        ("lag", "--group", _SCORING.group_id, "--time"),
        _slow_down,
    ),
    Trouble(
        _REMINDER.group_id,
        f"has a consumer that crashes and restarts {_CRASHES} times.",
        "Why does it rebalance so often?",
        "unstable",
        ("groups", "rebalances", "--group", _REMINDER.group_id, "--since", "10m"),
        _crash_repeatedly,
    ),
    Trouble(
        _MAILER.group_id,
        "gets an invoice that it cannot parse. It retries without end.",
        "Which record blocks it?",
        "stalled",
        ("peek", "--group", _MAILER.group_id, "--max-records", "1", "--values"),
        _produce_unreadable_record,
        needs_cluster=True,
    ),
    Trouble(
        _LOYALTY.group_id,
        "stops for a deployment. Meanwhile, somebody resets its offsets.",
        "Who moved my offsets?",
        "rewound",
        ("offsets", "audit", "--group", _LOYALTY.group_id, "--since", "10m"),
        _reset_offsets,
    ),
)


def keep_busy(bootstrap_server: str, *, groups: int, pause: float, stopped: threading.Event, say: Say) -> None:
    """Run the demo's clients in rounds until `stopped` is set, with `pause` seconds between two changes.

    A change is either one of the workload's or a trouble. Each round starts with healthy groups and the same names of
    groups and topics, so the cluster does not fill up. Raises UsageError if the cluster has topics of others,
    ClusterError if it does not answer, and whatever `run_workload` raises.
    """
    _reject_cluster_in_use(bootstrap_server)
    try:
        for seed in itertools.count(1):
            with (
                run_workload(bootstrap_server, groups=groups - len(TROUBLES), seed=seed, say=say) as workload,
                Shop(bootstrap_server, seed) as open_shop,
            ):
                open_shop.open()
                for trouble in TROUBLES:
                    if stopped.wait(pause):
                        return
                    workload.more()
                    if stopped.wait(pause):
                        return
                    say(f"{trouble.group} {trouble.description}")
                    trouble.start(open_shop)
                if stopped.wait(pause):
                    return
    except KafkaException as error:
        raise ClusterError(f"The demo's clients cannot use {bootstrap_server}: {error.args[0].str()}") from error


def _reject_cluster_in_use(bootstrap_server: str) -> None:
    """Raise UsageError if the cluster has topics but not the demo's: the demo would delete groups of others there."""
    existing = {topic.name for topic in Cluster(bootstrap_server).topics() if not topic.is_internal}
    if existing and not existing >= TOPICS.keys():
        raise UsageError(
            f"{bootstrap_server} has topics that the demo did not create: "
            f"{', '.join(sorted(existing)[:_MAX_NAMED_TOPICS])}. The demo's clients delete groups, so they only run on "
            "a cluster that nobody else uses"
        )
