"""Create the tables of a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from offsetstream.errors import ConflictError, TablesError, first_line
from offsetstream.tables.catalog_store.commits import CHANGES, as_first_commit
from offsetstream.tables.catalog_store.errors import is_conflict
from offsetstream.tables.schema import SWITCHED_OFF, TableSchema
from offsetstream.tables.sql import literal, quoted

if TYPE_CHECKING:
    from offsetstream.tables.catalog_store.store import CatalogStore
    from offsetstream.tables.store import Snapshot


# Spark deletes old log files when it writes a checkpoint. They contain our notes, so they must outlast a suspended job.
PROPERTIES = {"delta.enableExpiredLogCleanup": "true", "delta.logRetentionDuration": "interval 7 days"}
_NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"

# Without these, a table gets what its session or workspace sets for new tables. Users may turn on the last two later.
_PLAIN = {
    **SWITCHED_OFF,
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.enableChangeDataFeed": "false",
    "delta.checkpointPolicy": "classic",
}


def create_table(store: CatalogStore, schema: TableSchema, properties: Mapping[str, str]) -> None:
    """Create a table unless it exists; TablesError if the catalog rejects it."""
    name, spark = store.table(schema.name), store.writer_session(schema.name, CHANGES).spark
    in_catalog = f"{quoted(store.catalog)}.{quoted(store.schema)}"
    columns = schema.columns_sql
    partitioned = f"PARTITIONED BY ({', '.join(schema.partitioned_by)})" if schema.partitioned_by else ""
    try:
        if not spark.catalog.databaseExists(in_catalog):  # so an existing one needs no rights
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {in_catalog}")
        with as_first_commit(spark):
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING delta {partitioned} "
                f"COMMENT {literal(schema.comment)} "
                f"TBLPROPERTIES {options_of({**_PLAIN, **schema.properties, **PROPERTIES, **properties})}"
            )
    except (PySparkException, Py4JJavaError) as error:
        # Another process may have just created it, or has made its folder and is about to.
        is_half_made = isinstance(error, PySparkException) and error.getCondition() == _NOT_EMPTY
        if (_appeared(store, schema.name) if is_half_made else store.opened(schema.name)) is not None:
            return
        if is_conflict(error):
            raise ConflictError(f"another process creates the table {store.name}.{schema.name}") from error
        cause = error.java_exception if isinstance(error, Py4JJavaError) else error
        raise TablesError(
            f"cannot create the table {store.name}.{schema.name}: {first_line(cause)}: get the rights to create it, or "
            "name another catalog and schema with --tables"
        ) from error


@retry(
    retry=retry_if_result(lambda table: table is None),
    stop=stop_after_delay(5),
    wait=wait_fixed(0.2),
    retry_error_callback=lambda _: None,
)
def _appeared(store: CatalogStore, name: str) -> Snapshot | None:
    """Return the table as soon as it is there; None if it does not come."""
    return store.opened(name)


def options_of(properties: dict[str, str]) -> str:
    """Return properties as the SQL after TBLPROPERTIES."""
    return f"({', '.join(f'{literal(name)} = {literal(value)}' for name, value in properties.items())})"
