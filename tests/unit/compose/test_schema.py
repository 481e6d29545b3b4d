"""docker-compose.yml against the compose specification's own schema."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from jsonschema import Draft7Validator

from tests.release.image import ROOT, compose

SCHEMA = json.loads((ROOT / "tests" / "fixtures" / "compose" / "compose-spec.json").read_text("utf-8"))


def mistakes(file: dict[str, Any]) -> list[str]:
    return ["/".join(map(str, each.absolute_path)) for each in Draft7Validator(SCHEMA).iter_errors(file)]


def test_the_schema_is_valid() -> None:
    Draft7Validator.check_schema(SCHEMA)


def test_the_file_follows_the_specification() -> None:
    assert mistakes(compose()) == []


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (("services", "job", "comand"), ["run"]),
        (("services", "job", "healthcheck", "interval"), 10),
        (("services", "kafka", "ports"), {"9092": 9092}),
        (("services", "grafana", "depends_on", "prometheus", "condition"), "healthy"),
        (("services", "s3", "profiles"), "s3"),
        (("volumes", "data"), "here"),
        (("servics",), {}),
    ],
)
def test_a_mistake_is_detected(place: tuple[str, ...], wrong: object) -> None:
    broken = deepcopy(compose())
    *parents, name = place
    found: Any = broken
    for each in parents:
        found = found[each]
    found[name] = wrong
    (seen,) = mistakes(broken)
    assert "/".join(place).startswith(seen)
