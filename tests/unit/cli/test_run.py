import json
import re
import runpy
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from offsetstream.cli.main import main
from offsetstream.cli.run import run
from offsetstream.embedded.ports import LOOPBACK
from offsetstream.progress import LINE_START

JOB = Path(__file__).parents[3] / "streaming_jobs" / "materialize_offsets.py"
SERVER = ("--bootstrap-server", "127.0.0.1:1")


def options(command: click.Command, *arguments: str) -> dict[str, Any]:
    return command.make_context("run", [*SERVER, *arguments]).params


@pytest.mark.parametrize("text", ["0 seconds", "10 seconds", "1 minute 30 seconds", "1 MINUTE", " 500 milliseconds "])
def test_trigger_takes_sparks_intervals(text: str) -> None:
    assert options(run, "--trigger", text)["trigger"] == text.strip()


NO_TRIGGERS = ["", "10", "10sec", "10seconds", "1 month", "-1 seconds", "often", "99999999999999999999 seconds"]
NO_TRIGGERS += ["999999999999999 weeks", "366 days", "365 days 1 second", "\u0661\u0660 seconds"]


@pytest.mark.parametrize("server", ["", " ", ",", "a:1,", ",a:1"])
@pytest.mark.parametrize("command", ["run", "verify", "dump", "coordinator"])
def test_invalid_server_is_refused(command: str, server: str) -> None:
    result = CliRunner().invoke(main, [command, "--bootstrap-server", server])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{server!r} lacks a broker: give host:port" in result.stderr


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "-1", "1e999", "31536001", "9" * 400, "soon"])
@pytest.mark.parametrize(
    "command",
    [("verify", *SERVER, "--settle"), ("stop", "--timeout"), ("reload", "--timeout"), ("maintain", "--timeout")],
)
def test_invalid_waiting_time_is_refused(command: tuple[str, ...], seconds: str) -> None:
    result = CliRunner().invoke(main, [*command, seconds])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{seconds!r} is not a number of seconds from 0 to" in result.stderr


@pytest.mark.parametrize("text", NO_TRIGGERS)
def test_invalid_trigger_is_refused_before_anything_starts(text: str) -> None:
    result = CliRunner().invoke(main, ["run", *SERVER, "--trigger", text])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{text!r} is not a valid interval: give '10 seconds'" in result.stderr


def test_minutes() -> None:
    given = options(run, "--max-silence", "inf", "--max-transaction-timeout", "0.5")
    assert (given["max_silence"], given["max_transaction_timeout"]) == (timedelta.max, timedelta(seconds=30))
    for name in ("--max-silence", "--max-transaction-timeout"):
        for text in ("nan", "-1"):
            assert CliRunner().invoke(main, ["run", *SERVER, name, text]).exit_code == 2


def test_the_entry_point_for_spark_submit_takes_options_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETSTREAM_BOOTSTRAP_SERVER", "broker:9092")
    monkeypatch.setenv("OFFSETSTREAM_TABLES", "elsewhere")
    job: click.Command = runpy.run_path(str(JOB))["materialize_offsets"]
    given = job.make_context("materialize_offsets", [], **job.context_settings).params
    assert (given["bootstrap_server"], given["tables"]) == ("broker:9092", "elsewhere")


PATTERN = (("--metrics-groups", "("), 2, "the setting metrics-groups: '(' is not a regular expression: ")
SILENT = (("--max-silence", "0"), 3, "no broker answers at 127.0.0.1:1: ")  # half a minute, so of one format only


@pytest.mark.parametrize(
    ("options", "code", "message", "log_format"),
    [(*PATTERN, "text"), (*PATTERN, "json"), pytest.param(*SILENT, "json", marks=pytest.mark.long)],
)
def test_fatal_error_is_one_line_in_text_and_json(
    tmp_path: Path, options: tuple[str, ...], code: int, message: str, log_format: str
) -> None:
    place = ("--tables", str(tmp_path / "tables"), "--checkpoint", str(tmp_path / "checkpoints"))
    result = CliRunner().invoke(main, ["run", *SERVER, *place, "--log-format", log_format, *options])
    assert (result.exit_code, result.stdout) == (code, "")
    last = result.stderr.splitlines()[-1]
    if log_format == "json":
        told = json.loads(last)
        assert (told["level"], message in told["message"]) == ("error", True)
    else:
        assert re.match(LINE_START.pattern + re.escape(message), last)
        assert " ERROR " in last


def test_used_metrics_port_stops_the_job_before_it_starts(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        place = ("--tables", str(tmp_path / "tables"), "--checkpoint", str(tmp_path / "checkpoints"))
        result = CliRunner().invoke(main, ["run", *SERVER, *place, "--metrics-port", str(port)])
    assert (result.exit_code, result.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert f"cannot listen on {LOOPBACK}:{port} for metrics: Address already in use" in result.stderr
