"""Regular expressions (RE2) that match complete names. RE2 takes linear time, so no name can make a match slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offsetstream.errors import first_line

if TYPE_CHECKING:
    import pyarrow as pa

_COMPLETE = r"\A(?s:{})\z"  # a dot matches any character: a name may contain line breaks


def checked_pattern(pattern: Any) -> str:
    """Return the pattern. Raise ValueError if it is empty or not valid in RE2."""
    import pyarrow as pa  # noqa: PLC0415 - slow, and look-ups need no pattern

    if not isinstance(pattern, str) or not pattern:
        raise ValueError(
            f"{pattern!r} is not a regular expression: omit the setting, or give one such as 'team-a\\..*'"
        )
    try:
        _search(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        reason = first_line(error).removeprefix("Invalid regular expression: ")
        raise ValueError(f"{pattern!r} is not a regular expression that RE2 accepts: {reason}") from error
    try:
        whole_matches(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:  # RE2's message would show parentheses that the user did not write
        raise ValueError(f"{pattern!r} leaves something open: close it, for example \\Q with \\E") from error
    return pattern


def whole_matches(names: pa.Array, pattern: str) -> pa.Array:
    """Return for each name whether the pattern matches it completely; null for a null name."""
    return _search(names, _COMPLETE.format(pattern))


def _search(names: pa.Array, pattern: str) -> pa.Array:
    import pyarrow.compute as pc  # noqa: PLC0415 - slow

    return pc.match_substring_regex(names, pattern)
