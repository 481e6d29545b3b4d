"""The step in which a log of the offsets topic loses its last records, as by an unclean election."""

from __future__ import annotations

from itertools import islice

from offsetstream.coordinator.partitioning import partition_for
from tests.kafka.incident.book import Cell
from tests.kafka.incident.hands import now_ms
from tests.kafka.incident.steps import CLASSIC, KIP_848, Steps
from tests.kafka.partition_seven import cut_a_log

# The script's other groups, as its steps name them; `beside` is where `bookers` are.
_OTHERS = (
    *("sleepers", "emptied", "rewound", "stalled", "catching-up", "late", "stopped", "healthy", "falling-behind"),
    *("dead", "watchers", "resetters", "cleaners", "doomed", "tourists", "passers-by", "rereaders", "growers"),
    *("slow-readers", "storm", "storm-848", "upgraded", "sharers", "copier", "bookers"),
)


class Cut(Steps):
    """One group loses its last commit, another one its only one, and so itself."""

    def lose_the_end_of_a_log(self) -> None:
        hands, (stays, gone) = self.hands, self._alone_together()
        number, first = partition_for(stays, 50), self.some()
        hands.join(stays, f"{stays}-1", self.goods, **self.rng.choice((CLASSIC, KIP_848)))
        hands.commit(stays, first)
        hands.await_applied()
        hands.await_blocked(number, None)
        cut_at = hands.cluster.partition_ends([number])[number].high_watermark
        hands.commit(stays, {place: offset + 1 for place, offset in first.items()})
        hands.commit(gone, {(self.queue, 0): 21})
        hands.await_applied()
        self._cut(number, cut_at, [*(Cell(stays, *place) for place in first), Cell(gone, self.queue, 0)])
        if self.rng.random() < 0.5:  # else the log has grown again when the job sees that it was cut
            self._await_another_log(number)
        hands.await_(lambda: gone not in hands.listed(), f"{gone} is still there")
        hands.settle(stays)
        assert hands.offsets([stays]) == {Cell(stays, *place): offset for place, offset in first.items()}
        hands.commit(stays, {place: offset + 2 for place, offset in first.items()})
        self._await_another_log(number)
        hands.look_at_coordinators()
        self.book.cut["seen_ms"] = now_ms()

    def _alone_together(self) -> list[str]:
        """Two groups of one offsets partition, in which no other group of the script is."""
        taken = {partition_for(self.name(of), 50) for of in _OTHERS}
        number = next(number for number in range(50) if number not in taken)
        names = (self.name(f"forgetful-{count}") for count in range(9999))
        return list(islice((name for name in names if partition_for(name, 50) == number), 2))

    def _cut(self, number: int, offset: int, lost: list[Cell]) -> None:
        """All brokers die, and none of them has what is at the offset and behind it when they are back."""
        hands, kafka = self.hands, self.hands.kafka
        hands.look_at_coordinators()
        hands.keep_records()
        self.book.cut = {"offsets_partition": number, "first_offset": offset, "began_ms": now_ms()}
        for broker_id in (1, 2, 3):
            kafka.stop_broker(broker_id, kill=True)
        logs = list(kafka.folder.rglob(f"__consumer_offsets-{number}"))
        assert len(logs) == 3
        for log in logs:
            cut_a_log(log, offset)
        kafka.restart()
        hands.await_brokers({1, 2, 3})
        self.book.lose(lost)
        hands.start_log(number)

    def _await_another_log(self, number: int) -> None:
        columns = ("offsets_partition", "log_id", "load_state")
        self.hands.await_job(lambda: (number, 1, "OWNED") in self.hands.runner.rows("offsets_partitions", *columns))
