"""Files and features of other writers in our tables: compaction and replacement lose or double no row."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from offsetstream.errors import TablesError
from offsetstream.tables.files import CLOSED_FILE_BYTES, NewFile, SmallFiles
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.path_store.data_file import DataFile
from offsetstream.tables.path_store.snapshot import append_written, replace_by_written
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import EVERY_ROW
from testkit.tables import append_rows

GROUPS, RECORDS = "groups", "group_records"
DAY = date(2026, 11, 1)
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def rows_of(*groups: str) -> pa.Table:
    schema = load_schema(GROUPS).arrow
    rows = [dict.fromkeys(schema.names) | {"offsets_partition": 1, "group_id": group} for group in groups]
    return pa.Table.from_pylist(rows, schema=schema)


def append(tables: PathStore, *groups: str) -> None:
    for group in groups:
        append_rows(Path(tables.root), GROUPS, [{"offsets_partition": 1, "group_id": group}])


def groups_in(tables: PathStore) -> list[str]:
    return sorted(row["group_id"] for row in read_rows(tables.open(GROUPS)))


def written(tables: PathStore, rows: pa.Table) -> list[NewFile]:
    file = DataFile(tables.table(GROUPS), None)
    file.write(rows)
    new = file.close()
    assert new is not None
    return [new]


def compact(tables: PathStore, name: str = GROUPS) -> None:
    files = tables.files(tables.open(name))
    files.compact(SmallFiles(None, files.present().files, CLOSED_FILE_BYTES, is_closed=True))


def replace(tables: PathStore) -> None:
    replace_by_written(tables.open(GROUPS), EVERY_ROW, written(tables, rows_of("new")), ())


def commit(table: str, *actions: dict[str, Any]) -> None:
    """Commit like another writer."""
    log = Path(table, "_delta_log", f"{DeltaTable(table).version() + 1:020}.json")
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def added(table: str, path: str, name: str, **partition: str) -> dict[str, Any]:
    size = Path(table, path).stat().st_size
    return {
        "add": {"path": name, "partitionValues": partition, "size": size, "modificationTime": 1, "dataChange": True}
    }


def of_log(table: str, kind: str) -> dict[str, Any]:
    """Return the last action of this kind in the table's log."""
    log = sorted(Path(table, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for file in log for line in file.read_text().splitlines()]
    found: dict[str, Any] = [action[kind] for action in actions if kind in action][-1]
    return found


def deletion_vector(row: int) -> dict[str, Any]:
    """Return an inline deletion vector for one row of a file (Delta's protocol, "Deletion Vector Format")."""
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    content = struct.pack("<iqi", 1681511377, 1, 0) + bitmap
    padded, text = content + b"\0" * (-len(content) % 4), ""
    for (number,) in struct.iter_unpack(">I", padded):
        text += "".join(_Z85[number // 85**place % 85] for place in range(4, -1, -1))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(content), "cardinality": 1}


@pytest.mark.parametrize(("exchange", "left"), [(compact, ["a", "b", "c"]), (replace, ["new"])])
def test_a_file_whose_name_is_escaped_in_the_log(
    tables: PathStore, exchange: Callable[[PathStore], None], left: list[str]
) -> None:
    append(tables, "a", "b")
    pq.write_table(rows_of("c"), Path(tables.table(GROUPS), "an other.parquet"))
    commit(tables.table(GROUPS), added(tables.table(GROUPS), "an other.parquet", "an%20other.parquet"))
    assert groups_in(tables) == ["a", "b", "c"]
    exchange(tables)
    assert (groups_in(tables), len(DeltaTable(tables.table(GROUPS)).file_uris())) == (left, 1)


def test_times_of_spark_without_a_zone_are_utc(tables: PathStore) -> None:
    """Spark writes INT96. Beside our own files, DuckDB would take them for times of the machine's zone."""
    place, at = Path(tables.table("committed_offsets")), datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{"offsets_partition": 1, "group_id": group, "record_timestamp": at} for group in ("ours", "spark")]
    for number in (0, 1):
        append_rows(Path(tables.root), "committed_offsets", rows[number : number + 1])
    (file,) = (path for path in place.glob("*.parquet") if pq.read_table(path)["group_id"].to_pylist() == ["spark"])
    pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
    code = (
        "from offsetstream.tables.lookup import Lookup; from offsetstream.tables.path_store import PathStore; "
        f"print(Lookup(PathStore({tables.root!r})).rows('committed_offsets', ['group_id', 'record_timestamp_ms']))"
    )
    for left in (["ours", "spark"], ["spark"]):
        said = subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"TZ": "America/New_York"})
        found = {row["group_id"]: row["record_timestamp_ms"] for row in literal_eval(said.decode())}
        assert found == dict.fromkeys(left, int(at.timestamp() * 1000))
        DeltaTable(str(place)).delete("group_id = 'ours'")


