"""Each command an hour after the last look: it says what it said then, or that this is stale; never anything else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from offsetstream.cli.main import main
from offsetstream.cli.text import instant_text
from offsetstream.tables.placement import RECORDS
from offsetstream.views.files import all_views, needed
from testkit.group_world import GroupWorld
from testkit.sampled_logs import instant
from testkit.tables import new_tables
from tests.unit.cli.conftest import Run

Row = dict[str, Any]
Options = tuple[str, ...]
RECENTLY = ("--since", "15m")
GROUPS = ("--group", "group-2", "--group", "group-9")
VIEWS = [view for view in all_views().values() if not view.is_helper and view.name != "clock"]
OF_AN_INSTANT = [view.name for view in VIEWS if view.is_at]
# Those that carry their age are asked by tests/unit/views/test_freshness.py.
OF_THE_CLOCK = [
    view.name
    for view in VIEWS
    if "clock" in {each.name for each in needed(view.name)} - {view.name} and "is_stale" not in view.column_names
]
QUESTIONS: dict[str, list[Options]] = {
    "groups list": [()],
    "groups describe": [("--all-groups",), (*GROUPS, "--state"), (*GROUPS, "--members")],
    "groups status": [(), ("--verdict", "stopped")],
    "groups rebalances": [GROUPS, RECENTLY],
    "groups history": [RECENTLY, GROUPS],
    "offsets list": [(), GROUPS],
    "offsets history": [GROUPS, (*GROUPS, *RECENTLY)],
    "offsets audit": [(), RECENTLY],
    "offsets expiring": [("--kept",), ("--within", "1m")],
    "offsets orphans": [()],
    "offsets export": [("--all-groups",), ("--group", "group-2")],
    "lag": [("--all-groups", "--time"), GROUPS],
    "partitions": [(), ("--events",)],
    "coordinator": [GROUPS],
    "report": [()],
    "sql": [(f"FROM {view}",) for view in OF_THE_CLOCK],
}
NOT_ASKED = {
    **dict.fromkeys(
        ("run", "stop", "reload", "repair", "maintain", "demo"), "work on tables, and say nothing about groups"
    ),
    "load": "makes tables: tests/kafka/test_load_files.py asks them",
    **dict.fromkeys(("views create", "views script", "views serve"), "hand over the views, which sql asks here"),
    "verify": "compares with the live cluster, and waits for a job that is behind: tests/kafka",
    "topics describe": "asks the live cluster: tests/kafka/test_topics_describe.py",
    **dict.fromkeys(
        ("groups delete", "offsets import", "offsets reset", "offsets undo", "offsets delete"),
        "ask the live cluster; of tables an instant, and object where they do not reach it: tests/kafka/reset",
    ),
}
BY_THE_CLOCK = {"last_commit", "expires_in", "expires_in_ms"}  # how long ago it is, or has yet to go
LOOKS_EVERY_MS = 300_000  # what is half an hour old is stale; what took a slow machine a minute is not
SOON, MUCH_LATER = 60, 3600  # seconds after the last look; whole minutes, since views have rows of minutes
NOT_KNOWN = 5


def commands(command: click.Command, names: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Those of the register that take --tables, and the names of their options."""
    options = {str(option.name) for option in command.params}
    if isinstance(command, click.Group):
        ctx = click.Context(command, parent=click.Context(main) if names else None)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from commands(found, (*names, name))
    elif "tables" in options:
        yield " ".join(names), options


REGISTER = dict(commands(main))
EACH = [(name, options) for name, several in QUESTIONS.items() for options in several]


def test_every_command_is_tested_or_has_a_reason_not_to_be() -> None:
    assert QUESTIONS.keys() | NOT_ASKED.keys() == REGISTER.keys()
    assert not QUESTIONS.keys() & NOT_ASKED.keys()


@dataclass(frozen=True)
class Told:
    """An answer, whose instants are so many milliseconds after the last look, or `later` than that."""

    code: int
    says_stale: bool
    text: str
    rows: list[Row]

    @property
    def facts(self) -> tuple[int, object]:
        """What does not change as time goes by."""
        rows = [{name: row[name] for name in row.keys() - BY_THE_CLOCK} for row in self.rows]
        return self.code, sorted(json.dumps(row, sort_keys=True) for row in rows) or self.text


