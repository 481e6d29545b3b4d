"""Notice a job without progress: it waits for a store, a broker or Spark that took a request and never answers."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import FrameType

from pyspark.sql import SparkSession

MAIN, LEASE, BATCH, QUERY = "the main loop", "the heartbeat of the lease", "a batch", "the streaming query"
_POLL_SECONDS = 5.0
_ENDS_AFTER = 2  # times the limit
# The innermost frame whose file has one of these names says what a thread waits for. Native code has no frame.
_PLACES = {
    "/py4j/": "Spark",
    "/confluent_kafka/": "a broker",
    "/offsetstream/cluster/": "a broker",
    "/deltalake/": "the tables",
    "/pyarrow/": "the tables",
    "/offsetstream/tables/": "the tables",
    "/offsetstream/maintenance/": "the tables",
}


@dataclass(frozen=True)
class _Step:
    at: float  # by the watch's clock
    thread: int


class StallWatch:
    """Know when each part of the job last made progress, and what it waits for.

    A part calls `beat` at each step, and `rest` when it has nothing to do. A part that waits for Spark also makes
    progress whenever Spark ends a task. After `limit` without progress the job is `stalled`; after twice that, `end` is
    called. A limit of zero means never. The time in which the process stood still (SIGSTOP, a paused machine) does not
    count.
    """

    def __init__(self, limit: timedelta, warn: Callable[[str], None], end: Callable[[str], None]) -> None:
        self._limit, self._warn, self._end = (limit or timedelta.max).total_seconds(), warn, end
        self._poll_seconds = min(_POLL_SECONDS, self._limit / 4)
        self._clock = 0.0
        self._steps: dict[str, _Step] = {}
        self._stopped = threading.Event()
        self._spark = _SparkTasks()
        self.stalled: str | None = None  # what makes no progress, since when and what it waits for

    def beat(self, part: str) -> None:
        """Record a step of a part, by the thread that runs it."""
        self._steps[part] = _Step(self._clock, threading.get_ident())

    def beat_of_thread(self) -> None:
        """Record a step of the parts that the calling thread runs."""
        for part, step in list(self._steps.items()):
            if step.thread == threading.get_ident():
                self.beat(part)

    def rest(self, part: str) -> None:
        """Stop watching a part until its next step."""
        self._steps.pop(part, None)

    @contextmanager
    def part(self, part: str) -> Iterator[Callable[[], None]]:
        """Yield the function that records a step of a part, which rests after the context."""
        try:
            yield partial(self.beat, part)
        finally:
            self.rest(part)

    def uses(self, spark: SparkSession) -> None:
        """Count the ends of this session's tasks as progress of whoever waits for Spark."""
        self._spark.session = spark

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the context lasts; the calling thread runs the main loop."""
        self.beat(MAIN)
        thread = threading.Thread(target=self._run, name="stalls", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()
            self._spark.close()

    def _run(self) -> None:
        at = time.monotonic()
        while not self._stopped.wait(self._poll_seconds):
            now = time.monotonic()
            self._clock += min(now - at, 2 * self._poll_seconds)
            at = now
            self._look()

    def _look(self) -> None:
        late = {part: step for part, step in self._steps.items() if self._clock - step.at > self._limit / 2}
        if late and self._spark.has_moved(self._poll_seconds):
            for part, step in late.items():
                if _waits_for(step.thread) == "Spark" and self._steps.get(part) == step:
                    self._steps[part] = _Step(self._clock, step.thread)
        longest = min(list(self._steps.items()), key=lambda each: each[1].at, default=None)
        if longest is None or self._clock - longest[1].at <= self._limit:
            if self.stalled is not None:
                self._warn("The job makes progress again")
            self.stalled = None
            return
        part, step = longest
        seconds = self._clock - step.at
        is_new, place = self.stalled is None, "Spark" if part == QUERY else _waits_for(step.thread)
        waits = f"; it waits for {place}" if place else ""
        self.stalled = f"{part} has made no progress for {seconds:.0f} s{waits}"
        if seconds > _ENDS_AFTER * self._limit:
            self._end(self.stalled)
        elif is_new:
            self._warn(f"{self.stalled}. If that lasts, the job ends")


def _waits_for(thread: int) -> str | None:
    frame: FrameType | None = sys._current_frames().get(thread)
    while frame is not None:
        file = frame.f_code.co_filename.replace("\\", "/")
        for part, place in _PLACES.items():
            if part in file:
                return place
        frame = frame.f_back
    return None


class _SparkTasks:
    """Whether Spark has started a job or ended a task since the last question. A JVM that hangs has not moved."""

    def __init__(self) -> None:
        self.session: SparkSession | None = None
        self._seen: Hashable = None
        self._pool = ThreadPoolExecutor(1, "stalls: Spark")
        self._asked: Future[Hashable] | None = None

    def has_moved(self, seconds: float) -> bool:
        """Ask Spark, and wait up to `seconds` for its answer."""
        if self.session is None:
            return False
        if self._asked is None:
            self._asked = self._pool.submit(_tasks, self.session)
        try:
            found = self._asked.result(seconds)
        except TimeoutError:
            return False
        except Exception:
            found = None
        self._asked = None
        before, self._seen = self._seen, found
        return None not in (before, found) and before != found

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _tasks(spark: SparkSession) -> Hashable:
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    return tuple(tracker.getActiveJobsIds()), tuple(
        (each.stageId, each.numCompletedTasks, each.numFailedTasks) for each in infos if each is not None
    )
