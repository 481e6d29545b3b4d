"""Prometheus alerts: each has the required texts and tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.monitoring.prometheus import ALERTS, alerts

ROOT = Path(__file__).parents[3]
TESTS = ALERTS.with_name("alerts_test.yml")
NAMES = [alert["alert"] for alert in alerts()]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("alert", alerts(), ids=NAMES)
def test_an_alert_names_the_problem_and_its_place(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    said = alert["annotations"]
    assert said.keys() == {"summary", "description", "runbook_url"}
    assert "absent" in alert["expr"] or "{{ $labels." in said["summary"] + said["description"]


def test_every_runbook_exists() -> None:
    for alert in alerts():
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert anchor in anchors(ROOT / page), alert["alert"]


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_has_a_test_that_fires_and_one_that_does_not(name: str) -> None:
    groups = yaml.safe_load(TESTS.read_text("utf-8"))["tests"]
    tested = [each for group in groups for each in group["alert_rule_test"] if each["alertname"] == name]
    assert {bool(each.get("exp_alerts")) for each in tested} == {True, False}


def test_alert_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES) > 8
