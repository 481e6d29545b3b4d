"""`offsetstream offsets history` and `audit`: all commits and deletions, and the unusual ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from offsetstream.cli.answers import Answer, Asked, Row, Rows, fetch_sorted, in_period
from offsetstream.cli.output import Column
from offsetstream.cli.text import counted

_MOVES = """
SELECT *, committed_offset - lag(committed_offset) OVER (PARTITION BY offsets_partition, group_id, topic, partition
         ORDER BY log_id, record_offset) AS moved
FROM "wanted commits" """


def _commits(asked: Asked) -> Rows:
    period = in_period("record_timestamp", asked.since, asked.until)
    asked.reader.define("wanted commits", asked.view("offset_commits").sql_query())
    moves = asked.reader.connection.sql(_MOVES)
    rows = fetch_sorted(moves.filter(period) if period else moves, "group_id, topic, partition, log_id, record_offset")
    reasons: dict[tuple[int, int, int], str] = {}
    if any(row["is_tombstone"] for row in rows):
        fetched = (
            asked.view("tombstone_reasons", period)
            .select("log_id, offsets_partition, record_offset, reason")
            .fetchall()
        )
        reasons = {row[:3]: row[3] for row in fetched}
    for row in rows:
        reason = reasons.get((row["log_id"], row["offsets_partition"], row["record_offset"]))
        row["what"] = f"deleted: {reason or 'reason unknown'}" if row["is_tombstone"] else "committed"
    return rows


def _history_closing(asked: Asked, rows: Rows) -> str:
    deleted = sum(row["is_tombstone"] for row in rows)
    return f"{counted(len(rows) - deleted, 'commit')} and {counted(deleted, 'deletion')}{asked.period}."


history = Answer(
    name="offsets.history",
    text="""Show each commit of groups: how far it moved the offset, its metadata, and why offsets were deleted.

    Examples:
      offsetstream offsets history --group my-group --topic orders --since 1h
      offsetstream offsets history --group my-group --partition 7 --since 03:00 --until 04:00
      offsetstream offsets history --group my-group --output csv --file history.csv

    Exit code 1: a group or topic does not exist.""",
    rows=_commits,
    times="record_timestamp",
    filters=("group", "topic", "partition"),
    columns=(
        Column("group", "GROUP", 15, of="group_id"),
        Column("topic", "TOPIC", 15),
        Column("partition", "PARTITION", 9, "id"),
        Column("committed_offset", "COMMITTED-OFFSET", 16, "id"),
        Column("at", "AT", 24, "time", of="record_timestamp"),
        Column("moved", "MOVED", 8, "number"),
        Column("what", "WHAT", 9),
        Column("leader_epoch"),
        Column("metadata", "METADATA"),
        Column("commit_time", unit="time", of="commit_timestamp_ms"),
        Column("expire_time", unit="time", of="expire_timestamp_ms"),
        Column("topic_id"),
        Column("offsets_partition"),
        Column("log_id"),
        Column("record_offset"),
    ),
    closing=_history_closing,
).command()


_RECREATED = "the topic was recreated"  # the finding of the view


def _add_move(_: Asked, row: Row) -> None:
    row["partitions"] = row["partition"]
    row["from"], row["to"] = row["previous_offset"], row["committed_offset"]
    row["what"] = row["finding"] + (f", to {row['moved_to']}" if row["moved_to"] else "")


def _merged(rows: Rows) -> Rows:
    """Return one row for all partitions that moved at once, and one for all commits after a topic was recreated."""
    return _merge_recreated(_merge_partitions(rows))


def _audit_closing(asked: Asked, rows: Rows) -> str:
    groups = counted(len({row["group_id"] for row in rows}), "group")
    return f"{counted(len(rows), 'unusual offset move')} in {groups}{asked.period}."


def _merge_partitions(rows: Iterable[Row]) -> Rows:
    """Return one row for all partitions of a topic that a client moved at once."""
    same = ("record_timestamp", "group", "topic", "what", "client_id")
    ordered = sorted(rows, key=lambda row: (*(str(row[name]) for name in same), row["partition"]))
    merged = []
    for _, alike in groupby(ordered, key=lambda row: tuple(row[name] for name in same)):
        same_rows = list(alike)
        moved = [row["moved"] for row in same_rows if row["moved"] is not None]
        summed = {
            "moved": sum(moved) if moved else None,
            "partitions": ",".join(str(row["partition"]) for row in same_rows),
        }
        merged.append(same_rows[0] | summed | {name: _span(row[name] for row in same_rows) for name in ("from", "to")})
    return merged


def _merge_recreated(rows: Iterable[Row]) -> Rows:
    """Return one row for all commits after a topic was recreated: they would hide what people did."""
    by_topic: dict[str, Rows] = {}
    for row in rows:
        by_topic.setdefault(row["topic"] if row["finding"] == _RECREATED else "", []).append(row)
    others = by_topic.pop("", [])
    return sorted([*others, *map(_recreation, by_topic.values())], key=lambda row: row["at"])


def _recreation(rows: Rows) -> Row:
    groups = {row["group"] for row in rows}
    if len(rows) == 1:
        return rows[0]
    what = f"{_RECREATED}: {counted(len(rows), 'commit')} of {counted(len(groups), 'group')} started again"
    cells = {"group": min(groups) if len(groups) == 1 else f"({len(groups)} groups)", "topic": rows[0]["topic"]}
    return dict.fromkeys(rows[0]) | cells | {"at": rows[0]["at"], "finding": _RECREATED, "what": what}


def _span(values: Iterable[int | None]) -> str | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return str(known[0]) if known[0] == known[-1] else f"{known[0]}…{known[-1]}"


audit = Answer(
    name="offsets.audit",
    text="""Show who moved offsets: commits that went back, skipped messages, or came from outside the group.

    Examples:
      offsetstream offsets audit --since 24h
      offsetstream offsets audit --group my-group --topic orders
      offsetstream offsets audit --since 03:00 --output csv

    Text has one row for all partitions that moved at once, and one for all commits after a topic was recreated.
    JSON and CSV have one row per partition.

    Exit code 1: a group or topic does not exist.""",
    view="commit_audit",
    times="record_timestamp",
    order="record_timestamp, group_id, topic, partition",
    columns=(
        Column("group", "GROUP", 15, of="group_id"),
        Column("topic", "TOPIC", 15),
        Column("partition"),
        Column("partitions", "PARTITIONS", 10),
        Column("from", "FROM", 8, "id"),
        Column("to", "TO", 8, "id"),
        Column("moved", "MOVED", 8, "number"),
        Column("at", "AT", 24, "time", of="record_timestamp"),
        Column("state", "STATE", 6, of="group_state"),
        Column("client_id", "CLIENT-ID", 10, of="owner_client_id"),
        Column("host", of="owner_host"),
        Column("members", of="member_count"),
        Column("epoch", of="group_epoch"),
        Column("what", "WHAT"),
        Column("log_start_offset"),
        Column("log_end_offset", of="high_watermark"),
        Column("metadata"),
        Column("offsets_partition"),
        Column("log_id"),
        Column("record_offset"),
    ),
    complete=_add_move,
    for_text=_merged,
    closing=_audit_closing,
).command()
