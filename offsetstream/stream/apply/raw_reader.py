"""Read offsets partitions as record batches, by Kafka's own network classes in the driver's JVM.

So no record becomes a row of the JVM. A consumer with `isolation.level=read_committed` would return the same records.

A partition is read under the leader epoch that it had at the start; a broker with another one refuses. So what a new
leader has is never mixed with what a former one had: the reader gives the partition up, and the caller reads it anew.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from queue import Full, Queue
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from offsetstream.codec.batch_columns import read_columns
from offsetstream.codec.batches import (
    MAGIC,
    MAGIC_AT,
    ControlType,
    Header,
    control_type,
    is_compressed,
    matches_checksum,
    read_batch,
)
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import ClusterError, UsageError
from offsetstream.stream.monitor.broker_channel import FETCH, Fetched, Leaders, Place, fetch_request, fetched
from offsetstream.stream.settings import LoadBy
from offsetstream.tables.rows import timestamps_of

RAW_SCHEMA = pa.schema(
    [
        ("offsets_partition", pa.int32()),
        ("record_offset", pa.int64()),
        ("record_timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
PATIENCE = 30.0  # seconds without a record of a partition that has some left
THREAD = "offsetstream-raw-reader"
_ANSWER_BYTES = 8 << 20
_WAIT_MS = 100
PIECE_BYTES = 32 << 20  # as Spark's batches (spark/settings.py)
_MOST_HELD = 32 << 20  # bytes of batches that are read at once
_MOST_LEFT = 64 << 20  # bytes of rows that were passed, before their memory is given back
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
_MOST_COMPRESSED = 32  # how much larger than it is a compressed batch is taken to be
_AHEAD = 2  # tables of records that wait for the caller
_POLL_SECONDS = 0.2
_NOT_YET = 78  # OFFSET_NOT_AVAILABLE: a new leader does not know yet up to where records are committed (KIP-207)
_REASONS = {
    1: "its log has no longer what is to be read",
    3: "the broker no longer has it",
    6: "its leader changed",
    56: "its broker cannot read the disk",
    74: "its leader changed",
    75: "its leader changed",
}


def reads_raw(load_by: LoadBy, spark: SparkSession) -> bool:
    """Return whether a job with this setting reads raw. Raises UsageError if it cannot.

    Spark's executors must be in the driver's process: elsewhere, reading is shared among them.
    """
    master = spark.sparkContext.master or ""
    is_local = master.startswith("local") and not master.startswith("local-cluster")
    if load_by == "raw" and not is_local:
        raise UsageError(f"--load-by raw needs a local master, but this Spark has the master {master}: omit it")
    return load_by != "spark" and is_local


class UnreadableError(Exception):
    """Partitions cannot be read in this way: the reasons by partition. What was read of them is not complete."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(f"{number}: {reason}" for number, reason in sorted(reasons.items())))
        self.reasons = dict(reasons)


@dataclass
class _Partition:
    """A partition that is read from `at` to `end`.

    `moved_at` is when it last got further, and `empty_since` since when its leader returned nothing although an answer
    had room, both in monotonic seconds.
    """

    number: int
    epoch: int | None
    at: int
    end: int
    moved_at: float = field(default_factory=time.monotonic)
    empty_since: float | None = None

    def move(self, to: int) -> None:
        self.at, self.moved_at, self.empty_since = to, time.monotonic(), None

    def wait(self) -> None:
        """Note that its leader returned nothing. Raises UnreadableError if it did so for long."""
        self.empty_since = self.empty_since or time.monotonic()
        if time.monotonic() - self.empty_since > PATIENCE:
            raise self.refuse(f"its leader returns nothing from offset {self.at} on")

    def refuse(self, reason: str) -> UnreadableError:
        return UnreadableError({self.number: reason})


