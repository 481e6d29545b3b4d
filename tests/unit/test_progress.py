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
from offsetstream.tables.engines import StateWrites


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
        loaded(20, 2_000_000, {"groups": StateWrites.DRIVER})
        loaded(30, 1_000_000, {}, 7)
    assert [line for line in messages(out) if line.strip()] == [
        "Loading 50 offsets partitions: 3,000,000 offsets to read",
        "20 of 50 offsets partitions loaded (+2,000,000 offsets, state by the driver)",
        "50 of 50 offsets partitions loaded (+1,000,000 offsets, 7 filtered)",
    ]


def test_the_line_of_a_batch_names_who_merged_the_state() -> None:
    out = io.StringIO()
    progress = progress_to(out)
    records = {"offset_commits": 12_000, "group_records": 0}
    driver, by_spark = StateWrites.DRIVER, StateWrites.SPARK
    progress.batch(7, records, 1.25, {"groups": driver, "committed_offsets": by_spark, "group_members": driver})
    progress.batch(8, records, 1.25, {"groups": by_spark})
    progress.batch(9, records, 1.25, {})
    counts = "12,000 offset commits, 0 group records, 1.2 s"
    assert messages(out) == [
        f"Batch 7: {counts}, state by the driver (groups, group_members) and Spark (committed_offsets)",
        f"Batch 8: {counts}, state by Spark",
        f"Batch 9: {counts}",
    ]


def test_json_lines_have_the_figures_of_their_message() -> None:
    out = io.StringIO()
    progress = progress_to(out, as_json=True, on_terminal=True)
    progress.say("a [bold]group[/bold] :smile: \x1b[31m\n" + "x" * 300)
    progress.batch(7, {"offset_commits": 12_000}, 1.25, {"groups": StateWrites.DRIVER}, 3)
    with progress.load(2, 50) as loaded:
        loaded(2, 50, {})
    progress.warn("it retries")
    progress.error("it ends")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    times = [datetime.fromisoformat(line.pop("time")) for line in lines]
    assert all(datetime.now(UTC) - each < timedelta(minutes=1) for each in times)
    assert [line.pop("level") for line in lines] == ["info"] * 4 + ["warn", "error"]
    assert lines == [
        {"message": "a [bold]group[/bold] :smile: \x1b[31m\n" + "x" * 300},
        {
            "message": "Batch 7: 12,000 offset commits, 3 filtered, 1.2 s, state by the driver",
            "batch_id": 7,
            "records": {"offset_commits": 12_000},
            "filtered": 3,
            "seconds": 1.25,
        },
        {"message": "Loading 2 offsets partitions: 50 offsets to read", "offsets": 50},
        {"message": "2 of 2 offsets partitions loaded (+50 offsets)", "loaded": 2, "partitions": 2},
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
