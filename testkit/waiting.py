"""Waits for conditions, and runs work in threads meanwhile."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from types import CodeType
from typing import Any

PATIENCE = float(os.environ.get("OFFSETSTREAM_TEST_PATIENCE") or 1)
"""Multiplies all limits of the tests, for a machine that is slow or busy."""
SECONDS = 240.0 * PATIENCE  # only so that a failing test ends; tests never assert a time


def await_(
    condition: Callable[[], bool],
    told: Callable[[], object] = lambda: "",
    *,
    meanwhile: Callable[[], None] = lambda: None,
    pause: float = 0.1,
) -> None:
    """Wait until the condition holds; AssertionError if it never does. Errors of `meanwhile` end the wait.

    The error shows the source of the condition, the last values of its parts, and what `told` returns.
    `pause` is the time between two checks, in seconds.
    """
    deadline = time.monotonic() + SECONDS
    while not condition():
        meanwhile()
        if time.monotonic() >= deadline:
            lines = [f"Waited {SECONDS:.0f} s in vain for: {_written(condition)}", *_seen(condition), str(told())]
            raise AssertionError("\n".join(lines))
        time.sleep(pause)


def _written(condition: Callable[[], bool]) -> str:
    """Return the expression of a lambda, the source of a function, or the `repr` of anything else."""
    expression = _expression(condition)
    if expression is not None:
        return ast.unparse(expression)
    try:
        return textwrap.dedent(inspect.getsource(condition)).strip()
    except (OSError, TypeError):
        return repr(condition)


def _seen(condition: Callable[[], bool]) -> Iterator[str]:
    """Yield the values that a lambda compares. This evaluates its calls once more."""
    expression = _expression(condition)
    if expression is None:
        return
    names = inspect.getclosurevars(condition)
    known = {**names.builtins, **names.globals, **names.nonlocals}
    for part in _compared(expression):
        try:
            value = eval(compile(ast.Expression(part), "<awaited>", "eval"), known)  # noqa: S307 - the test's own words
        except Exception as error:  # any exception is shown in place of the value
            value = error
        yield f"  last seen: {ast.unparse(part)} = {value!r}"


def _compared(expression: ast.expr) -> Iterator[ast.expr]:
    match expression:
        case ast.BoolOp():
            for each in expression.values:
                yield from _compared(each)
        case ast.Compare():
            for each in (expression.left, *expression.comparators):
                if not isinstance(each, ast.Constant):
                    yield each
        case ast.UnaryOp():
            yield from _compared(expression.operand)
        case _:
            yield expression


def _expression(condition: Callable[[], bool]) -> ast.expr | None:
    """Return the expression of a lambda, found by its place in the file; None for anything else."""
    code: Any = getattr(condition, "__code__", None)
    if not isinstance(code, CodeType) or code.co_name != "<lambda>":
        return None
    try:
        module = ast.parse("".join(inspect.findsource(code)[0]))
    except (OSError, SyntaxError):
        return None
    places = {place[:1] + place[2:3] for place in code.co_positions() if place[0] is not None}
    for node in ast.walk(module):
        if isinstance(node, ast.Lambda) and (node.body.lineno, node.body.col_offset) in places:
            return node.body
    return None


@contextmanager
def at_work(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run `work` in a thread. At the end of the context its event is set, and then this waits until it returns."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def repeated(step: Callable[[], object], seconds: float) -> Iterator[None]:
    """Repeat a step in a thread while the context lasts. Wait `seconds` before each step."""

    def work(ended: threading.Event) -> None:
        while not ended.wait(seconds):
            step()

    with at_work(work):
        yield


MARGIN = timedelta(seconds=30)


def today() -> date:
    """Return the day in UTC. Shortly before midnight, wait for the next day, so that the day stays during a test."""
    while (now := datetime.now(UTC)).date() != (now + MARGIN).date():
        time.sleep(1)
    return now.date()
