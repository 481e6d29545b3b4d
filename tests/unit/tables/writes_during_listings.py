"""Writes during listings of a table's files, in a separate process, which the test can end after a deadlock."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.store import EVERY_ROW
from testkit.tables import new_tables

_TABLES, _LISTINGS = ("groups", "group_members"), 200


def _write(tables: PathStore, name: str, ended: threading.Event, *, in_memory: bool) -> None:
    schema = load_schema(name).arrow
    parts = [pa.Table.from_pylist([{"offsets_partition": n, "group_id": "g"}], schema=schema) for n in range(20)]
    while not ended.is_set():
        tables.open(name).replace(EVERY_ROW, parts if in_memory else iter(parts))


def main(root: str, kind: str) -> None:
    """Write to two tables while the files of one are listed; rows are in memory ("memory") or generated ("made")."""
    tables, ended = new_tables(Path(root)), threading.Event()
    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(_write, tables, name, ended, in_memory=kind == "memory") for name in _TABLES]
        try:
            for _ in range(_LISTINGS):
                tables.files(tables.open(_TABLES[0])).stored()
        finally:
            ended.set()
    for writer in writers:
        writer.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
