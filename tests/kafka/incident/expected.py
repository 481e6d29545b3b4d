"""The rows that each view must have, from the script's book and Admin's answers, computed before any view is run.

Rows are compared by their key, in the columns that the script or Admin know. `{"between": [low, high]}` stands for a
value that is only known within bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

from offsetstream.coordinator.partitioning import partition_for
from tests.kafka.incident.answers import Answers, Ends
from tests.kafka.incident.book import Book, Cell, Commit
from tests.kafka.incident.judging import outcomes

Row = dict[str, Any]
_CELL = ("group_id", "topic", "partition")
_SHARE = "share group: its offsets are in __share_group_state"
_KEPT = "kept: a member subscribes to the topic"
_RETENTION_MS = 60_000


def expected(book: Book, answers: Answers, now_ms: int, looked_ms: int) -> dict[str, list[Row]]:
    """Return the rows that views must have, by view name; `looked_ms` is the time of the job's last sample."""
    makers: dict[str, Callable[[Book, Answers, int], Iterable[Row]]] = {
        "lag": _lag,
        "lag_history": _lag_history,
        "time_lag": _time_lag,
        "commit_audit": _commit_audit,
        "commit_freshness": partial(_commit_freshness, looked_ms=looked_ms),
        "commit_rate": _commit_rate,
        "tombstone_reasons": _tombstone_reasons,
        "orphan_offsets": _orphan_offsets,
        "expiring_offsets": _expiring_offsets,
        "idle_groups": _idle_groups,
        "group_status": _group_status,
        "status_changes": _status_changes,
        "rebalances": _rebalances,
        "assignment_intervals": _assignment_intervals,
        "hot_offsets_partitions": _hot_offsets_partitions,
        "coordinator_moves": _coordinator_moves,
        "offsets_at": _offsets_at,
    }
    return {view: list(make(book, answers, now_ms)) for view, make in makers.items()}


def _cell_columns(cell: Cell) -> Row:
    return dict(zip(_CELL, cell, strict=True))


def _between(low: float, high: float) -> Row:
    return {"between": [low, high]}


