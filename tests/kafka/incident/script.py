"""The incident: what happens to the groups of three brokers, in an order, with names and numbers, of a seed."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.kafka.incident.book import Cell, Ending, Handover
from tests.kafka.incident.cut import Cut
from tests.kafka.incident.hands import now_ms
from tests.kafka.incident.steps import CLASSIC, KIP_848
from tests.kafka.java_clients import java_clients

_KILLED_SESSION_MS = 6000
PROPERTIES = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "500",  # else brokers that die forget what was deleted of a log
    **{
        f"group.{kind}.{limit}session.timeout.ms": "1800000"
        for kind in ("consumer", "share", "streams")
        for limit in ("", "max.")
    },
    **{f"group.{kind}.{limit}heartbeat.interval.ms": "500" for kind in ("share", "streams") for limit in ("", "min.")},
}


class Incident(Cut):
    """One run of the script; `play` returns with every member alive and at rest, and nothing being written."""

    def play(self) -> None:
        """All of it: what takes long begins first, what must be fresh comes last."""
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
        self.hands.runner.said.write(f"--- {step.__name__}\n")
        step()
        self.book.done.append(step.__name__)

    # What takes long

    def before_the_job(self) -> None:
        """Topics, and a first commit, with which the offsets topic comes."""
        self.hands.create_topic(self.goods, self.count, self.end)
        self.hands.create_topic(self.queue, 1, 100)
        self.hands.create_topic(self.rising, 1, 50)
        self.hands.commit(self.name("sleepers"), self.some())

    def begin(self) -> None:
        """A member that is killed; offsets that will expire; and commits long before those of the end."""
        hands = self.hands
        self.kill_a_member()
        group = self.name("emptied")
        hands.join(group, f"{group}-1", self.goods, **CLASSIC)
        offsets, began = self.some(), now_ms()
        hands.commit(group, offsets)
        hands.leave(group, f"{group}-1")
        self.book.endings = [Ending(Cell(group, *place), began, now_ms()) for place in offsets]
        self.begin_statuses()

    def begin_statuses(self) -> None:
        """Groups of one member each, whose status is decided by what they commit now and at the end."""
        hands, first = self.hands, {"rewound": 60, "stalled": 40, "catching-up": 10, "late": 20, "stopped": 30}
        offsets = {name: (self.queue, offset) for name, offset in {**first, "healthy": 100}.items()}
        offsets["falling-behind"] = (self.rising, 45)
        for name, (topic, _) in offsets.items():
            properties = self.rng.choice((CLASSIC, KIP_848))
            hands.join(self.name(name), f"{self.name(name)}-1", topic, **properties)
        hands.await_sampled([*((self.goods, n) for n in range(self.count)), (self.queue, 0), (self.rising, 0)])
        for name, (topic, offset) in offsets.items():
            hands.commit(self.name(name), {(topic, 0): offset})
            self.book.lags[Cell(self.name(name), topic, 0)] = {self.queue: 100, self.rising: 50}[topic] - offset
        self.book.lags_ms = now_ms()

    def kill_a_member(self) -> None:
        """Its process is gone at once: it leaves no group, and is missed when its session ends."""
        hands, group = self.hands, self.name("watchers")
        stays, self.killed = f"{group}-1", f"{group}-2"
        hands.join(group, stays, self.goods, **CLASSIC)
        with java_clients(hands.kafka.bootstrap_server, hands.kafka.version) as doomed:
            member = doomed.consumer(
                group, self.goods, client_id=self.killed, session_timeout_ms=_KILLED_SESSION_MS, **CLASSIC
            )
            hands.joined(group, self.killed, member)
            hands.commit(group, self.some())
            places = hands.assigned(group)[self.killed]
            assert places
            had_ms = now_ms()
        hands.members[group].pop(self.killed)
        self.book.handovers = [Handover(Cell(group, *place), self.killed, stays, had_ms, 0) for place in places]

    def see_the_killed_gone(self) -> None:
        group = self.name("watchers")
        self.hands.settle(group)
        self.hands.note_left(group, self.killed)
        [stays] = self.hands.members[group]
        assert {each.cell[1:] for each in self.book.handovers} < {*self.hands.assigned(group)[stays]}
        self.book.handovers = [each._replace(taken_ms=now_ms()) for each in self.book.handovers]

    def see_offsets_expire(self) -> None:
        for name in ("sleepers", "emptied", "cleaners", "rereaders"):
            self.hands.await_expiry(self.name(name))
        self.hands.await_expiry(self.beside)

    # What must be fresh

    def last_commits(self) -> None:
        """What decides the status of the groups, against what they committed long before."""
        hands = self.hands
        hands.produce(self.rising, {0: 30})
        hands.await_sampled([(self.rising, 0)])
        for name, offset in (("catching-up", 50), ("late", 60), ("stalled", 40)):
            hands.commit(self.name(name), {(self.queue, 0): offset})
        hands.commit(self.name("rewound"), {(self.queue, 0): 25}, "moved back by its owner")
        hands.commit(self.name("falling-behind"), {(self.rising, 0): 46})
        hands.commit(self.name("dead"), {(self.queue, 0): 15})
        time.sleep(3)  # its window is of one second
        self.book.statuses = {
            self.name(name): told
            for name, told in {
                "rewound": ("ERR", "REWIND", "rewound"),
                "stalled": ("ERR", "STALL", "stalled"),
                "catching-up": ("OK", "OK", "catching up"),
                "late": ("OK", "OK", "late"),
                "stopped": ("ERR", "STOP", "unknown"),  # of one commit that is not old enough to tell
                "falling-behind": ("WARN", "WARN", "falling behind"),
                "healthy": ("OK", "OK", "ok"),
                "dead": ("ERR", "STOP", "dead"),
            }.items()
        }
        self.book.steady = [self.name("healthy"), self.name("stopped")]
        seconds = (now_ms() - self.book.lags_ms) // 1000 - 2  # shortly after the first commits
        limits = {"dead": {"window_seconds": 1}, "late": {"max_time_lag_seconds": 5}}
        limits |= {name: {"window_seconds": seconds} for name in ("catching-up", "falling-behind")}
        self.book.thresholds = [{"group_id": self.name(name), **own} for name, own in limits.items()]
