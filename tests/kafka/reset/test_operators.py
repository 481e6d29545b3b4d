"""Several operators change one group at once: one does it, the others are refused, and an undo restores everything."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from offsetstream import CommittedOffset
from offsetstream.cluster.client import Cluster
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.operations.journal import Journal
from offsetstream.operations.plan import Change, Plan
from offsetstream.tables.path_store import PathStore
from testkit.processes import OFFSETSTREAM
from testkit.waiting import SECONDS
from tests.kafka.reset.stage import Run, commit, committed

pytestmark = pytest.mark.long


def at_once(kafka: EmbeddedKafka, tables: Path, commands: list[tuple[str, ...]]) -> list[tuple[int, str]]:
    """Run the commands at the same time; return the exit code and the output of each."""
    place = ("--bootstrap-server", kafka.bootstrap_server, "--tables", str(tables))
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    [*OFFSETSTREAM, *command, *place], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
            )
            for command in commands
        ]
        for each in running:
            stack.callback(each.kill)
        said = [each.communicate(timeout=4 * SECONDS)[0] for each in running]
    return [(each.returncode, text) for each, text in zip(running, said, strict=True)]


@pytest.mark.parametrize("group", ["three-1", "three-2"])
def test_three_resets_at_once_never_mix(kafka: EmbeddedKafka, run: Run, tables: Path, group: str) -> None:
    commit(kafka, group, {("orders", partition): 5 for partition in range(3)})
    reset = ("offsets", "reset", "--group", group, "--topic", "orders", "--execute", "--to-offset")
    done = at_once(kafka, tables, [(*reset, str(offset)) for offset in (11, 12, 13)])
    states = [5]  # of all partitions, after each operation
    for path in sorted((tables / "snapshots").iterdir()):
        changes = json.loads(path.read_text("utf-8"))["changes"]
        assert [each["before"]["offset"] for each in changes] == [states[-1]] * 3, done
        (after,) = {each["after"]["offset"] for each in changes}
        states.append(after)
    assert sorted(code for code, _ in done) == sorted([0] * (len(states) - 1) + [1] * (4 - len(states))), done
    assert {each.offset for each in committed(kafka, group).values()} == {states[-1]}
    undone = run("offsets", "undo", "--execute")
    assert undone.returncode == 0, undone.stderr
    assert {place: each.offset for place, each in committed(kafka, group).items()} == {
        ("orders", partition): states[-2] for partition in range(3)
    }


def test_a_second_operator_is_told_who_is_at_work(kafka: EmbeddedKafka, run: Run, tables: Path) -> None:
    commit(kafka, "held", {("orders", 0): 5})
    shift = ("offsets", "reset", "--group", "held", "--all-topics", "--shift-by", "1")
    assert run(*shift, "--execute").returncode == 0
    file = tables / "offsets.csv"
    file.write_text("held,orders,0,9\n", "utf-8")
    plan = Plan("import", [Change("held", "orders", 0, CommittedOffset(6), CommittedOffset(7))])
    cluster_id = Cluster(kafka.bootstrap_server).cluster_id()
    journal = Journal(PathStore(str(tables)), cluster_id, "0123456789ab", "offsets import")
    with journal.holding(plan):
        for command in (
            shift,
            ("offsets", "reset", "--group", "held", "--from-file", str(file)),
            ("offsets", "undo"),
            ("offsets", "delete", "--group", "held", "--topic", "orders"),
            ("groups", "delete", "--group", "held"),
        ):
            assert (
                "Kafka's own tools, and offsetstream with another tables folder, do not know of this"
                in run(*command).stderr
            )
            refused = run(*command, "--execute")
            assert refused.returncode == 1
            (line,) = refused.stderr.splitlines()[-1:]
            assert "has been changing group 'held' since" in line
            assert "(import, operation 0123456789ab). Nothing was changed." in line
    assert committed(kafka, "held") == {("orders", 0): CommittedOffset(6)}
    assert len([*(tables / "snapshots").iterdir()]) == 1
    assert run(*shift, "--execute").returncode == 0
