"""What hours of ten-second batches leave in each table's folder: files, bytes and log files.

It writes what the job writes (history, state, book, lease, upkeep), without Kafka. Time runs faster, so dead files and
logs are kept for less time, but for as many batches as in real hours. `python -m benchmarks.day` runs a whole day:
8,640 batches in an hour. `--scale 20` divides batches and upkeep's thresholds by 20, and so most numbers of files.
`--hours 6 --cells 1000000 --active 30000 --commits 10000 --batch-seconds 0.9` is a large cluster until dead files go
(with `--scale 4` nine minutes: 0.45 GiB at `6201fa8c`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from deltalake import DeltaTable

from offsetstream.maintenance import upkeep
from offsetstream.spark.local import local_session
from offsetstream.tables.path_store import PathStore
from testkit.simulated_job import SimulatedJob, contents, hurry

BATCHES_PER_HOUR = 360
REPORTS = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24, help="simulated hours")
    parser.add_argument("--scale", type=int, default=1, help="divide the number of batches by this")
    parser.add_argument("--batch-seconds", type=float, default=0.4, help="time between batches, instead of 10 s")
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--active", type=int, default=0, help="commit only to the first so many cells [all]")
    parser.add_argument("--commits", type=int, default=100, help="commits in a batch")
    arguments = parser.parse_args()
    upkeep.CLEAR_EVERY //= arguments.scale
    upkeep.CROWDED = {kind: max(8, files // arguments.scale) for kind, files in upkeep.CROWDED.items()}
    with tempfile.TemporaryDirectory(prefix="offsetstream-day-") as folder:
        tables = PathStore(str(Path(folder) / "tables")).for_job()
        job = SimulatedJob(local_session("local[2]"), tables, arguments.cells, arguments.commits, arguments.active)
        hurry(tables, arguments.batch_seconds, arguments.scale)
        job.fill()
        _run(job, tables, arguments.hours, arguments.scale, arguments.batch_seconds)


def _run(job: SimulatedJob, tables: PathStore, hours: int, scale: int, batch_seconds: float) -> None:
    begun, worked, batches = time.monotonic(), 0.0, hours * BATCHES_PER_HOUR // scale
    for number in range(batches):
        due = begun + number * batch_seconds
        time.sleep(max(0.0, due - time.monotonic()))
        started = time.monotonic()
        job.batch(number)
        worked += time.monotonic() - started
        if (number + 1) % (batches // REPORTS) == 0:
            late = max(0.0, time.monotonic() - due - batch_seconds)
            hour, each = (number + 1) * hours / batches, worked / (number + 1)
            now_there = contents(tables)
            total = sum(now.bytes for now in now_there.values()) / 2**30
            print(f"hour {hour:g}: {each:.3f} s a batch, {late:.0f} s late, {total:.3f} GiB", flush=True)
            for name, now in now_there.items():
                live = len(DeltaTable(tables.table(name)).file_uris())
                files = f"{now.files:6} files ({live:3} live) {now.log_files:6} of the log"
                print(f"  {name:22} {files} {now.bytes:12,} bytes", flush=True)


if __name__ == "__main__":
    main()
