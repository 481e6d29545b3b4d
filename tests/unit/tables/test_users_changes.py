"""Tables that users have changed: writes keep supported changes, and refuse others with the command to undo them.

tests/kafka/test_restarts.py has a job meet such tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import ArrayType, PrimitiveType, StructType

from offsetstream.errors import TablesError
from offsetstream.tables.create import create_tables
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from testkit.tables import snapshot_at
from tests.unit.tables.small_writes import WRITES, SmallWrite

EVERY_WRITE = pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)


def notes(tables: PathStore, write: SmallWrite) -> list[tuple[Any, Any]]:
    found = read_rows(tables.open(write.table))
    return sorted(((row[write.column], row["My note"]) for row in found), key=str)


@EVERY_WRITE
def test_a_users_columns_are_kept(tables: PathStore, write: SmallWrite) -> None:
    write.prepare(tables)
    path = tables.table(write.table)
    nested = StructType([Field("deep", ArrayType(PrimitiveType("string"), contains_null=True))])
    DeltaTable(path).alter.add_columns([Field("My note", PrimitiveType("string")), Field("nested", nested)])
    DeltaTable(path).update({"My note": "'mine'"})
    DeltaTable(path).alter.set_table_description("my own")
    stayed = len(read_rows(snapshot_at(path)))
    create_tables(tables, "cluster-1", "new")
    write.run(tables)
    assert write.found(tables) == write.expected
    mine = [note for _, note in notes(tables, write)]
    assert set(mine) <= {"mine", None}
    lost = {
        "retention": 1,
        "load": 0,
        "names of topics": stayed,
    }  # removed rows; rows with a new key
    assert mine.count("mine") == stayed - lost.get(write.name, 0)
    assert DeltaTable(path).metadata().description == "my own"


@EVERY_WRITE
def test_a_satisfied_check_constraint_does_not_block_writes(tables: PathStore, write: SmallWrite) -> None:
    write.prepare(tables)
    path = tables.table(write.table)
    DeltaTable(path).alter.add_constraint({"mine": f"{write.column} IS NOT NULL OR {write.column} IS NULL"})
    create_tables(tables, "cluster-1", "new")
    write.run(tables)
    assert write.found(tables) == write.expected


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("merge", "state <> 'new'"),
        ("new rows", "state <> 'new'"),
        ("load", "state <> 'new'"),
        ("append", "record_offset < 2"),
        ("append of files", "record_offset < 2"),
        ("events", "offsets_partition < 2"),
        ("book", "next_offset < 2"),
    ],
)
def test_a_violated_check_constraint_is_reported_with_the_command_to_drop_it(
    tables: PathStore, name: str, check: str
) -> None:
    write = next(write for write in WRITES if write.name == name)
    write.prepare(tables)
    path = tables.table(write.table)
    before = write.found(tables)
    DeltaTable(path).alter.add_constraint({"mine": check})
    with pytest.raises(TablesError, match="violate a CHECK constraint of the table") as told:
        write.run(tables)
    assert "\n" not in str(told.value)
    assert str(told.value).endswith(f"ALTER TABLE delta.`{DeltaTable(path).table_uri}` DROP CONSTRAINT mine")
    assert write.found(tables) == before
    DeltaTable(path).alter.drop_constraint("mine")
    write.run(tables)
    assert write.found(tables) == write.expected


def switch_on(path: str, properties: dict[str, str], features: tuple[str, ...], *, of_readers: bool = False) -> None:
    """Commit like a platform: properties, and features of the protocol."""
    log = sorted(Path(path, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for file in log for line in file.read_text().splitlines()]
    metadata = [action["metaData"] for action in actions if "metaData" in action][-1]
    metadata["configuration"] |= properties
    if "columnMapping" in features:
        schema = json.loads(metadata["schemaString"])
        for number, field in enumerate(schema["fields"]):
            mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
            field["metadata"] |= mapped
        metadata["schemaString"] = json.dumps(schema)
    protocol: dict[str, Any] = {"minReaderVersion": 3 if of_readers else 1, "minWriterVersion": 7}
    protocol |= {"readerFeatures": list(features)} if of_readers else {}
    protocol["writerFeatures"] = ["appendOnly", "invariants", *features]
    lines = [json.dumps(action) for action in ({"protocol": protocol}, {"metaData": metadata})]
    Path(path, "_delta_log", f"{DeltaTable(path).version() + 1:020}.json").write_text("\n".join(lines) + "\n")


WRITTEN_ALONG = [
    ({"delta.enableChangeDataFeed": "true"}, ("changeDataFeed",)),
    ({"delta.checkpointPolicy": "v2"}, ("v2Checkpoint",)),
]


@pytest.mark.parametrize(
    ("write", "properties", "features"),
    [pytest.param(write, *WRITTEN_ALONG[number % 2], id=write.name) for number, write in enumerate(WRITES)],
)
def test_supported_features_stay_on(
    tables: PathStore, write: SmallWrite, properties: dict[str, str], features: tuple[str, ...]
) -> None:
    write.prepare(tables)
    switch_on(tables.table(write.table), properties, features, of_readers="v2Checkpoint" in features)
    create_tables(tables, "cluster-1", "new")
    write.run(tables)
    assert write.found(tables) == write.expected


REFUSED: list[tuple[dict[str, str], tuple[str, ...], str]] = [
    ({"delta.enableDeletionVectors": "true"}, ("deletionVectors",), "REORG TABLE {table} APPLY (PURGE)"),
    (
        {"delta.columnMapping.mode": "name"},
        ("columnMapping",),
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')",
    ),
    ({"delta.appendOnly": "true"}, (), "SET TBLPROPERTIES ('delta.appendOnly' = 'false')"),
    ({"delta.enableRowTracking": "true"}, ("rowTracking", "domainMetadata"), "DROP FEATURE domainMetadata"),
    (
        {},
        ("clustering", "domainMetadata"),
        "(clustering, domainMetadata): Delta cannot drop them: delete the table's folder",
    ),
    ({"delta.enableInCommitTimestamps": "true"}, ("inCommitTimestamp",), "DROP FEATURE inCommitTimestamp"),
    ({}, ("allowColumnDefaults",), "Delta cannot drop them"),
    ({}, ("identityColumns",), "Delta cannot drop them"),
    ({}, ("of-tomorrow",), "DROP FEATURE of-tomorrow"),
]


@pytest.mark.parametrize(("properties", "features", "command"), REFUSED)
@pytest.mark.parametrize("name", ["groups", "offset_commits"])
def test_unsupported_features_are_refused_at_the_start(
    tables: PathStore, name: str, properties: dict[str, str], features: tuple[str, ...], command: str
) -> None:
    path = tables.table(name)
    switch_on(path, properties, features, of_readers=bool({"deletionVectors", "columnMapping"} & set(features)))
    with pytest.raises(TablesError, match="has Delta features that the job cannot write") as told:
        create_tables(tables, "cluster-1", "new")
    assert "\n" not in str(told.value)
    assert command.format(table=f"delta.`{DeltaTable(path).table_uri}`") in str(told.value)


def test_a_feature_turned_on_while_the_job_runs_is_reported_the_same_way(tables: PathStore) -> None:
    write = WRITES[0]
    write.prepare(tables)
    switch_on(tables.table(write.table), {"delta.enableRowTracking": "true"}, ("rowTracking", "domainMetadata"))
    with pytest.raises(TablesError, match=r"\(delta.enableRowTracking=true, rowTracking, domainMetadata\): undo them"):
        write.run(tables)
