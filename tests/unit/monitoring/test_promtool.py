"""Prometheus' own tool over the alerts, its tests of them, its configuration, and every query of the dashboards."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from testkit.prometheus import ALERTS, DASHBOARDS, filled, promtool, queries

pytestmark = pytest.mark.nightly

PROMETHEUS = ALERTS.parent


def test_the_rules_are_sound() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS)


def test_the_alerts_fire_when_they_must_and_only_then() -> None:
    promtool("test", "rules", PROMETHEUS / "alerts_test.yml")


def test_an_alert_that_never_fires_is_found(tmp_path: Path) -> None:
    """And one that always does: the tests of alerts would fail for each."""
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


def test_the_configuration_is_sound() -> None:
    promtool("check", "config", PROMETHEUS / "prometheus.yml")


@pytest.mark.parametrize("path", DASHBOARDS, ids=[path.stem for path in DASHBOARDS])
def test_every_query_is_one(path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": filled(query.expression)} for number, query in enumerate(queries(path))
    ]
    checked = {"groups": [{"name": path.stem, "rules": rules}]}
    assert f"{len(rules)} rules found" in promtool("check", "rules", "--lint=none", given=yaml.safe_dump(checked))
