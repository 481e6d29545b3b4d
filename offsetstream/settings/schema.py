"""How settings are declared: a dataclass whose fields have a type, a default, and an `Option` with the help text.

From this declaration come the options of a command, the names in the environment and in the settings file, and the
checks of values.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

from offsetstream.errors import UsageError
from offsetstream.settings.config_file import Key
from offsetstream.settings.kinds import AGE, BROKERS, KEPT, PAIRS, SECONDS, Kind

PREFIX = "OFFSETSTREAM_"
_TRUE, _FALSE = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")  # as click has them
CONFIG_VARIABLE, CLUSTER_VARIABLE = f"{PREFIX}CONFIG", f"{PREFIX}CLUSTER"


@dataclass(frozen=True)
class Option:
    """The help text of a setting, how help names its value, its kind (of each item of a list) and its minimum."""

    help: str
    metavar: str | None = None
    kind: Kind | None = None
    minimum: int | None = None


@dataclass(frozen=True)
class Setting:
    """A declared setting; `default` is MISSING if the user must give a value."""

    name: str
    type: Any
    default: Any
    option: Option

    @property
    def key(self) -> str:
        """Return its name as a flag (without the dashes) and in the settings file."""
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Return its environment variable."""
        return PREFIX + self.name.upper()

    @property
    def is_required(self) -> bool:
        """Tell whether the user must give a value."""
        return self.default is dataclasses.MISSING

    @property
    def is_list(self) -> bool:
        """Tell whether the user may give several values."""
        return get_origin(self.type) is tuple

    @property
    def choices(self) -> tuple[str, ...] | None:
        """Return the allowed values of a choice; None for other settings."""
        parts = get_args(self.type)
        plain = parts[0] if NoneType in parts else self.type
        return get_args(plain) if get_origin(plain) is Literal else None

    def read(self, value: Any) -> Any:
        """Return the value in the setting's type, such as a number that a variable has as text. Raise ValueError."""
        kind = self.option.kind
        if value is None and NoneType in get_args(self.type):
            return None
        if self.is_list and not isinstance(value, (list, tuple)):
            raise ValueError(f"{value!r} is not a list")
        if kind is not None:
            return tuple(map(kind.read, value)) if self.is_list else kind.read(value)
        if self.choices is not None and value not in self.choices:
            raise ValueError(f"{value!r} is not one of {', '.join(self.choices)}")
        if self.type is bool:
            return _read_bool(value)
        if self.type is int:
            return _read_int(value, self.option.minimum)
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a text")  # noqa: TRY004
        return value

    @property
    def in_toml(self) -> Key:
        """Return which values the settings file may hold for it."""
        if self.option.kind is None:
            return Key.of(self.type if self.type in (bool, int) else str)
        key = Key(self.option.kind.toml, self.option.kind.name)
        return key.listed() if self.is_list else key


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings from arguments and defaults. The constructor raises UsageError that names a setting with a bad value."""

    def __post_init__(self) -> None:
        for setting in settings_of(type(self)):
            self.convert(setting.name, setting.read)

    def convert(self, name: str, read: Callable[[Any], Any]) -> None:
        """Replace the value of a setting by what `read` makes of it. An error names the setting."""
        try:
            object.__setattr__(self, name, read(getattr(self, name)))
        except ValueError as error:
            raise UsageError(f"the setting {name}: {error}") from None

    @classmethod
    def filled(cls, given: Mapping[str, Any], file: Mapping[str, Any]) -> Self:
        """Return settings: `given` wins over the environment, which wins over `file`."""
        settings = settings_of(cls)
        values = {**file, **_environment(settings), **given}
        if unknown := values.keys() - {each.name for each in dataclasses.fields(cls)}:
            raise UsageError(f"the setting {min(unknown)}: there is no such setting")
        if missing := [each.name for each in settings if each.is_required and each.name not in values]:
            raise UsageError(f"the setting {missing[0]}: give a value, it has no default")
        return cls(**values)


def settings_of(declared: type[Settings]) -> tuple[Setting, ...]:
    """Return the declared settings in order. Fields without an Option are for programs only and not included."""
    hints = get_type_hints(declared, include_extras=True)
    declared_settings = []
    for each in dataclasses.fields(declared):
        if get_origin(hints[each.name]) is Annotated:
            plain, option = get_args(hints[each.name])
            factory = each.default_factory
            default = each.default if factory is dataclasses.MISSING else factory()
            declared_settings.append(Setting(each.name, plain, default, option))
    return tuple(declared_settings)


def _environment(settings: Iterable[Setting]) -> dict[str, Any]:
    """Return the settings from environment variables; a list is split at spaces, as click does."""
    given = [(each, value) for each in settings if (value := os.environ.get(each.variable))]
    return {each.name: value.split() if each.is_list or each.option.kind is PAIRS else value for each, value in given}


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError(f"{value!r} is not true or false")
    return word in _TRUE


def _read_int(value: Any, minimum: int | None) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a whole number") from None
    if number != value and not isinstance(value, str):
        raise ValueError(f"{value!r} is not a whole number")
    if minimum is not None and number < minimum:
        raise ValueError(f"{number} is less than {minimum}")
    return number


# Options that many commands share.
BOOTSTRAP_SERVER = Option("Connect to these brokers; separate several by commas.", metavar="HOST:PORT", kind=BROKERS)
COMMAND_CONFIG = Option("Read Kafka client properties (SASL, TLS) from this file.", metavar="FILE")
TABLES = Option("Use the tables in this folder, URI or catalog.schema.", metavar="DIR")
MASTER = Option("Use this Spark master (default: from spark-defaults.conf, else local[*]).", metavar="URL")
CONF = Option("Set a Spark property (repeatable).", "NAME=VALUE", PAIRS)
KEEP_HISTORY = Option(
    "Thin history that is older, such as 30d or 4w: the last row of each cell stays. TABLE=DURATION is for one history "
    "table (repeatable; default: keep all).",
    "[TABLE=]DURATION",
    KEPT,
)
MAX_AGE = Option(
    "Call data that are older stale, and what is judged by them unknown; 'none': no data (default: 6 times the longer "
    "of the job's --trigger and --sample-interval, at least 120; after run --once 3600).",
    metavar="SECONDS",
    kind=AGE,
)
TIMEOUT = Option("Wait this long for the job.", metavar="SECONDS", kind=SECONDS)
