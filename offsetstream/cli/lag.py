"""`offsetstream lag`: how many messages wait for groups, and for how long.

By the end offsets that the job sampled, or with --exact by the records in the live cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import AGE
from offsetstream.cli.answers import Answer, Asked, Found, Row, Rows, ends_text, fetch_sorted, is_late
from offsetstream.cli.options import (
    UNREACHABLE,
    client_properties,
    cluster_options,
    is_unreachable,
    isolation_option,
    no_record_reason,
    reading_timeout_option,
    typed_flags,
)
from offsetstream.cli.output import Column
from offsetstream.cli.text import counted, duration_text, milliseconds, time_text, waiting_time_text
from offsetstream.cluster.answers import no_offset
from offsetstream.views.verdicts import NOT_WELL

if TYPE_CHECKING:
    from offsetstream.cluster.reading import ExactLag

_GROUP, _TOPIC = Column("group", "GROUP", 15, of="group_id"), Column("topic", "TOPIC", 15)
_LAG = Column("lag", "LAG", 8, "number")
_TIME_LAG = Column("time_lag", "TIME-LAG", 8, "duration", sort="time_lag_seconds")
_LAST_COMMIT = Column("last_commit", "LAST-COMMIT", 11, "duration", sort="since_commit_ms")
_CLIENT = Column("client_id", "CLIENT-ID", 10)
_NOTE, _SILENT_NOTE = Column("note", "NOTE"), Column("note")
_MEMBER = Column("consumer_id", "CONSUMER-ID", 11, "member", of="member_id")
# What a row of --by is: the columns that name it, and the keys by which rows of partitions are summed up.
_BY: Mapping[str, tuple[Sequence[Column], Sequence[str]]] = {
    "group": ((_GROUP,), ("group_id",)),
    "topic": ((_TOPIC, Column("groups", "GROUPS", 6, "number")), ("topic",)),
    "member": ((_GROUP, _MEMBER, _CLIENT), ("group_id", "member_id")),
}


_TIMES_OF_LAG = (_TIME_LAG, Column("time_lag_seconds"), Column("time_lag_method"))
_AGE = (Column("as_of", unit="time", of="as_of_ms"), AGE[1])
_COLUMNS = (
    _GROUP,
    _TOPIC,
    Column("partition", "PARTITION", 9, "id"),
    Column("current_offset", "CURRENT-OFFSET", 14, "id", of="committed_offset"),
    Column("log_end_offset", "LOG-END-OFFSET", 14, "id"),
    _LAG,
    Column("consumer_id", of="member_id"),
    Column("host", of="client_host"),
    _CLIENT,
    *_TIMES_OF_LAG,
    _LAST_COMMIT,
    Column("commit_time", unit="time", of="committed_ms"),
    Column("lag_read_committed"),
    Column("messages_lost"),
    Column("retention_used"),
    Column("sampled_at", unit="time", of="sampled_ms"),
    *_AGE,
    _NOTE,
)
_OF_SUMS = (
    Column("partitions", "PARTITIONS", 10, "number"),
    _LAG,
    *_TIMES_OF_LAG,
    _LAST_COMMIT,
    Column("commit_time", unit="time", of="committed_ms"),
    Column("messages_lost"),
    *_AGE,
    _NOTE,
)


def _columns_of(asked: Asked, rows: Rows) -> Sequence[Column]:
    """Return the columns of partitions or of --by. Times are shown if they are asked for, notes if there are any."""
    by, has_note, has_time = asked.options["by"], any(row["note"] for row in rows), _has_time(asked)
    every = _COLUMNS if by == "partition" else (*_BY[by][0], *_OF_SUMS)
    found = [each for each in every if has_time or each not in _TIMES_OF_LAG]
    return found if has_note else [_SILENT_NOTE if each == _NOTE else each for each in found]


_SELECTED = """
group_id, offsets_partition, topic, partition, committed_offset, log_end_offset, lag, messages_lost, client_id,
epoch_ms(commit_timestamp) AS committed_ms, epoch_ms(sampled_at) AS sampled_ms,
CASE WHEN reason IS NOT NULL THEN reason
     WHEN is_recreated THEN 'the topic was recreated'
     WHEN is_beyond_end THEN concat('beyond the end of the log, by ', committed_offset - log_end_offset)
     WHEN is_truncated THEN concat(messages_lost, ' message', if(messages_lost = 1, '', 's'), ' gone unread')
