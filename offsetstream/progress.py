"""What the job says while it works: a progress bar for a load, a line for a batch; or all as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from offsetstream.tables.engines import StateWrites


class Loaded(Protocol):
    """Takes what was just loaded: partitions, offsets, who merged, records left out (None without filters)."""

    def __call__(
        self, partitions: int, offsets: int, merged_by: Mapping[str, StateWrites], filtered: int | None = None
    ) -> None:
        """Tell it."""


_WRITERS = {StateWrites.DRIVER: "the driver", StateWrites.SPARK: "Spark"}


class Progress:
    """Speaks to a person on standard error; on something that is no terminal it writes plain lines.

    `as_json`: each line is an object with `time` (UTC), `level` (info or error), `message`, and the figures in it.
    """

    def __init__(self, console: Console | None = None, *, as_json: bool = False) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self.as_json = as_json

    def say(self, line: str, **figures: Any) -> None:
        """Write one line; the figures are in the words of it already."""
        self._write("info", line, figures)

    def error(self, line: str) -> None:
        """Write one line of what went wrong."""
        self._write("error", line, {})

    def _write(self, level: str, line: str, figures: Mapping[str, Any]) -> None:
        if self.as_json:
            self._console.out(json_line(level, line, figures), highlight=False)
        else:
            self._console.print(line, markup=False)

    def batch(
        self,
        batch_id: int,
        records: Mapping[str, int],
        seconds: float,
        merged_by: Mapping[str, StateWrites],
        filtered: int | None = None,
    ) -> None:
        """Write what a micro-batch did: its records by kind, how many were left out, and who merged into the state."""
        counts = ", ".join(f"{count:,} {table.replace('_', ' ')}" for table, count in records.items())
        said = f"Batch {batch_id}: {counts}{_filtered(filtered)}, {seconds:.1f} s{_state_by(merged_by)}"
        figures = {} if filtered is None else {"filtered": filtered}
        self.say(said, batch_id=batch_id, records=dict(records), **figures, seconds=round(seconds, 3))

    @contextmanager
    def load(self, partitions: int, offsets: int) -> Iterator[Loaded]:
        """Show a bar of loaded partitions; the function it gives takes what was just loaded."""
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

            def loaded(
                partitions: int, offsets: int, merged_by: Mapping[str, StateWrites], filtered: int | None = None
            ) -> None:
                nonlocal done
                done += partitions
                bar.advance(task, partitions)
                now = f"+{offsets:,} offsets{_filtered(filtered)}{_state_by(merged_by)}"
                said = f"  {done} of {total} offsets partitions loaded ({now})"
                self.say(said, loaded=done, partitions=total)

            yield loaded


def json_line(level: str, line: str, figures: Mapping[str, Any]) -> str:
    """Return the object of JSON that a line is, of now."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": time, "level": level, "message": line.strip(), **figures}, ensure_ascii=False)


def _filtered(records: int | None) -> str:
    return "" if records is None else f", {records:,} filtered"


def _state_by(merged_by: Mapping[str, StateWrites]) -> str:
    """Tell who wrote the state; by table where they were both."""
    tables = {way: [table for table, by in merged_by.items() if by is way] for way in _WRITERS}
    ways = [way for way, written in tables.items() if written]
    told = (f"{_WRITERS[way]} ({', '.join(tables[way])})" if len(ways) > 1 else _WRITERS[way] for way in ways)
    return f", state by {' and '.join(told)}" if ways else ""
