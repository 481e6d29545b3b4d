"""`offsetstream offsets history` and `audit`: all commits and deletions, and the unusual ones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import groupby
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
    table_of,
    topic_options,
    view_rows,
    watch_option,
)
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.messages import counted
from offsetstream.cli.missing import missing_of
from offsetstream.cli.options import config_option, max_age_option, output_of, output_options, tables_option
from offsetstream.cli.rows import Column
from offsetstream.cli.times import instant_text, time_text

if TYPE_CHECKING:
    from offsetstream.views.reader import ViewReader

_HISTORY = (
    Column("group", "GROUP", 15),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 9),
    Column("committed_offset", "COMMITTED-OFFSET", 16),
    Column("at", "AT", 24),
    Column("moved", "MOVED", 8),
    Column("what", "WHAT", 9),
    Column("leader_epoch"),
    Column("metadata", "METADATA"),
    Column("commit_time"),
    Column("expire_time"),
    Column("topic_id"),
    Column("offsets_partition"),
    Column("log_id"),
    Column("record_offset"),
)
_RECREATED = "the topic was recreated"  # the finding of the view
_AUDIT = (
    Column("group", "GROUP", 15),
    Column("topic", "TOPIC", 15),
    Column("partition"),
    Column("partitions", "PARTITIONS", 10),
    Column("from", "FROM", 8),
    Column("to", "TO", 8),
    Column("moved", "MOVED", 8),
    Column("at", "AT", 24),
    Column("state", "STATE", 6),
    Column("client_id", "CLIENT-ID", 10),
    Column("host"),
    Column("members"),
    Column("epoch"),
    Column("what", "WHAT"),
    Column("log_start_offset"),
    Column("log_end_offset"),
    Column("metadata"),
    Column("offsets_partition"),
    Column("log_id"),
    Column("record_offset"),
)
_MOVES = """
SELECT *, committed_offset - lag(committed_offset) OVER (PARTITION BY offsets_partition, group_id, topic, partition
         ORDER BY log_id, record_offset) AS moved
FROM "wanted commits" """


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets history --group my-group --topic orders --since 1h
  offsetstream offsets history --group my-group --partition 7 --since 03:00 --until 04:00
  offsetstream offsets history --group my-group --output csv --file history.csv

Exit code 1: a group or topic does not exist.""",
)
@config_option("offsets.history")
@group_options
@topic_options
@click.option(
    "--partition",
    multiple=True,
    type=click.IntRange(0, 2**31 - 1),
    help="Select this partition (repeatable; default: all).",
)
@period_options
@max_age_option
@watch_option
@tables_option
@output_options
def history(
    *,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    partition: tuple[int, ...],
    since: datetime | None,
    until: datetime | None,
    max_age: float | None,
    watch: float | None,
    tables: str,
    **options: Any,
) -> None:
    """Show each commit of groups: how far it moved the offset, its metadata, and why offsets were deleted."""
    output = output_of(options)
    since = period_start(group, since, until)

    def ask() -> Answer:
        reader = open_reader(tables, groups=group, since=since, max_age=max_age)
        where = {"group_id": group, "topic": topic, "partition": partition}
        rows = _history_rows(reader, where, in_period("record_timestamp", since, until))
        age = Age.of(reader)
        warnings = age.until(until).warnings_for_groups(reader.store, group, since)
        period = period_text(age, reader.store, group, since, until)
        missing = missing_of(reader, rows, group, topic)
        deleted = sum(row["is_tombstone"] for row in rows)
        closing = f"{counted(len(rows) - deleted, 'commit')} and {counted(deleted, 'deletion')}{period}."
        return Answer(_HISTORY, rows, closing, missing=missing, warnings=warnings)

    show(output, watch, ask)


