"""The incident: what happens to the groups of three brokers, in an order, with names and numbers, of a seed."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from offsetstream.coordinator.partitioning import partition_for
from tests.kafka.incident.book import Cell, Handover, Place
from tests.kafka.incident.hands import Hands, now_ms
from tests.kafka.java_clients import java_clients

_NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")
_RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
_CLASSIC = {"partition_assignment_strategy": _RANGE}
_KIP_848 = {"group_protocol": "consumer"}
_KILLED_SESSION_MS = 6000
PROPERTIES = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "0",
    **{
        f"group.{kind}.{limit}session.timeout.ms": "1800000"
        for kind in ("consumer", "share", "streams")
        for limit in ("", "max.")
    },
    **{f"group.{kind}.{limit}heartbeat.interval.ms": "500" for kind in ("share", "streams") for limit in ("", "min.")},
}


class Incident:
    """One run of the script; `play` returns with every member alive and at rest, and nothing being written."""

    def __init__(self, hands: Hands, seed: int) -> None:
        self.rng, self.hands, self.book = Random(seed), hands, hands.book
        self.word = self.rng.choice(_NAMES)
        self.count = self.rng.randrange(3, 6)  # partitions of the topic that stays as it is
        self.end = self.rng.randrange(20, 60)  # records in each of them
        self.goods, self.queue, self.rising = (f"{self.word}-{name}" for name in ("goods", "queue", "rising"))

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
        for step in [
            *middle[:cut],
            brokers[0],
            self.open_a_transaction,
            *inside,
            self.end_the_transaction,
            *middle[cut + 2 :],
            brokers[1],
        ]:
            self._do(step)
        for step in (self.see_the_killed_gone, self.see_offsets_expire, self.last_commits):
            self._do(step)

    def _do(self, step: Callable[[], None]) -> None:
        self.hands.runner.said.write(f"--- {step.__name__}\n")
        step()
        self.book.done.append(step.__name__)

    def name(self, of: str) -> str:
        return f"{self.word}-{of}"

    def some(self, low: int = 0) -> dict[Place, int]:
        """Offsets in all partitions of the topic that stays, neither its start nor its end."""
        return {(self.goods, n): self.rng.randrange(max(1, low), self.end - 2) for n in range(self.count)}

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
        hands.join(group, f"{group}-1", self.goods, **_CLASSIC)
        hands.commit(group, self.some())
        hands.leave(group, f"{group}-1")
        self.begin_statuses()

    def begin_statuses(self) -> None:
        """Groups of one member each, whose status is decided by what they commit now and at the end."""
        hands, first = self.hands, {"rewound": 60, "stalled": 40, "catching-up": 10, "late": 20, "stopped": 30}
        offsets = {name: (self.queue, offset) for name, offset in {**first, "healthy": 100}.items()}
        offsets["falling-behind"] = (self.rising, 45)
        for name, (topic, _) in offsets.items():
            properties = self.rng.choice((_CLASSIC, _KIP_848))
            hands.join(self.name(name), f"{self.name(name)}-1", topic, **properties)
        hands.await_sampled({self.queue: 100, self.rising: 50})
        for name, (topic, offset) in offsets.items():
            hands.commit(self.name(name), {(topic, 0): offset})
        self.marked_ms = now_ms()

    def kill_a_member(self) -> None:
        """Its process is gone at once: it leaves no group, and is missed when its session ends."""
        hands, group = self.hands, self.name("watchers")
        hands.join(group, f"{group}-stays", self.goods, **_CLASSIC)
        with java_clients(hands.kafka.bootstrap_server, hands.kafka.version) as doomed:
            member = doomed.consumer(
                group, self.goods, client_id=f"{group}-killed", session_timeout_ms=_KILLED_SESSION_MS, **_CLASSIC
            )
            hands.joined(group, f"{group}-killed", member)
            hands.commit(group, self.some())
            self.killed_had = hands.assigned(group)[f"{group}-killed"]
            assert self.killed_had
        hands.members[group].pop(f"{group}-killed")

    def see_the_killed_gone(self) -> None:
        group = self.name("watchers")
        self.hands.settle(group)
        self.hands.note_left(group, f"{group}-killed")
        assert {*self.killed_had} < {*self.hands.assigned(group)[f"{group}-stays"]}
        killed, stays = f"{group}-killed", f"{group}-stays"
        self.book.handovers = [Handover(Cell(group, *place), killed, stays) for place in self.killed_had]

    def see_offsets_expire(self) -> None:
        for name in ("sleepers", "emptied", "cleaners", "rereaders"):
            self.hands.await_expiry(self.name(name))
        self.hands.await_expiry(self.beside)

    # Commits that are moved and deleted

    def reset_by_the_tool(self) -> None:
        """Back to the start, forward to the end, and back by two: each while the group is empty."""
        hands, group, topic = self.hands, self.name("resetters"), self.goods
        hands.join(group, f"{group}-1", topic, **_CLASSIC)
        hands.commit(group, self.some())
        hands.leave(group, f"{group}-1")
        everywhere = range(self.count)
        for how, offset, finding, moved_to in (
            (["--to-earliest"], 0, "moved back from outside", "the start of the log, as --to-earliest"),
            (["--to-latest"], self.end, "moved forward from outside", "the end of the log, as --to-latest"),
            (["--shift-by", "-2"], self.end - 2, "moved back from outside", None),
        ):
            hands.reset(group, topic, how, dict.fromkeys(everywhere, offset), finding=finding, moved_to=moved_to)
        hands.join(group, f"{group}-2", topic, **_CLASSIC)

    def delete_some_offsets(self) -> None:
        """By the tool and by Admin; what is committed there afterwards is read again, or skipped."""
        hands, group = self.hands, self.name("cleaners")
        offsets = self.some(low=4)
        hands.commit(group, offsets)
        first, second = (self.goods, 0), (self.goods, 1)
        hands.delete_offsets(group, [first], by_tool=True)
        hands.delete_offsets(group, [second], by_tool=False)
        hands.commit(group, {first: offsets[first] - 2}, "read again: its offset had been deleted")
        hands.commit(group, {second: offsets[second] + 1}, "skipped ahead: its offset had been deleted")

    def delete_a_group(self) -> None:
        hands, group = self.hands, self.name("doomed")
        hands.join(group, f"{group}-1", self.goods, **self.rng.choice((_CLASSIC, _KIP_848)))
        hands.commit(group, self.some())
        hands.leave(group, f"{group}-1")
        hands.delete_group(group)

    # Topics

    def delete_a_topic(self) -> None:
        """Of a simple group and of one with a member."""
        hands, topic = self.hands, self.name("fleeting")
        hands.create_topic(topic, 2, 10)
        group = self.name("tourists")
        hands.join(group, f"{group}-1", topic, self.goods, **self.rng.choice((_CLASSIC, _KIP_848)))
        hands.commit(group, {(topic, 0): 3, (topic, 1): 10, (self.goods, 0): 7})
        hands.commit(self.name("passers-by"), {(topic, 0): 4})
        hands.delete_topic(topic)
        hands.await_(lambda: len(hands.assigned(group)[f"{group}-1"]) == self.count, f"{group} keeps {topic}")

    def recreate_a_topic(self) -> None:
        hands, topic, group = self.hands, self.name("again"), self.name("rereaders")
        hands.create_topic(topic, 1, 10)
        hands.commit(group, {(topic, 0): 9})
        hands.delete_topic(topic)
        hands.create_topic(topic, 1, 6)
        hands.commit(group, {(topic, 0): 4}, "the topic was recreated")

    def add_partitions(self) -> None:
        """The member gets them, and commits in one of two."""
        hands, topic, group = self.hands, self.name("growing"), self.name("growers")
        before = self.rng.randrange(1, 4)
        hands.create_topic(topic, before, 12)
        hands.join(group, f"{group}-1", topic, **_KIP_848)
        hands.commit(group, {(topic, number): 12 for number in range(before)})
        hands.add_partitions(topic, before + 2)
        hands.await_(lambda: len(hands.assigned(group)[f"{group}-1"]) == before + 2, f"{group} has not got them")
        hands.produce(topic, {before: 5, before + 1: 8})
        hands.commit(group, {(topic, before): 2})

    def trim_a_log(self) -> None:
        """Messages are gone before they are read."""
        hands, topic, group = self.hands, self.name("trimmed"), self.name("slow-readers")
        hands.create_topic(topic, 1, 30)
        hands.join(group, f"{group}-1", topic, **_KIP_848)
        hands.commit(group, {(topic, 0): 5})
        hands.delete_records(topic, 0, 11)
        [cell] = [cell for cell in self.book.standing() if cell.topic == topic]
        self.book.orphans[cell] = "before the start of the log: messages are gone unread"

    # Members

    def storm(self) -> None:
        """Members come and go, of a classic group and of one of KIP-848."""
        for name, properties in (("storm", _CLASSIC), ("storm-848", _KIP_848)):
            hands, group = self.hands, self.name(name)
            hands.join(group, f"{group}-0", self.goods, **properties)
            hands.commit(group, self.some())
            for number in range(1, self.rng.randrange(3, 5)):
                hands.join(group, f"{group}-{number}", self.goods, **properties)
                if self.rng.random() < 0.5 or number == 2:
                    hands.leave(group, f"{group}-{number - 1}")

    def upgrade_a_group(self) -> None:
        """A member of the new protocol joins a classic group, and its old one leaves."""
        hands, group = self.hands, self.name("upgraded")
        hands.join(group, f"{group}-old", self.goods, **_CLASSIC)
        hands.commit(group, self.some())
        assert hands.type_of(group) == "Classic"
        hands.join(group, f"{group}-new", self.goods, **_KIP_848)
        assert hands.type_of(group) == "Consumer"
        if self.rng.random() < 0.7:
            hands.leave(group, f"{group}-old")

    def share_and_streams(self) -> None:
        hands, group = self.hands, self.name("sharers")
        for number in range(2):
            client = f"{group}-{number}"
            hands.joined(group, client, hands.clients.share_consumer(group, self.goods, client_id=client))
        source, target = self.name("source"), self.name("target")
        hands.create_topic(source, 2, 10)
        hands.create_topic(target, 2, 0)
        topology, application = hands.clients.copying_topology(source, target), self.name("copier")
        hands.clients.streams(application, topology, group_protocol="streams", client_id=f"{application}-0")
        self.book.automatic.add(application)
        wanted = {(application, source, number): 10 for number in range(2)}
        hands.await_(lambda: hands.offsets([application]).items() >= wanted.items(), f"{application} copies nothing")

    # Brokers

    def restart_all_brokers(self) -> None:
        for broker_id in self.rng.sample((1, 2, 3), 3):
            self._restart(broker_id, kill=False)

    def stop_a_broker(self) -> None:
        self._restart(self.rng.choice((1, 2, 3)), kill=True)

    def _restart(self, broker_id: int, *, kill: bool) -> None:
        before = self.hands.look_at_coordinators()
        self.hands.kafka.stop_broker(broker_id, kill=kill)
        led = {number for number, (leader, _) in before.items() if leader == broker_id}
        during = self.hands.look_at_coordinators()
        assert broker_id not in {leader for leader, _ in during.values()}
        assert led <= {number for number in before if before[number][0] != during[number][0]}
        self.hands.kafka.start_broker(broker_id)
        self.hands.await_brokers({1, 2, 3})
        self.hands.look_at_coordinators()

    # A transaction

    def open_a_transaction(self) -> None:
        """One is committed, one aborted, and one left open, which holds back what is in its offsets partition."""
        hands, group = self.hands, self.name("bookers")
        hands.join(group, f"{group}-1", self.goods, **_CLASSIC)
        first = {(self.goods, 0): 3, (self.goods, 1): 5}
        began = now_ms()
        hands.clients.transaction(group, first, "commitTransaction")
        hands.committed(group, first, began)
        hands.clients.transaction(group, {(self.goods, 1): 9}, "abortTransaction")
        number = partition_for(group, 50)
        self.beside = next(name for n in range(9999) if partition_for(name := self.name(f"beside-{n}"), 50) == number)
        hands.commit(self.beside, {(self.queue, 0): 11})
        hands.await_applied()
        opened = hands.cluster.partition_ends([number])[number].high_watermark
        self.book.open_transaction = {"offsets_partition": number, "first_offset": opened, "since_ms": now_ms()}
        self.pending = {(self.goods, 1): 6}
        self.producer = hands.clients.transaction(group, self.pending, None)
        self.book.open_transaction["written_ms"] = now_ms()
        hands.commit(self.beside, {(self.queue, 0): 12})
        hands.await_held_back(number, opened)
        self.book.open_transaction["seen_ms"] = now_ms()

    def end_the_transaction(self) -> None:
        hands, group, told = self.hands, self.name("bookers"), self.book.open_transaction
        is_committed = self.rng.random() < 0.5
        told["ending_ms"] = now_ms()
        (self.producer.commitTransaction if is_committed else self.producer.abortTransaction)()
        self.producer.close()
        if is_committed:
            hands.committed(group, self.pending, told["written_ms"])
        hands.await_held_back(told["offsets_partition"], None)
        told["ended_ms"] = now_ms()

    # What must be fresh

    def last_commits(self) -> None:
        """What decides the status of the groups, against what they committed long before."""
        hands = self.hands
        hands.produce(self.rising, {0: 30})
        hands.await_sampled({self.rising: 80})
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
                "stopped": ("ERR", "STOP", "stopped"),
                "falling-behind": ("WARN", "WARN", "falling behind"),
                "healthy": ("OK", "OK", "ok"),
                "dead": ("ERR", "STOP", "dead"),
            }.items()
        }
        self.book.steady = [self.name("healthy"), self.name("stopped")]
        seconds = (now_ms() - self.marked_ms) // 1000 - 2  # shortly after the first commits
        limits = {"dead": {"window_seconds": 1}, "late": {"max_time_lag_seconds": 5}}
        limits |= {name: {"window_seconds": seconds} for name in ("catching-up", "falling-behind")}
        self.book.thresholds = [{"group_id": self.name(name), **own} for name, own in limits.items()]
