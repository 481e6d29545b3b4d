"""Numbered checkpoints: when the job continues from the last one, and when it starts a new one (rule 8)."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from offsetstream.cluster.rights import OFFSETS_TOPIC
from offsetstream.embedded.hadoop import exists
from offsetstream.errors import EnvironmentNotReadyError, StoreFaultError, first_line
from offsetstream.settings.places import in_hadoop
from offsetstream.spark.session import fast_checkpoint_writes
from offsetstream.tables.lease import Lease
from offsetstream.tables.names import OFFSETS_PARTITIONS
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId, app_id, shut_out_older_everywhere

LAST_WRITTEN = OFFSETS_PARTITIONS  # its transaction is the last of a batch
WHOSE = "tables"  # a file next to Spark's: the id of the table LAST_WRITTEN
PARTITIONS = "partitions"  # a file next to Spark's: the partitions of the query


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder of Spark, `<root>/<checkpoint_id>`."""

    spark: SparkSession
    root: str
    checkpoint_id: int

    @property
    def location(self) -> str:
        """The folder."""
        return f"{self.root}/{self.checkpoint_id}"

    @property
    def uri(self) -> str:
        """The folder as a URI for Spark and Hadoop."""
        return in_hadoop(self.location)

    @property
    def no_batch(self) -> BatchId:
        """The id for writes outside of batches."""
        return BatchId(self.checkpoint_id, -1)

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query. It continues where the checkpoint stands."""
        with fast_checkpoint_writes(self.spark, self.uri):
            return writer.option("checkpointLocation", self.uri).start()

    def end_offsets(self, batch_id: int) -> dict[int, int]:
        """Return the end offset of the batch in each partition (exclusive). Spark writes it before the batch runs."""
        text = self._read("offsets", str(batch_id))
        offsets = json.loads(text.splitlines()[2])[OFFSETS_TOPIC]  # after the version and the metadata
        return {int(partition): offset for partition, offset in offsets.items()}

    def fits(self, tables: Store) -> bool:
        """Return whether this checkpoint wrote the tables, up to its last batch.

        If a checkpoint is older than the tables, it uses numbers of batches again, and Delta skips these silently.
        """
        table = tables.open(LAST_WRITTEN)
        version = table.transaction_version(app_id(LAST_WRITTEN))
        if version is None or version >> 32 != self.checkpoint_id or not self.exists("metadata"):
            return False
        if not self.exists(WHOSE) or self._read(WHOSE) != table.table_id:
            return False
        applied = version & 0xFFFFFFFF
        done, planned = self._batches("commits"), self._batches("offsets")
        if not done <= applied <= planned or not self._is_whole(done, planned):
            return False
        if not applied:
            return True
        # Delta's RESTORE reverts rows, but not the transaction ids.
        positions = {row["offsets_partition"]: row["next_offset"] or 0 for row in read_rows(table)}
        return all(positions.get(number, 0) >= end for number, end in self.end_offsets(applied - 1).items())

    def _is_whole(self, done: int, planned: int) -> bool:
        """Return whether the files that Spark reads when it continues have their form.

        A machine that crashes may leave an empty file. With it, Spark fails at each start.
        """
        entries = {("offsets", str(number)): 3 for number in range(planned)[-2:]}
        entries |= {("commits", str(number)): 2 for number in range(done)[-1:]}
        if self.exists("sources", "0", "0"):
            entries |= {("sources", "0/0"): 2}
        try:
            json.loads(self._read("metadata"))
            for entry, least in entries.items():
                lines = self._read(*entry).splitlines()
                if len(lines) < least:
                    return False
                for line in lines[1:]:  # after the version
                    json.loads(line)
        except (Py4JJavaError, ValueError):
            return False
        return True

    def sign(self, tables: Store) -> None:
        """Write the id of the tables to the checkpoint: other tables use the same numbers of checkpoints and batches.

        This is the first write to the folder. Raise StoreFaultError if it fails.
        """
        self._write(WHOSE, tables.open(LAST_WRITTEN).table_id)

    def note_partitions(self, partitions: Collection[int]) -> None:
        """Write which partitions the query reads. With others in the same checkpoint, Spark reports lost data."""
        self._write(PARTITIONS, _noted(partitions))

    def reads(self, partitions: Collection[int]) -> bool:
        """Return whether the query of this checkpoint reads exactly these partitions."""
        return self.exists(PARTITIONS) and self._read(PARTITIONS) == _noted(partitions)

    def shut_out_older(self, tables: Store) -> None:
        """Commit an empty write to every table. After it, no job with an older checkpoint can write."""
        shut_out_older_everywhere(tables, self.no_batch)

    def _write(self, name: str, text: str) -> None:
        try:
            path, files = self._file(name)
            stream = files.create(path)
            stream.write(text.encode())
            stream.close()
        except Py4JJavaError as error:
            reason = first_line(error.java_exception)
            message = f"cannot write to {self.root}: {reason}: name another folder by --checkpoint"
            raise StoreFaultError(message) from error  # a disk that is read-only now has many names in Hadoop

    def _read(self, *names: str) -> str:
        path, files = self._file(*names)
        stream = files.open(path)
        try:
            jvm: Any = self.spark.sparkContext._jvm
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _batches(self, log: str) -> int:
        """Return the number of batches of which one of Spark's logs knows."""
        if not self.exists(log):
            return 0
        path, files = self._file(log)
        names = [str(status.getPath().getName()) for status in files.listStatus(path)]
        return max((int(name) + 1 for name in names if name.isdigit()), default=0)

    def exists(self, *names: str) -> bool:
        """Return whether the checkpoint, or a file of it, exists. StoreFaultError if Hadoop cannot reach it."""
        try:
            return exists(self.spark.sparkContext, "/".join([self.uri, *names]))
        except EnvironmentNotReadyError as error:
            raise StoreFaultError(str(error)) from error

    def _file(self, *names: str) -> tuple[Any, Any]:
        """Return Hadoop's path of a file of the checkpoint, and its file system."""
        jvm: Any = self.spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path("/".join([self.uri, *names]))
        return path, path.getFileSystem(self.spark.sparkContext._jsc.hadoopConfiguration())


def _noted(partitions: Collection[int]) -> str:
    return json.dumps(sorted(partitions))


def last_checkpoint(spark: SparkSession, root: str, lease: Lease, tables: Store) -> Checkpoint | None:
    """Return the checkpoint of the last job, or None if that did not stop cleanly or the checkpoint does not fit."""
    checkpoint = Checkpoint(spark, root, lease.found.checkpoint_id)
    ended_cleanly = lease.found.owner is None and lease.found.checkpoint_location == checkpoint.location
    return checkpoint if ended_cleanly and checkpoint.fits(tables) else None


def next_checkpoint(spark: SparkSession, root: str, lease: Lease, tables: Store) -> Checkpoint:
    """Claim a new checkpoint, which no other job ever used, and shut out those of the older ones."""
    checkpoint = Checkpoint(spark, root, lease.next_checkpoint_id(tables))
    while checkpoint.exists():
        checkpoint = Checkpoint(spark, root, checkpoint.checkpoint_id + 1)
    lease.use_checkpoint(checkpoint.checkpoint_id, checkpoint.location)
    checkpoint.sign(tables)
    checkpoint.shut_out_older(tables)
    return checkpoint
