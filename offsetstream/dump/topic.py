"""The topic as lines of text, by Spark: ordered, bounded, and formatted in whole batches where the records are read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import islice, pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from offsetstream.dump.formats import Unprintable, first_of, format_batch, shown
from offsetstream.spark.source import KafkaSource

SESSION = {
    # A batch with its text, in each Python worker: what bounds the memory.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
}
STAGED_OFFSETS = 2_000_000  # at once: the text of so many records waits on disk until it is printed, in order
_UNPRINTABLE = "offsets_partition INT, record_offset BIGINT, reason STRING, count BIGINT"

Range = tuple[int, int]


def dump(
    spark: SparkSession, source: KafkaSource, ranges: Mapping[int, Range], line_format: str, target: BinaryIO
) -> Unprintable | None:
    """Write the records of each partition from the first offset to the second (exclusive), by partition and offset.

    `line_format` is one of LINE_FORMATS; the result is what it cannot print.
    """
    cores = spark.sparkContext.defaultParallelism
    total = min(STAGED_OFFSETS, sum(end - start for start, end in ranges.values()))
    pieces = cut(ranges, -(-total // cores))
    found: list[Unprintable] = []
    while at_once := list(islice(pieces, cores)):
        with tempfile.TemporaryDirectory(prefix="offsetstream-dump-") as folder:
            # One task a piece: each costs 0.2 s, and the topic has 50 partitions.
            frames = [_read(spark, source, piece).coalesce(1) for piece in at_once]
            write = text_writer(folder, line_format, on_terminal=target.isatty())
            written = reduce(DataFrame.unionByName, frames).mapInArrow(write, _UNPRINTABLE)
            found += [Unprintable(row["count"], *row[:3]) for row in written.collect()]
            _print(Path(folder), target)
    return first_of(found)


def cut(ranges: Mapping[int, Range], size: int) -> Iterator[dict[int, Range]]:
    """Cut the ranges of offsets, by partition, into pieces of `size` offsets, the last one of what is left."""
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
    """Return the function for mapInArrow: writes batches of raw records to files of text, whose names are in order.

    It yields what the format cannot print, a row a batch: the first such record, its reason, how many there are.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raw = batch.rename_columns(["partition", "offset", "timestamp", "key", "value"])
            partitions, offsets = raw["partition"].to_numpy(), raw["offset"].to_numpy()
            lines, broken = format_batch(raw, line_format)
            for start, end in _runs(partitions):
                part = lines.slice(start, end - start)
                name = f"{partitions[start]:010d}-{offsets[start]:020d}"
                (Path(folder) / name).write_bytes(shown(part, line_format, on_terminal=on_terminal))
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
    """Yield the rows from where to where (exclusive) the partition stays the same."""
    borders = np.flatnonzero(np.diff(partitions)) + 1
    edges = [0, *borders.tolist(), len(partitions)]
    return pairwise(edges) if len(partitions) else iter(())


def _print(folder: Path, target: BinaryIO) -> None:
    for path in sorted(folder.iterdir()):
        with path.open("rb") as text:
            shutil.copyfileobj(text, target, 1 << 20)
