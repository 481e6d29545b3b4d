"""Prometheus, as far as the job notices: somebody who asks for its metrics now and then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import URLError
from urllib.request import urlopen

from offsetstream.embedded.ports import LOOPBACK

_EVERY_SECONDS = 15.0  # as monitoring/prometheus has it


@contextmanager
def scraping(port: int) -> Iterator[list[int]]:
    """Scrape a job while the context lasts; gives a list that gets the count of series of each scrape."""
    ended, series = threading.Event(), list[int]()

    def scrape() -> None:
        while not ended.wait(_EVERY_SECONDS):
            try:
                with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30) as answer:
                    series.append(sum(not line.startswith(b"#") for line in answer))
            except URLError:
                continue  # it does not listen yet, or no more

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield series
    finally:
        ended.set()
        thread.join()
