"""`offsetstream views` where it needs no Spark; tests/spark/test_views_in_a_catalog.py has the rest."""

from __future__ import annotations

import json
from pathlib import Path

from offsetstream.views.files import all_views
from tests.unit.cli.conftest import Run


def test_the_list(run: Run) -> None:
    shown = json.loads(run("views", "list", "--output", "json").output)
    assert {row["view"]: row["at"] for row in shown} == {
        view.name: ":at" if view.is_at else "" for view in all_views().values() if not view.is_helper
    }


def test_the_sql_of_a_dry_run(run: Run, cluster: Path) -> None:
    shown = run("views", "create", "--database", "lake.kafka", "--dry-run")
    assert (shown.exit_code, shown.output.count("CREATE OR REPLACE VIEW `lake`.`kafka`.")) == (
        0,
        sum(not view.is_at for view in all_views().values()),
    )
    assert f"`committed_offsets` AS (TABLE delta.`file:{cluster}/committed_offsets`)" in shown.output
    own = run("views", "create", "--dry-run", tables=Path("lake.kafka"))
    assert "`committed_offsets` AS (TABLE `lake`.`kafka`.`committed_offsets`)" in own.output


def test_where_they_go_must_be_said(run: Run) -> None:
    without = run("views", "create", "--dry-run")
    assert (without.exit_code, "say by --database" in without.output) == (2, True)
    wrong = run("views", "create", "--database", "a.b.c", "--dry-run")
    assert (wrong.exit_code, "a.b.c is no schema of a catalog" in wrong.output) == (2, True)
