import io

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
