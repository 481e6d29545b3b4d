"""The demo's workload: real clients that give a cluster groups of every kind, and change them when asked."""

import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import TopicPartition

from offsetstream.demo import cast
from offsetstream.demo.commits import commit_in_transaction, commit_plainly
from offsetstream.demo.live import LiveGroups
from offsetstream.demo.support import has_kip_848_groups
from offsetstream.demo.topics import create_topics, end_offsets, produce_records
from offsetstream.embedded.clients import admin_client
from offsetstream.errors import UsageError

MIN_GROUPS = 12
_RECORDS = 400  # of each topic, in each phase
_TIMEOUT = 30.0

Say = Callable[[str], None]


def run_workload(bootstrap_server: str, *, groups: int, seed: int, say: Say) -> "Workload":
    """Make `groups` groups (12 or more) on the cluster, and return once they have come to rest.

    The same seed makes the same records and commits. `say` is told in one line each what was done. Members stay
    in their groups until the workload is closed. KIP-848 groups are left out where the broker has none.
    Raises UsageError (too few groups), ClusterError (the groups do not come to rest within two minutes).
    """
    if groups < MIN_GROUPS:
        raise UsageError(f"The workload has at least {MIN_GROUPS} groups, not {groups}")
    workload = Workload(bootstrap_server, seed, say)
    try:
        workload.first(groups)
    except BaseException:
        workload.close()
        raise
    return workload


class Workload:
    """What `run_workload` made: `groups` that are there, `deleted` ones, and members that live on until `close`."""

    def __init__(self, bootstrap_server: str, seed: int, say: Say) -> None:
        self.groups: set[str] = set()
        self.deleted: set[str] = set()
        self._bootstrap_server = bootstrap_server
        self._admin = admin_client(bootstrap_server)
        self._live = LiveGroups(bootstrap_server, self._admin)
        self._committing: list[str] = []
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
        """Make the topics and all groups; `run_workload` calls it, once."""
        create_topics(self._admin)
        self._produce()
        self._start_members()
        self._live.join(cast.GROWING_GROUP)
        self._live.leave(cast.LEAVING_GROUP.group_id)
        self._live.settle()
        self._say(f"{cast.GROWING_GROUP.group_id} rebalanced: another member joined")
        self._say(f"{cast.LEAVING_GROUP.group_id} is empty: its only member left")
        self._transactions()
        self._first_commits(groups)
        self.delete([cast.DELETED_GROUP])

    def more(self) -> None:
        """Change the state: more records read, members come and go, commits forth and back, deletions.

        May be called again; each time a few groups fewer are there.
        """
        self._produce()
        self._live.join(cast.GROWING_GROUP)
        shrinking = sorted({plan.group_id for plan in cast.SHRINKING_GROUPS} & set(self.live_groups))
        for group in shrinking:
            self._live.leave(group)
        self._live.settle()
        self._say(f"{cast.GROWING_GROUP.group_id} rebalanced: another member joined")
        if shrinking:
            self._say(f"a member each left {', '.join(shrinking)}")
        self._transactions()
        changed = [cast.LATE_GROUP, *self._rng.sample(self._committing, len(self._committing) // 2)]
        self._commit({group: cast.random_commits(self._ends, self._rng) for group in changed})
        self._say(f"{len(changed)} groups committed again, some of them back to older offsets")
        leaving = {cast.LEAVING_GROUP.group_id} & self.groups
        self.delete([*leaving, *self._rng.sample(self._committing, min(2, len(self._committing)))])

    def close(self) -> None:
        """Let all members leave their groups; a static one keeps its place until its session ends."""
        self._live.close()

    def _produce(self) -> None:
        produce_records(self._bootstrap_server, _RECORDS, self._rng)
        self._ends = end_offsets(self._admin)
        self._say(f"{_RECORDS} records written to each of the topics {', '.join(sorted({t for t, _ in self._ends}))}")

    def _start_members(self) -> None:
        kip_848 = has_kip_848_groups(self._admin)
        for plan in (*cast.LIVE_GROUPS, cast.LEAVING_GROUP):
            if kip_848 or not plan.is_kip_848:
                self._live.join(plan, plan.members)
        self._live.settle()
        self.groups |= set(self.live_groups)
        without = "" if kip_848 else " (and none of KIP-848, which this broker has not)"
        self._say(f"groups with members that read and commit: {', '.join(self.live_groups)}{without}")

    def _transactions(self) -> None:
        """Commit in two transactions, then abort one that would have gone on: its offsets must not be seen."""
        group = cast.TRANSACTIONAL_GROUP
        for share, abort in ((4, False), (2, False), (1, True)):
            offsets = [
                TopicPartition("orders", partition, self._ends["orders", partition] // share) for partition in (0, 1)
            ]
            commit_in_transaction(self._bootstrap_server, group, offsets, abort=abort)
        self.groups.add(group)
        self._say(f"{group} committed in two transactions and aborted a third")

    def _first_commits(self, groups: int) -> None:
        self._committing = cast.committing_groups(groups - len(self.groups) - 1)
        lagging = [TopicPartition(*place, 1, "stuck") for place in sorted(self._ends) if place[0] == "page-views"]
        commits = {
            group: cast.random_commits(self._ends, self._rng) for group in (*self._committing, cast.DELETED_GROUP)
        }
        self._commit({cast.LAGGING_GROUP: lagging, **commits})
        self._say(f"{len(commits)} groups committed without members; {cast.LAGGING_GROUP} stays behind")

    def _commit(self, commits: dict[str, Sequence[TopicPartition]]) -> None:
        commit_plainly(self._bootstrap_server, commits)
        self.groups |= set(commits)

    def delete(self, groups: Sequence[str]) -> None:
        """Delete groups that have no members, by Admin."""
        if not groups:
            return
        for future in self._admin.delete_consumer_groups(list(groups)).values():
            future.result(_TIMEOUT)
        self.groups -= set(groups)
        self.deleted |= set(groups)
        self._committing = [group for group in self._committing if group not in groups]
        self._say(f"deleted by Admin: {', '.join(groups)}")
