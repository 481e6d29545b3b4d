"""Groups of a live cluster as an operator acts on them: what they are, what is committed, what is to be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError

from offsetstream.cluster.committed import CommittedOffset, Place
from offsetstream.cluster.java_client import (
    FEW_TRIES,
    NO_RIGHT_TO_GROUP,
    as_error,
    asked_again,
    error_name,
    java_admin,
    root_cause,
    type_of_listed,
)
from offsetstream.cluster.java_offsets import commit_by_java, errors_by_place, fetch_by_java
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.offsets import require_utf8
from offsetstream.cluster.rights import Right

NOT_FOUND, DEAD = "GROUP_ID_NOT_FOUND", "Dead"
# By which question a group of each type is described. That for consumers would tell of classic ones, too, but Kafka's
# client waits for a tenth of a second before it does.
_DESCRIBE = ("Classic", "Consumer", "Share", "Streams")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Standing:
    """What a group is: its type (None where there is no such group), its state, how many members it has."""

    group_type: str | None
    state: str
    members: int


@contextmanager
def group_admin(
    cluster: MetadataCache, properties: Mapping[str, str], timeout: float, operations: Collection[str]
) -> Iterator[GroupAdmin]:
    """Give Kafka's Admin client for the groups of a cluster, in a JVM of its own; raises what `java_admin` does."""
    with java_admin(cluster.bootstrap_server, {**properties, **FEW_TRIES}) as (jvm, client):
        yield GroupAdmin(cluster, jvm, client, timeout, operations)


