"""The process of a command: its standard descriptors, its signals and its exit."""

from __future__ import annotations

import atexit
import errno
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from offsetstream.settings.places import is_databricks

_STDOUT, _STDERR = 1, 2
_exit_codes: list[int] = []  # of the program, once it ends


class _Lossy(io.FileIO):
    """Standard error that drops text it cannot write, so that an answer or a job does not fail because of it.

    A closed pipe still raises.
    """

    def write(self, data: Any, /) -> int:
        """Write bytes; drop them if that fails."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            return len(data)


def hold_standard_descriptors() -> None:
    """Open the null device in place of a closed standard descriptor, and make standard error tolerate a full disk.

    Otherwise the next opened file would get the number of the closed one, and output of libraries and Java would go
    into it. `sys.stdout` stays None if standard output is closed.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(number, True)  # for child processes
    os.close(number)
    if sys.stderr is sys.__stderr__:  # else somebody, such as a test, has replaced it
        raw = _Lossy(_STDERR, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)
        atexit.register(_exit_despite_threads)  # before all others, so that it runs after them


def flush_answers() -> OSError | None:
    """Flush standard output; return the error if that fails, and drop the text.

    Otherwise Python would flush again at exit, and print lines and set an exit code of its own.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, _STDOUT)
        os.close(null)
        return error
    return None


def end_quietly(ended: SystemExit) -> None:
    """Exit with this code whatever native libraries do at the end, and drop what they print to standard error.

    Does nothing on Databricks, where the process continues, or if a test or another caller has replaced standard error.
    """
    if is_databricks() or getattr(sys.stderr, "fileno", None) is None or sys.__stderr__ is None:
        return
    with suppress(OSError, ValueError):
        if sys.stderr.fileno() == _STDERR:
            with suppress(OSError):  # its reader has gone
                sys.stderr.flush()
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, _STDERR)
            os.close(null)
            _exit_codes.append(int(ended.code or 0))


def _exit_despite_threads() -> None:
    """Exit now if daemon threads still run.

    When the interpreter ends, it unwinds the stacks of these threads. DuckDB and delta-rs do not allow that in their
    functions: they abort the process.
    """
    if _exit_codes and threading.active_count() > 1:
        os._exit(_exit_codes[-1])


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
