"""Generates from a seed what happens in a made-up cluster, as rows of the job's tables, for tests of views."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from testkit.sampled_logs import MINUTE, SECOND, START_MS, SampledLogs, Topic, instant

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Place = tuple[str, int]
RETENTION_MS = 10 * MINUTE
_ASSIGNMENT_KEY = ("member_id", "kind", "subtopology_id", "topic_id", "topic", "partition")
_HABITS = ("healthy", "slow", "stopped", "stalled", "rewound", "emptied", "deleted", "idle")


@dataclass
class _Log:
    """An offsets partition: the offset of its next record, its log id, and the log's start."""

    number: int
    log_id: int = 0
    next_offset: int = 0
    began_ms: int = START_MS - MINUTE


@dataclass
class _Group:
    """What the coordinator knows of a group."""

    group_id: str
    kind: str
    habit: str
    log: _Log
    topics: list[Topic]
    epoch: int = 0
    state: str = "Empty"
    members: list[str] = field(default_factory=list)
    offsets: dict[Place, Row] = field(default_factory=dict)
    group: Row | None = None
    member_rows: dict[Any, Row] = field(default_factory=dict)
    assignments: dict[Any, Row] = field(default_factory=dict)
    joined: int = 0
    place: Row = field(default_factory=dict)
    changes_protocol: bool = False
    must_rebalance: bool = False


