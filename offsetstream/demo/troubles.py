"""The demo's shop while it is open, and five troubles that befall five of its groups, each found by one command."""

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
_REMINDER = GroupPlan("cart-reminder", ("page-views",), 1, {"heartbeat.interval.ms": "200"})  # hears of others at once
_MAILER = GroupPlan("invoice-mailer", ("invoices",), 1)
_LOYALTY = GroupPlan("loyalty-points", ("loyalty",), 1)

_PAUSE = 1.0  # seconds between two writes of records
_RECORDS = 6  # of each topic, each time
_OLD_ORDERS, _SECONDS_PER_OLD_ORDER = 2000, 0.3
_COMMITS = 12  # of a group, until its pace is known: a verdict looks at the last ten
_SECONDS_PER_PAYMENT, _MOST_SECONDS = 1.0, 5
_CRASHES = 5  # which are at least six rebalances
_BAD_INVOICE = '{"id": 4711, "amount": '
_TIMEOUT = 30.0
_NAMED = 3


class Shop:
    """Five groups more, and once it is open records that are written every second to topics that groups read.

    One of the five works through old orders, which takes ten minutes; the others have read everything.
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
        self.write_no_more()
        self.live.close()

    def open(self) -> None:
        """Begin to write records."""
        self._writer.start()

    def write_no_more(self) -> None:
        """End the stream of records; the groups stay."""
        self._closed.set()
        if self._writer.ident is not None:
            self._writer.join()

    def _write(self) -> None:
        while not self._closed.wait(_PAUSE):
            write_records(self.producer, PARTITIONS, _RECORDS, self._rng)


@dataclass(frozen=True)
class Trouble:
    """What befalls a group, the verdict that `groups status` comes to, and the command that answers the question.

    `begin` makes it happen, in no more than some seconds.
    """

    group: str
    what: str
    question: str
    verdict: str
    command: tuple[str, ...]
    begin: Callable[[Shop], None]
    asks_cluster: bool = False


def _stop_half_way(shop: Shop) -> None:
    (member,) = shop.live.members(_ARCHIVE.group_id)
    await_(lambda: member.commits >= _COMMITS, lambda: f"{member.client_id} does not commit")
    shop.live.leave(_ARCHIVE.group_id)


def _become_slow(shop: Shop) -> None:
    for member in shop.live.members(_SCORING.group_id):
        member.seconds_per_record = _SECONDS_PER_PAYMENT


def _crash_again_and_again(shop: Shop) -> None:
    for _ in range(_CRASHES):
        member = Member(shop.bootstrap_server, _REMINDER, 2)
        try:
            await_(member.owns_partitions.is_set, lambda: f"{member.client_id} gets no partitions")  # noqa: B023 - awaited within
        finally:
            member.leave()
            member.join()


def _write_what_cannot_be_read(shop: Shop) -> None:
    for member in shop.live.members(_MAILER.group_id):
        member.retries_unreadable = True
    shop.producer.produce("invoices", _BAD_INVOICE, "customer-17")
    shop.producer.flush(_TIMEOUT)


def _reset_from_outside(shop: Shop) -> None:
    shop.live.leave(_LOYALTY.group_id)
    start = [TopicPartition("loyalty", partition, 0) for partition in range(TOPICS["loyalty"])]
    wanted = ConsumerGroupTopicPartitions(_LOYALTY.group_id, start)
    for future in shop.admin.alter_consumer_group_offsets([wanted]).values():
        future.result(_TIMEOUT)


# Rows of the user's table `thresholds`: without a limit of hers, nobody is late.
LIMITS = ({"group_id": _SCORING.group_id, "max_time_lag_seconds": _MOST_SECONDS},)
# The group whose offsets are reset comes last: its verdict becomes another one once it has not committed for longer
# than it was there before.
TROUBLES = (
    Trouble(
        _ARCHIVE.group_id,
        f"has {_OLD_ORDERS} old orders to read, and its only consumer stops",
        "Which group stopped, and where?",
        "stopped",
        ("groups", "status", "--group", _ARCHIVE.group_id),
        _stop_half_way,
    ),
    Trouble(
        _SCORING.group_id,
        (
            f"takes {_SECONDS_PER_PAYMENT:.0f} s for each payment now, and {_RECORDS} arrive each second; "
            f"your table `thresholds` allows its messages to wait for {_MOST_SECONDS} s"
        ),
        "How far behind is it, in messages and in time?",
        "late",
        ("lag", "--group", _SCORING.group_id, "--time"),
        _become_slow,
    ),
    Trouble(
        _REMINDER.group_id,
        f"has a consumer that crashes and comes back, {_CRASHES} times",
        "Why does it rebalance so often?",
        "unstable",
        ("groups", "rebalances", "--group", _REMINDER.group_id, "--since", "10m"),
        _crash_again_and_again,
    ),
    Trouble(
        _MAILER.group_id,
        "gets an invoice that it cannot parse, and tries again and again",
        "Which record does it stumble over?",
        "stalled",
        ("peek", "--group", _MAILER.group_id, "--max-records", "1", "--values"),
        _write_what_cannot_be_read,
        asks_cluster=True,
    ),
    Trouble(
        _LOYALTY.group_id,
        "stops for a deployment, and somebody resets its offsets",
        "Who moved my offsets?",
        "rewound",
        ("offsets", "audit", "--group", _LOYALTY.group_id, "--since", "10m"),
        _reset_from_outside,
    ),
)


def keep_busy(bootstrap_server: str, *, groups: int, pause: float, stopped: threading.Event, say: Say) -> None:
    """Run one workload and open shop after the other until `stopped` is set, with `pause` seconds between two changes.

    A change is one of the workload's or a trouble; with the next workload all troubles are over. Groups and topics keep
    their names, so that a cluster never has more than those of one workload. Raises UsageError for a cluster that is in
    use by others, ClusterError where it does not answer, or as `run_workload` does.
    """
    _refuse_one_in_use(bootstrap_server)
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
                    say(f"{trouble.group} {trouble.what}")
                    trouble.begin(open_shop)
                if stopped.wait(pause):
                    return
    except KafkaException as error:
        raise ClusterError(f"{bootstrap_server} does not serve the demo's clients: {error.args[0].str()}") from error


def _refuse_one_in_use(bootstrap_server: str) -> None:
    """Refuse a cluster that never had the demo, but has topics: groups are deleted, whose names others may have too."""
    existing = {topic.name for topic in Cluster(bootstrap_server).topics() if not topic.is_internal}
    if existing and not existing >= TOPICS.keys():
        raise UsageError(
            f"{bootstrap_server} has topics that are not the demo's ({', '.join(sorted(existing)[:_NAMED])}): "
            "the demo's clients delete groups, so they take a cluster that nobody else uses"
        )
