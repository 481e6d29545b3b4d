"""Answers of look-ups: an answer is declared, and this module makes its command and its output."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from offsetstream.cli.age import Age
from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.names import (
    complete_ids,
    expand,
    missing_messages,
    missing_of,
    no_history_messages,
    unknown_text,
)
from offsetstream.cli.options import PAUSE, UNREACHABLE, Command, max_age_option, output_of, row_options, tables_option
from offsetstream.cli.output import Blocks, Closing, Column, Output, RereadParts
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import (
    Duration,
    Instant,
    capitalized,
    duration_text,
    instant_text,
    length_text,
    print_line,
    time_text,
    warn,
)
from offsetstream.errors import NoTableError, TablesError, UsageError, first_line, is_interrupt
from offsetstream.tables.location import store_at

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

    from offsetstream.views.reader import ViewReader

T = TypeVar("T")
Row = dict[str, Any]
Rows = list[Row]
Part = Mapping[str, Sequence[Any]]  # some rows, by column
TopicPartition = tuple[str, int]
End = int | str  # log end offset, or Kafka's name of the error
NOT_THERE = "group '{}' is not there"


@dataclass
class Found:
    """What an answer has found: its rows, their columns, a closing sentence that sums them up, and the exit code.

    `missing` has an error message for each requested name that was not found. `warnings` are printed before the rows.
    `order` sorts the rows as `--sort` would, which wins. `blocks` are printed instead of the rows. Rows may be read
    while they are printed: then functions return what is known after the last one.
    """

    columns: Sequence[Column]
    rows: Iterable[Mapping[str, Any]]
    closing: Closing
    exit_code: int | Callable[[], int] = 0
    missing: Sequence[str] | Callable[[], Sequence[str]] = ()
    warnings: list[str] = field(default_factory=list)
    order: str | None = None
    blocks: Iterable[Blocks] | None = None


@dataclass
class Asked:
    """One call of an answer's command: what it asks for, and the tables that it asks.

    `options` has the values of the options of this command alone. `groups` and `topics` have the ids that patterns
    stand for; none means all.
    """

    reader: ViewReader
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    at: datetime | None
    since: datetime | None
    until: datetime | None
    is_text: bool
    options: Mapping[str, Any]
    missing: Sequence[str] = ()  # messages about the groups and topics that are not there
    unseen: set[str] = field(default_factory=set)  # groups that the user named, and that were not found so far
    unseen_topics: set[str] = field(default_factory=set)
    is_empty: bool = True  # no group was found so far

    def saw(self, groups: Collection[str], topics: Collection[str] = ()) -> None:
        """Note that these groups and topics were found."""
        self.unseen.difference_update(groups)
        self.unseen_topics.difference_update(topics)
        self.is_empty = self.is_empty and not groups

    @cached_property
    def age(self) -> Age:
        """How old the data are."""
        return Age.of(self.reader)

    @cached_property
    def ends(self) -> SampledEnds:
        """The sampled ends of the topics' logs."""
        return SampledEnds(self.reader)

    @property
    def as_of(self) -> str:
        """As of when the data of the groups are known."""
        return self.age.as_of_text(self.reader.store, self.groups)

    @property
    def period(self) -> str:
        """The period as text that starts with a space, and as of when the data are known if they end before it."""
        bounds = [(" since ", self.since), (" until ", self.until)]
        as_of = self.age.as_of_text(
            self.reader.store, self.groups, until=self.until, note="; later changes are not included"
        )
        return "".join(f"{word}{instant_text(at)}" for word, at in bounds if at) + (f", {as_of}" if as_of else "")

    def read_if_named(self, found: Iterable[T]) -> Iterable[T]:
        """Read what a text says of named groups or of the past: if that is nothing, it has no heading either."""
        return list(found) if self.is_text and (self.groups or self.at) else found

    def plain_warnings(self) -> list[str]:
        """Return the warnings before a list of groups: what is not loaded, stale or unknown."""
        if self.at is None:
            store = self.reader.store
            return self.age.loading_lines(store, self.groups) + self.age.warnings_for_groups(store, self.groups)
        for table in ("groups", "committed_offsets"):  # so that the reader knows what is unknown at that time
            self.reader.define_table(table)
        return self.age.lines()

    def plain_closing(self, told: str = "") -> str | None:
        """Return what follows a list of groups: the age of end offsets, and of data that are old or of the past.

        `told` follows the past time.
        """
        sampled = self.ends.text(self.age.now)
        if self.at is not None:
            ends, is_told = f"; {sampled}" if sampled else "", self.is_empty and not self.groups
            return f"{capitalized(self.as_of)}{told}{ends}.{'' if is_told else unknown_text(self.reader)}"
        old = self.age.line_if_old(self.reader.store, self.groups) if self.is_text else None
        return " ".join(filter(None, (sampled and f"{capitalized(sampled)}.", old))) or None

    def nothing_known(self) -> list[str]:
        """Return a message if an answer about all groups at a past time has no row because nothing is known of it."""
        if self.at and not self.groups and not self.age.by_partition:
            return [f"nothing is known at {instant_text(self.at)}: the job has not loaded the offsets partitions"]
        return no_history_messages(self.reader, self.groups, self.at)

    def plain_missing(self, nothing: str = NOT_THERE) -> list[str]:
        """Return a message for each group and topic that a list lacks; `nothing` if that is all that is known."""
        messages = self.nothing_known() if self.is_empty else []
        then = " at that time" if self.at else ""
        for each in sorted(self.unseen):
            messages += missing_of(self.reader, [], [each], at=self.at) or [f"{nothing.format(each)}{then}"]
        return messages + missing_messages(self.reader, "topic", self.unseen_topics, ())

    def view(self, name: str, condition: str = "") -> DuckDBPyRelation:
        """Return the rows of a view or table about the groups, topics and partitions, if it has such columns."""
        wanted = {"group_id": self.groups, "topic": self.topics, "partition": self.options.get("partition")}
        columns = self.reader.relation(name).columns
        where = {column: values for column, values in wanted.items() if values and column in columns}
        found = self.reader.relation(name, where)
        return found.filter(condition) if condition else found


