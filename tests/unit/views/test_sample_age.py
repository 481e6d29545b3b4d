"""A sample of an end offset holds for an instant only for a limited time. Beyond that, the end is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offsetstream.views.instant import InstantReader
from offsetstream.views.reader import ViewReader
from testkit.examples import seeds
from testkit.sampled_logs import EVERY, MINUTE, SECOND, START_MS, instant
from testkit.tables import new_tables, reader_of, write_tables

Row = dict[str, Any]
Look = tuple[int, int, int]  # seconds after the start, log start offset, end offset
CELL = {"offsets_partition": 0, "log_id": 0, "group_id": "billing", "topic": "orders", "partition": 0}
PLACE = {"topic": "orders", "topic_id": None, "partition": 0}
HOUR = 3600
NEAR = "within two minutes of the end of the log"
START, END = "the start of the log (like --to-earliest)", "the end of the log (like --to-latest)"


def every_ten(since: int, until: int, start: int, end: int) -> list[Look]:
    """Samples every ten seconds of a log that does not change."""
    return [(at, start, end) for at in range(since, until + 1, EVERY // SECOND)]


def tables_of(samples: list[Look], commits: list[tuple[int, int]], **group: Any) -> dict[str, list[Row]]:
    """The rows that the job has written: a row for each change or ten minutes, the newest sample, and the commits."""
    rows, before = list[Row](), None
    for at, start, end in samples:
        look = PLACE | {"sampled_at": when(at), "log_start_offset": start, "high_watermark": end}
        look |= {"last_stable_offset": end, "previous_sampled_at": None if before is None else when(before[0])}
        if before is None or before[1:] != (start, end) or look["sampled_at"] - rows[-1]["sampled_at"] >= TEN_MINUTES:
            rows.append(look)
        before = at, start, end
    newest = {name: value for name, value in rows[-1].items() if name != "previous_sampled_at"}
    newest |= {"changed_at": newest["sampled_at"], "sampled_at": when(samples[-1][0])}
    told = [
        CELL
        | {"record_offset": number, "record_timestamp": when(at), "committed_offset": offset}
        | {"commit_timestamp": when(at), "commit_timestamp_ms": START_MS + at * SECOND, "topic_id": None}
        for number, (at, offset) in enumerate(commits, 1)
    ]
    its = {name: CELL[name] for name in ("offsets_partition", "group_id")}
    change = {
        "log_id": 0,
        "record_offset": 0,
        "record_timestamp": when(0),
        "group_type": "Classic",
        "is_removed": False,
    }
    change |= {"state": "Empty", "protocol_type": "consumer", "generation": 3, "member_count": 0}
    return {
        "end_offsets": rows,
        "topic_partitions": [newest],
        "offset_commits": [row | {"is_tombstone": False} for row in told],
        "committed_offsets": [told[-1] | {"in_coordinator_partition": True}],
        "groups": [its | {"member_count": 0, "state": "Empty", "in_coordinator_partition": True}],
        "group_history": [its | change],
        "decoded_logs": [{"offsets_partition": 0, "log_id": 0, "decoded_from_offset": 0}],
        "offsets_partitions": [{"offsets_partition": 0, "log_id": 0, "history_complete_from": when(0)}],
    }


TEN_MINUTES = instant(10 * MINUTE) - instant(0)


def when(seconds: int) -> Any:
    return instant(START_MS + seconds * SECOND)


def now_of(folder: Path, rows: dict[str, list[Row]], seconds: int) -> ViewReader:
    return reader_of(write_tables(folder, rows), when(seconds))


def only(reader: ViewReader, view: str) -> Row:
    (row,) = reader.rows(view)
    return row


@pytest.mark.parametrize(
    ("samples", "back", "moved_to"),
    [
        # The job sampled 55 and was killed. The group read five new messages: 5 back is the end at that time.
        ([*every_ten(0, 100, 0, 55), *every_ten(170, 200, 0, 60)], (110, 55), None),
        ([*every_ten(0, 100, 0, 55)], (110, 55), None),
        # A running job; somebody wrote to the log between two samples.
        ([*every_ten(0, 100, 0, 55), *every_ten(110, 200, 0, 60)], (108, 55), None),
        ([*every_ten(0, 100, 0, 90), *every_ten(110, 200, 0, 120)], (108, 110), NEAR),
        ([*every_ten(0, 100, 0, 90), *every_ten(110, 200, 0, 120)], (108, 89), None),
        # An hour without a sample, in which a hundred messages came.
        ([*every_ten(0, 100, 0, 90), *every_ten(3700, 3800, 0, 190)], (1000, 110), None),
        # Both samples agree: the end did not move between them.
        ([*every_ten(0, 100, 0, 90), *every_ten(3700, 3800, 0, 90)], (1000, 90), END),
        ([*every_ten(0, 100, 0, 90), *every_ten(110, 200, 0, 120)], (95, 90), END),
        ([*every_ten(0, 100, 7, 90), *every_ten(3700, 3800, 7, 190)], (1000, 7), START),
        ([*every_ten(0, 100, 7, 90), *every_ten(3700, 3800, 50, 190)], (1000, 7), None),
        ([*every_ten(0, 100, 7, 90)], (110, 7), None),  # no later sample yet
    ],
)
def test_the_target_of_a_reset_is_known_if_the_samples_around_it_agree(
    tmp_path: Path, samples: list[Look], back: tuple[int, int], moved_to: str | None
) -> None:
    rows = tables_of(samples, [(20, 40), (90, 60), back])
    found = now_of(tmp_path, rows, 4000).rows("commit_audit")
    assert {row["record_offset"]: row["moved_to"] for row in found}[3] == moved_to


def test_a_finding_shows_no_outdated_end_offsets(tmp_path: Path) -> None:
    samples = [*every_ten(0, 100, 7, 90), *every_ten(3700, 3800, 7, 190)]
    reader = now_of(tmp_path, tables_of(samples, [(20, 40), (90, 60), (130, 50), (1000, 30)]), 4000)
    found = {
        row["record_offset"]: (row["log_start_offset"], row["high_watermark"]) for row in reader.rows("commit_audit")
    }
    assert (found[3], found[4]) == ((7, 90), (None, None))


DEAD = [
    (0, 0, 40),
    *every_ten(10, 100, 0, 50),
    *every_ten(HOUR, HOUR + 100, 0, 250),
]  # the job took no sample for an hour less 100 s
RARE = [(at, 0, 50 + at // 300) for at in range(0, 2 * HOUR, 300)]  # a job that samples every five minutes


@pytest.mark.parametrize(
    ("samples", "at", "end"),
    seeds(
        [(DEAD, 215, 50), (DEAD, 250, None), (DEAD, HOUR, 250), (RARE, 2000, 56), (RARE, 2 * HOUR + 600, None)],
        [(DEAD, 100, 50), (DEAD, HOUR - 2, None), (DEAD, HOUR + 215, 250), (DEAD, HOUR + 250, None), (RARE, 7199, 73)],
    ),
)
def test_the_end_is_unknown_long_after_a_sample(tmp_path: Path, samples: list[Look], at: int, end: int | None) -> None:
    store = new_tables(tmp_path, tables_of(samples, [(20, 40), (90, 45)]))
    row = only(InstantReader(store, when(at + 1)), "lag")
    assert row["log_end_offset"] == end
    assert (row["lag"], row["messages_lost"]) == ((None, None) if end is None else (end - 45, 0))
    assert row["retention_used"] == (None if end is None else (end - 45) / end)
    last = max(look[0] for look in samples if look[0] <= at)
    assert row["reason"] == (None if end else f"no end: not sampled after {when(last):%Y-%m-%dT%H:%M:%SZ}")
    waits = only(InstantReader(store, when(at + 1)), "time_lag")
    assert (waits["method"] == "no sample", waits["time_lag_seconds"] is None) == (end is None, end is None)
    status = only(InstantReader(store, when(at + 1)), "group_status_partitions")
    assert (status["verdict"] == "unknown") == (end is None)
    assert InstantReader(store, when(at + 1)).rows("orphan_offsets") == []


def test_message_loss_is_unknown_long_after_a_sample(tmp_path: Path) -> None:
    store = new_tables(tmp_path, tables_of([*every_ten(0, 100, 48, 50)], [(20, 40), (90, 45)]))
    found = {at: InstantReader(store, when(at)) for at in (110, HOUR)}
    lost = {at: only(reader, "lag") for at, reader in found.items()}
    assert [(row["messages_lost"], row["is_truncated"]) for row in lost.values()] == [(3, True), (None, False)]
    assert [len(reader.rows("orphan_offsets")) for reader in found.values()] == [1, 0]


def test_minutes_without_a_sample_have_no_lag(tmp_path: Path) -> None:
    """The group keeps committing. New messages were not sampled, so there is no lag of zero and no verdict."""
    commits = [(at, 40 + at // 20) for at in range(20, HOUR, 60)]
    reader = now_of(tmp_path, tables_of(DEAD, commits), HOUR + 120)
    minutes = {int((row["minute"] - when(0)).total_seconds()) // 60 for row in reader.rows("lag_history")}
    assert minutes == {*range(3), 60, 61}
    changes = {row["changed_at"]: row["verdict"] for row in reader.rows("status_changes")}
    assert [at for at in changes if at >= when(3 * 60)] == [when(4 * 60), when(HOUR + 60)]
    assert changes[when(4 * 60)] == "unknown"


def test_an_hour_old_sample_gives_no_earlier_lag(tmp_path: Path) -> None:
    """The window starts in the outage, when the end was somewhere between 50 and 250."""
    commits = [(at, 40 + at // 100) for at in range(20, HOUR + 100, 60)]
    row = only(now_of(tmp_path, tables_of(DEAD, commits), HOUR + 105), "group_status_partitions")
    assert row["lag_before"] is None
    assert (row["verdict"], row["verdict_reason"]) == ("ok", "its lag 300 s ago is unknown")


def test_only_messages_surely_written_by_then_are_late(tmp_path: Path) -> None:
    """Nobody knows when in the hour the messages from 50 to 250 were written."""
    for name, offset, verdict in (("before", 49, "late"), ("in it", 60, "ok")):
        commits = [(HOUR - 60 + number * 10, offset - 15 + number) for number in range(16)]
        rows = tables_of(DEAD, commits)
        rows["thresholds"] = [{"group_id": None, "max_time_lag_seconds": 600}]
        (folder := tmp_path / name).mkdir()
        assert only(now_of(folder, rows, HOUR + 105), "group_status_partitions")["verdict"] == verdict


def test_the_time_of_a_message_is_not_guessed_across_an_outage(tmp_path: Path) -> None:
    """It is only known that the messages from 50 to 250 were there at the first sample after the outage."""
    for name, offset, method, seconds in (("in it", 150, "at least", 100.0), ("before", 50, "at least", 100.0)):
        (folder := tmp_path / name).mkdir()
        row = only(now_of(folder, tables_of(DEAD, [(20, offset)]), HOUR + 100), "time_lag")
        assert (row["method"], row["time_lag_seconds"]) == (method, seconds)


def test_an_unreachable_partition_is_not_caught_up(tmp_path: Path) -> None:
    rows = tables_of(every_ten(0, 100, 0, 50), [(20, 50)])
    rows["topic_partitions"][0]["error"] = "LEADER_NOT_AVAILABLE"
    row = only(now_of(tmp_path, rows, 105), "time_lag")
    assert (row["method"], row["time_lag_seconds"], row["log_end_offset"]) == ("no sample", None, None)


OLD, NEW = "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAB"


def of_two_topics(commit_id: str, commit_at: int, *, seen_anew: int | None, partition: int = 0) -> dict[str, list[Row]]:
    """Tables of a topic that was deleted and created again after 60 s, and of an offset.

    `seen_anew` is when the job saw the new topic.
    """
    rows = tables_of(every_ten(0, seen_anew or 60, 0, 50), [(commit_at, 45)])
    for each in (*rows["end_offsets"], *rows["topic_partitions"]):
        each["topic_id"] = OLD
    topic = {"topic": "orders", "topic_id": OLD, "partitions": 1, "first_seen_at": when(0), "last_seen_at": when(60)}
    rows["topics"] = [topic | {"deleted_at": when(seen_anew) if seen_anew else None}]
    if seen_anew:
        rows["topics"].append(topic | {"topic_id": NEW, "first_seen_at": when(seen_anew), "last_seen_at": when(900)})
        new = {"topic_id": NEW, "high_watermark": 5, "last_stable_offset": 5, "changed_at": when(seen_anew)}
        rows["topic_partitions"] = [rows["topic_partitions"][0] | new | {"sampled_at": when(900)}]
        row = {name: value for name, value in rows["topic_partitions"][0].items() if name != "changed_at"}
        rows["end_offsets"].append(row | {"sampled_at": when(seen_anew)})
    for name in ("offset_commits", "committed_offsets"):
        rows[name][0] |= {"topic_id": commit_id, "partition": partition}
    return rows


def test_an_offset_of_an_unseen_topic_is_not_called_recreated(
    tmp_path: Path,
) -> None:
    reader = now_of(tmp_path, of_two_topics(NEW, 65, seen_anew=None), 70)
    assert reader.rows("orphan_offsets") == []
    row, waits = only(reader, "lag"), only(reader, "time_lag")
    assert (row["is_recreated"], row["lag"]) == (False, None)
    assert row["reason"] == "no end: the topic was recreated after the last sample"
    assert (waits["method"], waits["time_lag_seconds"]) == ("no sample", None)


def test_an_offset_of_the_deleted_topic_is_called_recreated(tmp_path: Path) -> None:
    reader = now_of(tmp_path, of_two_topics(OLD, 50, seen_anew=100), 905)
    assert only(reader, "orphan_offsets")["reason"] == "the topic was recreated"
    assert only(reader, "lag")["is_recreated"]
    assert only(reader, "time_lag")["method"] == "topic recreated"


def test_before_the_recreation_the_topic_is_not_called_recreated(tmp_path: Path) -> None:
    """Even though the name has another topic id by now."""
    then = InstantReader(new_tables(tmp_path, of_two_topics(OLD, 50, seen_anew=100)), when(70))
    assert then.rows("orphan_offsets") == []
    assert (only(then, "lag")["is_recreated"], only(then, "lag")["lag"]) == (False, 5)


def test_partitions_added_since_the_last_sample_are_shown(tmp_path: Path) -> None:
    rows = of_two_topics(OLD, 65, seen_anew=None, partition=1)
    assert now_of(tmp_path, rows, 70).rows("orphan_offsets") == []
    rows["topics"][0]["last_seen_at"] = when(600)
    (tmp_path / "later").mkdir()
    assert only(now_of(tmp_path / "later", rows, 605), "orphan_offsets")["reason"] == "the topic has fewer partitions"


@pytest.mark.parametrize(
    ("samples", "at", "committed"),
    [
        # (seconds, last stable offset, end) of the offsets partition; its offsets 1 to 4 are commits, 100 s apart.
        ([(0, 5, 5), (25, 2, 3), (35, 5, 5)], 30, 41),  # blocked at this sample, and the next one is near
        ([(0, 5, 5), (25, 2, 3), (1000, 5, 5)], 240, 43),  # as it was when the job was killed
        ([(0, 5, 5), (25, 2, 3), (1000, 2, 5)], 240, 41),  # the same transaction at both samples
        ([(0, 5, 5), (25, 2, 3)], 240, 41),  # an unchanged value gets a row every ten minutes only
        ([(0, 5, 5), (25, 2, 3)], 1000, 44),
    ],
)
def test_an_old_sample_of_an_open_transaction_hides_no_later_commit(
    tmp_path: Path, samples: list[Look], at: int, committed: int
) -> None:
    rows = tables_of(every_ten(0, 100, 0, 90), [(20 + 100 * number, 41 + number) for number in range(4)])
    before = None
    for seconds, stable, end in samples:
        row = {"topic": "__consumer_offsets", "partition": 0, "sampled_at": when(seconds), "high_watermark": end}
        row |= {"last_stable_offset": stable, "previous_sampled_at": None if before is None else when(before)}
        rows["end_offsets"].append(row)
        before = seconds
    found = reader_of(write_tables(tmp_path, rows), when(2000)).rows("offsets_at", at=when(at))
    assert [row["committed_offset"] for row in found] == [committed]
