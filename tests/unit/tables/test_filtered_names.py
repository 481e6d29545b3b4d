"""Names count as filtered only if every offsets partition filters them."""

from __future__ import annotations

from offsetstream.tables.filtered_names import FilteredNames
from offsetstream.tables.filters import Filters

SOME = Filters(group_exclude="b|c", topic_filter="orders").text
OTHERS = Filters(group_exclude="c|d").text
NO_UTF8 = b"\xff".decode("utf-8", "surrogateescape")


def test_groups_and_topics() -> None:
    filtered = FilteredNames((SOME,))
    assert filtered.groups(["d", "c", "a", "b", NO_UTF8]) == ["b", "c"]
    assert filtered.topics(["views", "orders", "b"]) == ["b", "views"]
    assert filtered.note == (
        "the filters of the tables exclude groups that match 'b|c', offsets of topics that do not match 'orders'"
    )


def test_names_while_a_change_of_filters_is_loading() -> None:
    filtered = FilteredNames((SOME, OTHERS))
    assert filtered.groups("abcd") == ["c"]
    assert filtered.topics(["views"]) == []
    assert (filtered.note or "").count("; or ") == 1


def test_without_filters() -> None:
    for none in ((), (None,), (SOME, None)):
        assert FilteredNames(none).groups("abcd") == FilteredNames(none).topics(["views"]) == []
    assert FilteredNames(()).note is FilteredNames((None,)).note is None
    assert FilteredNames((SOME, None)).note is not None
