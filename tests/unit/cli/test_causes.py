"""One cause that many groups have is told once, before the groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testkit.field_rules import Limits
from testkit.page import Page
from testkit.sampled_logs import SECOND, instant
from testkit.tables import new_tables
from tests.unit.cli.conftest import Run
from tests.unit.views.windows import NOW_MS, Window, tables_of

CAUSE = "an open transaction on __consumer_offsets-0"


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """Three groups whose commits of the last two minutes nobody can read; of one nothing waits."""
    looks = tuple((1000 + number, NOW_MS - (60 - number) * 10 * SECOND) for number in range(61))
    windows = [
        Window(number, looks, tuple((end - lag, at) for end, at in looks[:-12]), Limits(), window_seconds=300)
        for number, lag in enumerate((20, 30, -12))
    ]
    rows = tables_of(windows)
    rows.pop("thresholds")
    rows["cluster"] = [{"cluster_id": "c", "ended_at": instant(NOW_MS)}]
    book = {"offsets_partition": 0, "log_id": 0, "load_state": "OWNED", "caught_up_at": instant(NOW_MS)}
    rows["offsets_partitions"] = [book | {"last_stable_offset_since": instant(NOW_MS - 119 * SECOND)}]
    new_tables(tmp_path / "tables", rows)
    return tmp_path / "tables"


def test_status_tells_it_first(run: Run, held: Path) -> None:
    shown = run("groups", "status", tables=held)
    told = f"2 groups: {CAUSE}; 'offsetstream partitions --held-back' shows what ends it"
    assert told in shown.stderr.splitlines()
    rows = json.loads(run("groups", "status", "--output", "json", tables=held).stdout)
    assert sorted((row["verdict"], row["cause"]) for row in rows if row["cause"]) == [("held-back", CAUSE)] * 2
    assert [row["verdict"] for row in rows if not row["cause"]] == ["ok"]
    assert told not in run("groups", "status", "--group", "group-0", tables=held).stderr


def test_so_does_the_report(run: Run, held: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    assert run("report", "--file", str(file), tables=held).exit_code == 0
    assert f"2 groups: {CAUSE}." in Page(file).text
