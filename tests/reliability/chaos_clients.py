"""Clients that keep working while brokers stop and start: members, plain commits, transactions, deletions."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from random import Random
from typing import Any, Self

from confluent_kafka import KafkaException, TopicPartition

from offsetstream.demo.members import GroupPlan, LiveGroups
from offsetstream.demo.topics import PARTITIONS, commit_in_transaction, commit_plainly, create_topics, produce_records
from offsetstream.demo.workload import TRANSACTIONAL_GROUP, committing_groups
from offsetstream.embedded.clients import admin_client

_RECORDS = 100  # per topic and round
_GROUPS = 40
_AT_ONCE = 8
_NOTES = ("", "nightly run", "größe ✓")
_APART, _SECONDS_APART = get_context("spawn"), 90.0
_PLANS = (
    GroupPlan("billing", ("orders", "payments"), 2),
    GroupPlan("search-indexer", ("orders", "inventory"), 2, {"group.protocol": "consumer"}),
    GroupPlan("warehouse", ("shipments",), 1),
)


class ChaosClients:
    """Works in a thread while its context lasts.

    Requests that a broker refuses are dropped, after the clients' own retries.
    """

    def __init__(self, bootstrap_server: str, seed: int) -> None:
        self._server = bootstrap_server
        self._rng = Random(seed)
        self._admin = admin_client(bootstrap_server)
        self._live = LiveGroups(bootstrap_server, self._admin)
        self._groups = committing_groups(_GROUPS)
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="chaos clients")
        self.rounds = 0
        self.refused = 0

    def __enter__(self) -> Self:
        create_topics(self._admin)
        for plan in _PLANS:
            self._live.join(plan, plan.members)
        self._commit()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._live.close()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        steps = [self._commit, self._commit, self._produce, self._book, self._move, self._delete]
        try:
            while not self._ended.is_set():
                try:
                    self._rng.choice(steps)()
                except (KafkaException, TimeoutError):
                    self.refused += 1
                self.rounds += 1
        except BaseException as error:
            self._error = error

    def _commit(self) -> None:
        commit_plainly(self._server, {group: self._places() for group in self._rng.sample(self._groups, _AT_ONCE)})

    def _places(self) -> list[TopicPartition]:
        everywhere = [(topic, n) for topic, count in PARTITIONS.items() for n in range(count)]
        places = self._rng.sample(everywhere, self._rng.randint(1, 5))
        return [
            TopicPartition(*place, self._rng.randint(0, 10_000), self._rng.choice(_NOTES), self._rng.choice((-1, 0, 3)))
            for place in places
        ]

    def _produce(self) -> None:
        produce_records(self._server, _RECORDS, self._rng)

    def _book(self) -> None:
        places = [("orders", number, self._rng.randrange(1000)) for number in (0, 1)]
        self._in_a_process(_book, self._server, places, abort=self._rng.random() < 0.3)

    def _move(self) -> None:
        """Let a member join, or the longest-lived one leave."""
        plan = self._rng.choice(_PLANS)
        if plan.group_id in self._live.ids() and self._rng.random() < 0.5:
            self._live.leave(plan.group_id)
        else:
            self._live.join(plan)

    def _delete(self) -> None:
        self._in_a_process(_delete_groups, self._server, self._rng.sample(self._groups, 2))

    def _in_a_process(self, work: Callable[..., None], *arguments: Any, **options: Any) -> None:
        """Do it in a separate process: if a coordinator disappears, librdkafka may abort the process or never end."""
        process = _APART.Process(target=_quietly, args=(partial(work, *arguments, **options),), daemon=True)
        process.start()
        process.join(_SECONDS_APART)
        process.kill()
        process.join()
        self.refused += process.exitcode != 0


def _book(bootstrap_server: str, places: list[tuple[str, int, int]], *, abort: bool) -> None:
    offsets = [TopicPartition(*place) for place in places]
    commit_in_transaction(bootstrap_server, TRANSACTIONAL_GROUP, offsets, abort=abort)


def _delete_groups(bootstrap_server: str, groups: list[str]) -> None:
    admin = admin_client(bootstrap_server)  # without a name it would be collected before its answers arrive
    for future in admin.delete_consumer_groups(groups).values():
        future.result(30)


def _quietly(work: Callable[[], None]) -> None:
    try:
        work()
    except (KafkaException, TimeoutError):
        sys.exit(1)
