"""A job of today on tables and a checkpoint of an older commit, also when it is killed while it upgrades them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.maintenance.fill_history import fill_history
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.version import PROPERTY, SCHEMA_VERSION
from testkit.processes import JobProcess, within
from tests.kafka.jobs import JobRunner
from tests.reliability.crash_matrix import act_at, listing
from tests.reliability.file_watch import FileWatch
from tests.reliability.old_tables import QUESTIONS, old_answers, old_kafka, unpack_tables
from tests.reliability.truth import HistoryRows, behind, differences, history_rows, read_topic, rows

pytestmark = pytest.mark.long

COMMIT = "9031f39"  # the last one of schema version 3
KILLS = 3  # across the upgrade
SAMPLED_SINCE = {"log_end_offset", "lag"}  # which a job of today knows, and the older one did not


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """The cluster of which the tables are; nothing is written to it."""
    with old_kafka(COMMIT) as restored:
        yield restored


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> HistoryRows:
    """The history as the older commit left it."""
    return history_rows(unpacked(tmp_path_factory.mktemp("before")))


@pytest.fixture(scope="module")
def upgrade(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path], str]:
    """A job that was not disturbed: its folder, the files that it made in their order, and what it said."""
    folder = tmp_path_factory.mktemp("upgrade")
    unpacked(folder)
    with (
        FileWatch(folder) as watch,
        listing(watch) as made,
        JobProcess(kafka.bootstrap_server, folder, "--once") as job,
    ):
        assert job.ended() == 0, job.said()
        said = job.said()
    return folder, [path.relative_to(folder) for path in made], said


def unpacked(folder: Path) -> PathStore:
    unpack_tables(COMMIT, folder)
    return PathStore(str(folder / "tables"))


def answers(tables: PathStore) -> dict[str, Any]:
    """What the look-ups of today print."""
    options = ("--tables", tables.root, "--output", "json")
    return {" ".join(question): json.loads(within(*question, *options).stdout) for question in QUESTIONS}


def wrong(tables: PathStore, kafka: EmbeddedKafka, before: HistoryRows) -> list[str]:
    """What is not as the older commit left it, not as the topic has it, or not of today's version."""
    names = {row["topic_id"]: row["topic"] for row in rows(tables, "topics")}
    versions = {name: DeltaTable(tables.table(name)).metadata().configuration.get(PROPERTY) for name in all_schemas()}
    told, stored, history = answers(tables), old_answers(COMMIT), history_rows(tables)
    return [
        *behind(tables, read_topic(kafka.bootstrap_server)[1]),
        *differences(tables, kafka.bootstrap_server, names),
        *(f"{name} has version {found}" for name, found in versions.items() if found != str(SCHEMA_VERSION)),
        *(f"{question} has another answer" for question in stored if not holds_rows(told[question], stored[question])),
        *(f"not as before: {place}" for place, row in before.items() if not holds(history.get(place, {}), row)),
    ]


def holds_rows(told: list[dict[str, Any]], stored: list[dict[str, Any]]) -> bool:
    return len(told) == len(stored) and all(map(holds, told, stored))


def holds(row: Mapping[str, Any], older: Mapping[str, Any]) -> bool:
    """Whether all that the older row said is still said; there may be more columns."""
    said = {name for name, value in older.items() if value is not None or name not in SAMPLED_SINCE}
    return all(name in row and row[name] == older[name] for name in said)


def test_a_job_of_today_upgrades_them_and_goes_on(
    kafka: EmbeddedKafka, upgrade: tuple[Path, list[Path], str], before: HistoryRows, spark: SparkSession
) -> None:
    folder, _, said = upgrade
    assert "Loading" not in said  # it goes on where the older job ended
    tables = PathStore(str(folder / "tables"))
    assert wrong(tables, kafka, before) == []
    fill_history(spark, tables, print)
    assert {row["decoded_from_offset"] for row in rows(tables, "decoded_logs")} == {0}
    assert wrong(tables, kafka, before) == []


@pytest.mark.nightly
def test_a_job_that_was_killed_in_the_upgrade_is_made_good_by_the_next(
    kafka: EmbeddedKafka,
    upgrade: tuple[Path, list[Path], str],
    before: HistoryRows,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    files = upgrade[1]
    last = max(number for number, path in enumerate(files, 1) if is_upgrade(upgrade[0] / path))
    for at in range(1, last + 1, -(-last // KILLS)):
        folder = tmp_path / str(at)
        tables = unpacked(folder)
        with FileWatch(folder) as watch, JobProcess(kafka.bootstrap_server, folder, "--once") as job:
            assert act_at(watch, job, partial(is_number, at), job.kill), job.said()
        JobRunner(spark, kafka.bootstrap_server, folder).run_once()
        assert wrong(tables, kafka, before) == [], f"killed at {files[at - 1]}"


def is_number(at: int, number: int, _path: Path) -> bool:
    return number == at


def is_upgrade(path: Path) -> bool:
    """Whether the file is of a commit that makes or changes a table, not its rows."""
    return path.suffix == ".json" and path.exists() and '"metaData"' in path.read_text()


def test_look_ups_read_them_as_they_are(tmp_path: Path) -> None:
    """Before any job upgrades them."""
    told, stored = answers(unpacked(tmp_path)), old_answers(COMMIT)
    assert [question for question in stored if not holds_rows(told[question], stored[question])] == []
