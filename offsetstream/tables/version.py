"""The schema version, which every table has as a property. Imports little, because every look-up checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offsetstream.errors import TablesError

if TYPE_CHECKING:
    from offsetstream.tables.store import Snapshot, Source

SCHEMA_VERSION = 8  # raised by any change of a table or of its properties
PROPERTY = "offsetstream.schema_version"


def refuse_newer(table: Snapshot | Source) -> None:
    """Raise TablesError if a newer version of the program made the table."""
    found = table.properties.get(PROPERTY, "")
    if found.isdigit() and int(found) > SCHEMA_VERSION:
        raise TablesError(
            f"the table {table.where} has schema version {found}, but this offsetstream knows versions "
            f"up to {SCHEMA_VERSION}: upgrade offsetstream"
        )
