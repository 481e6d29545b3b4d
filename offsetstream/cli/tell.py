"""Lines for a person: errors, and what is to be known beside an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import click

_about = ContextVar("about", default="")


def printable(text: str) -> str:
    """Return the text with what would move the cursor, or not be seen, as Python writes it: an id may hold anything."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def tell(line: str, *, err: bool = True, fg: str | None = None) -> None:
    """Write a line for a person, to stderr or to stdout; to stderr what is about one of several clusters.

    On a terminal it has the colour `fg`, if one is given.
    """
    click.secho(_about_it(line), err=err or bool(_about.get()), fg=fg)


def tell_apart(lines: Sequence[str]) -> None:
    """Write lines for a person to stderr as `tell` does, each after an empty one, at once: there may be a million."""
    click.echo("".join([f"\n{_about_it(line)}\n" for line in lines]), err=True, nl=False)


def _about_it(line: str) -> str:
    about = _about.get()
    return printable(f"{about}: {line}" if about else line)


@contextmanager
def about(cluster: str) -> Iterator[None]:
    """Have `tell` begin its lines with the name of a cluster."""
    before = _about.set(cluster)
    try:
        yield
    finally:
        _about.reset(before)
