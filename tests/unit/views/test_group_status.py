"""Burrow's rules and our verdict in SQL, compared with plain Python on thousands of windows at once."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from offsetstream.views.files import for_duckdb, load_view
from offsetstream.views.reader import ViewReader
from offsetstream.views.verdicts import WORDS
from testkit.field_rules import Limits, burrow_status
from testkit.sampled_logs import SECOND, instant
from testkit.tables import reader_of, write_tables
from tests.unit.views.windows import NOW_MS, Window, random_window, tables_of

WINDOWS = 5000
VIEW = "group_status_partitions"
Judged = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def windows() -> list[Window]:
    rng = Random(20260101)
    return [random_window(rng, number) for number in range(WINDOWS)]


@pytest.fixture(scope="module")
def reader(windows: list[Window], tmp_path_factory: pytest.TempPathFactory) -> ViewReader:
    return reader_of(write_tables(tmp_path_factory.mktemp("windows"), tables_of(windows)), instant(NOW_MS))


def judged(reader: ViewReader) -> Judged:
    return {row["group_id"]: row for row in reader.rows(VIEW)}


def burrows(window: Window) -> tuple[str, str]:
    return burrow_status(window.ring, window.ends, window.now_ms, window.limits)


def test_status_equals_burrows(reader: ViewReader, windows: list[Window]) -> None:
    found = judged(reader)
    others = [
        (window, found[window.group_id], burrows(window))
        for window in windows
        if found[window.group_id]["status"] != burrows(window)[0]
    ]
    assert (len(others), others[:1]) == (0, [])


def test_the_windows_exercise_every_rule(windows: list[Window]) -> None:
    decided = Counter(burrows(window)[1] for window in windows)
    assert {rule: count for rule, count in decided.items() if count < WINDOWS * 0.05} == {}, decided
    assert set(decided) == {"incomplete", *"0123456"}


@pytest.mark.parametrize(
    ("rule", "negated"),
    [
        ("WHEN complete < minimum_complete THEN 'OK'", "WHEN complete >= minimum_complete THEN 'OK'"),
        ("WHEN current_lag <= allowed_lag THEN 'OK'", "WHEN current_lag > allowed_lag THEN 'OK'"),
        (
            "WHEN now_ms - last_ms > last_ms - first_ms AND lowest",
            "WHEN now_ms - last_ms <= last_ms - first_ms AND lowest",
        ),
        ("AND lowest_end > committed_offset THEN 'STOP'", "AND lowest_end <= committed_offset THEN 'STOP'"),
        (
            "WHEN best_since_rewind < before_rewind THEN 'REWIND'",
            "WHEN best_since_rewind >= before_rewind THEN 'REWIND'",
        ),
        ("WHEN lowest_lag <= allowed_lag THEN 'OK'", "WHEN lowest_lag > allowed_lag THEN 'OK'"),
        ("WHEN is_stalled THEN 'STALL'", "WHEN NOT is_stalled THEN 'STALL'"),
        ("WHEN lag_fell = 1 THEN 'OK'", "WHEN lag_fell <> 1 THEN 'OK'"),
    ],
)
def test_a_negated_rule_is_noticed(reader: ViewReader, windows: list[Window], rule: str, negated: str) -> None:
    sql = load_view(VIEW).spark_sql
    assert rule in sql
    judged(reader)  # creates the views that it reads
    try:
        reader.define(VIEW, for_duckdb(sql.replace(rule, negated, 1)))
        with pytest.raises(AssertionError):
            test_status_equals_burrows(reader, windows)
    finally:
        reader.define(VIEW, for_duckdb(sql))


def verdict(window: Window) -> str:
    """The verdict as the issue words it. A transaction's marker alone never makes a group look bad."""
    found, is_one = plain_verdict(window), window.samples[-1][0] - window.commits[-1][0] == 1
    is_accused = found in ("dead", "stopped", "stalled", "late", "falling behind")
    return "unknown" if is_one and is_accused and not window.is_read else found


