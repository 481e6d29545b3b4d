"""Plays the workload of all group types on a broker: joins, leaves, deletions, conversions, transactions."""

from typing import Any

from confluent_kafka.admin import NewTopic

from offsetstream.embedded.clients import admin_client
from testkit.waiting import await_
from tests.kafka.cast import (
    AND_BACK,
    APPLICATIONS,
    BACK_EMPTY,
    CONVERSIONS,
    CONVERTED,
    CONVERTED_EMPTY,
    DELETED,
    EMPTIED,
    KIP_848,
    MEMBERS,
    OFFSETS_ONLY,
    SHORT_LIVED,
    STATIC_AWAY,
    TRANSACTIONS,
    Application,
    Cast,
)
from tests.kafka.java_admin import JavaAdmin
from tests.kafka.java_clients import SESSION_MS, JavaClients, Member

_TIMEOUT = 30.0


class Stage:
    """The clients on one broker, and the expected groups: type, state and members by id."""

    def __init__(self, bootstrap_server: str, clients: JavaClients, group_types: set[str]) -> None:
        self.admin = JavaAdmin(clients)
        self.expected: dict[str, tuple[str, str, int]] = {}
        self.deleted: set[str] = set()
        self._clients, self._types = clients, group_types
        self._confluent = admin_client(bootstrap_server)
        self._members: dict[str, list[Member]] = {}
        self._applications: dict[str, list[Any]] = {}

    def play(self) -> None:
        """Make all groups; the open transactions come last, because they block the records written after them."""
        self._confluent.create_topics([NewTopic(SHORT_LIVED, 2)])[SHORT_LIVED].result(_TIMEOUT)
        self._commit_without_members()
        for cast in (*MEMBERS, *(CONVERSIONS if "Consumer" in self._types else ())):
            self._join(cast)
        for application in APPLICATIONS:
            self._start(application)
        self._settle()
        for members in self._members.values():
            members[0].commit()
        self._leave()
        self._delete()
        if "Consumer" in self._types:
            self._convert()
        self._confluent.delete_topics([SHORT_LIVED])[SHORT_LIVED].result(_TIMEOUT)
        self._settle()
        self._commit_in_transactions()

    def _join(self, cast: Cast) -> None:
        if cast.group_type not in self._types:
            return
        self._members[cast.group_id] = [self._member(cast, number) for number in range(cast.members)]
        self.expected[cast.group_id] = (cast.group_type, "Stable", cast.members)

    def _member(self, cast: Cast, number: int) -> Member:
        properties = {"client_id": f"{cast.group_id}-{number}", **cast.properties}
        if cast.static:
            properties["group_instance_id"] = f"{cast.group_id}-static-{number}"
        if cast.group_type == "Share":
            return self._clients.share_consumer(cast.group_id, *cast.topics, **properties)
        if cast.topics[0].startswith("^"):
            return self._clients.regex_consumer(cast.group_id, cast.topics[0][1:], **properties)
        return self._clients.consumer(cast.group_id, *cast.topics, **properties)

    def _start(self, application: Application) -> None:
        if application.group_type not in self._types:
            return
        group_id, count = application.group_id, application.instances
        started = [self._instance(application, number) for number in range(count)]
        self._applications[group_id] = started
        self.expected[group_id] = (application.group_type, "Stable", count)

    def _instance(self, application: Application, number: int) -> Any:
        counting, copying = self._clients.counting_topology, self._clients.copying_topology
        topology = counting("inventory") if application.counts else copying("inventory", "ledger-entries")
        group_id, protocol = application.group_id, application.group_type.lower()
        session = {"session_timeout_ms": SESSION_MS} if protocol == "classic" else {}  # otherwise the broker sets it
        properties = {"client_id": f"{group_id}-{number}", "group_protocol": protocol, **session}
        return self._clients.streams(group_id, topology, **properties)

    def _leave(self) -> None:
        for group_id in (*EMPTIED, *DELETED):
            for member in self._members.pop(group_id, []):
                member.leave()
            for application in self._applications.pop(group_id, []):
                self._clients.leave(application)
            if group_id in self.expected:
                self.expected[group_id] = (self.expected[group_id][0], "Empty", 0)
        if STATIC_AWAY in self._members:
            self._members[STATIC_AWAY].pop().leave()
            self.expected[STATIC_AWAY] = ("Consumer", "Reconciling", 2)
        self._settle()

    def _delete(self) -> None:
        deleted = [group_id for group_id in DELETED if group_id in self.expected]
        self.admin.delete_groups(deleted)
        for group_id in deleted:
            del self.expected[group_id]
        self.deleted |= set(deleted)

    def _convert(self) -> None:
        """Convert groups with and without members to KIP-848 and to classic; convert one with members back again."""
        for group_id in (CONVERTED_EMPTY, BACK_EMPTY):
            self._members[group_id].pop().leave()
        for group_id in (CONVERTED, AND_BACK, CONVERTED_EMPTY):
            self._join_one_more(group_id, "Consumer")
        self._join_one_more(BACK_EMPTY, "Classic")
        self._settle()
        self._members[AND_BACK].pop().leave()
        self.expected[AND_BACK] = ("Classic", "Stable", 1)

    def _join_one_more(self, group_id: str, group_type: str) -> None:
        properties = KIP_848 if group_type == "Consumer" else {}
        members = self._members[group_id]
        members.append(self._clients.consumer(group_id, "shipments", client_id=f"{group_id}-late", **properties))
        self.expected[group_id] = (group_type, "Stable", len(members))

    def _commit_without_members(self) -> None:
        places = {("orders", 0): 7, ("orders", 1): 8, (SHORT_LIVED, 0): 0}
        for group_id in OFFSETS_ONLY:
            self._clients.commit(group_id, places, "größe ✓")
            self.expected[group_id] = ("Classic", "Empty", 0)
        self._clients.commit("offsets-in-deleted-topic", {(SHORT_LIVED, 1): 0})
        self.admin.delete_offsets("offsets-some-deleted", [("orders", 0)])
        self.admin.delete_offsets("offsets-all-deleted", list(places))
        if "Consumer" not in self._types:  # the classic coordinator deletes a group with its last offset
            del self.expected["offsets-all-deleted"]
        for group_id in ("offsets-altered", "offsets-made-by-admin"):
            self.admin.alter_offsets(group_id, {("payments", 0): 3})
            self.expected[group_id] = ("Classic", "Empty", 0)

    def _commit_in_transactions(self) -> None:
        first, second = {("orders", 0): 1, ("orders", 1): 2}, {("orders", 1): 3, ("orders", 2): 4}
        for group_id, ends in TRANSACTIONS.items():
            for offsets, end in zip((first, second), ends, strict=False):
                self._clients.transaction(group_id, offsets, end)

    def _settle(self) -> None:
        """Wait until all groups have their expected state."""
        await_(self._is_settled, self._unsettled)

    def _is_settled(self) -> bool:
        for member in [member for members in self._members.values() for member in members]:
            member.check()
        return not self._unsettled()

    def _unsettled(self) -> dict[str, Any]:
        """Return the groups that differ from what is expected. Describing a group with a wrong type is an error."""
        listed = {row["group_id"]: (row["group_type"], row["state"]) for row in self.admin.list_groups()}
        wrong = {key: listed.get(key) for key, wanted in self.expected.items() if listed.get(key) != wanted[:2]}
        if wrong:
            return wrong
        counts = {row["group_id"]: row["member_count"] for row in self.admin.answers(self.expected).groups}
        return {key: counts[key] for key, wanted in self.expected.items() if counts[key] != wanted[2]}