END AS note"""
# Only JSON and CSV have these columns: converting them to Python takes as long as the query.
_NOT_IN_TEXT = ", client_host, lag_read_committed, retention_used, epoch_ms(as_of) AS as_of_ms, is_stale"
_TIMES = "group_id, topic, partition, time_lag_seconds, method AS time_lag_method"
_SELECTED_TIME = ", time_lag_seconds, coalesce(time_lag_method, 'no sample') AS time_lag_method"


def _has_time(asked: Asked) -> bool:
    return asked.options["with_time"] or asked.options["min_time_lag"] is not None


def _rows(asked: Asked) -> Rows:
    found, columns = asked.view("lag"), _SELECTED
    columns += "" if asked.is_text and asked.options["by"] != "member" else ", member_id"
    columns += "" if asked.is_text else _NOT_IN_TEXT
    if _has_time(asked):
        found = found.join(asked.view("time_lag").select(_TIMES), "group_id, topic, partition", "left")
        columns += _SELECTED_TIME
    rows = fetch_sorted(found.select(columns), "group_id, topic, partition")
    if asked.options["not_ok"]:
        level_of = dict(asked.view("group_status").select("group_id, level").fetchall())
        for row in rows:
            row["level"] = level_of.get(row["group_id"])
    return rows


def _summed(asked: Asked, rows: Rows) -> Rows:
    """Return the rows of --by, the greatest lag first."""
    if (by := asked.options["by"]) == "partition":
        return rows
    keys, parts = _BY[by][1], dict[tuple[Any, ...], Rows]()
    for row in rows:
        parts.setdefault(tuple(row[key] for key in keys), []).append(row)
    summed = [_sum(alike) for alike in parts.values()]
    return sorted(summed, key=lambda row: -1 if row["lag"] is None else row["lag"], reverse=True)


def _sum(rows: Rows) -> Row:
    def known(name: str) -> list[Any]:
        return [row[name] for row in rows if row.get(name) is not None]

    unknown = len(rows) - len(known("lag"))
    return rows[0] | {
        "groups": len({row["group_id"] for row in rows}),
        "partitions": len(rows),
        "lag": sum(known("lag")) if unknown < len(rows) else None,
        "messages_lost": sum(known("messages_lost")),
        "time_lag_seconds": max(known("time_lag_seconds"), default=None),
        "time_lag_method": next(iter(sorted(known("time_lag_method"))), None),  # "at least" is before the others
        "committed_ms": max(known("committed_ms"), default=None),
        "as_of_ms": min(known("as_of_ms"), default=None),
        "is_stale": any(known("is_stale")),
        "note": f"the lag of {unknown} is unknown" if unknown else None,
    }


def _complete(asked: Asked, row: Row) -> None:
    committed = row["committed_ms"]
    row["since_commit_ms"] = since = None if committed is None else milliseconds(asked.age.now) - committed
    row["last_commit"] = None if since is None else duration_text(since)
    if "time_lag_seconds" in row:
        row["time_lag"] = waiting_time_text(row["time_lag_seconds"], at_least=row["time_lag_method"] == "at least")


def _closing(asked: Asked, rows: Rows) -> str:
    return _waiting(asked, rows) + _without_any(rows, asked.groups, asked.missing)


def _waiting(asked: Asked, rows: Rows) -> str:
    behind = [row for row in rows if row["lag"]]
    waiting = sum(row["lag"] for row in behind)
    sample_times = {row["sampled_ms"] for row in rows if row["log_end_offset"] is not None}
    sampled = [datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms in sample_times]
    groups, lost = len({row["group_id"] for row in rows}), sum(row["messages_lost"] or 0 for row in rows)
    ends = f", {ends_text(sampled, asked.age.now)}" if rows else ""
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
    return f"{waits}{deleted}; {asked.as_of}{ends}."


def _without_any(rows: Rows, groups: Collection[str], missing: Collection[str]) -> str:
    """Return which existing groups have nothing that could lag: without this, no row would look like no lag."""
    found = {row["group_id"] for row in rows}
    silent = [
        name
        for name in groups
        if name not in found and not any(message.startswith(f"group '{name}' ") for message in missing)
    ]
    names = ", ".join(f"'{name}'" for name in dict.fromkeys(silent))
    return (
        f" No committed offset and no partition: group{'s' if len(set(silent)) > 1 else ''} {names}." if silent else ""
    )


_EXACT = (
    Column("group", "GROUP", 15),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 9, "id"),
    Column("current_offset", "CURRENT-OFFSET", 14, "id"),
    Column("log_start_offset"),
    Column("last_stable_offset"),
    Column("log_end_offset", "LOG-END-OFFSET", 14, "id"),
    _LAG,
    Column("messages_lost"),
    _TIME_LAG,
    Column("time_lag_seconds"),
    Column("next_offset", "NEXT-OFFSET", 11, "id"),
    Column("next_timestamp", "WRITTEN-AT", 24, "time"),
    Column("timestamp_type"),
    Column("leader_id"),
    Column("leader_epoch"),
    Column("isolation_level"),
    Column("next_timestamp_ms"),
    Column("asked_at_ms"),
    Column("asked_at"),
    Column("errors"),
    Column("error"),
    _NOTE,
)
_OF_EXACT = ("bootstrap_server", "command_config", "isolation_level", "timeout")


def _exact_if_asked(options: dict[str, Any]) -> Callable[[], Found] | None:
    """Return the look-up in the live cluster, with --exact; else refuse the options that only it has."""
    if not options.pop("exact"):
        if unread := typed_flags(_OF_EXACT):
            raise click.UsageError(f"lag reads the tables: give {', '.join(unread)} with --exact only")
        return None
    groups, server = options["group"], options["bootstrap_server"]
    if server is None or not groups or options["at"] is not None or options["by"] != "partition" or options["not_ok"]:
        raise click.UsageError(
            "--exact reads the live cluster now: give --bootstrap-server and --group, and no --at, --by or --not-ok"
        )
    return lambda: _exact(options)


def _exact(options: Mapping[str, Any]) -> Found:
    """Return a row per partition with a committed offset; exit code 3 if a coordinator or leader does not answer."""
    from offsetstream.cluster.metadata import MetadataCache
    from offsetstream.cluster.offsets import committed_of
    from offsetstream.cluster.reading import exact_lags

    properties, timeout = client_properties(options["command_config"]), options["timeout"]
    cluster = MetadataCache(options["bootstrap_server"], properties)
    found = committed_of(cluster, properties, sorted(set(options["group"])), options["topic"], timeout)
    by_group = {group_id: offsets for group_id, offsets in found.items() if not isinstance(offsets, str)}
    committed = {
        group_id: {place: offset for place, offset in offsets.items() if offset is not None}
        for group_id, offsets in by_group.items()
    }
    level = options["isolation_level"]
    lags = exact_lags(cluster, properties, committed, isolation_level=level, timeout=timeout)
    now_ms = milliseconds(datetime.now(UTC))
    rows = [_exact_row(each, now_ms) | {"isolation_level": level} for each in lags]
    errors = {group_id: error for group_id, error in found.items() if isinstance(error, str)}
    rows += [{"group": group_id, "error": error, "note": error} for group_id, error in errors.items()]
    rows += [
        {"group": group_id, "topic": topic, "partition": number, "error": None, "note": no_offset()}
        for group_id, offsets in by_group.items()
        for (topic, number), offset in offsets.items()
        if offset is None
    ]
    rows.sort(key=lambda row: (row["group"], row.get("topic") or "", row.get("partition") or 0))
    missing = [
        f"group '{group_id}' has no such committed offset" for group_id, offsets in by_group.items() if not offsets
    ]
    closing, code = _exact_closing(rows, now_ms), _exact_exit_code(rows)
    shown = [row for row in rows if is_late(options, row.get("lag"), row.get("time_lag_seconds"))]
    return Found(_EXACT, shown, closing, code, missing)


def _exact_row(lag: ExactLag, now_ms: int) -> Row:
    reading, end = lag.reading, lag.reading.end
    record = reading.records[0] if reading.records else None
    waits = None if record is None or record.timestamp_ms is None else now_ms - record.timestamp_ms
    if record is None and reading.error is None and not reading.is_blocked:
        waits = 0  # there is nothing to read
    return {
        "group": lag.group_id,
        "topic": lag.topic,
        "partition": lag.partition,
        "current_offset": reading.offset,
        "log_start_offset": end and end.log_start_offset,
        "last_stable_offset": end and end.last_stable_offset,
        "log_end_offset": end and end.high_watermark,
        "lag": end and max(0, end.high_watermark - max(reading.offset, end.log_start_offset or 0)),
        "messages_lost": end and max(0, (end.log_start_offset or 0) - reading.offset),
        "time_lag": duration_text(waits),
        "time_lag_seconds": None if waits is None else waits / 1000,
        "next_offset": record and record.offset,
        "next_timestamp": record and time_text(record.timestamp_ms),
        "timestamp_type": record and record.timestamp_type,
        "leader_id": end and end.leader_id,
        "leader_epoch": end and end.leader_epoch,
        "next_timestamp_ms": record and record.timestamp_ms,
        "asked_at_ms": now_ms,
        "asked_at": time_text(now_ms),
        "errors": reading.errors,
        "error": reading.error,
        "note": no_record_reason(lag.topic, reading),
    }


def _exact_closing(rows: Rows, now_ms: int) -> str:
    waiting = [row for row in rows if row.get("time_lag_seconds")]
    longest = max((row["time_lag_seconds"] for row in waiting), default=0)
    failed = sum(1 for row in rows if row["error"])
    return (
        f"A record waits in {len(waiting)} of {counted(len(rows), 'partition')}, for {duration_text(longest * 1000)} "
        f"at most, as of {time_text(now_ms)}" + (f"; {failed} could not be read." if failed else ".")
    )


def _exact_exit_code(rows: Rows) -> int:
    if any(is_unreachable(row["error"]) for row in rows):
        return UNREACHABLE
    return 1 if any(row["error"] for row in rows) else 0


lag = Answer(
    name="lag",
    text="""Show how many messages wait for groups, by the end offsets that the job sampled.

    The command reads the tables only. TIME-LAG is the age of the next message to read; ">" means at least that old.

    Examples:
      offsetstream lag --group my-group --time
      offsetstream lag --all-groups --by group --limit 10
      offsetstream lag --all-groups --topic orders --output csv
      offsetstream lag --group 'team-a-*' --min-time-lag 5m
      offsetstream lag --group my-group --at 03:00
      offsetstream lag --group my-group --watch 10
      offsetstream lag --group my-group --exact --bootstrap-server localhost:9092

    LAG counts messages that a consumer can still read: no deleted ones and, where the job could check, no transaction
    markers. --exact reads the live cluster and no table: it fetches the record at each committed offset, and TIME-LAG
    is the age of that record. An offset outside the log is an error that shows the range of the log.

    Exit codes: 1 a group or topic does not exist, or an offset is outside the log; 3 a partition does not answer.""",
    filters=("groups", "topic"),
    options=(
        click.option(
            "--by",
            type=click.Choice(["partition", "group", "topic", "member"]),
            default="partition",
            show_default=True,
            help="Sum up the partitions of each group, topic or member.",
        ),
        click.option("--time", "with_time", is_flag=True, help="Add TIME-LAG: how long the next message has waited."),
        click.option(
            "--exact",
            is_flag=True,
            help="Read the record at each committed offset from the live cluster for an exact TIME-LAG.",
        ),
        isolation_option,
        reading_timeout_option,
        cluster_options,
    ),
    view="lag",
    rows=_rows,
    columns=_COLUMNS,
    columns_of=_columns_of,
    shown=_summed,
    complete=_complete,
    closing=_closing,
    instead=_exact_if_asked,
    worst="lag:desc",
    not_ok=lambda row: row["level"] in NOT_WELL,
    lag="lag",
    time_lag="time_lag_seconds",
).command()
