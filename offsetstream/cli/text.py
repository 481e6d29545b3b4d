"""Texts for a person: lines next to an answer, counts, durations, and times as people write them (10m, 03:00).

A time without a zone is in UTC.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

_prefix = ContextVar("prefix", default="")


def printable(text: str) -> str:
    """Return the text with control and invisible characters escaped as in Python: an id may contain any character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def counted(number: int, what: str) -> str:
    """Return a number of things: 1 group, 2 groups."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def print_line(line: str, *, err: bool = True, fg: str | None = None) -> None:
    """Print a line for a person to stderr, or with `err=False` to stdout.

    Lines about one of several clusters always go to stderr. `fg` is the colour on a terminal.
    """
    text = _prefixed(line)
    click.echo(click.style(text, fg=fg) if fg and allows_color() else text, err=err or bool(_prefix.get()))


def warn(lines: Sequence[str]) -> None:
    """Print warnings to stderr, in red on a terminal."""
    for line in lines:
        print_line(line, fg="red")


def allows_color() -> bool:
    """Tell whether a terminal may have colours (https://no-color.org)."""
    return not os.environ.get("NO_COLOR")


def print_lines(lines: Sequence[str]) -> None:
    """Print lines to stderr as `print_line` does, each after an empty line, in one write: there may be a million."""
    click.echo("".join([f"\n{_prefixed(line)}\n" for line in lines]), err=True, nl=False)


def _prefixed(line: str) -> str:
    cluster = _prefix.get()
    return printable(f"{cluster}: {line}" if cluster else line)


@contextmanager
def prefix_lines(cluster: str) -> Iterator[None]:
    """Have `print_line` start its lines with the name of a cluster while the context lasts."""
    before = _prefix.set(cluster)
    try:
        yield
    finally:
        _prefix.reset(before)


if TYPE_CHECKING:
    ParamType = click.ParamType
else:

    class ParamType(click.ParamType):
        """click.ParamType with a type in brackets, which click has since 8.4; platforms ship 8.1."""

        def __class_getitem__(cls, _: object) -> type[ParamType]:
            return cls


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1000
_REMEMBERED = 4096  # texts in the cache: many rows have the same times
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"(?:\d{1,9}(?:ms|s|min|m|h|d|w) *)+", re.ASCII)
_PART = re.compile(r"(\d+)(ms|s|min|m|h|d|w)")
_INSTANT = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d)|(?P<word>today|yesterday))?[T ]?(?P<time>\d\d?:\d\d(?::\d\d(?:\.\d{1,6})?)?)?"
    r" ?(?P<zone>[zZ]|[+-]\d\d:?\d\d|[A-Za-z]+(?:/[\w+-]+)+|UTC)?",
    re.ASCII,
)
_EXPECTED = "give 10m, 2h, 03:00, 2026-11-21T03:00 or 2026-11-21T03:00+01:00; without a zone it is UTC"
_SIZES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (_SECOND, "s"))


