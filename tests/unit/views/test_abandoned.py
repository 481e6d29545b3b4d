"""Offsets of a live group for topics without a subscriber are abandoned: the group has not stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from offsetstream.views.reader import ViewReader
from testkit.field_rules import Limits
from testkit.sampled_logs import SECOND, instant
from testkit.tables import reader_of, write_tables
from tests.unit.views.windows import NOW_MS, Window, tables_of

Row = dict[str, Any]
TOPIC, END = "t", 1000  # the committed offset, and the log's end


class Member(NamedTuple):
    """The topics that a member subscribes to, and how; a regular expression of its own."""

    topics: dict[str, str]
    regex: str | None = None


OTHER = Member({"other": "name"})
RESOLVED = {"other": "regex"}


def reader(
    tmp_path: Path, members: list[Member], *, group_type: str = "Consumer", committed: int = END - 20
) -> ViewReader:
    """A group that committed for the first five of ten minutes; then it has these members and no commit."""
    looks = tuple((END, NOW_MS - ago * SECOND) for ago in range(600, -1, -10))
    commits = tuple((committed - 30 + number, at) for number, (_, at) in enumerate(looks[:31]))
    rows = tables_of((Window(0, looks, commits, Limits(), window_seconds=60, members=len(members)),))
    (group,) = rows["groups"]
    group |= {"group_type": group_type}
    before = [Member({TOPIC: "name"})] * len(members)
    for back, known in ((600, before), (300, members)):
        at = {"log_id": 0, "record_offset": 600 - back, "record_timestamp": instant(NOW_MS - back * SECOND)}
        rows["group_history"].append(_without_home(group) | at | {"is_removed": False})
        change = "joined" if back == 600 else "changed"
        for number, each in enumerate(known):
            place = _without_home(group) | at | {"member_id": f"m{number}", "subscribed_topic_regex": each.regex}
            del place["group_type"], place["member_count"]
            topics = ",".join(sorted(each.topics)) or None
            rows["member_history"].append(place | {"change": change, "subscribed_topics": topics})
            if back == 300:
                home = place | {"in_coordinator_partition": True}
                rows["group_members"].append(home)
                del (by_topic := dict(home))["subscribed_topic_regex"]
                rows["member_subscriptions"] += [
                    by_topic | {"topic": topic, "subscribed_by": how} for topic, how in each.topics.items()
                ]
    return reader_of(write_tables(tmp_path, rows), instant(NOW_MS))


def _without_home(group: Row) -> Row:
    return {name: value for name, value in group.items() if name != "in_coordinator_partition"}


# Members, type of the group: the verdict for a partition with unread messages.
CASES = {
    "nobody subscribes to it": ([OTHER, OTHER], "Consumer", "abandoned"),
    "nor in a classic group": ([OTHER], "Classic", "abandoned"),
    "one member does": ([OTHER, Member({TOPIC: "name"})], "Consumer", "stopped"),
    "a topic of a longer name is another": ([Member({TOPIC * 2: "name"})], "Consumer", "abandoned"),
    "a pattern may mean it": ([OTHER, Member(RESOLVED, "o.*")], "Consumer", "stopped"),
    "a pattern beside names, too": ([Member({"other": "name"}, "o.*")], "Consumer", "stopped"),
    "an empty pattern is none": ([Member({"other": "name"}, "")], "Consumer", "abandoned"),
    "one subscription could not be decoded": ([OTHER, Member({})], "Classic", "stopped"),
    "a topology may have patterns": ([Member({"other": "topology"})], "Streams", "stopped"),
    "nobody is there": ([], "Consumer", "dead"),
}


@pytest.mark.parametrize("name", CASES)
def test_topics_that_no_member_subscribes_to_are_abandoned(tmp_path: Path, name: str) -> None:
    members, group_type, verdict = CASES[name]
    found = reader(tmp_path, members, group_type=group_type)
    (row,) = found.rows("group_status")
    assert row["verdict"] == verdict, row["verdict_reason"]
    changes = sorted(found.rows("status_changes"), key=lambda each: str(each["changed_at"]))
    assert changes[-1]["verdict"] == verdict
    assert verdict == "abandoned" or "abandoned" not in {each["verdict"] for each in changes}


def test_the_reason_names_the_number_of_unread_messages(tmp_path: Path) -> None:
    (row,) = reader(tmp_path, [OTHER]).rows("group_status")
    assert (row["level"], row["verdict_topic"], row["verdict_partition"]) == ("WARN", TOPIC, 0)
    assert row["verdict_reason"] == "20 messages wait, and no member subscribes to the topic any more"


@pytest.mark.parametrize("committed", [END, END + 30])
def test_without_unread_messages_the_verdict_is_ok(tmp_path: Path, committed: int) -> None:
    (row,) = reader(tmp_path, [OTHER], committed=committed).rows("group_status")
    assert (row["level"], row["verdict"]) == ("OK", "ok")
    assert row["verdict_reason"] == "nothing waits, and no member subscribes to the topic any more"


def test_without_members_in_the_history_nothing_is_called_abandoned(tmp_path: Path) -> None:
    found = reader(tmp_path, [OTHER, OTHER])
    known = "SELECT * FROM {} WHERE member_id = 'm0'"
    found.relation("status_changes")
    found.define("member_history", known.format(f"read_parquet('{tmp_path}/member_history.parquet')"))
    assert "abandoned" not in {each["verdict"] for each in found.rows("status_changes")}
