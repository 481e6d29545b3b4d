"""One first load by a new process of the job, into new tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.commit_log import OFFSETS_PARTITIONS
from benchmarks.job import Job
from benchmarks.results import print_seconds
from offsetstream.tables.names import OWNED
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows

_ALL_LOADED = f"{OFFSETS_PARTITIONS} of {OFFSETS_PARTITIONS} offsets partitions loaded"


@dataclass(frozen=True)
class Load:
    """A first load: the seconds from its start until all partitions were OWNED, its tables and its peak memory."""

    seconds: float
    folder: Path
    peak_bytes: int


@contextmanager
def loaded(bootstrap_server: str, cells: int, commits: int, *options: str, pinned: bool = False) -> Iterator[Load]:
    """Load the topic into tables that are removed after the context; `pinned`: each executor has a core of its own.

    RuntimeError unless they have `cells` and `commits`, besides the commit that created the topic.
    """
    with tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as name:
        folder = Path(name)
        with Job(bootstrap_server, folder, "--once", *options) as job, job.pinned() if pinned else nullcontext():
            ended = job.await_line(_ALL_LOADED)
            job.stop()
        rows = read_rows(PathStore(str(folder / "tables")).open("offsets_partitions"))
        if {row["load_state"] for row in rows} != {OWNED}:
            raise RuntimeError(f"partitions are not loaded: {rows}")
        found = {table: _table(folder, table).count() for table in ("committed_offsets", "offset_commits")}
        if found != {"committed_offsets": cells + 1, "offset_commits": commits + bool(commits)}:
            raise RuntimeError(f"the job should load {cells} cells and {commits} commits, but the tables have {found}")
        seconds = ended - min(row["load_started_at"].timestamp() for row in rows)
        what = f"{' '.join(('first load', *options))} of {commits or cells:,}"
        yield Load(print_seconds(what, seconds), folder, job.peak_bytes)


def load(bootstrap_server: str, cells: int, commits: int, *options: str, pinned: bool = False) -> Load:
    """Load the topic into tables that are removed at once."""
    with loaded(bootstrap_server, cells, commits, *options, pinned=pinned) as done:
        return done


def _table(folder: Path, name: str) -> DeltaTable:
    return DeltaTable(str(folder / "tables" / name))
