"""Run several writes in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

Step = Callable[[], object]


def in_parallel(steps: Sequence[Step], in_thread: Callable[[Step], Step] = lambda step: step) -> None:
    """Run the steps in parallel and wait for all. The first error is raised after all have ended.

    `in_thread` wraps a step for its thread, as `pyspark.inheritable_thread_target` does.
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
def running_alongside(step: Step) -> Iterator[None]:
    """Run the step in a thread while the context runs, then wait for it.

    The step's error is raised, unless the context raised one itself.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(step)
        yield
    future.result()
