"""What the cache of metadata takes over of what it is told: never an older leader epoch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offsetstream.cluster.metadata import PartitionMetadata, newer

KNOWN = PartitionMetadata(leader=1, leader_epoch=5, replicas=(1, 2), in_sync_replicas=(1, 2))


@pytest.mark.parametrize(
    ("seen", "holds"),
    [
        (replace(KNOWN, leader=2, leader_epoch=6), replace(KNOWN, leader=2, leader_epoch=6)),
        (replace(KNOWN, leader=2, leader_epoch=4), KNOWN),
        (replace(KNOWN, in_sync_replicas=(1,)), replace(KNOWN, in_sync_replicas=(1,))),
        # Without a leader, or with one that does not answer, nobody tells an epoch: the known one is the least.
        (replace(KNOWN, leader=None, leader_epoch=None), replace(KNOWN, leader=None)),
        (replace(KNOWN, leader=3, leader_epoch=None), replace(KNOWN, leader=3)),
    ],
)
def test_the_newer_leader_epoch_wins(seen: PartitionMetadata, holds: PartitionMetadata) -> None:
    assert newer(KNOWN, seen) == holds
    assert newer(None, seen) == seen
    assert newer(replace(KNOWN, leader_epoch=None), seen) == seen
