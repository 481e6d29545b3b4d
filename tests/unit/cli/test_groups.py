import csv
import io
import json
from pathlib import Path

import pytest

from offsetstream.cli.group_state import read_batches
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from testkit.tables import append_rows, create_empty_tables
from tests.unit.cli.conftest import T2, Run, group, place, write_states


def golden(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def words(text: str) -> list[list[str]]:
    """Return the words of each line: where columns stand is in `test_output.py` and `fixtures/terminal`."""
    return [line.split() for line in text.splitlines()]


def test_list(run: Run) -> None:
    assert run("groups", "list").stdout == golden(
        "GROUP           TYPE                 STATE",
        "app             Classic              Stable",
        "kip             Consumer             Reconciling",
        "moved           Classic              Empty",
        "old             Classic              Empty",
        "share           Share                Stable",
        "streams         Streams              NotReady",
    )


def test_list_some(run: Run) -> None:
    def listed(*arguments: str) -> list[str]:
        return [row["group"] for row in json.loads(run("groups", "list", "--output", "json", *arguments).stdout)]

    assert listed("--state", "stable") == ["app", "share"]
    assert listed("--type", "share", "--type", "Streams") == ["share", "streams"]
    assert listed("--state", "Stable", "--state", "Reconciling", "--type", "Consumer") == ["kip"]
    assert run("groups", "list", "--state", "Sleeping").exit_code == 2


def test_list_as_csv_has_both_copies_of_a_group(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("groups", "list", "--output", "csv").stdout, newline="")))
    assert all(row.pop("as_of") and row.pop("stale") == "false" for row in rows)
    assert [row for row in rows if row["group"] in {"kip", "moved"}] == [
        dict(zip(rows[0], values.split(), strict=True))
        for values in (
            "kip Consumer Reconciling consumer false 2 44 true",
            "moved Classic Empty consumer false 0 19 true",
        )
    ] + [
        {
            "group": "moved",
            "type": "Classic",
            "state": "Empty",
            "protocol_type": "",
            "is_simple": "true",
            "members": "0",
            "offsets_partition": "3",
            "in_coordinator_partition": "false",
        }
    ]


def test_copies_of_thousands_of_groups_stay_separate(run: Run, tmp_path: Path) -> None:
    """They are read some thousands of rows at a time, so that copies of one group are in two parts."""
    names = [f"group-{number:04}" for number in range(3000)]
    copies = [
        group(name, "Classic", "Stable" if partition is None else "Empty", 1) | place(name, partition)
        for number, name in enumerate(names)
        # Of every fifth group there are copies only.
        for partition in ([None] if number % 5 else []) + [7, 3]
        if partition != place(name)["offsets_partition"]
    ]
    tables = tmp_path / "many"
    create_empty_tables(tables)
    append_rows(tables, "groups", sorted(copies, key=lambda row: (row["offsets_partition"], row["group_id"])))
    found = [each for some in read_batches(Lookup(PathStore(str(tables))), None) for each in some.each()]
    current = [each.group_id for each in found if each.is_current]
    assert [line.split()[0] for line in run("groups", "list", tables=tables).stdout.splitlines()[1:]] == current
    assert len(current) > len(names) == len(set(current))
    rows = json.loads(run("groups", "list", "--output", "json", tables=tables).stdout)
    assert [(row["group"], row["offsets_partition"]) for row in rows] == [
        (each.group_id, each.row["offsets_partition"]) for each in found
    ]
    stable = [each.group_id for each in found if each.is_current and each.row["state"] == "Stable"]
    listed = run("groups", "list", "--state", "Stable", tables=tables).stdout.splitlines()[1:]
    assert [line.split()[0] for line in listed] == stable


