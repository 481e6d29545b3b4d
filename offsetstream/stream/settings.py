"""What a user says of the job."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from offsetstream.stream.apply.load import MAX_OFFSETS_AT_ONCE
from offsetstream.stream.monitor.hanging import DEFAULT_MAX_TRANSACTION_TIMEOUT
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.write import StateWrites

DEFAULT_MAX_SILENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class JobSettings:
    """The settings; ``trigger`` in Spark's words, such as ``10 seconds``.

    ``max_silence``: how long a cluster may not answer before the job gives up. ``force_lease``: take over at once from
    whichever job holds the lease.
    """

    bootstrap_server: str
    tables: PathStore
    checkpoint: str
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    trigger: str = "10 seconds"
    once: bool = False
    coordinator: str | None = None  # new or classic; None asks the brokers
    max_offsets_per_trigger: int = MAX_OFFSETS_AT_ONCE
    max_transaction_timeout: timedelta = DEFAULT_MAX_TRANSACTION_TIMEOUT
    max_silence: timedelta = DEFAULT_MAX_SILENCE
    keeps_history: bool = True  # or only what a record that cannot be decoded was, and the events of partitions
    state_writes: StateWrites = StateWrites.AUTO
    force_lease: bool = False
