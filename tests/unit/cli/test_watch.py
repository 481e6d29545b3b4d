"""Answers that come again and again, in processes of their own, until someone says stop."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from testkit.group_world import GroupWorld
from testkit.page import Page
from testkit.processes import OFFSETSTREAM, RunningProcess
from testkit.tables import new_tables

ENDLESS = (
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i FROM n) SELECT count(*) FROM n",
    "SELECT count(*) FROM range(100000000000000)",
    "FROM range(100000000000000) WHERE range < 0",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("watched")
    new_tables(root, GroupWorld(1).rows)
    return root


def command(world: Path, folder: Path, *arguments: str) -> RunningProcess:
    return RunningProcess([*OFFSETSTREAM, *arguments, "--tables", str(world)], folder / "said.txt")


@pytest.mark.parametrize("asked", [("groups", "status"), ("lag", "--all-groups"), ("offsets", "orphans")], ids=" ".join)
def test_ctrl_c_ends_a_listing_in_the_middle_of_an_answer_too(
    world: Path, tmp_path: Path, asked: tuple[str, ...]
) -> None:
    with command(world, tmp_path, *asked, "--watch", "0.001") as shown:
        shown.await_(lambda: shown.said().count("GROUP ") >= 3)
        shown.signal(signal.SIGINT)
        assert shown.ended() == 0
        assert "Traceback" not in shown.said()
        assert "Aborted" not in shown.said()


@pytest.mark.parametrize("query", ENDLESS, ids=["recursive", "counting", "streaming"])
def test_ctrl_c_ends_a_query_in_a_word(world: Path, tmp_path: Path, query: str) -> None:
    """DuckDB has an error of its own for it, which was a traceback, and hears it between two tasks only."""
    with command(world, tmp_path, "sql", query) as shown:
        shown.await_(lambda: len(list(Path(f"/proc/{shown.pid}/task").iterdir())) > 2)  # those of DuckDB
        shown.signal(signal.SIGINT)
        assert (shown.ended(), shown.said().strip()) == (1, "Aborted!")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_watched_page_is_written_again_whole_and_to_its_end(world: Path, tmp_path: Path, end: signal.Signals) -> None:
    """Who reads it has a whole page, of before or of after; a page that is begun is finished."""
    folder = tmp_path / "pages"
    folder.mkdir()
    file = folder / "groups.html"
    with command(world, tmp_path, "report", "--file", str(file), "--watch", "0.001") as shown:
        shown.await_(file.exists)
        with file.open() as reading:
            first = file.stat().st_ino
            shown.await_(lambda: file.stat().st_ino != first)
            assert reading.read().rstrip().endswith("</html>")
        begun = shown.said().count("Wrote ")
        shown.await_(lambda: shown.said().count("Wrote ") > begun)
        shown.signal(end)  # while the next is made, as the pause is none
        assert shown.ended() == 0
        lines = shown.said().splitlines()
    assert all(line.startswith(f"Wrote {file}: ") for line in lines), lines
    assert [each.name for each in folder.iterdir()] == ["groups.html"]
    assert Page(file).text.count("STALE: nothing is known of the last") == 1
    assert Page(file).text.count("groups are unknown") == 1


@pytest.mark.parametrize("asked", [("groups", "status"), ("report", "--file", "page.html")], ids=" ".join)
def test_tables_that_are_away_for_a_while_are_asked_again(tmp_path: Path, asked: tuple[str, ...]) -> None:
    tables, away, page = tmp_path / "tables", tmp_path / "away", tmp_path / "page.html"
    new_tables(tables)
    asked = tuple(str(page) if each == "page.html" else each for each in asked)

    def answers() -> int:
        return shown.said().count("0 of 0 groups") + shown.said().count("Wrote ")

    with command(tables, tmp_path, *asked, "--watch", "0.001") as shown:
        shown.await_(lambda: answers() > 0)
        tables.rename(away)
        shown.await_(lambda: shown.said().count("Error: ") > 1)
        begun = answers()
        away.rename(tables)
        shown.await_(lambda: answers() > begun)
        shown.signal(signal.SIGINT)
        assert shown.ended() == 0
        assert "Traceback" not in shown.said()
