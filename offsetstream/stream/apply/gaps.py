"""Offsets without a record in what was read: what compaction took is missing in the history, markers are not.

A transaction's markers, and what was aborted, take offsets too. So a gap counts unless the topic's settings keep
compaction away from records so young, or the log itself is asked and still has everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offsetstream.errors import ClusterError
from offsetstream.stream.monitor.topic_settings import TopicSettings
from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.stream.state.size import Share

Ranges = Mapping[int, tuple[int, int]]  # the first offset and the end (exclusive), by offsets partition
LostOffsets = Callable[[Ranges], Mapping[int, int]]
_NOTHING = Share(0, None)


class Gaps:
    """Finds the partitions of whose records a batch lacks some.

    `lost_offsets` tells of ranges how many of their offsets are in no record batch of the log any more; what it does
    not tell, or raises ClusterError for, counts as lost.
    """

    def __init__(self, book: PartitionBook, settings: TopicSettings, lost_offsets: LostOffsets) -> None:
        self._book = book
        self._settings = settings
        self._lost_offsets = lost_offsets

    def incomplete(self, ends: Mapping[int, int], shares: Mapping[int, Share]) -> list[int]:
        """Return the partitions of which a batch up to `ends`, which is read and not applied, lacks records."""
        gaps = {
            number: (row.applied, end)
            for number, end in ends.items()
            if (row := self._book.rows[number]).history_complete_from is not None
            and shares.get(number, _NOTHING).records < end - row.applied
            and not self._is_too_young(number)
        }
        lost = self._lost(gaps) if gaps else {}
        return [number for number in gaps if lost.get(number, 1) > 0]

    def _is_too_young(self, partition: int) -> bool:
        unread = self._book.unread_since(partition)
        if unread is None:
            return False
        since, age = unread
        return since > self._settings.uncompacted_since and age < self._settings.uncompacted_for

    def _lost(self, gaps: Ranges) -> Mapping[int, int]:
        try:
            return self._lost_offsets(gaps)
        except ClusterError:
            return {}
