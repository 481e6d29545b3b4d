"""`offsetstream config show`: the value of each setting, and where it comes from."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

from offsetstream.cli.options import file_of_config, output_of, output_options, written
from offsetstream.cli.output import Column
from offsetstream.cli.settings_file import configurable
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
# Hides too much rather than too little: "key" is also in names of files and classes.
_SECRET = re.compile("pass|secret|token|jaas|credential|key|auth|cert|private|[.]sas[.]", re.IGNORECASE)
_SECRET_VALUE = re.compile("pass(word|phrase)|secret|credential|sig=", re.IGNORECASE)  # in Java options, for example
_USER_OF_URI = re.compile(r"(?<=://)\S*(?=@)")


@click.group()
def config() -> None:
    """Show the value of each setting, and where it comes from."""


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
@click.option(
    "--config",
    "file",
    metavar="FILE",
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    help="TOML file with settings (default: none).",
)
@click.option(
    "--cluster",
    metavar="NAME",
    envvar=CLUSTER_VARIABLE,
    show_envvar=True,
    help="Show this cluster's settings (section clusters.NAME).",
)
@output_options
def show(command: tuple[str, ...], file: str | None, cluster: str | None, **options: Any) -> None:
    """Show the settings of one command, or of all, and the source of each value.

    A source is a flag, the environment, a file or a default. The command contacts no cluster and reads no table. Values
    that may be secrets are hidden.
    """
    names, flags = _commands(command)
    given = [
        *flags,
        *([] if file is None else ["--config", file]),
        *([] if cluster is None else ["--cluster", cluster]),
    ]
    output_of(options).table(_COLUMNS, [row for name in names for row in _rows(name, given)])


def _commands(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the names of the selected commands, and the options given for them."""
    if not words:
        return list(COMMANDS), []
    for length in (2, 1):
        name = ".".join(words[:length])
        if name in COMMANDS:
            return [name], list(words[length:])
    members = [each for each in COMMANDS if each.startswith(f"{words[0]}.")]
    if not members or len(words) > 1:
        known = ", ".join(each.replace(".", " ") for each in COMMANDS)
        raise UsageError(f"{' '.join(words)} is no command with settings: give one of {known}, then its options")
    return members, []


def _rows(name: str, flags: list[str]) -> Iterator[dict[str, Any]]:
    ctx = _context(name, flags)
    file = file_of_config(ctx)
    for key, option in configurable(ctx.command).items():
        value, source = ctx.params[str(option.name)], _source(ctx, option)
        row = {"command": name.replace(".", " "), "name": key}
        if isinstance(value, dict) and value:
            for each, text in value.items():
                yield row | {
                    "name": f"{key}.{each}",
                    "value": _shown(each, text),
                    "from": source or file.where(name, key, each),
                }
        else:
            shown = _shown("", written(option, value or None if isinstance(value, dict) else value))
            yield row | {"value": shown, "from": source or file.where(name, key)}
        if key == "command-config":
            for each, text in file.kafka.items():
                origin = file.where(name, "kafka", each)
                yield row | {"name": f"kafka.{each}", "value": _shown(each, text), "from": origin}


def _context(name: str, flags: list[str]) -> click.Context:
    """Return the context in which the command would run, without required options."""
    root = click.get_current_context().find_root()
    group, _, own = name.partition(".")
    command = root.command.get_command(root, group) if isinstance(root.command, click.Group) else None
    if isinstance(command, click.Group):
        command = command.get_command(click.Context(command, parent=root), own)
    if command is None:
        raise UsageError(f"no command {name} exists")
    relaxed = copy.copy(command)
    relaxed.params = [copy.copy(each) for each in command.params]
    for each in relaxed.params:
        each.required = False
    return relaxed.make_context(name.replace(".", " "), list(flags), parent=root)


def _source(ctx: click.Context, option: click.Option) -> str | None:
    """Return the source of a value; None for the settings file."""
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
