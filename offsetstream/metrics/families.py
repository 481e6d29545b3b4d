"""The metrics as data (`families/`): the job's by name, those of groups with their queries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

JOB, COORDINATORS, GROUPS = "job", "coordinators", "groups"


@dataclass(frozen=True)
class Family:
    """A metric: its name, Prometheus type, label names and help text."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


@dataclass(frozen=True)
class Queried:
    """Gauges with the same labels, and the DuckDB query that returns a column for each label and gauge."""

    sql: str
    families: tuple[Family, ...]


@cache
def job_families() -> dict[str, Family]:
    """Return the metrics of the job itself, by name."""
    found = (Family(each["name"], each["type"], tuple(each["labels"]), each["help"]) for each in _read(JOB))
    return {each.name: each for each in found}


@cache
def queried_families(file: str) -> tuple[Queried, ...]:
    """Return the metrics of a file: of coordinators, of groups, or of groups under the names of another exporter."""
    return tuple(
        Queried(
            " ".join(each["sql"]),
            tuple(Family(name, "gauge", tuple(each["labels"]), told) for name, told in each["metrics"].items()),
        )
        for each in _read(file)
    )


def _read(file: str) -> list[dict[str, Any]]:
    text = resources.files(__package__).joinpath("families", f"{file}.json").read_text("utf-8")
    found: list[dict[str, Any]] = json.loads(text)
    return found
