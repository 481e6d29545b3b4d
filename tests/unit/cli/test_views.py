"""`offsetstream views` where it needs no Spark; tests/spark/test_views_in_a_catalog.py has the rest."""

from __future__ import annotations

import json
from pathlib import Path

from offsetstream.tables.schema import all_schemas
from offsetstream.views.files import all_views
from testkit.tables import new_tables
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


def test_tables_in_a_folder_need_a_database(run: Run) -> None:
    without = run("views", "create", "--dry-run")
    assert (without.exit_code, "by --database" in without.output) == (2, True)
    wrong = run("views", "create", "--database", "a.b.c", "--dry-run")
    assert (wrong.exit_code, "a.b.c is not a schema name" in wrong.output) == (2, True)


def test_the_script_registers_every_table(run: Run, tmp_path: Path) -> None:
    new_tables(tmp_path)
    shown = run("views", "script", "--database", "kafka", tables=tmp_path).output
    for name in all_schemas():
        place = f"CREATE TABLE IF NOT EXISTS `kafka`.`{name}` USING delta LOCATION 'file:{tmp_path}/{name}';"
        assert shown.count(place) == 1
    assert "CREATE TABLE IF NOT EXISTS `kafka`.`thresholds` (`group_id` STRING COMMENT 'Group id. " in shown
    assert shown.count("CREATE OR REPLACE VIEW") == sum(not view.is_at for view in all_views().values())
    own = run("views", "script", tables=Path("lake.kafka")).output  # whose tables are in the catalog as they are
    assert ("CREATE TABLE" in own, own.count("CREATE OR REPLACE VIEW") > 1) == (False, True)


def test_script_without_tables_gives_an_error(run: Run, tmp_path: Path) -> None:
    none = run("views", "script", "--database", "kafka", tables=tmp_path)
    assert (none.exit_code, none.output.count("\n"), str(tmp_path) in none.output) == (1, 1, True)
