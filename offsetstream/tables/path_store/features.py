"""What users and platforms switch on in our tables: what is written along with, and what is refused, with the way back.

A user's columns, comments and CHECK constraints that our rows fulfil are kept, and so are the change data feed and v2
checkpoints. What is refused delta-rs cannot write (tried, 1.6), or our own files cannot have.
"""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from offsetstream.errors import TablesError
from offsetstream.tables.schema import SWITCHED_OFF
from offsetstream.tables.sql import quoted

_WRITTEN = {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "generatedColumns",
    "timestampNtz",
    "v2Checkpoint",
    # In the protocol alone these change nothing; the properties below switch them on.
    "columnMapping",
    "deletionVectors",
    # delta-rs (1.6) adds them by itself where it sets a property.
    "variantType",
    "variantType-preview",
}
_RULES = {"delta.invariants", "delta.generationExpression"}
_CONSTRAINT = "delta.constraints."
# What is to be done beside setting a property.
_BESIDE = {"delta.enableDeletionVectors": "REORG TABLE {table} APPLY (PURGE)"}
# Features that are there for the sake of another go after it.
_LAST = ("domainMetadata",)
# Of which Delta (4.4) says itself that they cannot be dropped.
_FOR_EVER = {"clustering", "allowColumnDefaults", "identityColumns"}


def refuse_features(table: DeltaTable) -> None:
    """Raise TablesError if the table has a Delta feature that the job cannot write, with the SQL that undoes it."""
    configuration, name = table.metadata().configuration, _sql_name(table)
    commands, what = [], []
    for switch, off in SWITCHED_OFF.items():
        if configuration.get(switch, off).lower() != off:
            what.append(f"{switch}={configuration[switch]}")
            commands.append(f"ALTER TABLE {name} SET TBLPROPERTIES ('{switch}' = '{off}')")
            commands += [_BESIDE[switch].format(table=name)] if switch in _BESIDE else []
    protocol = table.protocol()
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())} - _WRITTEN
    for feature in sorted(features, key=lambda feature: (feature in _LAST, feature)):
        what.append(feature)
        commands.append(f"ALTER TABLE {name} DROP FEATURE {feature}")
    if what:
        back = f"undo them in Spark SQL by {'; '.join(commands)}"
        if features & _FOR_EVER:
            back = "Delta cannot take them back: delete its folder, and the job makes it anew with what the topic has"
        raise TablesError(
            f"the table {table.table_uri} has Delta features that the job cannot write ({', '.join(what)}): {back}"
        )


def constraints(table: DeltaTable) -> dict[str, str]:
    """Return the table's CHECK constraints, none of which is ours, by name."""
    found = sorted(table.metadata().configuration.items())  # delta-rs gives them in any order
    return {key.removeprefix(_CONSTRAINT): check for key, check in found if key.startswith(_CONSTRAINT)}


def checks_rows(table: DeltaTable) -> bool:
    """Tell whether rows are to be asked something that nobody has asked of the rows in a file."""
    fields = table.schema().fields
    return bool(constraints(table)) or any(not field.nullable or _RULES & {*field.metadata} for field in fields)


def has_deletion_vectors(table: DeltaTable) -> bool:
    """Tell whether a file may have rows that are deleted: also where the property was switched off again."""
    return "deletionVectors" in (table.protocol().reader_features or ())


def explained(error: DeltaError, table: DeltaTable) -> TablesError | None:
    """Return what an error of a write means for whoever has changed the table; None if it is another one's."""
    if "failed validation check" in str(error) and (checks := constraints(table)):
        named = ", ".join(f"{name} ({check})" for name, check in checks.items())
        drop = ", or by ".join(f"ALTER TABLE {_sql_name(table)} DROP CONSTRAINT {name}" for name in checks)
        return TablesError(
            f"rows of the job violate a CHECK constraint of the table {table.table_uri}, of which there are {named}: "
            f"drop it in Spark SQL by {drop}"
        )
    if "Unsupported table features required" in str(error):
        try:
            refuse_features(DeltaTable(table.table_uri))
        except TablesError as refused:
            return refused
    return None


def _sql_name(table: DeltaTable) -> str:
    return f"delta.{quoted(table.table_uri)}"
