"""Make tables, checkpoint and cluster as an older commit writes them; `tests/kafka/test_old_tables.py` upgrades them.

`python -m tests.reliability.make_old_tables NAME PYTHON`: NAME is the commit's, PYTHON an interpreter with that
commit installed. It ran once for each fixture, when its commit was the last of its schema version. Never make a
fixture again from a later commit. The clients and the broker are those of this work tree.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import TopicPartition

from offsetstream.demo.topics import commit_plainly, create_topics, produce_records
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.path_store import PathStore
from testkit.waiting import await_
from tests.kafka.every_group.all_groups import await_quiet, group_types
from tests.kafka.java_clients import java_clients
from tests.kafka.stage import Stage
from tests.reliability.old_tables import FIXTURES, QUESTIONS, RELEASE, broker_properties, data_of
from tests.reliability.truth import behind, read_topic

_GROUPS = 20
_RECORDS = 60
_REBUILT = (".index", ".timeindex", ".lock")  # in the broker's folder, where it does not find them


class OldProgram:
    """Commands of the older commit, on the tables and checkpoints in a folder."""

    def __init__(self, python: str, server: str, folder: Path) -> None:
        self._python, self._server, self._folder = python, server, folder
        places = ("--tables", str(folder / "tables"), "--checkpoint", str(folder / "checkpoints"))
        self._run = ("run", "--bootstrap-server", server, *places)

    def run_once(self) -> None:
        """Apply everything that is in the topic now."""
        subprocess.run(self._command(*self._run, "--once"), cwd=self._folder, check=True)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Apply new records in many batches, until a clean stop."""
        job = subprocess.Popen(self._command(*self._run, "--trigger", "1 second"), cwd=self._folder)
        try:
            yield
        finally:
            job.send_signal(signal.SIGTERM)
            assert job.wait() == 0

    def await_applied(self) -> None:
        """Wait until the tables have everything that is in the topic now."""
        ends, tables = read_topic(self._server)[1], PathStore(str(self._folder / "tables"))
        await_(lambda: not behind(tables, ends), lambda: str(behind(tables, ends)))

    def answer(self, *question: str) -> Any:
        """Return the output of a look-up."""
        command = self._command(*question, "--tables", str(self._folder / "tables"), "--output", "json")
        return json.loads(subprocess.run(command, cwd=self._folder, check=True, stdout=subprocess.PIPE).stdout)

    def _command(self, *arguments: str) -> list[str]:
        return [self._python, "-m", "offsetstream", *arguments]


def commit(server: str, offset: int, groups: range) -> None:
    """Write commits without members; the first load brings some, and batches change them."""
    places = [TopicPartition("orders", number, offset) for number in range(3)]
    commit_plainly(server, {f"plain-{number:02}": places for number in groups})


def play(kafka: EmbeddedKafka, program: OldProgram, stack: ExitStack) -> None:
    """Run a first load, then batches that merge, update and delete rows of groups of all types. Members stay."""
    server = kafka.bootstrap_server
    create_topics(admin_client(server))
    produce_records(server, _RECORDS, Random(1))
    commit(server, 1, range(_GROUPS))
    program.run_once()
    with program.streaming():
        commit(server, 2, range(_GROUPS // 2))
        program.await_applied()  # from here on the job is warm: the stage's records come in several batches
        stage = Stage(server, stack.enter_context(java_clients(server, RELEASE)), group_types(RELEASE))
        stage.play()
        program.await_applied()
        stage.admin.delete_groups([f"plain-{number:02}" for number in (3, 17)])
        program.await_applied()
        commit(server, 3, range(_GROUPS - 2, _GROUPS + 5))
        await_quiet(kafka.folder)
        program.await_applied()


def pack(parts: dict[str, Path], fixture: Path) -> None:
    """Pack tables, checkpoints, answers and the broker's data into one archive, without recreatable files."""

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return None if entry.name.endswith(_REBUILT) else entry

    with tarfile.open(fixture, "w:xz", preset=9) as archive:
        for name, path in parts.items():
            archive.add(path, name, filter=kept)


def main(name: str, python: str) -> None:
    """Make the fixture of a commit."""
    with tempfile.TemporaryDirectory(prefix="offsetstream-") as made, ExitStack() as stack:
        folder = Path(made)
        kafka = stack.enter_context(EmbeddedKafka(RELEASE, properties=broker_properties()))
        program = OldProgram(python, kafka.bootstrap_server, folder)
        play(kafka, program, stack)
        kafka.stop_broker(1)  # stopped before its clients, so that their members stay
        answers = {" ".join(question): program.answer(*question) for question in QUESTIONS}
        (folder / "answers.json").write_text(json.dumps(answers))
        parts = {part: folder / part for part in ("tables", "checkpoints", "answers.json")}
        pack({**parts, "kafka": data_of(kafka)}, FIXTURES / f"{name}.tar.xz")
        kafka.start_broker(1)  # otherwise its clients wait for it when they close


if __name__ == "__main__":
    main(*sys.argv[1:])
