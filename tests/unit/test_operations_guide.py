"""The operators' pages: everything that they name exists. `cli/test_night.py` and `tests/kafka` run their commands."""

from __future__ import annotations

import json
import re
import runpy
from datetime import timedelta
from pathlib import Path

from offsetstream import JobSettings
from offsetstream.cli.main import main
from offsetstream.metrics.families import COORDINATORS, GROUPS, job_families, queried_families
from offsetstream.stream.monitor.topics import SAFE_SHARE
from testkit.processes import leaves

ROOT = Path(__file__).parents[2]
OPERATIONS, MONITOR, RUNBOOK = (
    (ROOT / "docs" / "how-to" / f"{page}.md").read_text("utf-8") for page in ("operations", "monitor", "runbooks")
)
METRICS, SIZING = ((ROOT / "docs" / "reference" / f"{page}.md").read_text("utf-8") for page in ("metrics", "sizing"))
GUIDE = OPERATIONS + MONITOR + RUNBOOK
RUNBOOKS = [  # alerts link to these
    "The job is behind",
    "An offsets partition is blocked",
    "Records cannot be decoded",
    "The job does not become ready",
    "A table is damaged",
    "The tables grow",
]
PARTS = ("**You see.**", "**Check**", "**It is over when**")


def test_there_is_a_runbook_for_each_of_the_likeliest_problems() -> None:
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", RUNBOOK, re.DOTALL | re.MULTILINE))
    assert list(sections) == RUNBOOKS
    for title in RUNBOOKS:
        assert all(part in sections[title] for part in PARTS), title
        assert "offsetstream " in sections[title]


def test_the_table_of_metrics_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "metrics_doc.py"))
    assert script["page_with_metrics"](METRICS) == METRICS, "run 'make docs'"


def test_every_named_metric_exists() -> None:
    there = {*job_families()}
    for file in (COORDINATORS, GROUPS, "kafka-exporter", "kminion"):
        there |= {each.name for rows in queried_families(file) for each in rows.families}
    in_guide, in_reference = (
        set(re.findall(r"\b(?:offsetstream|kafka|kminion)_[a-z_]+\b", text)) for text in (GUIDE, METRICS)
    )
    assert len(in_guide) > 10
    assert in_guide - there == set()
    assert in_reference == there


def test_every_named_option_exists() -> None:
    options = {
        option
        for _, command in leaves(main, [])
        for each in command.params
        for option in (*each.opts, *each.secondary_opts)
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", GUIDE))
    assert len(named) > 10
    of_kafka = {"--alter", "--entity-type", "--entity-name", "--add-config"}
    assert named - options == {"--version"} | of_kafka


def test_every_named_benchmark_exists() -> None:
    rows = json.loads((ROOT / "docs" / "explanation" / "benchmarks.json").read_text("utf-8"))["rows"]
    for words in re.findall(r"`python -m benchmarks ([a-z -]+)`", SIZING):
        assert set(words.split()) <= {row["name"] for row in rows}
    for module in re.findall(r"`python -m benchmarks\.(\w+)`", SIZING):
        assert (ROOT / "benchmarks" / f"{module}.py").exists()


def test_the_advised_compaction_lag_covers_the_longest_silence() -> None:
    (milliseconds,) = re.findall(r"--add-config min\.compaction\.lag\.ms=(\d+)", OPERATIONS)
    assert SAFE_SHARE * timedelta(milliseconds=int(milliseconds)) > JobSettings.max_silence
