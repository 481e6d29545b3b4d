"""The step in which a log of the offsets topic loses its last records, as in an unclean leader election."""

from __future__ import annotations

from itertools import islice

from offsetstream.coordinator.partitioning import partition_for
from tests.kafka.incident.actions import now_ms
from tests.kafka.incident.book import Cell
from tests.kafka.incident.steps import CLASSIC, KIP_848, Steps
from tests.kafka.partition_seven import cut_a_log

# The script's other groups, by their names in the steps. `beside-N` shares the offsets partition of `bookers`.
_OTHERS = (
    *("sleepers", "emptied", "rewound", "stalled", "catching-up", "late", "stopped", "healthy", "falling-behind"),
    *("dead", "watchers", "resetters", "cleaners", "doomed", "tourists", "passers-by", "rereaders", "growers"),
    *("slow-readers", "storm", "storm-848", "upgraded", "sharers", "copier", "bookers"),
)


class Cut(Steps):
    """One group loses its last commit; another loses its only commit and so disappears."""

    def lose_the_end_of_a_log(self) -> None:
        actions, (survivor, disappearing) = self.actions, self._two_groups_of_a_free_partition()
        number, first = partition_for(survivor, 50), self.random_offsets()
        actions.join(survivor, f"{survivor}-1", self.goods, **self.rng.choice((CLASSIC, KIP_848)))
        actions.commit(survivor, first)
        actions.await_applied()
        actions.await_blocked(number, None)
        cut_at = actions.cluster.partition_ends([number])[number].high_watermark
        actions.commit(survivor, {place: offset + 1 for place, offset in first.items()})
        actions.commit(disappearing, {(self.queue, 0): 21})
        actions.await_applied()
        self._cut(number, cut_at, [*(Cell(survivor, *place) for place in first), Cell(disappearing, self.queue, 0)])
        if self.rng.random() < 0.5:  # otherwise the log has grown again before the job notices the cut
            self._await_another_log(number)
        actions.await_(lambda: disappearing not in actions.group_ids(), f"{disappearing} is still there")
        actions.settle(survivor)
        assert actions.offsets([survivor]) == {Cell(survivor, *place): offset for place, offset in first.items()}
        actions.commit(survivor, {place: offset + 2 for place, offset in first.items()})
        self._await_another_log(number)
        actions.await_coordinators()
        self.book.cut["seen_ms"] = now_ms()

    def _two_groups_of_a_free_partition(self) -> list[str]:
        """Return two groups of one offsets partition that has no other group of the script."""
        taken = {partition_for(self.name(name), 50) for name in _OTHERS}
        number = next(number for number in range(50) if number not in taken)
        names = (self.name(f"forgetful-{count}") for count in range(9999))
        return list(islice((name for name in names if partition_for(name, 50) == number), 2))

    def _cut(self, number: int, offset: int, lost: list[Cell]) -> None:
        """Kill all brokers, remove the records from this offset on from every replica, and restart."""
        actions, kafka = self.actions, self.actions.kafka
        actions.await_coordinators()
        actions.keep_records()
        self.book.cut = {"offsets_partition": number, "first_offset": offset, "began_ms": now_ms()}
        for broker_id in (1, 2, 3):
            kafka.stop_broker(broker_id, kill=True)
        logs = list(kafka.folder.rglob(f"__consumer_offsets-{number}"))
        assert len(logs) == 3
        for log in logs:
            cut_a_log(log, offset)
        kafka.restart()
        actions.await_brokers({1, 2, 3})
        self.book.remove_last_commits(lost)
        actions.keep_cut_log(number)

    def _await_another_log(self, number: int) -> None:
        columns = ("offsets_partition", "log_id", "load_state")
        self.actions.await_job(lambda: (number, 1, "OWNED") in self.actions.runner.rows("offsets_partitions", *columns))
