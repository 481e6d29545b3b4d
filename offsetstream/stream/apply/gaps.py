"""Gaps in the offsets of a batch: records that compaction removed are missing in the history.

Transaction markers and aborted records take offsets too, but nothing is missing then. So a gap counts, unless the
settings of the topic keep compaction away from such young records, or the log itself still has everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offsetstream.errors import ClusterError
from offsetstream.stream.monitor.topic_settings import TopicSettings
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.state.size import Share

Ranges = Mapping[int, tuple[int, int]]  # the first offset and the end (exclusive), by offsets partition
LostOffsets = Callable[[Ranges], Mapping[int, int]]
_NOTHING = Share(0, None)


class Gaps:
    """Find the partitions in which a batch lacks records.

    `lost_offsets` returns how many offsets of each range no record batch of the log has any more. If it returns nothing
    for a range, or raises ClusterError, the offsets count as lost.
    """

    def __init__(self, book: PartitionBook, settings: TopicSettings, lost_offsets: LostOffsets) -> None:
        self._book = book
        self._settings = settings
        self._lost_offsets = lost_offsets

    def incomplete(self, ends: Mapping[int, int], shares: Mapping[int, Share]) -> list[int]:
        """Return the partitions in which a batch up to `ends`, read but not applied, lacks records."""
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
