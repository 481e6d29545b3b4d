"""Reads the queries of dashboards and alerts, finds their metrics, and evaluates them with Prometheus' own tool."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testkit.programs import go_program

MONITORING = Path(__file__).parents[3] / "monitoring"
ALERTS = MONITORING / "prometheus" / "alerts.yml"
DASHBOARDS = sorted((MONITORING / "grafana" / "dashboards").glob("*.json"))
# First all parts whose words are not metrics. Then a word, and the character that shows whether it is a function.
_WORDS = re.compile(
    r"""
    "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'                                       # text
    | \{ (?: "(?:\\.|[^"\\])*" | [^}"] )* \} | \[ [^\]]* \] | \b\d[\w.]*        # labels, ranges, numbers
    | \b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)
    | (?P<word>[a-zA-Z_:][\w:]*) (?P<called>\s*\( | \s+(?=by\b|without\b))?
    """,
    re.VERBOSE,
)
_OPERATORS = {"and", "or", "unless", "offset", "bool", "inf", "nan", "atan2"}
_OF_VARIABLE = re.compile(r"label_values\((.*), (\w+)\)")
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True)
class Query:
    """A query of a panel or a variable: where it is, and the labels that it shows."""

    place: str
    expression: str
    shows: tuple[str, ...]


def metrics_in(expression: str) -> set[str]:
    """Return the metrics of an expression: all words that are not a label, function or operator."""
    words = (each for each in _WORDS.finditer(expression) if each["word"] and not each["called"])
    return {each["word"] for each in words if each["word"].lower() not in _OPERATORS}


def dashboard(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return read


def queries(path: Path) -> Iterator[Query]:
    """Yield the queries of a dashboard, with unreplaced variables."""
    for variable in dashboard(path)["templating"]["list"]:
        if variable["type"] == "query":
            asked = _OF_VARIABLE.fullmatch(variable["query"])
            assert asked is not None, variable["query"]
            yield Query(f"${variable['name']}", asked[1], (asked[2],))
    for panel in dashboard(path)["panels"]:
        for target in panel.get("targets", []):
            shows = tuple(_LEGEND.findall(target.get("legendFormat", "")))
            yield Query(panel["title"], target["expr"], shows)


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def filled(expression: str) -> str:
    """Return a query as Grafana sends it when each variable is set to All."""
    expression = expression.replace("$__rate_interval", "5m")
    return re.sub(r'"\$\w+"', '".*"', expression)


PROMTOOL = ("github.com/prometheus/prometheus/cmd/promtool", "v0.316.0")


def promtool(*arguments: str | Path, given: str = "") -> str:
    """Run promtool and return its output; AssertionError with the output if it fails."""
    command = [str(go_program(*PROMTOOL)), *map(str, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