def plain_verdict(window: Window) -> str:  # noqa: PLR0911 - a word each
    """The same rules applied directly to the samples."""
    ring, status = window.ring, burrows(window)[0]
    now_lag = window.samples[-1][0] - ring[-1].offset
    start_ms = window.now_ms - window.window_seconds * 1000
    if now_lag <= window.limits.allowed_lag:
        return "ok"
    if window.members == 0 and window.now_ms // 1000 * 1000 - ring[-1].timestamp_ms > window.window_seconds * 1000:
        return "dead"
    silent_ms = window.now_ms // 1000 * 1000 - ring[-1].timestamp_ms
    patience = window.window_seconds if len(ring) == 1 else min(window.window_seconds, 60)
    has_no_habit = status == "STOP" or (status == "STALL" and len(ring) == 1)
    if has_no_habit and len(ring) < window.limits.intervals and silent_ms <= patience * 1000:
        return "unknown"
    if status in ("REWIND", "STOP", "STALL"):
        return {"REWIND": "rewound", "STOP": "stopped", "STALL": "stalled"}[status]
    if is_late(window):
        return "late"
    end, offset = window.end_at(start_ms), window.committed_at(start_ms)
    if end is None or offset is None:
        return "ok"
    if had_caught_up(window, start_ms):
        return "ok"
    if lag_rose(window, start_ms, offset):
        return "falling behind"
    return "catching up" if lag_fell(window, start_ms, max(0, end - offset)) else "ok"


def had_caught_up(window: Window, start_ms: int) -> bool:
    """Whether a sample showed no lag, or a commit reached the end that was known at the commit before."""
    looks = [(end, window.committed_at(at_ms)) for end, at_ms in window.samples if at_ms > start_ms]
    at_start = (looks[0][0] if looks else None, window.committed_at(start_ms))
    return any(
        end - offset <= window.limits.allowed_lag
        for end, offset in (at_start, *looks, *steps_since(window, start_ms))
        if end is not None and offset is not None
    )


def steps_since(window: Window, start_ms: int) -> list[tuple[int | None, int]]:
    """Return, for each commit since then, the end known at the previous commit, and the offset."""
    pairs = pairwise(window.commits)
    return [(window.end_at(before_ms), offset) for (_, before_ms), (offset, at_ms) in pairs if at_ms > start_ms]


def lag_rose(window: Window, start_ms: int, offset: int) -> bool:
    """Whether the newest commit was surely further from the end than the commit at that time."""
    after = next((end for end, at_ms in window.samples if at_ms > start_ms), None)
    least = window.ring[-1].lag
    is_known = all(end is not None for end, _ in steps_since(window, start_ms))
    return is_known and after is not None and least is not None and least > max(0, after - offset)


def lag_fell(window: Window, start_ms: int, before: int) -> bool:
    """Whether the last sampled commit since then was surely nearer to the end than the commit at that time."""
    first_ms = next((at_ms for _, at_ms in window.commits if at_ms > start_ms), window.now_ms + 1)
    looks = [(end, window.committed_at(at_ms)) for end, at_ms in window.samples if at_ms >= first_ms]
    return bool(looks) and looks[-1][0] - (looks[-1][1] or 0) < before


def is_late(window: Window) -> bool:
    """Whether the log had grown beyond the committed offset that long ago, interpolated between two samples."""
    if window.max_time_lag_seconds is None:
        return False
    at_ms, offset = window.now_ms - window.max_time_lag_seconds * 1000, window.commits[-1][0]
    for (left, left_ms), (right, right_ms) in zip(window.samples, window.samples[1:], strict=False):
        if left_ms <= at_ms < right_ms:
            return offset < left + (right - left) * (at_ms - left_ms) / (right_ms - left_ms)
    return window.samples[-1][1] <= at_ms and offset < window.samples[-1][0]


def test_verdict_follows_its_definition(reader: ViewReader, windows: list[Window]) -> None:
    found = judged(reader)
    others = [
        (window, found[window.group_id], verdict(window))
        for window in windows
        if found[window.group_id]["verdict"] != verdict(window)
    ]
    assert (len(others), others[:1]) == (0, [])
    counted = Counter(row["verdict"] for row in found.values())
    assert set(counted) == {*WORDS} - {"beyond the end", "abandoned", "blocked", "waiting", "unstable"}
    assert min(counted.values()) >= WINDOWS // 200, counted


BUSY = [(apart, phase) for apart in (1, 5, 12, 30, 70) for phase in range(0, 10_000, 700)]


