"""Escape control characters in output, so that text from clients cannot control a terminal."""

import re

# Characters that JSON allows unescaped, but that move the cursor, end a line or reverse text in some terminals.
_UNSEEN = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROLS, _ALL_CONTROLS = re.compile(f"[{_UNSEEN}]"), re.compile(f"[\0-\t\x0b-\x1f{_UNSEEN}]")


def without_controls(text: str) -> str:
    r"""Return JSON in which DEL, C1, bidi, U+2028 and U+2029 are escaped, too. JSON itself allows them unescaped.

    The values stay the same.
    """
    return text if text.isascii() and "\x7f" not in text else _CONTROLS.sub(_escaped, text)


def for_terminal(text: str) -> str:
    r"""Return foreign text with every control character except newline escaped, for example `\u001B`."""
    return _ALL_CONTROLS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04X}"
