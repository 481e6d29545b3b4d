"""docs/how-to/operations.md: what it names is there. `cli/test_night.py` and `tests/kafka` run its commands."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

from offsetstream.cli.main import main
from offsetstream.metrics.families import COORDINATORS, GROUPS, job_families, queried_families
from testkit.processes import leaves

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "operations.md").read_text("utf-8")
RUNBOOKS = [  # alerts lead to these
    "The job is behind",
    "An offsets partition is blocked",
    "Records cannot be decoded",
    "The job does not become ready",
    "The tables grow",
]
PARTS = ("**What one sees.**", "**What to look at.**", "**It is over when**")


def test_there_is_a_runbook_for_each_of_the_likeliest_problems() -> None:
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", GUIDE, re.DOTALL | re.MULTILINE))
    assert list(sections)[-len(RUNBOOKS) :] == RUNBOOKS
    for title in RUNBOOKS:
        assert all(part in sections[title] for part in PARTS), title
        assert "offsetstream " in sections[title]


def test_the_table_of_metrics_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "metrics_doc.py"))
    assert script["page_with_metrics"](GUIDE) == GUIDE, "run 'make docs'"


def test_every_metric_that_is_named_is_there() -> None:
    there = {*job_families()}
    for file in (COORDINATORS, GROUPS, "kafka-exporter", "kminion"):
        there |= {each.name for rows in queried_families(file) for each in rows.families}
    named = set(re.findall(r"\b(?:offsetstream|kafka|kminion)_[a-z_]+\b", GUIDE))
    assert len(named) > 20
    assert named - there == set()
    assert there - named == set()


def test_every_option_that_is_named_is_one() -> None:
    options = {
        option
        for _, command in leaves(main, [])
        for each in command.params
        for option in (*each.opts, *each.secondary_opts)
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", GUIDE))
    assert len(named) > 10
    assert named - options == {"--version", "--abort"}  # of the program itself; of Kafka's own tool


def test_every_benchmark_that_is_named_is_there() -> None:
    rows = json.loads((ROOT / "docs" / "explanation" / "benchmarks.json").read_text("utf-8"))["rows"]
    for words in re.findall(r"`python -m benchmarks ([a-z -]+)`", GUIDE):
        assert set(words.split()) <= {row["name"] for row in rows}
    for module in re.findall(r"`python -m benchmarks\.(\w+)`", GUIDE):
        assert (ROOT / "benchmarks" / f"{module}.py").exists()
