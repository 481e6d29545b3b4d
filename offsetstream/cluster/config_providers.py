"""Kafka's config providers: client properties whose values are elsewhere, such as `${env:KAFKA_PASSWORD}`.

Like Kafka's clients (KIP-297, KIP-421), replace a variable `${provider:key}` or `${provider:path:key}` if
`config.providers` names the provider. Variables in the new value are not replaced. Kafka's own three providers are
supported: environment variables, properties files, and folders with a file for each key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import javaproperties

from offsetstream.errors import UsageError

_PROVIDERS = "config.providers"
_VARIABLE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_ENV, _FILE, _DIRECTORY = "EnvVarConfigProvider", "FileConfigProvider", "DirectoryConfigProvider"
_PACKAGE = "org.apache.kafka.common.config.provider."
_ALLOWED_NAMES, _ALLOWED_PATHS = "allowlist.pattern", "allowed.paths"  # KIP-887, KIP-993
_USUAL = {"env": _ENV, "file": _FILE, "directory": _DIRECTORY}

Lookup = Callable[[str, str], str | None]


def resolve_variables(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with their variables replaced, without `config.providers`.

    Raises UsageError for a provider that is not one of Kafka's, for the usual name of a provider that is not declared,
    and for a variable without a value. The error contains no values.
    """
    lookups = _lookups(properties)
    return {
        name: _VARIABLE.sub(lambda found, of=name: _value(of, found, lookups), value)  # type: ignore[misc]  # a default
        for name, value in properties.items()
        if name != _PROVIDERS and not name.startswith(f"{_PROVIDERS}.")
    }


def _value(name: str, variable: re.Match[str], lookups: Mapping[str, Lookup]) -> str:
    provider, path, key = variable[1], variable[2] or "", variable[3]
    if provider in lookups:
        try:
            value = lookups[provider](path, key)
        except OSError as error:
            raise UsageError(f"{name} of the client properties: cannot read {path}: {error.strerror}") from error
        if value is None:
            raise UsageError(f"{name} of the client properties: {variable[0]} has no value")
        return value
    if provider in _USUAL:
        raise UsageError(
            f"{name} of the client properties uses {variable[0]}, but the provider {provider} is not declared: add "
            f"{_PROVIDERS}={provider} and {_PROVIDERS}.{provider}.class={_PACKAGE}{_USUAL[provider]}"
        )
    return variable[0]  # Kafka leaves it unchanged, too


def _lookups(properties: Mapping[str, str]) -> dict[str, Lookup]:
    names = [name.strip() for name in properties.get(_PROVIDERS, "").split(",")]
    return {name: _lookup(name, properties) for name in names if name}


def _lookup(name: str, properties: Mapping[str, str]) -> Lookup:
    prefix = f"{_PROVIDERS}.{name}"
    class_name = properties.get(f"{prefix}.class", "").strip()
    kind = class_name.removeprefix(_PACKAGE)
    if kind not in _USUAL.values():
        raise UsageError(
            f"{prefix}.class of the client properties is {class_name or 'missing'}: it must be {_PACKAGE}{_ENV}, "
            f"{_FILE} or {_DIRECTORY}, because librdkafka cannot run other Java classes"
        )
    if kind == _ENV:
        pattern = _pattern(f"{prefix}.param.{_ALLOWED_NAMES}", properties)
        return lambda path, key: _from_environment(path, key, pattern)
    allowed = properties.get(f"{prefix}.param.{_ALLOWED_PATHS}")
    read = _from_file if kind == _FILE else _from_directory
    return lambda path, key: read(path, key) if path and _is_allowed(path, allowed) else None


def _pattern(name: str, properties: Mapping[str, str]) -> re.Pattern[str] | None:
    try:
        return re.compile(properties[name]) if name in properties else None
    except re.error as error:
        raise UsageError(f"{name} of the client properties is not a valid regular expression: {error}") from error


def _from_environment(path: str, key: str, pattern: re.Pattern[str] | None) -> str | None:
    if path or (pattern is not None and pattern.fullmatch(key) is None):
        return None
    return os.environ.get(key)


def _from_file(path: str, key: str) -> str | None:
    try:
        found: str | None = javaproperties.loads(Path(path).read_text("utf-8")).get(key)
    except ValueError as error:  # its text may contain a secret
        raise UsageError(rf"cannot read {path}: it is not UTF-8, or has a \u escape without four digits") from error
    return found


def _from_directory(path: str, key: str) -> str | None:
    file = Path(path) / key
    if "/" in key or key in {"", ".", ".."} or not file.is_file():
        return None
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {file}: it is not UTF-8") from None  # that error contains a byte of the file


def _is_allowed(path: str, allowed: str | None) -> bool:
    if allowed is None or not allowed.strip():
        return True
    target = Path(os.path.normpath(path))
    return any(target.is_relative_to(os.path.normpath(each.strip())) for each in allowed.split(","))
