"""The sampler's thread: no failure ends the job, and waiting rows are written at the end."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from offsetstream.errors import LeaseError, TablesError, UnreachableError
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.stream.sampling.sampler import Sampler
from offsetstream.tables.transaction import BatchId
from testkit.waiting import await_


class Rounds:
    """Counts the calls of the sampler. `errors`: what each method raises."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int | None]] = []
        self.errors: dict[str, Exception] = {}

    def ask(self) -> None:
        self._do("ask", None)

    def write(self, batch: BatchId) -> None:
        self._do("write", batch)

    def count(self, what: str) -> int:
        return [each for each, _ in self.done].count(what)

    def _do(self, what: str, batch: BatchId | None) -> None:
        self.done.append((what, batch.checkpoint_id if batch else None))
        if what in self.errors:
            raise self.errors[what]


@contextmanager
def sampling(rounds: Any, said: list[str], seconds: float = 0.01) -> Iterator[Sampler]:
    made = Sampler(rounds, seconds, said.append, said.append, JobMetrics())
    made.start(1)
    try:
        yield made
    finally:
        made.end()


def test_each_round_is_written_at_once() -> None:
    rounds, said = Rounds(), list[str]()
    with sampling(rounds, said):
        await_(lambda: rounds.count("write") > 3)
    assert rounds.done == [("ask", None), ("write", 1)] * rounds.count("write")
    assert said == []


def test_an_interval_of_zero_turns_sampling_off() -> None:
    rounds = Rounds()
    with sampling(rounds, [], 0):
        pass
    assert rounds.done == []


def test_the_end_takes_a_last_sample() -> None:
    rounds = Rounds()
    with sampling(rounds, [], 3600) as made:
        await_(lambda: rounds.count("write") == 1)
        made.end(with_a_round=True)
    assert rounds.done == [("ask", None), ("write", 1)] * 2


def test_a_failure_is_logged_once_and_retried() -> None:
    rounds, said = Rounds(), list[str]()
    rounds.errors = {"ask": UnreachableError("no broker answers")}
    with sampling(rounds, said):
        await_(lambda: rounds.count("ask") > 3)
        assert said == ["Cannot sample end offsets, retrying: no broker answers"]
        rounds.errors = {"write": TablesError("the disk is full")}
        await_(lambda: rounds.count("write") > 1 and len(said) > 2)
    assert said[1:] == [
        "Can sample end offsets again",
        "Cannot write end offsets, retrying: the disk is full",
    ]


def test_a_later_job_ends_sampling_without_a_log_line() -> None:
    rounds, said = Rounds(), list[str]()
    rounds.errors = {"write": LeaseError("another job has taken over")}
    with sampling(rounds, said) as made:
        await_(lambda: not made._thread.is_alive())
    assert (rounds.count("write"), said) == (1, [])


def test_nothing_is_written_while_older_checkpoints_are_shut_out() -> None:
    rounds = Rounds()
    with sampling(rounds, []) as made:
        with made.paused():
            before, asked = rounds.count("write"), rounds.count("ask")
            await_(lambda: rounds.count("ask") > asked)
            threading.Event().wait(0.05)
            assert rounds.count("write") == before
            made.start(2)
        await_(lambda: rounds.count("write") > before)
        assert [number for what, number in rounds.done if what == "write"][before:][0] == 2
