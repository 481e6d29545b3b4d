"""`replay` of lines and of segments: the same object, cut at offsets and times, and what cannot be replayed."""

import base64
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from offsetstream.cli.main import main
from offsetstream.codec.records import encode_record
from testkit.segments import ABORT, COMMIT, TRANSACTIONAL, Record, batch, marker, write_segment
from tests.conformance.release_cases import RELEASE_CASES, UPGRADED

PRODUCERS = (7, 0), (8, 0), (9, 1)


def commit(group: str, offset: int, topic: str = "t") -> Record:
    return encode_record(
        {"type": 1, "data": {"group": group, "topic": topic, "partition": 0}},
        {
            "version": 3,
            "data": {"offset": offset, "leaderEpoch": -1, "metadata": "é", "commitTimestamp": 1000 + offset},
        },
    )


def run(*arguments: str | Path, command: str = "replay", stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, [command, *map(str, arguments)], input=stdin)


def replayed(*arguments: str | Path, stdin: bytes = b"") -> dict[str, Any]:
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout_bytes)
    return document


def committed(document: dict[str, Any]) -> dict[str, int]:
    return {row["group_id"]: row["offset"] for row in document["offsets"]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    one, other, _ = PRODUCERS
    folder = tmp_path / "__consumer_offsets-9"
    write_segment(
        folder,
        0,
        batch(0, [commit("plain", 1), commit("plain", 2)], base_ms=10_000),
        batch(2, [commit("aborted", 3)], TRANSACTIONAL, one, base_ms=20_000),
        batch(3, [commit("ledger", 4)], TRANSACTIONAL, other, base_ms=20_000),
        marker(4, ABORT, one, 20_001),
        batch(5, [commit("later", 5)], base_ms=30_000),
    )
    write_segment(
        folder, 6, marker(6, COMMIT, other, 35_000), batch(7, [commit("open", 7)], TRANSACTIONAL, one, base_ms=40_000)
    )
    write_segment(tmp_path / "__consumer_offsets-10", 0, batch(0, [commit("elsewhere", 8)], base_ms=25_000))
    return tmp_path


def test_one_object_with_groups_and_offsets(log: Path) -> None:
    document = replayed(log)
    assert list(document) == ["groups", "offsets"]
    assert committed(document) == {"elsewhere": 8, "later": 5, "ledger": 4, "plain": 2}
    assert document["offsets"][2] == {
        **{"group_id": "ledger", "topic": "t", "partition": 0, "offset": 4, "leader_epoch": None, "metadata": "é"},
        "commit_timestamp": 1004,
    }
    group = next(group for group in document["groups"] if group["group_id"] == "plain")
    assert (group["type"], group["state"], group["members"]) == ("Classic", "Empty", [])


def test_the_coordinators_differ_as_kafkas_do(log: Path) -> None:
    names = {coordinator: ids(replayed(log, "--coordinator", coordinator)) for coordinator in ("new", "classic")}
    # A group whose only commit was aborted: the new coordinator keeps it until its next cleanup (reference 5.9, 6).
    assert names["new"] - names["classic"] == {"aborted"}


def ids(document: dict[str, Any]) -> set[str]:
    return {group["group_id"] for group in document["groups"]}


@pytest.mark.parametrize("coordinator", ["new", "classic"])
def test_skip_damaged_replays_all_but_the_damaged_batch(log: Path, coordinator: str) -> None:
    whole = committed(replayed(log, "--coordinator", coordinator))
    segment = log / "__consumer_offsets-9" / "00000000000000000000.log"
    data = segment.read_bytes()
    at = len(batch(0, [commit("plain", 1), commit("plain", 2)]))
    for damaged, lost in ((at - 1, {"plain"}), (9, {"plain"}), (len(data) - 1, {"later"})):
        segment.write_bytes(data[:damaged] + bytes([data[damaged] ^ 0x20]) + data[damaged + 1 :])
        refused = run(log, "--coordinator", coordinator)
        assert (refused.exit_code, refused.stdout) == (1, "")
        result = run(log, "--coordinator", coordinator, "--skip-damaged")
        assert result.exit_code == 0
        assert committed(json.loads(result.stdout_bytes)) == {
            group: offset for group, offset in whole.items() if group not in lost
        }
        assert str(segment) in result.stderr.splitlines()[0]
        assert result.stderr.splitlines()[-1].startswith("Warning: skipped 1 damaged part with ")
    segment.write_bytes(data)
    assert committed(replayed(log, "--coordinator", coordinator, "--skip-damaged")) == whole


def test_skip_damaged_does_not_guess_how_a_transaction_ended(tmp_path: Path) -> None:
    """Its marker is lost; the next marker is the one of another transaction of the producer."""
    one, *_ = PRODUCERS
    for kind in (COMMIT, ABORT):
        write_segment(
            tmp_path / "__consumer_offsets-9",
            0,
            batch(0, [commit("a", 1)], TRANSACTIONAL, one),
            marker(1, ABORT, one)[:-1] + b"?",
            batch(2, [commit("b", 2)], TRANSACTIONAL, one),
            marker(3, kind, one),
        )
        result = run(tmp_path, "--skip-damaged")
        assert committed(json.loads(result.stdout_bytes)) == ({"b": 2} if kind == COMMIT else {})
        assert "how the transaction of producer 7 at offset 0 ended" in result.stderr


def test_skip_damaged_is_for_segments_only(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"")
    result = run(tmp_path / "lines", "--skip-damaged")
    assert (result.exit_code, "--skip-damaged is for log segments" in result.stderr) == (2, True)
    result = run(tmp_path / "missing", "--skip-damaged")
    assert (result.exit_code, "No such file or directory" in result.stderr) == (2, True)


@pytest.mark.parametrize("coordinator", ["new", "classic"])
def test_the_lines_of_a_dump_are_replayed_as_the_segments_are(log: Path, tmp_path: Path, coordinator: str) -> None:
    dumped = run("--files", log, "--format", "records", command="dump").stdout_bytes
    lines = tmp_path / "lines"
    lines.write_bytes(dumped)
    shuffled = dumped.splitlines(keepends=True)
    Random(3).shuffle(shuffled)
    expected = run(log, "--coordinator", coordinator).stdout_bytes
    assert run(lines, "--coordinator", coordinator).stdout_bytes == expected
    for stdin in (dumped, b"".join(shuffled), dumped + dumped):
        assert run("-", "--coordinator", coordinator, stdin=stdin).stdout_bytes == expected


def upgrade_without_its_tombstone(folder: Path) -> Path:
    """A classic group, then the consumer group that it became; the cleaner took what lay between (KAFKA-21117)."""
    (case,) = (each for each in RELEASE_CASES if each.group == UPGRADED)
    write_segment(folder, 0, batch(0, list(case.pairs), base_ms=1))
    return folder


def test_a_release_says_what_becomes_of_records_that_others_cannot_replay(tmp_path: Path) -> None:
    log = upgrade_without_its_tombstone(tmp_path / "__consumer_offsets-35")
    for release in ([], ["--release", "4.3.1"]):
        skipped = run(log, *release)
        assert (skipped.exit_code, json.loads(skipped.stdout_bytes)["groups"][0]["type"]) == (0, "Classic")
        assert "partition 35: 5 records were skipped, the first at offset 1" in skipped.stderr
        strict = run(log, *release, "--strict")
        assert (strict.exit_code, json.loads(strict.stdout_bytes)) == (1, {"groups": [], "offsets": []})
        assert "partition 35 failed to load: record at offset 1" in strict.stderr
    (group,) = replayed(log, "--release", "unmerged", "--strict")["groups"]
    assert (group["type"], [member["member_id"] for member in group["members"]]) == ("Consumer", ["m1"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--release", "3.9"], "not a release from 4.0 to 4.4"),
        (["--release", "4.4", "--coordinator", "classic"], "omit it with --coordinator classic"),
    ],
)
def test_a_release_without_a_new_coordinator_is_refused(log: Path, options: list[str], said: str) -> None:
    result = run(log, *options)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("coordinator", ["new", "classic"])
def test_random_logs_by_lines_and_by_segments_cut_anywhere(tmp_path: Path, coordinator: str) -> None:
    rng = Random(coordinator)
    for number in range(30):
        folder = tmp_path / f"{number}" / "__consumer_offsets-0"
        end = random_log(rng, folder)
        lines = run("--files", folder, "--format", "records", command="dump").stdout_bytes
        for cut in ([], ["--until-offset", str(rng.randint(0, end))], ["--until-time", str(rng.randint(0, end))]):
            from_segments = replayed(folder, "--coordinator", coordinator, *cut)
            assert from_segments == replayed("-", "--coordinator", coordinator, *cut, stdin=lines)


def random_log(rng: Random, folder: Path) -> int:
    """Batches of commits and tombstones, plain and transactional, and markers; what compaction leaves of some."""
    data, offset = [], 0
    for _ in range(40):
        producer = rng.choice(PRODUCERS)
        if rng.random() < 0.25:
            data.append(marker(offset, rng.choice([COMMIT, ABORT, 5]), producer))
            offset += 1
            continue
        cells = [commit(rng.choice("abc"), rng.randint(0, 99), rng.choice("tu")) for _ in range(rng.randint(0, 4))]
        records = [cell if rng.random() < 0.7 else (cell[0], None) for cell in cells]
        deltas = sorted(rng.sample(range(6), len(records)))
        transactional = (TRANSACTIONAL, producer) if rng.random() < 0.5 else (0, (-1, -1))
        data.append(batch(offset, records, *transactional, base_ms=offset, deltas=deltas, last_delta=6))
        offset += 7
    write_segment(folder, 0, *data)
    return offset


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        (["--until-offset", "0"], set()),
        (["--until-offset", "1"], {"plain", "elsewhere"}),
        (["--until-offset", "6"], {"plain", "elsewhere", "later"}),
        (["--until-offset", "7"], {"plain", "elsewhere", "later", "ledger"}),
        (["--until-time", "10000"], set()),
        (["--until-time", "1970-01-01T00:00:10.001Z"], {"plain"}),
        (["--until-time", "1970-01-01T01:00:25.001+01:00"], {"plain", "elsewhere"}),
        (["--until-time", "1970-01-01 00:00:30.001"], {"plain", "elsewhere", "later"}),
        (["--until-time", "35001"], {"plain", "elsewhere", "later", "ledger"}),
    ],
)
def test_a_log_up_to_an_offset_or_a_time(log: Path, options: list[str], groups: set[str]) -> None:
    assert set(committed(replayed(log, *options))) == groups


