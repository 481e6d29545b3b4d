"""`dump --files`: what the files hold as lines, without Spark and without a broker."""

import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from offsetstream.cli.main import main
from offsetstream.codec.kafka_text import kafka_json, kafka_text
from offsetstream.codec.records import encode_record
from testkit.segments import ABORT, COMMIT, TRANSACTIONAL, Record, batch, marker, message, write_segment


def commit(group: str, offset: int) -> Record:
    return encode_record(
        {"type": 1, "data": {"group": group, "topic": "t", "partition": 0}},
        {"version": 3, "data": {"offset": offset, "leaderEpoch": -1, "metadata": 'a "b"', "commitTimestamp": 9}},
    )


PLAIN, ABORTED, COMMITTED, OPEN, LATER = (commit("g", number) for number in range(5))
PRODUCERS = (7, 0), (8, 0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    one, other = PRODUCERS
    write_segment(tmp_path / "__consumer_offsets-10", 0, message(0, 0, *PLAIN), batch(1, [PLAIN]))
    write_segment(
        tmp_path / "__consumer_offsets-9",
        0,
        batch(0, [PLAIN, (PLAIN[0], None)]),
        batch(2, [ABORTED], TRANSACTIONAL, one),
        batch(3, [COMMITTED], TRANSACTIONAL, other),
        marker(4, ABORT, one),
        marker(5, COMMIT, other),
    )
    write_segment(tmp_path / "__consumer_offsets-9", 6, batch(6, [OPEN], TRANSACTIONAL, one), batch(7, [LATER]))
    return tmp_path


def dump(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["dump", *map(str, arguments)])


def places(printed: str) -> list[tuple[int, int]]:
    return [(line["partition"], line["offset"]) for line in map(json.loads, printed.splitlines())]


def test_files_win_over_a_broker_of_the_settings_file(log: Path, tmp_path: Path) -> None:
    settings = tmp_path / "offsetstream.toml"
    settings.write_text('bootstrap-server = "localhost:9092"')
    result = dump("--files", log, "--config", settings)
    assert (result.exit_code, len(places(result.stdout))) == (0, 5)
    assert dump("--files", log, "--bootstrap-server", "localhost:9092").exit_code == 2


def test_dump_has_what_a_read_committed_consumer_sees(log: Path) -> None:
    result = dump("--files", log)
    assert (result.exit_code, result.stderr) == (0, "")
    assert places(result.stdout) == [(9, 0), (9, 1), (9, 3), (10, 0), (10, 1)]
    first, deleted, *_, unstamped, _ = map(json.loads, result.stdout.splitlines())
    assert (first["timestamp"], first["value"]["data"]["metadata"], deleted["value"]) == (1000, 'a "b"', None)
    assert unstamped["timestamp"] == -1  # as a consumer gives it


@pytest.mark.parametrize(("line_format", "function"), [("kafka", kafka_json), ("kafka-text", kafka_text)])
def test_kafkas_own_formats(log: Path, line_format: str, function: Any) -> None:
    records = [PLAIN, (PLAIN[0], None), COMMITTED, PLAIN, PLAIN]
    printed = "".join(f"{function(*record)}".rstrip("\n") + "\n" for record in records)
    assert dump("--files", log, "--format", line_format).stdout == printed


def test_raw_lines_have_all_records_and_their_transactions(log: Path) -> None:
    printed = dump("--files", log / "__consumer_offsets-9", "--format", "records").stdout
    lines: list[dict[str, Any]] = [json.loads(line) for line in printed.splitlines()]
    assert [line["offset"] for line in lines] == list(range(8))
    assert [b64decode(line["key"]) for line in lines[:4]] == [PLAIN[0]] * 4
    rest = [{name: cell for name, cell in line.items() if name not in ("key", "value")} for line in lines]
    place = {"partition": 9, "timestamp": 1000}
    one, other = ({"producer_id": number, "transactional": True} for number, _ in PRODUCERS)
    assert rest == [
        {**place, "offset": 0},
        {**place, "timestamp": 1001, "offset": 1},
        {**place, "offset": 2, **one},
        {**place, "offset": 3, **other},
        {**place, "offset": 4, **one, "control_type": "ABORT"},
        {**place, "offset": 5, **other, "control_type": "COMMIT"},
        {**place, "offset": 6, **one},
        {**place, "offset": 7},
    ]


def test_selected_partitions_from_several_folders(log: Path, tmp_path: Path) -> None:
    folders = [option for number in (10, 9) for option in ("--files", log / f"__consumer_offsets-{number}")]
    assert dump(*folders).stdout == dump("--files", log).stdout
    assert places(dump(*folders, "--offsets-partition", "10").stdout) == [(10, 0), (10, 1)]
    target = tmp_path / "lines"
    assert dump(*folders, "--file", target).output == ""
    assert target.read_text("utf-8") == dump("--files", log).stdout


def test_a_folder_without_a_number(log: Path) -> None:
    folder = (log / "__consumer_offsets-10").rename(log / "sent")
    for line_format in ("json", "records"):
        lines = [json.loads(line) for line in dump("--files", folder, "--format", line_format).stdout.splitlines()]
        assert [(line["partition"], line["offset"]) for line in lines] == [(None, 0), (None, 1)]


def test_a_log_that_ends_within_a_batch(log: Path) -> None:
    segment = log / "__consumer_offsets-9" / "00000000000000000006.log"
    whole = dump("--files", log).stdout
    segment.write_bytes(segment.read_bytes()[:-1])
    result = dump("--files", log)
    assert (result.exit_code, result.stdout) == (0, whole)
    assert result.stderr.startswith(f"Warning: {segment} ends within a batch: ")
    assert result.stderr.count("\n") == 1


def test_a_damaged_segment_ends_the_dump_after_what_was_before_it(log: Path) -> None:
    segment = write_segment(log / "__consumer_offsets-10", 2, batch(2, [PLAIN]), batch(3, [PLAIN])[:-1] + b"?")
    result = dump("--files", log)
    assert result.exit_code == 1
    assert places(result.stdout)[-2:] == [(10, 1), (10, 2)]
    assert result.stderr.startswith(f"Error: {segment}: the batch at position ")
    assert result.stderr.count("\n") == 1


def test_skip_damaged_continues_behind_a_damaged_batch_and_says_what_is_missing(log: Path) -> None:
    good = batch(2, [PLAIN])
    damaged = batch(3, [PLAIN, PLAIN])[:-1] + b"?"
    segment = write_segment(log / "__consumer_offsets-10", 2, good, damaged, batch(5, [PLAIN]))
    size = len(damaged)
    for line_format in ("json", "records"):
        result = dump("--files", log / "__consumer_offsets-10", "--skip-damaged", "--format", line_format)
        assert result.exit_code == 0
        assert places(result.stdout) == [(10, 0), (10, 1), (10, 2), (10, 5)]
        assert result.stderr.splitlines() == [
            f"Warning: {segment}: skipped {size} bytes at position {len(good)}: its checksum (CRC-32C) does not match; "
            "offsets 3 to 4 are missing",
            f"Warning: skipped 1 damaged part with {size} bytes in 1 segment: up to 2 offsets are missing. "
            "The answer may have older values instead.",
        ]
    (log / "__consumer_offsets-10").rename(log / "elsewhere")
    undamaged = dump("--files", log / "__consumer_offsets-9", "--skip-damaged")
    assert (undamaged.exit_code, undamaged.stderr) == (0, "")
    assert undamaged.stdout == dump("--files", log / "__consumer_offsets-9").stdout


def test_skip_damaged_leaves_out_a_transaction_whose_end_may_be_missing(log: Path) -> None:
    """And it does not block the log, as an open transaction does."""
    one, _ = PRODUCERS
    lost = marker(1, COMMIT, one)[:-1] + b"?"
    folder = log / "__consumer_offsets-3"
    write_segment(folder, 0, batch(0, [PLAIN], TRANSACTIONAL, one), lost, batch(2, [LATER]))
    result = dump("--files", folder, "--skip-damaged")
    assert places(result.stdout) == [(3, 2)]
    assert "how the transaction of producer 7 at offset 0 ended" in result.stderr
    assert places(dump("--files", folder, "--skip-damaged", "--format", "records").stdout) == [(3, 0), (3, 2)]


def test_records_that_cannot_be_decoded(log: Path) -> None:
    write_segment(log / "__consumer_offsets-10", 2, batch(2, [(PLAIN[0], b"\0"), (None, b"")]))
    result = dump("--files", log)
    assert (result.exit_code, result.stderr) == (0, "")
    broken, null = [json.loads(line) for line in result.stdout.splitlines()[-2:]]
    assert (broken["error"], broken["offset"], null["error"]) == ("truncated value", 2, "null key")
    result = dump("--files", log, "--format", "kafka")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 5
    assert result.stderr == (
        "Error: 1 record cannot be decoded, the first at offset 2 of offsets partition 10: truncated value; "
        "--format json prints them with their bytes\n"
    )


def test_wrong_usage_is_one_line(log: Path) -> None:
    usages: list[tuple[list[str | Path], str]] = [
        ([], "--bootstrap-server or log segments by --files, not both"),
        (["--files", log, "--bootstrap-server", "localhost:1"], "not both"),
        (["--bootstrap-server", "localhost:1", "--skip-damaged"], "--skip-damaged is for log segments"),
        (["--files", log / "none"], "cannot read "),
        (["--files", log, "--offsets-partition", "3"], "there is no folder of partition 3"),
        (["--files", log, "--file", log], "cannot write "),
    ]
    for arguments, words in usages:
        result = dump(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr
        assert result.stderr.count("\n") == 1


def test_neither_spark_nor_a_kafka_client_is_imported(log: Path) -> None:
    code = (
        "import sys; from offsetstream.cli.main import main; main(sys.argv[1:], standalone_mode=False); "
        "sys.exit(bool({'pyspark', 'confluent_kafka', 'deltalake'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code, "dump", "--files", str(log)], check=True, capture_output=True)
