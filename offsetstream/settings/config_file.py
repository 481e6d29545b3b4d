"""The file of settings (`--config`): TOML; at its top what many commands share, and a table for each command.

Client properties are in the table `kafka`; a section `clusters.NAME` has all of that for one cluster, and wins. Each
key is checked when its command reads the file: an unknown one, or a value of another type, is one line that names both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from offsetstream.errors import UsageError
from offsetstream.settings import clusters

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


class Section:
    """The settings of a whole file, or of one cluster in it, whose `name` is clusters.NAME."""

    def __init__(self, path: str, content: Mapping[str, Any], name: str = "") -> None:
        self.path, self.name = path, name
        self._content = content
        self._check_top()

    @property
    def where(self) -> str:
        """What its values are of, in words."""
        return f"file {self.path}" + (f" [{self.name}]" if self.name else "")

    @property
    def kafka(self) -> dict[str, str]:
        """The properties of Kafka clients; a dotted key is a name with dots, whether it is quoted or not."""
        return dict(self.flat(self.key(_KAFKA), self._content.get(_KAFKA, {})))

    def key(self, key: str) -> str:
        """Return a key of the section as it is called in the file."""
        return f"{self.name}.{key}" if self.name else key

    def given(self, command: str, key: str) -> Any:
        """Return what it has for a command, not checked; None for nothing."""
        return self._table(command).get(key, self._content.get(key) if key in SHARED else None)

    def values(self, command: str, keys: Mapping[str, Key], but: Collection[str] = ()) -> dict[str, Any]:
        """Return what it has for a command, by key; UsageError for what it cannot have."""
        shared = {key: self._content[key] for key in SHARED if key in self._content and key in keys}
        own = {key: value for key, value in self._table(command).items() if key not in but}
        name = self.key(command)
        for key, value in own.items():
            if key not in keys:
                raise self._unknown(f"{name}.{key}", key, list(keys))
            self.require(f"{name}.{key}", value, keys[key])
        return shared | {key: self._as_given(f"{name}.{key}", value) for key, value in own.items()}

    def _table(self, command: str) -> Mapping[str, Any]:
        """Return the table of a command; in that of a group of commands there is nothing else."""
        group, _, name = command.partition(".")
        table: Mapping[str, Any] = self._content.get(group, {})
        if not name:
            return table
        names = [each.partition(".")[2] for each in COMMANDS if each.startswith(f"{group}.")]
        for key, value in table.items():
            if key not in names:
                raise self._unknown(self.key(f"{group}.{key}"), key, names)
            self.require(self.key(f"{group}.{key}"), value, Key.of(dict))
        own: Mapping[str, Any] = table.get(name, {})
        return own

    def _check_top(self) -> None:
        tables = (
            {each.partition(".")[0] for each in COMMANDS} | {_KAFKA} | ({clusters.TABLE} if not self.name else set())
        )
        for key, value in self._content.items():
            if key not in SHARED and key not in tables:
                name = self.key(key)
                dotted = (
                    f'{clusters.TABLE}."{name.partition(".")[2]}"' if self.name and isinstance(value, dict) else None
                )
                raise self._unknown(
                    name, key, [*SHARED, *sorted(tables)], f"; or quote it: [{dotted}]" if dotted else ""
                )
            self.require(self.key(key), value, Key.of(dict if key in tables else str))

    def require(self, name: str, value: Any, key: Key) -> None:
        """Raise UsageError for a value that a key may not have."""
        if not key.fits(value):
            given = next((words for plain, words in _NAMES.items() if type(value) is plain), "a date or time")
            raise UsageError(f"{self.path}: {name} must be {key.name}, not {given}")

    def _unknown(self, name: str, key: str, known: list[str], more: str = "") -> UsageError:
        return UsageError(f"{self.path}: unknown key {name}: {clusters.advice(key, known)}{more}")

    def _as_given(self, name: str, value: Any) -> Any:
        return dict(self.flat(name, value)) if isinstance(value, dict) else value

    def flat(self, name: str, table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
        """Yield names with dots and texts of a table of tables."""
        for key, value in table.items():
            if isinstance(value, dict):
                yield from self.flat(name, value, f"{before}{key}.")
            elif isinstance(value, (str, bool, int, float)):
                yield before + key, str(value).lower() if isinstance(value, bool) else str(value)
            else:
                raise UsageError(f"{self.path}: {name}.{before}{key} must be a text, not a list, a date or a time")


class ConfigFile:
    """A file of settings, as one of its clusters has them where one is named; no file has no settings."""

    def __init__(self, path: str, content: Mapping[str, Any], cluster: str | None = None) -> None:
        self.path = path
        self._general = Section(path, content)
        self._clusters = {name: self._section(name, each) for name, each in content.get(clusters.TABLE, {}).items()}
        clusters.require_different(path, self.clusters)
        clusters.require_apart(path, {name: partial(self._of_job, name) for name in self._clusters})
        if cluster is not None and cluster not in self._clusters:
            raise clusters.unknown(path, cluster, self.clusters)
        self._cluster = cluster
        # The properties of Kafka clients.
        self.kafka = {name: text for section in self._sections(cluster) for name, text in section.kafka.items()}

    @classmethod
    def read(cls, path: str | None, cluster: str | None = None) -> ConfigFile:
        """Read the file; UsageError if there is none, if it is no TOML, or has no such cluster."""
        if path is None:
            if cluster is not None:
                raise UsageError(f"the cluster {cluster} is a section of a file of settings: name that by --config")
            return cls("", {})
        import tomllib  # noqa: PLC0415 - a look without a file need not wait for it

        try:
            content = tomllib.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else f"it is no TOML: {error}"
            raise UsageError(f"cannot read the settings {path}: {reason}; name another file by --config") from error
        return cls(path, content, cluster)

    @property
    def clusters(self) -> tuple[str, ...]:
        """The names of the clusters that it has, in their order."""
        return tuple(self._clusters)

    def values(self, command: str, keys: Mapping[str, Key], but: Collection[str] = ()) -> dict[str, Any]:
        """Return what the file has for a command (`groups.list`), by key; UsageError for what it cannot have.

        `but`: keys that may be there, and are of no use to who asks. Of a table, such as `conf`, the cluster's names
        are added to the general ones. Tables and checkpoints that a cluster does not name are below the general folder.
        """
        found: dict[str, Any] = {}
        for section in self._sections(self._cluster):
            for key, value in section.values(command, keys, but).items():
                found[key] = found.get(key, {}) | value if isinstance(value, dict) else value
        if self._cluster is not None:
            found |= {key: self._apart(self._cluster, command, key) for key in clusters.APART if key in keys}
            if "command-config" in found:
                self._require_own_properties(self._clusters[self._cluster], command)
        return found

    def where(self, command: str, key: str, name: str = "") -> str:
        """Return in words where a value comes from; of a table, or of Kafka's properties, that of a `name`."""
        sections = self._sections(self._cluster)
        for section in reversed(sections):
            given = section.kafka if key == _KAFKA else section.given(command, key)
            if given is not None and (not name or name in dict(section.flat(key, given))):
                return section.where
            if section.name and key in clusters.APART:
                break
        return f"{sections[-1].where}: its name, below the general {key}"

    def _sections(self, cluster: str | None) -> list[Section]:
        """Return what has settings for a cluster, of which the last wins."""
        return [self._general] if cluster is None else [self._general, self._clusters[cluster]]

    def _section(self, name: str, content: Any) -> Section:
        clusters.check_name(self.path, name)
        self._general.require(f"{clusters.TABLE}.{name}", content, Key.of(dict))
        return Section(self.path, content, f"{clusters.TABLE}.{name}")

    def _apart(self, cluster: str, command: str, key: str) -> Any:
        """Return a cluster's own tables or checkpoints: those that it names, else a folder of its name."""
        own, general = self._clusters[cluster].given(command, key), self._general.given(command, key)
        return clusters.below(self.path, cluster, key, general) if own is None else own

    def _of_job(self, cluster: str, key: str) -> Any:
        """Return what `run` has of a key for a cluster, not checked."""
        if key in clusters.APART:
            return self._apart(cluster, "run", key)
        found = [section.given("run", key) for section in self._sections(cluster)]
        return next((each for each in reversed(found) if each is not None), None)

    def _require_own_properties(self, section: Section, command: str) -> None:
        """Raise UsageError where a general file of client properties would win over those of a cluster."""
        if section.kafka and section.given(command, "command-config") is None:
            raise UsageError(
                f"{self.path}: the general command-config would win over {section.key(_KAFKA)}: give {section.name} a "
                "command-config of its own, or put the general properties into [kafka]"
            )
