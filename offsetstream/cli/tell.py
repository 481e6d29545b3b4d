"""Print lines for a person: errors, warnings and notes next to an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import click

_about = ContextVar("about", default="")


def printable(text: str) -> str:
    """Return the text with control and invisible characters escaped as in Python: an id may contain any character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def tell(line: str, *, err: bool = True, fg: str | None = None) -> None:
    """Print a line for a person to stderr, or with `err=False` to stdout.

    Lines about one of several clusters always go to stderr. `fg` is the colour on a terminal.
    """
    click.secho(_prefixed(line), err=err or bool(_about.get()), fg=fg)


def tell_apart(lines: Sequence[str]) -> None:
    """Print lines to stderr as `tell` does, each after an empty line, in one write: there may be a million."""
    click.echo("".join([f"\n{_prefixed(line)}\n" for line in lines]), err=True, nl=False)


def _prefixed(line: str) -> str:
    about = _about.get()
    return printable(f"{about}: {line}" if about else line)


@contextmanager
def about(cluster: str) -> Iterator[None]:
    """Have `tell` start its lines with the name of a cluster while the context lasts."""
    before = _about.set(cluster)
    try:
        yield
    finally:
        _about.reset(before)
