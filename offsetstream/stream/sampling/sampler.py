"""The thread that samples end offsets. It does not wait for batches, and batches do not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from offsetstream.errors import LeaseError, UnreachableError, first_line
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.stream.sampling.rounds import Rounds
from offsetstream.tables.transaction import BatchId

_END_SECONDS = 5.0  # to wait for a round that a silent cluster delays
_SAMPLE, _WRITE = "sample", "write"


class Sampler:
    """Sample every `seconds` after `start`. With 0, only write the settings of the cluster once.

    `metrics` count the rounds, and show if the cluster does not answer. A failure is logged once, and the next round
    tries again: it never ends the job.
    """

    def __init__(
        self,
        rounds: Rounds,
        seconds: float,
        say: Callable[[str], None],
        warn: Callable[[str], None],
        metrics: JobMetrics,
    ) -> None:
        self._rounds = rounds
        self._seconds = seconds
        self._say, self._warn = say, warn
        self._metrics = metrics
        self._batch = BatchId(0, -1)
        self._failing: set[str] = set()
        self._ended = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Write nothing while the context lasts. Call `start` in it with the new checkpoint."""
        with self._writing:
            yield

    def start(self, checkpoint_id: int) -> None:
        """Start or continue with this checkpoint id for writes: it shuts this job out after another took over."""
        self._batch = BatchId(checkpoint_id, -1)
        if self._thread.ident is None:
            self._thread.start()

    def end(self, *, with_a_round: bool = False) -> None:
        """Stop. `with_a_round`: take a last sample before, so that queries after the end of the job have it."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._thread.ident is None:
            return
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            return  # the cluster does not answer; the next job adds what is not written
        if with_a_round and self._seconds:
            self._round()

    def _run(self) -> None:
        if not self._seconds:
            self._try(_WRITE, self._record_cluster)
            return
        while not self._ended.is_set():
            started = time.monotonic()
            self._round()
            self._ended.wait(max(0.0, started + self._seconds - time.monotonic()))

    def _round(self) -> None:
        if self._try(_SAMPLE, self._rounds.ask) and self._try(_WRITE, self._record):
            self._metrics.sampled()

    def _record(self) -> None:
        with self._writing:
            self._rounds.write(self._batch)

    def _record_cluster(self) -> None:
        with self._writing:
            self._rounds.write_cluster(self._batch)

    def _try(self, action: str, step: Callable[[], None]) -> bool:
        try:
            step()
        except LeaseError:
            self._ended.set()  # the lease ends the job
            return False
        except Exception as error:  # any error: the job can run without samples for a while
            if isinstance(error, UnreachableError):
                self._metrics.answered(does_answer=False)
            if action not in self._failing:
                self._warn(f"Cannot {action} end offsets, retrying: {first_line(error)}")
            self._failing.add(action)
            return False
        if action in self._failing:
            self._failing.discard(action)
            self._say(f"Can {action} end offsets again")
        return True
