"""What a job needs, for docs/reference/sizing.md: table bytes per million commits, and memory of its processes.

It measures a load of existing records, then a stream of a thousand commits per second in batches of ten seconds. Run
`python -m benchmarks.sizing`; it takes four minutes.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.broker import empty_broker
from benchmarks.commit_log import Groups, write
from benchmarks.job import Job

_CELLS, _A_SECOND, _STRIDE = 32_000, 1_000, 7919
_MILLION = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=3_000_000, help="commits in the topic before the job starts")
    parser.add_argument("--seconds", type=int, default=100, help="duration of the stream")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that broker and job end with this process
    groups = Groups(_CELLS)
    with empty_broker() as kafka, tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as name:
        server, folder = kafka.bootstrap_server, Path(name)
        write(server, groups.log(arguments.commits))
        with Job(server, folder, "--once") as job:
            job.finish()
        loaded = _bytes(folder)
        _print("a load", loaded, arguments.commits, job.peak_bytes)
        with Job(server, folder) as job:
            job.await_line("Cluster ")
            commits = _stream(server, groups, arguments.seconds)
            time.sleep(20)  # so that the job applies the last commits
            job.stop()
        later = {table: size - loaded.get(table, 0) for table, size in _bytes(folder).items()}
        _print("batches of ten seconds", later, commits, job.peak_bytes)


def _stream(server: str, groups: Groups, seconds: int) -> int:
    started = time.monotonic()
    for second in range(seconds):
        write(server, groups.commits(second * _A_SECOND, _A_SECOND, _STRIDE))
        time.sleep(max(0.0, started + second + 1 - time.monotonic()))
    return seconds * _A_SECOND


def _bytes(folder: Path) -> dict[str, int]:
    """Return the bytes of each table's current version."""
    found = {}
    for table in sorted((folder / "tables").iterdir()):
        if (table / "_delta_log").is_dir():
            files = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True))
            found[table.name] = pc.sum(files["size_bytes"]).as_py() or 0
    return found


def _print(what: str, sizes: dict[str, int], commits: int, peak_bytes: int) -> None:
    print(f"{what}, {commits:,} commits: peak memory of all processes {peak_bytes >> 20:,} MiB", flush=True)
    for table, size in sorted(sizes.items(), key=lambda each: -each[1]):
        if size >= 1 << 10:
            print(f"  {table}: {size >> 10:,} KiB, {size / commits * _MILLION / 2**20:.1f} MiB per million commits")


if __name__ == "__main__":
    main()
