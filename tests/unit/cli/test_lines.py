"""`decode` and `encode` as commands: files and streams, hostile lines, Kafka's formats, the ends."""

import contextlib
import json
import os
import pty
import shlex
import subprocess
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from offsetstream.cli.main import main
from offsetstream.codec.kafka_text import kafka_json, kafka_text
from offsetstream.codec.records import encode_record
from testkit.processes import OFFSETSTREAM
from testkit.waiting import SECONDS

_COMMIT = encode_record(
    {"type": 1, "data": {"group": "gé", "topic": "t", "partition": 0}},
    {"version": 3, "data": {"offset": 100, "leaderEpoch": 10, "metadata": "meta", "commitTimestamp": 1234}},
)
_DELETED = (_COMMIT[0], None)
_GROUP = encode_record(
    {"type": 2, "data": {"group": "g"}},
    {
        "version": 3,
        "data": {
            "protocolType": "consumer",
            "generation": 3,
            "protocol": "range",
            "leader": "m",
            "currentStateTimestamp": 1,
            "members": [],
        },
    },
)
_SHARE = encode_record({"type": 11, "data": {"groupId": "s"}}, None)
RECORDS = [_COMMIT, _DELETED, _GROUP, _SHARE]


def raw(record: tuple[bytes | None, bytes | None], **fields: object) -> str:
    key, value = (None if cell is None else b64encode(cell).decode() for cell in record)
    return json.dumps({**fields, "key": key, "value": value}, separators=(",", ":"), ensure_ascii=False)


def run(*arguments: str, stdin: str | bytes = b"") -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


LINES = "".join(raw(record, offset=at) + "\n" for at, record in enumerate(RECORDS))


def test_decode_and_encode_are_inverse() -> None:
    decoded = run("decode", stdin=LINES)
    assert decoded.exit_code == 0
    documents = [json.loads(line) for line in decoded.stdout_bytes.splitlines()]
    assert [document["offset"] for document in documents] == [0, 1, 2, 3]
    assert documents[0]["value"]["data"]["commitTimestamp"] == 1234
    assert documents[1] == {"offset": 1, "key": documents[0]["key"], "value": None}
    encoded = run("encode", "-", stdin=decoded.stdout_bytes)
    assert (encoded.exit_code, encoded.stdout_bytes.decode()) == (0, LINES)


def test_from_a_file_to_a_file(tmp_path: Path) -> None:
    source, decoded, encoded = (tmp_path / name for name in ("raw", "decoded", "encoded"))
    source.write_text(LINES, "utf-8")
    assert run("decode", str(source), "--file", str(decoded)).output == ""
    assert run("encode", str(decoded), "--file", str(encoded)).output == ""
    assert encoded.read_text("utf-8") == LINES


def test_encode_as_an_older_release() -> None:
    decoded = run("decode", stdin=LINES).stdout_bytes
    encoded = run("encode", "--inter-broker-protocol-version", "2.0", stdin=decoded)
    again = [json.loads(line) for line in run("decode", stdin=encoded.stdout_bytes).stdout_bytes.splitlines()]
    assert [line["value"] and line["value"]["version"] for line in again[:3]] == [1, None, 1]
    assert again[3]["error"]
    assert encoded.exit_code == 0


@pytest.mark.parametrize("command", ["decode", "encode"])
@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"", "the line is not JSON"),
        (b"nonsense", "the line is not JSON"),
        (b"\0", "the line is not JSON"),
        (b"\xff\xfe{\0", "the line is not JSON"),
        (b"[1", "the line is not JSON"),
        (b"1" * 5000, "the line is not JSON"),
        (b"[" * 100_000, "the line is nested too deeply"),
        (b"null", 'the line is not an object with "key" and "value"'),
        (b'{"key":null}', 'the line is not an object with "key" and "value"'),
        (b'{"value":null}', 'the line is not an object with "key" and "value"'),
    ],
)
def test_a_line_that_is_no_record_gets_one_line_and_spares_the_next(command: str, line: bytes, error: str) -> None:
    good = run("decode" if command == "encode" else "encode", stdin=_line_of(_COMMIT)).stdout_bytes
    good = good if command == "encode" else _line_of(_COMMIT).encode()
    result = run(command, stdin=line + b"\n" + good)
    assert result.exit_code == 0
    first, second = result.stdout_bytes.decode().splitlines()
    assert json.loads(first)["error"] == error
    assert json.loads(first)["line"].encode("utf-8", "surrogateescape") == line
    assert "error" not in json.loads(second)


