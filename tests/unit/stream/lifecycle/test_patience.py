import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from offsetstream.errors import (
    LostPartError,
    OffsetstreamError,
    RefusedLoginError,
    StoreFaultError,
    UnauthorisedError,
    UnreachableError,
    UsageError,
)
from offsetstream.stream.lifecycle import patience
from offsetstream.stream.lifecycle.patience import LOSSES_WITHIN, MOST_LOSSES, Losses, Patience, Standstill

SILENCE = UnreachableError("no broker answers at a:1")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LONGEST_PAUSE", 0.01)


def question(*answers: Exception | int) -> Callable[[], int]:
    left = iter(answers)

    def ask() -> int:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_it_retries_until_there_is_an_answer_and_logs_each_retry() -> None:
    said: list[str] = []
    asked = Patience(timedelta(seconds=60), threading.Event(), said.append)
    assert asked.ask(question(SILENCE, SILENCE, 7)) == 7
    assert said == 2 * ["no broker answers at a:1; retrying in 0 s"]


def test_it_gives_up_after_the_set_time() -> None:
    asked = Patience(timedelta(0), threading.Event(), print)
    with pytest.raises(UnreachableError):
        asked.ask(question(SILENCE, 7))


def test_a_refusal_is_not_retried() -> None:
    asked = Patience(timedelta(seconds=60), threading.Event(), print)
    with pytest.raises(UnauthorisedError):
        asked.ask(question(UnauthorisedError("no"), 7))


@pytest.mark.parametrize("change", [RefusedLoginError("a:1 refuses this login"), UsageError("cannot read the store")])
def test_a_login_that_is_being_changed_is_retried_once_it_has_worked(change: Exception) -> None:
    said: list[str] = []
    asked = Patience(timedelta(seconds=60), threading.Event(), said.append)
    with pytest.raises(type(change)):
        asked.ask(question(change, 7))
    assert (said, asked.ask(question(7))) == ([], 7)
    assert asked.ask(question(change, SILENCE, 8)) == 8
    assert said == [f"{change}; retrying in 0 s", f"{SILENCE}; retrying in 0 s"]


def test_a_stop_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LONGEST_PAUSE", 600.0)
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    started = time.monotonic()
    with pytest.raises(UnreachableError):
        Patience(timedelta(hours=1), stop, print).ask(question(SILENCE, SILENCE, SILENCE))
    assert stop.is_set()
    assert time.monotonic() - started < 600


LOSS = LostPartError("A Python worker of Spark was killed", "Give it more memory")


def test_losses_are_logged_and_too_many_end_the_job_with_advice() -> None:
    said: list[str] = []
    losses = Losses(threading.Event(), said.append)
    for _ in range(MOST_LOSSES - 1):
        losses.wait_after(LOSS)
    with pytest.raises(LostPartError, match=f"killed, for the {MOST_LOSSES}th time.*Give it more memory"):
        losses.wait_after(LOSS)
    assert len(said) == MOST_LOSSES - 1
    assert all("was killed; trying again from the tables' positions" in line for line in said)


def test_rare_losses_never_end_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    losses, now = Losses(threading.Event(), print), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for _ in range(3 * MOST_LOSSES):
        losses.wait_after(LOSS)
        now[0] += LOSSES_WITHIN.total_seconds() / (MOST_LOSSES - 1)


FULL = StoreFaultError("A disk is full")


@pytest.mark.parametrize(
    ("error", "has_loaded", "is_last"), [(FULL, False, True), (FULL, True, False), (SILENCE, False, False)]
)
def test_only_silence_is_borne_by_a_job_that_never_worked(
    error: OffsetstreamError, has_loaded: bool, is_last: bool
) -> None:
    standstill, started = Standstill(timedelta(minutes=10)), time.monotonic()
    for _ in range(2):
        if is_last:
            with pytest.raises(type(error)):
                standstill.bear(error, started=started, has_loaded=has_loaded, has_moved=False)
        else:
            standstill.bear(error, started=started, has_loaded=has_loaded, has_moved=False)


def test_a_job_that_has_worked_bears_outages_of_later_attempts() -> None:
    standstill, started = Standstill(timedelta(minutes=10)), time.monotonic()
    standstill.bear(FULL, started=started, has_loaded=True, has_moved=False)
    standstill.bear(FULL, started=started, has_loaded=False, has_moved=False)


def test_outages_without_progress_end_the_job_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    standstill, now = Standstill(timedelta(minutes=10)), 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for now, has_moved in ((0.0, False), (500.0, False), (700.0, True), (1200.0, False)):
        standstill.bear(FULL, started=now - 1, has_loaded=True, has_moved=has_moved)
    now = 1301.0
    standstill.bear(FULL, started=now - 601, has_loaded=True, has_moved=False)  # it ran for longer than the limit
    now = 1902.0
    with pytest.raises(StoreFaultError, match="A disk is full"):
        standstill.bear(FULL, started=now - 1, has_loaded=True, has_moved=False)