def with_a_deletion_vector(tables: PathStore) -> None:
    """Turn the property off again: existing deletion vectors stay."""
    append(tables, "a", "b")
    table = tables.table(GROUPS)
    last = of_log(table, "add")
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    gone = {name: last[name] for name in ("path", "partitionValues", "size")} | {"deletionTimestamp": 1}
    commit(
        table,
        {"protocol": protocol | {"writerFeatures": ["deletionVectors", "appendOnly", "invariants"]}},
        {"remove": gone | {"dataChange": True, "extendedFileMetadata": True}},
        {"add": last | {"deletionVector": deletion_vector(0)}},
    )
    assert groups_in(tables) == ["a"]


def test_rows_in_a_deletion_vector_stay_deleted(tables: PathStore) -> None:
    with_a_deletion_vector(tables)
    with pytest.raises(TablesError, match=r"cannot compact the files of .*: they may have deletion vectors"):
        compact(tables)
    append_written(tables.open(GROUPS), written(tables, rows_of("more")), ())
    assert groups_in(tables) == ["a", "more"]
    replace(tables)
    assert groups_in(tables) == ["new"]


def test_columns_under_other_names_are_refused(tables: PathStore) -> None:
    """Column mapping as in protocol (2, 5), before there were reader features."""
    append(tables, "a", "b")
    table = tables.table(GROUPS)
    metadata = of_log(table, "metaData")
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"]):
        physical = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        field["metadata"] |= physical
    metadata["configuration"] |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "99"}
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    commit(table, {"protocol": protocol}, {"metaData": metadata | {"schemaString": json.dumps(schema)}})
    file = written(tables, rows_of("more"))
    for write in (append_written, partial(replace_by_written, where=EVERY_ROW)):
        with pytest.raises(TablesError, match=r"delta\.columnMapping\.mode=name"):
            write(tables.open(GROUPS), files=file, transactions=())
    with pytest.raises(TablesError, match=r"delta\.columnMapping\.mode=name"):
        compact(tables)


def test_a_column_that_may_not_be_null(tables: PathStore) -> None:
    table = tables.table(GROUPS)
    metadata = of_log(table, "metaData")
    schema = json.loads(metadata["schemaString"])
    for field in schema["fields"]:
        field["nullable"] = field["name"] != "state"
    commit(table, {"metaData": metadata | {"schemaString": json.dumps(schema)}})
    for write in (append_written, partial(replace_by_written, where=EVERY_ROW)):
        with pytest.raises(TablesError):
            write(tables.open(GROUPS), files=written(tables, rows_of("a")), transactions=())
    assert groups_in(tables) == []


def test_files_that_contain_the_partition_column(tables: PathStore) -> None:
    schema, table = load_schema(RECORDS).arrow, tables.table(RECORDS)
    for number in range(2):
        row = dict.fromkeys(schema.names) | {"record_offset": number, "written_day": DAY}
        path = f"written_day={DAY}/{number}.parquet"
        Path(table, path).parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist([row], schema=schema), Path(table, path))
        commit(table, added(table, path, path, written_day=str(DAY)))
    compact(tables, RECORDS)
    rows = read_rows(tables.open(RECORDS))
    assert sorted((row["record_offset"], row["written_day"]) for row in rows) == [(0, DAY), (1, DAY)]


def test_features_that_delta_rs_adds_itself_are_not_refused(tables: PathStore) -> None:
    table = tables.open(GROUPS)
    table.delta.alter.add_columns([Field("seen_at", PrimitiveType("timestamp_ntz"))])
    table.delta.alter.set_table_properties({"mine": "1"}, raise_if_not_exists=False)
    tables.open(GROUPS).require_writable()
