"""Kafka's own Admin client with what tests do by it, besides asking."""

from collections.abc import Iterable, Mapping

from offsetstream.verify.kafka_admin import KafkaAdmin
from tests.kafka.java_clients import JavaClients, Place


class JavaAdmin(KafkaAdmin):
    """Kafka's Admin client in the JVM of the other clients."""

    def __init__(self, clients: JavaClients) -> None:
        super().__init__(clients.jvm, clients.admin())
        self._clients = clients

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups of any type that are empty."""
        self.client.deleteConsumerGroups(list(group_ids)).all().get()

    def delete_offsets(self, group_id: str, places: Iterable[Place]) -> None:
        """Delete committed offsets of a group."""
        wanted = {self._clients.place(place) for place in places}
        self.client.deleteConsumerGroupOffsets(group_id, wanted).all().get()

    def alter_offsets(self, group_id: str, offsets: Mapping[Place, int], metadata: str = "") -> None:
        """Set committed offsets of an empty group, which is made if it is not there."""
        self.client.alterConsumerGroupOffsets(group_id, self._clients.offsets(offsets, metadata)).all().get()