def busy(number: int, apart: int, phase: int, share: float) -> Window:
    """A log of 1,000 messages per second, sampled every ten seconds. Each commit covers a share of the new messages."""
    began = NOW_MS - 900 * SECOND
    looks = tuple((at - began, at) for at in range(began, NOW_MS + 1, 10 * SECOND))
    times = range(began + phase + apart * SECOND, NOW_MS + 1, apart * SECOND)
    commits = tuple((int((at - apart * 200 - began) * share), at) for at in times)
    return Window(number, looks, commits, Limits(), window_seconds=300)


@pytest.mark.parametrize(("share", "told"), [(1, {"ok"}), (0.8, {"falling behind"})])
def test_a_busy_group_is_falling_behind_only_if_its_lag_grows(tmp_path: Path, share: float, told: set[str]) -> None:
    """Between two samples its log grows by ten thousand messages, so a query always finds unread ones."""
    windows = [busy(number, *each, share) for number, each in enumerate(BUSY)]
    reader = reader_of(write_tables(tmp_path, tables_of(windows)), instant(NOW_MS))
    found = reader.rows(VIEW)
    assert {row["verdict"] for row in found} == told, [row for row in found if row["verdict"] not in told][:1]


# A log from `start` to `end`, sampled until now, one commit at `offset` some seconds ago, and the expected verdict.
AT_THE_EDGES = {
    "retention took all that waited": (50, 50, 10, 400, "ok", 0, 40),
    "retention took a part of it": (50, 60, 10, 400, "stopped", 10, 40),
    "retention took what was read": (50, 60, 60, 400, "ok", 0, 0),
    "beyond the end": (0, 60, 70, 400, "beyond the end", 0, 0),
    "newer than the sample may be": (0, 60, 70, 20, "ok", 0, 0),
    "the first commit of a fresh group": (0, 60, 10, 10, "unknown", 50, 0),
    "the only commit, long ago": (0, 60, 10, 301, "stopped", 50, 0),
}


@pytest.mark.parametrize("name", AT_THE_EDGES)
def test_deleted_messages_are_no_lag_and_one_commit_blames_no_group(tmp_path: Path, name: str) -> None:
    start, end, offset, seconds, word, lag, lost = AT_THE_EDGES[name]
    samples = tuple((end, NOW_MS - ago * 10_000) for ago in reversed(range(60)))
    commits = ((offset, NOW_MS - seconds * 1000),)
    window = Window(0, samples, commits, Limits(10, 0.0, 0), window_seconds=300, log_start=start)
    reader = reader_of(write_tables(tmp_path, tables_of([window])), instant(NOW_MS))
    (row,) = reader.rows(VIEW)
    assert (row["verdict"], row["current_lag"], row["messages_lost"]) == (word, lag, lost), row
    (of_group,) = reader.rows("group_status")
    assert (of_group["total_lag"], of_group["messages_lost"]) == (lag, lost)


def test_a_group_has_the_worst_verdict_of_its_partitions(tmp_path: Path) -> None:
    """An unknown partition does not hide known trouble, and healthy partitions do not hide an unknown one."""
    reader = reader_of(write_tables(tmp_path, {}), instant(NOW_MS))
    reader.rows("group_status")  # creates the views that it reads
    pairs = [(worse, better) for at, worse in enumerate(WORDS) for better in WORDS[:at]]
    rest = "'why', 'why', 0, NULL, false, NULL"
    told = [
        f"('{worse} and {better}', 't', {number}, 'OK', '{verdict}', 'OK', 1, 0, 1, {NOW_MS}, {rest})"
        for worse, better in pairs
        for number, verdict in enumerate((worse, better))
    ]
    columns = "group_id, topic, partition, status, verdict, level, current_lag, messages_lost, complete"
    also = "last_commit_at_ms, status_reason, verdict_reason, offsets_partition, as_of, is_stale, cause"
    values = f"SELECT * FROM (VALUES {', '.join(told)}) v ({columns}, {also})"  # noqa: S608 - our own
    reader.define("group_status_partitions", values)
    found = {row["group_id"]: (row["verdict"], row["verdict_partition"]) for row in reader.rows("group_status")}
    assert found == {f"{worse} and {better}": (worse, 0) for worse, better in pairs}