class RawReader:
    """Reads partitions from their leaders, several brokers at once."""

    way = "raw"

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders

    def read(
        self, start: Mapping[int, int], end: Mapping[int, int], epochs: Mapping[int, int | None]
    ) -> Generator[pa.RecordBatch]:
        """Yield the committed records of each partition from `start` to `end` (exclusive), with `RAW_SCHEMA`.

        `end` is at most the last stable offset, and `epochs` has the leader epochs of that time. The records of a
        partition come in the order of its log. Raises UnreadableError.
        """
        partitions = {number: _Partition(number, epochs.get(number), at, end[number]) for number, at in start.items()}
        led = self._leaders.led(partitions)
        if missing := partitions.keys() - {number for numbers in led.values() for number in numbers}:
            raise UnreadableError(dict.fromkeys(missing, "it has no leader"))
        with _Readers() as readers:
            for address, numbers in led.items():
                readers.start(partial(self._read_broker, address, [partitions[number] for number in numbers]))
            yield from in_pieces(readers.found())

    def _read_broker(
        self, address: tuple[str, int], partitions: list[_Partition], put: Callable[[pa.Table], None]
    ) -> None:
        """Give `put` the records of the partitions that a broker leads."""
        left = [partition for partition in partitions if partition.at < partition.end]
        try:
            with self._leaders.channel(address) as channel:
                while left:
                    places = [Place(one.number, one.epoch, one.at) for one in left]
                    request = fetch_request(places, _ANSWER_BYTES, _WAIT_MS, read_committed=True)
                    throttled_ms, parts = fetched(channel.ask(*FETCH, request))
                    by_number = {partition.number: partition for partition in left}
                    first, before = left[0], left[0].at
                    for rows in _together(_records(by_number[part.number], part) for part in parts):
                        put(rows)
                    if not any(part.records for part in parts):
                        _end_emptied(by_number, parts)
                    if parts and first.at == before < first.end:  # a broker that throttles may send none
                        first.wait()
                    # Who got records goes to the end: a broker fills its answer from the first partition on.
                    left = sorted((each for each in left if each.at < each.end), key=lambda each: each.moved_at)
                    time.sleep(throttled_ms / 1000)
        except (ClusterError, DecodeError) as error:
            raise UnreadableError(dict.fromkeys((partition.number for partition in left), str(error))) from error


class _Readers:
    """Threads that each read from one broker. The end of the context ends them."""

    def __init__(self) -> None:
        self._queue: Queue[pa.Table | BaseException | None] = Queue(_AHEAD)
        self._threads: list[threading.Thread] = []
        self._is_ending = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_ending.set()
        for thread in self._threads:
            thread.join()

    def start(self, read: Callable[[Callable[[pa.Table], None]], None]) -> None:
        """Start a thread that gives `found` what `read` puts."""
        self._threads.append(threading.Thread(target=self._run, args=(read,), name=THREAD, daemon=True))
        self._threads[-1].start()

    def found(self) -> Iterator[pa.Table]:
        """Yield what the threads put, until all of them have ended; raise what one of them raised."""
        running = len(self._threads)
        while running:
            item = self._queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item

    def _run(self, read: Callable[[Callable[[pa.Table], None]], None]) -> None:
        last: BaseException | None = None
        try:
            read(self._put)
        except BaseException as error:
            last = error
        with suppress(_EndedError):
            self._put(last)

    def _put(self, item: Any) -> None:
        while not self._is_ending.is_set():
            try:
                self._queue.put(item, timeout=_POLL_SECONDS)
            except Full:
                continue
            return
        raise _EndedError


class _EndedError(Exception):
    """The caller needs no more. It never leaves this module."""


def _offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big", signed=True)


def _end_emptied(partitions: Mapping[int, _Partition], parts: Sequence[Fetched]) -> None:
    """End partitions whose log has nothing left: no other partition's records kept theirs out of this answer."""
    for part in parts:
        partition = partitions[part.number]
        if not part.error and part.last_stable_offset >= partition.end:
            partition.move(partition.end)


