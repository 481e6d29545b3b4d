"""confluent-kafka clients for the embedded broker and the demo, without librdkafka's log lines."""

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

QUIET = logging.getLogger("offsetstream.embedded.librdkafka")  # a starting broker refuses many connections
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
_UNAVAILABLE = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
}


def admin_client(bootstrap_server: str, credentials: Mapping[str, str] | None = None) -> AdminClient:
    """Return an admin client that reconnects quickly. `credentials` are librdkafka properties."""
    return AdminClient(
        {
            "bootstrap.servers": bootstrap_server,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            **(credentials or {}),
        },
        logger=QUIET,
    )


def is_coordinator_unavailable(error: BaseException | None) -> bool:
    """Return whether the error is temporary: the group's coordinator is starting, loading or moving."""
    return isinstance(error, KafkaException) and error.args[0].code() in _UNAVAILABLE
