"""How the job finds the rule by which brokers place groups: from records, and from answers about some groups."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from offsetstream.coordinator.partitioning import partition_for
from offsetstream.errors import UnauthorisedError
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.partitions.placing import Placing
from offsetstream.stream.state import find_homes
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import STATE_TABLES
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.placement import JAVA, RECORDS, read_placement
from offsetstream.tables.schema import load_schema
from offsetstream.tables.transaction import BatchId
from testkit.redpanda import redpanda_partition_for, xxhash64
from testkit.tables import append_rows

LOAD = BatchId(1, -1)
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
GROUPS = [f"group-{number}" for number in range(40)]
Copy = tuple[str, int, int]  # a group, an offsets partition with records of it, and when they were written (seconds)


class World:
    """Tables of a loaded topic with some number of partitions, and the rule that a job finds."""

    def __init__(self, tables: PathStore, partitions: int) -> None:
        self.tables, self.said, self.asked = tables, list[str](), list[str]()
        self.answers: Mapping[str, int] | Exception = {}
        self.leads(partitions)

    def leads(self, partitions: int, brokers: int = 1) -> None:
        """Start a job over some partitions. Each is led by the next one of the brokers."""
        self.partitions = partitions
        self.book = PartitionBook(self.tables, range(partitions))
        for number in range(partitions):
            self.book._rows.set(number, coordinator_id=number % brokers)
        self.placing = Placing(self.tables, self.book, self._answer, self.said.append)

    def _answer(self, group_ids: Collection[str]) -> Mapping[str, int]:
        self.asked += group_ids
        if isinstance(self.answers, Exception):
            raise self.answers
        return {group_id: self.answers[group_id] for group_id in group_ids if group_id in self.answers}

    def has(self, copies: Iterable[Copy]) -> None:
        """Write rows of groups with these copies to every state table, placed as an engine does now."""
        for name in STATE_TABLES:
            columns = load_schema(name).column_names
            rows = [
                {
                    "group_id": group,
                    "offsets_partition": at,
                    "record_timestamp": NOON + timedelta(seconds=second),
                    "in_coordinator_partition": self.book.placed_by is None
                    or at == partition_for(group, self.partitions),
                }
                for group, at, second in copies
            ]
            append_rows(Path(self.tables.root), name, [{k: v for k, v in row.items() if k in columns} for row in rows])

    def loads(self) -> None:
        """Load all partitions."""
        self.placing.begin()
        self.placing.place(LOAD)
        self.book.start_load(dict.fromkeys(range(self.partitions), 300))
        for number in range(self.partitions):
            self.book.finish_load(number, 1, 1, 1)
        self.book.write(LOAD)
        self.finds()

    def finds(self) -> bool:
        """Find the rule and place the rows. Return whether rows were placed again."""
        self.placing.begin()
        self.placing.find()
        is_other = self.book.must_place_again
        self.placing.place(LOAD)
        return is_other

    @property
    def rule(self) -> str | None:
        """The rule in the tables."""
        (rule,) = {row["placement_rule"] for row in Lookup(self.tables).rows("offsets_partitions", ["placement_rule"])}
        return rule if rule is None else str(rule)

    @property
    def homes(self) -> dict[str, set[int]]:
        """The home partitions of each group, equal in all state tables."""
        found = [self._homes(name) for name in STATE_TABLES]
        assert all(each == found[0] for each in found)
        placement = read_placement(Lookup(self.tables))
        for group, of_group in found[0].items():
            assert {placement.of(group)} == of_group
        return found[0]

    def _homes(self, name: str) -> dict[str, set[int]]:
        rows = Lookup(self.tables).rows(name, ["group_id", "offsets_partition"], {"in_coordinator_partition": [True]})
        found: dict[str, set[int]] = {}
        for row in rows:
            found.setdefault(row["group_id"], set()).add(row["offsets_partition"])
        return found


def at(partition_of: Mapping[str, int], second: int = 0) -> list[Copy]:
    return [(group, partition, second + number) for number, (group, partition) in enumerate(partition_of.items())]


def by_java(groups: Iterable[str], partitions: int) -> dict[str, int]:
    return {group: partition_for(group, partitions) for group in groups}


def by_redpanda(groups: Iterable[str], partitions: int) -> dict[str, int]:
    return {group: redpanda_partition_for(group, partitions) for group in groups}


def sets(partition_of: Mapping[str, int]) -> dict[str, set[int]]:
    return {group: {partition} for group, partition in partition_of.items()}


def test_our_own_redpanda_hashes_as_xxhash_does() -> None:
    assert [xxhash64(text) for text in (b"", b"a", b"abc", b"Nobody inspects the spammish repetition")] == [
        0xEF46DB3751D8E999,
        0xD24EC4F1A98C6E5B,
        0x44BC2CF5AD770999,
        0xFBCEA83C8A378BF1,
    ]


def test_a_normal_log_is_placed_by_kafkas_hash_without_a_log_line(tables: PathStore) -> None:
    world = World(tables, 16)
    world.has(at(by_java(GROUPS, 16)))
    world.loads()
    assert (world.rule, world.said, world.homes) == (JAVA, [], sets(by_java(GROUPS, 16)))
    assert not world.placing.is_open


def test_a_log_of_redpanda_is_placed_by_its_records_with_one_log_line(tables: PathStore) -> None:
    world = World(tables, 16)
    world.has(at(by_redpanda(GROUPS, 16)))
    world.loads()
    assert (world.rule, world.homes) == (RECORDS, sets(by_redpanda(GROUPS, 16)))
    assert world.said[0].startswith("The brokers do not place groups by Kafka's hash of their ids: of the 32 groups")
    said = len(world.said)
    world.has(at(by_redpanda(["later", "latest"], 16), 100))
    assert not world.finds()
    world.leads(16)  # the next job
    assert not world.finds()
    assert (world.rule, len(world.said)) == (RECORDS, said)


def test_three_groups_do_not_show_the_rule(tables: PathStore) -> None:
    world = World(tables, 16)
    some = [group for group in GROUPS if partition_for(group, 16) != redpanda_partition_for(group, 16)][:3]
    world.has(at(by_redpanda(some, 16)))
    world.loads()
    assert (world.rule, world.said, world.homes) == (None, [], {})
    world.has(at(by_redpanda(GROUPS, 16)))  # it looks again when there are more
    assert world.finds()
    assert world.rule == RECORDS


def test_a_few_strays_change_nothing(tables: PathStore) -> None:
    world = World(tables, 16)
    strays = {group: (partition_for(group, 16) + 1) % 16 for group in GROUPS[-4:]}
    world.has(at(by_java(GROUPS, 16) | strays))
    world.loads()
    assert (world.rule, world.said) == (None, [])


def test_a_grown_topic_before_and_after_the_restart(tables: PathStore) -> None:
    world = World(tables, 4)
    world.has(at(by_java(GROUPS, 4)))
    world.loads()
    world.leads(8)
    assert world.finds()
    assert world.said[0].startswith(
        "The topic has 8 partitions, not 4. Brokers use the old number until they are restarted"
    )
    world.has(at(by_java(GROUPS, 4), 100))
    find_homes(tables, LOAD)
    assert not world.finds()
    assert (world.rule, world.homes) == (RECORDS, sets(by_java(GROUPS, 4)))

    # Some commit after the restart; the others' coordinators have nothing of them yet.
    back, silent = GROUPS[:20], GROUPS[20:]
    world.has(at(by_java(back, 8), 300))
    find_homes(tables, LOAD)
    assert world.homes == sets(by_java(back, 8) | by_java(silent, 4))
    assert world.finds()
    assert world.rule == JAVA
    at_home = {group: {home} for group, home in by_java(GROUPS, 8).items() if group in back or home < 4}
    assert world.homes == at_home
    assert world.said[-2] == "The brokers now place groups by Kafka's hash of their ids and 8 partitions"


def test_while_brokers_are_restarted_one_after_the_other_the_records_decide(tables: PathStore) -> None:
    world = World(tables, 4)
    world.has(at(by_java(GROUPS, 4)))
    world.loads()
    world.leads(8)
    world.finds()
    restarted, others = GROUPS[:20], GROUPS[20:]
    world.has([*at(by_java(restarted, 8), 300), *at(by_java(others, 4), 300)])
    find_homes(tables, LOAD)
    assert not world.finds()
    assert (world.rule, world.homes) == (RECORDS, sets(by_java(restarted, 8) | by_java(others, 4)))


def test_a_topic_that_had_grown_before_the_first_load(tables: PathStore) -> None:
    world = World(tables, 8)
    world.has(at(by_java(GROUPS, 4)))
    world.loads()
    assert (world.rule, world.homes) == (RECORDS, sets(by_java(GROUPS, 4)))


def test_a_topic_that_had_grown_and_was_restarted_before_the_first_load(tables: PathStore) -> None:
    world = World(tables, 8)
    world.has([*at(by_java(GROUPS, 4)), *at(by_java(GROUPS[:3], 8), 7200)])
    world.loads()
    assert (world.rule, world.said) == (JAVA, [])


def test_the_rule_is_found_again_for_a_recreated_topic(tables: PathStore) -> None:
    world = World(tables, 4)
    world.has(at(by_redpanda(GROUPS, 4)))
    world.loads()
    world.leads(8)
    for number in range(4):
        world.book.start_log(number)
    world.placing.begin()
    assert world.book.placement_rule is None


@pytest.mark.parametrize("by_hash", [True, False])
def test_answers_of_brokers_decide_if_groups_are_too_few(tables: PathStore, by_hash: bool) -> None:
    """Different brokers lead the two possible partitions. So the coordinator of a group shows the rule."""
    world = World(tables, 15)
    world.leads(15, brokers=3)
    homes, records = by_java(GROUPS, 15), by_redpanda(GROUPS, 15)
    some = [group for group in GROUPS if homes[group] % 3 != records[group] % 3][:3]
    world.has(at({group: records[group] for group in some}))
    world.answers = {group: (homes if by_hash else records)[group] % 3 for group in some}
    world.loads()
    assert world.rule == (JAVA if by_hash else RECORDS)
    assert sorted(world.asked) == sorted(some)


def test_a_single_broker_is_not_queried_and_a_refusal_is_ignored(tables: PathStore) -> None:
    world = World(tables, 15)
    world.has(at(by_redpanda(GROUPS, 15)))
    world.loads()
    assert world.asked == []
    world.leads(15, brokers=3)
    world.answers = UnauthorisedError("no right")
    assert not world.finds()
    assert world.asked != []
    assert world.rule == RECORDS


def test_the_only_remaining_copy_is_the_groups_home(tables: PathStore) -> None:
    world = World(tables, 16)
    world.has(at(by_redpanda(GROUPS, 16)))
    world.loads()
    home = redpanda_partition_for("group-1", 16)
    other = (home + 1) % 16
    world.has([("group-1", other, 500)])
    find_homes(tables, LOAD)
    assert world.homes["group-1"] == {other}
    for name in STATE_TABLES:
        tables.open(name).replace(f"offsets_partition = {other}", [])
    find_homes(tables, LOAD)
    assert world.homes["group-1"] == {home}
