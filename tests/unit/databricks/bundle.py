"""The bundle as `databricks bundle` reads it: databricks.yml, with what it includes and one of its targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
_REFERENCE = re.compile(r"\$\{([^}:]+)\}")


def bundle() -> dict[str, Any]:
    """What databricks.yml says, without what it includes."""
    read: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text("utf-8"))
    return read


def resources(target: str) -> dict[str, dict[str, Any]]:
    """Each kind of resources with those that the target deploys, by their names."""
    whole = bundle()
    files = [file for pattern in whole["include"] for file in sorted(ROOT.glob(pattern))]
    included = [yaml.safe_load(file.read_text("utf-8")) for file in files]
    assert all(set(each) == {"resources"} for each in included)
    merged: dict[str, Any] = {}
    for each in [*included, whole["targets"][target]]:
        _merge(merged, each.get("resources", {}))
    return merged


def references(value: Any) -> Iterator[str]:
    """Every `${…}` in a value, at whatever depth."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from references(each)
    elif isinstance(value, str):
        yield from _REFERENCE.findall(value)


def resolved(text: str, target: str, **variables: str) -> str:
    """The text with its variables of the bundle, and with names of its resources."""

    def value(found: re.Match[str]) -> str:
        kind, *path = found[1].split(".")
        if kind == "var":
            return variables[path[0]]
        at: Any = resources(target) if kind == "resources" else {"file_path": str(ROOT)}
        for key in path:
            at = at[key]
        return resolved(at, target, **variables)

    return _REFERENCE.sub(value, text)


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
