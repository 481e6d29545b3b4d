"""`offsetstream config show`: the settings that hold, and where each comes from."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

from offsetstream.cli.options import configurable, file_of_config, output_of, output_options, written
from offsetstream.cli.rows import Column
from offsetstream.errors import UsageError
from offsetstream.settings.config_file import COMMANDS
from offsetstream.settings.schema import CLUSTER_VARIABLE, CONFIG_VARIABLE

_COLUMNS = (
    Column("command", "COMMAND"),
    Column("name", "NAME", 25),
    Column("value", "VALUE", 25),
    Column("from", "FROM"),
)
_HIDDEN = "(hidden)"
# Rather too much: a name with a key in it may also be that of a file, or of a class.
_SECRET = re.compile("pass|secret|token|jaas|credential|key|auth|cert|private|[.]sas[.]", re.IGNORECASE)
_SECRET_VALUE = re.compile("pass(word|phrase)|secret|credential|sig=", re.IGNORECASE)  # as of options for Java
_USER_OF_URI = re.compile(r"(?<=://)\S*(?=@)")


@click.group()
def config() -> None:
    """Show the settings, and where each comes from."""


@config.command(
    "show",
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  offsetstream config show
  offsetstream config show run --config offsetstream.toml
  offsetstream config show run --config offsetstream.toml --cluster eu
  offsetstream config show groups list --tables elsewhere
  offsetstream config show run --output json""",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND [ITS OPTIONS]]")
@click.option("--config", "file", metavar="FILE", envvar=CONFIG_VARIABLE, show_envvar=True, help="Their TOML file.")
@click.option("--cluster", metavar="NAME", envvar=CLUSTER_VARIABLE, show_envvar=True, help="As this cluster has them.")
@output_options
def show(command: tuple[str, ...], file: str | None, cluster: str | None, **options: Any) -> None:
    """Show the settings of a command, or of all, and where each comes from: a flag, the environment, a file, a default.

    Nothing is started, and no cluster or table is looked at. Values whose names may be those of secrets are hidden.
    """
    names, flags = _asked(command)
    given = [
        *flags,
        *([] if file is None else ["--config", file]),
        *([] if cluster is None else ["--cluster", cluster]),
    ]
    output_of(options).table(_COLUMNS, [row for name in names for row in _rows(name, given)])


def _asked(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the names of the commands that are meant, and the options given for them."""
    if not words:
        return list(COMMANDS), []
    for length in (2, 1):
        name = ".".join(words[:length])
        if name in COMMANDS:
            return [name], list(words[length:])
    of_group = [each for each in COMMANDS if each.startswith(f"{words[0]}.")]
    if not of_group or len(words) > 1:
        known = ", ".join(each.replace(".", " ") for each in COMMANDS)
        raise UsageError(f"{' '.join(words)} is no command with settings: name one of {known}, its options after it")
    return of_group, []


def _rows(name: str, flags: list[str]) -> Iterator[dict[str, Any]]:
    ctx = _context(name, flags)
    file = file_of_config(ctx)
    for key, option in configurable(ctx.command).items():
        value, source = ctx.params[str(option.name)], _source(ctx, option)
        row = {"command": name.replace(".", " "), "name": key}
        if isinstance(value, dict) and value:
            for each, text in value.items():
                where = source or file.where(name, key, each)
                yield row | {"name": f"{key}.{each}", "value": _shown(each, text), "from": where}
        else:
            told = _shown("", written(option, value or None if isinstance(value, dict) else value))
            yield row | {"value": told, "from": source or file.where(name, key)}
        if key == "command-config":
            for each, text in file.kafka.items():
                where = file.where(name, "kafka", each)
                yield row | {"name": f"kafka.{each}", "value": _shown(each, text), "from": where}


def _context(name: str, flags: list[str]) -> click.Context:
    """Return the context in which the command would run, but that nothing need be given."""
    root = click.get_current_context().find_root()
    group, _, own = name.partition(".")
    command = root.command.get_command(root, group) if isinstance(root.command, click.Group) else None
    if isinstance(command, click.Group):
        command = command.get_command(click.Context(command, parent=root), own)
    if command is None:
        raise UsageError(f"there is no command {name}")
    relaxed = copy.copy(command)
    relaxed.params = [copy.copy(each) for each in command.params]
    for each in relaxed.params:
        each.required = False
    return relaxed.make_context(name.replace(".", " "), list(flags), parent=root)


def _source(ctx: click.Context, option: click.Option) -> str | None:
    """Return where a value comes from; None for the file."""
    source = ctx.get_parameter_source(str(option.name))
    if source is ParameterSource.ENVIRONMENT:
        return f"environment {option.envvar or f'{ctx.auto_envvar_prefix}_{str(option.name).upper()}'}"
    names = {ParameterSource.COMMANDLINE: "flag", ParameterSource.DEFAULT_MAP: None}
    return names.get(source, "default") if source is not None else "default"


def _shown(name: str, value: Any) -> Any:
    if _SECRET.search(name) or (isinstance(value, str) and _SECRET_VALUE.search(value)):
        return _HIDDEN
    if isinstance(value, tuple):
        value = ", ".join(map(str, value)) or None
    return _USER_OF_URI.sub(_HIDDEN, value) if isinstance(value, str) else value
