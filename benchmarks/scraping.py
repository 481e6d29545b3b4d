"""Prometheus as the job sees it: a client that scrapes its metrics during every second half minute.

So one job is measured with and without scrapes: differences between runs are larger than the cost of scrapes.
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

_EVERY_SECONDS = 15.0  # as monitoring/prometheus has it
_WINDOW_SECONDS = 30.0


@dataclass
class Scrapes:
    """When a job is scraped: in every other window since `began` (seconds since 1970); `series`: of each scrape."""

    began: float = field(default_factory=time.time)
    series: list[int] = field(default_factory=list)

    def are_on(self, since: float, until: float) -> bool | None:
        """Tell whether it is scraped from one time to the other; None where that changes in between."""
        first, last = (int((at - self.began) // _WINDOW_SECONDS) % 2 == 1 for at in (since, until))
        return first if first == last and until - since < _WINDOW_SECONDS else None


@contextmanager
def scraping(port: int) -> Iterator[Scrapes]:
    """Scrape a job while the context lasts, in every other half minute."""
    scrapes = Scrapes()

    def scrape(ended: threading.Event) -> None:
        while not ended.wait(_EVERY_SECONDS):
            if not scrapes.are_on(time.time(), time.time()):
                continue
            try:
                with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30) as answer:
                    scrapes.series.append(sum(not line.startswith(b"#") for line in answer))
            except URLError:
                continue  # it does not listen yet, or no more

    with at_work(scrape):
        yield scrapes
