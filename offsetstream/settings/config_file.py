"""The file of settings (`--config`): TOML; at its top what many commands share, and a table for each command.

Client properties are in the table `kafka`. Each key is checked when its command reads the file: an unknown one, or a
value of another type, is one line that names both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offsetstream.errors import UsageError

SHARED = ("tables", "bootstrap-server", "command-config", "output")
COMMANDS = (
    "run",
    "maintain",
    "verify",
    "stop",
    "reload",
    "groups.list",
    "groups.describe",
    "groups.status",
    "groups.rebalances",
    "groups.history",
    "groups.delete",
    "lag",
    "report",
    "offsets.list",
    "offsets.history",
    "offsets.audit",
    "offsets.expiring",
    "offsets.orphans",
    "offsets.export",
    "offsets.import",
    "offsets.reset",
    "offsets.undo",
    "offsets.delete",
    "partitions",
    "coordinator",
    "topics.describe",
    "peek",
    "dump",
    "sql",
    "views.create",
    "views.script",
    "views.serve",
)
_KAFKA = "kafka"
_NAMES: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


@dataclass(frozen=True)
class Key:
    """What a key may have: types of TOML, and their name; `items`: of each item of a list."""

    types: tuple[type, ...]
    name: str
    items: Key | None = None

    @classmethod
    def of(cls, plain: type) -> Key:
        """Return that of a plain type."""
        return cls((plain,), _NAMES[plain])

    def fits(self, value: Any) -> bool:
        """Tell whether a value is what it may have; true and false are no numbers."""
        fits = isinstance(value, self.types) and (not isinstance(value, bool) or bool in self.types)
        return fits and (self.items is None or all(map(self.items.fits, value)))


class ConfigFile:
    """A file of settings; none has no settings."""

    def __init__(self, path: str, content: dict[str, Any]) -> None:
        self.path = path
        self._content = content

    @classmethod
    def read(cls, path: str | None) -> ConfigFile:
        """Read the file; UsageError if there is none, or it is no TOML."""
        if path is None:
            return cls("", {})
        import tomllib  # noqa: PLC0415 - a look without a file need not wait for it

        try:
            file = cls(path, tomllib.loads(Path(path).read_text("utf-8")))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else f"it is no TOML: {error}"
            raise UsageError(f"cannot read the settings {path}: {reason}; name another file by --config") from error
        file._check_top()
        return file

    @property
    def kafka(self) -> dict[str, str]:
        """The properties of Kafka clients; a dotted key is a name with dots, whether it is quoted or not."""
        return dict(self._flat(_KAFKA, self._content.get(_KAFKA, {})))

    def values(self, command: str, keys: Mapping[str, Key], but: Collection[str] = ()) -> dict[str, Any]:
        """Return what the file has for a command (`groups.list`), by key; UsageError for what it cannot have.

        `but`: keys that may be there, and are of no use to who asks.
        """
        shared = {key: self._content[key] for key in SHARED if key in self._content and key in keys}
        own = {key: value for key, value in self._table(command).items() if key not in but}
        for key, value in own.items():
            if key not in keys:
                raise self._unknown(f"{command}.{key}", key, list(keys))
            self._require(f"{command}.{key}", value, keys[key])
        return shared | {key: self._as_given(f"{command}.{key}", value) for key, value in own.items()}

    def _table(self, command: str) -> Mapping[str, Any]:
        """Return the table of a command; in that of a group of commands there is nothing else."""
        group, _, name = command.partition(".")
        table: Mapping[str, Any] = self._content.get(group, {})
        if not name:
            return table
        names = [each.partition(".")[2] for each in COMMANDS if each.startswith(f"{group}.")]
        for key, value in table.items():
            if key not in names:
                raise self._unknown(f"{group}.{key}", key, names)
            self._require(f"{group}.{key}", value, Key.of(dict))
        own: Mapping[str, Any] = table.get(name, {})
        return own

    def _check_top(self) -> None:
        tables = {each.partition(".")[0] for each in COMMANDS} | {_KAFKA}
        for key, value in self._content.items():
            if key not in SHARED and key not in tables:
                raise self._unknown(key, key, [*SHARED, *sorted(tables)])
            self._require(key, value, Key.of(dict if key in tables else str))

    def _require(self, name: str, value: Any, key: Key) -> None:
        if not key.fits(value):
            given = next((words for plain, words in _NAMES.items() if type(value) is plain), "a date or time")
            raise UsageError(f"{self.path}: {name} must be {key.name}, not {given}")

    def _unknown(self, name: str, key: str, known: list[str]) -> UsageError:
        from difflib import get_close_matches  # noqa: PLC0415 - only for this

        alike = get_close_matches(key, known, 1)
        advice = f"did you mean {alike[0]}?" if alike else f"known are {', '.join(known)}"
        return UsageError(f"{self.path}: unknown key {name}: {advice}")

    def _as_given(self, name: str, value: Any) -> Any:
        return dict(self._flat(name, value)) if isinstance(value, dict) else value

    def _flat(self, name: str, table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
        """Yield names with dots and texts of a table of tables."""
        for key, value in table.items():
            if isinstance(value, dict):
                yield from self._flat(name, value, f"{before}{key}.")
            elif isinstance(value, (str, bool, int, float)):
                yield before + key, str(value).lower() if isinstance(value, bool) else str(value)
            else:
                raise UsageError(f"{self.path}: {name}.{before}{key} must be a text, not a list, a date or a time")
