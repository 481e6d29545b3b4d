"""Track which offsets partitions a broker coordinates, and their epochs (reference 4.1, 5.1)."""

from __future__ import annotations


class Ownership:
    """The partitions that are loading, owned (ACTIVE in the new coordinator) or failed, and their epochs.

    The classic coordinator accepts the same epoch again, keeps the epoch of an unloaded partition, and owns a partition
    even if its load failed. The new one requires a higher epoch, forgets the epoch at unload, and keeps a failed
    partition as such.
    """

    def __init__(self, *, is_new: bool) -> None:
        self._is_new = is_new
        self.loading: set[int] = set()
        self.owned: set[int] = set()
        self.failed: set[int] = set()
        self.epochs: dict[int, int] = {}

    def start_load(self, partition: int, epoch: int) -> bool:
        """Start a load. False if the epoch is too old, or the partition is already owned or loading."""
        if not self._accept(partition, epoch) or partition in self.owned | self.loading:
            return False
        self.failed.discard(partition)
        self.loading.add(partition)
        return True

    def end_load(self, partition: int) -> None:
        """Own a partition after all its records were replayed."""
        self.loading.discard(partition)
        self.owned.add(partition)

    def fail(self, partition: int) -> None:
        """Drop a partition whose replay failed. A classic coordinator then owns it, empty."""
        self.loading.discard(partition)
        self.owned.discard(partition)
        (self.failed if self._is_new else self.owned).add(partition)

    def unload(self, partition: int, epoch: int | None) -> bool:
        """Give up a partition. False if the epoch is too old. Without an epoch (StopReplica) it always succeeds."""
        if epoch is not None and not self._accept(partition, epoch):
            return False
        for partitions in (self.loading, self.owned, self.failed):
            partitions.discard(partition)
        if self._is_new:
            self.epochs.pop(partition, None)
        return True

    def _accept(self, partition: int, epoch: int) -> bool:
        known_epoch = self.epochs.get(partition)
        if known_epoch is not None and (epoch <= known_epoch if self._is_new else epoch < known_epoch):
            return False
        self.epochs[partition] = epoch
        return True
