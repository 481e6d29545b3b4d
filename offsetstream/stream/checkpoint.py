"""Numbered checkpoints: when the last one goes on, and when a new one starts (design, rule 8)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import SparkSession

from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.transaction import BatchId, app_id

LAST_WRITTEN = "offsets_partitions"  # its transaction is the last of a batch


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder of Spark's, ``<root>/<checkpoint_id>``."""

    spark: SparkSession
    root: str
    checkpoint_id: int

    @property
    def location(self) -> str:
        """The folder that Spark writes to."""
        return f"{self.root}/{self.checkpoint_id}"

    def end_offsets(self, batch_id: int) -> dict[int, int]:
        """Return where the batch ends in each partition (exclusive): Spark notes it before the batch runs."""
        path = self._path("offsets", str(batch_id))
        stream = path.getFileSystem(self._hadoop_conf()).open(path)
        try:
            text = self._jvm().org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        offsets = json.loads(text.splitlines()[2])[OFFSETS_TOPIC]  # after the version and the metadata
        return {int(partition): offset for partition, offset in offsets.items()}

    def fits(self, tables: TablesLocation) -> bool:
        """Tell whether the tables were written by this checkpoint up to where it stands.

        A checkpoint that is older than the tables would number its batches anew, and Delta would skip them silently.
        """
        version = DeltaTable(tables.table(LAST_WRITTEN)).transaction_version(app_id(LAST_WRITTEN))
        if version is None or version >> 32 != self.checkpoint_id or not self.exists("metadata"):
            return False
        applied = version & 0xFFFFFFFF
        return self._batches("commits") <= applied <= self._batches("offsets")

    def shut_out_older(self, tables: TablesLocation) -> None:
        """Commit an empty write to every table, after which no job with an older checkpoint can write a batch."""
        version = BatchId(self.checkpoint_id, -1).version
        for name in all_schemas():
            table = DeltaTable(tables.table(name))
            properties = CommitProperties(app_transactions=[Transaction(app_id(name), version)])
            columns, partitioned_by = pa.schema(table.schema()), table.metadata().partition_columns
            table.create_write_transaction([], "append", columns, list(partitioned_by), commit_properties=properties)

    def _batches(self, log: str) -> int:
        if not self.exists(log):
            return 0
        path = self._path(log)
        found = path.getFileSystem(self._hadoop_conf()).listStatus(path)
        names = [str(status.getPath().getName()) for status in found]
        return max((int(name) + 1 for name in names if name.isdigit()), default=0)

    def exists(self, *names: str) -> bool:
        """Tell whether the checkpoint, or a file of it, is there."""
        path = self._path(*names)
        return bool(path.getFileSystem(self._hadoop_conf()).exists(path))

    def _path(self, *names: str) -> Any:
        return self._jvm().org.apache.hadoop.fs.Path("/".join([self.location, *names]))

    def _hadoop_conf(self) -> Any:
        return self.spark.sparkContext._jsc.hadoopConfiguration()

    def _jvm(self) -> Any:
        return self.spark.sparkContext._jvm
