"""Print lines for a person: errors, warnings and notes next to an answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import click

_prefix = ContextVar("prefix", default="")


def printable(text: str) -> str:
    """Return the text with control and invisible characters escaped as in Python: an id may contain any character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def counted(number: int, what: str) -> str:
    """Return a number of things: 1 group, 2 groups."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def print_line(line: str, *, err: bool = True, fg: str | None = None) -> None:
    """Print a line for a person to stderr, or with `err=False` to stdout.

    Lines about one of several clusters always go to stderr. `fg` is the colour on a terminal.
    """
    text = _prefixed(line)
    click.echo(click.style(text, fg=fg) if fg and allows_color() else text, err=err or bool(_prefix.get()))


def allows_color() -> bool:
    """Tell whether a terminal may have colours (https://no-color.org)."""
    return not os.environ.get("NO_COLOR")


def print_lines(lines: Sequence[str]) -> None:
    """Print lines to stderr as `print_line` does, each after an empty line, in one write: there may be a million."""
    click.echo("".join([f"\n{_prefixed(line)}\n" for line in lines]), err=True, nl=False)


def _prefixed(line: str) -> str:
    cluster = _prefix.get()
    return printable(f"{cluster}: {line}" if cluster else line)


@contextmanager
def prefix_lines(cluster: str) -> Iterator[None]:
    """Have `print_line` start its lines with the name of a cluster while the context lasts."""
    before = _prefix.set(cluster)
    try:
        yield
    finally:
        _prefix.reset(before)
