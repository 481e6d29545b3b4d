"""Control characters in what is printed: no text that a client chose may speak to a terminal."""

import re

# What JSON may hold as it is, but moves the cursor, ends a line or turns the text around for some who read it.
_UNSEEN = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROLS, _ALL_CONTROLS = re.compile(f"[{_UNSEEN}]"), re.compile(f"[\0-\t\x0b-\x1f{_UNSEEN}]")


def without_controls(text: str) -> str:
    r"""Return JSON with the control characters escaped that JSON may hold as they are: DEL, C1, bidi, U+2028, U+2029.

    It stands for the same values.
    """
    return text if text.isascii() and "\x7f" not in text else _CONTROLS.sub(_escaped, text)


def for_terminal(text: str) -> str:
    r"""Return text that is not ours, but Kafka's, with every control character but the newline escaped: `\u001B`."""
    return _ALL_CONTROLS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04X}"
