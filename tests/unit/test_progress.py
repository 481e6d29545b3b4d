import io
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from offsetstream.progress import LINE_START, Progress


def progress_to(out: io.StringIO, *, as_json: bool = False, on_terminal: bool = False) -> Progress:
    return Progress(Console(file=out, soft_wrap=True, highlight=False, force_terminal=on_terminal), as_json=as_json)


def messages(out: io.StringIO) -> list[str]:
    """The lines without time and level."""
    return [LINE_START.sub("", line, count=1) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(("write", "level"), [("say", "INFO "), ("warn", "WARN "), ("error", "ERROR")])
def test_a_text_line_starts_with_utc_time_and_level(write: str, level: str) -> None:
    out = io.StringIO()
    getattr(progress_to(out), write)("Batch 4: 95 offset commits, 1.2 s")
    found = re.fullmatch(
        r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (.{5}) Batch 4: 95 offset commits, 1.2 s\n", out.getvalue()
    )
    assert found is not None, out.getvalue()
    assert LINE_START.match(out.getvalue())
    assert datetime.now(UTC) - datetime.fromisoformat(found.group(1)) < timedelta(minutes=1)
    assert found.group(2) == level


@pytest.mark.parametrize("on_terminal", [False, True])
def test_a_message_is_written_unchanged_on_one_line(on_terminal: bool) -> None:
    out, message = io.StringIO(), "[bold]no markup[/bold] :smile: " + "x" * 200
    progress_to(out, on_terminal=on_terminal).say(message)
    assert messages(out) == [message]


def test_a_load_writes_a_line_for_each_chunk() -> None:
    out = io.StringIO()
    with progress_to(out).load(50, 3_000_000) as loaded:
        loaded(20, 2_000_000, None, "raw")
        loaded(30, 1_000_000, 7, "by Spark")
    assert [line for line in messages(out) if line.strip()] == [
        "Loading 50 offsets partitions: 3,000,000 offsets to read",
        "20 of 50 offsets partitions loaded (+2,000,000 offsets, read raw)",
        "50 of 50 offsets partitions loaded (+1,000,000 offsets, 7 filtered, read by Spark)",
    ]


@pytest.mark.parametrize(
    ("to_go", "rest"), [(1_000_000, "5 s"), (19_000_000, "95 s"), (24_000_000, "2 min"), (10**10, "833 min")]
)
def test_a_batch_of_a_job_that_is_behind_says_how_long_it_will_be(to_go: int, rest: str) -> None:
    out, as_json = io.StringIO(), io.StringIO()
    for to, is_json in ((out, False), (as_json, True)):
        progress_to(to, as_json=is_json).batch(7, {"offset_commits": 9}, 5.0, to_go=to_go, per_second=200_000)
    line = f"Batch 7: 9 offset commits, 5.0 s; {to_go:,} offsets to go, {rest} at 200,000 a second"
    assert messages(out) == [line]
    found = json.loads(as_json.getvalue())
    assert (found["message"], found["offsets_to_go"], found["seconds_to_go"]) == (line, to_go, to_go // 200_000)


def test_json_lines_have_the_figures_of_their_message() -> None:
    out = io.StringIO()
    progress = progress_to(out, as_json=True, on_terminal=True)
    progress.say("a [bold]group[/bold] :smile: \x1b[31m\n" + "x" * 300)
    progress.batch(7, {"offset_commits": 12_000}, 1.25, 3)
    with progress.load(2, 50) as loaded:
        loaded(2, 50, None, "raw")
    progress.warn("it retries")
    progress.error("it ends")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    times = [datetime.fromisoformat(line.pop("time")) for line in lines]
    assert all(datetime.now(UTC) - each < timedelta(minutes=1) for each in times)
    assert [line.pop("level") for line in lines] == ["info"] * 4 + ["warn", "error"]
    assert lines == [
        {"message": "a [bold]group[/bold] :smile: \x1b[31m\n" + "x" * 300},
        {
            "message": "Batch 7: 12,000 offset commits, 3 filtered, 1.2 s",
            "batch_id": 7,
            "records": {"offset_commits": 12_000},
            "filtered": 3,
            "seconds": 1.25,
        },
        {"message": "Loading 2 offsets partitions: 50 offsets to read", "offsets": 50},
        {
            "message": "2 of 2 offsets partitions loaded (+50 offsets, read raw)",
            "loaded": 2,
            "partitions": 2,
            "read": "raw",
        },
        {"message": "it retries"},
        {"message": "it ends"},
    ]


def test_a_job_continues_when_the_reader_of_its_log_has_gone() -> None:
    """`run 2>&1 | head -4`: the write of the next line ended the thread of the batch, and the job hung."""
    code = "from offsetstream.progress import Progress; p = Progress(); p.say('a'); p.say('b'); print('continues')"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writing, text=True, check=False)
    os.close(writing)
    assert done.stdout == "continues\n"
