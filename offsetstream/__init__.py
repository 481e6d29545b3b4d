"""Kafka's consumer-group state, replayed from __consumer_offsets into Delta tables.

`__all__` lists the public names. Each name is imported at its first use, so `import offsetstream` is cheap. The codec
alone needs neither Spark nor a Kafka client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offsetstream.version import __version__

if TYPE_CHECKING:
    from offsetstream.cluster.answers import CommittedOffset
    from offsetstream.cluster.offsets import commit_offsets, fetch_offsets
    from offsetstream.cluster.records import auto_committing_consumer
    from offsetstream.codec.udf import decode_udf
    from offsetstream.coordinator.cache import GroupMetadataCache
    from offsetstream.coordinator.partitioning import partition_for
    from offsetstream.errors import OffsetstreamError
    from offsetstream.frames import decode
    from offsetstream.reader import Rows, Tables, open_tables
    from offsetstream.stream.job import run
    from offsetstream.stream.settings import JobSettings

__all__ = [
    "CommittedOffset",
    "GroupMetadataCache",
    "JobSettings",
    "OffsetstreamError",
    "Rows",
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

# Module of each name, and the extra of pyproject.toml that it needs.
_MODULES = {
    "CommittedOffset": ("cluster.answers", ""),
    "GroupMetadataCache": ("coordinator.cache", ""),
    "JobSettings": ("stream.settings", "spark"),
    "OffsetstreamError": ("errors", ""),
    "Rows": ("reader", ""),
    "Tables": ("reader", ""),
    "auto_committing_consumer": ("cluster.records", "cluster"),
    "commit_offsets": ("cluster.offsets", "spark"),
    "decode": ("frames", ""),
    "decode_udf": ("codec.udf", "spark"),
    "fetch_offsets": ("cluster.offsets", "spark"),
    "open_tables": ("reader", ""),
    "partition_for": ("coordinator.partitioning", ""),
    "run": ("stream.job", "spark"),
}
_IMPORTED_LATER = {"JobSettings": ("cluster.properties",)}  # report missing packages before first use


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _MODULES[name]
    try:
        for each in _IMPORTED_LATER.get(name, ()):
            import_module(f"{__name__}.{each}")
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if not extra:
            raise
        from offsetstream.errors import MissingPackageError  # noqa: PLC0415 - rarely used
        from offsetstream.settings.places import is_databricks  # noqa: PLC0415 - rarely used

        extra = "databricks" if extra == "spark" and is_databricks() else extra
        raise MissingPackageError((error.name or "").partition(".")[0], extra) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