def test_describe_a_classic_group(run: Run) -> None:
    result = run("groups", "describe", "--group", "app")
    assert (result.exit_code, result.stderr) == (0, "")
    assert words(result.stdout) == words(
        golden(
            "",
            "GROUP           TOPIC                    PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
            "CONSUMER-ID     HOST            CLIENT-ID NOTE",
            "app             t                        0          100             -               -               "
            "m2              /10.0.0.1       client-m2 -",
            "app             t                        1          50              -               -               "
            "m2              /10.0.0.1       client-m2 -",
            "app             t                        2          -               -               -               "
            "m1              /10.0.0.1       client-m1 -",
            "app             a-topic-with-a-long-name 0          -               -               -               "
            "-               -               -         no offset: -1 was committed",
        )
    )


def test_describe_verbosely(run: Run) -> None:
    lines = run("groups", "describe", "--group", "app", "--verbose").stdout.splitlines()
    assert lines[1].split()[:5] == ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET"]
    assert lines[2].split()[:5] == ["app", "t", "0", "5", "100"]
    assert lines[3].split()[:5] == ["app", "t", "1", "-", "50"]


def test_topics_by_id_get_the_name_that_some_commit_knows(run: Run) -> None:
    lines = run("groups", "describe", "--group", "kip").stdout.splitlines()[2:]
    assert [line.split()[1:4] + line.split()[6:7] for line in lines] == [
        ["AAAAAAAAAAAAAAAAAAAAAw", "1", "-", "k1"],
        ["t", "0", "11", "k1"],
        ["t", "9", "-", "k1"],
        ["t", "10", "-", "k1"],
        ["t", "1", "-", "k2"],
    ]


def test_partitions_are_in_the_order_of_numbers(run: Run) -> None:
    lines = run("groups", "describe", "--group", "old").stdout.splitlines()[2:]
    assert [line.split()[2] for line in lines] == ["9", "10"]


def test_a_share_group_has_partitions_without_offsets_and_a_streams_group_tasks_without_topics(run: Run) -> None:
    shared = json.loads(run("groups", "describe", "--group", "share", "--output", "json").stdout)
    assert [(row["topic"], row["current_offset"], row["consumer_id"]) for row in shared] == [(T2, None, "s1")]
    assert json.loads(run("groups", "describe", "--group", "streams", "--output", "json").stdout) == []


def test_describe_members(run: Run) -> None:
    assert words(run("groups", "describe", "--group", "app", "--members").stdout) == words(
        golden(
            "",
            "GROUP           CONSUMER-ID           HOST            CLIENT-ID                    #PARTITIONS",
            "app             m1                    /10.0.0.1       client-m1                    1",
            "app             m2                    /10.0.0.1       client-m2                    2",
            "app             m3-without-partitions /10.0.0.1       client-m3-without-partitions 0",
        )
    )


def test_describe_members_verbosely(run: Run) -> None:
    assert words(run("groups", "describe", "--group", "kip", "--members", "--verbose").stdout) == words(
        golden(
            "",
            "GROUP           CONSUMER-ID     GROUP-INSTANCE-ID HOST            CLIENT-ID       #PARTITIONS     "
            "CURRENT-EPOCH   CURRENT-ASSIGNMENT                TARGET-EPOCH    TARGET-ASSIGNMENT    UPGRADED",
            "kip             k1              i1                /10.0.0.1       client-k1       4               "
            "7               AAAAAAAAAAAAAAAAAAAAAw:1;t:0,9,10 7               t:0,10               true",
            "kip             k2              -                 /10.0.0.1       client-k2       1               "
            "6               t:1                               7               -                    false",
        )
    )
    classic = run("groups", "describe", "--group", "app", "--members", "--verbose").stdout.splitlines()
    assert classic[1].split()[-4:] == ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    assert classic[3].split()[-4:] == ["-", "t:0,1", "-", "-"]


def test_streams_members_have_tasks(run: Run) -> None:
    rows = json.loads(run("groups", "describe", "--group", "streams", "--members", "--output", "json").stdout)
    assert [(row["partitions"], row["current_assignment"]) for row in rows] == [(3, "0:0,1;1:1")]


