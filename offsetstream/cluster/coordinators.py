"""Which broker the cluster itself names as the coordinator of a group (FindCoordinator)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.connection import TIMEOUT
from offsetstream.cluster.rights import Right


@dataclass(frozen=True)
class Broker:
    """A broker, as clients reach it."""

    broker_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"


class CoordinatorLookup(Cluster):
    """A live cluster that is asked for its brokers and for the coordinators of groups."""

    def brokers(self) -> dict[int, Broker]:
        """Return the brokers that are there now, by their id."""
        found = self._ask("the brokers", lambda: self._metadata(None).brokers)
        return {number: Broker(number, broker.host, broker.port) for number, broker in found.items()}

    def coordinators(self, group_ids: Collection[str]) -> dict[str, Broker]:
        """Return the coordinator of each group, whether the group exists or not; needs DESCRIBE on the groups.

        A coordinator that is away is waited for; UnreachableError if none is found in time.
        """
        if not group_ids:
            return {}
        answers = self._admin.describe_consumer_groups(list(group_ids), request_timeout=TIMEOUT)
        found = {
            group: self._result(f"the coordinator of {group}", answer, Right("DESCRIBE", "group", group))
            for group, answer in answers.items()
        }
        nodes = {group: description.coordinator for group, description in found.items()}
        return {group: Broker(node.id, node.host, node.port) for group, node in nodes.items()}
