"""`offsetstream groups rebalances` and `history`: what happened to groups, in the order of the log."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from offsetstream.cli.answers import Answer, Asked, Row, Rows, fetch_sorted, in_period
from offsetstream.cli.output import Column
from offsetstream.cli.text import counted, length_text

if TYPE_CHECKING:
    from offsetstream.views.reader import ViewReader


def _add_rebalance(_: Asked, row: Row) -> None:
    row["joined_clients"] = row["joined_clients"] or None
    row["left_clients"] = row["left_clients"] or None
    row["partitions"] = f"+{row['partitions_assigned']} -{row['partitions_revoked']}"
    row["took_ms"] = row["settle_ms"] if row["sync_ms"] is None else row["sync_ms"]


def _closing(asked: Asked, rows: Rows) -> str:
    period = asked.period
    if not rows:
        return f"No rebalance{period}."
    first, last = min(row["started_at"] for row in rows), max(row["started_at"] for row in rows)
    lost = sum(row["epochs_without_record"] or 0 for row in rows)
    more = f" ({lost} more started and did not finish)" if lost else ""
    lasted = f" in {length_text(last - first)}" if len(rows) > 1 else ""
    summary = f"{counted(len(rows), 'rebalance')}{lasted}{more}"
    groups = {row["group_id"] for row in rows}
    if len(groups) > 1:
        return f"{summary} of {len(groups)} groups{period}."
    pauses = _pauses(asked.reader, rows)
    if not pauses:
        return f"{summary}{period}."
    total = sum((end - start for start, end in pauses), timedelta())
    longest = max(end - start for start, end in pauses)
    paused = f"the group paused its commits for {length_text(total)} in total, {length_text(longest)} at most"
    return f"{summary}{period}; {paused}."


def _pauses(reader: ViewReader, rows: Rows) -> list[tuple[datetime, datetime]]:
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


def _commits_before(reader: ViewReader, rows: Rows) -> dict[tuple[int, int], datetime]:
    """Return the time of the last commit before each rebalance of one group, by (log_id, record_offset)."""
    commits = reader.connection.execute(
        """SELECT log_id, record_offset, max(record_timestamp) OVER (PARTITION BY log_id ORDER BY record_offset) AS last
           FROM offset_commits WHERE group_id = ? AND offsets_partition = ? AND NOT is_tombstone ORDER BY ALL""",
        [rows[0]["group_id"], rows[0]["offsets_partition"]],
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


rebalances = Answer(
    name="groups.rebalances",
    text="""Show the rebalances of groups: who joined and left, what moved, and how long no member committed.

    SYNC-TIME is how long SyncGroup took (classic groups), or the time until all members had their target assignment.

    Examples:
      offsetstream groups rebalances --group my-group
      offsetstream groups rebalances --since 03:00 --until 04:00
      offsetstream groups rebalances --group my-group --since 24h --output csv

    Exit code 1: a group does not exist.""",
    view="rebalances",
    times="started_at",
    order="group_id, log_id, record_offset",
    filters=("group",),
    columns=(
        Column("group", "GROUP", 15, of="group_id"),
        Column("generation", "GENERATION", 10, "id", of="epoch"),
        Column("at", "AT", 24, "time", of="started_at"),
        Column("state", "STATE", 6),
        Column("members", "#MEMBERS", 8, "number", of="member_count"),
        Column("joined_clients", "JOINED", 6),
        Column("left_clients", "LEFT", 6),
        Column("partitions", "PARTITIONS", 10),
        Column("sync", "SYNC-TIME", 9, "duration", of="took_ms"),
        Column("commit_pause", "COMMIT-PAUSE", 0, "duration", of="commit_pause_ms"),
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
        Column("type", of="group_type"),
        Column("protocol"),
        Column("leader_member_id"),
    ),
    complete=_add_rebalance,
    closing=_closing,
).command()


_EVENTS = """
WITH clients AS (
  SELECT group_id, member_id, any_value(client_id) AS client_id, any_value(client_host) AS client_host,
         any_value(group_instance_id) AS group_instance_id
  FROM member_history GROUP BY group_id, member_id
), topics_moved AS (
  SELECT offsets_partition, log_id, group_id, record_timestamp, max(record_offset) AS record_offset, member_id, change,
         epoch, concat(coalesce(topic, topic_id, subtopology_id), ':',
                       string_agg(partition::VARCHAR, ',' ORDER BY partition)) AS partitions
  FROM assignment_history WHERE kind IN ('assigned', 'active')
  GROUP BY offsets_partition, log_id, group_id, record_timestamp, member_id, change, epoch,
           coalesce(topic, topic_id, subtopology_id)
), moved AS (
  SELECT offsets_partition, log_id, group_id, record_timestamp, max(record_offset) AS record_offset, member_id,
         change, epoch, string_agg(partitions, ';' ORDER BY partitions) AS partitions
  FROM topics_moved GROUP BY offsets_partition, log_id, group_id, record_timestamp, member_id, change, epoch
)
SELECT offsets_partition, log_id, group_id, record_timestamp, record_offset, 0 AS nth,
       CASE WHEN is_removed THEN 'removed' ELSE 'group' END AS what, state, coalesce(generation, group_epoch) AS epoch,
       member_count, group_type, NULL AS member_id, NULL AS client_id, NULL AS client_host, NULL AS group_instance_id,
       NULL AS partitions
