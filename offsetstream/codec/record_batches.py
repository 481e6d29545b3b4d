"""A log's record batches, as a broker's loader meets them: with producers, transactions and control records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

NO_PRODUCER = -1


class ControlType(IntEnum):
    """What ends a transaction (Kafka's ControlRecordType; other numbers exist and mean nothing to a coordinator)."""

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
    """A batch as the log holds it; compaction may have left it any of its records, or none.

    `next_offset` is the one after the batch's last offset (also where that record is gone), `size` its bytes
    in the log. `producer_id` is `NO_PRODUCER` where no idempotent producer wrote it. The records of a control
    batch have markers as keys (`control_type`).
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
    """Return the type of a control record, a `ControlType` or another number; None if its key is no marker's.

    A marker's key is its version and its type, 16 bits each (Kafka's ControlRecordType.parseTypeId).
    """
    if record.key is None or len(record.key) < 4:  # noqa: PLR2004 - two numbers of 16 bits
        return None
    version = int.from_bytes(record.key[:2], "big", signed=True)
    return int.from_bytes(record.key[2:4], "big", signed=True) if version >= 0 else None
