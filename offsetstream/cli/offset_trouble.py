"""`offsetstream offsets expiring` and `orphans`: offsets that brokers will delete, and offsets that are useless."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from offsetstream.cli.age import AGE, Age
from offsetstream.cli.answers import (
    Answer,
    Row,
    at_option,
    fetch_sorted,
    group_options,
    open_reader,
    show,
    topic_options,
    view_rows,
    watch_option,
)
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.messages import counted
from offsetstream.cli.missing import missing_of, no_history_messages, unknown_text
from offsetstream.cli.options import config_option, max_age_option, output_of, output_options, tables_option
from offsetstream.cli.rows import Column
from offsetstream.cli.times import Duration, duration_text, instant_text, time_text

_OFFSET = (
    Column("group", "GROUP", 15),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 9),
    Column("current_offset", "CURRENT-OFFSET", 14),
)
_EXPIRING = (
    *_OFFSET,
    Column("state", "STATE", 6),
    Column("expires_at", "EXPIRES-AT", 24),
    Column("expires_in", "EXPIRES-IN", 10),
    Column("why", "COUNTED"),
    Column("expires_in_ms"),
    Column("kept_because"),
    Column("commit_time"),
    Column("type"),
    *AGE,
)
_SELECTED = """
group_id, group_id AS "group", topic, partition, committed_offset AS current_offset, group_state AS state,
group_type AS type, expires_at_ms, expires_in_ms, kept_because, coalesce(counted_from, kept_because) AS why,
epoch_ms(commit_timestamp) AS committed_ms, epoch_ms(as_of) AS as_of_ms, is_stale AS stale, offsets_partition"""
_ORPHANS = (
    *_OFFSET,
    Column("last_commit", "LAST-COMMIT", 24),
    Column("messages_lost", "MESSAGES-LOST", 13),
    Column("why", "WHY"),
    Column("topic_deleted_at"),
    Column("topic_id"),
    Column("present_topic_id"),
    *AGE,
)


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets expiring --within 24h
  offsetstream offsets expiring --group my-group --kept
  offsetstream offsets expiring --at 03:00 --output csv

Exit code 1: a group or topic does not exist.""",
)
@config_option("offsets.expiring")
@group_options
@topic_options
@click.option(
    "--within",
    type=Duration(),
    metavar="TIME",
    help="Show only offsets that expire within 30m, 12h, 7d (default: all).",
)
@click.option("--kept", is_flag=True, help="Also show offsets that do not expire now, and why.")
@at_option
@max_age_option
@watch_option
@tables_option
@output_options
def expiring(
    *,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    within: timedelta | None,
    kept: bool,
    at: datetime | None,
    max_age: float | None,
    watch: float | None,
    tables: str,
    **options: Any,
) -> None:
    """Show which committed offsets the brokers will delete, and when: the next first."""
    output = output_of(options)
    limit = None if within is None else within / timedelta(milliseconds=1)

    def ask() -> Answer:
        reader = open_reader(tables, at, group, max_age=max_age)
        age = Age.of(reader)
        view = view_rows(reader, "expiring_offsets", {"group_id": group, "topic": topic}).select(_SELECTED)
        all_rows = [
            _with_times(row) for row in fetch_sorted(view, "expires_at_ms NULLS LAST, group_id, topic, partition")
        ]
        soon = [row for row in all_rows if row["kept_because"] is None and _is_within(row, limit)]
        rows = soon + [row for row in all_rows if kept and row["kept_because"] is not None]
        missing = missing_of(reader, all_rows, group, topic, at) + no_history_messages(reader, all_rows, group, at)
        closing = _expiring_closing(all_rows, soon, within, age.as_of_text(reader.store, group)) + unknown_text(reader)
        return Answer(_EXPIRING, rows, closing, missing=missing, warnings=age.lines_of(rows))

    show(output, watch, ask)


def _is_within(row: Row, limit: float | None) -> bool:
    return limit is None or (row["expires_in_ms"] is not None and row["expires_in_ms"] <= limit)


def _with_times(row: Row) -> Row:
    """Add times as text, in place: there may be 100,000 rows."""
    due = row["expires_in_ms"]
    row["expires_at"] = time_text(row["expires_at_ms"])
    row["expires_in"] = "due" if due is not None and due <= 0 else duration_text(due)
    row["commit_time"] = time_text(row["committed_ms"])
    row["as_of"] = time_text(row["as_of_ms"])
    return row


def _expiring_closing(all_rows: list[Row], soon: list[Row], within: timedelta | None, as_of: str) -> str:
    dated = [row for row in soon if row["expires_at_ms"] is not None]
    kept = sum(row["kept_because"] is not None for row in all_rows)
    within_text = "" if within is None else f" within {duration_text(within / timedelta(milliseconds=1))}"
    first = f", the first at {dated[0]['expires_at']}" if dated else ""
    unknown = (
        f"; unknown for {len(soon) - len(dated)}: the job may not see the retention" if len(soon) > len(dated) else ""
    )
    groups = counted(len({row["group"] for row in dated}), "group")
    expire, do_not = "expires" if len(dated) == 1 else "expire", "does not" if kept == 1 else "do not"
    return (
        f"{counted(len(dated), 'offset')} of {groups} {expire}{within_text}{first}{unknown}; "
        f"{counted(kept, 'other')} {do_not} expire (--kept shows why); {as_of}."
    )


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets orphans
  offsetstream offsets orphans --topic orders --output json
  offsetstream offsets orphans --at 2026-11-21T03:00

Exit code 1: a group or topic does not exist.""",
)
@config_option("offsets.orphans")
@group_options
@topic_options
@at_option
@max_age_option
@watch_option
@tables_option
@output_options
def orphans(
    *,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    at: datetime | None,
    max_age: float | None,
    watch: float | None,
    tables: str,
    **options: Any,
) -> None:
    """Show committed offsets that no consumer can use, and why: for example, the topic is gone."""
    output = output_of(options)

    def ask() -> Answer:
        reader = open_reader(tables, at, group, max_age=max_age)
        age = Age.of(reader)
        view = view_rows(reader, "orphan_offsets", {"group_id": group, "topic": topic})
        rows = [_orphan_row(row) for row in fetch_sorted(view, "group_id, topic, partition")]
        missing = missing_of(reader, rows, group, topic, at) + no_history_messages(reader, rows, group, at)
        groups = counted(len({row["group"] for row in rows}), "group")
        closing = f"{counted(len(rows), 'useless offset')} in {groups}, {age.as_of_text(reader.store, group)}."
        closing += unknown_text(reader)
        return Answer(_ORPHANS, rows, closing, missing=missing, warnings=age.lines_of(rows))

    show(output, watch, ask)


def _orphan_row(row: Row) -> Row:
    return row | {
        "group": row["group_id"],
        "current_offset": row["committed_offset"],
        "last_commit": instant_text(row["commit_timestamp"]),
        "why": row["reason"],
        "topic_deleted_at": instant_text(row["deleted_at"]),
        "as_of": instant_text(row["as_of"]),
        "stale": row["is_stale"],
    }
