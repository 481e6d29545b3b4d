"""SIGINT, SIGTERM and the end of the input, as the commands take them that end what is in hand first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

_STDIN = 0
_ASK_TO_END = (signal.SIGINT, signal.SIGTERM)


def end_with_input(ask: Callable[[], object]) -> None:
    """Call `ask` once standard input ends, which the pipe of a process does that is gone."""

    def read() -> None:
        with suppress(OSError):  # of an input that is closed
            while os.read(_STDIN, 1):  # not by sys.stdin, whose lock Python would want when it ends
                pass
        ask()

    threading.Thread(target=read, daemon=True).start()


def end_when_asked(ask: Callable[[], object], *, once: bool = False) -> Callable[[], None]:
    """Call `ask` whenever SIGINT or SIGTERM comes; return what puts back what took them before.

    With `once` that is put back after the first of them. In another thread than the main one nothing is changed: the
    program that called us there has its own way to end.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    before = {number: signal.getsignal(number) for number in _ASK_TO_END}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def came(*_: object) -> None:
        ask()
        if once:
            restore()

    for number in before:
        signal.signal(number, came)
    return restore
