"""Handle SIGINT, SIGTERM and the end of input in commands that finish their current work before they stop."""

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
def stop_at_end_of_input(ask: Callable[[], object]) -> Iterator[None]:
    """Call `ask` once standard input ends while the context lasts: the process at the other end of the pipe is gone."""
    woken, wake = os.pipe()

    def read() -> None:
        with suppress(OSError):  # the input may be closed
            while woken not in select.select([_STDIN, woken], [], [])[0]:
                if not os.read(_STDIN, 1):  # not sys.stdin: Python needs its lock to exit
                    break
            else:
                return
        ask()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(wake)  # wakes the thread
        thread.join()
        os.close(woken)


@contextmanager
def stop_on_signal(ask: Callable[[], object], *, once: bool = False) -> Iterator[None]:
    """Call `ask` at each SIGINT or SIGTERM while the context lasts, then restore the previous handlers.

    With `once`, restore them after the first signal, so that the second one ends the process. This works even if SIGINT
    was ignored, as in scripts for what they start with `&`. Outside the main thread this does nothing: the calling
    program has its own way to stop.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ASK_TO_END}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(*_: object) -> None:
        ask()
        if once:
            restore()
            if before[signal.SIGINT] is signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        for number in before:
            signal.signal(number, handle)
        yield
    finally:
        restore()
