"""The broker settings that a coordinator's cache depends on."""

from __future__ import annotations

from dataclasses import dataclass

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class OffsetConfig:
    """Kafka's OffsetConfig, with the names of the broker settings. Sizes are bytes, times milliseconds.

    `offset_metadata_max_bytes` is a limit of UTF-16 code units, despite its name (reference 4.9). A load buffer that is
    too small grows, as in a broker. Compression, timeout and acks are for whoever appends the records.
    """

    offsets_topic_num_partitions: int = 50
    offsets_load_buffer_size: int = 5 * 1024 * 1024
    offsets_topic_compression_type: str = "none"
    offsets_commit_timeout_ms: int = 5000
    offsets_commit_required_acks: int = -1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * _DAY_MS
