"""How a consumer ends: at once, or without us."""

import threading

import pytest
from confluent_kafka import Consumer

from offsetstream.cluster import records
from offsetstream.cluster.connection import QUIET


class NeverClosed:
    """What librdkafka makes of a consumer now and then: it waits for a thread of its own that does not end."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self._end = threading.Event()

    def close(self) -> None:
        self.is_asked.set()
        self._end.wait()

    def end(self) -> None:
        self._end.set()


def test_a_consumer_is_closed() -> None:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "closed"}, logger=QUIET)
    records.close(consumer)
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def test_a_consumer_that_does_not_close_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_CLOSE_SECONDS", 0.05)
    consumer = NeverClosed()
    records.close(consumer)
    assert consumer.is_asked.is_set()
    consumer.end()
