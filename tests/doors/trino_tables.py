"""Trino reads every table as delta-rs does: `make trino` (a gigabyte of download the first time, then a minute)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from offsetstream.tables.schema import all_schemas
from testkit.night import night_tables
from tests.doors.trino import Trino, java_for_trino, trino


def differences(server: Trino, root: Path) -> list[str]:
    """Register each table, and compare its rows' number, greatest text, and columns' comments."""
    server.rows("CREATE SCHEMA delta.kafka")
    found = []
    for name, schema in all_schemas().items():
        server.rows(f"CALL delta.system.register_table('kafka', '{name}', 'local:///tables/{name}')")
        text = next((column.name for column in schema.columns if column.type == "STRING"), schema.column_names[0])
        query = f'SELECT count(*), count("{text}"), max("{text}") FROM '  # noqa: S608
        theirs = server.rows(query + f"delta.kafka.{name}")[0]
        builder = QueryBuilder().register("ours", DeltaTable(root / "tables" / name))
        ours = list(pa.table(builder.execute(query + "ours")).to_pylist()[0].values())
        comments = [(row[0], row[3]) for row in server.rows(f"DESCRIBE delta.kafka.{name}")]
        if theirs != ours:
            found.append(f"{name}: Trino has {theirs}, delta-rs {ours}")
        if comments != [(column.name, column.comment) for column in schema.columns]:
            found.append(f"{name}: other comments")
        print(f"{name}: {theirs[0]} rows")
    return found


def main() -> None:
    """Exit code 1 with each table that differs."""
    with tempfile.TemporaryDirectory(prefix="offsetstream-trino-") as folder:
        root = Path(folder)
        night_tables(root / "tables")
        with trino(java_for_trino(), root) as server:
            found = differences(server, root)
    sys.exit("\n".join(found) or 0)


if __name__ == "__main__":
    main()
