"""Today's job on tables and a checkpoint of an older commit, also if it is killed during the upgrade."""

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
KILLS = 3  # number of kills, spread over the upgrade
SAMPLED_SINCE = {"log_end_offset", "lag"}  # columns that the older job did not fill


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """The cluster of the tables; tests must not write to it."""
    with old_kafka(COMMIT) as restored:
        yield restored


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> HistoryRows:
    """Return the history that the older commit wrote."""
    return history_rows(unpacked(tmp_path_factory.mktemp("before")))


@pytest.fixture(scope="module")
def upgrade(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path], str]:
    """Run an undisturbed job; return its folder, the files that it wrote in order, and its output."""
    folder = tmp_path_factory.mktemp("upgrade")
    unpacked(folder)
    with (
        FileWatch(folder) as watch,
        listing(watch) as made,
        JobProcess(kafka.bootstrap_server, folder, "--once") as job,
    ):
        assert job.ended() == 0, job.said()
        output = job.said()
    return folder, [path.relative_to(folder) for path in made], output


def unpacked(folder: Path) -> PathStore:
    unpack_tables(COMMIT, folder)
    return PathStore(str(folder / "tables"))


def answers(tables: PathStore) -> dict[str, Any]:
    """Return the answers of today's look-ups."""
    options = ("--tables", tables.root, "--output", "json")
    return {" ".join(question): json.loads(within(*question, *options).stdout) for question in QUESTIONS}


def wrong(tables: PathStore, kafka: EmbeddedKafka, before: HistoryRows) -> list[str]:
    """Return the differences from the older commit's tables, from the topic, and from today's schema version."""
    names = {row["topic_id"]: row["topic"] for row in rows(tables, "topics")}
    versions = {name: DeltaTable(tables.table(name)).metadata().configuration.get(PROPERTY) for name in all_schemas()}
    current, stored, history = answers(tables), old_answers(COMMIT), history_rows(tables)
    return [
        *behind(tables, read_topic(kafka.bootstrap_server)[1]),
        *differences(tables, kafka.bootstrap_server, names),
        *(f"{name} has version {found}" for name, found in versions.items() if found != str(SCHEMA_VERSION)),
        *(
            f"{question} has another answer"
            for question in stored
            if not keeps_rows(current[question], stored[question])
        ),
        *(f"not as before: {place}" for place, row in before.items() if not keeps(history.get(place, {}), row)),
    ]


def keeps_rows(current: list[dict[str, Any]], stored: list[dict[str, Any]]) -> bool:
    return len(current) == len(stored) and all(map(keeps, current, stored))


def keeps(row: Mapping[str, Any], older: Mapping[str, Any]) -> bool:
    """Return whether all values of the older row are unchanged; the new row may have more columns."""
    output = {name for name, value in older.items() if value is not None or name not in SAMPLED_SINCE}
    return all(name in row and row[name] == older[name] for name in output)


def test_todays_job_upgrades_old_tables_and_resumes(
    kafka: EmbeddedKafka, upgrade: tuple[Path, list[Path], str], before: HistoryRows, spark: SparkSession
) -> None:
    folder, _, output = upgrade
    assert "Loading" not in output  # it resumes where the older job ended
    tables = PathStore(str(folder / "tables"))
    assert wrong(tables, kafka, before) == []
    fill_history(spark, tables, print)
    assert {row["decoded_from_offset"] for row in rows(tables, "decoded_logs")} == {0}
    assert wrong(tables, kafka, before) == []


@pytest.mark.nightly
def test_the_next_job_completes_a_killed_upgrade(
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
    """Return whether the file belongs to a commit that creates or changes a table, not its rows."""
    return path.suffix == ".json" and path.exists() and '"metaData"' in path.read_text()


def test_look_ups_read_old_tables(tmp_path: Path) -> None:
    """Look-ups work before any job upgrades the tables."""
    current, stored = answers(unpacked(tmp_path)), old_answers(COMMIT)
    assert [question for question in stored if not keeps_rows(current[question], stored[question])] == []
