"""The report page: its texts, its network access, hostile names in it, and how the file is written."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from offsetstream.errors import UsageError
from offsetstream.report.queries import Period
from offsetstream.tables.location import write_file
from testkit.page import IDS, MARKUP, PERIOD, Page, write_world
from testkit.processes import within
from testkit.tables import append_rows, create_empty_tables
from tests.unit.cli.conftest import commit, group


def page_of(tables: Path, *options: str) -> Page:
    file = tables.parent / f"{tables.name}.html"
    done = within("report", "--file", str(file), "--tables", str(tables), *options)
    assert done.returncode == 0, done.stderr
    assert f"Wrote {file}" in done.stderr
    return Page(file)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page") / "world"
    write_world(root)
    return root


@pytest.fixture(scope="module")
def page(world: Path) -> Page:
    return page_of(world, *PERIOD)


def test_groups_that_are_not_ok_come_first(page: Page) -> None:
    headings = ("groups are not OK", "Who moved offsets", "Lag, in messages", "Rebalances", "Who owned which partition")
    places = [page.text.index(f"{heading}\n") for heading in (*headings, "Commits", "offsets partitions")]
    assert places == sorted(places)
    assert "8 of 11 groups are not OK" in page.text
    assert page.text.index("group-2") < page.text.index("group-10") < page.text.index("group-9")


def test_a_wait_that_started_before_the_samples_is_marked(world: Path) -> None:
    text = page_of(world, "--since", "2026-01-05T10:00", "--until", "2026-01-05T10:03").text
    assert re.search(r"\d>\d+ (s|min)", text)
    assert re.search(r"\d\d+ s", text)


def test_each_chart_is_drawn_once_with_its_rows(page: Page) -> None:
    drawn = [int(str(attributes["data-chart"])) for tag, attributes in page.tags if attributes.get("data-chart")]
    assert sorted(drawn) == list(range(len(page.data["charts"])))
    kinds = {tuple(chart["columns"]) for chart in page.data["charts"]}
    assert len(kinds) == 5
    for chart in page.data["charts"]:
        assert chart["rows"]
        assert all(len(row) == len(chart["columns"]) for row in chart["rows"])
        times = [row[at] for row in chart["rows"] for at, name in enumerate(chart["columns"]) if name in {"t", "t2"}]
        assert all(0 <= time <= 2400 for time in times)


def test_lag_is_the_sum_over_partitions_as_it_changed(page: Page, world: Path) -> None:
    status = json.loads(within("lag", "--group", "group-10", "--at", PERIOD[3], "--output", "json",
                               "--tables", str(world)).stdout)  # fmt: skip
    titles = re.findall(r"<figure><h3>([^<]*)</h3>.*?data-chart=\"(\d+)\"", page.source)
    number = next(int(number) for title, number in titles if title == "group-10")
    assert page.data["charts"][number]["rows"][-1] == [2400, sum(row["lag"] or 0 for row in status)]


def test_the_browser_may_send_no_request(page: Page) -> None:
    policy = next(str(a["content"]) for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    hashes = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in page.scripts[1:]}
    assert policy.startswith("default-src 'none'; ")
    assert set(re.findall(r"'sha256-([^']*)'", policy)) == hashes
    assert len(hashes) == 2
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    assert not [a for _, a in page.tags if "src" in a or (a.get("href") or "#")[:5] not in {"data:", *_anchors(page)}]


def _anchors(page: Page) -> set[str]:
    return {str(a["href"])[:5] for tag, a in page.tags if tag == "a" and str(a["href"]).startswith("#")} | {"#"}


def test_the_page_without_data_is_small(page: Page) -> None:
    assert len(page.source) - len(page.scripts[0]) < 1_500_000


def test_hosts_are_shown_on_request_only(page: Page, world: Path) -> None:
    assert "10.0.0." not in page.source
    assert " at /10.0.0." in page_of(world, *PERIOD, "--show-hosts").text


def test_hostile_ids_stay_text(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    create_empty_tables(tables)
    ids = [*IDS, *MARKUP, "lead", "sp ace", "sp  ace", "x" * 32_000, "x" * 31_999]
    now = round(datetime.now(UTC).timestamp() * 1000)
    append_rows(tables, "groups", [group(each, "Classic", "Stable", 1) for each in ids])
    commits = [commit(each, each[:200], 0, 5, commit_timestamp_ms=now) for each in ids]
    append_rows(tables, "committed_offsets", commits)
    page = page_of(tables)
    assert len(page.scripts) == 3
    assert [tag for tag, _ in page.tags if tag in {"img", "iframe", "b"}] == []
    assert all(character.isprintable() or character == "\n" for character in page.text)
    assert "</script><script>alert(1)</script>" in page.text
    assert r"a\u202eb\u2028" in page.text
    assert page.text.count("(32000 characters)") == 1
    assert len(page.source) < 1_500_000
    names = re.findall(r'<td class="name" data-label="Group">(.*?)</td>', page.source)
    assert len({" ".join(name.split()) for name in names}) == len(set(ids))


def test_empty_tables_say_so(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    create_empty_tables(tables)
    page = page_of(tables)
    for words in ("No groups", "Nobody", "lag is unknown", "no decoded history", "No group committed", "no job has"):
        assert words in page.text
    assert page.data["charts"] == []


def test_a_period_without_data_says_so(world: Path) -> None:
    text = page_of(world, "--since", "2026-01-06", "--until", "2026-01-07").text
    assert "No group rebalanced in this period" in text
    assert "No group committed an offset in this period" in text


def test_no_offset_moves_is_claimed_only_for_times_in_the_history(tmp_path: Path) -> None:
    tables, hour = tmp_path / "tables", datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    create_empty_tables(tables)
    book = {"offsets_partition": 0, "log_id": 0, "load_state": "OWNED", "history_complete_from": hour}
    append_rows(tables, "offsets_partitions", [book])
    since = f"{hour - timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}"
    text = page_of(tables, "--since", since).text
    assert f"Nobody since {hour:%Y-%m-%d %H:%M:%S}. The history is incomplete before that time" in text


def test_the_page_of_a_group_says_what_this_group_lacks(tmp_path: Path) -> None:
    """A group that only commits has no assignment. That is no gap in the history."""
    tables = tmp_path / "tables"
    create_empty_tables(tables)
    append_rows(tables, "offsets_partitions", [{"offsets_partition": 0, "coordinator_id": 1, "next_decoded_offset": 7}])
    append_rows(tables, "groups", [group("alone", "Classic", "Empty", 0)])
    append_rows(tables, "committed_offsets", [commit("alone", "orders", 0, 5)])
    text = page_of(tables, "--group", "alone").text
    assert "No member was assigned a partition in this period" in text
    assert "No group rebalanced in this period" in text
    assert "no decoded history" not in text
    assert "Nobody: there were no commits in this period" in text
    assert "no records of this group in this period" in text


@pytest.mark.parametrize("brokers", [8, 9])
def test_a_colour_used_twice_is_explained(tmp_path: Path, brokers: int) -> None:
    tables = tmp_path / "tables"
    create_empty_tables(tables)
    rows = [{"offsets_partition": number, "coordinator_id": number} for number in range(brokers)]
    append_rows(tables, "offsets_partitions", rows)
    page = page_of(tables)
    assert ("Some share a colour" in page.text) == (brokers > 8)
    assert "broker 7" in page.text


def test_the_page_says_how_many_moves_it_does_not_show(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    create_empty_tables(tables)
    move = {"event": "coordinator moved", "offsets_partition": 1, "event_at": datetime.now(UTC) - timedelta(hours=1)}
    moves = [move | {"previous_coordinator_id": number, "coordinator_id": number + 1} for number in range(301)]
    append_rows(tables, "partition_events", moves[:300])
    assert "The latest 300" not in page_of(tables).text
    append_rows(tables, "partition_events", moves[300:])
    page = page_of(tables)
    assert "The latest 300 are shown; offsetstream partitions --events lists all" in page.text
    assert page.text.count("coordinator moved") == 300


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--until", "2026-01-05", "--watch", "5"), "omit one of them"),
        (("--since", "2026-01-05", "--until", "2026-01-04"), "give an earlier --since"),
        (("--until", "2999-01-01"), "in the future"),
        (("--until", "0001-01-01"), "give an earlier --since"),
    ],
)
def test_an_invalid_period_is_refused(world: Path, options: tuple[str, ...], words: str) -> None:
    done = within("report", "--file", str(world.parent / "none.html"), "--tables", str(world), *options)
    assert done.returncode in {1, 2}
    assert words in done.stderr
    assert not (world.parent / "none.html").exists()


def test_a_page_never_replaces_what_is_not_a_plain_file(tmp_path: Path) -> None:
    """Run as root, a page written to /dev/null replaced the device."""
    page, link, pipe = tmp_path / "page.html", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to("page.html")
    write_file(str(link), b"one")
    assert (link.is_symlink(), page.read_bytes()) == (True, b"one")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_file(str(pipe), b"two")
        assert (os.read(reader, 10), pipe.is_fifo()) == (b"two", True)
    finally:
        os.close(reader)


def test_a_private_page_stays_private(tmp_path: Path) -> None:
    page, new = tmp_path / "page.html", tmp_path / "new.html"
    page.touch(0o600)
    before = os.umask(0o077)
    try:
        write_file(str(page), b"one")
        write_file(str(new), b"one")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (page, new)] == [0o600, 0o600]


def test_a_page_replaces_the_previous_one_atomically(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    write_file(str(file), b"one")
    with file.open("rb") as reading:
        write_file(str(file), b"another")
        assert reading.read() == b"one"
    assert file.read_bytes() == b"another"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(UsageError, match="cannot write"):
        write_file(str(tmp_path / "no folder" / "page.html"), b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        write_file(str(tmp_path / "folder"), b"")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "page.html"]


@pytest.mark.parametrize("length", [timedelta(minutes=1), timedelta(hours=3), timedelta(days=1), timedelta(days=900)])
def test_a_period_has_no_more_than_120_buckets(length: timedelta) -> None:
    period = Period(datetime(2026, 1, 5, tzinfo=UTC) - length, datetime(2026, 1, 5, tzinfo=UTC))
    assert period.seconds / period.step <= 120
    assert period.step % 60 == 0
