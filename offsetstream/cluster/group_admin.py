"""Kafka's Admin client for groups of a live cluster: describe them, and change or delete their offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from offsetstream.cluster.answers import CommittedOffset, Place
from offsetstream.cluster.java_client import (
    LIMITED_RETRIES,
    NO_RIGHT_TO_GROUP,
    JavaAdmin,
    as_error,
    java_admin,
    root_cause,
    type_of_listed,
)
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.offsets import require_utf8
from offsetstream.cluster.rights import Right

NOT_FOUND, DEAD = "GROUP_ID_NOT_FOUND", "Dead"
# Each group type has its own Describe request. The one for consumer groups also works for classic groups, but then
# Kafka's client waits for a tenth of a second.
_DESCRIBE = ("Classic", "Consumer", "Share", "Streams")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class GroupState:
    """A group's type (None: the group does not exist), its state and its number of members."""

    group_type: str | None
    state: str
    members: int


@contextmanager
def group_admin(
    cluster: MetadataCache, properties: Mapping[str, str], timeout: float, operations: Collection[str]
) -> Iterator[GroupAdmin]:
    """Yield Kafka's Admin client for the groups of a cluster, in its own JVM. Raises what `java_admin` raises."""
    with java_admin(cluster.bootstrap_server, {**properties, **LIMITED_RETRIES}) as admin:
        yield GroupAdmin(cluster, admin, timeout, operations)