FROM group_history
UNION ALL
SELECT offsets_partition, log_id, group_id, record_timestamp, record_offset, 1, change, NULL, epoch, NULL, NULL,
       member_id, client_id, client_host, group_instance_id, NULL
FROM member_history
UNION ALL
SELECT m.offsets_partition, m.log_id, m.group_id, m.record_timestamp, m.record_offset,
       CASE WHEN m.change = 'revoked' THEN 2 ELSE 3 END, m.change, NULL, m.epoch, NULL, NULL, m.member_id,
       c.client_id, c.client_host, c.group_instance_id, m.partitions
FROM moved AS m LEFT JOIN clients AS c ON c.group_id = m.group_id AND c.member_id = m.member_id"""


def _events(asked: Asked) -> Rows:
    for table in ("group_history", "member_history", "assignment_history"):
        asked.reader.define_table(table)
    events = asked.reader.connection.sql(_EVENTS)
    if period := in_period("record_timestamp", asked.since, asked.until):
        events = events.filter(period)
    return fetch_sorted(events, "group_id, log_id, record_timestamp, record_offset, nth, member_id, partitions")


def _events_closing(asked: Asked, rows: Rows) -> str:
    groups = counted(len({row["group_id"] for row in rows}), "group")
    return f"{counted(len(rows), 'change')} of {groups}{asked.period}."


group_history = Answer(
    name="groups.history",
    text="""Show what happened to groups: state changes, members that joined and left, and partitions that moved.

    Examples:
      offsetstream groups history --group my-group
      offsetstream groups history --group my-group --since 2h
      offsetstream groups history --since 03:00 --until 04:00 --output json

    Exit code 1: a group does not exist.""",
    rows=_events,
    times="record_timestamp",
    filters=("group",),
    columns=(
        Column("group", "GROUP", 15, of="group_id"),
        Column("at", "AT", 24, "time", of="record_timestamp"),
        Column("what", "WHAT", 8),
        Column("state", "STATE", 6),
        Column("epoch", "EPOCH", 5, "id"),
        Column("members", "#MEMBERS", 8, "number", of="member_count"),
        Column("consumer_id", of="member_id"),
        Column("client_id", "CLIENT-ID", 10),
        Column("group_instance_id"),
        Column("host", "HOST", 10, of="client_host"),
        Column("partitions", "PARTITIONS"),
        Column("type", of="group_type"),
        Column("offsets_partition"),
        Column("log_id"),
        Column("record_offset"),
    ),
    closing=_events_closing,
).command()
