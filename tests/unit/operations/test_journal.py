"""Groups held in the table `operations`, by processes that live and die. `tests.stores.contract` has the rest."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offsetstream.cluster.answers import CommittedOffset
from offsetstream.errors import TakenGroupError
from offsetstream.operations.journal import Journal
from offsetstream.operations.plan import Change, Plan
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import OPERATIONS
from offsetstream.tables.small_tables import read_rows

RIVALS = 4
# Takes the group, says so, and ends when its standard input does. With `start`, its operation starts.
OPERATOR = """
import sys
from tests.unit.operations.test_journal import PLAN, PathStore, Journal, TakenGroupError
root, name, start = sys.argv[1:]
journal = Journal(PathStore(root), "cluster-1", name, "offsets reset")
print("ready", flush=True)
sys.stdin.readline()
try:
    with journal.holding(PLAN):
        if start == "start":
            journal.started(PLAN, "a file")
        print("taken", flush=True)
        sys.stdin.readline()
except TakenGroupError as error:
    print(error, flush=True)
"""
PLAN = Plan("reset", [Change("g", "t", 0, CommittedOffset(1), CommittedOffset(2))])


@pytest.fixture
def store(tmp_path: Path) -> PathStore:
    return PathStore(str(tmp_path / "tables"))


class Operator:
    """A process that takes the group when told to."""

    def __init__(self, store: PathStore, name: str, start: str = "") -> None:
        command = [sys.executable, "-c", OPERATOR, store.root, name, start]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin
        assert self.process.stdout
        self._to, self._from = self.process.stdin, self.process.stdout

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def said(self) -> str:
        return self._from.readline().strip()

    def go(self) -> None:
        print(file=self._to, flush=True)


def statuses(store: PathStore) -> dict[str, str]:
    return {row["operation_id"]: row["status"] for row in read_rows(store.open(OPERATIONS.name))}


def test_of_many_processes_one_takes_the_group(store: PathStore) -> None:
    operators = [Operator(store, f"rival-{number}") for number in range(RIVALS)]
    try:
        assert [each.said() for each in operators] == ["ready"] * RIVALS
        for each in operators:
            each.go()
        with ThreadPoolExecutor(RIVALS) as pool:
            said = list(pool.map(Operator.said, operators))
        winner = said.index("taken")
        lost = [text for text in said if text != "taken"]
        assert len(lost) == RIVALS - 1
        assert all(f"(reset, operation rival-{winner}). Nothing was changed." in text for text in lost)
        assert statuses(store) == {f"rival-{winner}": "taken"}
    finally:
        for each in operators:
            each.__exit__()


@pytest.mark.parametrize(("start", "left"), [("", {}), ("start", {"killed": "started"})])
def test_a_group_held_by_a_killed_process_is_free_at_once(store: PathStore, start: str, left: dict[str, str]) -> None:
    """A killed operation stays in the table if it had started; a row `taken` was no operation."""
    journal = Journal(store, "cluster-1", "next", "offsets reset")
    with Operator(store, "killed", start) as operator:
        assert operator.said() == "ready"
        operator.go()
        assert operator.said() == "taken"
        with pytest.raises(TakenGroupError, match="operation killed"), journal.holding(PLAN):
            pass
    with journal.holding(PLAN):
        assert statuses(store) == {**left, "next": "taken"}
    assert statuses(store) == left
