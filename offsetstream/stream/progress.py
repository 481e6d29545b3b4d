"""What the job says while it works: a progress bar for a load, a line for a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    """Speaks to a person on standard error; on something that is no terminal it writes plain lines."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """Write one line."""
        self._console.print(line, markup=False)

    def batch(self, batch_id: int, records: Mapping[str, int], seconds: float) -> None:
        """Write what a micro-batch did: the records that it added to each history table."""
        counts = ", ".join(f"{count:,} {table.replace('_', ' ')}" for table, count in records.items())
        self.say(f"Batch {batch_id}: {counts}, {seconds:.1f} s")

    @contextmanager
    def load(self, partitions: int, offsets: int) -> Iterator[Callable[[int, int], None]]:
        """Show a bar of loaded partitions; the function it gives takes the partitions and offsets just loaded."""
        self.say(f"Loading {partitions} offsets partitions: {offsets:,} offsets to read")
        done = 0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(
            SpinnerColumn(), *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        ) as bar:
            task = bar.add_task("offsets partitions loaded", total=partitions)

            def loaded(partitions_now: int, offsets_now: int) -> None:
                nonlocal done
                done += partitions_now
                bar.advance(task, partitions_now)
                self.say(f"  {done} of {partitions} offsets partitions loaded (+{offsets_now:,} offsets)")

            yield loaded
