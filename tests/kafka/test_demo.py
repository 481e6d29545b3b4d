"""The complete `offsetstream demo`: fifty healthy groups and five troubles, and what its tables show afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from offsetstream.demo.troubles import TROUBLES, Trouble
from testkit.processes import RunningProcess, within

pytestmark = pytest.mark.long

FOUND = {  # what the command of each trouble, and no other one, prints
    "stopped": "longer than its last 10 commits took together",
    "late": "messages wait in 4 of 4 partitions of 1 group",
    "unstable": "cart-reminder-2",
    "stalled": '{"id": 4711, "amount":',
    "rewound": "moved back while the group had no members",
}


@dataclass(frozen=True)
class Demo:
    folder: Path  # a Git repository
    output: str

    def output_of(self, *command: str) -> str:
        """Return what the demo printed below a command: the lines up to the next empty one."""
        (_, below, *_) = self.output.split(f"$ offsetstream {' '.join(command)}", 1)
        return below.split("\n\n", 1)[0]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    output = tmp_path_factory.mktemp("said") / "said"
    with RunningProcess([sys.executable, "-m", "offsetstream", "demo"], output, cwd=folder) as process:
        assert process.ended() == 0, process.said()
        yield Demo(folder, process.said())


def test_exactly_the_five_troubled_groups_are_not_ok(demo: Demo) -> None:
    done = within("groups", "status", "--tables", str(demo.folder / "demo-tables" / "tables"), "--output", "json")
    assert done.returncode == 4, done.stderr
    rows = json.loads(done.stdout)
    assert {row["group"]: row["verdict"] for row in rows if row["level"] != "OK"} == {
        trouble.group: trouble.verdict for trouble in TROUBLES
    }
    assert sum(row["level"] == "OK" for row in rows) == 50
    assert {(row["type"], row["state"]) for row in rows if row["level"] == "OK"} == {
        ("Classic", "Stable"),
        ("Consumer", "Stable"),
        ("Classic", "Empty"),
    }


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.verdict)
def test_each_trouble_has_a_command_that_finds_it(trouble: Trouble, demo: Demo) -> None:
    answer = demo.output_of(*trouble.command)
    assert FOUND[trouble.verdict] in answer
    assert f"{trouble.group} is {trouble.verdict}: " in demo.output.partition("The five answers")[2]


def test_the_demo_shows_all_groups_healthy_before_the_troubles(demo: Demo) -> None:
    assert "0 of 55 groups are not OK" in demo.output_of("groups", "status")


def test_the_demo_writes_the_page_and_nothing_that_git_sees(demo: Demo) -> None:
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=demo.folder, capture_output=True, text=True, check=True
    )
    assert status.stdout == ""
    page = demo.folder / "demo-tables" / "report.html"
    assert str(page) in demo.output
    assert "order-archive" in page.read_text("utf-8")