class GroupWorld:
    """Groups of all types with different habits, over sampled logs."""

    def __init__(
        self,
        seed: int,
        groups: int = 12,
        minutes: int = 40,
        until_minute: float | None = None,
        changing: int = 0,
        *,
        abandons: bool = False,
    ) -> None:
        """`changing`: the number of further groups that go from the classic protocol to KIP-848 and back.

        `abandons`: the members of slow groups give up one of their topics.
        """
        self._abandons = abandons
        self._rng = Random(seed)
        self._duration_ms = minutes * MINUTE
        self._logs_made: dict[int, _Log] = {}
        self.logs = SampledLogs(self._rng, self._duration_ms)
        self.rows: Rows = defaultdict(list)
        self.now_ms = START_MS + self._duration_ms
        self._groups = [self._new_group(number) for number in range(groups)]
        self._groups += [self._changing_group(number) for number in range(groups, groups + changing)]
        planned = sorted(self._plan(), key=lambda each: each[0])
        if until_minute is not None:  # the cluster at that time
            self.now_ms = START_MS + round(until_minute * MINUTE)
        for at_ms, act in planned:
            if at_ms < self.now_ms:
                act(at_ms)
        self._write_tables()

    def _new_group(self, number: int) -> _Group:
        kind = self._rng.choice(["Classic", "Classic", "Consumer", "Consumer", "Share", "Simple"])
        topics = self._rng.sample(self.logs.topics, self._rng.randint(1, 3))
        # The second group shares an offsets partition with the first.
        log = self._logs_made.setdefault(max(number, 1), _Log(max(number, 1)))
        return _Group(f"group-{number}", kind, _HABITS[number % len(_HABITS)], log, topics)

    def _changing_group(self, number: int) -> _Group:
        log = self._logs_made.setdefault(number, _Log(number))
        topics = self._rng.sample(self.logs.topics[:3], 2)
        return _Group(f"group-{number}", "Classic", "healthy", log, topics, changes_protocol=True)

    def _plan(self) -> Iterator[tuple[int, Callable[[int], None]]]:
        for group in self._groups:
            start = START_MS + self._rng.randrange(MINUTE)
            if group.changes_protocol:
                for at_ms in range(start, self.now_ms - MINUTE, 30 * SECOND):
                    yield at_ms, partial(self._change_protocol, group)
                    yield at_ms + self._rng.choice([3, 200, 20 * SECOND]), partial(self._end_rebalance, group)
            elif group.kind != "Simple":
                for _ in range(self._rng.randint(1, 6)):
                    yield start + self._rng.randrange(self._duration_ms - 2 * MINUTE), self._rebalancing(group)
                yield start, self._rebalancing(group)
            if group.kind != "Share":
                every = self._rng.choice([5, 5, 10, 45]) * SECOND
                for at_ms in range(start + SECOND, self.now_ms, every):
                    yield at_ms + self._rng.randrange(SECOND), self._committing(group)
            if self._rng.random() < 0.3:
                yield (
                    start + self._rng.randrange(self._duration_ms // 2, self._duration_ms - 2 * MINUTE),
                    self._forgetting(group),
                )
            if group.habit == "deleted":
                yield start + self._duration_ms // 2, self._deleting(group)
            if self._abandons and group.habit == "slow" and group.kind in ("Classic", "Consumer"):
                yield start + self._duration_ms * 3 // 5, self._abandoning(group)
        for topic in self.logs.topics:
            if topic.deleted_ms is not None:
                yield topic.deleted_ms + 40, self._losing(topic)
        recreated = self._groups[3].log
        yield START_MS + self._duration_ms // 3, lambda at_ms: self._new_log(recreated, at_ms)

    # Events.

    def _rebalancing(self, group: _Group) -> Callable[[int], None]:
        return lambda at_ms: self._rebalance(group, at_ms)

    def _committing(self, group: _Group) -> Callable[[int], None]:
        return lambda at_ms: self._commit(group, at_ms)

    def _forgetting(self, group: _Group) -> Callable[[int], None]:
        def forget(at_ms: int) -> None:
            for place in self._rng.sample(sorted(group.offsets), min(1, len(group.offsets))):
                self._tombstone(group, place, at_ms)

        return forget

    def _deleting(self, group: _Group) -> Callable[[int], None]:
        def delete(at_ms: int) -> None:
            if group.group is not None and group.group["member_count"]:
                self._rebalance(group, at_ms - 5, members=[])
            for place in sorted(group.offsets):
                self._tombstone(group, place, at_ms)
            self._write_group(group, at_ms, None, {}, {})

        return delete

    def _abandoning(self, group: _Group) -> Callable[[int], None]:
        def abandon(at_ms: int) -> None:
            group.topics = group.topics[:-1] or group.topics
            self._rebalance(group, at_ms)

        return abandon

    def _losing(self, topic: Topic) -> Callable[[int], None]:
        def lose(at_ms: int) -> None:
            for group in self._groups:
                for place in sorted(place for place in group.offsets if place[0] == topic.name):
                    if self._rng.random() < 0.7:  # a classic coordinator keeps them
                        self._tombstone(group, place, at_ms)

        return lose

    def _new_log(self, log: _Log, at_ms: int) -> None:
        log.log_id, log.next_offset, log.began_ms = log.log_id + 1, 0, at_ms

    def _commit(self, group: _Group, at_ms: int) -> None:
        done = (at_ms - START_MS) / self._duration_ms
        if (group.habit in ("deleted", "emptied") and done > 0.5) or (group.habit == "stopped" and done > 0.8):
            return
        if group.habit == "idle" and 0.2 < done < 0.95:
            return
        timestamp_ms = at_ms + self._rng.choice([0, 0, 1, 3])
        for topic in group.topics:
            for number in range(topic.partitions):
                if topic.is_there(at_ms) and self._rng.random() < 0.9:
                    self._commit_one(group, topic, number, at_ms, timestamp_ms)

    def _commit_one(self, group: _Group, topic: Topic, number: int, at_ms: int, timestamp_ms: int) -> None:
        end = topic.end(number, at_ms)
        before = group.offsets.get((topic.name, number))
        offset = 0 if before is None else before["committed_offset"]
        done = (at_ms - START_MS) / self._duration_ms
        if group.habit == "slow":
            offset += int((end - offset) * self._rng.choice([0, 0.01, 0.1]))
        elif group.habit == "stalled" and done > 0.7:
            pass
        elif group.habit == "rewound" and self._rng.random() < 0.01:
            offset = topic.log_start(number, at_ms)
        elif group.habit == "rewound" and done > 0.9:
            offset += int((end - offset) * 0.01)
        else:
            offset = end - self._rng.choice([0, 0, 0, 1, 7])
        self._append_commit(group, (topic.name, number), max(offset, 0), at_ms, timestamp_ms, topic.topic_id)

    def _append_commit(
        self, group: _Group, place: Place, offset: int, at_ms: int, timestamp_ms: int, topic_id: str | None
    ) -> None:
        expire_ms = timestamp_ms + 5 * MINUTE if group.kind == "Simple" and place[1] == 1 else None
        commit_ms = at_ms - self._rng.choice([0, 0, 2])
        row = {
            **self._record(group, timestamp_ms),
            "topic": place[0],
            "partition": place[1],
            "committed_offset": offset,
            "metadata": self._rng.choice(["", "note"]),
            "commit_timestamp": instant(commit_ms),
            "commit_timestamp_ms": commit_ms,
            "expire_timestamp": None if expire_ms is None else instant(expire_ms),
            "expire_timestamp_ms": expire_ms,
            "topic_id": topic_id if group.kind == "Consumer" else None,
            "key_version": 1,
            "value_version": 3,
            "value_bytes": 30,
        }
        group.offsets[place] = row
        self._history("offset_commits", row | {"is_tombstone": False})

    def _tombstone(self, group: _Group, place: Place, at_ms: int) -> None:
        group.offsets.pop(place, None)
        row = {**self._record(group, at_ms), "topic": place[0], "partition": place[1], "is_tombstone": True}
        self._history("offset_commits", row)

    def _rebalance(self, group: _Group, at_ms: int, members: list[str] | None = None) -> None:
        if members is None:
            members = self._next_members(group, at_ms)
        group.epoch, group.members = group.epoch + 1, members
        if group.kind == "Classic":
            self._write_states(group, at_ms, [("Stable" if members else "Empty", 0)])
        else:
            later = [("Assigning", 0), ("Reconciling", 40), ("Stable", 900)]
            self._write_states(group, at_ms, later[self._rng.randrange(2) :] if members else [("Empty", 0)])

    def _change_protocol(self, group: _Group, at_ms: int) -> None:
        """Let a member join, leave, or be replaced.

        Its replacement may have the other protocol; then the group may change type.
        """
        act = self._rng.choice(["joins", "joins", "leaves", "returns", "returns", "converts", "converts", "empties"])
        other = "Consumer" if group.kind == "Classic" else "Classic"
        group.joined += 1
        newcomer = f"{group.group_id}-member-{group.joined}"
        static = [member for member in group.members if _instance(member)]
        if not group.members and self._rng.random() < 0.5:
            group.kind, group.epoch = other, 0  # a new group with this id
        if not group.members or act == "joins":
            self._rebalance(group, at_ms, [*group.members, newcomer])
        elif act == "returns" and static:
            group.kind = self._rng.choice([group.kind, other])
            group.members = [*(each for each in group.members if each != static[0]), f"{newcomer}-2"]
            self._write_states(group, at_ms, [("Stable", 0)])
        elif act == "converts" and other == "Consumer":
            group.kind = other
            self._rebalance(group, at_ms, [*group.members, newcomer])
        elif act == "converts" and len(group.members) > 1:  # the last member of the newer protocol leaves
            group.kind, group.members = other, group.members[1:]
            self._write_states(group, at_ms, [("Stable", 0)])
            group.must_rebalance = self._rng.random() < 0.8
        else:
            self._rebalance(group, at_ms, [] if act == "empties" else group.members[1:])

    def _end_rebalance(self, group: _Group, at_ms: int) -> None:
        if group.must_rebalance:
            group.must_rebalance = False
            self._rebalance(group, at_ms, group.members)

    def _next_members(self, group: _Group, at_ms: int) -> list[str]:
        done = (at_ms - START_MS) / self._duration_ms
        if group.habit in ("deleted", "emptied") and done > 0.4:
            return []
        kept = [member for member in group.members if self._rng.random() < 0.7]
        if not kept or self._rng.random() < 0.5:
            group.joined += 1
            kept.append(f"{group.group_id}-member-{group.joined}")
        return kept

    def _write_states(self, group: _Group, at_ms: int, states: list[tuple[str, int]]) -> None:
        for state, later_ms in states:
            group.state = state
            own = {
                "group_id": group.group_id,
                "group_type": group.kind,
                "state": state,
                "is_simple": False,
                "protocol_type": "consumer" if group.kind == "Classic" else None,
                "protocol": "range" if group.kind == "Classic" and group.members else None,
                "generation": group.epoch if group.kind == "Classic" else None,
                "group_epoch": None if group.kind == "Classic" else group.epoch,
                "assignment_epoch": None if group.kind == "Classic" else group.epoch - (state == "Assigning"),
                "leader_member_id": group.members[0] if group.kind == "Classic" and group.members else None,
                "member_count": len(group.members),
                "state_timestamp": instant(at_ms - 3) if group.kind == "Classic" else None,
            }
            self._write_group(group, at_ms + later_ms, own, self._members_of(group), self._assignments_of(group))

    def _members_of(self, group: _Group) -> dict[Any, Row]:
        topics = ",".join(sorted(topic.name for topic in group.topics))
        return {
            (member,): {
                "member_id": member,
                "group_instance_id": _instance(member),
                "client_id": f"client-{member[-1]}",
                "client_host": f"/10.0.0.{member[-1]}",
                "member_epoch": None if group.kind == "Classic" else group.epoch,
                "member_state": None if group.kind == "Classic" else group.state.upper(),
                "is_classic_protocol": group.kind == "Classic",
                "subscribed_topics": topics,
            }
            for member in group.members
        }

    def _assignments_of(self, group: _Group) -> dict[Any, Row]:
        rows = {}
        places = [(topic, number) for topic in group.topics for number in range(topic.partitions)]
        for at, (topic, number) in enumerate(places if group.members else []):
            by_id = group.kind != "Classic"
            row = {
                "member_id": group.members[at % len(group.members)],
                "kind": "target" if group.state == "Assigning" else "assigned",
                "subtopology_id": None,
                "topic_id": topic.topic_id if by_id else None,
                "topic": topic.name,
                "partition": number,
                "assignment_epoch": group.epoch if by_id else None,
            }
            rows[tuple(row[name] for name in _ASSIGNMENT_KEY)] = row
        return rows

    # The tables' rows.

    def _write_group(
        self, group: _Group, at_ms: int, own: Row | None, members: dict[Any, Row], assignments: dict[Any, Row]
    ) -> None:
        """Write one step: the group's record or tombstone, and its changes."""
        if own is None and group.group is None:
            return
        place = self._record(group, at_ms)
        key_type = {"Classic": 2, "Consumer": 3, "Share": 11}[group.kind]
        self._history("group_records", place | {"key_type": key_type, "is_tombstone": own is None, "value_bytes": 90})
        epoch = group.epoch
        shown = own if own is not None else group.group
        assert shown is not None
        if own != group.group:
            self._history("group_history", shown | place | {"is_removed": own is None})
        self._diff("member_history", group.member_rows, members, place | {"epoch": epoch}, ("joined", "left"))
        self._diff(
            "assignment_history", group.assignments, assignments, place | {"epoch": epoch}, ("assigned", "revoked")
        )
        group.group, group.member_rows, group.assignments = own, members, assignments
        group.place = place

    def _diff(self, table: str, old: dict[Any, Row], new: dict[Any, Row], place: Row, words: tuple[str, str]) -> None:
        for key in sorted(old.keys() | new.keys(), key=str):
            if old.get(key) != new.get(key):
                change = words[1] if key not in new else words[0] if key not in old else "changed"
                self._history(table, new.get(key, old.get(key, {})) | place | {"change": change})

    def _record(self, group: _Group, timestamp_ms: int) -> Row:
        offset = group.log.next_offset
        group.log.next_offset += self._rng.choice([1, 1, 1, 2])
        return {
            "offsets_partition": group.log.number,
            "log_id": group.log.log_id,
            "record_offset": offset,
            "record_timestamp": instant(timestamp_ms),
            "group_id": group.group_id,
        }

    def _history(self, table: str, row: Row) -> None:
        job = {"checkpoint_id": 1, "batch_id": 1, "written_day": row["record_timestamp"].date()}
        self.rows[table].append(row | job)

    def _write_tables(self) -> None:
        """Write the state tables, the job's own tables and the samples."""
        inside = {"in_coordinator_partition": True}
        for group in self._groups:
            self.rows["committed_offsets"] += [row | inside for row in group.offsets.values()]
            if group.group is None:
                if group.offsets:
                    self.rows["groups"].append(_simple_row(group) | inside)
                continue
            place = group.place | inside
            self.rows["groups"].append(group.group | place)
            for row in group.member_rows.values():
                topics = row["subscribed_topics"].split(",")
                self.rows["group_members"].append({k: v for k, v in row.items() if k != "subscribed_topics"} | place)
                self.rows["member_subscriptions"] += [
                    {"member_id": row["member_id"], "topic": topic, "subscribed_by": "name"} | place for topic in topics
                ]
            self.rows["member_assignments"] += [row | place for row in group.assignments.values()]
        self._write_job_tables()

    def _write_job_tables(self) -> None:
        for log in {group.log.number: group.log for group in self._groups}.values():
            self.rows["offsets_partitions"].append(
                {
                    "offsets_partition": log.number,
                    "log_id": log.log_id,
                    "load_state": "OWNED",
                    "next_offset": log.next_offset,
                    "log_start_offset": 0,
                    "last_stable_offset": log.next_offset,
                    "high_watermark": log.next_offset + self._rng.choice([0, 0, 3]),
                    "caught_up_at": instant(self.now_ms),
                    "groups_count": 1,
                    "offsets_count": 2,
                    "coordinator_id": log.number % 3,
                    "history_complete_from": instant(log.began_ms),
                }
            )
            self.rows["decoded_logs"].append(
                {"offsets_partition": log.number, "log_id": log.log_id, "decoded_from_offset": 0}
            )
            for move in range(self._rng.randrange(4)):
                at = instant(START_MS + (move + 1) * 5 * MINUTE)
                self.rows["partition_events"].append(
                    {
                        "offsets_partition": log.number,
                        "log_id": log.log_id,
                        "event_at": at,
                        "event": self._rng.choice(["coordinator moved", "leader epoch changed", "loaded"]),
                        "coordinator_id": (move + 1) % 3,
                        "previous_coordinator_id": move % 3,
                        "coordinator_epoch": move + 1,
                        "previous_coordinator_epoch": move,
                        "written_day": at.date(),
                    }
                )
        self.rows["cluster"].append(
            {
                "cluster_id": "c",
                "group_coordinator": "new",
                "offsets_retention_ms": RETENTION_MS,
                "offsets_retention_check_interval_ms": 10 * SECOND,
                "observed_at": instant(self.now_ms),
            }
        )
        self.rows["thresholds"] += [
            {"group_id": None, "allowed_lag": 2, "max_time_lag_seconds": 240},
            {"group_id": "group-1", "allowed_lag": 20, "intervals": 5, "window_seconds": 120},
            {"group_id": "group-2", "minimum_complete": 0.5, "max_time_lag_seconds": 60},
        ]
        for table, rows in self.logs.tables(self.now_ms).items():
            self.rows[table] += rows


def _instance(member: str) -> str | None:
    return "static" if member.endswith("-2") else None


def _simple_row(group: _Group) -> Row:
    return {
        "offsets_partition": group.log.number,
        "log_id": group.log.log_id,
        "group_id": group.group_id,
        "group_type": "Classic",
        "state": "Empty",
        "is_simple": True,
        "generation": 0,
        "member_count": 0,
    }
