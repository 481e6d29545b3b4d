"""Consumers that join no group and commit nothing, and how any consumer ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer

from offsetstream.cluster.connection import QUIET
from offsetstream.cluster.properties import librdkafka_config

_CLOSE_SECONDS = 20.0


@contextmanager
def log_consumer(bootstrap_server: str, properties: Mapping[str, str]) -> Iterator[Consumer]:
    """Give a consumer for reading a log, which says where that ends."""
    config = {
        "client.id": "offsetstream",
        **librdkafka_config(properties),
        "bootstrap.servers": bootstrap_server,
        "group.id": "offsetstream",  # never joined; its name begins as Spark's do, so it needs no right of its own
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    consumer = Consumer(config, logger=QUIET)
    try:
        yield consumer
    finally:
        close(consumer)


def close(consumer: Consumer) -> None:
    """Close a consumer; what does not end is left to the end of the process.

    Where a broker was restarted, librdkafka (2.16) now and then waits without end for a thread of its own.
    """
    closing = threading.Thread(target=consumer.close, name="close a consumer", daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)
