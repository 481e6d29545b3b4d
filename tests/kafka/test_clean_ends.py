"""A job leaves no process, temporary folder or half-written file, however it ends."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from deltalake import DeltaTable

from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.path_store import PathStore
from testkit.processes import JobProcess, session
from testkit.waiting import await_
from tests.reliability.truth import rows

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Ended:
    """How a job ended: its exit code, its output, and its folder."""

    code: int
    output: str
    folder: Path

    def leftovers(self) -> list[str]:
        found = [path for place in ("tmp", "cwd") for path in (self.folder / place).rglob("*")]
        return [str(path) for path in found if not path.match("cwd/hs_err_pid*.log")]


def java_of(job: JobProcess) -> int:
    (java,) = (pid for pid, command in session(job.pid).items() if command.split(" ")[0].endswith("java"))
    return java


# Ways to end a job that streams.
ENDS: dict[str, Callable[[JobProcess], None]] = {
    "SIGTERM": lambda job: job.signal(signal.SIGTERM),
    "SIGINT": lambda job: job.signal(signal.SIGINT),
    "driver killed": lambda job: os.kill(job.pid, signal.SIGKILL),
    "java killed": lambda job: os.kill(java_of(job), signal.SIGKILL),
    "java crashed": lambda job: os.kill(java_of(job), signal.SIGSEGV),
}
ERROR = "error at its start"  # after Spark's start: the checkpoint folder is a file


@pytest.fixture(scope="module")
def ended(own_kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    """Run and end all jobs at the same time, because each needs long to start."""
    create_topics(admin_client(own_kafka.bootstrap_server))
    commit_plainly(own_kafka.bootstrap_server, {"first": [TopicPartition("orders", 0, 1)]})
    folders = {end: tmp_path_factory.mktemp(end.replace(" ", "-")) for end in (*ENDS, ERROR)}
    (folders[ERROR] / "job").mkdir()
    (folders[ERROR] / "job" / "checkpoints").write_text("a file")
    with ThreadPoolExecutor(len(folders)) as pool:
        server = own_kafka.bootstrap_server
        ends = {end: pool.submit(run_and_end, server, folder, ENDS.get(end)) for end, folder in folders.items()}
        yield {end: future.result() for end, future in ends.items()}


def run_and_end(server: str, folder: Path, end: Callable[[JobProcess], None] | None) -> Ended:
    for place in ("tmp", "cwd"):
        (folder / place).mkdir()
    environment = {"TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(Path(__file__).parents[2])}
    with JobProcess(
        server, folder / "job", "--trigger", "1 second", environment=environment, cwd=folder / "cwd"
    ) as job:
        if end is not None:
            job.await_((folder / "job" / "checkpoints" / "1" / "commits" / "0").exists)
            end(job)
        code = job.ended()
        await_(lambda: not session(job.pid), lambda: f"still there: {session(job.pid)}")
        return Ended(code, job.said(), folder)


@pytest.mark.parametrize("end", [*ENDS, ERROR])
def test_no_process_or_file_is_left(ended: dict[str, Ended], end: str) -> None:
    assert ended[end].leftovers() == [], ended[end].output


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_job_between_two_batches(ended: dict[str, Ended], end: str) -> None:
    assert ended[end].code == 0, ended[end].output
    assert ended[end].output.endswith("Stopped between two batches\n")
    tables = ended[end].folder / "job" / "tables"
    assert [row["owner"] for row in rows(PathStore(str(tables)), "job_lease")] == [None]
    for table in tables.iterdir():
        known = {Path(uri).name for uri in DeltaTable(table).file_uris()}
        log = table / "_delta_log"
        unknown = {path.name for path in log.iterdir() if not path.name.endswith((".json", ".crc"))}
        if (last := log / "_last_checkpoint").exists():  # every twenty versions, which a slow machine reaches
            unknown -= {last.name, f"{json.loads(last.read_text())['version']:020}.checkpoint.parquet"}
        assert unknown == set(), "what no transaction names is left in the log"
        if table.name.endswith(("commits", "records", "events")):  # append-only tables, which are never rewritten
            assert {path.name for path in table.rglob("*.parquet")} == known


def test_a_crash_of_java_is_reported_with_its_crash_file(ended: dict[str, Ended]) -> None:
    assert ended["java crashed"].code == 1
    (report,) = (ended["java crashed"].folder / "cwd").iterdir()
    last = ended["java crashed"].output.splitlines()[-1]
    assert " ERROR Spark's Java process crashed (SIGSEGV (0xb) at pc=" in last, ended["java crashed"].output
    assert last.endswith(f"Nothing is lost. Start the job again. Java's report of the crash is {report.name}")


def test_an_error_at_the_start_is_one_line(ended: dict[str, Ended]) -> None:
    assert ended[ERROR].code == 1
    last = ended[ERROR].output.splitlines()[-1]
    assert f" ERROR cannot write to {ended[ERROR].folder}/job/checkpoints" in last
    assert "Traceback" not in ended[ERROR].output


def test_a_killed_java_is_reported_in_one_line(ended: dict[str, Ended]) -> None:
    assert ended["java killed"].code == 1
    output = ended["java killed"].output
    assert " ERROR Spark's Java process was ended by signal 9" in output.splitlines()[-1], output
    assert "Traceback" not in output
    tables = PathStore(str(ended["java killed"].folder / "job" / "tables"))
    assert [row["owner"] for row in rows(tables, "job_lease")] == [None]  # so that the next job starts at once
