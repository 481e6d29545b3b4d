"""Kinds of values in settings: how messages name them, how they are parsed, and how they are written back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from offsetstream.errors import first_line

if TYPE_CHECKING:
    import pyarrow as pa

# The schema of a catalog, as in lake.kafka; a folder of such a name is written ./lake.kafka.
CATALOG = re.compile(r"[^\W\d][\w-]*(\.[^\W\d][\w-]*)+")
_PART = r"(\d{1,15}) +(week|day|hour|minute|second|millisecond)s?(?: +|$)"
_FLAGS = re.IGNORECASE | re.ASCII
_YEAR = timedelta(days=365)
_LAST_PORT = 65_535
_MEMORY = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?([KMGT])(i?)B", re.IGNORECASE)  # 400MB or 1.5GiB, as DuckDB writes it
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,252})")  # as in a URL: other alphabets are written as xn--
_COMPLETE = r"\A(?s:{})\z"  # a dot matches any character: a name may contain line breaks
_DAYS = {"d": 1, "day": 1, "days": 1, "w": 7, "week": 7, "weeks": 7}


@dataclass(frozen=True)
class Kind:
    """A kind of value: its name in messages, its TOML types, its parser (raises ValueError), and its writer."""

    name: str
    toml: tuple[type, ...]
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value


def _brokers(value: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text: give host:port, or several separated by commas")  # noqa: TRY004 - ours
    brokers = [broker.strip() for broker in value.split(",")]
    if not all(brokers):
        raise ValueError(f"{value!r} lacks a broker: give host:port, or several separated by commas")
    for broker in brokers:
        port = broker.rpartition(":")[2] if ":" in broker else ""
        if port.isdecimal() and not 1 <= int(port) <= _LAST_PORT:  # librdkafka would silently use another port
            raise ValueError(f"{broker!r} has an invalid port: ports are from 1 to {_LAST_PORT}")
    return ",".join(brokers)


def _interval(value: str) -> str:
    text = str(value).strip()
    if not re.fullmatch(f"(?:{_PART})+", text, _FLAGS) or not _is_short(text):
        raise ValueError(
            f"{value!r} is not a valid interval: give '10 seconds' or '1 minute 30 seconds', at most a year"
        )
    return text


def _is_short(interval: str) -> bool:
    try:
        return length_of(interval) <= _YEAR
    except OverflowError:
        return False


def length_of(interval: str) -> timedelta:
    """Return the length of an interval such as "1 minute 30 seconds". Raise OverflowError if it is too long."""
    parts = re.findall(_PART, interval, _FLAGS)
    return sum((timedelta(**{f"{unit.lower()}s": int(number)}) for number, unit in parts), timedelta())


def _minutes(value: float | str | timedelta) -> timedelta:
    if isinstance(value, timedelta):
        if value >= timedelta():
            return value
        value = value / timedelta(minutes=1)
    try:
        minutes = float(value)
        if minutes >= 0:  # false for nan
            return timedelta(minutes=minutes)
    except OverflowError:  # inf: wait without limit
        return timedelta.max
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{value!r} is not a number of minutes: give zero or more, or inf")


def _in_minutes(value: timedelta) -> str:
    return "inf" if value == timedelta.max else f"{value / timedelta(minutes=1):g}"


def _seconds(value: float | str) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds <= _YEAR.total_seconds():  # false for nan too
        raise ValueError(f"{value!r} is not a number of seconds from 0 to {_YEAR.total_seconds():.0f} (a year)")
    return seconds


def _pause(value: float | str) -> float:
    if not (seconds := _seconds(value)):
        raise ValueError("give more than 0 seconds")
    return seconds


def _age(value: float | str) -> float:
    return math.inf if str(value).strip().lower() in ("none", "inf") else _seconds(value)


def _days(value: str | timedelta) -> timedelta:
    if isinstance(value, timedelta) and value >= timedelta(days=1):
        return value
    match = re.fullmatch(r"(?:interval\s+)?(\d{1,5})\s*([a-z]*)", str(value).strip().lower())
    days = int(match[1]) * _DAYS.get(match[2], 0) if match else 0
    if not days:
        raise ValueError(f"{value!r} is not a number of days: give 30d, 4w or 'interval 30 days', at least 1d")
    return timedelta(days=days)


def _kept(value: str) -> str:
    table, is_of_table, duration = str(value).strip().rpartition("=")
    days = f"{_days(duration).days}d"
    return f"{table.strip()}={days}" if is_of_table else days


def _memory(value: str) -> str:
    text = str(value).strip()
    if not _MEMORY.fullmatch(text) or not bytes_of(text):
        raise ValueError(f"{value!r} is not a size of memory: give 400MB or 2GB")
    return text


def bytes_of(memory: str) -> int:
    """Return the bytes of a size of memory such as "400MB" or "1.5GiB"."""
    match = _MEMORY.fullmatch(memory)
    if match is None:
        raise ValueError(f"{memory!r} is not a size of memory")
    number, unit, is_binary = match.groups()
    return int(float(number) * (1024 if is_binary else 1000) ** (1 + "KMGT".index(unit.upper())))


def _pairs(value: Mapping[str, str] | list[str] | tuple[str, ...]) -> dict[str, str]:
    if isinstance(value, Mapping):
        if wrong := next((name for name, text in value.items() if not isinstance(text, str)), None):
            raise ValueError(f"{wrong} is not a text")  # without the value, which may be a password
        return dict(value)
    if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) and "=" in text for text in value):
        raise ValueError("give NAME=VALUE")
    return {name: text for name, _, text in (pair.partition("=") for pair in value)}


def _host(value: str) -> str:
    name = value.strip().rstrip(".").lower() if isinstance(value, str) else ""
    if not _HOST.fullmatch(name):
        raise ValueError(f"{value!r} is not a host name: give the name alone, such as offsetstream.example.com")
    return name


# Regular expressions (RE2) match complete names. RE2 takes linear time, so no name can make a match slow.


def checked_pattern(pattern: Any) -> str:
    """Return the pattern. Raise ValueError if it is empty or not valid in RE2."""
    import pyarrow as pa  # noqa: PLC0415 - slow, and look-ups need no pattern

    if not isinstance(pattern, str) or not pattern:
        raise ValueError(
            f"{pattern!r} is not a regular expression: omit the setting, or give one such as 'team-a\\..*'"
        )
    try:
        _search(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        reason = first_line(error).removeprefix("Invalid regular expression: ")
        raise ValueError(f"{pattern!r} is not a regular expression that RE2 accepts: {reason}") from error
    try:
        whole_matches(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:  # RE2's message would show parentheses that the user did not write
        raise ValueError(f"{pattern!r} leaves something open: close it, for example \\Q with \\E") from error
    return pattern


def whole_matches(names: pa.Array, pattern: str) -> pa.Array:
    """Return for each name whether the pattern matches it completely; null for a null name."""
    return _search(names, _COMPLETE.format(pattern))


def _search(names: pa.Array, pattern: str) -> pa.Array:
    import pyarrow.compute as pc  # noqa: PLC0415 - slow

    return pc.match_substring_regex(names, pattern)


BROKERS = Kind("a text", (str,), _brokers)
INTERVAL = Kind("a text", (str,), _interval)  # of time, in Spark's notation
MINUTES = Kind("a number of minutes", (int, float), _minutes, _in_minutes)
SECONDS = Kind("a number of seconds", (int, float), _seconds)
PAUSE = Kind("a number of seconds", (int, float), _pause)  # between two answers
# In seconds; 'none' is infinite: nothing is too old.
AGE = Kind(
    "a number of seconds, or none", (int, float, str), _age, lambda value: "none" if value == math.inf else value
)
# 30d, 4w, or in the notation of Delta's properties: interval 30 days.
DAYS = Kind("a text", (str,), _days, lambda value: f"{value.days}d")
KEPT = Kind("a text", (str,), _kept)  # 30d, or for one table: offset_commits=30d
MEMORY = Kind("a text", (str,), _memory)
REGEX = Kind("a text", (str,), checked_pattern)  # RE2; matches a complete name
HOST = Kind("a text", (str,), _host)  # without a port
PAIRS = Kind("a table", (dict,), _pairs)  # NAME=VALUE
