"""Print the topic as lines of text with Spark: in order, within offset ranges, formatted in the Spark tasks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import reduce
from itertools import islice, pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.cluster.client import Cluster, readable_partitions
from offsetstream.cluster.login import java_plugins
from offsetstream.dump.formats import UnprintableRecords, escaped_text, first_unprintable, format_batch
from offsetstream.errors import UsageError
from offsetstream.spark.failures import explain_failure
from offsetstream.spark.local import local_session
from offsetstream.spark.source import KafkaSource

_SESSION = {
    # Limits the memory of each Python worker: one batch and its text.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
}
STAGED_OFFSETS = 2_000_000  # offsets per round: their text is staged on disk and then printed in order
_UNPRINTABLE = "offsets_partition INT, record_offset BIGINT, reason STRING, count BIGINT"

Range = tuple[int, int]


class ClusterDump:
    """A dump of a cluster. Creating it checks access and offsets, so that no file is written if that fails."""

    def __init__(self, bootstrap_server: str, properties: Mapping[str, str], wanted: Collection[int]) -> None:
        self._properties = properties
        self._bootstrap_server = bootstrap_server
        self._cluster = Cluster(bootstrap_server, properties)
        self._ranges = _ranges(self._cluster, wanted)

    def write(self, line_format: str, master: str, target: BinaryIO) -> UnprintableRecords | None:
        """Read the records by Spark and write the lines; see `dump`."""
        source = KafkaSource(self._bootstrap_server, self._properties)
        spark = local_session(master, _SESSION, java_plugins(self._properties))
        try:
            with explain_failure(self._cluster):
                return dump(spark, source, self._ranges, line_format, target)
        finally:
            spark.stop()


def _ranges(cluster: Cluster, wanted: Collection[int]) -> dict[int, Range]:
    present = readable_partitions(cluster)
    unknown = sorted(set(wanted) - set(present))
    if unknown:
        raise UsageError(f"__consumer_offsets has no partition {unknown[0]}: it has 0 to {len(present) - 1}")
    ends = cluster.partition_ends(wanted or present)
    return {number: (end.log_start_offset, end.last_stable_offset) for number, end in ends.items()}


def dump(
    spark: SparkSession, source: KafkaSource, ranges: Mapping[int, Range], line_format: str, target: BinaryIO
) -> UnprintableRecords | None:
    """Write the records of each partition from the first offset of its range to the second (exclusive), in order.

    Sorted by partition and offset. `line_format` is one of LINE_FORMATS. Returns what the format cannot print.
    """
    cores = spark.sparkContext.defaultParallelism
    total = min(STAGED_OFFSETS, sum(end - start for start, end in ranges.values()))
    pieces = cut_ranges(ranges, -(-total // cores))
    unprintable: list[UnprintableRecords] = []
    while round_pieces := list(islice(pieces, cores)):
        with tempfile.TemporaryDirectory(prefix="offsetstream-dump-") as folder:
            # One task per piece, not per partition: a task costs 0.2 s, and the topic has 50 partitions.
            frames = [_read(spark, source, piece).coalesce(1) for piece in round_pieces]
            write = text_writer(folder, line_format, on_terminal=target.isatty())
            written = reduce(DataFrame.unionByName, frames).mapInArrow(write, _UNPRINTABLE)
            unprintable += [UnprintableRecords(row["count"], *row[:3]) for row in written.collect()]
            _print(Path(folder), target)
    return first_unprintable(unprintable)


def cut_ranges(ranges: Mapping[int, Range], size: int) -> Iterator[dict[int, Range]]:
    """Cut the offset ranges, by partition, into pieces of `size` offsets. The last piece has the rest."""
    piece: dict[int, Range] = {}
    room = size
    for partition, (start, end) in sorted(ranges.items()):
        at = start
        while at < end:
            to = min(end, at + room)
            piece[partition] = (at, to)
            room -= to - at
            at = to
            if room == 0:
                yield piece
                piece, room = {}, size
    if piece:
        yield piece


def text_writer(
    folder: str, line_format: str, *, on_terminal: bool = False
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for mapInArrow that writes raw records to text files. File names sort in record order.

    It yields one row for each batch with records that the format cannot print: the first one, its reason, and their
    number.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raw = batch.rename_columns(["partition", "offset", "timestamp", "key", "value"])
            partitions, offsets = raw["partition"].to_numpy(), raw["offset"].to_numpy()
            lines, broken = format_batch(raw, line_format)
            for start, end in _runs(partitions):
                part = lines.slice(start, end - start)
                name = f"{partitions[start]:010d}-{offsets[start]:020d}"
                (Path(folder) / name).write_bytes(escaped_text(part, line_format, on_terminal=on_terminal))
            if broken:
                row = min(broken, key=lambda row: (partitions[row], offsets[row]))
                cells = (partitions[row], offsets[row], broken[row], len(broken))
                names = ["offsets_partition", "record_offset", "reason", "count"]
                yield pa.RecordBatch.from_pydict({name: [cell] for name, cell in zip(names, cells, strict=True)})

    return write


def _read(spark: SparkSession, source: KafkaSource, piece: Mapping[int, Range]) -> DataFrame:
    starts = {partition: start for partition, (start, _) in piece.items()}
    ends = {partition: end for partition, (_, end) in piece.items()}
    raw = source.read(spark, starts, ends)
    return raw.withColumn("record_timestamp", F.unix_millis("record_timestamp"))


def _runs(partitions: np.ndarray) -> Iterator[Range]:
    """Yield the row ranges (end exclusive) in which the partition stays the same."""
    borders = np.flatnonzero(np.diff(partitions)) + 1
    edges = [0, *borders.tolist(), len(partitions)]
    return pairwise(edges) if len(partitions) else iter(())


def _print(folder: Path, target: BinaryIO) -> None:
    for path in sorted(folder.iterdir()):
        with path.open("rb") as text:
            shutil.copyfileobj(text, target, 1 << 20)
