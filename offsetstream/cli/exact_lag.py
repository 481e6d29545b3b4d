"""`offsetstream lag --exact`: how long the next record of each partition has waited, read from the live cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from offsetstream.cli.answers import Answer
from offsetstream.cli.live_options import UNREACHABLE, is_unreachable, no_record_reason
from offsetstream.cli.messages import counted
from offsetstream.cli.options import client_properties
from offsetstream.cli.rows import Column
from offsetstream.cli.times import duration_text, milliseconds, time_text

if TYPE_CHECKING:
    from offsetstream.cluster.reading import ExactLag

_COLUMNS = (
    Column("group", "GROUP", 15),
    Column("topic", "TOPIC", 15),
    Column("partition", "PARTITION", 9),
    Column("current_offset", "CURRENT-OFFSET", 14),
    Column("log_start_offset"),
    Column("last_stable_offset"),
    Column("log_end_offset", "LOG-END-OFFSET", 14),
    Column("lag", "LAG", 8),
    Column("messages_lost"),
    Column("time_lag", "TIME-LAG", 8),
    Column("time_lag_seconds"),
    Column("next_offset", "NEXT-OFFSET", 11),
    Column("next_timestamp", "WRITTEN-AT", 24),
    Column("timestamp_type"),
    Column("leader_id"),
    Column("leader_epoch"),
    Column("isolation_level"),
    Column("next_timestamp_ms"),
    Column("asked_at_ms"),
    Column("asked_at"),
    Column("errors"),
    Column("error"),
    Column("note", "NOTE"),
)
Row = dict[str, Any]


def exact_answer(
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    bootstrap_server: str,
    command_config: str | None,
    *,
    isolation_level: Any,
    timeout: float,
) -> Answer:
    """Return a row per partition with a committed offset; exit code 3 if a coordinator or leader does not answer."""
    from offsetstream.cluster.answers import no_offset  # noqa: PLC0415 - imported on use
    from offsetstream.cluster.metadata import MetadataCache  # noqa: PLC0415 - likewise
    from offsetstream.cluster.offsets import committed_of  # noqa: PLC0415 - imported on use
    from offsetstream.cluster.reading import exact_lags  # noqa: PLC0415 - imported on use

    properties = client_properties(command_config)
    cluster = MetadataCache(bootstrap_server, properties)
    found = committed_of(cluster, properties, sorted(set(groups)), topics, timeout)
    by_group = {group_id: offsets for group_id, offsets in found.items() if not isinstance(offsets, str)}
    committed = {
        group_id: {place: offset for place, offset in offsets.items() if offset is not None}
        for group_id, offsets in by_group.items()
    }
    lags = exact_lags(cluster, properties, committed, isolation_level=isolation_level, timeout=timeout)
    now_ms = milliseconds(datetime.now(UTC))
    rows = [_row(each, now_ms) | {"isolation_level": isolation_level} for each in lags]
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
    return Answer(_COLUMNS, rows, _closing(rows, now_ms), exit_code=_exit_code(rows), missing=missing)


def _row(lag: ExactLag, now_ms: int) -> Row:
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


def _closing(rows: list[Row], now_ms: int) -> str:
    waiting = [row for row in rows if row.get("time_lag_seconds")]
    longest = max((row["time_lag_seconds"] for row in waiting), default=0)
    failed = sum(1 for row in rows if row["error"])
    return (
        f"A record waits in {len(waiting)} of {counted(len(rows), 'partition')}, for {duration_text(longest * 1000)} "
        f"at most, as of {time_text(now_ms)}" + (f"; {failed} could not be read." if failed else ".")
    )


def _exit_code(rows: list[Row]) -> int:
    if any(is_unreachable(row["error"]) for row in rows):
        return UNREACHABLE
    return 1 if any(row["error"] for row in rows) else 0
