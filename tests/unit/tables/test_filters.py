"""Filters skip the same names as a loop over Python's regular expressions; and their text."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetstream.settings.kinds import checked_pattern
from offsetstream.tables.filters import NO_FILTERS, SHORT_LIVED, Filters

GROUPS = ["a", "ab", "team-a.x", "A", "", "a\nb", "x" * 300, "console-consumer-1", "ü"]
TOPICS = [None, "orders", "orders-dlq", "__internal", "a"]
# RE2 and Python treat these expressions in the same way.
PATTERNS = ["a", "a.*", ".*a", "team-a\\..*", "(?i)a", "orders|a", "[^a]*", "x+", "a\nb", "ü"]
patterns = st.none() | st.sampled_from(PATTERNS)
records = st.lists(st.tuples(st.sampled_from([None, *GROUPS]), st.sampled_from(TOPICS), st.booleans()))


def is_filtered(filters: Filters, group: str | None, topic: str | None) -> bool:
    def is_as(pattern: str | None, name: str | None) -> bool:
        return pattern is not None and name is not None and re.fullmatch(pattern, name, re.DOTALL) is not None

    def is_other(pattern: str | None, name: str | None) -> bool:
        return pattern is not None and name is not None and not is_as(pattern, name)

    excluded = (
        is_as(filters.group_exclude, group),
        is_as(filters.short_lived, group),
        is_as(filters.topic_exclude, topic),
    )
    return any(excluded) or is_other(filters.group_filter, group) or is_other(filters.topic_filter, topic)


@given(records, st.tuples(patterns, patterns, patterns, patterns, st.sampled_from([None, SHORT_LIVED])))
def test_any_filter_skips_a_record_but_undecodable_ones_are_kept(
    rows: list[tuple[str | None, str | None, bool]], given_patterns: tuple[str | None, ...]
) -> None:
    filters = Filters(*given_patterns)
    decoded = pa.table(
        {
            "group_id": pa.array([group for group, *_ in rows], pa.string()),
            "topic": pa.array([topic for _, topic, _ in rows], pa.string()),
            "error": pa.array(["broken" if is_broken else None for *_, is_broken in rows], pa.string()),
        }
    )
    expected = [not is_broken and is_filtered(filters, group, topic) for group, topic, is_broken in rows]
    assert filters.filtered(decoded).to_pylist() == expected
    assert bool(filters) is any(given_patterns)
    assert Filters.of(filters.text) == filters
    assert (str(filters) == "") is not any(given_patterns)


def test_short_lived_groups_have_ids_that_tools_generate() -> None:
    made_up = [
        *("console-consumer-1", "console-consumer-98765", "perf-consumer-31415", "test-group-1764000000000"),
        *("confluent_cli_consumer_0b6d", "spark-kafka-source-12ab34cd-5678-driver-0"),
    ]
    chosen = [
        "console-consumer",
        "console-consumer-a",
        "my-console-consumer-1",
        "test-group-1",
        "perf-consumer-",
        "billing",
    ]
    filters = Filters(short_lived=SHORT_LIVED)
    assert filters.filters_groups(pa.array(made_up + chosen)).to_pylist() == [True] * 6 + [False] * 6


@pytest.mark.parametrize("pattern", ["", "(", "a)|(b", "(?=a)", "\\1", "*", "\ud800", 3, None])
def test_an_invalid_expression_is_refused_in_one_line(pattern: object) -> None:
    with pytest.raises(ValueError, match="is not a regular expression") as refused:
        checked_pattern(pattern)
    assert "\n" not in str(refused.value)


def test_an_unclosed_expression_is_quoted_in_the_error() -> None:
    with pytest.raises(ValueError, match=r"^'\\\\Qa' leaves something open: close it, .*\\Q with \\E$"):
        checked_pattern("\\Qa")
    assert checked_pattern("\\Qa.\\E") == "\\Qa.\\E"


def test_no_name_makes_an_expression_slow() -> None:
    """A backtracking engine would practically never end."""
    filters = Filters(group_exclude=checked_pattern("(a+)+b"))
    assert filters.filters_groups(pa.array(["a" * 249, "a" * 248 + "b"])).to_pylist() == [False, True]


def test_filters_as_text() -> None:
    assert NO_FILTERS.text is None
    filters = Filters(group_filter="a.*", topic_exclude=".*-dlq", short_lived="x")
    assert str(filters) == "groups that do not match 'a.*', offsets of topics that match '.*-dlq', short-lived groups"