def test_a_batch_is_cut_between_its_records(log: Path) -> None:
    assert committed(replayed(log, "--until-offset", "1"))["plain"] == 1


def test_a_single_segment_of_any_name(log: Path) -> None:
    sent = (log / "__consumer_offsets-10" / "00000000000000000000.log").rename(log / "attachment")
    assert committed(replayed(sent)) == {"elsewhere": 8}
    empty = log / "00000000000000000000.log"
    empty.touch()
    assert replayed(empty) == {"groups": [], "offsets": []}
    assert replayed("-") == {"groups": [], "offsets": []}


def test_names_of_topic_ids(tmp_path: Path) -> None:
    topic = "AAAAAAAAAAAAAAAAAAAAEA"
    target = encode_record(
        {"type": 7, "data": {"groupId": "g", "memberId": "m"}},
        {"version": 0, "data": {"topicPartitions": [{"topicId": topic, "partitions": [0]}]}},
    )
    fields = {"memberEpoch": 1, "previousMemberEpoch": 0, "state": 0, "assignedPartitions": []}
    assigned = [{"topicId": topic, "partitions": [0, 1]}]
    present = encode_record(
        {"type": 8, "data": {"groupId": "g", "memberId": "m"}},
        {"version": 0, "data": fields | {"assignedPartitions": assigned, "partitionsPendingRevocation": []}},
    )
    epoch = encode_record({"type": 3, "data": {"groupId": "g"}}, {"version": 0, "data": {"epoch": 1}})
    folder = tmp_path / "__consumer_offsets-0"
    member = encode_record(
        {"type": 5, "data": {"groupId": "g", "memberId": "m"}},
        {
            "version": 0,
            "data": {
                **{"instanceId": None, "rackId": None, "clientId": "c", "clientHost": "/h", "serverAssignor": None},
                **{"subscribedTopicNames": ["orders"], "subscribedTopicRegex": None, "rebalanceTimeoutMs": 1},
            },
        },
    )
    write_segment(folder, 0, batch(0, [member, epoch, target, present]))
    names = tmp_path / "topics.json"
    names.write_text(json.dumps({topic: "orders"}))
    (group,) = replayed(folder, "--topics", names)["groups"]
    assert group["members"][0]["assignment"] == [{"topic": "orders", "partitions": [0, 1]}]


