"""Memory of `offsetstream run` for undecodable records: millions of small ones, and some of 10 MB.

Each kind is measured twice: with records from before the start of the job (a load), and with later ones (a batch of
the stream). Run `python -m benchmarks.hostile --records 2000000 --large 60`.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.broker import empty_broker
from benchmarks.process_tree import PeakMemory
from testkit.garbage import garbage, produce
from testkit.processes import OFFSETSTREAM

_LARGE = 10_000_000
_BROKER = {"message.max.bytes": "12000000", "replica.fetch.max.bytes": "12000000"}
Placed = Iterator[tuple[int, bytes | None, bytes | None]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="number of records of 100 to 1,000 bytes")
    parser.add_argument("--large", type=int, default=60, help="number of records of 10 MB")
    parser.add_argument("--conf", action="append", default=[], help="a Spark setting for `run`")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that broker and job end with this process
    if arguments.records:
        _measure("small", arguments.records, 100, 1_000, arguments.conf)
    if arguments.large:
        _measure("large", arguments.large, _LARGE, _LARGE, arguments.conf)


def _measure(name: str, records: int, least: int, most: int, conf: list[str]) -> None:
    with (
        empty_broker(_BROKER) as kafka,
        tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder,
    ):
        command = [*OFFSETSTREAM, "run", "--once", "--bootstrap-server", kafka.bootstrap_server]
        command += ["--tables", f"{folder}/tables", "--checkpoint", f"{folder}/checkpoints"]
        command += [part for setting in conf for part in ("--conf", setting)]
        for phase, seed in (("load", 0), ("batch", 1)):
            started = time.monotonic()
            produce(kafka.bootstrap_server, _placed(garbage(records, least, most, seed)), most)
            written = time.monotonic() - started
            print(f"{name} {phase}: {records:,} records written in {written:.0f} s", flush=True)
            _run_measured(command)
            table = DeltaTable(f"{folder}/tables/undecodable_records")
            files = pa.table(table.get_add_actions(flatten=True))
            megabytes = pc.sum(files["size_bytes"]).as_py() >> 20
            print(
                f"  undecodable_records: {table.count():,} rows, {files.num_rows} files of {megabytes} MiB", flush=True
            )


def _run_measured(command: list[str]) -> None:
    started = time.monotonic()
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        memory = PeakMemory(process.pid)
        memory.start()
        try:
            exit_code = process.wait()
        finally:
            process.terminate()
            memory.stop()
    seconds, megabytes = time.monotonic() - started, memory.peak_bytes >> 20
    print(f"  exit code {exit_code} after {seconds:.0f} s, peak memory of all processes {megabytes:,} MiB", flush=True)


def _placed(records: Iterator[tuple[bytes, bytes | None]]) -> Placed:
    return ((number % 50, key, value) for number, (key, value) in enumerate(records))


if __name__ == "__main__":
    main()
