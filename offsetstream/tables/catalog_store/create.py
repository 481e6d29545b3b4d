"""Making the tables of a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from offsetstream.errors import TablesError, first_line
from offsetstream.tables.catalog_store.commits import as_first
from offsetstream.tables.catalog_store.names import options_of
from offsetstream.tables.schema import SWITCHED_OFF, ColumnSchema, TableSchema
from offsetstream.tables.sql import literal, quoted

if TYPE_CHECKING:
    from offsetstream.tables.catalog_store.store import CatalogStore

# Spark deletes old log files with its checkpoints; and they outlast a job that stands still, as commits have our notes.
PROPERTIES = {"delta.enableExpiredLogCleanup": "true", "delta.logRetentionDuration": "interval 7 days"}
# Else a table gets what its session or workspace sets for new ones. Users may switch the last two on later.
_PLAIN = {
    **SWITCHED_OFF,
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.enableChangeDataFeed": "false",
    "delta.checkpointPolicy": "classic",
}


def create_table(store: CatalogStore, schema: TableSchema, properties: Mapping[str, str]) -> None:
    """Create a table unless it is there; TablesError where the catalog refuses."""
    name, spark = store.table(schema.name), store.writer_session(schema.name)
    in_catalog = f"{quoted(store.catalog)}.{quoted(store.schema)}"
    columns = ", ".join(map(column_sql, schema.columns))
    partitioned = f"PARTITIONED BY ({', '.join(schema.partitioned_by)})" if schema.partitioned_by else ""
    try:
        if not spark.catalog.databaseExists(in_catalog):  # who may not create one needs only that it is there
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {in_catalog}")
        with as_first(spark):
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING delta {partitioned} "
                f"COMMENT {literal(schema.comment)} "
                f"TBLPROPERTIES {options_of({**_PLAIN, **schema.properties, **PROPERTIES, **properties})}"
            )
    except (PySparkException, Py4JJavaError) as error:
        said = error.java_exception if isinstance(error, Py4JJavaError) else error
        raise TablesError(
            f"cannot make the table {store.name}.{schema.name}: {first_line(said)}: name another catalog and schema "
            "by --tables, or ask for the rights"
        ) from error


def column_sql(column: ColumnSchema) -> str:
    """Return a column as CREATE TABLE and ADD COLUMNS have it."""
    return f"{quoted(column.name)} {column.type} COMMENT {literal(column.comment)}"
