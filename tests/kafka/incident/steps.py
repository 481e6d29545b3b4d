"""The independent steps of the incident, which may run in any order."""

from __future__ import annotations

from random import Random

from offsetstream.coordinator.partitioning import partition_for
from tests.kafka.incident.actions import Actions, now_ms
from tests.kafka.incident.book import Place

_NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")
_RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
CLASSIC = {"partition_assignment_strategy": _RANGE}
KIP_848 = {"group_protocol": "consumer"}


class Steps:
    """The steps, with numbers and names from the seed."""

    def __init__(self, actions: Actions, seed: int) -> None:
        self.rng, self.actions, self.book = Random(seed), actions, actions.book
        self.word = self.rng.choice(_NAMES)
        self.count = self.rng.randrange(3, 6)  # partitions of the permanent topic
        self.end = self.rng.randrange(20, 60)  # records in each of them
        self.goods, self.queue, self.rising = map(self.name, ("goods", "queue", "rising"))

    def name(self, role: str) -> str:
        return f"{self.word}-{role}"

    def random_offsets(self, low: int = 0) -> dict[Place, int]:
        """Return random offsets in all partitions of the permanent topic, neither its start nor its end."""
        return {(self.goods, n): self.rng.randrange(max(1, low), self.end - 2) for n in range(self.count)}

    # Moved and deleted offsets

    def reset_by_the_tool(self) -> None:
        """Reset an empty group to the start, to the end, and back by two."""
        actions, group, topic = self.actions, self.name("resetters"), self.goods
        actions.join(group, f"{group}-1", topic, **CLASSIC)
        actions.commit(group, self.random_offsets())
        actions.leave(group, f"{group}-1")
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
            actions.reset(group, topic, how, dict.fromkeys(everywhere, offset), finding=finding, moved_to=moved_to)
        actions.join(group, f"{group}-2", topic, **CLASSIC)

    def delete_some_offsets(self) -> None:
        """Delete offsets by the tool and by Admin; then commit one lower (read again) and one higher (skipped)."""
        actions, group = self.actions, self.name("cleaners")
        offsets = self.random_offsets(low=4)
        actions.commit(group, offsets)
        first, second = (self.goods, 0), (self.goods, 1)
        actions.delete_offsets(group, [first], by_tool=True)
        actions.delete_offsets(group, [second], by_tool=False)
        actions.commit(group, {first: offsets[first] - 2}, "read again: its offset had been deleted")
        actions.commit(group, {second: offsets[second] + 1}, "skipped ahead: its offset had been deleted")

    def delete_a_group(self) -> None:
        actions, group = self.actions, self.name("doomed")
        actions.join(group, f"{group}-1", self.goods, **self.rng.choice((CLASSIC, KIP_848)))
        actions.commit(group, self.random_offsets())
        actions.leave(group, f"{group}-1")
        actions.delete_group(group)

    # Topics

    def delete_a_topic(self) -> None:
        """Delete a topic that a simple group and a group with a member have offsets in."""
        actions, topic = self.actions, self.name("fleeting")
        actions.create_topic(topic, 2, 10)
        group = self.name("tourists")
        actions.join(group, f"{group}-1", topic, self.goods, **self.rng.choice((CLASSIC, KIP_848)))
        actions.commit(group, {(topic, 0): 3, (topic, 1): 10, (self.goods, 0): 7})
        actions.commit(self.name("passers-by"), {(topic, 0): 4})
        actions.delete_topic(topic)
        actions.await_(lambda: len(actions.assigned(group)[f"{group}-1"]) == self.count, f"{group} keeps {topic}")

    def recreate_a_topic(self) -> None:
        actions, topic, group = self.actions, self.name("again"), self.name("rereaders")
        actions.create_topic(topic, 1, 10)
        actions.commit(group, {(topic, 0): 9})
        actions.delete_topic(topic)
        actions.create_topic(topic, 1, 6)
        actions.commit(group, {(topic, 0): 4}, "the topic was recreated")

    def add_partitions(self) -> None:
        """Add two partitions; the member gets both and commits in one."""
        actions, topic, group = self.actions, self.name("growing"), self.name("growers")
        before = self.rng.randrange(1, 4)
        actions.create_topic(topic, before, 12)
        actions.join(group, f"{group}-1", topic, **KIP_848)
        actions.commit(group, {(topic, number): 12 for number in range(before)})
        actions.add_partitions(topic, before + 2)
        actions.await_(lambda: len(actions.assigned(group)[f"{group}-1"]) == before + 2, f"{group} has not got them")
        actions.produce(topic, {before: 5, before + 1: 8})
        actions.await_sampled([(topic, before), (topic, before + 1)])
        actions.commit(group, {(topic, before): 2})

    def trim_a_log(self) -> None:
        """Delete records before they are read."""
        actions, topic, group = self.actions, self.name("trimmed"), self.name("slow-readers")
        actions.create_topic(topic, 1, 30)
        actions.join(group, f"{group}-1", topic, **KIP_848)
        actions.commit(group, {(topic, 0): 5})
        actions.delete_records(topic, 0, 11)
        [cell] = [cell for cell in self.book.current_offsets() if cell.topic == topic]
        self.book.orphans[cell] = "before the start of the log: messages were deleted unread"

    # Members

    def storm(self) -> None:
        """Let members join and leave a classic group and a KIP-848 group."""
        for name, properties in (("storm", CLASSIC), ("storm-848", KIP_848)):
            actions, group = self.actions, self.name(name)
            actions.join(group, f"{group}-0", self.goods, **properties)
            actions.commit(group, self.random_offsets())
            for number in range(1, self.rng.randrange(3, 5)):
                actions.join(group, f"{group}-{number}", self.goods, **properties)
                if self.rng.random() < 0.5 or number == 2:
                    actions.leave(group, f"{group}-{number - 1}")

    def upgrade_a_group(self) -> None:
        """Let a member of the new protocol join a classic group, and its old member leave."""
        actions, group = self.actions, self.name("upgraded")
        actions.join(group, f"{group}-old", self.goods, **CLASSIC)
        actions.commit(group, self.random_offsets())
        assert actions.group_type(group) == "Classic"
        actions.join(group, f"{group}-new", self.goods, **KIP_848)
        assert actions.group_type(group) == "Consumer"
        if self.rng.random() < 0.7:
            actions.leave(group, f"{group}-old")

    def share_and_streams(self) -> None:
        actions, group = self.actions, self.name("sharers")
        for number in range(2):
            client = f"{group}-{number}"
            actions.add_member(group, client, actions.clients.share_consumer(group, self.goods, client_id=client))
        source, target = self.name("source"), self.name("target")
        actions.create_topic(source, 2, 10)
        actions.create_topic(target, 2, 0)
        topology, application = actions.clients.copying_topology(source, target), self.name("copier")
        actions.clients.streams(application, topology, group_protocol="streams", client_id=f"{application}-0")
        self.book.automatic.add(application)
        expected = {(application, source, number): 10 for number in range(2)}
        actions.await_(
            lambda: actions.offsets([application]).items() >= expected.items(), f"{application} copies nothing"
        )

    # Brokers

    def restart_all_brokers(self) -> None:
        for broker_id in self.rng.sample((1, 2, 3), 3):
            self._restart(broker_id, kill=False)

    def stop_a_broker(self) -> None:
        self._restart(self.rng.choice((1, 2, 3)), kill=True)

    def _restart(self, broker_id: int, *, kill: bool) -> None:
        before = self.actions.await_coordinators()
        self.actions.kafka.stop_broker(broker_id, kill=kill)
        led = {number for number, (leader, _) in before.items() if leader == broker_id}
        during = self.actions.await_coordinators()
        assert broker_id not in {leader for leader, _ in during.values()}
        assert led <= {number for number in before if before[number][0] != during[number][0]}
        self.actions.kafka.start_broker(broker_id)
        self.actions.await_brokers({1, 2, 3})
        self.actions.await_coordinators()

    def compact(self) -> None:
        """Let the cleaner remove replaced commits, after they were read."""
        actions, group = self.actions, self.name("resetters")
        number = partition_for(group, 50)
        actions.keep_records()
        actions.configure_offsets_topic({"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"})
        while not actions.lost_to_compaction(number):
            actions.commit(group, {(self.goods, 0): self.end - 2})  # closes the previous segment
            actions.keep_records()
        actions.configure_offsets_topic({"min.compaction.lag.ms": str(86_400_000), "segment.ms": "604800000"})

    # A transaction

    def open_a_transaction(self) -> None:
        """Commit one transaction, abort one, and leave one open, which blocks its offsets partition."""
        actions, group = self.actions, self.name("bookers")
        actions.join(group, f"{group}-1", self.goods, **CLASSIC)
        first = {(self.goods, 0): 3, (self.goods, 1): 5}
        started_ms = now_ms()
        actions.clients.transaction(group, first, "commitTransaction")
        actions.await_committed(group, first, started_ms)
        actions.clients.transaction(group, {(self.goods, 1): 9}, "abortTransaction")
        number = partition_for(group, 50)
        self.blocked_group = next(
            name for n in range(9999) if partition_for(name := self.name(f"beside-{n}"), 50) == number
        )
        actions.commit(self.blocked_group, {(self.queue, 0): 11})
        actions.await_applied()
        opened = actions.cluster.partition_ends([number])[number].high_watermark
        self.book.open_transaction = {"offsets_partition": number, "first_offset": opened, "since_ms": now_ms()}
        self.pending = {(self.goods, 1): 6}
        self.producer = actions.clients.transaction(group, self.pending, None)
        actions.commit(self.blocked_group, {(self.queue, 0): 12})
        actions.await_blocked(number, opened)
        self.book.open_transaction["seen_ms"] = now_ms()

    def end_the_transaction(self) -> None:
        actions, group, transaction = self.actions, self.name("bookers"), self.book.open_transaction
        is_committed = self.rng.random() < 0.5
        transaction["ending_ms"] = now_ms()
        (self.producer.commitTransaction if is_committed else self.producer.abortTransaction)()
        self.producer.close()
        if is_committed:
            actions.await_committed(group, self.pending, transaction["since_ms"])
        actions.await_blocked(transaction["offsets_partition"], None)
        transaction["ended_ms"] = now_ms()
