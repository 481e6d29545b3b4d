"""`offsetstream dump` against Kafka's console consumer with its formatter: the same records, in the same run.

Both are whole processes that write JSON lines to a file. From the start of the query: dump's time until its Spark
session is there is measured by itself (a dump of no record) and taken off, and so is the console consumer's own start.
Run it with `python -m benchmarks.dump --records 3000000`.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.commit_log import make_offsets_topic, write_commits
from offsetstream.embedded.jvm import kafka_command
from offsetstream.embedded.kafka import DEFAULT_VERSION, EmbeddedKafka

_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--cells", type=int, default=32_000)
    arguments = parser.parse_args()
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder:
        make_offsets_topic(kafka.bootstrap_server)
        empty = _seconds(_dump(kafka.bootstrap_server), Path(folder) / "start")
        write_commits(kafka.bootstrap_server, arguments.records, arguments.cells)
        started = _seconds(_console(kafka.bootstrap_server, 1), Path(folder) / "one")
        theirs = _seconds(_console(kafka.bootstrap_server, arguments.records), Path(folder) / "theirs")
        ours = _seconds(_dump(kafka.bootstrap_server), Path(folder) / "ours")
        sizes = [(Path(folder) / name).stat().st_size for name in ("ours", "theirs")]
    print(f"{arguments.records:,} records; dump printed {sizes[0]:,} bytes, the console consumer {sizes[1]:,}")
    print(f"console consumer: {theirs:.1f} s, of these {started:.1f} s for one record")
    print(f"dump: {ours:.1f} s, of these {empty:.1f} s for none")
    print(f"dump takes {(ours - empty) / (theirs - started):.2f} of the console consumer's time; goal: not above 1")


def _dump(bootstrap_server: str) -> list[str]:
    command = [sys.executable, "-m", "offsetstream", "dump", "--format", "kafka"]
    return [*command, "--bootstrap-server", bootstrap_server]


def _console(bootstrap_server: str, records: int) -> list[str]:
    topic = ("--bootstrap-server", bootstrap_server, "--topic", "__consumer_offsets", "--from-beginning")
    how = ("--formatter", _FORMATTER, "--isolation-level", "read_committed", "--max-messages", str(records))
    return kafka_command("kafka-tools", DEFAULT_VERSION, _CONSUMER, [*topic, *how], ("-Xmx512m",))


def _seconds(command: list[str], output: Path) -> float:
    started = time.monotonic()
    with output.open("wb") as file:
        subprocess.run(command, check=True, stdout=file, stderr=subprocess.DEVNULL)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
