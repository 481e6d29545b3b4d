"""How settings are declared: a dataclass whose fields have a type, a default, and an `Option` with the help text.

From this declaration come the options of a command, the names in the environment and in the settings file, and the
checks of values. `model.py` does the checks. It is imported only when settings are made: the import takes longer than
a look-up.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from offsetstream.settings.config_file import Key
from offsetstream.settings.kinds import AGE, BROKERS, KEPT, PAIRS, SECONDS, Kind

PREFIX = "OFFSETSTREAM_"
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
        from offsetstream.settings.model import checked  # noqa: PLC0415 - slow, see the module

        given = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        for name, value in checked(type(self), given).items():
            object.__setattr__(self, name, value)


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
    "Show samples older than this as unknown; 'none' shows all (default: 6 times the longer of the job's --trigger and "
    "--sample-interval, at least 120; after run --once 3600).",
    metavar="SECONDS",
    kind=AGE,
)
TIMEOUT = Option("Wait this long for the job.", metavar="SECONDS", kind=SECONDS)
