"""Spark's checkpoint folders: which one continues, and where a new one starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from offsetstream.spark.session import fast_checkpoint_writes
from offsetstream.stream.lifecycle.checkpoint import Checkpoint, last_checkpoint, next_checkpoint
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.tables.lease import Lease
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.transaction import BatchId, is_done
from testkit.tables import new_tables


def write_checkpoint(root: Path, number: int, *, planned: int, done: int) -> None:
    """Write a checkpoint with this many planned and completed batches."""
    folder = root / str(number)
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"x"}')
    for batch in range(planned):
        ends = f'{{"__consumer_offsets":{{"0":{10 * batch},"49":{7 + batch}}}}}'
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{ends}')
        (folder / "offsets" / f".{batch}.2909b23e.tmp").write_bytes(b"v1")
    if done:
        (folder / "commits").mkdir()
    for batch in range(done):
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def write_batches(tables: PathStore, checkpoint_id: int, applied: int) -> None:
    book = PartitionBook(tables, [0, 49])
    book.advance({0: 10 * (applied - 1), 49: 7 + applied - 1})
    book.write(BatchId(checkpoint_id, applied - 1))


def test_the_state_of_a_checkpoint_is_read(spark: SparkSession, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 3, planned=12, done=11)
    assert Checkpoint(spark, str(tmp_path), 3).end_offsets(11) == {0: 110, 49: 18}


@pytest.mark.parametrize(
    ("planned", "done", "applied", "fits"),
    [
        (0, 0, 0, True),  # it has just started
        (1, 0, 0, True),  # its first batch is planned
        (1, 0, 1, True),  # and applied
        (12, 11, 11, True),  # the last batch must be repeated
        (12, 11, 12, True),  # the last batch is applied, but Spark does not know it yet
        (12, 12, 12, True),
        (12, 11, 10, False),  # the tables are older: restored from a copy
        (12, 11, 13, False),  # the checkpoint is older: batch 12 would be repeated and skipped
    ],
)
def test_a_checkpoint_fits_the_tables_that_it_wrote(
    spark: SparkSession, tables: PathStore, tmp_path: Path, planned: int, done: int, applied: int, fits: bool
) -> None:
    write_checkpoint(tmp_path, 3, planned=planned, done=done)
    checkpoint = Checkpoint(spark, str(tmp_path), 3)
    checkpoint.sign(tables)
    checkpoint.shut_out_older(tables)
    if applied:
        write_batches(tables, 3, applied)
    assert checkpoint.fits(tables) is fits


@pytest.mark.parametrize("file", ["metadata", "tables", "offsets/1", "offsets/0", "commits/1", "sources/0/0"])
@pytest.mark.parametrize("share", [0, 0.7], ids=["empty", "cut"])
def test_a_damaged_checkpoint_does_not_fit(
    spark: SparkSession, tables: PathStore, tmp_path: Path, file: str, share: float
) -> None:
    """As a crash of the machine leaves a file. The job ended with an unknown error at each start."""
    write_checkpoint(tmp_path, 3, planned=2, done=2)
    (tmp_path / "3/sources/0").mkdir(parents=True)
    (tmp_path / "3/sources/0/0").write_text('v1\n{"__consumer_offsets":{"0":0,"49":0}}')
    checkpoint = Checkpoint(spark, str(tmp_path), 3)
    checkpoint.sign(tables)
    checkpoint.note_partitions([0, 49])
    write_batches(tables, 3, 2)
    assert checkpoint.fits(tables)
    assert checkpoint.reads([49, 0])
    damaged = tmp_path / "3" / file
    whole = damaged.read_bytes()
    for crc in damaged.parent.glob(f".{damaged.name}.crc"):  # not every file system has checksums
        crc.unlink()
    damaged.write_bytes(whole[: int(share * len(whole))])
    assert not checkpoint.fits(tables)
    damaged.write_bytes(whole)
    (tmp_path / "3" / "partitions").write_text("")
    (tmp_path / "3" / ".partitions.crc").unlink()
    assert checkpoint.fits(tables)
    assert not checkpoint.reads([49, 0])


def test_a_checkpoint_does_not_fit_tables_that_were_restored(
    spark: SparkSession, tables: PathStore, tmp_path: Path
) -> None:
    """Delta's RESTORE removes rows, but leaves the transactions."""
    write_checkpoint(tmp_path, 3, planned=2, done=2)
    checkpoint = Checkpoint(spark, str(tmp_path), 3)
    checkpoint.sign(tables)
    write_batches(tables, 3, 1)
    table = DeltaTable(tables.table("offsets_partitions"))
    write_batches(tables, 3, 2)
    assert checkpoint.fits(tables)
    DeltaTable(tables.table("offsets_partitions")).restore(table.version())
    assert not checkpoint.fits(tables)


