"""A member of a classic group that stays while a context lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

from testkit.waiting import await_


@contextmanager
def member_of(server: str, group: str) -> Iterator[None]:
    """Have a member in a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": 3_600_000,  # it never polls again
        }
    )
    try:
        consumer.subscribe(["orders"])
        await_(lambda: consumer.poll(0.2) is not None or bool(consumer.assignment()))
        yield
    finally:
        consumer.close()
