"""What a day of ten-second batches leaves in the tables' folders: files, bytes and log files of each, hour by hour.

The writes are the job's own (history, state, book, lease, upkeep), without Kafka. Time runs faster: what the tables
keep for hours they keep here for as long as so many batches take. `python -m benchmarks.day` is the whole day, 8,640
batches in an hour. `--scale 20` is a smaller one: 432 batches, everything that upkeep counts divided by 20, and so
about a twentieth of the files and log files.
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

BATCHES = 8640  # of the day that is simulated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=1, help="a day of so many times fewer batches")
    parser.add_argument("--batch-seconds", type=float, default=0.4, help="what a batch of ten seconds takes here")
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--commits", type=int, default=100, help="in a batch")
    arguments = parser.parse_args()
    upkeep.CLEAR_EVERY //= arguments.scale
    upkeep.CROWDED = {kind: max(8, files // arguments.scale) for kind, files in upkeep.CROWDED.items()}
    with tempfile.TemporaryDirectory(prefix="offsetstream-day-") as folder:
        tables = PathStore(str(Path(folder) / "tables"))
        job = SimulatedJob(local_session("local[2]"), tables, arguments.cells, arguments.commits)
        hurry(tables, arguments.batch_seconds, arguments.scale)
        _live_through(job, tables, BATCHES // arguments.scale, arguments.batch_seconds)


def _live_through(job: SimulatedJob, tables: PathStore, batches: int, batch_seconds: float) -> None:
    begun, worked = time.monotonic(), 0.0
    for number in range(batches):
        due = begun + number * batch_seconds
        time.sleep(max(0.0, due - time.monotonic()))
        started = time.monotonic()
        job.batch(number)
        worked += time.monotonic() - started
        if (number + 1) % (batches // 12) == 0:
            late = max(0.0, time.monotonic() - due - batch_seconds)
            hour, each = (number + 1) * 24 / batches, worked / (number + 1)
            print(f"hour {hour:.0f}: {each:.3f} s a batch, {late:.0f} s late", flush=True)
            for name, now in contents(tables).items():
                live = len(DeltaTable(tables.table(name)).file_uris())
                files = f"{now.files:6} files ({live:3} live) {now.log_files:6} of the log"
                print(f"  {name:22} {files} {now.bytes:12,} bytes", flush=True)


if __name__ == "__main__":
    main()
