"""What the broker can do for the demo's clients."""

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

_TIMEOUT = 30.0


def has_kip_848_groups(admin: AdminClient) -> bool:
    """Return whether consumers with `group.protocol=consumer` find a coordinator that speaks with them.

    Asked beforehand, because librdkafka 2.16 says nothing where they do not: it tries again for ever. It needs the
    protocol as released with Kafka 4.0, which is where `inter.broker.protocol.version` went away; the preview of
    3.7 to 3.9 will not do.
    """
    broker_id = next(iter(admin.list_topics(timeout=_TIMEOUT).brokers))
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    configs = admin.describe_configs([resource])[resource].result(_TIMEOUT)
    protocols = configs.get("group.coordinator.rebalance.protocols")
    return (
        protocols is not None
        and "consumer" in protocols.value.split(",")
        and "inter.broker.protocol.version" not in configs
    )
