import io
import json
from datetime import UTC, datetime, timedelta

from rich.console import Console

from offsetstream.progress import Progress
from offsetstream.tables.engines import StateWrites


def test_a_line_is_written_as_it_is() -> None:
    out = io.StringIO()
    Progress(Console(file=out, soft_wrap=True, highlight=False)).say("[bold]no markup[/bold] " + "x" * 200)
    assert out.getvalue() == "[bold]no markup[/bold] " + "x" * 200 + "\n"


def test_a_load_is_told_in_plain_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out, soft_wrap=True, highlight=False))
    with progress.load(50, 3_000_000) as loaded:
        loaded(20, 2_000_000, {"groups": StateWrites.DRIVER})
        loaded(30, 1_000_000, {})
    lines = [line for line in out.getvalue().splitlines() if line.strip()]
    assert lines == [
        "Loading 50 offsets partitions: 3,000,000 offsets to read",
        "  20 of 50 offsets partitions loaded (+2,000,000 offsets, state by the driver)",
        "  50 of 50 offsets partitions loaded (+1,000,000 offsets)",
    ]


def test_a_batch_is_told_with_who_wrote_the_state() -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out, soft_wrap=True, highlight=False))
    records = {"offset_commits": 12_000, "group_records": 0}
    driver, by_spark = StateWrites.DRIVER, StateWrites.SPARK
    progress.batch(7, records, 1.25, {"groups": driver, "committed_offsets": by_spark, "group_members": driver})
    progress.batch(8, records, 1.25, {"groups": by_spark})
    progress.batch(9, records, 1.25, {})
    said = "12,000 offset commits, 0 group records, 1.2 s"
    assert out.getvalue().splitlines() == [
        f"Batch 7: {said}, state by the driver (groups, group_members) and Spark (committed_offsets)",
        f"Batch 8: {said}, state by Spark",
        f"Batch 9: {said}",
    ]


def test_lines_of_json_have_the_figures_that_their_words_have() -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out, soft_wrap=True, highlight=False, force_terminal=True), as_json=True)
    progress.say("a [bold]group[/bold] :smile: \x1b[31m\n" + "x" * 300)
    progress.batch(7, {"offset_commits": 12_000}, 1.25, {"groups": StateWrites.DRIVER})
    with progress.load(2, 50) as loaded:
        loaded(2, 50, {})
    progress.error("it ends")
    said = [json.loads(line) for line in out.getvalue().splitlines()]
    at = [datetime.fromisoformat(line.pop("time")) for line in said]
    assert all(datetime.now(UTC) - each < timedelta(minutes=1) for each in at)
    assert [line.pop("level") for line in said] == ["info"] * 4 + ["error"]
    assert said == [
        {"message": "a [bold]group[/bold] :smile: \x1b[31m\n" + "x" * 300},
        {
            "message": "Batch 7: 12,000 offset commits, 1.2 s, state by the driver",
            "batch_id": 7,
            "records": {"offset_commits": 12_000},
            "seconds": 1.25,
        },
        {"message": "Loading 2 offsets partitions: 50 offsets to read", "offsets": 50},
        {"message": "2 of 2 offsets partitions loaded (+50 offsets)", "loaded": 2, "partitions": 2},
        {"message": "it ends"},
    ]