@dataclass(frozen=True)
class Answer:
    """An answer about groups: all that its command, its help and its output need.

    Most answers are `view`, `columns` and `closing`; functions are named where that is not enough. A list of all groups
    may have millions of rows: `parts` reads them while they are printed. Such a list is laid out as by Kafka's own
    tool: while the data are fresh, nothing follows it.
    """

    name: str  # of the command, as in a settings file
    text: str  # its help, with examples
    columns: Sequence[Column]
    closing: Callable[[Asked, Rows], str] | None = None  # sums the rows up
    filters: Sequence[Literal["group", "groups", "topic", "partition"]] = ("group", "topic")
    options: Sequence[Callable[[Command], Command]] = ()  # click's, of this command alone
    cls: type[click.Command] = OneLineErrors
    times: str = "at"  # `at` for a state, now or at a past time; else the column with the times of events

    # Where the rows come from.
    view: str = ""
    select: str = "*"  # SQL
    order: str = ""  # SQL
    rows: Callable[[Asked], Rows] | None = None
    parts: Callable[[Asked], Iterator[Part]] | None = None
    nothing: str = NOT_THERE  # what a named group lacks that a list has no row of
    found: Callable[[Asked], Found] | None = None  # makes the whole answer
    instead: Callable[[dict[str, Any]], Callable[[], Found] | None] | None = None  # another answer, if options ask so

    # What becomes of them.
    shown: Callable[[Asked, Rows], Rows] | None = None  # by the command's own options
    complete: Callable[[Asked, Row], None] | None = None  # adds cells, in place
    columns_of: Callable[[Asked, Rows], Sequence[Column]] | None = None  # those of `columns` that a call shows
    for_text: Callable[[Rows], Rows] | None = None
    worst: str | None = None  # the order of text, as for --sort
    orders_data: bool = False  # whether that is also the order of JSON and CSV
    warnings: Callable[[Rows], list[str]] | None = None
    exit_code: Callable[[Asked, Rows, Rows], int] | None = None  # from the rows that are shown, and all rows

    # Filters: which rows are not OK, and the keys of a count of messages and of a time in seconds.
    not_ok: Callable[[Row], bool] | None = None
    lag: str | None = None
    time_lag: str | None = None

    def command(self) -> click.Command:
        """Return the click command."""
        adding: list[Callable[[Command], Command]] = [
            config_option(self.name, is_lookup=True),
            *(_FILTERS[each] for each in self.filters),
            *self.options,
            *(option for option, is_wanted in _ROW_FILTERS if is_wanted(self)),
            at_option if self.times == "at" else period_options,
            max_age_option,
            watch_option,
            tables_option,
            partial(row_options, names=[column.name for column in self.columns]),
        ]

        def run(**options: Any) -> None:
            output, watch = output_of(options), options.pop("watch")
            if "groups" in self.filters:
                require_groups(options["group"], options.pop("all_groups"))
            ask = self.instead and self.instead(options)
            show(output, watch, ask or self._asking(output, options))

        decorated: Any = run
        for add in reversed(adding):
            decorated = add(decorated)
        said, _, examples = inspect.cleandoc(self.text).partition("Examples:\n")
        name = self.name.rpartition(".")[2]
        return click.command(name, cls=self.cls, help=said, epilog=f"\b\nExamples:\n{examples}")(decorated)

    def _asking(self, output: Output, options: dict[str, Any]) -> Callable[[], Found]:
        tables, max_age = options.pop("tables"), options.pop("max_age")
        group, topic = options.pop("group", ()), options.pop("topic", ())
        at, since, until = (options.pop(name, None) for name in ("at", "since", "until"))
        if self.times != "at":
            since = period_start(group, since, until)

        def ask() -> Found:
            store = store_at(tables)
            is_past = at is not None or self.times != "at"
            groups, topics = (
                expand(store, column, names, past=is_past) for column, names in (("group_id", group), ("topic", topic))
            )
            reader = open_reader(tables, at, groups, since=since, max_age=max_age)
            asked = Asked(reader, groups, topics, at, since, until, output.is_text, options)
            asked.unseen.update(each for each in group if each in groups)
            asked.unseen_topics.update(each for each in topic if each in topics)
            if self.found:
                return self.found(asked)
            if self.parts:
                return self._streamed(asked, self.parts)
            found = self._found(asked, asked.unseen, asked.unseen_topics)
            found.order = self.worst if output.is_text or self.orders_data else None
            return found

        return ask

    def _found(self, asked: Asked, groups: Collection[str], topics: Collection[str]) -> Found:
        """Return what is found; `groups` and `topics` are the ids that the user gave, without those of patterns."""
        rows = self.rows(asked) if self.rows else self.read(asked)
        missing = missing_of(asked.reader, rows, groups, topics, asked.at)
        missing += [] if rows else asked.nothing_known()
        asked.missing = missing
        closing = self.closing(asked, rows) if self.closing else ""
        if self.times == "at":
            closing, warnings = closing + unknown_text(asked.reader), asked.age.lines_of(rows)
        else:
            age = asked.age.until(asked.until)
            warnings = age.warnings_for_groups(asked.reader.store, asked.groups, asked.since)
        if asked.at is None and asked.until is None:
            warnings = asked.age.loading_lines(asked.reader.store, asked.groups) + warnings
        shown = [row for row in rows if self.not_ok(row)] if self.not_ok and asked.options["not_ok"] else rows
        shown = self.shown(asked, shown) if self.shown else shown
        if self.lag and self.time_lag:
            late = (is_late(asked.options, row[self.lag], row.get(self.time_lag)) for row in shown)
            shown = list(compress(shown, late))
        exit_code = self.exit_code(asked, shown, rows) if self.exit_code else 0
        warnings += self.warnings(shown) if self.warnings else []
        columns = self.columns_of(asked, shown) if self.columns_of else self.columns
        if self.complete:
            for row in shown:
                self.complete(asked, row)
        make_cells(shown, columns, is_text=asked.is_text)
        if self.for_text and asked.is_text:
            shown = self.for_text(shown)
        return Found(columns, shown, closing, exit_code, missing, warnings)

    def _streamed(self, asked: Asked, read: Callable[[Asked], Iterator[Part]]) -> Found:
        """Return an answer whose rows are read while they are printed."""
        columns = self.columns_of(asked, []) if self.columns_of else self.columns

        def parts() -> Iterator[Part]:
            for part in read(asked):
                asked.saw(part["group_id"], part.get("topic", ()))
                yield cells_of(asked.age.columns(part), columns)

        missing = partial(asked.plain_missing, self.nothing)
        rows = asked.read_if_named(RereadParts(parts))
        return Found(columns, rows, asked.plain_closing, 0, missing, asked.plain_warnings())

    def read(self, asked: Asked, more: str = "") -> Rows:
        """Return the rows of the view; `more`: SQL of more columns to read."""
        relation = asked.view(self.view, "" if self.times == "at" else in_period(self.times, asked.since, asked.until))
        return fetch_sorted(relation.select(self.select + more) if self.select + more != "*" else relation, self.order)


