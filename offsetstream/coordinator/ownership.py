"""Which offsets partitions a broker coordinates, and since which epoch (reference 4.1, 5.1)."""

from __future__ import annotations


class Ownership:
    """The sets of partitions that are loading, owned (the new coordinator's ACTIVE) or failed, and their epochs.

    The classic coordinator accepts an epoch that it has seen, keeps the epoch of an unloaded partition, and owns a
    partition even if its load failed; the new one asks for a higher epoch, forgets it, and keeps the failure.
    """

    def __init__(self, *, is_new: bool) -> None:
        self._is_new = is_new
        self.loading: set[int] = set()
        self.owned: set[int] = set()
        self.failed: set[int] = set()
        self.epochs: dict[int, int] = {}

    def begin_load(self, partition: int, epoch: int) -> bool:
        """Begin to load; False if the epoch is too old, or the partition is already owned or loading."""
        if not self._accept(partition, epoch) or partition in self.owned | self.loading:
            return False
        self.failed.discard(partition)
        self.loading.add(partition)
        return True

    def end_load(self, partition: int) -> None:
        """Own a partition whose records are all replayed."""
        self.loading.discard(partition)
        self.owned.add(partition)

    def fail(self, partition: int) -> None:
        """Drop a partition at a record that cannot be replayed; a classic coordinator then owns an empty one."""
        self.loading.discard(partition)
        self.owned.discard(partition)
        (self.failed if self._is_new else self.owned).add(partition)

    def unload(self, partition: int, epoch: int | None) -> bool:
        """Give a partition up; False if the epoch is too old. Without an epoch (StopReplica) it always happens."""
        if epoch is not None and not self._accept(partition, epoch):
            return False
        for partitions in (self.loading, self.owned, self.failed):
            partitions.discard(partition)
        if self._is_new:
            self.epochs.pop(partition, None)
        return True

    def _accept(self, partition: int, epoch: int) -> bool:
        present = self.epochs.get(partition)
        if present is not None and (epoch <= present if self._is_new else epoch < present):
            return False
        self.epochs[partition] = epoch
        return True