@dataclass(frozen=True)
class Tables:
    """Tables of a job that last looked then, and how to ask them."""

    folder: Path
    looked_at: datetime
    run: Run

    def ask(self, name: str, *options: str, output: str = "json") -> Told:
        page = self.folder / "page.html"
        form = {"report": ("--file", str(page)), "offsets export": ()}.get(name, ("--output", output))
        shown = self.run(*name.split(), *options, *form, tables=self.folder / "tables")
        assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
        text = page.read_text() if name == "report" else shown.stdout
        says_stale = "STALE: " in (text if name == "report" else shown.stderr)
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", lambda at: self._after(datetime.fromisoformat(at[0])), text)
        text = re.sub(r'(?<=_ms": )1\d{12}\b', lambda at: f'"{self._after(instant(int(at[0])))}"', text)
        has_rows = output == "json" and name not in ("report", "offsets export")
        return Told(shown.exit_code, says_stale, text, json.loads(text) if has_rows else [])

    def _after(self, at: datetime) -> str:
        after = (at - self.looked_at) / timedelta(milliseconds=1)
        return "later" if after > 0 else f"{after:.0f} ms"


# By how many seconds ago the job last looked.
Folders = dict[int, tuple[Path, datetime]]
Each = dict[int, Tables]


@pytest.fixture(scope="module", params=[0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 6))])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Tables of one world, three times."""
    world = GroupWorld(request.param, minutes=20, until_minute=12 + request.param % 8, changing=1)
    world.rows["cluster"] = [{"cluster_id": "c", "sample_interval_ms": LOOKS_EVERY_MS, "offsets_retention_ms": 600_000}]
    for row in world.rows["offsets_partitions"]:
        row["placement_rule"] = RECORDS  # the world places groups as it likes
    now, found = datetime.now(UTC).replace(microsecond=0), {}
    for seconds in (0, SOON, MUCH_LATER):
        folder, looked_at = tmp_path_factory.mktemp(f"ago-{seconds}"), now - timedelta(seconds=seconds)
        new_tables(folder / "tables", as_if_then(world.rows, looked_at - instant(world.now_ms)))
        found[seconds] = folder, looked_at
    return found


@pytest.fixture
def after(folders: Folders, run: Run) -> Each:
    return {seconds: Tables(*place, run) for seconds, place in folders.items()}


def as_if_then(tables: dict[str, list[Row]], later: timedelta) -> dict[str, list[Row]]:
    def moved(name: str, value: Any) -> Any:
        if isinstance(value, datetime):
            return value + later
        if name == "written_day":
            return (datetime.combine(value, time.max, UTC) + later).date()
        is_time = name.endswith("timestamp_ms") and value is not None
        return value + later // timedelta(milliseconds=1) if is_time else value

    return {
        table: [{name: moved(name, value) for name, value in row.items()} for row in rows]
        for table, rows in tables.items()
    }


@pytest.mark.parametrize(("name", "options"), EACH)
def test_an_answer_is_the_same_later_or_stale(after: Each, name: str, options: Options) -> None:
    told, later = (after[seconds].ask(name, *options) for seconds in (SOON, MUCH_LATER))
    assert not told.says_stale
    assert not any(row.get("stale") or row.get("is_stale") for row in told.rows)
    if later.facts == told.facts:
        return
    assert later.says_stale if name != "sql" else {row["is_stale"] for row in later.rows} == {True}
    for row in later.rows:
        assert row.get("stale", True)
        assert row.get("verdict", "unknown") == "unknown"
    assert later.code == (NOT_KNOWN if name == "groups status" else told.code)


@pytest.mark.parametrize(("name", "options"), [each for each in EACH if each[0] not in ("sql", "report")])
def test_a_text_answer_is_the_same_later_or_stale(after: Each, name: str, options: Options) -> None:
    later = after[MUCH_LATER].ask(name, *options, output="text")
    assert later.says_stale or later.facts == after[SOON].ask(name, *options, output="text").facts


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "options"), [each for each in EACH if each[0] != "report"])
def test_an_answer_is_the_same_soon_after(after: Each, name: str, options: Options) -> None:
    told, soon = (after[seconds].ask(name, *options) for seconds in (0, SOON))
    assert (told.says_stale, soon.says_stale) == (False, False)
    if not {"--since", "--within"} & {*options}:  # which go with the clock
        assert soon.facts == told.facts


BEFORE = [
    *(
        (name, next(each for each in several if "--since" not in each))
        for name, several in QUESTIONS.items()
        if name != "sql" and {"at", "until"} & REGISTER[name]
    ),
    *(("sql", (f"FROM {view}",)) for view in OF_AN_INSTANT),
]


@pytest.mark.parametrize(("name", "options"), BEFORE)
def test_an_answer_about_a_time_before_the_last_sample_is_never_stale(after: Each, name: str, options: Options) -> None:
    flag = "--at" if "at" in REGISTER[name] else "--until"
    told, later = (
        tables.ask(name, *options, flag, str(instant_text(tables.looked_at - timedelta(seconds=61))))
        for tables in (after[SOON], after[MUCH_LATER])
    )
    assert (told.says_stale, later.says_stale) == (False, False)
    assert not any(row.get("stale") for row in later.rows)
    assert name == "report" or later.facts == told.facts
