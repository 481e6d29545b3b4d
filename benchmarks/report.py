"""Writes the table of results: to the terminal, as JSON, and as docs/explanation/benchmarks.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.goals import GOALS
from benchmarks.results import Result

_ROOT = Path(__file__).parents[1]
RESULTS, PAGE, NOTES = (
    _ROOT / "docs" / "explanation" / "benchmarks.json",
    _ROOT / "docs" / "explanation" / "benchmarks.md",
    _ROOT / "benchmarks/notes.md",
)
_HEAD = ("what", "measured", "figure", "goal", "met")
_INTRODUCTION = """# Benchmarks

This page shows how fast the job and the commands are, compares them with peers, and explains where the time goes.
`make bench` measures everything and writes this page (data: `benchmarks.json`, code: `benchmarks/`).
`python -m benchmarks NAME` measures one row. Figures are medians, with minimum and maximum in parentheses. Broker, job
and peers share the cores of the machine. Each ratio compares two measurements of the same run.
"""
_NEXT = """
## Next

- [Size a job](../reference/sizing.md)
- [Design](../development/design.md): which engine does what, and what bounds memory
- [Reliability](reliability.md): what the tables promise
"""


def print_table(results: Iterable[Result], console: Console) -> None:
    """Print the rows."""
    table = Table(*_HEAD, show_lines=True)
    for row in results:
        table.add_row(*_cells(row, "\n"))
    console.print(table)


def save(results: Iterable[Result], machine: Mapping[str, str]) -> None:
    """Update these rows in the JSON file, keep its other rows, and write the page from all of them."""
    before = json.loads(RESULTS.read_text("utf-8"))["rows"] if RESULTS.exists() else []
    rows = {row["name"]: row for row in before} | {row.name: asdict(row) for row in results}
    found = {"machine": dict(machine), "rows": [rows[name] for name in GOALS if name in rows]}
    rows_text = ",\n".join(json.dumps(row, ensure_ascii=False) for row in found["rows"])
    machine_text = json.dumps(found["machine"], ensure_ascii=False)
    RESULTS.write_text(f'{{"machine": {machine_text},\n"rows": [\n{rows_text}\n]}}\n', "utf-8")
    PAGE.write_text(_page([Result.from_json(row) for row in found["rows"]], machine), "utf-8")


def _page(results: list[Result], machine: Mapping[str, str]) -> str:
    lines = [_INTRODUCTION, _markdown_row(_HEAD), _markdown_row(["---"] * len(_HEAD))]
    lines += [_markdown_row(_cells(row, "<br>")) for row in results]
    lines += ["", "| machine and versions | |", "| --- | --- |", *(_markdown_row(pair) for pair in machine.items())]
    days = sorted(row.measured_at[:10] for row in results)
    lines += [_markdown_row(("measured", days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}")), ""]
    lines += ["## What is measured", "", *_measures(results)]
    notes = ["", NOTES.read_text("utf-8").strip()] if NOTES.exists() else []
    return "\n".join([*lines, *notes, _NEXT])


def _measures(results: Iterable[Result]) -> Iterator[str]:
    """Yield one line for all rows that are measured the same way."""
    names: dict[str, list[str]] = {}
    for row in results:
        note = f" {row.note[0].upper()}{row.note[1:]}." if row.note else ""
        names.setdefault(f"{GOALS[row.name].measure}.{note}", []).append(f"`{row.name}`")
    return (f"- {', '.join(rows)}: {measure}" for measure, rows in names.items())


def _cells(row: Result, line_break: str) -> list[str]:
    goal = GOALS[row.name]
    measured = line_break.join(f"{samples.what}: {samples.text}" for samples in row.samples)
    scaled = f"{line_break}(at {row.scale:g} of its size)" if row.scale != 1 else ""
    figure = f"{row.figure:.2f} {goal.unit}"
    return [
        f"{goal.work} (`{row.name}`){scaled}",
        measured,
        figure,
        goal.text,
        "yes" if goal.is_met(row.figure) else "NO",
    ]


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
