import csv
import io
import json
from pathlib import Path

from testkit.tables import append_rows
from tests.unit.cli.conftest import T1, Run, commit


def test_list_as_text(run: Run) -> None:
    result = run("offsets", "list", "--group", "app", "--group", "old")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "GROUP           TOPIC                     PARTITION COMMITTED-OFFSET LEADER-EPOCH COMMIT-TIME"
        "              METADATA",
        "app             a-topic-with-a-long-name          0               -1            - 2026-01-01T00:00:00.123Z",
        "app             t                                 0              100            5 2026-01-01T00:00:00.123Z "
        r'by hand, "really"\nso',
        "app             t                                 1               50            - 2026-01-01T00:00:00.123Z",
        "old             t                                 9                2            - 2026-01-01T00:00:00.123Z",
        "old             t                                10                1            - 4611686018427387904",
    ]


def test_all_groups_and_only_the_current_copy_of_one(run: Run) -> None:
    lines = run("offsets", "list").stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["app", "app", "app", "kip", "moved", "old", "old"]
    assert [line.split()[3] for line in lines if line.startswith("moved")] == ["2"]


def test_only_a_topic_and_a_partition(run: Run) -> None:
    rows = json.loads(run("offsets", "list", "--topic", "t", "--partition", "0", "--output", "json").stdout)
    assert [(row["group"], row["committed_offset"]) for row in rows] == [
        ("app", 100),
        ("kip", 11),
        ("moved", 1),
        ("moved", 2),
    ]


def test_csv_and_json_have_more_columns(run: Run) -> None:
    text = run("offsets", "list", "--group", "app", "--output", "csv").stdout_bytes.decode()
    rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert rows[1]["metadata"] == 'by hand, "really"\nso'
    assert (rows[2].pop("as_of") > "2026", rows[2].pop("stale")) == (True, "false")
    assert rows[2] == {
        "group": "app",
        "topic": "t",
        "partition": "1",
        "committed_offset": "50",
        "leader_epoch": "",
        "commit_time": "2026-01-01T00:00:00.123Z",
        "log_end_offset": "",
        "lag": "",
        "metadata": "",
        "expire_time": "",
        "topic_id": T1,
        "record_offset": "7",
        "offsets_partition": "1",
        "in_coordinator_partition": "true",
        "note": "",
    }
    old = json.loads(run("offsets", "list", "--group", "old", "--output", "json").stdout)
    assert [row["expire_time"] for row in old] == [None, "2026-01-01T00:00:00.000Z"]


def test_a_group_that_is_not_there(run: Run) -> None:
    result = run("offsets", "list", "--group", "nope", "--group", "app", "--output", "json")
    assert (result.exit_code, result.stderr) == (1, "Error: group 'nope' is not there\n")
    without = run("offsets", "list", "--group", "share")
    assert (without.stdout, without.stderr) == ("", "Error: group 'share' has no such committed offset\n")
    assert len(json.loads(result.stdout)) == 3


def test_any_time_that_a_client_may_send(run: Run, tmp_path: Path) -> None:
    times = [0, -1, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1, -(2**63)]
    rows = [commit("g", "t", n, 1, commit_timestamp_ms=time) for n, time in enumerate(times)]
    append_rows(tmp_path, "committed_offsets", rows)
    append_rows(tmp_path, "offsets_partitions", [])
    shown = json.loads(run("offsets", "list", "--output", "json", tables=tmp_path).stdout)
    assert [row["commit_time"] for row in shown] == [
        "1970-01-01T00:00:00.000Z",
        "1969-12-31T23:59:59.999Z",
        "9999-12-31T23:59:59.999Z",
        "253402300800000",
        "9223372036854775807",
        "-9223372036854775808",
    ]