def is_late(options: Mapping[str, Any], lag: int | None, seconds: float | None) -> bool:
    """Return whether --min-lag and --min-time-lag let a row pass; an unknown lag counts as none."""
    least, longest = options.get("min_lag"), options.get("min_time_lag")
    return (least is None or (lag or 0) >= least) and (longest is None or timedelta(seconds=seconds or 0) >= longest)


def make_cells(rows: Rows, columns: Sequence[Column], *, is_text: bool) -> None:
    """Add the cells of columns that show another value, or show it in words; in place, as there may be 100,000 rows."""
    made = [
        (column.name, column.of or column.name, _CELLS.get(column.unit))
        for column in columns
        if (column.of or column.unit in _CELLS) and (column.heading or not is_text)
    ]
    for row in rows:
        for name, of, cell in made:
            value = row.get(of)
            row[name] = value if cell is None or value is None or isinstance(value, str) else cell(value)


def cells_of(part: Part, columns: Sequence[Column]) -> dict[str, Sequence[Any]]:
    """Return the cells of each column; a column without values is empty."""
    nothing = [None] * len(next(iter(part.values()), ()))
    cells = {column.name: part.get(column.of or column.name, nothing) for column in columns}
    for column in columns:
        if cell := _CELLS.get(column.unit):
            cells[column.name] = [
                value if value is None or isinstance(value, str) else cell(value) for value in cells[column.name]
            ]
    return cells


