"""Of which names the tables say that their filters leave them out: only where every offsets partition does."""

from __future__ import annotations

from offsetstream.tables.filters import Filters
from offsetstream.tables.left_out import LeftOutNames

SOME = Filters(group_exclude="b|c", topic_filter="orders").text
OTHERS = Filters(group_exclude="c|d").text
NO_UTF8 = b"\xff".decode("utf-8", "surrogateescape")


def test_groups_and_topics() -> None:
    left_out = LeftOutNames((SOME,))
    assert left_out.groups(["d", "c", "a", "b", NO_UTF8]) == ["b", "c"]
    assert left_out.topics(["views", "orders", "b"]) == ["b", "views"]
    assert left_out.note == (
        "the filters of the tables leave out groups that match 'b|c', offsets of topics that do not match 'orders'"
    )


def test_while_other_filters_are_loaded() -> None:
    left_out = LeftOutNames((SOME, OTHERS))
    assert left_out.groups("abcd") == ["c"]
    assert left_out.topics(["views"]) == []
    assert (left_out.note or "").count("; or ") == 1


def test_without_filters() -> None:
    for none in ((), (None,), (SOME, None)):
        assert LeftOutNames(none).groups("abcd") == LeftOutNames(none).topics(["views"]) == []
    assert LeftOutNames(()).note is LeftOutNames((None,)).note is None
    assert LeftOutNames((SOME, None)).note is not None
