"""What the commands that change a cluster read, before they ask it: files of offsets, renames, lengths of time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click import BadParameter

from offsetstream.cli.change_offsets import KafkaDuration
from offsetstream.cli.changes import command_line
from offsetstream.cluster.answers import CommittedOffset
from offsetstream.errors import OffsetstreamError, UsageError
from offsetstream.operations.moves import Renames, renamed
from offsetstream.operations.offset_file import HEADING, ExportedOffset, RecordTime, csv_lines, read_offset_file
from offsetstream.operations.plan import Change
from offsetstream.operations.reset import parse_topics
from offsetstream.operations.undo import Snapshot, newest_snapshot, read_snapshot, write_snapshot
from testkit.processes import Done, within


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        (tmp_path / "offsets.csv").write_text(text, "utf-8")
        return str(tmp_path / "offsets.csv")

    return write


TIMED = ",".join(HEADING) + "\n"


def test_a_file_of_one_group_and_one_of_many(file: Callable[[str], str]) -> None:
    assert read_offset_file(file("orders,0,5\n\norders,1,0\n"), ["billing"]).offsets == [
        ExportedOffset("billing", "orders", 0, 5),
        ExportedOffset("billing", "orders", 1, 0),
    ]
    many = file('"a ""b"", c",orders,0,5\n日本,orders,0,6\n')
    assert [each.group_id for each in read_offset_file(many, []).offsets] == ['a "b", c', "日本"]
    assert read_offset_file(many, ["日本"]).offsets == [ExportedOffset("日本", "orders", 0, 6)]


def test_what_a_plan_does_not_use_of_a_file_is_reported(file: Callable[[str], str]) -> None:
    path = file(f"{TIMED}g,orders,0,5,1763600000000,2\nh,orders,0,5,1763600000000,2\n")
    found = read_offset_file(path, ["g"])
    others = f"{path} also has offsets of group h: they are not used"
    assert found.offsets == [ExportedOffset("g", "orders", 0, 5, RecordTime(1763600000000, 2))]
    assert found.notes(uses_times=True) == [others]
    assert found.notes(uses_times=False) == [others, f"the columns timestamp_ms and read_again of {path} are not used"]
    assert found.unplanned([("g", ("orders", 0))]) == []
    assert found.unplanned([]) == [f"{path} also has offsets of partition orders-0: they are not used"]
    many = read_offset_file(file("".join(f"g{number},orders,0,5\n" for number in range(6))), ["g0"])
    assert many.notes(uses_times=False) == [
        f"{path} also has offsets of groups g1, g2, g3 and 2 more: they are not used"
    ]


def test_a_foreign_file_is_refused_before_the_cluster_is_asked(file: Callable[[str], str]) -> None:
    """Group, topic, partition, source offset, target offset, time of another backup tool: the source was planned."""
    foreign = file("billing,orders,0,41,17,1763600000000\n")
    for command in (("reset", "--group", "billing", "--from-file", foreign), ("import", foreign, "--same-log")):
        done: Done = within("offsets", *command, "--bootstrap-server", "127.0.0.1:1")
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done
        assert "line 1 has 6 fields; expected [group,]topic,partition,offset" in done.stderr


@pytest.mark.parametrize(
    ("text", "groups", "told"),
    [
        ("orders,0,5\n", [], "line 1 has no group"),
        ("orders,0,5\n", ["a", "b"], "line 1 has no group"),
        ("g,orders,0,5\ng,orders,0,6\n", [], "line 2: orders-0 is a duplicate"),
        ("g,orders,0,-1\n", [], "numbers of 0 or more"),
        ("g,orders,0,٣\n", [], "numbers of 0 or more"),
        (f"g,orders,0,{2**63}\n", [], "numbers of 0 or more"),
        (f"g,orders,0,{'9' * 5000}\n", [], "numbers of 0 or more"),
        ("g,orders,0,5,6\n", [], "line 1 has 5 fields; expected"),
        ("orders,0\n", ["g"], "line 1 has 2 fields; expected"),
        ("orders\n", ["g"], "line 1 has 1 field; expected"),
        ("g,orders,0,5,6,7\n", ["g"], "line 1 has 6 fields; expected"),
        (f"g,orders,0,5,6,7\n{TIMED}", ["g"], "line 1 has 6 fields; expected"),
        ("g,orders,0,5\ng,orders,1,5,6,7\n", ["g"], "line 2 has 6 fields, but the first line has 4"),
        ("orders,0,5\ng,orders,1,5\n", ["g"], "line 2 has 4 fields, but the first line has 3"),
        (f"{TIMED}g,orders,0,5\n", ["g"], "line 2 has 4 fields, but the first line has 6"),
        (TIMED, [], "has no offsets"),
        ("group,topic,partition,offset,target_offset,time\ng,orders,0,5,6,7\n", [], "line 1 has 6 fields; expected"),
        ("GROUP,TOPIC,PARTITION,OFFSET\n", [], "numbers of 0 or more"),
        ("g,orders,0,5\n", ["h"], "has no offset of group 'h'"),
        ("", [], "has no offset"),
        ('g,"orders,0,5\n', [], "Cannot read"),
    ],
)
def test_invalid_offset_file_is_refused(file: Callable[[str], str], text: str, groups: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_offset_file(file(text), groups)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Cannot read"):
        read_offset_file(str(tmp_path / "nowhere.csv"), [])


def test_topics_and_partitions() -> None:
    assert parse_topics(["orders", "payments:0,2", "payments:3"]) == {"orders": None, "payments": [0, 2, 3]}
    assert parse_topics(["orders:1", "orders"]) == {"orders": None}
    for wrong in (":0", "orders:", "orders:a", "orders:0,", "orders:-1", ""):
        with pytest.raises(UsageError, match="not a topic"):
            parse_topics([wrong])


def test_renames() -> None:
    renames = Renames([r"orders-(\d)=old.\1.orders", "(pay.*)=dc1.\\1"])
    assert [renames.name(each) for each in ("orders-1", "payments", "other", "my-orders-1")] == [
        "old.1.orders",
        "dc1.payments",
        "other",
        "my-orders-1",
    ]
    both = [ExportedOffset("g", "a", 0, 1), ExportedOffset("h", "b", 1, 2)]
    with pytest.raises(UsageError, match="a and b the same name, x"):
        renamed(both, Renames([".*=x"]))
    for wrong in ("orders", "=x", "a=", "(=x"):
        with pytest.raises(UsageError, match="--rename-topic"):
            Renames([wrong])
    with pytest.raises(UsageError, match="--rename-topic"):
        Renames([r"a=\2"]).name("a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1H", timedelta(hours=1)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("p7d", timedelta(days=7)),
        ("1d12h", timedelta(hours=36)),
    ],
)
def test_durations_of_both_kinds(text: str, expected: timedelta) -> None:
    assert KafkaDuration().convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["P", "PT", "1", "P1M", "-PT1H", "P99999999999D"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(BadParameter):
        KafkaDuration().convert(text, None, None)


def test_snapshot_is_read_back_unchanged(tmp_path: Path) -> None:
    changes = (
        Change("g", "orders", 0, CommittedOffset(1, 3, "日本"), CommittedOffset(2), topic_id="id"),
        Change("g", "orders", 1, None, CommittedOffset(2)),
    )
    kept = Snapshot("abc", "reset", "cluster", datetime(2026, 1, 2, tzinfo=UTC), changes, ("h",))
    path = write_snapshot(tmp_path / "new", kept)
    assert read_snapshot(path) == kept
    assert newest_snapshot(tmp_path / "new") == path
    with pytest.raises(OffsetstreamError, match="There is no snapshot"):
        newest_snapshot(tmp_path)
    for text, told in [
        ("{", "Cannot read the snapshot"),
        ("{}", "Cannot read the snapshot"),
        ('{"format": 2}', "Another version"),
        ("[]", "Cannot read the snapshot"),
    ]:
        path.write_text(text, "utf-8")
        with pytest.raises(OffsetstreamError, match=told):
            read_snapshot(path)
    written = json.dumps({"format": 1, "operation_id": "a"})
    path.write_text(written, "utf-8")
    with pytest.raises(OffsetstreamError, match="Cannot read the snapshot"):
        read_snapshot(path)


@pytest.mark.parametrize(
    ("of_what", "name", "value"),
    [
        ("before", "offset", "5"),
        ("before", "leader_epoch", 1.5),
        ("before", "metadata", 5),
        ("before", "metadata", "\ud800"),
        ("change", "group", None),
        ("change", "topic", 3),
        ("change", "partition", "0"),
        ("change", "partition", True),
        ("change", "after", [1]),
        ("all", "deleted_groups", [1]),
        ("all", "changes", 5),
    ],
)
def test_modified_snapshot_is_refused(tmp_path: Path, of_what: str, name: str, value: object) -> None:
    change = Change("g", "orders", 0, CommittedOffset(1, 3, ""), CommittedOffset(2), topic_id="id")
    path = write_snapshot(tmp_path, Snapshot("abc", "reset", "cluster", datetime(2026, 1, 2, tzinfo=UTC), (change,)))
    whole = json.loads(path.read_text("utf-8"))
    {"all": whole, "change": whole["changes"][0], "before": whole["changes"][0]["before"]}[of_what][name] = value
    path.write_text(json.dumps(whole), "utf-8")
    with pytest.raises(OffsetstreamError, match="Cannot read the snapshot"):
        read_snapshot(path)
    path.write_text("[" * 100_000, "utf-8")
    with pytest.raises(OffsetstreamError, match="Cannot read the snapshot"):
        read_snapshot(path)


def test_recorded_command_line_has_no_secret() -> None:
    given = ["offsets", "undo", "--conf", "a.key=s3cret", "--conf=b=s3cret", "--group", "my group", "--conf", "odd"]
    assert command_line(given) == (
        "offsetstream offsets undo --conf a.key=... --conf=b=... --group 'my group' --conf odd=..."
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("offsets", "reset", "--group", "g", "--topic", "t"),
        ("offsets", "reset", "--group", "g", "--topic", "t", "--to-latest", "--to-earliest"),
        ("offsets", "reset", "--group", "g", "--to-latest"),
        ("offsets", "reset", "--group", "g", "--topic", "t:2147483648", "--to-latest", "--bootstrap-server", "x:1"),
        ("offsets", "reset", "--group", "g", "--topic", "t*", "--to-latest", "--bootstrap-server", "x:1"),
        ("offsets", "reset", "--group", "g", "--all-groups", "--all-topics", "--to-latest"),
        ("offsets", "reset", "--all-topics", "--to-latest"),
        ("offsets", "reset", "--group", "g", "--all-topics", "--to-latest"),  # of no broker
        ("offsets", "import", "file", "--same-log", "--translate", "timestamp"),
        ("offsets", "import", "file"),
        ("groups", "delete"),
        ("offsets", "delete", "--group", "g"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...]) -> None:
    done: Done = within(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done


def test_a_file_of_another_cluster_comes_back_with_any_name(file: Callable[[str], str]) -> None:
    rows: list[Sequence[str | int]] = [HEADING, ('a "b", c\nd', "orders", 0, 5, 17, 2), ("", "orders", 1, 0, 0, 0)]
    assert read_offset_file(file("".join(csv_lines(rows))), []).offsets == [
        ExportedOffset('a "b", c\nd', "orders", 0, 5, RecordTime(17, 2)),
        ExportedOffset("", "orders", 1, 0, RecordTime(0, 0)),
    ]