class GroupAdmin:
    """Kafka's Admin client, asked about groups and told what is to become of them; a question has `timeout` seconds.

    `operations` are the rights to a group that its user is going to need: READ to commit, DELETE. Coordinators that
    move or load are asked again. All methods raise UnauthorisedError without such a right, and UnreachableError or
    ClusterError where a coordinator is not there in time; errors of one partition or group are answers, by Kafka's
    names.
    """

    def __init__(
        self, cluster: MetadataCache, jvm: Any, client: Any, timeout: float, operations: Collection[str]
    ) -> None:
        self._cluster, self._jvm, self._client, self._timeout = cluster, jvm, client, timeout
        self._operations = frozenset(operations)

    def group_ids(self) -> list[str]:
        """Return the groups with offsets of consumers that the user may see: Share and Streams groups are none."""
        listed = self._of(
            "", lambda: asked_again(self._jvm, lambda: self._client.listGroups().all().get(), self._timeout)
        )
        types = {str(group.groupId()): type_of_listed(group) for group in listed}
        return sorted(group_id for group_id, kind in types.items() if kind in {"Classic", "Consumer"})

    def standing(self, group_id: str) -> Standing:
        """Return what a group is; one that nobody knows is Dead, as Kafka has it.

        Of a group that is there, brokers from 2.3 on tell the user's rights, and what lacks is raised at once.
        """
        require_utf8("group id", group_id)
        for asked in _DESCRIBE:
            described = self._of(group_id, partial(self._described, asked, group_id))
            if described is None:
                continue
            self._require_operations(group_id, described.authorizedOperations())
            state = str((described.state() if asked == "Classic" else described.groupState()).toString())
            if state != DEAD:  # as older brokers say that it is of another type, or not there
                return Standing(asked, state, described.members().size())
        return Standing(None, DEAD, 0)

    def offsets(self, group_id: str) -> dict[Place, CommittedOffset]:
        """Return all that is committed for a group; one that an offset below zero was committed for has none.

        Needs DESCRIBE on its topics: others are left out silently.
        """
        require_utf8("group id", group_id)
        fetch = partial(fetch_by_java, self._jvm, self._client, group_id, None, self._timeout, require_stable=False)
        return self._of(group_id, fetch)

    def unstable(self, group_id: str, places: Collection[Place]) -> set[Place]:
        """Return those of the partitions to which an open transaction is to commit, whether they have an offset or not.

        Kafka's client has null for a partition without an offset, and nothing for one whose answer is an error.
        """

        def ask() -> set[Place]:
            admin = self._jvm.org.apache.kafka.clients.admin
            java = [self._jvm.org.apache.kafka.common.TopicPartition(*place) for place in places]
            spec = admin.ListConsumerGroupOffsetsSpec().topicPartitions(java)
            options = admin.ListConsumerGroupOffsetsOptions().timeoutMs(self._timeout_ms).requireStable(True)
            told = self._client.listConsumerGroupOffsets({group_id: spec}, options)
            found = told.partitionsToOffsetAndMetadata(group_id).get()
            return set(places) - {(str(each.topic()), int(each.partition())) for each in found}

        return self._of(group_id, lambda: asked_again(self._jvm, ask, self._timeout)) if places else set()

    def commit(self, group_id: str, offsets: Mapping[Place, CommittedOffset]) -> dict[Place, str | None]:
        """Commit as a consumer does that is no member; return each partition's error, None where it is done."""
        return self._of(group_id, lambda: commit_by_java(self._jvm, self._client, group_id, offsets, self._timeout))

    def delete_offsets(self, group_id: str, places: Collection[Place]) -> dict[Place, str | None]:
        """Delete what is committed for the partitions; return each one's error, None where it is done."""

        def ask() -> dict[Place, str | None]:
            java = {place: self._jvm.org.apache.kafka.common.TopicPartition(*place) for place in places}
            options = self._jvm.org.apache.kafka.clients.admin.DeleteConsumerGroupOffsetsOptions()
            told = self._client.deleteConsumerGroupOffsets(
                group_id, self._jvm.java.util.HashSet(list(java.values())), options.timeoutMs(self._timeout_ms)
            )
            return errors_by_place(self._jvm, {place: told.partitionResult(each) for place, each in java.items()})

        return self._of(group_id, lambda: asked_again(self._jvm, ask, self._timeout))

    def delete_group(self, group_id: str) -> str | None:
        """Delete a group with all its offsets; return the error, None where it is done."""

        def ask() -> str | None:
            options = self._jvm.org.apache.kafka.clients.admin.DeleteConsumerGroupsOptions()
            told = self._client.deleteConsumerGroups([group_id], options.timeoutMs(self._timeout_ms))
            return errors_by_place(self._jvm, {("", 0): told.deletedGroups()[group_id]})["", 0]

        return self._of(group_id, lambda: asked_again(self._jvm, ask, self._timeout))

    @property
    def _timeout_ms(self) -> int:
        return round(self._timeout * 1000)

    def _require_operations(self, group_id: str, told: Any | None) -> None:
        """Raise UnauthorisedError where the user's rights to a group, if brokers tell them, are too few."""
        if told is not None and (lacking := self._operations - {str(each.name()) for each in told}):
            raise self._cluster.lacks([Right(operation, "group", group_id) for operation in sorted(lacking)])

    def _described(self, group_type: str, group_id: str) -> Any | None:
        """Return what a group is told to be, None where it is of another type, or there is none."""

        def ask() -> Any:
            options = getattr(self._jvm.org.apache.kafka.clients.admin, f"Describe{group_type}GroupsOptions")()
            options = options.includeAuthorizedOperations(True).timeoutMs(self._timeout_ms)
            describe = getattr(self._client, f"describe{group_type}Groups")
            return describe([group_id], options).describedGroups()[group_id].get()

        try:
            return asked_again(self._jvm, ask, self._timeout)
        except Py4JJavaError as error:
            if not _is_of_another_type(self._jvm, error):
                raise
            return None

    def _of(self, group_id: str, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except Py4JError as error:
            if not isinstance(error, Py4JJavaError) or error_name(self._jvm, error) != NO_RIGHT_TO_GROUP:
                raise as_error(self._cluster.bootstrap_server, error) from error
            rights = [Right(operation, "group", group_id) for operation in sorted(self._operations)]
            raise self._cluster.lacks(rights) from error


def _is_of_another_type(jvm: Any, error: Py4JJavaError) -> bool:
    """Whether a coordinator, or its client, says that it has no group of this id and type."""
    unfit = root_cause(error).getClass().getSimpleName() == "IllegalArgumentException"
    return unfit or error_name(jvm, error) in {NOT_FOUND, "UNSUPPORTED_VERSION"}
