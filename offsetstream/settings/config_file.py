"""The settings file (`--config`), in TOML: settings that many commands share at the top, and a table for each command.

The table `kafka` has the properties of Kafka clients. A section `clusters.NAME` may have all of these for one cluster,
and wins. A command checks its keys when it reads the file: an unknown key, or a value of the wrong type, gives an error
in one line that names the file and the key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from offsetstream.errors import UsageError
from offsetstream.settings.kinds import CATALOG

SHARED = ("tables", "bootstrap-server", "command-config", "output")
COMMANDS = (
    "run",
    "maintain",
    "verify",
    "stop",
    "reload",
    "repair",
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
_CLUSTERS = "clusters"
# Folders that no two clusters may share, and their defaults. A cluster without its own uses a subfolder of the default.
OWN_FOLDERS = {"tables": "tables", "checkpoint": "checkpoints"}
_PORT, _ADDRESS = "metrics-port", "metrics-address"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # also a folder's name: neither .. nor -x
_LOCAL = re.compile(r"file://(localhost)?(?=/)", re.IGNORECASE)
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
    """Which values a key may have: their TOML types, and their name in messages; `items` is for the items of a list."""

    types: tuple[type, ...]
    name: str
    items: Key | None = None

    @classmethod
    def of(cls, plain: type) -> Key:
        """Return the key of a plain type."""
        return cls((plain,), _NAMES[plain])

    def listed(self) -> Key:
        """Return the key of a list of such values."""
        return Key((list,), f"a list, each of {self.name}", self)

    def fits(self, value: Any) -> bool:
        """Tell whether the key may have this value. A boolean is not a number."""
        fits = isinstance(value, self.types) and (not isinstance(value, bool) or bool in self.types)
        return fits and (self.items is None or all(map(self.items.fits, value)))


class Section:
    """The general settings of a file, or those of one cluster in it (`name` is then clusters.NAME)."""

    def __init__(self, path: str, content: Mapping[str, Any], name: str = "") -> None:
        self.path, self.name = path, name
        self._content = content
        self._check_top()

    @property
    def where(self) -> str:
        """Return where its values come from, in words."""
        return f"file {self.path}" + (f" [{self.name}]" if self.name else "")

    @property
    def kafka(self) -> dict[str, str]:
        """Return the properties of Kafka clients. A dotted key is one property name, quoted or not."""
        return dict(self.flat(self.key(_KAFKA), self._content.get(_KAFKA, {})))

    def key(self, key: str) -> str:
        """Return the full name of a key, as the file has it."""
        return f"{self.name}.{key}" if self.name else key

    def given(self, command: str, key: str) -> Any:
        """Return the value of a command's key, unchecked; None if the section does not set it."""
        return self._table(command).get(key, self._content.get(key) if key in SHARED else None)

    def values(self, command: str, keys: Mapping[str, Key], but: Collection[str] = ()) -> dict[str, Any]:
        """Return the values for a command by key. Raise UsageError for an unknown key or a value of the wrong type."""
        shared = {key: self._content[key] for key in SHARED if key in self._content and key in keys}
        own = {key: value for key, value in self._table(command).items() if key not in but}
        name = self.key(command)
        for key, value in own.items():
            if key not in keys:
                raise self._unknown(f"{name}.{key}", key, list(keys))
            self.require(f"{name}.{key}", value, keys[key])
        return shared | {key: self._as_given(f"{name}.{key}", value) for key, value in own.items()}

    def _table(self, command: str) -> Mapping[str, Any]:
        """Return the table of a command. The table of a command group may hold only tables of its subcommands."""
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
        tables = {each.partition(".")[0] for each in COMMANDS} | {_KAFKA} | ({_CLUSTERS} if not self.name else set())
        for key, value in self._content.items():
            if key not in SHARED and key not in tables:
                name = self.key(key)
                dotted = f'{_CLUSTERS}."{name.partition(".")[2]}"' if self.name and isinstance(value, dict) else None
                raise self._unknown(
                    name, key, [*SHARED, *sorted(tables)], f"; or quote it: [{dotted}]" if dotted else ""
                )
            self.require(self.key(key), value, Key.of(dict if key in tables else str))

    def require(self, name: str, value: Any, key: Key) -> None:
        """Raise UsageError if a key may not have this value."""
        if not key.fits(value):
            given = next((words for plain, words in _NAMES.items() if type(value) is plain), "a date or time")
            raise UsageError(f"{self.path}: {name} must be {key.name}, not {given}")

    def _unknown(self, name: str, key: str, known: list[str], more: str = "") -> UsageError:
        return UsageError(f"{self.path}: unknown key {name}: {_suggestion(key, known)}{more}")

    def _as_given(self, name: str, value: Any) -> Any:
        return dict(self.flat(name, value)) if isinstance(value, dict) else value

    def flat(self, name: str, table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
        """Yield each value of nested tables as text, with its dotted name."""
        for key, value in table.items():
            if isinstance(value, dict):
                yield from self.flat(name, value, f"{before}{key}.")
            elif isinstance(value, (str, bool, int, float)):
                yield before + key, str(value).lower() if isinstance(value, bool) else str(value)
            else:
                raise UsageError(f"{self.path}: {name}.{before}{key} must be a text, not a list, date or time")


class ConfigFile:
    """A settings file, with the values of one cluster if one is named. Without a file, all is empty."""

    def __init__(self, path: str, content: Mapping[str, Any], cluster: str | None = None) -> None:
        self.path = path
        self._general = Section(path, content)
        self._clusters = {name: self._section(name, each) for name, each in content.get(_CLUSTERS, {}).items()}
        _require_different(path, self.clusters)
        _require_own_places(path, {name: partial(self._job_value, name) for name in self._clusters})
        if cluster is not None and cluster not in self._clusters:
            raise _unknown_cluster(path, cluster, self.clusters)
        self._cluster = cluster
        # Properties of Kafka clients.
        self.kafka = {name: text for section in self._sections(cluster) for name, text in section.kafka.items()}

    @classmethod
    def read(cls, path: str | None, cluster: str | None = None) -> ConfigFile:
        """Read the file. Raise UsageError if it is missing, is not TOML, or lacks the cluster."""
        if path is None:
            if cluster is not None:
                raise UsageError(f"the cluster {cluster} is a section of a settings file: name that file by --config")
            return cls("", {})
        import tomllib  # noqa: PLC0415 - needed only with a file

        try:
            content = tomllib.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else f"not valid TOML: {error}"
            raise UsageError(
                f"cannot read the settings file {path}: {reason}; name another file by --config"
            ) from error
        return cls(path, content, cluster)

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return the names of its clusters, in the order of the file."""
        return tuple(self._clusters)

    def values(self, command: str, keys: Mapping[str, Key], but: Collection[str] = ()) -> dict[str, Any]:
        """Return the file's values for a command (such as `groups.list`), by key.

        `but` are keys that the file may have and that the caller ignores. A cluster's table, such as `conf`, extends
        the general one. A cluster without its own tables or checkpoints uses a subfolder of the general folder. Raise
        UsageError for an unknown key or a value of the wrong type.
        """
        values: dict[str, Any] = {}
        for section in self._sections(self._cluster):
            for key, value in section.values(command, keys, but).items():
                values[key] = values.get(key, {}) | value if isinstance(value, dict) else value
        if self._cluster is not None:
            values |= {key: self._own_folder(self._cluster, command, key) for key in OWN_FOLDERS if key in keys}
            if "command-config" in values:
                self._require_own_properties(self._clusters[self._cluster], command)
        return values

    def where(self, command: str, key: str, name: str = "") -> str:
        """Return in words where a value comes from. `name` selects one value of a table or one Kafka property."""
        sections = self._sections(self._cluster)
        for section in reversed(sections):
            given = section.kafka if key == _KAFKA else section.given(command, key)
            if given is not None and (not name or name in dict(section.flat(key, given))):
                return section.where
            if section.name and key in OWN_FOLDERS:
                break
        return f"{sections[-1].where}: the cluster's subfolder of the general {key}"

    def _sections(self, cluster: str | None) -> list[Section]:
        """Return the sections with settings for a cluster; the last one wins."""
        return [self._general] if cluster is None else [self._general, self._clusters[cluster]]

    def _section(self, name: str, content: Any) -> Section:
        _check_name(self.path, name)
        self._general.require(f"{_CLUSTERS}.{name}", content, Key.of(dict))
        return Section(self.path, content, f"{_CLUSTERS}.{name}")

    def _own_folder(self, cluster: str, command: str, key: str) -> Any:
        """Return a cluster's folder: the one that it names, else its subfolder of the general folder."""
        own, general = self._clusters[cluster].given(command, key), self._general.given(command, key)
        return _subfolder(self.path, cluster, key, general) if own is None else own

    def _job_value(self, cluster: str, key: str) -> Any:
        """Return the value of a key of `run` for a cluster, unchecked."""
        if key in OWN_FOLDERS:
            return self._own_folder(cluster, "run", key)
        values = [section.given("run", key) for section in self._sections(cluster)]
        return next((value for value in reversed(values) if value is not None), None)

    def _require_own_properties(self, section: Section, command: str) -> None:
        """Raise UsageError if a general file of client properties would win over those of a cluster."""
        if section.kafka and section.given(command, "command-config") is None:
            raise UsageError(
                f"{self.path}: the general command-config would win over {section.key(_KAFKA)}: give {section.name} "
                "its own command-config, or move the general properties to [kafka]"
            )


def _check_name(path: str, name: str) -> None:
    """Raise UsageError if a cluster cannot have this name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{path}: {_CLUSTERS}.{name!r} is not a valid cluster name: use letters, digits, '-', '_' and '.', "
            "and start with a letter or a digit"
        )


def _require_different(path: str, names: Sequence[str]) -> None:
    """Raise UsageError if two names differ by case only: DuckDB and many file systems treat them as one."""
    for one, other in combinations(names, 2):
        if one.lower() == other.lower():
            raise UsageError(f"{path}: the clusters {one} and {other} differ by case only: rename one of them")


def _unknown_cluster(path: str, name: str, known: Sequence[str]) -> UsageError:
    """Return the error for a cluster that the file does not have."""
    return UsageError(
        f"{path}: there is no cluster {name}: " + (_suggestion(name, known) if known else "the file has no clusters")
    )


def _suggestion(name: str, known: Sequence[str]) -> str:
    """Return the known name that is most alike, as a question, else all known names."""
    from difflib import get_close_matches  # noqa: PLC0415 - for errors only

    alike = get_close_matches(name, known, 1)
    return f"did you mean {alike[0]}?" if alike else f"known names are {', '.join(known)}"


def _subfolder(path: str, cluster: str, key: str, general: Any) -> Any:
    """Return the cluster's subfolder of the general folder. Raise UsageError for a catalog, which has no folders."""
    folder = OWN_FOLDERS[key] if general is None else general
    if not isinstance(folder, str):
        return folder  # reported where its type is checked
    if key == "tables" and CATALOG.fullmatch(folder):
        raise UsageError(
            f"{path}: {_CLUSTERS}.{cluster} needs its own {key}: {folder} is a schema of a catalog and has no "
            "subfolders"
        )
    return f"{folder.rstrip('/')}/{cluster}"


def _require_own_places(path: str, jobs: Mapping[str, Callable[[str], Any]]) -> None:
    """Raise UsageError if the jobs of two clusters have the same tables, checkpoints or port.

    `jobs` has for each cluster's name a function that returns the value of a key.
    """
    for key in (*OWN_FOLDERS, _PORT):
        values = {name: given(key) for name, given in jobs.items()} if len(jobs) > 1 else {}
        for one, other in combinations(values, 2):
            own_address = key == _PORT and jobs[one](_ADDRESS) != jobs[other](_ADDRESS)
            if values[one] and not own_address and _place(values[one]) == _place(values[other]):
                raise UsageError(
                    f"{path}: clusters {one} and {other} have the same {key} {values[one]}: give each cluster its own"
                )


def _place(value: Any) -> Any:
    """Return a form in which two names of one place are equal."""
    if not isinstance(value, str) or CATALOG.fullmatch(value):
        return value
    if local := _LOCAL.match(value):
        value = unquote(value[local.end() :])
    if "://" in value or value.startswith("dbfs:/"):
        return re.sub("^s3n?:", "s3a:", value.rstrip("/"))
    return os.path.realpath(os.path.expanduser(value))  # noqa: PTH111 - a Path raises if there is no such user
