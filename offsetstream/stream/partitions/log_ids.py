"""The current log id of each offsets partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from offsetstream.stream.partitions.partition_row import PartitionRow


class LogIds(Mapping[int, int]):
    """A live mapping from offsets partition to log id: a new log in the book shows at once."""

    def __init__(self, rows: Mapping[int, PartitionRow]) -> None:
        self._rows = rows

    def __getitem__(self, partition: int) -> int:
        return self._rows[partition].log_id

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
