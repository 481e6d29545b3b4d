"""The replicas of offsets partitions in brokers' log directories: which to read, and up to where.

Beside its segments, a broker keeps how far they are valid: `leader-epoch-checkpoint` in the folder of a partition, and
`replication-offset-checkpoint`, `log-start-offset-checkpoint` and `meta.properties` in the folder above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from offsetstream.codec.batches import Extent, RecordBatch, is_transactional_or_control
from offsetstream.codec.log_segments import (
    OFFSETS_TOPIC,
    LogPartition,
    Report,
    Segment,
    Transactions,
    find_transactions,
    read_windows,
    require_order,
)

_NO_EPOCH = -1  # nothing was written yet


@dataclass(frozen=True)
class Replica:
    """A replica as its broker's files describe it. What a missing file would say is None.

    `epoch`: its last leader epoch. `high_watermark`: the end of what all replicas had.
    """

    partition: LogPartition
    epoch: int | None
    high_watermark: int | None
    log_start_offset: int


@dataclass(frozen=True)
class ReadableLog:
    """The log of a partition, from its start to the last stable offset that its files show.

    `complete_from`: from this offset on, nothing was compacted. `complete_since_ms`: the time of the first records from
    there on; None if there are none. `newest_ms`: the newest timestamp.
    """

    replica: Replica
    transactions: Transactions
    high_watermark: int
    last_stable_offset: int
    complete_from: int
    complete_since_ms: int | None
    newest_ms: int | None

    @property
    def number(self) -> int:
        """The number of the partition."""
        assert self.replica.partition.number is not None  # noqa: S101 - find_replicas returns no other
        return self.replica.partition.number


def open_logs(found: Sequence[LogPartition], latest_ms: int, warn: Report) -> list[ReadableLog]:
    """Choose a replica of each partition (see `find_replicas`), and find what of it is committed.

    Of several, the one with the last leader epoch is read, and of these the longest. It is read up to the greatest high
    watermark of all. Timestamps after `latest_ms` are wrong, so they say nothing about the log. `warn` gets a sentence
    for each fact that no file shows. Raises SegmentError.
    """
    checkpoints = _Checkpoints(warn)
    replicas = [checkpoints.replica(partition) for partition in found]
    by_number = groupby(replicas, key=lambda replica: replica.partition.number or 0)
    return [_chosen(number, list(of_partition), latest_ms, warn) for number, of_partition in by_number]


def cluster_ids(found: Sequence[LogPartition]) -> set[str]:
    """Return the ids of the clusters whose brokers wrote the replicas, as far as `meta.properties` has them."""
    lines = [line for folder in _log_directories(found) for line in _lines(folder / "meta.properties")]
    return {line.partition("=")[2].strip() for line in lines if line.startswith("cluster.id=")}


def topic_names(found: Sequence[LogPartition]) -> dict[str, str]:
    """Return the names of topic ids, from the folders of all topics beside those of the replicas."""
    names = {}
    for folder in _log_directories(found):
        for path in folder.glob("*-*/partition.metadata"):
            ids = [line.partition(":")[2].strip() for line in _lines(path) if line.startswith("topic_id:")]
            names.update(dict.fromkeys(ids, path.parent.name.rpartition("-")[0]))
    return names


def _log_directories(found: Sequence[LogPartition]) -> set[Path]:
    return {_folder(partition).parent for partition in found}


def _folder(partition: LogPartition) -> Path:
    """Return the folder of the partition's segments."""
    path = partition.path.resolve()
    return path if path.is_dir() else path.parent


class _Checkpoints:
    """Kafka's checkpoint files, each of which is read once."""

    def __init__(self, warn: Report) -> None:
        self._warn = warn
        self._read: dict[Path, dict[str, int] | None] = {}

    def replica(self, partition: LogPartition) -> Replica:
        """Return what the files say of a partition."""
        folder = _folder(partition)
        epochs = self._rows(folder / "leader-epoch-checkpoint")
        ends = self._rows(folder.parent / "replication-offset-checkpoint")
        starts = self._rows(folder.parent / "log-start-offset-checkpoint")
        name = f"{OFFSETS_TOPIC} {partition.number}"
        epoch = None if epochs is None else max((int(each) for each in epochs if each.isdecimal()), default=_NO_EPOCH)
        return Replica(partition, epoch, (ends or {}).get(name), (starts or {}).get(name, 0))

    def _rows(self, path: Path) -> dict[str, int] | None:
        """Return the number at the end of each row of a file, by what is before it.

        A file has its version, the count of its rows, and the rows; it is empty before a broker has written it. None if
        it does not exist, or is not whole.
        """
        if path not in self._read:
            try:
                self._read[path] = _parsed(_lines(path)) if path.exists() else None
            except ValueError:
                self._warn(f"{path} is not a whole checkpoint file: it is not used")
                self._read[path] = None
        return self._read[path]


