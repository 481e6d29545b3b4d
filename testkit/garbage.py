"""Undecodable records for __consumer_offsets; anyone with write access to the topic could send them."""

import random
import struct
from collections.abc import Callable, Iterator

from confluent_kafka import KafkaError, Message, Producer

from testkit.waiting import SECONDS

TOPIC = "__consumer_offsets"
_NULL_TEXT = b"\xff\xff"  # in places where null is not allowed
_NO_VERSION = b"\x00\x63"
Record = tuple[bytes, bytes | None]


def garbage(records: int, least: int, most: int, seed: int = 0) -> Iterator[Record]:
    """Yield undecodable records of `least` to `most` bytes, broken in different ways."""
    chance = random.Random(seed)
    noise = chance.randbytes(most + 4096)
    for number in range(records):
        size = chance.randint(least, most)
        at = number % 4096
        yield _KINDS[number % len(_KINDS)](number, noise[at : at + size])


def _noise(number: int, noise: bytes) -> Record:
    return b"\x70" + struct.pack(">q", number) + noise[:8], noise


def _unknown_type(number: int, noise: bytes) -> Record:
    return struct.pack(">hq", 1000 + number % 30_000, number), noise


def _nameless_commit(number: int, noise: bytes) -> Record:
    return b"\x00\x01" + _NULL_TEXT + struct.pack(">q", number) + noise, noise[:16]


def _broken_commit(number: int, noise: bytes) -> Record:
    return commit_key(f"garbage-{number % 1000}", "t", number), _NO_VERSION + noise


def _broken_group(number: int, noise: bytes) -> Record:
    return _struct(2, f"garbage-{number}"), b"\x00\x03" + _NULL_TEXT + noise


def _broken_member(number: int, noise: bytes) -> Record:
    return _struct(5, f"garbage-{number % 1000}", f"member-{number}"), _NO_VERSION + noise


_KINDS: tuple[Callable[[int, bytes], Record], ...] = (
    _noise,
    _unknown_type,
    _nameless_commit,
    _broken_commit,
    _broken_group,
    _broken_member,
)


def commit_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of an offset commit."""
    return _struct(1, group, topic) + struct.pack(">i", partition)


def _struct(key_type: int, *texts: str) -> bytes:
    encoded = (text.encode() for text in texts)
    return struct.pack(">h", key_type) + b"".join(struct.pack(">h", len(text)) + text for text in encoded)


def produce(bootstrap_server: str, records: Iterator[tuple[int, bytes | None, bytes | None]], most: int = 1) -> None:
    """Write (partition, key, value) records, with the only client ID that brokers accept for them.

    `most`: the largest size in bytes.
    """
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_server,
            "client.id": "__admin_client",
            "linger.ms": 50,
            "message.max.bytes": max(1_000_000, most + 10_000),
            "queue.buffering.max.messages": 200_000,
        }
    )

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    for partition, key, value in records:
        while True:
            try:
                producer.produce(TOPIC, key=key, value=value, partition=partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(SECONDS) or errors:
        raise RuntimeError(f"the broker did not take all records: {errors[:1] or 'two minutes have passed'}")