# How a column shows a value that is not a text yet.
_CELLS: Mapping[str, Callable[[Any], Any]] = {
    "time": lambda value: instant_text(value) if isinstance(value, datetime) else time_text(value),
    "duration": duration_text,
}


def group_options(command: Command) -> Command:
    """Add `--group`, repeatable; without it the answer is about all groups."""
    return _ids_option("group", "group_id", "default: all groups")(command)


def named_group_options(command: Command) -> Command:
    """Add `--group` and `--all-groups`, of which one is required (`require_groups`)."""
    group = _ids_option("group", "group_id", "or --all-groups")
    return group(click.option("--all-groups", is_flag=True, help="Select all groups.")(command))


def require_groups(groups: Collection[str], all_groups: bool) -> None:
    """Raise click's UsageError unless either groups or all groups are asked for."""
    if bool(groups) == all_groups:
        raise click.UsageError("give --group or --all-groups")


def topic_options(command: Command) -> Command:
    """Add `--topic`, repeatable."""
    return _ids_option("topic", "topic", "default: all topics")(command)


def _ids_option(kind: str, column: str, otherwise: str) -> Callable[[Command], Command]:
    return click.option(
        f"--{kind}",
        multiple=True,
        metavar=kind.upper(),
        shell_complete=complete_ids(column),
        help=f"Select this {kind}: an id or a pattern such as 'team-a-*' (repeatable; {otherwise}).",
    )


def partition_options(command: Command) -> Command:
    """Add `--partition`, repeatable."""
    return click.option(
        "--partition",
        multiple=True,
        type=click.IntRange(0, 2**31 - 1),
        help="Select this partition (repeatable; default: all).",
    )(command)


_FILTERS = {
    "group": group_options,
    "groups": named_group_options,
    "topic": topic_options,
    "partition": partition_options,
}
_ROW_FILTERS: Sequence[tuple[Callable[[Command], Command], Callable[[Answer], object]]] = (
    (
        click.option("--not-ok", is_flag=True, allow_from_autoenv=False, help="Show only what is WARN or ERR."),
        lambda answer: answer.not_ok,
    ),
    (
        click.option(
            "--min-lag",
            type=click.IntRange(min=0),
            allow_from_autoenv=False,
            metavar="N",
            help="Show only rows with a lag of at least N messages.",
        ),
        lambda answer: answer.lag,
    ),
    (
        click.option(
            "--min-time-lag",
            type=Duration(),
            allow_from_autoenv=False,
            metavar="TIME",
            help="Show only rows whose next message has waited at least so long: 30s, 5m, 2h.",
        ),
        lambda answer: answer.time_lag,
    ),
)


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
        type=PAUSE,
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
    from offsetstream.views.instant import InstantReader
    from offsetstream.views.reader import ViewReader

    now = datetime.now(UTC)
    if at is None:
        reader = ViewReader(store_at(tables), groups=groups or None, since=since)
    elif at > now:
        raise UsageError(f"{instant_text(at)} is in the future: give a time until {instant_text(now)}")
    else:
        reader = InstantReader(store_at(tables), at, groups or None)
    if max_age is not None:
        reader.set_max_age(max_age)
    return reader


