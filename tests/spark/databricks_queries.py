"""The SQL of docs, notebook and dashboard, and a folder's tables registered in a schema as in a catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from offsetstream.tables.schema import all_schemas

ROOT = Path(__file__).parents[2]
_CELLS = "-- COMMAND ----------"
_OF_DATABRICKS = ("-- Databricks notebook source", "-- MAGIC", "CREATE WIDGET")


def register(spark: SparkSession, schema: str, root: Path) -> None:
    """Make a schema that has every table of the folder."""
    spark.sql(f"CREATE SCHEMA {schema}")
    for table in all_schemas():
        spark.sql(f"CREATE TABLE {schema}.{table} USING delta LOCATION '{root / table}'")


def cells() -> list[str]:
    """Return the notebook's SQL cells without what only Databricks notebooks know."""
    text = (ROOT / "notebooks" / "first_queries.sql").read_text("utf-8")
    found = (cell.strip() for cell in text.split(_CELLS))
    return [cell for cell in found if not cell.startswith(_OF_DATABRICKS)]


def datasets() -> dict[str, str]:
    """Return the dashboard's queries by name."""
    dashboard = json.loads((ROOT / "dashboards" / "kafka_offsets.lvdash.json").read_text("utf-8"))
    return {each["name"]: "".join(each["queryLines"]) for each in dashboard["datasets"]}


def of_python_page(root: Path, group: str) -> str:
    """Return the query of docs/how-to/python.md that reads a table by path, for the tables of the folder."""
    (query,) = re.findall(r"``(SELECT .*?)``", (ROOT / "docs" / "how-to" / "python.md").read_text("utf-8"))
    return str(query).replace("tables/", f"{root}/").replace("billing", group)


def answers(spark: SparkSession, schema: str, root: Path, group: str) -> Iterator[tuple[str, DataFrame]]:
    """Run everything, the notebook's first cell before the others, because it enters the schema."""
    yield "python.md", spark.sql(of_python_page(root, group))
    for cell in cells():
        yield cell, spark.sql(cell, {"schema_name": schema, "group_id": group})
    for name, query in datasets().items():
        yield name, spark.sql(query)
