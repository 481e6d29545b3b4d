"""Concurrent commits to a separate table."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyarrow as pa
from deltalake import write_deltalake

from testkit.waiting import SECONDS

_WRITERS, _COMMITS = 4, 5


def commit_at_once(uri: str) -> int:
    """Make a table, and append to it from several threads. Returns the version that it must have afterwards."""
    row = pa.table({"number": [1]})
    write_deltalake(uri, row)

    together = Barrier(_WRITERS)

    def commit(_writer: int) -> None:
        for _ in range(_COMMITS):
            together.wait(SECONDS)
            write_deltalake(uri, row, mode="append")

    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(commit, range(_WRITERS)))
    return _WRITERS * _COMMITS
