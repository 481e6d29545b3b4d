"""Where to look into a live partition: at an offset, at a time, at what a group reads next, at the latest records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from offsetstream.cluster.committed import Place
from offsetstream.cluster.log_ends import Answers, LogEnd, TopicPlace
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.reading import Reading, ends_of, read_from
from offsetstream.cluster.records_at import IsolationLevel

_FURTHER_BACK = 8  # times as far, where compaction and transactions left too few records
_LOOK_BACK = 10_000  # offsets at most, or as many as there are to be records


class Peek:
    """Reads some records of live partitions, waiting for them for `timeout` seconds in each question.

    Every question raises what `Connection` does.
    """

    def __init__(
        self, bootstrap_server: str, properties: Mapping[str, str], isolation_level: IsolationLevel, timeout: float
    ) -> None:
        self.cluster = MetadataCache(bootstrap_server, properties)
        self._properties = properties
        self._isolation = isolation_level
        self._timeout = timeout

    def read(self, starts: Mapping[Place, int], at_most: int) -> dict[Place, Reading]:
        """Return the next records of each partition from an offset on."""
        return self._read(starts, at_most, ends_of(self.cluster, starts), self._deadline())

    def since(self, place: Place, since_ms: int, at_most: int) -> Reading:
        """Return the records from the first on that was written at a time, in milliseconds since 1970, or later."""
        deadline = self._deadline()
        ends = ends_of(self.cluster, [place], deadline)
        end = ends.get(TopicPlace(*place))
        if not isinstance(end, LogEnd):
            return self._read({place: 0}, at_most, ends, deadline)[place]
        first = self.cluster.first_since(TopicPlace(*place), since_ms)
        if isinstance(first, str):
            return Reading(end.high_watermark, end, error=first)
        if first is None:
            return Reading(end.high_watermark, end)
        return self._read({place: first}, at_most, ends, deadline)[place]

    def latest(self, place: Place, at_most: int) -> Reading:
        """Return the last records of a partition, of the last 10,000 offsets at most."""
        deadline = self._deadline()
        ends = ends_of(self.cluster, [place], deadline)
        end = ends.get(TopicPlace(*place))
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
    furthest, back = max(_LOOK_BACK, at_most), at_most
    while back < furthest:
        yield back
        back *= _FURTHER_BACK
    yield furthest