def test_records_that_cannot_be_replayed(log: Path) -> None:
    broken = [(commit("g", 1)[0], b"\0\7"), (None, b""), commit("g", 1)]
    write_segment(log / "__consumer_offsets-10", 1, batch(1, broken))
    result = run(log)
    assert result.exit_code == 0
    assert committed(json.loads(result.stdout)) == {"elsewhere": 8, "g": 1, "later": 5, "ledger": 4, "plain": 2}
    assert result.stderr.startswith("Warning: partition 10: 2 records were skipped, the first at offset 1: ")
    assert result.stderr.count("\n") == 1
    result = run(log, "--strict")
    assert result.exit_code == 1
    assert committed(json.loads(result.stdout)) == {"later": 5, "ledger": 4, "plain": 2}
    assert result.stderr.startswith("Error: partition 10 failed to load: record at offset 1: ")


def test_one_record_that_cannot_be_replayed(log: Path) -> None:
    write_segment(log / "__consumer_offsets-10", 1, batch(1, [(None, b"")]))
    assert "partition 10: 1 record was skipped, the first at offset 1: " in run(log).stderr


def test_wrong_usage_gives_one_line(log: Path, tmp_path: Path) -> None:
    lines, damaged = tmp_path / "lines", tmp_path / "some.log"
    lines.write_text('{"offset": 0, "key": null, "value": null}\nnonsense\n')
    damaged.write_bytes(b"not a segment at all")
    usages: list[tuple[list[str | Path], int, str]] = [
        ([lines], 1, f"{lines}, line 2: the line is not JSON"),
        ([damaged], 1, "is not a Kafka log segment"),
        ([tmp_path / "none"], 2, "cannot read "),
        ([tmp_path / "empty"], 2, "has no log segments"),
        ([log, "--topics", tmp_path / "none"], 2, "cannot read topics from "),
        ([log, "--topics", lines], 2, "cannot read topics from "),
        ([log, "--file", log], 2, "cannot write "),
    ]
    (tmp_path / "empty").mkdir()
    for arguments, exit_code, words in usages:
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (exit_code, "")
        assert words in result.stderr
        assert result.stderr.count("\n") == 1
    for time in ("yesterday", "2026-13-01", "-1"):
        result = run(log, f"--until-time={time}")
        assert result.exit_code == 2
        assert "is neither ISO 8601, such as 2026-11-21T03:00:00Z, nor milliseconds" in result.stderr


