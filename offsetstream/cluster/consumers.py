"""How a consumer ends."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer

_CLOSE_SECONDS = 20.0


def close(consumer: Consumer) -> None:
    """Close a consumer; what does not end is left to the end of the process.

    Where a broker was restarted, librdkafka (2.16) now and then waits without end for a thread of its own.
    """
    closing = threading.Thread(target=consumer.close, name="close a consumer", daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)
