"""A look-up over all clusters of a settings file: query each cluster, and print all rows as one answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from offsetstream.cli.age import NOT_OK
from offsetstream.cli.failures import is_storage_error
from offsetstream.cli.options import GATHERED, Command, configurable, is_explicit, require_from_file
from offsetstream.cli.output import Block, Blocks, Closing, Column, Output, Row, all_columns, merge_blocks
from offsetstream.cli.text import prefix_lines, print_line
from offsetstream.errors import OffsetstreamError, UsageError, first_line, is_interrupt
from offsetstream.tables.location import store_at
from offsetstream.tables.store import Store

CLUSTER = Column("cluster", "CLUSTER", 10)
_FAILED = 1
_COMMON = (
    "output_format",
    "output_file",
    "raw",
    "wide",
    "no_pager",
)  # options of the combined answer; a cluster's section cannot change them


def query_all_clusters(ctx: click.Context, ask: Command, clusters: Mapping[str, Callable[[], object]]) -> None:
    """Query each cluster, print the combined answer, and exit with the worst exit code; with `--watch`, repeat.

    `clusters` has for each name a function that fills the context with that cluster's settings. A cluster that cannot
    be queried gives one error line and exit code 1; the answer has the others. Raise UsageError if the user names
    tables for all clusters.
    """
    require_from_file(ctx)
    watch = ctx.params.get("watch")
    try:
        while True:
            gathered = Gathered()
            ctx.meta[GATHERED] = gathered
            codes = {_ask(ctx, ask, name, fill, gathered) for name, fill in clusters.items()}
            gathered.print(is_watched=watch is not None)
            if watch is None:
                ctx.exit(_worst(codes))
            time.sleep(watch)
    except (KeyboardInterrupt, RuntimeError) as error:
        if watch is None or not is_interrupt(error):
            raise


def stores_of(ctx: click.Context, clusters: Mapping[str, Callable[[], object]]) -> dict[str, Store]:
    """Return the tables of each cluster. Raise UsageError if the user names tables for all clusters."""
    require_from_file(ctx)
    stores = {}
    for name, fill in clusters.items():
        fill()
        stores[name] = store_at(options_of(ctx)["tables"])
    return stores


def _ask(ctx: click.Context, ask: Command, name: str, fill: Callable[[], object], gathered: Gathered) -> int:
    """Query one cluster, and return its exit code."""
    gathered.cluster = name
    fill()
    options = options_of(ctx)
    with prefix_lines(name):
        try:
            ask(**options)
        except click.exceptions.Exit as exited:
            return exited.exit_code
        except UsageError:
            raise
        except OffsetstreamError as error:
            print_line(f"Error: {first_line(error)}")
            return error.exit_code
        except Exception as error:
            if is_interrupt(error) or not is_storage_error(error):
                raise
            print_line(f"Error: {first_line(error)}")
            return OffsetstreamError.exit_code
    return 0


def _worst(codes: set[int]) -> int:
    """Return the worst exit code: known trouble (4), then a failure (1), then the others."""
    return max(codes, key=lambda code: (code == NOT_OK, code == _FAILED, code), default=0)


def options_of(ctx: click.Context) -> dict[str, Any]:
    """Return the values of the options, with the cluster's values from the file."""
    options, from_file = dict(ctx.params), ctx.default_map or {}
    for option in configurable(ctx.command).values():
        name = str(option.name)
        if name in from_file and name not in _COMMON and not is_explicit(ctx, name):
            options[name] = option.process_value(ctx, from_file[name])
    if "watch" in options:
        options["watch"] = None
    return options


@dataclass
class Part:
    """The answer of one cluster."""

    cluster: str
    blocks: list[Block]
    closing: str | None


@dataclass
class Gathered:
    """The answers so far, and the current cluster. All rows are in memory."""

    cluster: str = ""
    parts: list[Part] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    is_table: bool = True
    order: str | None = None  # of the rows of a table

    def collecting_output(self, output: Output) -> Output:
        """Return an Output that collects the answer instead of printing it to `output`."""
        self.outputs.append(output)
        return _Gathering(self, output)

    def print(self, *, is_watched: bool) -> None:
        """Print all answers as one table, or as blocks. The outputs are all alike; the last one prints."""
        if not self.parts:
            return
        output = self.outputs[-1]
        if is_watched:
            output.pager = False
            output.clear()
        blocks = [_with_cluster(part.cluster, block) for part in self.parts for block in part.blocks]
        if not self.is_table:
            output.blocks(merge_blocks(blocks))
        elif blocks:
            output.table(all_columns(blocks), [row for block in blocks for row in block.rows], order=self.order)
        for part in self.parts:
            if part.closing is not None:
                print_line(f"{part.cluster}: {part.closing}", err=not (output.is_text and output.file is None))


class _Gathering(Output):
    """An Output that keeps the answer of a cluster until all have answered."""

    def __init__(self, gathered: Gathered, output: Output) -> None:
        super().__init__(output.output_format, output.file)
        self._gathered = gathered

    def table(
        self, columns: Sequence[Column], rows: Iterable[Row], *, order: str | None = None, closing: Closing = None
    ) -> None:
        """Keep the table. Read its rows now: the caller reports missing names after this call."""
        self._gathered.order = order
        self._keep([Block(columns, list(rows))], closing)

    def blocks(self, blocks: Iterable[Blocks], *, closing: Closing = None) -> None:
        """Keep the blocks."""
        self._gathered.is_table = False
        self._keep([block for some in blocks for block in some.each()], closing)

    def _keep(self, blocks: list[Block], closing: Closing) -> None:
        sentence = closing() if callable(closing) else closing
        self._gathered.parts.append(Part(self._gathered.cluster, blocks, sentence))


def _with_cluster(cluster: str, block: Block) -> Block:
    return Block((CLUSTER, *block.columns), [{**row, CLUSTER.name: cluster} for row in block.rows])
