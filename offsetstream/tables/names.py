"""Names that code and tables share: of the tables, and of what a partition's load may be."""

from __future__ import annotations

from typing import Literal, TypeAlias

OFFSETS_PARTITIONS, PARTITION_EVENTS = "offsets_partitions", "partition_events"

LoadState: TypeAlias = Literal["LOADING", "OWNED", "FAILED", "UNLOADED"]
LOADING: LoadState = "LOADING"
OWNED: LoadState = "OWNED"
FAILED: LoadState = "FAILED"
UNLOADED: LoadState = "UNLOADED"