def fetch_sorted(relation: DuckDBPyRelation, order: str = "") -> list[Row]:
    """Return the rows of a relation, sorted by `order` if given. Raises TablesError if the tables cannot be read."""
    import duckdb

    from offsetstream.tables.lookup import fetch_rows

    try:
        return fetch_rows(relation, order)
    except (duckdb.Error, OSError) as error:
        raise TablesError(f"cannot read the tables: {first_line(error)}") from error


_NOT_SAMPLED = "not sampled"


class SampledEnds:
    """The sampled ends of the topics' logs, or why one is not known, and when those that were asked for were sampled.

    Unknown if somebody deleted the table of samples; the job makes it again.
    """

    def __init__(self, reader: ViewReader) -> None:
        self._reader = reader
        self._known: dict[str, dict[TopicPartition, Row]] = {}
        self._sampled: set[datetime] = set()
        self._has_all = False

    def of(self, places: Collection[TopicPartition]) -> dict[TopicPartition, End]:
        """Return the end of each partition, or why it is unknown; nothing if no end was ever sampled."""
        if not self._has_all and (unknown := {topic for topic, _ in places} - self._known.keys()):
            # A second call means many calls: read all at once.
            self._has_all = bool(self._known)
            self._read(None if self._has_all else unknown)
            self._known |= {topic: {} for topic in unknown - self._known.keys()}
        rows = {place: row for place in places if (row := self._known.get(place[0], {}).get(place))}
        self._sampled |= {row["sampled_at"] for row in rows.values() if row["error"] is None}
        ends: dict[TopicPartition, End] = dict.fromkeys(places, _NOT_SAMPLED) if self.has_any else {}
        return ends | {place: row["error"] or row["high_watermark"] for place, row in rows.items()}

    @cached_property
    def has_any(self) -> bool:
        """Whether any end was sampled."""
        try:
            return bool(self._reader.tables.rows("topic_partitions", ["topic"], distinct=True))
        except NoTableError:
            return False

    def text(self, now: datetime) -> str:
        """Return when they were sampled; an empty text if none was asked for."""
        return ends_text(self._sampled, now) if self._sampled else ""

    def _read(self, topics: Collection[str] | None) -> None:
        try:
            rows = self._reader.rows("partition_ends", {"topic": topics})
        except NoTableError:
            return
        for row in rows:
            if row["error"] is not None or row["high_watermark"] is not None:
                self._known.setdefault(row["topic"], {})[row["topic"], row["partition"]] = row


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


def ends_text(sampled: Collection[datetime], now: datetime) -> str:
    """Return when the end offsets behind an answer were sampled."""
    if not sampled:
        return "no end offset was sampled"
    oldest, newest = min(sampled), max(sampled)
    if (newest - oldest).total_seconds() < 1:
        return f"end offsets as of {instant_text(newest)} ({length_text(now - newest)} old)"
    return f"end offsets as of {instant_text(oldest)} to {instant_text(newest)} (up to {length_text(now - oldest)} old)"


def show(output: Output, watch: float | None, ask: Callable[[], Found]) -> None:
    """Print the answer, once or every `watch` seconds, and exit with its exit code.

    That is 1 if a name is missing, unless a broker did not answer.

    With `watch`, tables that cannot be read after the first answer are reported and tried again.
    """
    answered, output.pager = False, output.pager and watch is None
    try:
        while True:
            try:
                exit_code = _print(output, ask(), clears=watch is not None)
                if watch is None:
                    click.get_current_context().exit(exit_code)
                answered = True
            except TablesError as error:
                if not answered:
                    raise
                print_line(f"Error: {error}")
            time.sleep(watch or 0)
    except (KeyboardInterrupt, RuntimeError) as error:
        if watch is None or not is_interrupt(error):
            raise


def _print(output: Output, answer: Found, *, clears: bool) -> int:
    """Print an answer, and return its exit code."""
    if clears:
        output.clear()
    warn(answer.warnings)
    has_rows = bool(answer.rows if answer.blocks is None else answer.blocks)
    missing = None if has_rows else _known(answer.missing)  # with rows, it may be known only after the last one
    if not (missing and output.is_text):
        if answer.blocks is not None:
            output.blocks(answer.blocks, closing=answer.closing)
        else:
            output.table(answer.columns, answer.rows, order=answer.order, closing=answer.closing)
    missing = _known(answer.missing) if missing is None else missing
    for message in missing:
        print_line(f"Error: {message}")
    code = _known(answer.exit_code)
    return 1 if missing and code != UNREACHABLE else code


def _known(value: T | Callable[[], T]) -> T:
    return value() if callable(value) else value
