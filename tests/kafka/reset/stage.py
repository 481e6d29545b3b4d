"""Two topics, and commits of groups in them, for the tests of resets."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from offsetstream import CommittedOffset, commit_offsets, fetch_offsets
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.processes import Done

RECORDS, STEP_MS = 20, 60_000
FIRST = datetime(2026, 11, 20, 3, tzinfo=UTC)
Run = Callable[..., Done]


def moment(record: int) -> datetime:
    """Return the timestamp of a record of the topics."""
    return FIRST + timedelta(milliseconds=record * STEP_MS)


def rows(done: Done) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def commit(kafka: EmbeddedKafka, group: str, offsets: dict[tuple[str, int], int | CommittedOffset]) -> None:
    assert commit_offsets(kafka.bootstrap_server, group, offsets) == dict.fromkeys(offsets)


def committed(kafka: EmbeddedKafka, group: str) -> dict[tuple[str, int], CommittedOffset]:
    return fetch_offsets(kafka.bootstrap_server, group)