def _lag(book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    owners, clients = answers.owners(), answers.clients()
    for cell in sorted(answers.offsets.keys() | owners.keys()):
        group = answers.groups[cell.group]
        is_share, offset = group["group_type"] == "Share", answers.offsets.get(cell)
        member = owners.get(cell)
        row = {
            "committed_offset": offset,
            "log_end_offset": answers.ends[cell.topic, cell.partition][2],
            "is_recreated": False,
            "client_id": clients.get((cell.group, member or "")),
            "member_id": member,
            "group_state": group["state"],
        }
        if offset is None:
            reason = _SHARE if is_share else f"no offset: {_reason_without_offset(book, cell)}"
            row |= {"lag": None, "reason": reason}
        else:
            row |= _distances(answers.ends[cell.topic, cell.partition], offset) | {"reason": None}
        yield _cell_columns(cell) | row


def _lag_history(book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    """Yield the last minute of each cell in which it had a commit or a new sample."""
    for cell, offset in book.current_offsets().items():
        ends = answers.ends[cell.topic, cell.partition]
        yield _cell_columns(cell) | {
            "committed_offset": offset,
            "log_end_offset": ends[2],
            "lag": _distances(ends, offset)["lag"],
        }


def _reason_without_offset(book: Book, cell: Cell) -> str:
    return next((each.reason for each in reversed(book.deletions) if each.cell == cell), "never committed")


def _distances(ends: Ends, offset: int) -> Row:
    start, stable, end = ends
    return {
        "lag": max(0, end - max(start, offset)),
        "lag_read_committed": max(0, stable - max(start, offset)),
        "messages_lost": max(0, start - offset),
        "is_truncated": offset < start,
    }


def _time_lag(_book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    for cell, offset in answers.offsets.items():
        end = answers.ends[cell.topic, cell.partition][2]
        at_least = 0.0 if offset >= end else 1.0
        caught_up = {"method": "caught up"} if offset >= end else {}
        most = 0.0 if offset >= end else 3600.0
        yield _cell_columns(cell) | caught_up | {"log_end_offset": end, "time_lag_seconds": _between(at_least, most)}


def _commit_audit(book: Book, _answers: Answers, _now_ms: int) -> Iterable[Row]:
    for found in book.findings:
        row = {"previous_offset": found.previous, "committed_offset": found.committed, "finding": found.finding}
        moved = {"moved_to": found.moved_to} if "had no members" in found.finding else {}
        yield _cell_columns(found.cell) | row | {"moved": found.committed - found.previous} | moved


def _commit_freshness(book: Book, answers: Answers, now_ms: int, looked_ms: int) -> Iterable[Row]:
    for cell, offset in answers.offsets.items():
        group = answers.groups[cell.group]
        row = {"committed_offset": offset, "group_state": group["state"], "member_count": group["member_count"]}
        own = [commit for commit in book.commits if commit.cell == cell and commit.offset is not None]
        lost = [commit for commit in book.lost if commit.cell == cell]
        if own:
            age = _between(looked_ms - own[-1].until_ms, now_ms - own[-1].since_ms)
            row |= {"commits": len(own) + len(lost), "age_ms": age, "is_in_future": False}
        yield _cell_columns(cell) | row


def _commit_rate(book: Book, _answers: Answers, _now_ms: int) -> Iterable[Row]:
    """Yield the sums over all minutes."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for commit, previous in _commits_and_previous(book):
        if commit.offset is None:
            continue
        moved = 0 if previous is None else commit.offset - previous
        count = counts.setdefault((commit.cell.group, commit.cell.topic), Counter())
        count["commits"] += 1
        count["messages"] += max(moved, 0)
        count["commits_back"] += moved < 0
        count["commits_without_progress"] += previous is not None and moved == 0
    for (group, topic), count in counts.items():
        names = ("commits", "messages", "commits_back", "commits_without_progress")
        yield {"group_id": group, "topic": topic, **{name: count[name] for name in names}}


def _commits_and_previous(book: Book) -> Iterable[tuple[Commit, int | None]]:
    """Yield each commit with its previous offset. Lost commits count too, but later commits do not follow them."""
    before: dict[Cell, int | None] = {}
    for commit in book.commits:
        yield commit, before.get(commit.cell)
        before[commit.cell] = commit.offset
    for commit in book.lost:
        earlier = [c.offset for c in book.commits if c.cell == commit.cell and c.until_ms <= commit.since_ms]
        yield commit, earlier[-1] if earlier else None


def _tombstone_reasons(book: Book, _answers: Answers, _now_ms: int) -> Iterable[Row]:
    for each in book.deletions:
        yield _cell_columns(each.cell) | {"last_offset": each.last_offset, "reason": each.reason}


def _orphan_offsets(book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    for cell, reason in book.orphans.items():
        start, offset = answers.ends[cell.topic, cell.partition][0], answers.offsets[cell]
        yield _cell_columns(cell) | {"committed_offset": offset, "reason": reason, "messages_lost": start - offset}


def _expiring_offsets(book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    for cell, offset in answers.offsets.items():
        group = answers.groups[cell.group]
        row: Row = {"committed_offset": offset, "group_state": group["state"], "group_type": group["group_type"]}
        if group["member_count"]:
            row |= {"kept_because": _KEPT, "expires_at_ms": None, "counted_from": None}
        else:
            [*_, last] = [commit for commit in book.commits if commit.cell == cell]
            at = _between(last.since_ms + _RETENTION_MS, last.until_ms + _RETENTION_MS)
            row |= {"kept_because": None, "expires_at_ms": at, "counted_from": "since the commit"}
        yield _cell_columns(cell) | row


def _idle_groups(_book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    for group_id, group in answers.groups.items():
        own = answers.offsets_of(group_id)
        has = "has members" if group["member_count"] else "no members"
        yield {
            "group_id": group_id,
            "group_type": group["group_type"],
            "group_state": group["state"],
            "member_count": group["member_count"],
            "offsets": len(own),
            "topics": len({cell.topic for cell in own}),
            "reason": _SHARE if group["group_type"] == "Share" else has if own else "never committed",
            "offsets_partition": partition_for(group_id, 50),
        }


def _group_status(book: Book, answers: Answers, now_ms: int) -> Iterable[Row]:
    possible = outcomes(book, answers, now_ms)
    for group_id, group in answers.groups.items():
        own = answers.offsets_of(group_id)
        lags = [_distances(answers.ends[cell.topic, cell.partition], offset)["lag"] for cell, offset in own.items()]
        row = {
            "group_id": group_id,
            "group_type": group["group_type"],
            "group_state": group["state"],
            "member_count": group["member_count"],
            "partitions": len(own),
            "total_lag": sum(lags) if own else None,
            "max_lag": max(lags) if own else None,
        }
        for name, values in zip(
            ("status", "worst_status", "verdict"), zip(*possible[group_id], strict=True), strict=True
        ):
            row[name] = values[0] if len(set(values)) == 1 else {"among": sorted({*values})}
        yield row


def _status_changes(book: Book, _answers: Answers, _now_ms: int) -> Iterable[Row]:
    """Yield one row for each group whose status never changed."""
    for group_id in book.steady:
        *_, verdict = book.statuses[group_id]
        yield {"group_id": group_id, "verdict": verdict, "previous_verdict": None}


def _rebalances(book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    """Yield the members that joined and left over all epochs of a group, and its last epoch if Admin reports it."""
    for group_id in sorted({each.group for each in book.passings}):
        own = [each for each in book.passings if each.group == group_id]
        by_change = {
            change: sorted(each.client for each in own if each.change == change) for change in ("joined", "left")
        }
        row: Row = {"group_id": group_id, "joined": by_change["joined"], "left": by_change["left"]}
        if group_id in answers.groups:
            group = answers.groups[group_id]
            row |= {"member_count": group["member_count"], "state": group["state"]}
            row |= {} if group["group_epoch"] is None else {"epoch": group["group_epoch"]}
        yield row


def _assignment_intervals(_book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    """Yield the current assignments."""
    clients = answers.clients()
    for row in answers.assignments:
        if row["kind"] != "target":
            client = clients[row["group_id"], row["member_id"]]
            names = ("group_id", "member_id", "kind", "subtopology_id", "topic", "partition")
            yield {name: row[name] for name in names} | {"client_id": client}


def _hot_offsets_partitions(_book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    for number, (coordinator, _epoch) in answers.coordinators.items():
        own = {*answers.records.get(number, []), *answers.lost_log.get(number, [])}
        size = sum(len(record.value or b"") for record in own)
        row = {"coordinator_id": coordinator, "records": len(own), "value_bytes": size, "blocked_offsets": 0}
        yield {"offsets_partition": number, **row}


def _coordinator_moves(book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    """Yield each change between two queries of the cluster."""
    for before, after in pairwise([*book.coordinators, answers.coordinators]):
        for number, (coordinator, epoch) in after.items():
            if before[number] != (coordinator, epoch):
                yield {
                    "offsets_partition": number,
                    "previous_coordinator_id": before[number][0],
                    "coordinator_id": coordinator,
                    "previous_coordinator_epoch": before[number][1],
                    "coordinator_epoch": epoch,
                }


def _offsets_at(_book: Book, answers: Answers, _now_ms: int) -> Iterable[Row]:
    """Yield the offsets at the end of the incident."""
    for cell, offset in answers.offsets.items():
        yield _cell_columns(cell) | {"committed_offset": offset, "unknown_reason": None}