def test_neither_spark_nor_a_kafka_client_is_imported(log: Path) -> None:
    code = (
        "import sys; from offsetstream.cli.main import main; main(sys.argv[1:], standalone_mode=False); "
        "sys.exit(bool({'pyspark', 'confluent_kafka', 'pandas', 'deltalake'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code, "replay", str(log)], check=True, capture_output=True)


def test_a_pipe_is_read_once_and_whole(log: Path, tmp_path: Path) -> None:
    """As of a shell's <(zcat records.jsonl.gz)."""
    lines = run("--files", log, "--format", "records", command="dump").stdout_bytes * 100
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[lines])
    writer.start()
    assert replayed(pipe) == replayed("-", stdin=lines)
    writer.join()


def test_a_pipe_is_no_log_segment(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = run("--files", tmp_path / "pipe", command="dump")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pipe is not a file or a folder" in result.stderr


@pytest.mark.parametrize(
    ("assignment", "shown", "why"),
    [
        (b"", [], None),
        (b"\0", None, "truncated consumer_protocol_assignment"),
        (b"\xff\xff", None, "negative version -1"),
    ],
    ids=["nothing assigned", "too short", "version -1"],
)
def test_an_assignment_that_cannot_be_decoded_is_not_an_empty_one(
    tmp_path: Path, assignment: bytes, shown: list[Any] | None, why: str | None
) -> None:
    member = {"memberId": "m", "clientId": "c", "clientHost": "/h", "sessionTimeout": 1, "rebalanceTimeout": 1}
    member |= {"groupInstanceId": None, "subscription": "AAAAAAAA/////w=="}
    member |= {"assignment": base64.b64encode(assignment).decode()}
    value = {"protocolType": "consumer", "generation": 1, "protocol": "range", "leader": "m", "members": [member]}
    record = encode_record(
        {"type": 2, "data": {"group": "g"}}, {"version": 3, "data": value | {"currentStateTimestamp": 1}}
    )
    folder = tmp_path / "__consumer_offsets-0"
    write_segment(folder, 0, batch(0, [record], base_ms=1))
    result = run(folder)
    (described,) = json.loads(result.stdout)["groups"][0]["members"]
    assert (result.exit_code, described["assignment"]) == (0, shown)
    assert (why or "") in described.get("assignment_error", "")
    assert ("the assignment of member 'm' of group 'g' cannot be decoded" in result.stderr) == (why is not None)