def _history_rows(reader: ViewReader, where: dict[str, Any], period: str) -> list[Row]:
    reader.define("wanted commits", table_of(reader, "offset_commits", where).sql_query())
    moves = reader.connection.sql(_MOVES)
    moves = moves.filter(period) if period else moves
    rows = fetch_sorted(moves, "group_id, topic, partition, log_id, record_offset")
    reasons: dict[tuple[int, int, int], str] = {}
    if any(row["is_tombstone"] for row in rows):
        view = view_rows(reader, "tombstone_reasons", {"group_id": where["group_id"]}, period)
        fetched = view.select("log_id, offsets_partition, record_offset, reason").fetchall()
        reasons = {row[:3]: row[3] for row in fetched}
    return [_history_row(row, reasons) for row in rows]


def _history_row(row: Row, reasons: dict[tuple[int, int, int], str]) -> Row:
    reason = reasons.get((row["log_id"], row["offsets_partition"], row["record_offset"]))
    return row | {
        "group": row["group_id"],
        "at": instant_text(row["record_timestamp"]),
        "what": f"deleted: {reason or 'reason unknown'}" if row["is_tombstone"] else "committed",
        "commit_time": time_text(row["commit_timestamp_ms"]),
        "expire_time": time_text(row["expire_timestamp_ms"]),
    }


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets audit --since 24h
  offsetstream offsets audit --group my-group --topic orders
  offsetstream offsets audit --since 03:00 --output csv

Text has one row for all partitions that moved at once, and one for all commits after a topic was recreated. JSON and
CSV have one row per partition.

Exit code 1: a group or topic does not exist.""",
)
@config_option("offsets.audit")
@group_options
@topic_options
@period_options
@max_age_option
@watch_option
@tables_option
@output_options
def audit(
    *,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    max_age: float | None,
    watch: float | None,
    tables: str,
    **options: Any,
) -> None:
    """Show who moved offsets: commits that went back, skipped messages, or came from outside the group."""
    output = output_of(options)
    since = period_start(group, since, until)

    def ask() -> Answer:
        reader = open_reader(tables, groups=group, since=since, max_age=max_age)
        where = {"group_id": group, "topic": topic}
        view = view_rows(reader, "commit_audit", where, in_period("record_timestamp", since, until))
        rows = [_audit_row(row) for row in fetch_sorted(view, "record_timestamp, group_id, topic, partition")]
        age = Age.of(reader)
        warnings = age.until(until).warnings_for_groups(reader.store, group, since)
        period = period_text(age, reader.store, group, since, until)
        missing = missing_of(reader, rows, group, topic)
        groups = counted(len({row["group"] for row in rows}), "group")
        closing = f"{counted(len(rows), 'unusual offset move')} in {groups}{period}."
        shown = _merge_recreated(_merge_partitions(rows)) if output.is_text else rows
        return Answer(_AUDIT, shown, closing, missing=missing, warnings=warnings)

    show(output, watch, ask)


def _audit_row(row: Row) -> Row:
    moved_to = f", to {row['moved_to']}" if row["moved_to"] else ""
    return row | {
        "at": instant_text(row["record_timestamp"]),
        "group": row["group_id"],
        "partitions": row["partition"],
        "from": row["previous_offset"],
        "to": row["committed_offset"],
        "state": row["group_state"],
        "members": row["member_count"],
        "epoch": row["group_epoch"],
        "client_id": row["owner_client_id"],
        "host": row["owner_host"],
        "what": f"{row['finding']}{moved_to}",
        "log_end_offset": row["high_watermark"],
    }


def _merge_partitions(rows: Iterable[Row]) -> list[Row]:
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


def _merge_recreated(rows: Iterable[Row]) -> list[Row]:
    """Return one row for all commits after a topic was recreated: they would hide what people did."""
    by_topic: dict[str, list[Row]] = {}
    for row in rows:
        by_topic.setdefault(row["topic"] if row["finding"] == _RECREATED else "", []).append(row)
    others = by_topic.pop("", [])
    return sorted([*others, *map(_recreation, by_topic.values())], key=lambda row: row["at"])


def _recreation(rows: list[Row]) -> Row:
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
