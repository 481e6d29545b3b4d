"""The commands of the pages for operators, in order, work while a job runs and while none runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from confluent_kafka import TopicPartition

from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import DEFAULT_VERSION, kafka_command
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import free_ports
from testkit.garbage import garbage, produce
from testkit.processes import RunningProcess, offsetstream, printed

pytestmark = pytest.mark.long

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = ("monitor", "operations", "verify", "runbooks")
GUIDE = "\n".join((HOW_TO / f"{page}.md").read_text("utf-8") for page in PAGES)
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL) for line in block.splitlines()]
RUN, STOP = (next(line for line in COMMANDS if line.startswith(f"offsetstream {name} ")) for name in ("run", "stop"))
# What each command must print.
SAYS = {
    "offsetstream --version": "offsetstream",
    "kafka-configs.sh": "Completed updating config for topic __consumer_offsets",
    "curl -s 127.0.0.1:9464/healthz": "ok",
    "curl -s 127.0.0.1:9464/readyz": '{"ready": true, "partitions": 50, "owned": 50}',
    "curl -s 127.0.0.1:9464/metrics": "offsetstream_behind_seconds",
    "offsetstream partitions --tables": "NEXT-OFFSET",
    "offsetstream partitions --blocked": "0 of 50 partitions blocked",
    "offsetstream sql": "",
    "offsetstream reload": "Reloaded",
    "offsetstream repair": "Nothing is damaged",
    "offsetstream maintain": "offset_commits",
    "offsetstream verify": "0 unexplained differences",
    "cp -a": "",
    STOP: "Stopped",
}


class Operator:
    """A folder with tables and checkpoints, the guide's addresses replaced by real ones, and the running job."""

    def __init__(self, server: str, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self.server, self.folder = server, folder
        self.job: RunningProcess | None = None
        self.environment = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def localized(self, command: str) -> list[str]:
        replaced = command.replace("localhost:9092", self.server).replace("127.0.0.1:9464", f"127.0.0.1:{self.port}")
        program, *words = shlex.split(replaced.replace("--metrics-port 9464", f"--metrics-port {self.port}"))
        if program == "kafka-configs.sh":
            return kafka_command("kafka_2.13", DEFAULT_VERSION, "kafka.admin.ConfigCommand", words, ())
        return [program, *words]

    def start(self) -> None:
        """Start the job as the guide does; wait until it is ready."""
        assert self.job is None or self.job.ended() == 0
        words = [sys.executable, "-m", *self.localized(RUN)]
        self.job = RunningProcess(words, self.folder / "said.txt", cwd=self.folder)
        self.job.await_(self._is_ready)

    def start_once(self) -> None:
        """Start the job unless it runs, because each page starts with that."""
        if self.job is None or self.job.process.poll() is not None:
            self.start()

    def execute(self, command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            self.localized(command), cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )

    def kill(self) -> None:
        if self.job:
            self.job.kill()

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=10) as answer:
                return bool(json.load(answer)["ready"])
        except URLError:  # it does not listen yet, or answers with 503
            return False


@pytest.fixture
def operator(own_kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Operator]:
    server = own_kafka.bootstrap_server
    create_topics(admin_client(server))
    commit_plainly(server, {"billing": [TopicPartition("orders", 0, 41)]})
    produce(server, ((3, key, value) for key, value in garbage(6, 100, 200)), 200)
    operator = Operator(server, tmp_path)
    yield operator
    operator.kill()


def loads(operator: Operator) -> list[dict[str, object]]:
    sql = "SELECT offsets_partition, load_id FROM offsets_partitions ORDER BY ALL"
    found: list[dict[str, object]] = json.loads(
        printed("sql", sql, "--tables", str(operator.folder / "tables"), "--output", "json")
    )
    return found


def test_every_command_of_the_guide_works(operator: Operator) -> None:
    assert len(COMMANDS) > 15
    for command in COMMANDS:
        if command == RUN:
            operator.start_once()
            continue
        done = operator.execute(command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        (says,) = (words for start, words in SAYS.items() if command.startswith(start))
        assert says in done.stdout + done.stderr, command
        if "undecodable_records" in command:
            assert {row["offsets_partition"] for row in json.loads(done.stdout)} == {3}
        if command.startswith("cp "):  # the job continues without its checkpoints
            loads_before = loads(operator)
            shutil.rmtree(operator.folder / "checkpoints")
            operator.start()
            assert loads(operator) == loads_before
    assert (
        offsetstream("stop", "--tables", str(operator.folder / "tables")).returncode == 1
    )  # the guide stopped the job