def test_describe_the_state(run: Run) -> None:
    assert words(run("groups", "describe", "--group", "app", "--group", "kip", "--state").stdout) == words(
        golden(
            "",
            "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS",
            "app             (1)                       range                Stable               3",
            "",
            "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS",
            "kip             (1)                       uniform              Reconciling          2",
        )
    )


def test_describe_the_state_verbosely(run: Run) -> None:
    assert words(run("groups", "describe", "--group", "kip", "--state", "--verbose").stdout) == words(
        golden(
            "",
            "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                GROUP-EPOCH     "
            "TARGET-ASSIGNMENT-EPOCH   #MEMBERS",
            "kip             (1)                       uniform              Reconciling          8               "
            "7                         2",
        )
    )


def test_describe_prints_the_state_warnings_of_kafkas_tool(run: Run) -> None:
    result = run("groups", "describe", "--all-groups")
    assert result.stderr == (
        "\nWarning: Consumer group 'kip' is rebalancing.\n"
        "\nConsumer group 'moved' has no active members.\n"
        "\nConsumer group 'old' has no active members.\n"
    )


def test_all_groups_are_blocks_in_order_and_only_the_current_copy_of_a_group(run: Run) -> None:
    blocks = run("groups", "describe", "--all-groups").stdout.removeprefix("\n").split("\n\n")
    assert [block.splitlines()[1].split()[0] for block in blocks] == ["app", "kip", "moved", "old", "share"]
    moved = blocks[2].splitlines()[1:]
    assert [line.split()[:4] for line in moved] == [["moved", "t", "0", "2"]]


def test_json_has_both_copies_of_a_group(run: Run) -> None:
    rows = json.loads(run("groups", "describe", "--group", "moved", "--output", "json").stdout)
    assert [(row["current_offset"], row["offsets_partition"], row["in_coordinator_partition"]) for row in rows] == [
        (2, 19, True),
        (1, 3, False),
    ]


def test_a_group_that_is_not_there(run: Run) -> None:
    result = run("groups", "describe", "--group", "nope", "--group", "app")
    assert result.exit_code == 1
    assert "\napp " in result.stdout
    assert result.stderr.endswith("Error: group 'nope' is not there\n")
    as_json = run("groups", "describe", "--group", "nope", "--output", "json")
    assert (as_json.exit_code, as_json.stdout) == (1, "[]\n")
    assert as_json.stderr == "Error: group 'nope' is not there\n"


@pytest.mark.parametrize("arguments", [[], ["--all-groups", "--group", "app"]])
def test_groups_or_all_groups(run: Run, arguments: list[str]) -> None:
    result = run("groups", "describe", *arguments)
    assert result.exit_code == 2
    assert "--group" in result.stderr
    assert "--all-groups" in result.stderr


def test_one_view_at_a_time(run: Run) -> None:
    """As Kafka's tool has it: the last one would have won without a word."""
    result = run("groups", "describe", "--all-groups", "--state", "--members")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "give one of --members, --offsets, --state" in result.stderr


def test_hostile_group_ids(run: Run, tmp_path: Path) -> None:
    ids = ["", "a,b", 'a"b', "a\nb", "a\r\nb", "a\x00b", " ", "😀"]
    append_rows(tmp_path, "groups", [group(group_id, "Classic", "Empty", 0) for group_id in ids])
    write_states(tmp_path, ["OWNED"])
    text = run("groups", "list", tables=tmp_path).stdout
    assert len(text.splitlines()) == len(ids) + 1
    assert "\na\\nb            Classic" in text
    table = run("groups", "list", "--output", "csv", tables=tmp_path).stdout_bytes.decode()
    rows = list(csv.DictReader(io.StringIO(table, newline=""), strict=True))
    assert [row["group"] for row in rows] == sorted(ids)
    listed = json.loads(run("groups", "list", "--output", "json", tables=tmp_path).stdout)
    assert [row["group"] for row in listed] == sorted(ids)


def test_to_a_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    result = run("groups", "list", "--output", "json", "--file", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    assert len(json.loads(file.read_text())) == 7