def _parsed(lines: Sequence[str]) -> dict[str, int]:
    version, count, *rows = lines or ("0", "0")
    if version != "0" or int(count) != len(rows):
        raise ValueError
    return {before: int(number) for before, _, number in (row.rpartition(" ") for row in rows)}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _chosen(number: int, replicas: Sequence[Replica], latest_ms: int, warn: Report) -> ReadableLog:
    marks = [replica.high_watermark for replica in replicas if replica.high_watermark is not None]
    until = max(marks, default=None)
    if until is None:
        warn(
            f"Partition {number}: no replication-offset-checkpoint says up to where its replicas agree, so all of its "
            "log is read"
        )
    logs = [_scanned(replica, until, latest_ms, warn) for replica in replicas]
    if len(replicas) > 1 and any(replica.epoch is None for replica in replicas):
        warn(
            f"Partition {number}: not each of its {len(replicas)} replicas has a leader-epoch-checkpoint, so the "
            "longest is read"
        )
        chosen = max(logs, key=lambda log: log.high_watermark)
    else:
        chosen = max(logs, key=lambda log: (log.replica.epoch or 0, log.high_watermark))
    if until is not None and chosen.high_watermark < until:
        warn(
            f"Partition {number}: {chosen.replica.partition.path} ends at offset {chosen.high_watermark}, but its "
            f"replicas had committed up to offset {until}: the rest is missing"
        )
    return chosen


def _scanned(replica: Replica, until: int | None, latest_ms: int, warn: Report) -> ReadableLog:
    """Read the headers of the batches below the offset `until`; None: of all."""
    scan = _Scan(replica.log_start_offset, replica.log_start_offset, latest_ms)
    transactions = find_transactions(scan.transactional(replica.partition.segments, until, warn))
    end = scan.end if until is None else min(until, scan.end)
    first_open = transactions.first_open_offset
    return ReadableLog(
        replica,
        transactions,
        end,
        end if first_open is None else first_open,
        scan.complete_from,
        scan.complete_since_ms,
        scan.newest_ms,
    )


@dataclass
class _Scan:
    """What the headers of a log's batches show: where it ends, what is missing of it, and its times."""

    end: int
    complete_from: int
    latest_ms: int
    complete_since_ms: int | None = None
    newest_ms: int | None = None

    def transactional(self, segments: Sequence[Segment], until: int | None, warn: Report) -> Iterator[RecordBatch]:
        """Look at all batches below the offset `until`. Yield transactional ones, and markers with their records."""
        path, end = None, 0
        for window in read_windows(segments, warn):
            path, end = window.path, end if window.path == path else 0
            for frame in window.frames:
                extent = window.extent(frame)
                require_order(window.path, frame.position, extent.base_offset, end)
                end = extent.next_offset
                if until is not None and extent.base_offset >= until:
                    return
                if extent.next_offset > self.end:
                    self._see(extent)
                if is_transactional_or_control(frame.data, 0):
                    yield window.batch(frame, with_data=False)

    def _see(self, extent: Extent) -> None:
        is_whole = extent.records == extent.next_offset - extent.base_offset
        if extent.base_offset > self.end or not is_whole:
            self.complete_from = extent.base_offset if is_whole else extent.next_offset
            self.complete_since_ms = None
        self.end = extent.next_offset
        if not 0 <= extent.newest_ms <= self.latest_ms:  # format 0 has no times; clients may write any
            return
        if is_whole and self.complete_since_ms is None:
            self.complete_since_ms = extent.newest_ms
        self.newest_ms = max(extent.newest_ms, self.newest_ms or extent.newest_ms)
