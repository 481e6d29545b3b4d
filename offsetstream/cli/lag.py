"""`offsetstream lag`: how many messages wait for groups, and for how long, by the sampled ends of the logs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.answers import (
    Answer,
    Row,
    age_text,
    at_option,
    counted,
    ends_text,
    reader_of,
    rows_of,
    show,
    topic_options,
    view_of,
    watch_option,
)
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.missing import missing_of, nothing_known, unknown_text
from offsetstream.cli.options import config_option, output_of, output_options, tables_option
from offsetstream.cli.output import Column
from offsetstream.cli.times import instant_text, waited_text

if TYPE_CHECKING:
    from offsetstream.views.reader import ViewReader

_KAFKAS = (
    Column("group", "GROUP", 15),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 9),
    Column("current_offset", "CURRENT-OFFSET", 14),
    Column("log_end_offset", "LOG-END-OFFSET", 14),
    Column("lag", "LAG", 8),
    Column("consumer_id"),
    Column("host"),
    Column("client_id", "CLIENT-ID", 10),
)
_TIME = (Column("time_lag", "TIME-LAG", 8), Column("time_lag_seconds"), Column("time_lag_method"))
_OURS = (
    Column("last_commit", "LAST-COMMIT", 11),
    Column("commit_time"),
    Column("lag_read_committed"),
    Column("lag_readable"),
    Column("messages_lost"),
    Column("retention_used"),
    Column("sampled_at"),
)
_NOTE, _SILENT_NOTE = Column("note", "NOTE"), Column("note")


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream lag --group my-group --time
  offsetstream lag --all-groups --topic orders --output csv
  offsetstream lag --group my-group --at 03:00
  offsetstream lag --group my-group --watch 10

Exit code 1 where a group or topic is not there.""",
)
@config_option("lag")
@click.option("--group", multiple=True, metavar="GROUP", help="A group; repeatable.")
@click.option("--all-groups", is_flag=True, help="All groups.")
@topic_options
@click.option("--time", "with_time", is_flag=True, help="Also for how long the next message has waited (TIME-LAG).")
@at_option
@watch_option
@tables_option
@output_options
def lag(
    *,
    group: tuple[str, ...],
    all_groups: bool,
    topic: tuple[str, ...],
    with_time: bool,
    at: datetime | None,
    watch: float | None,
    tables: str,
    **options: Any,
) -> None:
    """Show how many messages wait for groups, by the ends of logs that the job sampled: no cluster is asked.

    TIME-LAG is the age of the next message to read; after > it is older than the samples tell.
    """
    if bool(group) == all_groups:
        raise click.UsageError("give --group, or --all-groups")
    output = output_of(options)

    def ask() -> Answer:
        reader = reader_of(tables, at, group)
        now = at or datetime.now(UTC)
        rows = _rows(reader, group, topic, now, with_time=with_time)
        note = _NOTE if any(row["note"] for row in rows) else _SILENT_NOTE
        missing = missing_of(reader, rows, group, topic, at) + nothing_known(reader, rows, group, at)
        columns = (*_KAFKAS, *(_TIME if with_time else ()), *_OURS, note)
        return Answer(columns, rows, _closing(rows, at, now) + unknown_text(reader), missing=missing)

    show(output, watch, ask)


def _rows(
    reader: ViewReader, group: tuple[str, ...], topic: tuple[str, ...], now: datetime, *, with_time: bool
) -> list[Row]:
    where = {"group_id": group, "topic": topic}
    rows = rows_of(view_of(reader, "lag", where).order("group_id, topic, partition"))
    times: dict[tuple[str, str, int], tuple[float | None, str]] = {}
    if with_time:
        found = view_of(reader, "time_lag", where).select("group_id, topic, partition, time_lag_seconds, method")
        times = {row[:3]: row[3:] for row in found.fetchall()}
    return [
        _row(row, times.get((row["group_id"], row["topic"], row["partition"]), (None, "no sample")), now)
        for row in rows
    ]


def _row(row: Row, waited: tuple[float | None, str], now: datetime) -> Row:
    seconds, method = waited
    return row | {
        "group": row["group_id"],
        "current_offset": row["committed_offset"],
        "consumer_id": row["member_id"],
        "host": row["client_host"],
        "time_lag": waited_text(seconds, at_least=method == "at least"),
        "time_lag_seconds": seconds,
        "time_lag_method": method,
        "last_commit": age_text(row["commit_timestamp"], now),
        "commit_time": instant_text(row["commit_timestamp"]),
        "sampled_at": instant_text(row["sampled_at"]),
        "sampled": row["sampled_at"],
        "note": _note(row),
    }


def _note(row: Row) -> str | None:
    if row["reason"]:
        return str(row["reason"])
    if row["is_recreated"]:
        return "the topic was recreated, or the offset is beyond its end"
    return f"{counted(row['messages_lost'], 'message')} gone unread" if row["is_truncated"] else None


def _closing(rows: list[Row], at: datetime | None, now: datetime) -> str:
    behind = [row for row in rows if row["lag"]]
    waiting = sum(row["lag"] for row in behind)
    sampled = [row["sampled"] for row in rows if row["lag"] is not None]
    groups = len({row["group"] for row in rows})
    as_of = f"as it was at {instant_text(at)}, " if at else ""
    return (
        f"{counted(waiting, 'message')} wait in {len(behind)} of {counted(len(rows), 'partition')} "
        f"of {counted(groups, 'group')}; {as_of}{ends_text(sampled, now)}."
    )
