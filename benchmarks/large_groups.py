"""The memory of `offsetstream` before large groups, many of them, and a million of them in the tables.

`python -m benchmarks.large_groups`: a batch of 50 rewrites of a group of 1,000 members, a batch of 700 groups of 200
members, and `groups describe --all-groups` over a million groups; each by its process (docs/reliability.md).
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.broker import empty_broker
from benchmarks.commit_log import OFFSETS_PARTITIONS, group_record
from benchmarks.process_tree import PeakMemory
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.tables.create import create_tables
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from testkit.command import OFFSETSTREAM
from testkit.garbage import produce

_AT_ONCE = 100_000  # rows that the benchmark writes in one go
Records = Iterator[tuple[int, bytes | None, bytes | None]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listed", type=int, default=1_000_000, help="groups that are described")
    parser.add_argument("--only", choices=["rewrites", "groups", "describe"], help="one of the three")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that broker and job end with this process
    if arguments.only in {None, "rewrites"}:
        _batch("50 rewrites of a group of 1,000 members", rewrites(1, 1000, 50))
    if arguments.only in {None, "groups"}:
        _batch("700 groups of 200 members", rewrites(700, 200, 1))
    if arguments.only in {None, "describe"}:
        _describe(arguments.listed)


def rewrites(groups: int, members: int, times: int) -> Records:
    """Yield the records of so many groups, each rewritten so many times, as after rebalances."""
    for generation in range(times):
        for number in range(groups):
            group = f"large-{number}"
            yield partition_for(group, OFFSETS_PARTITIONS), *group_record(group, generation, members)


def _batch(name: str, records: Records) -> None:
    with (
        empty_broker({"message.max.bytes": "12000000"}) as kafka,
        tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder,
    ):
        command = [*OFFSETSTREAM, "run", "--once", "--bootstrap-server", kafka.bootstrap_server]
        command += ["--tables", f"{folder}/tables", "--checkpoint", f"{folder}/checkpoints"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        produce(kafka.bootstrap_server, records, 1_000_000)
        _measured(f"a batch of {name}", command, Path(folder))


def _describe(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder:
        _write_groups(PathStore(f"{folder}/tables"), count)
        for output in ("text", "json", "csv"):
            command = [*OFFSETSTREAM, "groups", "describe", "--all-groups", "--tables", f"{folder}/tables"]
            _measured(
                f"groups describe --all-groups of {count:,} groups as {output}",
                [*command, "--output", output],
                Path(folder),
            )


def _write_groups(tables: PathStore, count: int) -> None:
    """Write groups with a committed offset each, of which every third has a member with a partition."""
    create_tables(tables, "bench", "new")
    for first in range(0, count, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, count))
        common = [
            {"offsets_partition": n % OFFSETS_PARTITIONS, "group_id": f"group-{n:07}", "in_coordinator_partition": True}
            for n in numbers
        ]
        place = {"topic": "orders", "partition": 0}
        stable = {"group_type": "Classic", "state": "Stable", "is_simple": False, "member_count": 1}
        empty = {"group_type": "Classic", "state": "Empty", "is_simple": True, "member_count": 0}
        owned = common[::3]
        _append(tables, "groups", [row | (stable if n % 3 == 0 else empty) for n, row in enumerate(common)])
        _append(tables, "committed_offsets", [row | place | {"committed_offset": 17} for row in common])
        member = {"member_id": "consumer-1-5f9d8a20-6d0c-4bb1-92a9-6a0c3c1f7b11", "client_id": "consumer-1"}
        _append(tables, "group_members", [row | member | {"client_host": "/10.0.0.1"} for row in owned])
        assigned = place | {"member_id": member["member_id"], "kind": "assigned"}
        _append(tables, "member_assignments", [row | assigned for row in owned])


def _append(tables: PathStore, name: str, rows: list[dict[str, object]]) -> None:
    write_deltalake(
        tables.table(name), pa.Table.from_pylist(rows, load_schema(name).arrow), mode="append", schema_mode="merge"
    )


def _measured(name: str, command: list[str], folder: Path) -> None:
    started = time.monotonic()
    with (folder / "said.txt").open("w") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        memory = PeakMemory(process.pid)
        memory.start()
        try:
            exit_code = process.wait()
        finally:
            process.terminate()
            memory.stop()
    seconds = time.monotonic() - started
    peaks = ", ".join(f"{kind} {peak >> 20:,}" for kind, peak in memory.peaks.items() if peak)
    print(
        f"{name}: exit code {exit_code} after {seconds:.0f} s; MiB at most: {memory.peak_bytes >> 20:,} ({peaks})",
        flush=True,
    )
    for line in (folder / "said.txt").read_text().splitlines():
        if line.startswith("Batch"):
            print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
