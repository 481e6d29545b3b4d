"""A reset plans the same offsets as Kafka's own tool."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from offsetstream import CommittedOffset
from offsetstream.embedded.jvm import CONSUMER_GROUPS, run_tool
from offsetstream.embedded.kafka import EmbeddedKafka
from tests.kafka.reset.stage import Run, commit, committed, moment, rows

pytestmark = pytest.mark.long


def planned_by_kafka(server: str, arguments: list[str]) -> set[tuple[str, str, int, int]]:
    """Return the plan of kafka-consumer-groups: GROUP TOPIC PARTITION NEW-OFFSET, below a heading."""
    printed = run_tool(CONSUMER_GROUPS, ["--bootstrap-server", server, "--reset-offsets", *arguments, "--dry-run"])
    lines = [line.split() for line in printed.splitlines()]
    heading = next(at for at, line in enumerate(lines) if line[:1] == ["GROUP"])
    found = [line for line in lines[heading + 1 :] if line]
    return {(group, topic, int(partition), int(offset)) for group, topic, partition, offset in found}


@pytest.mark.parametrize(
    "options",
    [
        ["--topic", "orders", "--to-earliest"],
        ["--topic", "orders", "--topic", "quiet", "--to-latest"],
        ["--topic", "orders", "--to-current"],
        ["--topic", "orders:0,2", "--to-offset", "3"],
        ["--topic", "orders", "--to-offset", "3"],
        ["--all-topics", "--to-offset", "1000"],
        ["--all-topics", "--shift-by", "4"],
        ["--all-topics", "--shift-by", "-6"],
        ["--topic", "orders", "--topic", "quiet", "--to-datetime", f"{moment(9):%Y-%m-%dT%H:%M:%S}.000"],
        ["--topic", "orders", "--to-datetime", f"{moment(10) - timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}.000"],
        ["--topic", "orders", "--to-datetime", "2026-01-01T00:00:00.000"],
        ["--topic", "orders", "--by-duration", "PT1M"],
        ["--topic", "orders", "--by-duration", "P9999D"],
        ["--from-file", "FILE"],
    ],
    ids=" ".join,
)
def test_the_plan_equals_kafkas_tool(
    kafka: EmbeddedKafka, admin: AdminClient, run: Run, tmp_path: Path, options: list[str]
) -> None:
    commit(kafka, "differential", {("orders", 0): 5, ("orders", 1): 7})
    file = tmp_path / "offsets.csv"
    file.write_text("orders,0,2\norders,1,1\norders,2,999\n", "utf-8")
    arguments_of_case = [str(file) if each == "FILE" else each for each in options]
    kafka_plan = planned_by_kafka(kafka.bootstrap_server, ["--group", "differential", *arguments_of_case])
    assert kafka_plan
    done = run("offsets", "reset", "--group", "differential", *arguments_of_case, "--output", "json")
    our_plan = {(row["group"], row["topic"], row["partition"], row["new_offset"]) for row in rows(done)}
    assert our_plan == kafka_plan
    assert committed(kafka, "differential") == {("orders", 0): CommittedOffset(5), ("orders", 1): CommittedOffset(7)}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    [
        ["--all-topics", "--to-earliest"],
        ["--topic", "orders:1,2", "--topic", "quiet", "--to-latest"],
        ["--all-topics", "--shift-by", "-3"],
        ["--all-topics", "--to-current"],
        ["--topic", "orders:1", "--to-datetime", f"{moment(9):%Y-%m-%dT%H:%M:%S}.000"],
        ["--all-topics", "--by-duration", "P9999D"],
        ["--from-file", "FILE"],
    ],
    ids=" ".join,
)
def test_the_plan_of_several_groups_equals_kafkas_tool(
    kafka: EmbeddedKafka, admin: AdminClient, run: Run, tmp_path: Path, options: list[str]
) -> None:
    commit(kafka, "several 1", {("orders", 1): 2})  # an offset that is no longer in the log
    commit(kafka, "several-2", {("orders", 0): 3, ("orders", 1): 20, ("quiet", 0): 0})
    file = tmp_path / "offsets.csv"
    file.write_text("several 1,orders,1,9\nseveral-2,orders,1,1\nseveral-2,quiet,0,5\n", "utf-8")
    arguments_of_case = [str(file) if each == "FILE" else each for each in options]
    both = ["--group", "several 1", "--group", "several-2", *arguments_of_case]
    # A group's name may contain a space, so count columns from the right.
    printed = run_tool(
        CONSUMER_GROUPS, ["--bootstrap-server", kafka.bootstrap_server, "--reset-offsets", *both, "--dry-run"]
    )
    kafka_plan = {tuple(line.rsplit(maxsplit=3)) for line in printed.splitlines() if line.startswith("several")}
    assert {line[0].strip() for line in kafka_plan} == {"several 1", "several-2"}
    done = run("offsets", "reset", *both, "--output", "json")
    our_plan = {tuple(str(row[each]) for each in ("group", "topic", "partition", "new_offset")) for row in rows(done)}
    assert our_plan == kafka_plan


def test_a_time_before_1970_means_the_start_of_the_log(kafka: EmbeddedKafka, run: Run) -> None:
    commit(kafka, "historian", {("orders", 1): 7})
    reset = ("offsets", "reset", "--group", "historian", "--topic", "orders:1", "--to-datetime", "1960-01-01")
    back = run(*reset, "--execute")
    assert (back.returncode, committed(kafka, "historian")) == (0, {("orders", 1): CommittedOffset(4)}), back.stderr
