"""`offsetstream groups status`: which groups have trouble, and why; scripts use the exit code."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import AGE, STALE, Age
from offsetstream.cli.answers import (
    NOT_OK,
    Answer,
    Row,
    at_option,
    ends_text,
    fetch_sorted,
    group_options,
    open_reader,
    show,
    view_rows,
    watch_option,
)
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.messages import counted
from offsetstream.cli.missing import missing_of, no_history_messages, unknown_text
from offsetstream.cli.options import config_option, max_age_option, output_of, output_options, tables_option
from offsetstream.cli.rows import Column
from offsetstream.cli.times import instant_text, time_text, waiting_time_text
from offsetstream.views.verdicts import NOT_LOOKED, NOT_WELL, VERDICTS, WORDS

if TYPE_CHECKING:
    from offsetstream.views.reader import ViewReader

_COLUMNS = (
    Column("group", "GROUP", 15),
    Column("state", "STATE", 6),
    Column("members"),
    Column("level", "LEVEL", 5),
    Column("verdict", "VERDICT", 7),
    Column("topic"),
    Column("partition"),
    Column("topic_partition", "PARTITION", 9),
    Column("total_lag", "TOTAL-LAG", 9),
    Column("max_lag"),
    Column("messages_lost"),
    Column("time_lag", "TIME-LAG", 8),
    Column("time_lag_seconds"),
    Column("time_lag_at_least"),
    Column("reason", "REASON"),
    Column("cause"),
    Column("burrow"),
    Column("burrow_partition_status"),
    Column("burrow_topic"),
    Column("burrow_partition"),
    Column("burrow_reason"),
    Column("partitions"),
    Column("partitions_not_ok"),
    Column("complete"),
    Column("last_commit_time"),
    Column("type"),
    Column("sampled_at"),
    *AGE,
)
_BURROW = Column("burrow", "BURROW", 6)
_RANK = {each.word: rank for rank, each in enumerate(VERDICTS)}
_TRANSACTION, _NAMED = "an open transaction on ", "the open transaction "
_WHO = "; 'offsetstream partitions --blocked' shows what ends it"
_END = "kafka-transactions.sh forceTerminateTransaction --transactionalId"
_FAILS: Mapping[str, Collection[str]] = {"WARN": NOT_WELL, "ERR": ("ERR",), "never": ()}


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream groups status
  offsetstream groups status --group my-group --fail-on ERR
  offsetstream groups status --verdict dead --verdict stopped
  offsetstream groups status --at 03:00 --output json
  offsetstream groups status --watch 10

Exit codes: 4 a group in the answer is WARN or ERR (--fail-on); 5 no group is, but some are unknown because their
samples are too old (--max-age); 1 a group does not exist.""",
)
@config_option("groups.status")
@group_options
@click.option(
    "--fail-on",
    type=click.Choice(list(_FAILS)),
    default="WARN",
    show_default=True,
    help="Exit with 4 if a level is at least WARN, if it is ERR, or never.",
)
@click.option(
    "--verdict",
    multiple=True,
    type=click.Choice(WORDS),
    help="Show only groups with this verdict (repeatable; default: all).",
)
@click.option("--burrow", is_flag=True, help="Also show Burrow's status (OK, WARN, ERR, NOTFOUND).")
@at_option
@max_age_option
@watch_option
@tables_option
@output_options
def status(
    *,
    group: tuple[str, ...],
    fail_on: str,
    verdict: tuple[str, ...],
    burrow: bool,
    at: datetime | None,
    max_age: float | None,
    watch: float | None,
    tables: str,
    **options: Any,
) -> None:
    """Show which groups have trouble, and why: the worst first.

    A group has the verdict of its worst partition, which the column PARTITION names.
    """
    output = output_of(options)
    columns = [_BURROW if burrow and each.name == _BURROW.name else each for each in _COLUMNS]

    def ask() -> Answer:
        reader = open_reader(tables, at, group, max_age=max_age)
        rows = _rows(reader, group)
        missing = missing_of(reader, rows, group, at=at) + no_history_messages(reader, rows, group, at)
        shown = [row for row in rows if not verdict or row["verdict"] in verdict]
        age = Age.of(reader)
        closing = _closing(rows, age.now, age.as_of_text(reader.store, group)) + unknown_text(reader)
        warnings = [*age.lines_of(rows), *_causes(shown)]
        if output.is_text:
            _drop_repeated_reasons(shown)
        return Answer(columns, shown, closing, _exit_code(shown, rows, fail_on), missing, warnings)

    show(output, watch, ask)


