"""Lost and damaged files of tables: which tables the job makes anew by itself, and what readers do not notice."""

from __future__ import annotations

from offsetstream.tables.names import (
    CLUSTER,
    DECODED_LOGS,
    DECODED_TABLES,
    JOB_LEASE,
    LEDGER,
    OFFSETS_PARTITIONS,
    STATE_TABLES,
    TOPIC_PARTITIONS,
)
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.store import Store

# Tables that the job can fill again: from the topic, from the history, or by a new look at the cluster.
MADE_ANEW = frozenset(
    {
        *STATE_TABLES,
        OFFSETS_PARTITIONS,
        JOB_LEASE,
        LEDGER,
        *DECODED_TABLES,
        DECODED_LOGS,
        TOPIC_PARTITIONS,
        CLUSTER,
    }
)
# Without the ledger nobody can tell which rows a history lost before. So a person decides about it.
HEALED_BY_JOB = MADE_ANEW - {LEDGER}


def require_whole_logs(store: Store) -> None:
    """Raise DamagedTableError if the last entry of a log is empty, as a crash of the machine may leave it.

    Readers take it for a commit that changes nothing. All other damage they notice.
    """
    for name in all_schemas():
        folder = store.folder(name)
        if folder is not None and (damage := folder.empty_entry()) is not None:
            raise folder.error_of(damage)
