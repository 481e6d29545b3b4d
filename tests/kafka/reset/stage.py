"""Two topics, and commits of groups in them, for the tests of resets."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from offsetstream import CommittedOffset, commit_offsets, fetch_offsets
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.processes import OFFSETSTREAM, Done, RunningProcess

RECORDS, STEP_MS = 20, 60_000
FIRST = datetime(2026, 11, 20, 3, tzinfo=UTC)
Run = Callable[..., Done]


def moment(record: int) -> datetime:
    """Return the timestamp of a record of the topics."""
    return FIRST + timedelta(milliseconds=record * STEP_MS)


def rows(done: Done) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def reset_at_once(server: str, group: str, snapshots: Path, *options: str, topic: str = "orders") -> list[int]:
    """Reset the group's three partitions of the topic, all at 5, by three processes at once, each to another offset.

    Return the offset of all partitions before, and after each reset that was done. Each snapshot must have one state.
    """
    reset = ("offsets", "reset", "--group", group, "--topic", topic, "--execute", "--bootstrap-server", server)
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                RunningProcess(
                    [*OFFSETSTREAM, *reset, "--to-offset", str(offset), "--snapshots", str(snapshots), *options],
                    snapshots.with_name(f"{group}-{offset}.txt"),
                )
            )
            for offset in (11, 12, 13)
        ]
        codes, said = [each.ended() for each in running], [each.said() for each in running]
    states = [5]
    for path in sorted(snapshots.iterdir()):
        changes = json.loads(path.read_text("utf-8"))["changes"]
        assert [each["before"]["offset"] for each in changes] == [states[-1]] * 3, said
        (after,) = {each["after"]["offset"] for each in changes}
        states.append(after)
    assert sorted(codes) == [0] * (len(states) - 1) + [1] * (4 - len(states)), said
    return states


def commit(kafka: EmbeddedKafka, group: str, offsets: dict[tuple[str, int], int | CommittedOffset]) -> None:
    assert commit_offsets(kafka.bootstrap_server, group, offsets) == dict.fromkeys(offsets)


def committed(kafka: EmbeddedKafka, group: str) -> dict[tuple[str, int], CommittedOffset]:
    return fetch_offsets(kafka.bootstrap_server, group)
