"""`offsetstream groups rebalances`: each generation or epoch of a group, who joined and left, and how long it took."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import Age
from offsetstream.cli.answers import (
    Answer,
    Row,
    fetch_sorted,
    group_options,
    in_period,
    open_reader,
    period_options,
    period_start,
    period_text,
    show,
    view_rows,
    watch_option,
)
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.messages import counted
from offsetstream.cli.missing import missing_of
from offsetstream.cli.options import config_option, max_age_option, output_of, output_options, tables_option
from offsetstream.cli.rows import Column
from offsetstream.cli.times import duration_text, instant_text

if TYPE_CHECKING:
    from offsetstream.views.reader import ViewReader

_COLUMNS = (
    Column("group", "GROUP", 15),
    Column("generation", "GENERATION", 10),
    Column("at", "AT", 24),
    Column("state", "STATE", 6),
    Column("members", "#MEMBERS", 8),
    Column("joined_clients", "JOINED", 6),
    Column("left_clients", "LEFT", 6),
    Column("partitions", "PARTITIONS", 10),
    Column("sync", "SYNC-TIME", 9),
    Column("commit_pause", "COMMIT-PAUSE"),
    Column("partitions_assigned"),
    Column("partitions_revoked"),
    Column("members_joined"),
    Column("members_left"),
    Column("static_returns"),
    Column("sync_ms"),
    Column("settle_ms"),
    Column("commit_pause_ms"),
    Column("is_superseded"),
    Column("epochs_without_record"),
    Column("type"),
    Column("protocol"),
    Column("leader_member_id"),
)


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream groups rebalances --group my-group
  offsetstream groups rebalances --since 03:00 --until 04:00
  offsetstream groups rebalances --group my-group --since 24h --output csv

Exit code 1: a group does not exist.""",
)
@config_option("groups.rebalances")
@group_options
@period_options
@max_age_option
@watch_option
@tables_option
@output_options
def rebalances(
    *,
    group: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    max_age: float | None,
    watch: float | None,
    tables: str,
    **options: Any,
) -> None:
    """Show the rebalances of groups: who joined and left, what moved, and how long no member committed.

    SYNC-TIME is how long SyncGroup took (classic groups), or the time until all members had their target assignment.
    """
    output = output_of(options)
    since = period_start(group, since, until)

    def ask() -> Answer:
        reader = open_reader(tables, groups=group, since=since, max_age=max_age)
        view = view_rows(reader, "rebalances", {"group_id": group}, in_period("started_at", since, until))
        rows = [_row(row) for row in fetch_sorted(view, "group_id, log_id, record_offset")]
        age = Age.of(reader)
        warnings = age.until(until).warnings_for_groups(reader.store, group, since)
        period = period_text(age, reader.store, group, since, until)
        missing = missing_of(reader, rows, group)
        closing = _closing(reader, rows, period)
        return Answer(_COLUMNS, rows, closing, missing=missing, warnings=warnings)

    show(output, watch, ask)


def _row(row: Row) -> Row:
    took = row["settle_ms"] if row["sync_ms"] is None else row["sync_ms"]
    return row | {
        "group": row["group_id"],
        "type": row["group_type"],
        "generation": row["epoch"],
        "at": instant_text(row["started_at"]),
        "members": row["member_count"],
        "joined_clients": row["joined_clients"] or None,
        "left_clients": row["left_clients"] or None,
        "partitions": f"+{row['partitions_assigned']} -{row['partitions_revoked']}",
        "sync": duration_text(took),
        "commit_pause": duration_text(row["commit_pause_ms"]),
    }


def _closing(reader: ViewReader, rows: list[Row], period: str) -> str:
    if not rows:
        return f"No rebalance{period}."
    first, last = min(row["started_at"] for row in rows), max(row["started_at"] for row in rows)
    lost = sum(row["epochs_without_record"] or 0 for row in rows)
    more = f" ({lost} more started and did not finish)" if lost else ""
    lasted = f" in {_text(last - first)}" if len(rows) > 1 else ""
    summary = f"{counted(len(rows), 'rebalance')}{lasted}{more}"
    groups = {row["group"] for row in rows}
    if len(groups) > 1:
        return f"{summary} of {len(groups)} groups{period}."
    pauses = _pauses(reader, rows)
    if not pauses:
        return f"{summary}{period}."
    total = sum((end - start for start, end in pauses), timedelta())
    longest = max(end - start for start, end in pauses)
    paused = f"the group paused its commits for {_text(total)} in total, {_text(longest)} at most"
    return f"{summary}{period}; {paused}."


def _text(length: timedelta) -> str | None:
    return duration_text(length / timedelta(milliseconds=1))


def _pauses(reader: ViewReader, rows: list[Row]) -> list[tuple[datetime, datetime]]:
    """Return the pauses between commits, merged where they overlap."""
    last_commits = _commits_before(reader, rows)
    paused = [(row, last_commits.get((row["log_id"], row["record_offset"]))) for row in rows if row["commit_pause_ms"]]
    spans = sorted((at, at + timedelta(milliseconds=row["commit_pause_ms"])) for row, at in paused if at)
    return merged(spans)


def merged(spans: list[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Return sorted time spans, merged where they overlap."""
    disjoint: list[tuple[datetime, datetime]] = []
    for start, end in spans:
        if disjoint and start < disjoint[-1][1]:
            disjoint[-1] = disjoint[-1][0], max(disjoint[-1][1], end)
        else:
            disjoint.append((start, end))
    return disjoint


def _commits_before(reader: ViewReader, rows: list[Row]) -> dict[tuple[int, int], datetime]:
    """Return the time of the last commit before each rebalance of one group, by (log_id, record_offset)."""
    commits = reader.connection.execute(
        """SELECT log_id, record_offset, max(record_timestamp) OVER (PARTITION BY log_id ORDER BY record_offset) AS last
           FROM offset_commits WHERE group_id = ? AND offsets_partition = ? AND NOT is_tombstone ORDER BY ALL""",
        [rows[0]["group"], rows[0]["offsets_partition"]],
    ).fetchall()
    marks = sorted(
        [(*commit[:2], commit[2]) for commit in commits] + [(r["log_id"], r["record_offset"], None) for r in rows]
    )
    last_commits: dict[tuple[int, int], datetime] = {}
    last: datetime | None = None
    for earlier, later in pairwise([(-1, -1, None), *marks]):
        last = None if earlier[0] != later[0] else earlier[2] or last
        if later[2] is None and last is not None:
            last_commits[later[0], later[1]] = last
    return last_commits
