"""The bundle as `databricks bundle` reads it: databricks.yml with its includes and one of its targets."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
_REFERENCE = re.compile(r"\$\{([^}:]+)\}")


def bundle() -> dict[str, Any]:
    """Return the content of databricks.yml without its includes."""
    read: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text("utf-8"))
    return read


def files(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """databricks.yml and the files that it includes, by name, unmerged."""
    included = [file for pattern in bundle()["include"] for file in sorted(root.glob(pattern))]
    read = {str(file.relative_to(root)): yaml.safe_load(file.read_text("utf-8")) for file in included}
    return {"databricks.yml": bundle()} | read


def clashes(files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the CLI refuses before it merges a target: two resources or scripts, of any kind, with the same key."""
    found: dict[str, list[str]] = {}
    for file, declared in files.items():
        kinds = {f"resources.{kind}": named for kind, named in declared.get("resources", {}).items()}
        for kind, named in {**kinds, "scripts": declared.get("scripts", {})}.items():
            for key in named:
                found.setdefault(key, []).append(f"{kind}.{key} in {file}")
    same = "multiple resources or scripts have been defined with the same key"
    return [f"{same}: {key} ({', '.join(places)})" for key, places in found.items() if len(places) > 1]


def deployed(target: str) -> dict[str, Any]:
    """The bundle that the target deploys: all files merged, then the target's overrides."""
    merged: dict[str, Any] = {}
    for each in files().values():
        _merge(merged, copy.deepcopy(each))
    chosen = merged.pop("targets")[target]
    merged["variables"] |= {
        name: {**merged["variables"][name], "default": value} for name, value in chosen.pop("variables", {}).items()
    }
    _merge(merged, {key: value for key, value in chosen.items() if key not in {"mode", "default"}})
    del merged["include"]
    return merged


def resources(target: str) -> dict[str, dict[str, Any]]:
    """The resources that the target deploys, by kind and key."""
    found: dict[str, dict[str, Any]] = deployed(target)["resources"]
    return found


def references(value: Any) -> Iterator[str]:
    """Yield every `${…}` in a value, at any depth."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from references(each)
    elif isinstance(value, str):
        yield from _REFERENCE.findall(value)


def resolved(text: str, target: str, **variables: str) -> str:
    """The text with the bundle's variables and resource names filled in."""

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
        elif isinstance(value, list) and isinstance(into.get(key), list):
            into[key] = [*into[key], *value]
        else:
            into[key] = value