def milliseconds(instant: datetime) -> int:
    """Return the milliseconds since 1970."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(_REMEMBERED)
def time_text(since_1970_ms: int | None) -> str | None:
    """Return the time in UTC as ISO 8601. Return a number that is out of range as it is: clients may send any."""
    if since_1970_ms is None:
        return None
    try:
        time = _EPOCH + timedelta(milliseconds=since_1970_ms)
    except OverflowError:
        return str(since_1970_ms)
    return instant_text(time)


@lru_cache(_REMEMBERED)
def instant_text(instant: datetime | None) -> str | None:
    """Return the instant in UTC as ISO 8601, with milliseconds."""
    if instant is None:
        return None
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@lru_cache(_REMEMBERED)
def duration_text(milliseconds: float | None) -> str | None:
    """Return a duration in its two largest units: 940 ms, 1.2 s, 5 min 15 s, 3 d 4 h."""
    if milliseconds is None:
        return None
    whole = round(abs(milliseconds))
    if not whole:
        return "0 s"
    sign = "-" if milliseconds < 0 else ""
    if whole < _SECOND:
        return f"{sign}{whole} ms"
    if whole < 10 * _SECOND:
        return f"{sign}{whole / _SECOND:.1f} s"
    at = next(at for at, (size, _) in enumerate(_SIZES) if whole >= size)
    size, unit = _SIZES[at]
    smaller, smaller_unit = _SIZES[min(at + 1, len(_SIZES) - 1)]
    rest = whole % size // smaller
    return f"{sign}{whole // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")


def length_text(length: timedelta) -> str | None:
    """Return a length of time as `duration_text` does."""
    return duration_text(length / timedelta(milliseconds=1))


def waiting_time_text(seconds: float | None, *, at_least: bool) -> str | None:
    """Return how long a message has waited; with `>` if it waited longer than the samples can show."""
    text = None if seconds is None else duration_text(seconds * 1000)
    return f">{text}" if text and at_least else text


def capitalized(text: str) -> str:
    """Return the text with a capital first letter, as a sentence starts."""
    return text[:1].upper() + text[1:]


def parse_duration(text: str) -> timedelta:
    """Parse 10m, 2h, 1d12h. Raise ValueError for anything else."""
    written = text.strip()
    try:
        if _AGO.fullmatch(written):
            return timedelta(milliseconds=sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(written)))
    except OverflowError:
        pass
    raise ValueError(f"'{text}' is not a duration: give 30s, 10m, 2h, 1d or 1d12h")


def parse_time(text: str, now: datetime) -> datetime:
    """Parse a past time: a duration ago, a time of day, or an instant. Raise ValueError for anything else.

    A time of day without a date means its last occurrence, in its zone.
    """
    written = text.strip()
    if written == "now":
        return now
    ago, match = written.removesuffix("ago").strip(), _INSTANT.fullmatch(written)
    try:
        if _AGO.fullmatch(ago):
            return now - parse_duration(ago)
        if match and (match["day"] or match["word"] or match["time"]):
            return _instant(match, now)
    except (ValueError, OverflowError, ZoneInfoNotFoundError) as error:
        raise ValueError(f"'{text}' is not a time ({error}): {_EXPECTED}") from error
    raise ValueError(f"'{text}' is not a time: {_EXPECTED}")


def _instant(match: re.Match[str], now: datetime) -> datetime:
    zone = _zone(match["zone"])
    hours, _, rest = (match["time"] or "00:00").partition(":")
    of_day = time.fromisoformat(f"{hours:>02}:{rest}")
    if match["day"]:
        return datetime.combine(date.fromisoformat(match["day"]), of_day, zone).astimezone(UTC)
    day = now.astimezone(zone).date() - timedelta(days=match["word"] == "yesterday")
    if match["word"]:
        return datetime.combine(day, of_day, zone).astimezone(UTC)
    # When a clock is set back, a time of day occurs twice.
    occurrences = [datetime.combine(day, of_day.replace(fold=fold), zone).astimezone(UTC) for fold in (0, 1)]
    if max(occurrences) <= now:
        return max(occurrences)
    return (
        occurrences[0]
        if occurrences[0] <= now
        else datetime.combine(day - timedelta(days=1), of_day, zone).astimezone(UTC)
    )


def _zone(text: str | None) -> tzinfo:
    if text is None or text in {"z", "Z", "UTC"}:
        return UTC
    if text[0] in "+-":
        return datetime.strptime(text, "%z").tzinfo or UTC
    try:
        return ZoneInfo(text)
    except OSError as error:  # a folder of zones, such as America/Argentina
        raise ZoneInfoNotFoundError(f"No time zone found with key {text}") from error


class Instant(ParamType[datetime]):
    """A parameter type for a past time; its errors show the accepted forms."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse the value."""
        if isinstance(value, datetime):
            return value
        now = datetime.now(UTC)
        try:
            instant = parse_time(value, now)
        except ValueError as error:
            return self.fail(str(error), param, ctx)
        return instant


class Duration(ParamType[timedelta]):
    """A parameter type for a duration such as 1d12h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse the value."""
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            return self.fail(str(error), param, ctx)
