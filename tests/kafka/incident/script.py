"""The incident's script: what happens to groups on three brokers. A seed decides order, names and numbers."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.kafka.incident.actions import now_ms
from tests.kafka.incident.book import Cell, Ending, Handover
from tests.kafka.incident.cut import Cut
from tests.kafka.incident.steps import CLASSIC, KIP_848
from tests.kafka.java_clients import java_clients

_KILLED_SESSION_MS = 6000
PROPERTIES = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "500",  # otherwise a killed broker forgets deleted log starts
    **{
        f"group.{kind}.{limit}session.timeout.ms": "1800000"
        for kind in ("consumer", "share", "streams")
        for limit in ("", "max.")
    },
    **{f"group.{kind}.{limit}heartbeat.interval.ms": "500" for kind in ("share", "streams") for limit in ("", "min.")},
}


class Incident(Cut):
    """One run of the script. When `play` returns, every member is alive and at rest, and nothing is written."""

    def play(self) -> None:
        """Run all steps: those that take long start first, those that must be recent come last."""
        self._do(self.begin)
        middle: list[Callable[[], None]] = [
            self.reset_by_the_tool,
            self.delete_some_offsets,
            self.delete_a_topic,
            self.recreate_a_topic,
            self.add_partitions,
            self.delete_a_group,
            self.upgrade_a_group,
            self.storm,
            self.trim_a_log,
            self.share_and_streams,
        ]
        self.rng.shuffle(middle)
        cut = self.rng.randrange(2, len(middle) - 3)
        brokers: list[Callable[[], None]] = [self.restart_all_brokers, self.stop_a_broker]
        self.rng.shuffle(brokers)
        inside = middle[cut : cut + 2]  # while a transaction is open
        outside = [middle[:cut], middle[cut + 2 :]]
        self.rng.choice(outside).append(self.lose_the_end_of_a_log)
        for step in [
            *outside[0],
            brokers[0],
            self.open_a_transaction,
            *inside,
            self.end_the_transaction,
            *outside[1],
            brokers[1],
        ]:
            self._do(step)
        for step in (self.see_the_killed_gone, self.compact, self.see_offsets_expire, self.last_commits):
            self._do(step)

    def _do(self, step: Callable[[], None]) -> None:
        self.actions.runner.said.write(f"--- {step.__name__}\n")
        step()
        self.book.done.append(step.__name__)

    # Steps that take long

    def before_the_job(self) -> None:
        """Create the topics, and make a first commit so that the offsets topic exists."""
        self.actions.create_topic(self.goods, self.count, self.end)
        self.actions.create_topic(self.queue, 1, 100)
        self.actions.create_topic(self.rising, 1, 50)
        self.actions.commit(self.name("sleepers"), self.random_offsets())

    def begin(self) -> None:
        """Kill a member, leave offsets to expire, and make commits long before those at the end."""
        actions = self.actions
        self.kill_a_member()
        group = self.name("emptied")
        actions.join(group, f"{group}-1", self.goods, **CLASSIC)
        offsets, started_ms = self.random_offsets(), now_ms()
        actions.commit(group, offsets)
        actions.leave(group, f"{group}-1")
        self.book.endings = [Ending(Cell(group, *place), started_ms, now_ms()) for place in offsets]
        self.begin_statuses()

    def begin_statuses(self) -> None:
        """Start groups of one member each; their commits now and at the end decide their status."""
        actions, first = self.actions, {"rewound": 60, "stalled": 40, "catching-up": 10, "late": 20, "stopped": 30}
        offsets = {name: (self.queue, offset) for name, offset in {**first, "healthy": 100}.items()}
        offsets["falling-behind"] = (self.rising, 45)
        for name, (topic, _) in offsets.items():
            properties = self.rng.choice((CLASSIC, KIP_848))
            actions.join(self.name(name), f"{self.name(name)}-1", topic, **properties)
        actions.await_sampled([*((self.goods, n) for n in range(self.count)), (self.queue, 0), (self.rising, 0)])
        for name, (topic, offset) in offsets.items():
            actions.commit(self.name(name), {(topic, 0): offset})
            self.book.lags[Cell(self.name(name), topic, 0)] = {self.queue: 100, self.rising: 50}[topic] - offset
        self.book.lags_ms = now_ms()

    def kill_a_member(self) -> None:
        """Kill a member's process: it does not leave its group, which notices when the session ends."""
        actions, group = self.actions, self.name("watchers")
        stays, self.killed = f"{group}-1", f"{group}-2"
        actions.join(group, stays, self.goods, **CLASSIC)
        with java_clients(actions.kafka.bootstrap_server, actions.kafka.version) as doomed:
            member = doomed.consumer(
                group, self.goods, client_id=self.killed, session_timeout_ms=_KILLED_SESSION_MS, **CLASSIC
            )
            actions.add_member(group, self.killed, member)
            actions.commit(group, self.random_offsets())
            places = actions.assigned(group)[self.killed]
            assert places
            had_ms = now_ms()
        actions.members[group].pop(self.killed)
        self.book.handovers = [Handover(Cell(group, *place), self.killed, stays, had_ms, 0) for place in places]

    def see_the_killed_gone(self) -> None:
        group = self.name("watchers")
        self.actions.settle(group)
        self.actions.note_left(group, self.killed)
        [stays] = self.actions.members[group]
        assert {each.cell[1:] for each in self.book.handovers} < {*self.actions.assigned(group)[stays]}
        self.book.handovers = [each._replace(taken_ms=now_ms()) for each in self.book.handovers]

    def see_offsets_expire(self) -> None:
        for name in ("sleepers", "emptied", "cleaners", "rereaders"):
            self.actions.await_expiry(self.name(name))
        self.actions.await_expiry(self.blocked_group)

    # Steps that must be recent

    def last_commits(self) -> None:
        """Make the commits that, together with the earlier ones, decide the status of the groups."""
        actions = self.actions
        actions.produce(self.rising, {0: 30})
        actions.await_sampled([(self.rising, 0)])
        for name, offset in (("catching-up", 50), ("late", 60), ("stalled", 40)):
            actions.commit(self.name(name), {(self.queue, 0): offset})
        actions.commit(self.name("rewound"), {(self.queue, 0): 25}, "moved back by its owner")
        actions.commit(self.name("falling-behind"), {(self.rising, 0): 46})
        actions.commit(self.name("dead"), {(self.queue, 0): 15})
        time.sleep(3)  # its window is of one second
        self.book.statuses = {
            self.name(name): status
            for name, status in {
                "rewound": ("ERR", "REWIND", "rewound"),
                "stalled": ("ERR", "STALL", "stalled"),
                "catching-up": ("OK", "OK", "catching up"),
                "late": ("OK", "OK", "late"),
                "stopped": ("ERR", "STOP", "unknown"),  # its single commit is too recent to decide
                "falling-behind": ("WARN", "WARN", "falling behind"),
                "healthy": ("OK", "OK", "ok"),
                "dead": ("ERR", "STOP", "dead"),
            }.items()
        }
        self.book.steady = [self.name("healthy"), self.name("stopped")]
        seconds = (now_ms() - self.book.lags_ms) // 1000 - 2  # shortly after the first commits
        limits = {"dead": {"window_seconds": 1}, "late": {"max_time_lag_seconds": 5}}
        limits |= {name: {"window_seconds": seconds} for name in ("catching-up", "falling-behind")}
        self.book.thresholds = [{"group_id": self.name(name), **limit} for name, limit in limits.items()]
