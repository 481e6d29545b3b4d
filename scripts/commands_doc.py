"""Write docs/reference/commands.md from the commands themselves (`make docs`)."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path

import click

from offsetstream.cli.main import main as offsetstream

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
_HEAD = """# Commands

Every command with its options, as `--help` prints them; `make docs` writes this page from the commands. The name of an
option is also its key in the settings file (`max-silence` in `[run]`) and its environment variable
(`OFFSETSTREAM_MAX_SILENCE`).

[Exit codes](exit-codes.md) says how they end.

"""
_ENVIRONMENT = re.compile(r" *\[env var: \w+\]|(?<=\[)env var: \w+; ")  # the head of the page has the rule
_FOOT = """Where to go: [ask the tables](../how-to/ask.md) for which command answers which question,
[configure](../how-to/configure.md) for the settings file.
"""


def commands_page() -> str:
    """Return the page: a section for each command."""
    root = click.Context(offsetstream, info_name="offsetstream")
    found = list(_commands(root, offsetstream))
    listed = "".join(f"| [`{path}`](#{path.replace(' ', '-')}) | {what} |\n" for path, what, _ in found)
    return (
        f"{_HEAD}| command | what it does |\n|---|---|\n{listed}\n{''.join(section for _, _, section in found)}{_FOOT}"
    )


def _commands(context: click.Context, group: click.Group) -> Iterator[tuple[str, str, str]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:  # by click's types
            continue
        own = click.Context(command, info_name=name, parent=context, max_content_width=10_000)
        if isinstance(command, click.Group):
            yield from _commands(own, command)
        else:
            yield _section(own, command)


def _section(context: click.Context, command: click.Command) -> tuple[str, str, str]:
    path = context.command_path.removeprefix("offsetstream ")
    text = inspect.cleandoc(command.help or "")
    first, _, rest = text.partition("\n\n")
    options = "".join(
        f"| `{_cell(names)}` | {_cell(_ENVIRONMENT.sub('', what))} |\n"
        for option in command.get_params(context)
        if isinstance(option, click.Option) and "--help" not in option.opts
        for names, what in [option.get_help_record(context) or ("", "")]
        if names
    )
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    examples = inspect.cleandoc(command.epilog or "").replace("\b\n", "").strip()
    parts = [f"## {path}", " ".join(first.split()), _prose(rest), f"```text\n{usage}\n\n{examples}\n```"]
    table = f"| option | what |\n|---|---|\n{options}" if options else ""
    return path, " ".join(first.split()), "\n\n".join([*filter(None, parts), table]).rstrip() + "\n\n"


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
