"""`offsetstream lag`: how many messages wait for groups, and for how long, by the sampled end offsets."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import AGE, Age
from offsetstream.cli.answers import (
    Answer,
    Row,
    at_option,
    ends_text,
    fetch_sorted,
    open_reader,
    show,
    topic_options,
    view_rows,
    watch_option,
)
from offsetstream.cli.exact_lag import exact_answer
from offsetstream.cli.live_options import isolation_option, reading_timeout_option
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.messages import counted
from offsetstream.cli.missing import missing_of, no_history_messages, unknown_text
from offsetstream.cli.options import (
    cluster_options,
    config_option,
    max_age_option,
    output_of,
    output_options,
    tables_option,
    typed_flags,
)
from offsetstream.cli.rows import Column
from offsetstream.cli.times import duration_text, milliseconds, time_text, waiting_time_text

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
    Column("messages_lost"),
    Column("retention_used"),
    Column("sampled_at"),
    *AGE,
)
_SELECTED = """
group_id, group_id AS "group", offsets_partition, topic, partition, committed_offset AS current_offset,
log_end_offset, lag, messages_lost,
client_id, epoch_ms(commit_timestamp) AS committed_ms, epoch_ms(sampled_at) AS sampled_ms,
CASE WHEN reason IS NOT NULL THEN reason
     WHEN is_recreated THEN 'the topic was recreated'
     WHEN is_beyond_end THEN concat('beyond the end of the log, by ', committed_offset - log_end_offset)
     WHEN is_truncated THEN concat(messages_lost, ' message', if(messages_lost = 1, '', 's'), ' gone unread')
END AS note"""
# Only JSON and CSV have these columns: converting them to Python takes as long as the query.
_NOT_IN_TEXT = """
, member_id AS consumer_id, client_host AS host, lag_read_committed, retention_used, epoch_ms(as_of) AS as_of_ms,
is_stale AS stale"""
_TIMES = "group_id, topic, partition, time_lag_seconds, method AS time_lag_method"
_SELECTED_TIME = ", time_lag_seconds, coalesce(time_lag_method, 'no sample') AS time_lag_method"
_OF_EXACT = ("bootstrap_server", "command_config", "isolation_level", "timeout")
_NOTE, _SILENT_NOTE = Column("note", "NOTE"), Column("note")


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream lag --group my-group --time
  offsetstream lag --all-groups --topic orders --output csv
  offsetstream lag --group my-group --at 03:00
  offsetstream lag --group my-group --watch 10
  offsetstream lag --group my-group --exact --bootstrap-server localhost:9092

LAG counts messages that a consumer can still read: no deleted ones and, where the job could check, no transaction
markers. --exact reads the live cluster and no table: it fetches the record at each committed offset, and TIME-LAG is
the age of that record. An offset outside the log is an error that shows the range of the log.

Exit codes: 1 a group or topic does not exist, or an offset is outside the log; 3 a partition does not answer.""",
)
@config_option("lag")
@click.option("--group", multiple=True, metavar="GROUP", help="Show this group (repeatable; or --all-groups).")
@click.option("--all-groups", is_flag=True, help="Show all groups.")
@topic_options
@click.option("--time", "with_time", is_flag=True, help="Add TIME-LAG: how long the next message has waited.")
@click.option(
    "--exact",
    is_flag=True,
    help="Read the record at each committed offset from the live cluster for an exact TIME-LAG.",
)
@isolation_option
@reading_timeout_option
@at_option
@max_age_option
@watch_option
@cluster_options
@tables_option
@output_options
def lag(
    *,
    group: tuple[str, ...],
    all_groups: bool,
    topic: tuple[str, ...],
    with_time: bool,
    exact: bool,
    isolation_level: str,
    timeout: float,
    at: datetime | None,
    max_age: float | None,
    watch: float | None,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    **options: Any,
) -> None:
    """Show how many messages wait for groups, by the end offsets that the job sampled.

    The command reads the tables only. TIME-LAG is the age of the next message to read; ">" means at least that old.
    """
    if bool(group) == all_groups:
        raise click.UsageError("give --group or --all-groups")
    output = output_of(options)
    if exact:
        if bootstrap_server is None or not group or at is not None:
            raise click.UsageError("--exact reads the live cluster now: give --bootstrap-server and --group, no --at")
        limits: dict[str, Any] = {"isolation_level": isolation_level, "timeout": timeout}
        show(output, watch, lambda: exact_answer(group, topic, str(bootstrap_server), command_config, **limits))
        return
    if unread := typed_flags(_OF_EXACT):
        raise click.UsageError(f"lag reads the tables: give {', '.join(unread)} with --exact only")

    def ask() -> Answer:
        reader = open_reader(tables, at, group, max_age=max_age)
        age = Age.of(reader)
        now = age.now
        rows = _rows(reader, group, topic, now, with_time=with_time, is_text=output.is_text)
        note = _NOTE if any(row["note"] for row in rows) else _SILENT_NOTE
        missing = missing_of(reader, rows, group, topic, at) + no_history_messages(reader, rows, group, at)
        columns = (*_KAFKAS, *(_TIME if with_time else ()), *_OURS, note)
        closing = (
            _closing(rows, age.as_of_text(reader.store, group), now)
            + _without_any(rows, group, missing)
            + unknown_text(reader)
        )
        warnings = age.lines_of(rows)
        return Answer(columns, rows, closing, missing=missing, warnings=warnings)

    show(output, watch, ask)


