"""The rebalances of groups that change from the classic protocol to KIP-848 and back on a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from offsetstream.embedded.jvm import DEFAULT_VERSION
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.sampled_logs import instant
from testkit.tables import reader_of, write_tables
from tests.kafka.protocol_changes import BROKER, Done, history, play, recorded

pytestmark = pytest.mark.long
PAUSE = 3.0  # seconds between steps
RELEASES = [DEFAULT_VERSION, pytest.param("4.1.2", marks=pytest.mark.nightly)]
Passing = tuple[str, str, str]  # group, column, client


@pytest.mark.parametrize("release", RELEASES)
def test_each_join_and_leave_is_reported_once_and_never_too_early(tmp_path: Path, release: str) -> None:
    with EmbeddedKafka(release, properties=BROKER) as kafka:
        done = play(kafka.bootstrap_server, tmp_path, PAUSE)
        rows = history([*recorded(kafka.bootstrap_server)])
    rebalances = reader_of(write_tables(tmp_path, rows), datetime.now(UTC)).rows("rebalances")
    reported = [(passing, row["started_at"]) for row in rebalances for passing in _passings(row)]
    expected = {passing: instant(each.at_ms) for each in done for passing in _passing(each)}
    assert sorted(passing for passing, _ in reported) == sorted(expected)
    assert [passing for passing, at in reported if at < expected[passing]] == []
    durations = [row[name] for row in rebalances for name in ("sync_ms", "settle_ms", "commit_pause_ms")]
    assert min(each for each in durations if each is not None) >= 0
    assert all(row["sync_ms"] is not None for row in rebalances if row["group_type"] == "Classic")


def _passings(row: Mapping[str, Any]) -> Iterator[Passing]:
    for column in ("joined_clients", "left_clients"):
        yield from ((row["group_id"], column, client) for client in (row[column] or "").split(", ") if client)


def _passing(done: Done) -> Iterator[Passing]:
    """Yield the expected changes. Of static members that replace each other, only the first and the last count."""
    group, act = done.group, done.act
    is_static = group.startswith("static")
    if not is_static or act.word == "times out" or (act.word == "joins" and act.client.endswith("1")):
        column = "joined_clients" if act.word == "joins" else "left_clients"
        yield group, column, act.client[0] if is_static else act.client
