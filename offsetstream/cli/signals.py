"""SIGINT and SIGTERM, as the commands take them that end what is in hand first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

_ASK_TO_END = (signal.SIGINT, signal.SIGTERM)


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
