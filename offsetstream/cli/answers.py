"""Shared parts of the commands that answer questions: their options, how they read the tables, how they print."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.messages import print_line
from offsetstream.cli.options import SECONDS, Command
from offsetstream.cli.output import Output
from offsetstream.cli.rows import Column
from offsetstream.cli.times import Instant, duration_text, instant_text
from offsetstream.errors import TablesError, UsageError, first_line, is_interrupt
from offsetstream.tables.location import store_at

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

    from offsetstream.cli.age import Age
    from offsetstream.tables.store import Store
    from offsetstream.views.reader import ViewReader

Row = dict[str, Any]
NOT_OK = 4  # exit code: a group has trouble


@dataclass
class Answer:
    """The answer of a command: its rows, their columns, a closing sentence that sums them up, and the exit code.

    `missing` has an error message for each requested name that was not found. `warnings` are printed before the rows.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    closing: str
    exit_code: int = 0
    missing: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def group_options(command: Command) -> Command:
    """Add `--group`, repeatable; without it the answer is about all groups."""
    return click.option(
        "--group", multiple=True, metavar="GROUP", help="Select this group (repeatable; default: all groups)."
    )(command)


def topic_options(command: Command) -> Command:
    """Add `--topic`, repeatable."""
    return click.option(
        "--topic", multiple=True, metavar="TOPIC", help="Select this topic (repeatable; default: all topics)."
    )(command)


def at_option(command: Command) -> Command:
    """Add `--at`."""
    text = "Show the state at this past time: 10m (ago), 03:00, 2026-11-21T03:00+01:00 (default: now; zone: UTC)."
    return click.option("--at", type=Instant(), metavar="TIME", help=text)(command)


def period_options(command: Command) -> Command:
    """Add `--since` and `--until`."""
    since = click.option(
        "--since",
        type=Instant(),
        metavar="TIME",
        help="Start of the period: 10m (before the present time, also if the job has ended), 03:00, 2026-11-21 "
        "(default: all history with --group, else the last day).",
    )
    until = click.option("--until", type=Instant(), metavar="TIME", help="End of the period (default: now).")
    return since(until(command))


def watch_option(command: Command) -> Command:
    """Add `--watch`."""
    return click.option(
        "--watch",
        type=SECONDS,
        metavar="SECONDS",
        help="Repeat the answer at this interval until Ctrl-C (default: answer once).",
    )(command)


def open_reader(
    tables: str,
    at: datetime | None = None,
    groups: Collection[str] = (),
    *,
    since: datetime | None = None,
    max_age: float | None = None,
) -> ViewReader:
    """Return the views over the tables, now or at a past time. A time in the future raises UsageError.

    `max_age` is the value of `--max-age`, in seconds.
    """
    from offsetstream.views.instant import InstantReader  # noqa: PLC0415 - of DuckDB and Arrow; --help needs neither
    from offsetstream.views.reader import ViewReader  # noqa: PLC0415 - likewise

    if at is None:
        return _aged(ViewReader(store_at(tables), groups=groups or None, since=since), max_age)
    now = datetime.now(UTC)
    if at > now:
        raise UsageError(f"{instant_text(at)} is in the future: give a time until {instant_text(now)}")
    return _aged(InstantReader(store_at(tables), at, groups or None), max_age)


def view_reader(store: Store, max_age: float | None) -> ViewReader:
    """Return the views over the tables as they are now; `max_age` is the value of `--max-age`, in seconds."""
    from offsetstream.views.reader import ViewReader  # noqa: PLC0415 - of DuckDB and Arrow; --help needs neither

    return _aged(ViewReader(store), max_age)


def _aged(reader: ViewReader, max_age: float | None) -> ViewReader:
    if max_age is not None:
        reader.set_max_age(None if math.isinf(max_age) else max_age)
    return reader


def fetch_sorted(relation: DuckDBPyRelation, order: str = "") -> list[Row]:
    """Return the rows of a relation, sorted by `order` if given. Raises TablesError if the tables cannot be read."""
    import duckdb  # noqa: PLC0415 - --help does not need it

    from offsetstream.tables.fetch import fetch_rows  # noqa: PLC0415 - likewise

    try:
        return fetch_rows(relation, order)
    except (duckdb.Error, OSError) as error:
        raise TablesError(f"cannot read the tables: {first_line(error)}") from error


def view_rows(
    reader: ViewReader, view: str, selected: Mapping[str, Sequence[str] | Sequence[int]], *conditions: str
) -> DuckDBPyRelation:
    """Return the rows of a view whose columns have one of the given values (none: any) and that meet the conditions."""
    relation = reader.relation(view, {column: values or None for column, values in selected.items()})
    for condition in filter(None, conditions):
        relation = relation.filter(condition)
    return relation