def test_a_checkpoint_of_other_tables_does_not_fit(spark: SparkSession, tables: PathStore, tmp_path: Path) -> None:
    """Even if they are at the same batch of a checkpoint with the same number."""
    others = new_tables(tmp_path / "others")
    write_checkpoint(tmp_path, 3, planned=2, done=2)
    checkpoint = Checkpoint(spark, str(tmp_path), 3)
    for each in (tables, others):
        write_batches(each, 3, 2)
    assert not checkpoint.fits(tables)  # without an owner
    checkpoint.sign(others)
    assert checkpoint.fits(others)
    assert not checkpoint.fits(tables)


def test_a_checkpoint_does_not_fit_what_it_never_wrote(spark: SparkSession, tables: PathStore, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 3, planned=1, done=1)
    checkpoint = Checkpoint(spark, str(tmp_path), 3)
    checkpoint.sign(tables)
    assert not checkpoint.fits(tables)  # nothing was written
    write_batches(tables, 2, 1)
    assert not checkpoint.fits(tables)  # another checkpoint wrote
    write_batches(tables, 4, 1)
    assert not checkpoint.fits(tables)
    assert not Checkpoint(spark, str(tmp_path), 4).fits(tables)  # its folder is gone


def test_a_checkpoint_continues_after_a_clean_end(spark: SparkSession, tables: PathStore, tmp_path: Path) -> None:
    root = str(tmp_path)
    first = Lease.acquire(tables)
    assert last_checkpoint(spark, root, first, tables) is None  # there is no checkpoint
    checkpoint = next_checkpoint(spark, root, first, tables)
    write_checkpoint(tmp_path, checkpoint.checkpoint_id, planned=2, done=2)
    write_batches(tables, checkpoint.checkpoint_id, 2)
    first.release()
    second = Lease.acquire(tables)
    assert last_checkpoint(spark, root, second, tables) == checkpoint
    assert last_checkpoint(spark, str(tmp_path / "elsewhere"), second, tables) is None
    third = Lease.acquire(tables)  # the second job died
    assert last_checkpoint(spark, root, third, tables) is None


def test_a_checkpoint_continues_only_with_the_partitions_that_it_has(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes other partitions for lost data, or reads them from their start."""
    checkpoint = Checkpoint(spark, str(tmp_path), 3)
    assert not checkpoint.reads([0, 2])  # an older version of the job did not record its partitions
    checkpoint.note_partitions({2, 0})
    assert checkpoint.reads([0, 2])
    assert not checkpoint.reads([0, 1, 2])
    assert not checkpoint.reads([0])


def test_a_new_checkpoint_is_unused(spark: SparkSession, tables: PathStore, tmp_path: Path) -> None:
    for number in (1, 2, 4):
        write_checkpoint(tmp_path, number, planned=0, done=0)
    lease = Lease.acquire(tables)
    checkpoint = next_checkpoint(spark, str(tmp_path), lease, tables)
    assert checkpoint.location == f"{tmp_path}/3"
    row = lease.read()
    assert (row.checkpoint_id, row.checkpoint_location) == (3, checkpoint.location)
    groups = tables.open("groups")
    assert is_done(groups, BatchId(2, 99))
    assert not is_done(groups, BatchId(3, 0))
    lease.release()
    again = next_checkpoint(spark, str(tmp_path), Lease.acquire(tables), tables)
    assert again.checkpoint_id == 5


_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def test_a_local_checkpoint_is_written_by_the_hadoop_file_system(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = Checkpoint(spark, str(tmp_path), 1)
    stream = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda *_: None)
    query = checkpoint.start(stream.trigger(availableNow=True))
    assert spark.conf.get(_FILE_MANAGER, None) is None
    query.awaitTermination(60)
    assert query.exception() is None
    manager = query._jsq.streamingQuery().offsetLog().fileManager()
    assert str(manager.getClass().getSimpleName()) == "FileSystemBasedCheckpointFileManager"


@pytest.mark.parametrize(("uri", "is_set"), [("s3a://lake/checkpoints/1", True), ("abfss://a@b/checkpoints/1", False)])
def test_checkpoints_on_s3_are_written_like_local_ones(spark: SparkSession, uri: str, is_set: bool) -> None:
    with fast_checkpoint_writes(spark, uri):
        assert (spark.conf.get(_FILE_MANAGER, None) is not None) == is_set
    assert spark.conf.get(_FILE_MANAGER, None) is None


def test_a_users_own_setting_stays_unchanged(spark: SparkSession) -> None:
    spark.conf.set(_FILE_MANAGER, "of.the.User")
    try:
        with fast_checkpoint_writes(spark, "file:/checkpoints/1"):
            assert spark.conf.get(_FILE_MANAGER) == "of.the.User"
        assert spark.conf.get(_FILE_MANAGER) == "of.the.User"
    finally:
        spark.conf.unset(_FILE_MANAGER)
