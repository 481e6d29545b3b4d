"""Record batches as a broker reads them when it loads a log: with producers, transactions and control records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

NO_PRODUCER = -1


class ControlType(IntEnum):
    """The markers that end a transaction (Kafka's ControlRecordType). A coordinator ignores all other types."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record: its offset in the partition, its timestamp in milliseconds (None if it has none), key and value."""

    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A batch as it is in the log. Compaction may have removed some of its records, or all.

    `next_offset` is the offset after the batch's last one, even if that record is gone. `size` is the batch's size in
    bytes. `producer_id` is `NO_PRODUCER` if no idempotent producer wrote the batch. In a control batch, the keys of the
    records are markers (see `control_type`).
    """

    base_offset: int
    next_offset: int
    records: tuple[LogRecord, ...]
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    is_transactional: bool = False
    is_control: bool = False
    size: int = 0


def control_type(record: LogRecord) -> int | None:
    """Return the type of a control record: a `ControlType` or another number. None if its key is not a marker.

    A marker's key has a version and a type, 16 bits each (Kafka's ControlRecordType.parseTypeId).
    """
    if record.key is None or len(record.key) < 4:  # noqa: PLR2004 - two numbers of 16 bits
        return None
    version = int.from_bytes(record.key[:2], "big", signed=True)
    return int.from_bytes(record.key[2:4], "big", signed=True) if version >= 0 else None