def _exit_code(shown: list[Row], all_rows: list[Row], fail_on: str) -> int:
    """Return the exit code. A stale group in `all_rows` counts even if --verdict hides it: its verdict is unknown."""
    if any(row["level"] in _FAILS[fail_on] for row in shown):
        return NOT_OK
    return STALE if fail_on != "never" and any(row["stale"] for row in all_rows) else 0


def _causes(rows: list[Row]) -> list[str]:
    """Return causes that several groups share, the most frequent first: one fix helps all of them."""
    counted_causes = Counter(row["cause"] for row in rows if row["cause"] is not None)
    return [
        f"{counted(number, 'group')}: {cause}{_advice(cause)}"
        for cause, number in counted_causes.most_common()
        if number > 1
    ]


def _advice(cause: str) -> str:
    """Return how to end a transaction. Its coordinator can end one with a known id on all of its partitions."""
    if cause.startswith(_NAMED):
        return f"; '{_END} {shlex.quote(cause.removeprefix(_NAMED))}' ends it"
    return _WHO if cause.startswith(_TRANSACTION) else ""


def _drop_repeated_reasons(rows: list[Row]) -> None:
    """Remove the reasons of groups without a sample: one warning line covers all of them."""
    unsampled = [row for row in rows if row["cause"] == NOT_LOOKED]
    for row in unsampled if len(unsampled) > 1 else ():
        row["reason"] = None


def _rows(reader: ViewReader, group: tuple[str, ...]) -> list[Row]:
    # First, since time_lag reuses what this defines. The rows are fetched at once: after the next definition, DuckDB
    # would bind the relation again, which takes longer than reading a few rows.
    statuses = fetch_sorted(view_rows(reader, "group_status", {"group_id": group}))
    waits = view_rows(reader, "time_lag", {"group_id": group}).aggregate(
        """group_id, max(time_lag_seconds) AS seconds, bool_or(method = 'at least') AS at_least,
           min(sampled_at) AS oldest, max(sampled_at) AS newest"""
    )
    times = {row[0]: row[1:] for row in waits.fetchall()}
    rows = [_row(row, times) for row in statuses]
    return sorted(rows, key=lambda row: (-_RANK[row["verdict"]], -(row["total_lag"] or 0), row["group"]))


def _row(row: Row, times: dict[str, tuple[Any, ...]]) -> Row:
    seconds, at_least, oldest, newest = times.get(row["group_id"], (None, False, None, None))
    topic, partition = row["verdict_topic"], row["verdict_partition"]
    is_shown = topic is not None and row["level"] != "OK"
    return row | {
        "group": row["group_id"],
        "state": row["group_state"],
        "type": row["group_type"],
        "members": row["member_count"],
        "topic": topic,
        "partition": partition,
        "topic_partition": f"{topic}-{partition}" if is_shown else None,
        "time_lag": waiting_time_text(seconds, at_least=at_least),
        "time_lag_seconds": seconds,
        "time_lag_at_least": at_least,
        "reason": row["verdict_reason"],
        "burrow": row["status"],
        "burrow_partition_status": row["worst_status"],
        "burrow_topic": row["worst_topic"],
        "burrow_partition": row["worst_partition"],
        "burrow_reason": row["status_reason"],
        "last_commit_time": time_text(row["last_commit_at_ms"]),
        "sampled_at": instant_text(newest),
        "sampled": [each for each in (oldest, newest) if each],
        "as_of": instant_text(row["as_of"]),
        "stale": row["is_stale"],
    }


def _closing(rows: list[Row], now: datetime, as_of: str) -> str:
    levels = Counter(row["level"] for row in rows)
    not_ok = levels["WARN"] + levels["ERR"]
    unknown = f", {levels['UNKNOWN']} unknown" if levels["UNKNOWN"] else ""
    if unchecked := sum(row["level"] == "UNKNOWN" and row["cause"] == NOT_LOOKED for row in rows):
        some = "" if unchecked == levels["UNKNOWN"] else f"{unchecked} of them "
        unknown += f" ({some}because {NOT_LOOKED})"
    lost = sum(row["messages_lost"] or 0 for row in rows)
    unknown += f", {counted(lost, 'message')} gone unread" if lost else ""
    verb = "is" if not_ok == 1 else "are"
    sampled = [each for row in rows for each in row["sampled"]]
    return f"{not_ok} of {counted(len(rows), 'group')} {verb} not OK{unknown}, {as_of}; {ends_text(sampled, now)}."
