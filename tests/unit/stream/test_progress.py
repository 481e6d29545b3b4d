import io

from rich.console import Console

from offsetstream.stream.progress import Progress


def test_a_line_is_written_as_it_is() -> None:
    out = io.StringIO()
    Progress(Console(file=out, soft_wrap=True, highlight=False)).say("[bold]no markup[/bold] " + "x" * 200)
    assert out.getvalue() == "[bold]no markup[/bold] " + "x" * 200 + "\n"


def test_a_load_is_told_in_plain_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out, soft_wrap=True, highlight=False))
    with progress.load(50, 3_000_000) as loaded:
        loaded(20, 2_000_000)
        loaded(30, 1_000_000)
    lines = [line for line in out.getvalue().splitlines() if line.strip()]
    assert lines == [
        "Loading 50 offsets partitions: 3,000,000 offsets to read",
        "  20 of 50 offsets partitions loaded (+2,000,000 offsets)",
        "  50 of 50 offsets partitions loaded (+1,000,000 offsets)",
    ]