def table_of(reader: ViewReader, table: str, where: Mapping[str, Any]) -> DuckDBPyRelation:
    """Return the rows of a table whose columns have one of the given values; no values mean any."""
    from offsetstream.tables.lookup import is_one_of  # noqa: PLC0415 - of DuckDB, which --help does not need

    reader.define_table(table)
    relation = reader.connection.table(f'"{table}"')
    for column, values in where.items():
        relation = relation.filter(is_one_of(column, values)) if values else relation
    return relation


def ends_of(reader: ViewReader, topics: Collection[str]) -> tuple[dict[tuple[str, int], int | str], list[datetime]]:
    """Return the ends of the topics' logs, or why one is not known, by partition, and when these were sampled."""
    found = reader.rows("partition_ends", {"topic": topics})
    rows = [row for row in found if row["error"] is not None or row["high_watermark"] is not None]
    ends = {(row["topic"], row["partition"]): row["error"] or row["high_watermark"] for row in rows}
    return ends, [row["sampled_at"] for row in rows if row["error"] is None]


def in_period(column: str, since: datetime | None, until: datetime | None) -> str:
    """Return the condition that a time lies in a period; none for no bounds."""
    bounds = [(">=", since), ("<", until)]
    return " AND ".join(f"{column} {sign} TIMESTAMPTZ '{instant_text(at)}'" for sign, at in bounds if at)


def period_start(groups: Collection[str], since: datetime | None, until: datetime | None) -> datetime | None:
    """Return the start of the period: a day ago if neither a period nor groups are given.

    Raises UsageError for an empty period: "nothing happened" would be true of it, and misleading.
    """
    now = datetime.now(UTC)
    end = min(until or now, now)
    if since:
        require_period(since, end)
    return since if since or until or groups else now - timedelta(days=1)


def require_period(since: datetime, until: datetime) -> None:
    """Raise UsageError for an empty period."""
    if since >= until:
        raise UsageError(f"--since {instant_text(since)} is not before {instant_text(until)}: give an earlier --since")


def period_text(
    age: Age, tables: Store, groups: Collection[str], since: datetime | None, until: datetime | None
) -> str:
    """Return the period as text that starts with a space, and as of when the data are known if they end before it."""
    bounds = [(" since ", since), (" until ", until)]
    as_of = age.as_of_text(tables, groups, until=until, note="; later changes are not included")
    return "".join(f"{word}{instant_text(at)}" for word, at in bounds if at) + (f", {as_of}" if as_of else "")


def age_text(at: datetime | None, now: datetime) -> str | None:
    """Return the age of `at` relative to `now`, as text."""
    return None if at is None else duration_text((now - at).total_seconds() * 1000)


def ends_text(sampled: Collection[datetime], now: datetime) -> str:
    """Return when the end offsets behind an answer were sampled."""
    if not sampled:
        return "no end offset was sampled"
    oldest, newest = min(sampled), max(sampled)
    if (newest - oldest).total_seconds() < 1:
        return f"end offsets as of {instant_text(newest)} ({age_text(newest, now)} old)"
    return f"end offsets as of {instant_text(oldest)} to {instant_text(newest)} (up to {age_text(oldest, now)} old)"


def show(output: Output, watch: float | None, ask: Callable[[], Answer]) -> None:
    """Print the answer, once or every `watch` seconds, and exit with its exit code, or 1 if a name is missing.

    With `watch`, tables that cannot be read after the first answer are reported and tried again.
    """
    answered = False
    try:
        while True:
            try:
                answer = ask()
                _print(output, answer, clears=watch is not None)
                if watch is None:
                    click.get_current_context().exit(1 if answer.missing else answer.exit_code)
                answered = True
            except TablesError as error:
                if not answered:
                    raise
                print_line(f"Error: {error}")
            time.sleep(watch or 0)
    except (KeyboardInterrupt, RuntimeError) as error:
        if watch is None or not is_interrupt(error):
            raise


def _print(output: Output, answer: Answer, *, clears: bool) -> None:
    if clears:
        clear(output)
    for warning in answer.warnings:
        print_line(warning, fg="red")
    if answer.rows or not answer.missing or not output.is_text:
        output.table(answer.columns, answer.rows, closing=answer.closing)
    for message in answer.missing:
        print_line(f"Error: {message}")


def clear(output: Output) -> None:
    """Clear the terminal before a repeated answer, if the answer goes to one."""
    if output.file is None and sys.stdout is not None and sys.stdout.isatty():
        click.clear()
