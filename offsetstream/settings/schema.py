"""How settings are declared: a dataclass, each field of which says its type, its default, and by an Option its help.

All else is made from it: the options of a command, the names in the environment and in a file, and what checks values
(`model.py`, which is imported when there are some, since that takes longer than a look at the tables).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from offsetstream.settings.config_file import Key
from offsetstream.settings.kinds import AGE, BROKERS, PAIRS, SECONDS, Kind

PREFIX = "OFFSETSTREAM_"
CONFIG_VARIABLE, CLUSTER_VARIABLE = f"{PREFIX}CONFIG", f"{PREFIX}CLUSTER"


@dataclass(frozen=True)
class Option:
    """What a setting's type does not say: its help, how its value is written, its least number."""

    help: str
    metavar: str | None = None
    kind: Kind | None = None
    minimum: int | None = None


@dataclass(frozen=True)
class Setting:
    """A setting as it was declared; `default` is MISSING where one has to be given."""

    name: str
    type: Any
    default: Any
    option: Option

    @property
    def key(self) -> str:
        """Its name as a flag (without the dashes) and in a file."""
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper()

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is dataclasses.MISSING

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The values that it may have, if it is a choice."""
        parts = get_args(self.type)
        plain = parts[0] if NoneType in parts else self.type
        return get_args(plain) if get_origin(plain) is Literal else None

    @property
    def in_toml(self) -> Key:
        """What a file may have for it."""
        if self.option.kind is not None:
            return Key(self.option.kind.toml, self.option.kind.name)
        return Key.of(self.type if self.type in (bool, int) else str)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings: what is given to the constructor, else the defaults; UsageError for a wrong value names the setting."""

    def __post_init__(self) -> None:
        from offsetstream.settings.model import checked  # noqa: PLC0415 - see above

        given = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        for name, value in checked(type(self), given).items():
            object.__setattr__(self, name, value)


def settings_of(declared: type[Settings]) -> tuple[Setting, ...]:
    """Return the settings in their order; fields without an Option are for programs only."""
    hints = get_type_hints(declared, include_extras=True)
    found = []
    for each in dataclasses.fields(declared):
        if get_origin(hints[each.name]) is Annotated:
            plain, option = get_args(hints[each.name])
            factory = each.default_factory
            default = each.default if factory is dataclasses.MISSING else factory()
            found.append(Setting(each.name, plain, default, option))
    return tuple(found)


# Those that many commands have.
BOOTSTRAP_SERVER = Option("A broker to connect to.", metavar="HOST:PORT", kind=BROKERS)
COMMAND_CONFIG = Option("Kafka client properties (SASL, TLS).", metavar="FILE")
TABLES = Option("Folder or URI of the tables, or catalog.schema (of a folder a.b the name is ./a.b).", metavar="DIR")
MASTER = Option("Spark master [default: that of spark-defaults.conf, or local[*]].")
CONF = Option("A setting of Spark; repeatable.", "NAME=VALUE", PAIRS)
MAX_AGE = Option(
    "What nobody looked at for so long is unknown, but not with 'none' [default: six times as long as the job means to "
    "have between two looks, at least 120; after --once 3600].",
    metavar="SECONDS",
    kind=AGE,
)
TIMEOUT = Option("How long to wait for the job.", metavar="SECONDS", kind=SECONDS)
