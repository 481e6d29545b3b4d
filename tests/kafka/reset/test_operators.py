"""Several operators change one group at once: one does it, the others are refused, and an undo restores everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from offsetstream import CommittedOffset
from offsetstream.cluster.client import Cluster
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.operations.journal import Journal
from offsetstream.operations.plan import Change, Plan
from offsetstream.tables.path_store import PathStore
from tests.kafka.reset.stage import Run, commit, committed, reset_at_once

pytestmark = pytest.mark.long


@pytest.mark.parametrize("group", ["three-1", "three-2"])
def test_three_resets_at_once_never_mix(kafka: EmbeddedKafka, run: Run, tables: Path, group: str) -> None:
    commit(kafka, group, {("orders", partition): 5 for partition in range(3)})
    states = reset_at_once(kafka.bootstrap_server, group, tables / "snapshots", "--tables", str(tables))
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
