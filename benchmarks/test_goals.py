"""The table of `make bench`: one suite measures each row, and the page shows what the JSON file has."""

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.__main__ import SUITES
from benchmarks.goals import GOALS, TIMES
from benchmarks.results import Result, Samples

MACHINE = {"processor": "of a test"}


def test_one_suite_measures_each_row() -> None:
    assert Counter(row for suite in SUITES for row in suite.ROWS) == Counter(GOALS.keys())


def test_saving_keeps_the_rows_that_were_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "benchmarks.json")
    monkeypatch.setattr(report, "PAGE", tmp_path / "benchmarks.md")
    loop = Samples.of("loop", "M records/s", [0.5, 0.5])
    report.save([Result.ratio("codec", Samples.of("codec", "M records/s", [4.9, 5.0, 5.1]), loop)], MACHINE)
    report.save([Result.of("steady", Samples.of("batch", "s", [2.5]), "Of a test")], MACHINE)
    rows = json.loads(report.RESULTS.read_text("utf-8"))["rows"]
    assert [(row["name"], row["figure"]) for row in rows] == [("codec", 10.0), ("steady", 2.5)]
    page = report.PAGE.read_text("utf-8").splitlines()
    assert [line.split(" | ")[1:] for line in page if line.endswith((" yes |", " NO |"))] == [
        [
            "codec: 5 (4.9 to 5.1) M records/s<br>loop: 0.5 (0.5 to 0.5) M records/s",
            f"10.00 {TIMES}",
            f"≥ 10 {TIMES}",
            "yes |",
        ],
        ["batch: 2.5 s", "2.50 s", "≤ 1 s", "NO |"],
    ]
    assert "| processor | of a test |" in page