def _line_of(record: tuple[bytes | None, bytes | None]) -> str:
    return raw(record) + "\n"


@pytest.mark.parametrize("name", ["key", "value"])
@pytest.mark.parametrize("cell", ['"?"', '"AA"', '"AAEA\\n"', "5", "{}", "[null]", "true", '"\\ud800"', '"é"'])
def test_a_cell_that_is_not_base64_stays_unchanged(name: str, cell: str) -> None:
    line = json.dumps(json.loads(raw(_COMMIT, offset=7)) | {name: json.loads(cell)})
    result = run("decode", stdin=line)
    assert result.exit_code == 0
    assert json.loads(result.stdout_bytes) == {"error": f"{name} is not base64", **json.loads(line)}


def test_carriage_returns_empty_lines_and_a_last_line_without_an_end() -> None:
    line = raw(_COMMIT)
    result = run("decode", stdin=f"{line}\r\n\r\n\n{line}")
    documents = [json.loads(line) for line in result.stdout_bytes.split(b"\n")[:-1]]
    assert [document.get("error") for document in documents] == [None, *["the line is not JSON"] * 2, None]
    assert documents[0] == documents[3]
    assert b"\r" not in result.stdout_bytes


def test_only_newlines_end_lines() -> None:
    passed = "a\x85b\u2028c\u2029d"
    result = run("decode", stdin=raw(_COMMIT, note=passed))
    assert result.stdout_bytes.count(b"\n") == 1
    assert json.loads(result.stdout_bytes)["note"] == passed


HOSTILE = "\x00\t\x1b[2J\x7f\x85\x9b31m\u061c\u200f\u2028\u2029\u202e\u2069é"
_HOSTILE = encode_record({"type": 1, "data": {"group": HOSTILE, "topic": "t", "partition": 0}}, None)


def is_harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.removesuffix("\n").split("\n"))


def test_no_control_character_is_printed() -> None:
    for arguments in (("decode",), ("encode",)):
        result = run(*arguments, stdin=raw(_HOSTILE, note=HOSTILE))
        assert is_harmless(result.stdout_bytes.decode())
        assert json.loads(result.stdout_bytes).get("note", HOSTILE) == HOSTILE
    assert json.loads(run("decode", stdin=raw(_HOSTILE)).stdout_bytes)["key"]["data"]["group"] == HOSTILE


