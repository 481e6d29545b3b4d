"""Read some records of a live partition: from an offset, from a time, or the latest ones."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from offsetstream.cluster.committed import Place
from offsetstream.cluster.log_ends import Answers, LogEnd, TopicPartitionKey
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.reading import Reading, ends_of, read_from
from offsetstream.cluster.records_at import IsolationLevel

_BACKOFF_FACTOR = 8  # read from further back if compaction and transactions left too few records
_MAX_OFFSETS_BACK = 10_000  # or the number of requested records, if larger


class Peek:
    """Reads records of live partitions. Each request waits up to `timeout` seconds.

    Every request raises what `Connection` raises.
    """

    def __init__(
        self, bootstrap_server: str, properties: Mapping[str, str], isolation_level: IsolationLevel, timeout: float
    ) -> None:
        self.cluster = MetadataCache(bootstrap_server, properties)
        self._properties = properties
        self._isolation = isolation_level
        self._timeout = timeout

    def read(self, starts: Mapping[Place, int], at_most: int) -> dict[Place, Reading]:
        """Return up to `at_most` records of each partition, starting at an offset."""
        return self._read(starts, at_most, ends_of(self.cluster, starts), self._deadline())

    def since(self, place: Place, since_ms: int, at_most: int) -> Reading:
        """Return up to `at_most` records, starting at the first at a time (milliseconds since 1970) or later."""
        deadline = self._deadline()
        ends = ends_of(self.cluster, [place], deadline)
        end = ends.get(TopicPartitionKey(*place))
        if not isinstance(end, LogEnd):
            return self._read({place: 0}, at_most, ends, deadline)[place]
        first = self.cluster.first_since(TopicPartitionKey(*place), since_ms)
        if isinstance(first, str):
            return Reading(end.high_watermark, end, error=first)
        if first is None:
            return Reading(end.high_watermark, end)
        return self._read({place: first}, at_most, ends, deadline)[place]

    def latest(self, place: Place, at_most: int) -> Reading:
        """Return the last records of a partition, from at most the last 10,000 offsets."""
        deadline = self._deadline()
        ends = ends_of(self.cluster, [place], deadline)
        end = ends.get(TopicPartitionKey(*place))
        if not isinstance(end, LogEnd):
            return self._read({place: 0}, at_most, ends, deadline)[place]
        last = end.last_stable_offset if self._isolation == "read_committed" else end.high_watermark
        first = end.log_start_offset or 0
        for back in _distances(at_most):
            start = max(last - back, first)
            reading = self._read({place: start}, back, ends, deadline)[place]
            if len(reading.records) >= at_most or start == first or reading.error is not None:
                break
        return replace(reading, records=reading.records[-at_most:])

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def _read(self, starts: Mapping[Place, int], at_most: int, ends: Answers, deadline: float) -> dict[Place, Reading]:
        return read_from(
            self.cluster,
            self._properties,
            starts,
            at_most,
            ends=ends,
            isolation_level=self._isolation,
            deadline=deadline,
        )


def _distances(at_most: int) -> Iterable[int]:
    furthest, back = max(_MAX_OFFSETS_BACK, at_most), at_most
    while back < furthest:
        yield back
        back *= _BACKOFF_FACTOR
    yield furthest
