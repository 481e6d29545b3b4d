"""The schema version, which every table has as a property. Imports little, because every look-up checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offsetstream.errors import TablesError

if TYPE_CHECKING:
    from offsetstream.tables.store import Snapshot, Source

SCHEMA_VERSION = 1  # a release that changes a table or its properties raises it
PROPERTY = "offsetstream.schema_version"


def require_version(table: Snapshot | Source, *, may_be_users: bool = False) -> None:
    """Raise TablesError if the table has another schema version, or none: then offsetstream did not create it.

    `may_be_users`: a user may have created the table, so it may have none.
    """
    found = table.properties.get(PROPERTY)
    if found is None and not may_be_users:
        raise TablesError(
            f"the table {table.where} has no schema version, so offsetstream did not create it: name another place "
            "with --tables"
        )
    if found not in (None, str(SCHEMA_VERSION)):
        raise TablesError(
            f"the table {table.where} has schema version {found}, and this offsetstream knows version "
            f"{SCHEMA_VERSION}: use the offsetstream that wrote it, or name another place with --tables, where the job "
            "loads everything again"
        )
