"""Close consumers safely, and create consumers for notebooks and tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer

from offsetstream.cluster.connection import QUIET
from offsetstream.cluster.properties import librdkafka_config

_CLOSE_SECONDS = 20.0


def close(consumer: Consumer) -> None:
    """Close a consumer. Give up after 20 seconds; the end of the process then closes it.

    After a broker's restart, librdkafka (2.16) sometimes waits forever for one of its own threads.
    """
    closing = threading.Thread(target=consumer.close, name="close a consumer", daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)


@contextmanager
def auto_committing_consumer(
    bootstrap_server: str, group: str, topics: Sequence[str], properties: Mapping[str, str] | None = None
) -> Iterator[Consumer]:
    """Yield a member of a group that commits what it has read, every five seconds and at the end.

    It continues at the committed offsets, or at the start of the log without one. `properties` are client properties.
    """
    consumer = Consumer(
        {
            "client.id": "offsetstream",
            "auto.offset.reset": "earliest",
            **librdkafka_config(properties or {}, bootstrap_server),
            "bootstrap.servers": bootstrap_server,
            "group.id": group,
            "enable.auto.commit": True,
        },
        logger=QUIET,
    )
    try:
        consumer.subscribe(list(topics))
        yield consumer
    finally:
        close(consumer)
