"""SIGINT, SIGTERM and the end of the input, as the commands take them that end what is in hand first."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_STDIN = 0
_ASK_TO_END = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def end_with_input(ask: Callable[[], object]) -> Iterator[None]:
    """Call `ask` once standard input ends, which the pipe of a process does that is gone; while the context lasts."""
    woken, wake = os.pipe()

    def read() -> None:
        with suppress(OSError):  # of an input that is closed
            while woken not in select.select([_STDIN, woken], [], [])[0]:
                if not os.read(_STDIN, 1):  # not by sys.stdin, whose lock Python would want when it ends
                    break
            else:
                return
        ask()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(wake)  # which wakes it
        thread.join()
        os.close(woken)


@contextmanager
def end_when_asked(ask: Callable[[], object], *, once: bool = False) -> Iterator[None]:
    """Call `ask` whenever SIGINT or SIGTERM comes; what took them before does so again when the context ends.

    With `once` it does so after the first of them, and the second ends the process also where SIGINT was ignored, as
    scripts have it for what they start with `&`. In another thread than the main one nothing is changed: the program
    that called us there has its own way to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ASK_TO_END}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def came(*_: object) -> None:
        ask()
        if once:
            restore()
            if before[signal.SIGINT] is signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        for number in before:
            signal.signal(number, came)
        yield
    finally:
        restore()
