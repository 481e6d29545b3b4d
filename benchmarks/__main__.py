"""`python -m benchmarks [NAME…] [--scale F] [--save]`: measure the named rows, or all, and print the table."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping

from rich.console import Console

from benchmarks import (
    answers,
    backlog,
    codec,
    first_load,
    large_groups,
    many_partitions,
    million_groups,
    scale,
    sparse,
    start,
    steady,
    writes,
)
from benchmarks.goals import GOALS
from benchmarks.machine import describe_machine
from benchmarks.report import print_table, save
from benchmarks.results import Result

SUITES = (
    codec,
    first_load,
    sparse,
    start,
    steady,
    backlog,
    many_partitions,
    large_groups,
    million_groups,
    scale,
    writes,
    answers,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"rows: {', '.join(GOALS)} [default: all]")
    parser.add_argument("--scale", type=float, default=1.0, metavar="F", help="factor for all numbers of records [1]")
    parser.add_argument("--save", action="store_true", help="write docs/explanation/benchmarks.json and .md")
    options = parser.parse_args()
    if unknown := set(options.names) - GOALS.keys():
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(GOALS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that brokers and jobs end with this process
    console, started = Console(soft_wrap=True), time.monotonic()
    results: dict[str, Result] = {}
    failed = False
    for measured, is_whole in _measure(set(options.names) or set(GOALS), options.scale, console):
        results |= measured
        failed |= not is_whole
        if options.save:  # after each suite, so that an interrupted run keeps its results
            save(_in_order(measured), describe_machine())
    print_table(_in_order(results), Console(width=None if sys.stdout.isatty() else 160))
    console.print(f"{len(results)} rows in {(time.monotonic() - started) / 60:.1f} minutes")
    return 1 if failed else 0


def _in_order(results: Mapping[str, Result]) -> list[Result]:
    return [results[name] for name in GOALS if name in results]


def _measure(wanted: set[str], scale: float, console: Console) -> Iterator[tuple[dict[str, Result], bool]]:
    """Run the suites that have requested rows. Yields the results of each suite, and whether they are complete.

    A suite that fails is reported, and the others continue.
    """
    for suite in SUITES:
        if not wanted & set(suite.ROWS):
            continue
        started, results, is_whole = time.monotonic(), dict[str, Result](), True
        try:
            for row in suite.measure(wanted, scale):
                results[row.name] = row
                console.print(f"{row.name}: {row.figure:.2f} {GOALS[row.name].unit}; goal {GOALS[row.name].text}")
        except Exception:  # any error: the other suites still run
            traceback.print_exc()
            is_whole = False
        console.print(f"{suite.__name__}: {(time.monotonic() - started) / 60:.1f} minutes")
        yield results, is_whole


if __name__ == "__main__":
    sys.exit(main())
