"""Format names and numbers for the page. Text from clients always stays plain text."""

from __future__ import annotations

import re

_LONGEST = 80
_SPACES = re.compile(r"^ | $|(?<= ) ")  # HTML collapses these spaces
_SIZES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def printable(text: str) -> str:
    r"""Return text with unprintable characters as Python escapes: `\x1b`, `\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def clipped(text: str) -> str:
    """Return printable text, shortened to fit the page, with visible spaces."""
    shown = _SPACES.sub(r"\\x20", printable(text[: _LONGEST + 1]))
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 20]}… ({len(text)} characters)"


def duration(seconds: float | None) -> str:
    """Return a duration in its two greatest units; a dash for None."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    at = next((at for at, (size, _) in enumerate(_SIZES) if whole >= size), len(_SIZES) - 1)
    (size, unit), (smaller, its_unit) = _SIZES[at], _SIZES[min(at + 1, len(_SIZES) - 1)]
    rest = whole % size // smaller
    return f"{whole // size} {unit}" + (f" {rest} {its_unit}" if rest else "")


class Labels:
    """Display labels of names. Different names always get different labels."""

    def __init__(self) -> None:
        self._labels: dict[str | None, str] = {}
        self._taken: dict[str, int] = {}

    def __getitem__(self, name: str | None) -> str:
        """Return the label of a name."""
        if name not in self._labels:
            label = "-" if name is None else clipped(name) or "(empty)"
            number = self._taken[label] = self._taken.get(label, 0) + 1
            self._labels[name] = label if number == 1 else f"{label} #{number}"
        return self._labels[name]
