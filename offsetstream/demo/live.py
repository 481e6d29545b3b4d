"""The groups of a workload that have members: who is in, joining, leaving, and waiting until all is at rest."""

from collections import Counter

from confluent_kafka.admin import AdminClient

from offsetstream.demo.members import GroupPlan, Member
from offsetstream.demo.settle import await_settled


class LiveGroups:
    """The members of each group by its id, each polling in a thread of its own."""

    def __init__(self, bootstrap_server: str, admin: AdminClient) -> None:
        self._bootstrap_server = bootstrap_server
        self._admin = admin
        self._members: dict[str, list[Member]] = {}
        self._joined: Counter[str] = Counter()  # numbers the members of a group over its whole life

    def ids(self) -> list[str]:
        """Return the groups that have members now."""
        return sorted(self._members)

    def join(self, plan: GroupPlan, members: int = 1) -> None:
        """Start new members of a group."""
        for _ in range(members):
            self._joined[plan.group_id] += 1
            member = Member(self._bootstrap_server, plan, self._joined[plan.group_id])
            self._members.setdefault(plan.group_id, []).append(member)

    def leave(self, group_id: str) -> None:
        """Let the member of the group that joined first leave, and wait until it has."""
        leaver = self._members[group_id].pop(0)
        leaver.leave()
        leaver.join()
        if not self._members[group_id]:
            del self._members[group_id]

    def settle(self) -> None:
        """Wait until all groups are at rest: everyone in, everything read and committed."""
        await_settled(self._admin, self._members)

    def close(self) -> None:
        """Let all members leave, side by side, and wait for their threads."""
        everyone = [member for members in self._members.values() for member in members]
        for member in everyone:
            member.leave()
        for member in everyone:
            member.join()
        self._members.clear()