@pytest.mark.parametrize(("line_format", "function"), [("kafka", kafka_json), ("kafka-text", kafka_text)])
def test_kafkas_formats_are_kafkas_but_on_a_terminal(
    line_format: str, function: Callable[..., str | None], tmp_path: Path
) -> None:
    source = tmp_path / "lines"
    source.write_text(raw(_HOSTILE))
    printed = run("decode", "--format", line_format, str(source)).stdout_bytes.decode()
    assert printed.rstrip("\n") == str(function(*_HOSTILE)).rstrip("\n")
    assert not is_harmless(printed)
    leader, follower = pty.openpty()
    command = [*OFFSETSTREAM, "decode", "--format", line_format, str(source)]
    with subprocess.Popen(command, stdout=follower) as process:
        os.close(follower)
        on_terminal = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while part := os.read(leader, 65_536):
                on_terminal += part
    os.close(leader)
    assert process.returncode == 0
    assert is_harmless(on_terminal.decode().replace("\r\n", "\n"))
    assert "\\u009B31m" in on_terminal.decode()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["partition-for", "g"], "standard output is closed"),
        (["decode"], "standard output is closed"),
        (["--version"], "standard output is closed"),
    ],
)
def test_a_closed_standard_output_is_reported(arguments: list[str], said: str) -> None:
    command = shlex.join([*OFFSETSTREAM, *arguments])
    done = subprocess.run(["sh", "-c", f"{command} >&-"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode().count("\n")) == (1, 1), done.stderr
    assert said in done.stderr.decode()


@pytest.mark.parametrize("error", ["2>&-", "2</dev/null", "2>/dev/full"])
def test_an_answer_survives_a_standard_error_that_cannot_be_written(error: str) -> None:
    """The lines of groups without members went to standard error first, and with them all that was to come."""
    lines = raw((_COMMIT[0], b"\0")) + "\n" + raw(_COMMIT)
    command = shlex.join([*OFFSETSTREAM, "decode", "--format", "kafka"])
    usual, lost = (
        subprocess.run(["sh", "-c", f"{command} {way}"], input=lines.encode(), capture_output=True, check=False)
        for way in ("2>/dev/null", error)
    )
    assert (lost.returncode, lost.stdout) == (usual.returncode, usual.stdout)
    assert (lost.returncode, lost.stdout.count(b"\n")) == (1, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device of Linux that is always full")
@pytest.mark.parametrize("arguments", [["partition-for", "g"], ["decode"], ["--version"], ["stop", "--help"]])
def test_a_full_disk_is_reported(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [*OFFSETSTREAM, *arguments]
        done = subprocess.run(command, input=b"{}\n", stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"Error: [Errno 28] No space left on device\n")


def test_a_full_disk_is_reported_once_without_buffering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")  # as images of containers have it
    test_a_full_disk_is_reported(["--version"])


def test_huge_lines() -> None:
    note = "x" * 20_000_000
    line = raw(_COMMIT, note=note)
    decoded = run("decode", stdin=line).stdout_bytes
    assert json.loads(decoded)["note"] == note
    key = b64encode(_COMMIT[0] + bytes(20_000_000)).decode()
    document = json.loads(run("decode", stdin=json.dumps({"key": key, "value": None})).stdout_bytes)
    assert document["value"] is None


def test_no_lines() -> None:
    for command in ("decode", "encode"):
        assert run(command).output == ""


@pytest.mark.parametrize(("line_format", "function"), [("kafka", kafka_json), ("kafka-text", kafka_text)])
def test_kafkas_formats_skip_what_kafka_skips(line_format: str, function: Callable[..., str | None]) -> None:
    result = run("decode", "--format", line_format, stdin=LINES)
    assert result.exit_code == 0
    printed = [str(function(*record)).rstrip("\n") for record in RECORDS[:3]]
    assert result.stdout_bytes.decode().splitlines() == printed
    assert "gé" in printed[0]


@pytest.mark.parametrize("line_format", ["kafka", "kafka-text"])
def test_kafkas_formats_report_broken_records_on_stderr(line_format: str) -> None:
    broken = raw((_COMMIT[0], b"\0"))
    result = run("decode", "--format", line_format, stdin=f"{broken}\nnonsense\n{'[' * 100_000}\n{raw(_COMMIT)}\n")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 1
    assert [line.partition(": ")[2][:7] for line in result.stderr.splitlines()] == ["line 1:", "line 2:", "line 3:"]
    assert "truncated value" in result.stderr.splitlines()[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["decode", "no-such-file"],
        ["encode", "."],
        ["encode", "--inter-broker-protocol-version", "9.9"],
        ["encode", "--inter-broker-protocol-version", "nonsense"],
        ["decode", "--file", "no/such/folder"],
        ["decode", "a\0b"],
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["decode", "encode"])
def test_a_broken_pipe_ends_quietly(command: str, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_text("nonsense\n" * 100_000)
    for taken in (1, 0):
        started = subprocess.Popen(
            [*OFFSETSTREAM, command, str(source)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with started as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert [json.loads(process.stdout.readline())["line"] for _ in range(taken)] == ["nonsense"] * taken
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(SECONDS) == 1


def test_a_file_is_not_written_over_itself(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text(raw(_COMMIT) + "\n")
    before = file.read_bytes()
    result = CliRunner().invoke(main, ["decode", str(file), "--file", str(tmp_path / "." / "lines")])
    assert (result.exit_code, file.read_bytes()) == (2, before)
    assert "would be overwritten before it is read" in result.stderr
