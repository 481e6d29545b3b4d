"""Regular expressions of whole names, as RE2 reads them: no name, whoever chose it, can make one slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offsetstream.errors import first_line

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE = r"\A(?s:{})\z"  # a dot is any character: a name may have line breaks


def checked_pattern(pattern: Any) -> str:
    """Return the expression; ValueError in our words where RE2 does not read it, or it is empty."""
    import pyarrow as pa  # noqa: PLC0415 - look-ups read no pattern

    if not isinstance(pattern, str) or not pattern:
        raise ValueError(
            f"{pattern!r} is no regular expression: leave the setting out, or give one such as 'team-a\\..*'"
        )
    try:
        _search(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        reason = first_line(error).removeprefix("Invalid regular expression: ")
        raise ValueError(f"{pattern!r} is no regular expression that RE2 reads: {reason}") from error
    try:
        whole_matches(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:  # in words of its own: RE2's have the parentheses that the user did not write
        raise ValueError(f"{pattern!r} cannot stand in parentheses: close what it opens, as \\Q by \\E") from error
    return pattern


def whole_matches(names: pa.Array, pattern: str) -> pa.Array:
    """Tell of each name whether the expression matches all of it; null where there is no name."""
    return _search(names, _WHOLE.format(pattern))


def _search(names: pa.Array, pattern: str) -> pa.Array:
    import pyarrow.compute as pc  # noqa: PLC0415 - likewise

    return pc.match_substring_regex(names, pattern)
