"""Folders with any name, as Spark and Hadoop read and write them. tests/unit covers delta-rs."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from offsetstream.stream.lifecycle.checkpoint import next_checkpoint
from offsetstream.tables.create import create_tables
from offsetstream.tables.files import CLOSED_FILE_BYTES, SmallFiles
from offsetstream.tables.lease import Lease
from offsetstream.tables.path_store import PathStore
from testkit.tables import append_rows
from tests.unit.tables.test_location import NAMES

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_checkpoints_in_a_folder_of_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    tables = PathStore(str(tmp_path / name / "tables"))
    create_tables(tables, "cluster-1", "new")
    for number in range(2):
        append_rows(Path(tables.root), "groups", [{"offsets_partition": number, "group_id": name}])
    tables.files(tables.open("groups")).compact(SmallFiles(None, 2, CLOSED_FILE_BYTES, is_closed=True))
    assert len(DeltaTable(tables.table("groups")).file_uris()) == 1
    assert spark.read.format("delta").load(tables.table("groups")).count() == 2
    checkpoint = next_checkpoint(spark, str(tmp_path / name / "checkpoints"), Lease.acquire(tables), tables)
    checkpoint.sign(tables)
    assert (tmp_path / name / "checkpoints" / str(checkpoint.checkpoint_id) / "tables").exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]