class GroupAdmin:
    """Kafka's Admin client for groups. Each request has `timeout` seconds, including retries.

    `operations` are the rights to a group that the user will need: READ to commit, or DELETE. Requests are retried
    while a coordinator moves or loads. All methods raise UnauthorisedError without such a right, UnreachableError or
    ClusterError if a coordinator does not answer in time. An error of one partition or group is returned, by Kafka's
    name.
    """

    def __init__(self, cluster: MetadataCache, admin: JavaAdmin, timeout: float, operations: Collection[str]) -> None:
        self._cluster, self._admin, self._timeout = cluster, admin, timeout
        self._operations = frozenset(operations)

    def group_ids(self) -> list[str]:
        """Return the classic and consumer groups that the user may see, without share and streams groups."""
        listed = self._retried("", lambda: self._admin.client.listGroups().all().get())
        types = {str(group.groupId()): type_of_listed(group) for group in listed}
        return sorted(group_id for group_id, kind in types.items() if kind in {"Classic", "Consumer"})

    def standing(self, group_id: str) -> GroupState:
        """Return the type and state of a group. An unknown group is Dead, as in Kafka.

        For an existing group, brokers since 2.3 return the user's rights. Raises UnauthorisedError if one is missing.
        """
        require_utf8("group id", group_id)
        for group_type in _DESCRIBE:
            described = self._request(group_id, partial(self._described, group_type, group_id))
            if described is None:
                continue
            self._require_operations(group_id, described.authorizedOperations())
            state = str((described.state() if group_type == "Classic" else described.groupState()).toString())
            if state != DEAD:  # older brokers answer so for another type or an unknown group
                return GroupState(group_type, state, described.members().size())
        return GroupState(None, DEAD, 0)

    def offsets(self, group_id: str) -> dict[Place, CommittedOffset]:
        """Return all committed offsets of a group. For a negative one, the result has no offset.

        Needs DESCRIBE on the topics: brokers silently omit the others.
        """
        require_utf8("group id", group_id)
        return self._request(group_id, lambda: self._admin.fetch(group_id, None, self._timeout, require_stable=False))

    def unstable(self, group_id: str, places: Collection[Place]) -> set[Place]:
        """Return the partitions for which an open transaction has a pending offset.

        Kafka's client returns null for a partition without an offset, and omits a partition with an error.
        """
        if not places:
            return set()

        def ask() -> set[Place]:
            classes = self._admin.classes
            spec = classes.ListConsumerGroupOffsetsSpec().topicPartitions([self._admin.place(each) for each in places])
            options = classes.ListConsumerGroupOffsetsOptions().timeoutMs(self._timeout_ms).requireStable(True)
            result = self._admin.client.listConsumerGroupOffsets({group_id: spec}, options)
            found = result.partitionsToOffsetAndMetadata(group_id).get()
            return set(places) - {(str(each.topic()), int(each.partition())) for each in found}

        return self._retried(group_id, ask)

    def commit(self, group_id: str, offsets: Mapping[Place, CommittedOffset]) -> dict[Place, str | None]:
        """Commit offsets without being a member. Return the error of each partition (None: done)."""
        return self._request(group_id, lambda: self._admin.commit(group_id, offsets, self._timeout))

    def delete_offsets(self, group_id: str, places: Collection[Place]) -> dict[Place, str | None]:
        """Delete the offsets of the partitions. Return the error of each partition (None: done)."""

        def ask() -> dict[Place, str | None]:
            java = {place: self._admin.place(place) for place in places}
            options = self._admin.classes.DeleteConsumerGroupOffsetsOptions()
            result = self._admin.client.deleteConsumerGroupOffsets(
                group_id, self._admin.jvm.java.util.HashSet(list(java.values())), options.timeoutMs(self._timeout_ms)
            )
            return {place: self._admin.error_of(result.partitionResult(each)) for place, each in java.items()}

        return self._retried(group_id, ask)

    def delete_group(self, group_id: str) -> str | None:
        """Delete a group with all its offsets. Return the error (None: done)."""

        def ask() -> str | None:
            options = self._admin.classes.DeleteConsumerGroupsOptions()
            result = self._admin.client.deleteConsumerGroups([group_id], options.timeoutMs(self._timeout_ms))
            return self._admin.error_of(result.deletedGroups()[group_id])

        return self._retried(group_id, ask)

    @property
    def _timeout_ms(self) -> int:
        return round(self._timeout * 1000)

    def _require_operations(self, group_id: str, allowed: Any | None) -> None:
        """Raise UnauthorisedError if the user lacks a right to a group. Old brokers do not return rights (None)."""
        if allowed is not None and (missing := self._operations - {str(each.name()) for each in allowed}):
            raise self._cluster.lacks([Right(operation, "group", group_id) for operation in sorted(missing)])

    def _described(self, group_type: str, group_id: str) -> Any | None:
        """Return the description of a group. None: it has another type, or does not exist."""

        def ask() -> Any:
            options = getattr(self._admin.classes, f"Describe{group_type}GroupsOptions")()
            options = options.includeAuthorizedOperations(True).timeoutMs(self._timeout_ms)
            describe = getattr(self._admin.client, f"describe{group_type}Groups")
            return describe([group_id], options).describedGroups()[group_id].get()

        try:
            return self._admin.retried(ask, self._timeout)
        except Py4JJavaError as error:
            if not _is_other_type(self._admin, error):
                raise
            return None

    def _retried(self, group_id: str, ask: Callable[[], Answer]) -> Answer:
        return self._request(group_id, lambda: self._admin.retried(ask, self._timeout))

    def _request(self, group_id: str, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except Py4JError as error:
            if not isinstance(error, Py4JJavaError) or self._admin.error_name(error) != NO_RIGHT_TO_GROUP:
                raise as_error(self._cluster.bootstrap_server, error) from error
            rights = [Right(operation, "group", group_id) for operation in sorted(self._operations)]
            raise self._cluster.lacks(rights) from error


def _is_other_type(admin: JavaAdmin, error: Py4JJavaError) -> bool:
    """Return whether the error means that no group has this id and type."""
    is_other_type = root_cause(error).getClass().getSimpleName() == "IllegalArgumentException"
    return is_other_type or admin.error_name(error) in {NOT_FOUND, "UNSUPPORTED_VERSION"}
