"""The demo's workload: real clients that create healthy consumer groups of every kind, and change them on request."""

import itertools
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import TopicPartition

from offsetstream.demo.members import GroupPlan, LiveGroups, has_kip_848_groups
from offsetstream.demo.topics import (
    NIGHTLY,
    PARTITIONS,
    commit_in_transaction,
    commit_plainly,
    create_topics,
    end_offsets,
    produce_records,
)
from offsetstream.embedded.clients import admin_client
from offsetstream.errors import UsageError

_KIP_848 = {"group.protocol": "consumer"}
_COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}

GROWING_GROUP = GroupPlan("billing", ("orders", "payments"), 2)  # each change adds a member
SHRINKING_GROUPS = (  # the first change removes a member
    GroupPlan("fraud-detector", ("payments",), 2, _COOPERATIVE),
    GroupPlan("search-indexer", ("orders", "inventory"), 2, _KIP_848),
)
LIVE_GROUPS = (
    GROWING_GROUP,
    *SHRINKING_GROUPS,
    GroupPlan("warehouse", ("shipments",), 2, static=True),
    GroupPlan("mobile-push", ("orders",), 1),
    GroupPlan("recommendations", ("^page-.*",), 1, _KIP_848),
)
# Its only member leaves. So it is Empty, but has a generation, unlike groups that never had members.
LEAVING_GROUP = GroupPlan("email-sender", ("reviews",), 1)
TRANSACTIONAL_GROUP = "ledger"
DELETED_GROUP = "old-checkout"
LATE_GROUP = "returns-desk"  # commits for the first time with the first change
MIN_GROUPS = 12

_AREAS = ("checkout", "pricing", "stock", "loyalty", "refund", "tax", "invoice", "shipping", "catalog", "review")
_ROLES = ("api", "worker", "exporter", "audit", "cache", "mailer", "monitor", "archiver")
_NOTES = ("", "", "nightly run", "restored from backup", "größe ✓", '{"checkpoint": 17}')
_RECORDS = 400  # for each topic and change
_TIMEOUT = 30.0

Say = Callable[[str], None]


def run_workload(bootstrap_server: str, *, groups: int, seed: int, say: Say) -> "Workload":
    """Create `groups` groups (12 or more) on the cluster, and return once they have read and committed everything.

    The same seed gives the same records and commits. `say` gets one line for each step. Members stay in their groups
    until the workload is closed. Brokers without KIP-848 get no KIP-848 groups.
    Raises UsageError (too few groups), ClusterError (the groups are not stable after two minutes).
    """
    if groups < MIN_GROUPS:
        raise UsageError(f"The workload needs at least {MIN_GROUPS} groups, not {groups}")
    workload = Workload(bootstrap_server, seed, say)
    try:
        workload.first(groups)
    except BaseException:
        workload.close()
        raise
    return workload


