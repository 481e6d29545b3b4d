"""Grafana dashboards: current, readable by Grafana's own classes, and made of metrics that exist."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.unit.monitoring.declared import LABELS_OF_SCRAPES, declared_labels
from tests.unit.monitoring.prometheus import ALERTS, DASHBOARDS, alerts, dashboard, metrics_in, queries

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "dashboards.py"
CHOSEN = re.compile(r"(\w+)\{([^}]*)\}")
NAMES = [path.stem for path in DASHBOARDS]


def panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in dashboard(path)["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of panels, variables and alerts, with its place."""
    for path in DASHBOARDS:
        yield from ((f"{path.name}: {query.place}", query.expression) for query in queries(path))
    yield from ((f"{ALERTS.name}: {alert['alert']}", alert["expr"]) for alert in alerts())


def test_metric_names_are_distinguished_from_other_words() -> None:
    rate = 'sum by (group) (rate(one{topic=~"a}b"}[5m] offset 15m))'
    assert metrics_in(f"{rate} / on (topic) group_left () two and ignoring (x) three > 4e3") == {"one", "two", "three"}
    assert metrics_in("topk(5, sum without (state)(up == bool 1)) or absent(kafka_a:b)") == {"up", "kafka_a:b"}


def test_the_files_are_current() -> None:
    script = runpy.run_path(str(SCRIPT))
    assert set(script["DASHBOARDS"]) == set(NAMES)
    for path in DASHBOARDS:
        assert path.read_text("utf-8") == script["dashboard_json"](path.stem), "run 'make docs'"


@pytest.mark.parametrize("path", DASHBOARDS, ids=NAMES)
def test_grafana_classes_read_the_complete_files(path: Path) -> None:
    register_default_plugins()
    read = Dashboard.from_json(dashboard(path))
    assert JSONEncoder(indent=2).encode(read) + "\n" == path.read_text("utf-8")


def test_every_metric_is_declared_with_the_labels_that_queries_select() -> None:
    declared = declared_labels()
    found = list(expressions())
    assert len(found) > 60
    unknown = [(where, name) for where, each in found for name in metrics_in(each) if name not in declared]
    assert unknown == []
    for where, expression in found:
        for name, matchers in CHOSEN.findall(expression):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert labels <= declared[name] | LABELS_OF_SCRAPES, (where, name)


def test_every_metric_of_the_job_is_shown() -> None:
    shown = {name for path in DASHBOARDS for query in queries(path) for name in metrics_in(query.expression)}
    assert {name for name in declared_labels() if name.startswith("offsetstream_")} <= shown


@pytest.mark.parametrize("path", DASHBOARDS, ids=NAMES)
def test_every_panel_has_a_description(path: Path) -> None:
    for panel in panels(path):
        assert panel["title"], panel
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
            assert isinstance(step["color"], str), panel["title"]
        for query in panel["targets"]:
            assert panel["type"] == "table" or "{{instance}}" in query["legendFormat"], panel["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=NAMES)
def test_the_viewer_chooses_the_data_source(path: Path) -> None:
    uids = re.findall(r'"uid": "([^"]*)"', path.read_text("utf-8"))
    assert set(uids) == {"${datasource}", dashboard(path)["uid"]}


@pytest.mark.parametrize("path", DASHBOARDS, ids=NAMES)
def test_panels_do_not_overlap(path: Path) -> None:
    every = dashboard(path)["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    places = [panel["gridPos"] for panel in every]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
