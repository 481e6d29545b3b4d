"""How long `offsetstream run --once` takes to load a topic of a million commits, history and state, from nothing.

Beside it, in the same run and on the same broker: Spark's own Kafka source reading the same records without decoding
or writing anything. Run it with `make bench-load` or `python -m benchmarks.first_load --records 1000000`.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.commit_log import make_offsets_topic, write_commits
from offsetstream.embedded.kafka import EmbeddedKafka

_READ_ONLY = """
import sys, time
from offsetstream.cluster.client import Cluster
from offsetstream.stream.session import local_session
from offsetstream.stream.source import KafkaSource
spark = local_session()
ends = Cluster(sys.argv[1]).partition_ends(range(50))
source = KafkaSource(sys.argv[1], {})
started = time.monotonic()
rows = source.read(
    spark, {n: e.log_start_offset for n, e in ends.items()}, {n: e.last_stable_offset for n, e in ends.items()}
)
rows.write.format("noop").mode("overwrite").save()
print(time.monotonic() - started)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--cells", type=int, default=32_000)
    arguments = parser.parse_args()
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder:
        make_offsets_topic(kafka.bootstrap_server)
        write_commits(kafka.bootstrap_server, arguments.records, arguments.cells)
        print(f"{arguments.records:,} commits of {arguments.cells:,} cells are in the topic", flush=True)
        whole = _load(kafka.bootstrap_server, Path(folder))
        read = _read_only(kafka.bootstrap_server)
    print(f"offsetstream run --once, whole process: {whole:.1f} s")
    print(f"Spark's Kafka source alone, without its start: {read:.1f} s")


def _load(bootstrap_server: str, folder: Path) -> float:
    tables = folder / "tables"
    command = [sys.executable, "-m", "offsetstream", "run", "--once", "--bootstrap-server", bootstrap_server]
    started = time.monotonic()
    subprocess.run([*command, "--tables", tables, "--checkpoint", folder / "checkpoints"], check=True)
    seconds = time.monotonic() - started
    for table in ("offset_commits", "committed_offsets"):
        print(f"{table}: {DeltaTable(str(tables / table)).count():,} rows")
    return seconds


def _read_only(bootstrap_server: str) -> float:
    command = [sys.executable, "-c", _READ_ONLY, bootstrap_server]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