def _rows(
    reader: ViewReader, group: tuple[str, ...], topic: tuple[str, ...], now: datetime, *, with_time: bool, is_text: bool
) -> list[Row]:
    where = {"group_id": group, "topic": topic}
    found, columns = view_rows(reader, "lag", where), _SELECTED + ("" if is_text else _NOT_IN_TEXT)
    if with_time:
        times = view_rows(reader, "time_lag", where).select(_TIMES)
        found = found.join(times, "group_id, topic, partition", "left")
        columns += _SELECTED_TIME
    rows = fetch_sorted(found.select(columns), '"group", topic, partition')
    now_ms = milliseconds(now)
    for row in rows:
        _complete(row, now_ms, is_text=is_text)
    return rows


def _complete(row: Row, now_ms: int, *, is_text: bool) -> None:
    """Add times as text to a row; skip columns that text does not show, since there may be 100,000 rows."""
    committed = row["committed_ms"]
    row["last_commit"] = None if committed is None else duration_text(now_ms - committed)
    if not is_text:
        row["commit_time"] = time_text(committed)
        row["sampled_at"] = time_text(row["sampled_ms"])
        row["as_of"] = time_text(row["as_of_ms"])
    if "time_lag_seconds" in row:
        row["time_lag"] = waiting_time_text(row["time_lag_seconds"], at_least=row["time_lag_method"] == "at least")


def _closing(rows: list[Row], as_of: str, now: datetime) -> str:
    behind = [row for row in rows if row["lag"]]
    waiting = sum(row["lag"] for row in behind)
    sample_times = {row["sampled_ms"] for row in rows if row["log_end_offset"] is not None}
    sampled = [datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms in sample_times]
    groups, lost = len({row["group"] for row in rows}), sum(row["messages_lost"] or 0 for row in rows)
    ends = f", {ends_text(sampled, now)}" if rows else ""
    unknown, of_groups = sum(row["lag"] is None for row in rows), f"of {counted(groups, 'group')}"
    if rows and unknown == len(rows):
        waits = f"The lag of {counted(unknown, 'partition')} {of_groups} is unknown"
    else:
        verb, partitions = "waits" if waiting == 1 else "wait", counted(len(rows), "partition")
        if waiting:
            waits = f"{counted(waiting, 'message')} {verb} in {len(behind)} of {partitions} {of_groups}"
        else:
            known = f"{len(rows) - unknown} of " if unknown else ""
            waits = f"No message waits in {known}{partitions} {of_groups}"
        waits += f"; the lag of {unknown} is unknown" if unknown else ""
    deleted = f"; {lost} more {'was' if lost == 1 else 'were'} deleted from the log unread" if lost else ""
    return f"{waits}{deleted}; {as_of}{ends}."


def _without_any(rows: list[Row], groups: Collection[str], missing: Collection[str]) -> str:
    """Return which existing groups have nothing that could lag: without this, no row would look like no lag."""
    found = {row["group"] for row in rows}
    silent = [
        name
        for name in groups
        if name not in found and not any(message.startswith(f"group '{name}' ") for message in missing)
    ]
    names = ", ".join(f"'{name}'" for name in dict.fromkeys(silent))
    return (
        f" No committed offset and no partition: group{'s' if len(set(silent)) > 1 else ''} {names}." if silent else ""
    )