class Workload:
    """A running workload: its `groups`, the groups that it `deleted`, and members that stay until `close`."""

    def __init__(self, bootstrap_server: str, seed: int, say: Say) -> None:
        self.groups: set[str] = set()
        self.deleted: set[str] = set()
        self._bootstrap_server = bootstrap_server
        self._admin = admin_client(bootstrap_server)
        self._live = LiveGroups(bootstrap_server, self._admin)
        self._committing: list[str] = []  # groups without members
        self._partitions: dict[str, list[tuple[str, int]]] = {}  # that each of them commits
        self._ends: dict[tuple[str, int], int] = {}
        self._rng = random.Random(seed)  # noqa: S311 - offsets and amounts, no secrets
        self._say = say

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def live_groups(self) -> list[str]:
        """Return the groups that have members now."""
        return self._live.ids()

    def first(self, groups: int) -> None:
        """Create the topics and all groups; only `run_workload` calls this, once."""
        create_topics(self._admin)
        self._produce()
        self._start_members()
        self._live.join(GROWING_GROUP)
        self._live.leave(LEAVING_GROUP.group_id)
        self._live.settle()
        self._say(f"Another member joined {GROWING_GROUP.group_id}, so the group rebalanced.")
        self._say(f"The only member of {LEAVING_GROUP.group_id} left, so the group is Empty.")
        self._transactions()
        self._committing = committing_groups(groups - len(self.groups))
        self._commit([*self._committing, DELETED_GROUP])
        self._say(f"{len(self._committing)} groups without members committed offsets.")
        self.delete([DELETED_GROUP])

    def more(self) -> None:
        """Change the groups: write records, let members join and leave, commit, and delete groups.

        Returns once all groups have read everything. Each call deletes some groups.
        """
        self._produce()
        self._live.join(GROWING_GROUP)
        shrinking = sorted({plan.group_id for plan in SHRINKING_GROUPS} & set(self.live_groups))
        for group in shrinking:
            self._live.leave(group)
        self._live.settle()
        self._say(f"Another member joined {GROWING_GROUP.group_id}, so the group rebalanced.")
        if shrinking:
            self._say(f"One member left each of {', '.join(shrinking)}.")
        self._transactions()
        changed = [LATE_GROUP, *self._committing]
        self._commit(changed)
        self._say(f"{len(changed)} groups committed again.")
        leaving = {LEAVING_GROUP.group_id} & self.groups
        self.delete([*leaving, *self._rng.sample(self._committing, min(2, len(self._committing)))])

    def delete(self, groups: Sequence[str]) -> None:
        """Delete groups that have no members, with the Admin API."""
        if not groups:
            return
        for future in self._admin.delete_consumer_groups(list(groups)).values():
            future.result(_TIMEOUT)
        self.groups -= set(groups)
        self.deleted |= set(groups)
        self._committing = [group for group in self._committing if group not in groups]
        self._say(f"Deleted with the Admin API: {', '.join(groups)}.")

    def close(self) -> None:
        """Let all members leave. The broker keeps static members in their group until their session times out."""
        self._live.close()

    def _produce(self) -> None:
        produce_records(self._bootstrap_server, _RECORDS, self._rng)
        self._ends = end_offsets(self._admin)
        self._say(f"Wrote {_RECORDS} records to each of the topics {', '.join(sorted({*PARTITIONS, *NIGHTLY}))}.")

    def _start_members(self) -> None:
        kip_848 = has_kip_848_groups(self._admin)
        for plan in (*LIVE_GROUPS, LEAVING_GROUP):
            if kip_848 or not plan.is_kip_848:
                self._live.join(plan, plan.members)
        self._live.settle()
        self.groups |= set(self.live_groups)
        note = "" if kip_848 else " No group uses KIP-848, because this broker does not support it."
        self._say(f"These groups have members, which read and commit: {', '.join(self.live_groups)}.{note}")

    def _transactions(self) -> None:
        """Commit in two transactions, then abort a third one that would rewind: nobody may see its offsets."""
        ends = {partition: self._ends["returns", partition] for partition in (0, 1)}
        steps: list[tuple[Callable[[int], int], bool]] = [
            (lambda end: end - 1, False),
            (lambda end: end, False),
            (lambda end: end // 2, True),
        ]
        for choose_offset, abort in steps:
            offsets = [TopicPartition("returns", partition, choose_offset(end)) for partition, end in ends.items()]
            commit_in_transaction(self._bootstrap_server, TRANSACTIONAL_GROUP, offsets, abort=abort)
        self.groups.add(TRANSACTIONAL_GROUP)
        self._say(f"{TRANSACTIONAL_GROUP} committed in two transactions and aborted a third.")

    def _commit(self, groups: Sequence[str]) -> None:
        """Commit the end offsets of some partitions for each group, some with a note and a leader epoch."""
        nightly = sorted(partition for partition in self._ends if partition[0] in NIGHTLY)
        commits: dict[str, list[TopicPartition]] = {}
        for group in groups:
            partitions = self._partitions.setdefault(group, self._rng.sample(nightly, self._rng.randint(1, 5)))
            commits[group] = [
                TopicPartition(
                    *partition, self._ends[partition], self._rng.choice(_NOTES), self._rng.choice((-1, 0, 0, 3))
                )
                for partition in partitions
            ]
        commit_plainly(self._bootstrap_server, commits)
        self.groups |= set(groups)


def committing_groups(count: int) -> list[str]:
    """Return `count` readable group names, the same at every call."""
    rounds = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    names = (f"{area}-{role}{suffix}" for suffix in rounds for role in _ROLES for area in _AREAS)
    return list(itertools.islice(names, count))
