"""The steps of the incident that may come in any order, each whole in itself."""

from __future__ import annotations

from random import Random

from offsetstream.coordinator.partitioning import partition_for
from tests.kafka.incident.book import Place
from tests.kafka.incident.hands import Hands, now_ms

_NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")
_RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
CLASSIC = {"partition_assignment_strategy": _RANGE}
KIP_848 = {"group_protocol": "consumer"}


class Steps:
    """What they share: the seed's numbers and names."""

    def __init__(self, hands: Hands, seed: int) -> None:
        self.rng, self.hands, self.book = Random(seed), hands, hands.book
        self.word = self.rng.choice(_NAMES)
        self.count = self.rng.randrange(3, 6)  # partitions of the topic that stays as it is
        self.end = self.rng.randrange(20, 60)  # records in each of them
        self.goods, self.queue, self.rising = map(self.name, ("goods", "queue", "rising"))

    def name(self, of: str) -> str:
        return f"{self.word}-{of}"

    def some(self, low: int = 0) -> dict[Place, int]:
        """Offsets in all partitions of the topic that stays, neither its start nor its end."""
        return {(self.goods, n): self.rng.randrange(max(1, low), self.end - 2) for n in range(self.count)}

    # Commits that are moved and deleted

    def reset_by_the_tool(self) -> None:
        """Back to the start, forward to the end, and back by two: each while the group is empty."""
        hands, group, topic = self.hands, self.name("resetters"), self.goods
        hands.join(group, f"{group}-1", topic, **CLASSIC)
        hands.commit(group, self.some())
        hands.leave(group, f"{group}-1")
        everywhere = range(self.count)
        for how, offset, finding, moved_to in (
            (
                ["--to-earliest"],
                0,
                "moved back while the group had no members",
                "the start of the log (like --to-earliest)",
            ),
            (
                ["--to-latest"],
                self.end,
                "moved forward while the group had no members",
                "the end of the log (like --to-latest)",
            ),
            (["--shift-by", "-2"], self.end - 2, "moved back while the group had no members", None),
        ):
            hands.reset(group, topic, how, dict.fromkeys(everywhere, offset), finding=finding, moved_to=moved_to)
        hands.join(group, f"{group}-2", topic, **CLASSIC)

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
        hands.join(group, f"{group}-1", self.goods, **self.rng.choice((CLASSIC, KIP_848)))
        hands.commit(group, self.some())
        hands.leave(group, f"{group}-1")
        hands.delete_group(group)

    # Topics

    def delete_a_topic(self) -> None:
        """Of a simple group and of one with a member."""
        hands, topic = self.hands, self.name("fleeting")
        hands.create_topic(topic, 2, 10)
        group = self.name("tourists")
        hands.join(group, f"{group}-1", topic, self.goods, **self.rng.choice((CLASSIC, KIP_848)))
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
        hands.join(group, f"{group}-1", topic, **KIP_848)
        hands.commit(group, {(topic, number): 12 for number in range(before)})
        hands.add_partitions(topic, before + 2)
        hands.await_(lambda: len(hands.assigned(group)[f"{group}-1"]) == before + 2, f"{group} has not got them")
        hands.produce(topic, {before: 5, before + 1: 8})
        hands.await_sampled([(topic, before), (topic, before + 1)])
        hands.commit(group, {(topic, before): 2})

    def trim_a_log(self) -> None:
        """Messages are gone before they are read."""
        hands, topic, group = self.hands, self.name("trimmed"), self.name("slow-readers")
        hands.create_topic(topic, 1, 30)
        hands.join(group, f"{group}-1", topic, **KIP_848)
        hands.commit(group, {(topic, 0): 5})
        hands.delete_records(topic, 0, 11)
        [cell] = [cell for cell in self.book.standing() if cell.topic == topic]
        self.book.orphans[cell] = "before the start of the log: messages were deleted unread"

    # Members

    def storm(self) -> None:
        """Members come and go, of a classic group and of one of KIP-848."""
        for name, properties in (("storm", CLASSIC), ("storm-848", KIP_848)):
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
        hands.join(group, f"{group}-old", self.goods, **CLASSIC)
        hands.commit(group, self.some())
        assert hands.type_of(group) == "Classic"
        hands.join(group, f"{group}-new", self.goods, **KIP_848)
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

    def compact(self) -> None:
        """The cleaner takes commits that later ones replaced; what it takes was read before."""
        hands, group = self.hands, self.name("resetters")
        number = partition_for(group, 50)
        hands.keep_records()
        hands.configure_offsets_topic({"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"})
        while not hands.lost_to_compaction(number):
            hands.commit(group, {(self.goods, 0): self.end - 2})  # the segment before it is closed then
            hands.keep_records()
        hands.configure_offsets_topic({"min.compaction.lag.ms": str(86_400_000), "segment.ms": "604800000"})

    # A transaction

    def open_a_transaction(self) -> None:
        """One is committed, one aborted, and one left open, which holds back what is in its offsets partition."""
        hands, group = self.hands, self.name("bookers")
        hands.join(group, f"{group}-1", self.goods, **CLASSIC)
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
        hands.commit(self.beside, {(self.queue, 0): 12})
        hands.await_blocked(number, opened)
        self.book.open_transaction["seen_ms"] = now_ms()

    def end_the_transaction(self) -> None:
        hands, group, told = self.hands, self.name("bookers"), self.book.open_transaction
        is_committed = self.rng.random() < 0.5
        told["ending_ms"] = now_ms()
        (self.producer.commitTransaction if is_committed else self.producer.abortTransaction)()
        self.producer.close()
        if is_committed:
            hands.committed(group, self.pending, told["since_ms"])
        hands.await_blocked(told["offsets_partition"], None)
        told["ended_ms"] = now_ms()
