"""Write docs/reference/commands.md from the commands themselves (`make docs`)."""

from __future__ import annotations

import inspect
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from offsetstream.cli.main import main as offsetstream

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
_HEAD = """# Commands

Every command with its options, as `--help` prints them; `make docs` writes this page from the commands. The name of an
option is also its key in the settings file (`max-silence` in `[run]`) and its environment variable
(`OFFSETSTREAM_MAX_SILENCE`).

[Columns](columns.md) says what their answers show, [exit codes](exit-codes.md) how they end.

"""
_ENVIRONMENT = re.compile(r" *\[env var: \w+\]|(?<=\[)env var: \w+; ")  # left out: the head of the page has the rule
_FOOT = """Where to go: [ask the tables](../how-to/ask.md) for which command answers which question,
[configure](../how-to/configure.md) for the settings file.
"""

_Option = tuple[str, str]  # names, description
_COMMON = 8  # an option of at least 8 commands is described once


def commands_page() -> str:
    """Return the page: the common options, and a section for each command."""
    commands = list(_commands(click.Context(offsetstream, info_name="offsetstream"), offsetstream))
    used = Counter(option for _, _, options in commands for option in options)
    common = [option for option, count in used.items() if count >= _COMMON]
    sections = [_section(*each, common) for each in commands]
    listed = "".join(f"| [`{path}`](#{path.replace(' ', '-')}) | {what} |\n" for path, what, _ in sections)
    head = f"{_HEAD}| command | what it does |\n|---|---|\n{listed}\n"
    described_once = f"## Common options\n\nMany commands have these.\n\n{_table(common)}\n"
    return head + described_once + "".join(section for _, _, section in sections) + _FOOT


def _section(
    context: click.Context, command: click.Command, options: list[_Option], common: list[_Option]
) -> tuple[str, str, str]:
    path = context.command_path.removeprefix("offsetstream ")
    first, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    examples = inspect.cleandoc(command.epilog or "").replace("\b\n", "").strip()
    names = ", ".join(f"`{option[0].split()[0]}`" for option in options if option in common)
    parts = [
        f"## {path}",
        " ".join(first.split()),
        _prose(rest),
        f"```text\n{usage}\n\n{examples}\n```",
        _table([option for option in options if option not in common]),
        names and f"And the [common options](#common-options) {names}.",
    ]
    return path, " ".join(first.split()), "\n\n".join(part.rstrip() for part in parts if part) + "\n\n"


def _commands(
    context: click.Context, group: click.Group
) -> Iterator[tuple[click.Context, click.Command, list[_Option]]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:  # only for type checkers
            continue
        own = click.Context(command, info_name=name, parent=context, max_content_width=10_000)
        if isinstance(command, click.Group):
            yield from _commands(own, command)
        else:
            yield own, command, list(_options(own, command))


def _options(context: click.Context, command: click.Command) -> Iterator[_Option]:
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record and "--help" not in option.opts:
            yield record[0], _ENVIRONMENT.sub("", record[1])


def _table(options: list[_Option]) -> str:
    rows = "".join(f"| `{_cell(names)}` | {_cell(what)} |\n" for names, what in options)
    return f"| option | what |\n|---|---|\n{rows}" if rows else ""


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(each.replace("\b", "").split()) for each in text.split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write the page."""
    PAGE.write_text(commands_page(), encoding="utf-8")


if __name__ == "__main__":
    os.environ.pop("OFFSETSTREAM_CONFIG", None)
    main()
