"""Delta features that users and platforms turn on in our tables: which ones we support, and how to undo the others.

Supported are a user's columns and comments, CHECK constraints that our rows satisfy, the change data feed and v2
checkpoints. Refused are features that delta-rs cannot write (tested with 1.6) or that our own files cannot have.
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
    # These have no effect while they are only in the protocol; properties (SWITCHED_OFF) turn them on.
    "columnMapping",
    "deletionVectors",
    # delta-rs (1.6) adds these itself when it sets a property.
    "variantType",
    "variantType-preview",
}
_RULES = {"delta.invariants", "delta.generationExpression"}
_CONSTRAINT = "delta.constraints."
# Commands that are needed in addition to a property.
_ALSO = {"delta.enableDeletionVectors": "REORG TABLE {table} APPLY (PURGE)"}
# Another feature needs this one, so it must be dropped last.
_LAST = ("domainMetadata",)
# Features that Delta (4.4) cannot drop.
_PERMANENT = {"clustering", "allowColumnDefaults", "identityColumns"}


def refuse_features(table: DeltaTable) -> None:
    """Raise TablesError if the table has a Delta feature that the job cannot write; it contains the SQL to undo it."""
    configuration, name = table.metadata().configuration, _sql_name(table)
    commands, found = [], []
    for switch, off in SWITCHED_OFF.items():
        if configuration.get(switch, off).lower() != off:
            found.append(f"{switch}={configuration[switch]}")
            commands.append(f"ALTER TABLE {name} SET TBLPROPERTIES ('{switch}' = '{off}')")
            commands += [_ALSO[switch].format(table=name)] if switch in _ALSO else []
    protocol = table.protocol()
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())} - _WRITTEN
    for feature in sorted(features, key=lambda feature: (feature in _LAST, feature)):
        found.append(feature)
        commands.append(f"ALTER TABLE {name} DROP FEATURE {feature}")
    if found:
        remedy = f"undo them in Spark SQL with {'; '.join(commands)}"
        if features & _PERMANENT:
            remedy = "Delta cannot drop them: delete the table's folder; the job creates it again from the topic"
        raise TablesError(
            f"the table {table.table_uri} has Delta features that the job cannot write ({', '.join(found)}): {remedy}"
        )


def constraints(table: DeltaTable) -> dict[str, str]:
    """Return the table's CHECK constraints by name; all are a user's."""
    found = sorted(table.metadata().configuration.items())  # delta-rs returns them in random order
    return {key.removeprefix(_CONSTRAINT): check for key, check in found if key.startswith(_CONSTRAINT)}


def checks_rows(table: DeltaTable) -> bool:
    """Return whether the table has rules for rows, which nobody checks when finished files are added."""
    fields = table.schema().fields
    return bool(constraints(table)) or any(not field.nullable or _RULES & {*field.metadata} for field in fields)


def has_deletion_vectors(table: DeltaTable) -> bool:
    """Return whether files may have deletion vectors; they may even after the property was turned off again."""
    return "deletionVectors" in (table.protocol().reader_features or ())


def explain_write_error(error: DeltaError, table: DeltaTable) -> TablesError | None:
    """Return the error to report for a failed write if a user's change to the table caused it; else None."""
    if "failed validation check" in str(error) and (checks := constraints(table)):
        listed = ", ".join(f"{name} ({check})" for name, check in checks.items())
        drop = ", or ".join(f"ALTER TABLE {_sql_name(table)} DROP CONSTRAINT {name}" for name in checks)
        return TablesError(
            f"rows of the job violate a CHECK constraint of the table {table.table_uri}; it has {listed}: "
            f"drop the constraint in Spark SQL with {drop}"
        )
    if "Unsupported table features required" in str(error):
        try:
            refuse_features(DeltaTable(table.table_uri))
        except TablesError as refused:
            return refused
    return None


def _sql_name(table: DeltaTable) -> str:
    return f"delta.{quoted(table.table_uri)}"
