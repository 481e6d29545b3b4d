"""Prometheus' own tool checks the alerts, their tests, the configuration, and every dashboard query."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.monitoring.prometheus import ALERTS, DASHBOARDS, filled, promtool, queries

pytestmark = pytest.mark.nightly

PROMETHEUS = ALERTS.parent


def test_the_alert_rules_are_valid() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS)


def test_the_alerts_fire_exactly_when_they_must() -> None:
    promtool("test", "rules", PROMETHEUS / "alerts_test.yml")


def test_the_alert_tests_catch_an_alert_that_never_or_always_fires(tmp_path: Path) -> None:
    """The alert tests fail for an alert that never fires, and for one that always does."""
    rules = yaml.safe_load(ALERTS.read_text("utf-8"))
    (tmp_path / "alerts_test.yml").write_text((PROMETHEUS / "alerts_test.yml").read_text("utf-8"), "utf-8")
    every = [rule for group in rules["groups"] for rule in group["rules"]]
    for rule in every:
        right = rule["expr"]
        for wrong in (f"({right}) and vector(0) > 1", f"{right} or vector(1)"):
            rule["expr"] = wrong
            (tmp_path / "alerts.yml").write_text(yaml.safe_dump(rules), "utf-8")
            with pytest.raises(AssertionError, match=f"alertname: {rule['alert']}"):
                promtool("test", "rules", tmp_path / "alerts_test.yml")
        rule["expr"] = right


def test_the_configuration_is_valid() -> None:
    promtool("check", "config", PROMETHEUS / "prometheus.yml")


@pytest.mark.parametrize("path", DASHBOARDS, ids=[path.stem for path in DASHBOARDS])
def test_every_query_is_valid(path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": filled(query.expression)} for number, query in enumerate(queries(path))
    ]
    checked = {"groups": [{"name": path.stem, "rules": rules}]}
    assert f"{len(rules)} rules found" in promtool("check", "rules", "--lint=none", given=yaml.safe_dump(checked))
