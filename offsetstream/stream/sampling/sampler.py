"""The thread that samples where logs end. It takes no turns: no batch waits for it, and it for none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from offsetstream.errors import LeaseError, UnreachableError, first_line
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.stream.sampling.rounds import Rounds
from offsetstream.tables.transaction import BatchId

_END_SECONDS = 5.0  # for which a round that a silent cluster holds up is waited for


class Sampler:
    """Samples every `seconds` from `start` on; with 0 it only writes what the cluster's settings are.

    `metrics` are told of rounds that are written, and of a cluster that does not answer. What fails is said once, and
    tried again in the next round: nothing of it ends the job.
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
        """Write nothing meanwhile: who shuts out the older checkpoints tells of the new one, by `start`, in this."""
        with self._writing:
            yield

    def start(self, checkpoint_id: int) -> None:
        """Begin, or go on, with writes of this checkpoint: by its number a job is shut out once another took over."""
        self._batch = BatchId(checkpoint_id, -1)
        if self._thread.ident is None:
            self._thread.start()

    def end(self, *, with_a_round: bool = False) -> None:
        """Stop; before that sample once more, for whoever asks once the job has ended."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._thread.ident is None:
            return
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            return  # what it waits to ask nobody answers, and what it has not written the next job makes up for
        if with_a_round and self._seconds:
            self._round()

    def _run(self) -> None:
        if not self._seconds:
            self._try("recorded", self._record_cluster)
            return
        while not self._ended.is_set():
            began = time.monotonic()
            self._round()
            self._ended.wait(max(0.0, began + self._seconds - time.monotonic()))

    def _round(self) -> None:
        if self._try("sampled", self._rounds.ask) and self._try("recorded", self._record):
            self._metrics.sampled()

    def _record(self) -> None:
        with self._writing:
            self._rounds.write(self._batch)

    def _record_cluster(self) -> None:
        with self._writing:
            self._rounds.write_cluster(self._batch)

    def _try(self, what: str, step: Callable[[], None]) -> bool:
        try:
            step()
        except LeaseError:
            self._ended.set()  # the job is told by its lease
            return False
        except Exception as error:  # of whatever kind: the job can do without samples for a while
            if isinstance(error, UnreachableError):
                self._metrics.answered(does_answer=False)
            if what not in self._failing:
                self._warn(f"Where the logs end is not {what} for now: {first_line(error)}")
            self._failing.add(what)
            return False
        if what in self._failing:
            self._failing.discard(what)
            self._say(f"Where the logs end is {what} again")
        return True
