"""Scrapes the job's metrics like Prometheus, but only in every other half minute.

So one run shows batches with and without scrapes; two runs differ by more than scrapes cost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.error import URLError
from urllib.request import urlopen

from offsetstream.embedded.ports import LOOPBACK
from testkit.waiting import at_work

_EVERY_SECONDS = 15.0  # as in monitoring/prometheus
_WINDOW_SECONDS = 30.0


@dataclass
class Scrapes:
    """Scrapes in every other window since `began` (seconds since 1970). `series`: the number in each scrape."""

    began: float = field(default_factory=time.time)
    series: list[int] = field(default_factory=list)

    def are_on(self, since: float, until: float) -> bool | None:
        """Return whether scrapes are on from `since` to `until`; None if that changes in between."""
        first, last = (int((at - self.began) // _WINDOW_SECONDS) % 2 == 1 for at in (since, until))
        return first if first == last and until - since < _WINDOW_SECONDS else None


@contextmanager
def scraping(port: int) -> Iterator[Scrapes]:
    """Scrape a job in every other half minute of the context."""
    scrapes = Scrapes()

    def scrape(ended: threading.Event) -> None:
        while not ended.wait(_EVERY_SECONDS):
            if not scrapes.are_on(time.time(), time.time()):
                continue
            try:
                with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30) as answer:
                    scrapes.series.append(sum(not line.startswith(b"#") for line in answer))
            except URLError:
                continue  # the job does not listen yet, or no longer

    with at_work(scrape):
        yield scrapes
