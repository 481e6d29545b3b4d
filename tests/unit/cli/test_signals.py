"""What is in hand is ended first at SIGINT and SIGTERM, and another program's thread keeps its own way to end."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from offsetstream.cli.changes import stopped_between_groups
from offsetstream.cli.process import stop_on_signal
from testkit.waiting import await_

NUMBERS = [signal.SIGINT, signal.SIGTERM]


def handlers() -> list[object]:
    return [signal.getsignal(each) for each in NUMBERS]


@pytest.mark.parametrize("number", NUMBERS)
def test_each_signal_calls_the_handler_until_it_is_restored(number: signal.Signals) -> None:
    before, asked = handlers(), list[int]()
    with stop_on_signal(lambda: asked.append(1)):
        for count in (1, 2):
            os.kill(os.getpid(), number)
            await_(lambda: len(asked) >= count, pause=0.01)  # noqa: B023 - awaited within
    assert asked == [1, 1]
    assert handlers() == before


@pytest.mark.parametrize("at_first", [signal.default_int_handler, signal.SIG_IGN], ids=["heard", "ignored"])
def test_second_signal_stops_at_once(capsys: pytest.CaptureFixture[str], at_first: signal._HANDLER) -> None:
    """Also where SIGINT is ignored, as what a script starts in the background inherits it."""
    of_the_tests = signal.signal(signal.SIGINT, at_first)
    try:
        before = handlers()
        with pytest.raises(KeyboardInterrupt), stopped_between_groups() as is_stopped:
            os.kill(os.getpid(), signal.SIGTERM)
            await_(is_stopped, pause=0.01)
            os.kill(os.getpid(), signal.SIGINT)
            await_(lambda: False)
        assert handlers() == before
    finally:
        signal.signal(signal.SIGINT, of_the_tests)
    assert "Stopping after the current group" in capsys.readouterr().err


def test_outside_the_main_thread_signals_are_untouched() -> None:
    def work() -> bool:
        with stopped_between_groups() as is_stopped:
            return is_stopped()

    before = handlers()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result(10) is False
    assert handlers() == before
