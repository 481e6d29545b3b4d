"""The log of the job on standard error: one line for each event, as text or as JSON, and a progress bar for a load."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

_LONG = 100  # seconds; longer times are told in minutes
INFO, WARN, ERROR = "info", "warn", "error"
# The time and the level at the start of a text line, as `text_line` writes them.
LINE_START = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?:INFO |WARN |ERROR) ")


class Loaded(Protocol):
    """Reports a chunk of a load: its partitions and offsets, and the filtered records, None without filters."""

    def __call__(self, partitions: int, offsets: int, filtered: int | None, read: str) -> None:
        """Write a line, and advance the progress bar."""


class _Log(Console):
    """Standard error. If its reader goes away, such as a log collector that restarts, the job continues without it."""

    def on_broken_pipe(self) -> None:
        """Drop all further text. Rich would end the thread that wrote, which may be a batch's."""
        self.quiet = True


class Progress:
    """Writes log lines to standard error. On a terminal, a load also has a progress bar.

    A line is text: the time (UTC), the level (INFO, WARN or ERROR) and the message. With `as_json` it is an object
    with `time`, `level` (info, warn or error), `message`, and the figures of the message.
    """

    def __init__(self, console: Console | None = None, *, as_json: bool = False) -> None:
        self._console = console or _Log(stderr=True, highlight=False, soft_wrap=True)
        self.as_json = as_json
        self.on_line: Callable[[], None] = lambda: None  # called after each line, by the thread that writes it

    def say(self, message: str, **figures: Any) -> None:
        """Write a line of level INFO. The message contains the figures already; JSON has them as keys too."""
        self._write(INFO, message, figures)

    def warn(self, message: str) -> None:
        """Write a line of level WARN: the job continues, but something is missing, late or unusual."""
        self._write(WARN, message, {})

    def error(self, message: str) -> None:
        """Write a line of level ERROR: the job ends."""
        self._write(ERROR, message, {})

    def _write(self, level: str, message: str, figures: Mapping[str, Any]) -> None:
        line = json_line(level, message, figures) if self.as_json else text_line(level, message)
        self._console.out(line, highlight=False)
        self.on_line()

    def batch(
        self,
        batch_id: int,
        records: Mapping[str, int],
        seconds: float,
        filtered: int | None = None,
        *,
        to_go: int = 0,
        per_second: float = 0.0,
    ) -> None:
        """Write the line of a micro-batch: its records by kind, and those filtered.

        `to_go`: the offsets that the job has still to read, if it is behind. `per_second`: how many this batch read.
        """
        counts = ", ".join(f"{count:,} {table.replace('_', ' ')}" for table, count in records.items())
        message = f"Batch {batch_id}: {counts}{_filtered(filtered)}, {seconds:.1f} s"
        figures = {} if filtered is None else {"filtered": filtered}
        if to_go:
            rest = to_go / per_second
            message += f"; {to_go:,} offsets to go, {_duration(rest)} at {per_second:,.0f} a second"
            figures |= {"offsets_to_go": to_go, "seconds_to_go": round(rest)}
        self.say(message, batch_id=batch_id, records=dict(records), **figures, seconds=round(seconds, 3))

    @contextmanager
    def load(self, partitions: int, offsets: int) -> Iterator[Loaded]:
        """Show the progress of a load. Call the function that this yields after each loaded chunk."""
        self.say(f"Loading {partitions} offsets partitions: {offsets:,} offsets to read", offsets=offsets)
        done, total = 0, partitions
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(
            SpinnerColumn(),
            *columns,
            console=self._console,
            transient=True,
            disable=self.as_json or not self._console.is_terminal,
        ) as bar:
            task = bar.add_task("offsets partitions loaded", total=partitions)

            def loaded(partitions: int, offsets: int, filtered: int | None, read: str) -> None:
                nonlocal done
                done += partitions
                bar.advance(task, partitions)
                chunk = f"+{offsets:,} offsets{_filtered(filtered)}, read {read}"
                message = f"{done} of {total} offsets partitions loaded ({chunk})"
                self.say(message, loaded=done, partitions=total, read=read)

            yield loaded


def text_line(level: str, message: str) -> str:
    """Return a log line of now as text: `2026-11-28T20:15:03.123Z INFO  Batch 4: …`."""
    return f"{_now()} {level.upper():<5} {message.strip()}"


def json_line(level: str, message: str, figures: Mapping[str, Any]) -> str:
    """Return a log line of now as a JSON object."""
    return json.dumps({"time": _now(), "level": level, "message": message.strip(), **figures}, ensure_ascii=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _LONG else f"{seconds / 60:,.0f} min"


def _filtered(records: int | None) -> str:
    return "" if records is None else f", {records:,} filtered"