def _records(partition: _Partition, part: Fetched) -> Iterator[pa.Table]:
    """Yield the records of the answer, and move the partition behind them."""
    if part.error not in (0, _NOT_YET):
        raise partition.refuse(_REASONS.get(part.error, f"its broker answers with error {part.error}"))
    batches = list(part.batches)
    for data in batches:
        if not matches_checksum(data):
            raise partition.refuse(f"the batch at offset {_offset(data)} is damaged (CRC-32C)")
    first = partition.at
    try:
        yield from raw_rows(partition.number, _committed(partition, batches, part.aborted), first, partition.end)
    except DecodeError as error:
        raise partition.refuse(f"a batch from offset {first} on is damaged: {error}") from error


def _together(found: Iterable[Iterable[pa.Table]]) -> Iterator[pa.Table]:
    """Yield the tables of several partitions as few larger ones."""
    held, size = list[pa.Table](), 0
    for rows in chain.from_iterable(found):
        held.append(rows)
        size += rows.nbytes
        if size > PIECE_BYTES:
            yield pa.concat_tables(held)
            held, size = [], 0
    if any(rows.num_rows for rows in held):
        yield pa.concat_tables(held)


def in_pieces(found: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches whose keys and values are at most `PIECE_BYTES` together, or in a batch of one row.

    What is decoded of them takes many times as much memory. Freed memory goes back to the system now and then: glibc
    keeps it scattered among the threads, so the process would grow with the log.
    """
    passed = 0
    for rows in found:
        columns = [pc.fill_null(pc.binary_length(rows[name]), 0) for name in ("key", "value")]
        ends = np.cumsum(np.add(*(column.to_numpy() for column in columns), dtype=np.int64))
        at = 0
        while at < rows.num_rows:
            before = int(ends[at - 1]) if at else 0
            end = max(at + 1, int(np.searchsorted(ends, before + PIECE_BYTES, "right")))
            yield from rows.slice(at, end - at).combine_chunks().to_batches()
            at = end
        passed += rows.nbytes
        if passed > _MOST_LEFT and _trim is not None:
            _trim(0)
            passed = 0


def raw_rows(number: int, batches: Iterable[bytes], first: int, end: int) -> Iterator[pa.Table]:
    """Yield the records of a partition's batches from offset `first` to `end` (exclusive), with `RAW_SCHEMA`.

    They come in as few tables as memory allows: compressed batches may be a thousand times as large. Raises
    DecodeError.
    """
    held, size = list[bytes](), 0
    for data in batches:
        held.append(data)
        size += len(data) * (_MOST_COMPRESSED if is_compressed(data) else 1)
        if size > _MOST_HELD:
            yield _raw_rows(number, held, first, end)
            held, size = [], 0
    if held:
        yield _raw_rows(number, held, first, end)


def _raw_rows(number: int, batches: Sequence[bytes], first: int, end: int) -> pa.Table:
    rows = read_columns(batches)
    offsets = rows["record_offset"]
    rows = rows.filter(pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, end)))
    columns = [
        pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows),
        rows["record_offset"],
        timestamps_of(rows["timestamp_ms"].fill_null(-1)),  # as a consumer returns it
        rows["key"],
        rows["value"],
    ]
    return pa.table(columns, schema=RAW_SCHEMA)


def _committed(partition: _Partition, batches: Sequence[bytes], aborted: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the batches with records that count, and move the partition behind all of them (KIP-98)."""
    pending, aborting = sorted(aborted, key=lambda each: each[1]), set[int]()
    for data in batches:
        if data[MAGIC_AT] != MAGIC:
            partition.move(max(partition.at, _offset(data) + 1))
            yield data
            continue
        header = Header.of(data)
        while pending and pending[0][1] < header.next_offset:
            aborting.add(pending.pop(0)[0])
        if header.is_control:
            if ControlType.ABORT in {control_type(record) for record in read_batch(data).records}:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield data
        partition.move(max(partition.at, header.next_offset))
