"""Kafka's own Admin client, with the changes that tests make through it."""

from collections.abc import Iterable, Mapping

from offsetstream.verify.sources import KafkaAdmin
from tests.kafka.java_clients import JavaClients, Place


class JavaAdmin(KafkaAdmin):
    """Kafka's Admin client in the JVM of the other clients."""

    def __init__(self, clients: JavaClients) -> None:
        super().__init__(clients.jvm, clients.admin())
        self._clients = clients

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete empty groups of any type."""
        self.client.deleteConsumerGroups(list(group_ids)).all().get()

    def delete_offsets(self, group_id: str, places: Iterable[Place]) -> None:
        """Delete committed offsets of a group."""
        partitions = {self._clients.place(place) for place in places}
        self.client.deleteConsumerGroupOffsets(group_id, partitions).all().get()

    def alter_offsets(self, group_id: str, offsets: Mapping[Place, int], metadata: str = "") -> None:
        """Set committed offsets of an empty group; create the group if it does not exist."""
        self.client.alterConsumerGroupOffsets(group_id, self._clients.offsets(offsets, metadata)).all().get()
