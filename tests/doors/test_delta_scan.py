"""DuckDB's own `delta_scan` reads the same rows as we do: from disk, from S3 (MinIO) and from Azure (azurite)."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from testkit.s3_server import s3_server
from testkit.tables import arrow_schema, table_schemas
from tests.doors.delta_scan import VERSION, as_files, duckdb_runs, run_python
from tests.stores.azure_store import CONTAINER, azure_store

pytestmark = pytest.mark.nightly

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
BI = (Path(__file__).parents[2] / "docs" / "how-to" / "bi.md").read_text("utf-8")


def require_all(tables: Path, found: Path) -> None:
    """Compare DuckDB's files with our reader's rows: columns, types and rows."""
    total = 0
    for name, schema in table_schemas().items():
        theirs, ours = pq.read_table(found / f"{name}.parquet"), read_rows(PathStore(str(tables)).open(name))
        assert _types(theirs.schema) == _types(arrow_schema(schema)), name
        assert sorted(map(repr, theirs.to_pylist())) == sorted(map(repr, _in_order(ours, schema.column_names))), name
        total += len(ours)
    assert total > 1_000


def test_tables_on_disk(night: Path, tmp_path: Path) -> None:
    duckdb_runs(tmp_path, *as_files(str(night), list(table_schemas()), tmp_path))
    require_all(night, tmp_path)


def test_tables_on_s3(night: Path, tmp_path: Path) -> None:
    with s3_server() as s3:
        pafs.copy_files(str(night), f"{s3.bucket}/tables", destination_filesystem=s3.files())
        place, key, password = (s3.endpoint.removeprefix("http://"), *(s3.environment[name] for name in KEYS))
        secret = documented("s3").replace("minio:9000", place).replace("'KEY'", f"'{key}'")
        secret = secret.replace("'SECRET'", f"'{password}'")
        statements = as_files(f"s3://{s3.bucket}/tables", list(table_schemas()), tmp_path)
        duckdb_runs(tmp_path, "LOAD httpfs", secret, *statements)
    require_all(night, tmp_path)


def test_tables_on_azure(night: Path, tmp_path: Path) -> None:
    with azure_store() as azure:
        pafs.copy_files(str(night), f"{CONTAINER}/tables", destination_filesystem=azure.files)
        secret = documented("azure").replace("CONNECTION'", f"{azure.connection}'")
        statements = as_files(f"{azure.uri}/tables", list(table_schemas()), tmp_path)
        duckdb_runs(tmp_path, "LOAD azure", secret, *statements, environment=azure.environment)
    require_all(night, tmp_path)


def test_tables_through_supersets_duckdb_driver(night: Path, tmp_path: Path) -> None:
    """Superset itself is not run: this is its driver, with the dataset that docs/how-to/bi.md names."""
    (query,) = [each.replace("/lake/kafka", str(night)) for each in BI.split("`") if "delta_scan('/lake" in each]
    code = """
import json, sys, sqlalchemy
settings = {"extension_directory": sys.argv[1], "autoinstall_known_extensions": False}
with sqlalchemy.create_engine("duckdb:///:memory:", connect_args={"config": settings}).connect() as connection:
    connection.exec_driver_sql("SET enable_progress_bar = false")  # it would be printed, as code of -c is interactive
    connection.exec_driver_sql(f"INSTALL '{sys.argv[2]}'")
    connection.exec_driver_sql("LOAD delta")
    print(json.dumps([row.group_id for row in connection.execute(sqlalchemy.text(json.load(sys.stdin)))]))
"""
    groups = [row["group_id"] for row in read_rows(PathStore(str(night)).open("groups"))]
    assert sorted(json.loads(run_python(code, tmp_path, query))) == sorted(groups)


def test_the_docs_name_the_tested_version() -> None:
    assert f"DuckDB {VERSION}" in BI


def documented(kind: str) -> str:
    """Return the statement in docs/how-to/bi.md that gives DuckDB the keys of a store."""
    (found,) = [line for line in BI.splitlines() if line.startswith(f"CREATE SECRET (TYPE {kind},")]
    return found


def _types(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(each.name, str(each.type)) for each in schema]


def _in_order(rows: list[dict[str, object]], columns: tuple[str, ...]) -> list[dict[str, object]]:
    return [{name: row[name] for name in columns} for row in rows]
