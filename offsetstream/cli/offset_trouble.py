"""`offsetstream offsets expiring` and `orphans`: offsets that brokers will delete, and offsets that are useless."""

from __future__ import annotations

from datetime import timedelta

import click

from offsetstream.cli.age import AGE
from offsetstream.cli.answers import Answer, Asked, Row, Rows
from offsetstream.cli.messages import counted
from offsetstream.cli.output import Column
from offsetstream.cli.times import Duration, duration_text, time_text

_OFFSET = (
    Column("group", "GROUP", 15, of="group_id"),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 9, "id"),
    Column("current_offset", "CURRENT-OFFSET", 14, "id", of="committed_offset"),
)


def _expiring_soon(asked: Asked, rows: Rows) -> Rows:
    """Return the offsets that expire within --within, then with --kept those that do not expire."""
    within = asked.options["within"]
    limit = None if within is None else within / timedelta(milliseconds=1)
    soon = [row for row in rows if row["kept_because"] is None and (limit is None or _is_within(row, limit))]
    return soon + [row for row in rows if asked.options["kept"] and row["kept_because"] is not None]


def _is_within(row: Row, limit: float) -> bool:
    return row["expires_in_ms"] is not None and row["expires_in_ms"] <= limit


def _add_due(_: Asked, row: Row) -> None:
    due = row["expires_in_ms"]
    row["expires_in"] = "due" if due is not None and due <= 0 else duration_text(due)


def _expiring_closing(asked: Asked, rows: Rows) -> str:
    soon, within = [row for row in _expiring_soon(asked, rows) if row["kept_because"] is None], asked.options["within"]
    dated = [row for row in soon if row["expires_at_ms"] is not None]
    kept = sum(row["kept_because"] is not None for row in rows)
    within_text = "" if within is None else f" within {duration_text(within / timedelta(milliseconds=1))}"
    first = f", the first at {time_text(dated[0]['expires_at_ms'])}" if dated else ""
    unknown = (
        f"; unknown for {len(soon) - len(dated)}: the job may not see the retention" if len(soon) > len(dated) else ""
    )
    groups = counted(len({row["group_id"] for row in dated}), "group")
    expire, do_not = "expires" if len(dated) == 1 else "expire", "does not" if kept == 1 else "do not"
    return (
        f"{counted(len(dated), 'offset')} of {groups} {expire}{within_text}{first}{unknown}; "
        f"{counted(kept, 'other')} {do_not} expire (--kept shows why); {asked.as_of}."
    )


expiring = Answer(
    name="offsets.expiring",
    text="""Show which committed offsets the brokers will delete, and when: the next first.

    Examples:
      offsetstream offsets expiring --within 24h
      offsetstream offsets expiring --group my-group --kept
      offsetstream offsets expiring --at 03:00 --output csv

    Exit code 1: a group or topic does not exist.""",
    view="expiring_offsets",
    select="""*, epoch_ms(commit_timestamp) AS committed_ms, coalesce(counted_from, kept_because) AS why""",
    order="expires_at_ms NULLS LAST, group_id, topic, partition",
    columns=(
        *_OFFSET,
        Column("state", "STATE", 6, of="group_state"),
        Column("expires_at", "EXPIRES-AT", 24, "time", of="expires_at_ms"),
        Column("expires_in", "EXPIRES-IN", 10, "duration", sort="expires_in_ms"),
        Column("why", "COUNTED"),
        Column("expires_in_ms"),
        Column("kept_because"),
        Column("commit_time", unit="time", of="committed_ms"),
        Column("type", of="group_type"),
        *AGE,
    ),
    options=(
        click.option(
            "--within",
            type=Duration(),
            metavar="TIME",
            help="Show only offsets that expire within 30m, 12h, 7d (default: all).",
        ),
        click.option("--kept", is_flag=True, help="Also show offsets that do not expire now, and why."),
    ),
    shown=_expiring_soon,
    complete=_add_due,
    closing=_expiring_closing,
).command()


def _orphans_closing(asked: Asked, rows: Rows) -> str:
    groups = counted(len({row["group_id"] for row in rows}), "group")
    return f"{counted(len(rows), 'useless offset')} in {groups}, {asked.as_of}."


orphans = Answer(
    name="offsets.orphans",
    text="""Show committed offsets that no consumer can use, and why: for example, the topic is gone.

    Examples:
      offsetstream offsets orphans
      offsetstream offsets orphans --topic orders --output json
      offsetstream offsets orphans --at 2026-11-21T03:00

    Exit code 1: a group or topic does not exist.""",
    view="orphan_offsets",
    order="group_id, topic, partition",
    columns=(
        *_OFFSET,
        Column("last_commit", "LAST-COMMIT", 24, "time", of="commit_timestamp"),
        Column("messages_lost", "MESSAGES-LOST", 13, "number"),
        Column("why", "WHY", of="reason"),
        Column("topic_deleted_at", unit="time", of="deleted_at"),
        Column("topic_id"),
        Column("present_topic_id"),
        *AGE,
    ),
    closing=_orphans_closing,
).command()
