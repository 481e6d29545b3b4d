"""Suggest existing names for an unknown name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_text(name: str, known: Iterable[str], number: int = 3) -> str:
    """Return `; nearest: a, b`, or an empty text if no name is similar."""
    found = get_close_matches(name, list(known), number, 0.5)
    return f"; nearest: {', '.join(found)}" if found else ""
