"""Writes to several tables at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

Step = Callable[[], object]


def in_parallel(steps: Sequence[Step], in_thread: Callable[[Step], Step] = lambda step: step) -> None:
    """Run the steps side by side and wait for all of them; the first error is raised once all have ended.

    `in_thread` makes of a step what a thread of its own can run (`pyspark.inheritable_thread_target` does).
    """
    if len(steps) < 2:  # noqa: PLR2004
        for step in steps:
            step()
        return
    with ThreadPoolExecutor(len(steps)) as pool:
        futures = [pool.submit(in_thread(step)) for step in steps]
    for future in futures:
        future.result()


@contextmanager
def beside(step: Step) -> Iterator[None]:
    """Take the step while the context lasts, and wait for it; its error is raised where the context had none."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(step)
        yield
    future.result()
