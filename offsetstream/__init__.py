"""Kafka's consumer-group state, replayed from __consumer_offsets into Delta tables.

`__all__` is what is public. Each name is imported when it is first used: `import offsetstream` starts nothing,
and who wants the codec only needs neither Spark nor a Kafka client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offsetstream.cluster.committed import CommittedOffset
    from offsetstream.cluster.consumers import auto_committing_consumer
    from offsetstream.cluster.offsets import commit_offsets, fetch_offsets
    from offsetstream.codec.udf import decode_udf
    from offsetstream.coordinator.cache import GroupMetadataCache
    from offsetstream.coordinator.partitioning import partition_for
    from offsetstream.errors import OffsetstreamError
    from offsetstream.frames import decode
    from offsetstream.reader import Tables, open_tables
    from offsetstream.stream.job import run
    from offsetstream.stream.settings import JobSettings

    __version__: str

__all__ = [
    "CommittedOffset",
    "GroupMetadataCache",
    "JobSettings",
    "OffsetstreamError",
    "Tables",
    "__version__",
    "auto_committing_consumer",
    "commit_offsets",
    "decode",
    "decode_udf",
    "fetch_offsets",
    "open_tables",
    "partition_for",
    "run",
]

_MODULES = {
    "CommittedOffset": "cluster.committed",
    "GroupMetadataCache": "coordinator.cache",
    "JobSettings": "stream.settings",
    "OffsetstreamError": "errors",
    "Tables": "reader",
    "auto_committing_consumer": "cluster.consumers",
    "commit_offsets": "cluster.offsets",
    "decode": "frames",
    "decode_udf": "codec.udf",
    "fetch_offsets": "cluster.offsets",
    "open_tables": "reader",
    "partition_for": "coordinator.partitioning",
    "run": "stream.job",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - slow to import, seldom wanted

        return version("offsetstream")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
