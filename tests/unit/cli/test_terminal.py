"""What a terminal shows: text for its window, with colours and a pager. A pipe or a file gets everything, as it is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from offsetstream.cli import output
from offsetstream.cli.output import Terminal, short_ids
from offsetstream.cli.text import allows_color
from tests.unit.cli.conftest import Run

GOLDEN = Path(__file__).parents[2] / "fixtures" / "terminal"
END = ("--at", "2026-01-05T10:40Z")
ANSWERS = {
    "status": ("groups", "status"),
    "lag": ("lag", "--all-groups", "--time"),
    "lag-by-group": ("lag", "--all-groups", "--by", "group", "--time"),
    "describe": ("groups", "describe", "--group", "group-0", "--group", "group-10"),
    "members": ("groups", "describe", "--group", "group-10", "--members", "--verbose"),
}
OFFSET = "22184"


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    show_at(monkeypatch, Terminal(120, 1000, has_color=False))
    return monkeypatch


def show_at(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> None:
    monkeypatch.setattr(output, "terminal", lambda: terminal)


@pytest.mark.parametrize("columns", [80, 120, 200])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_fits_the_window(
    run: Run, world: Path, monkeypatch: pytest.MonkeyPatch, name: str, columns: int
) -> None:
    """The files show it; UPDATE_GOLDEN=1 writes them anew."""
    show_at(monkeypatch, Terminal(columns, 1000, has_color=False))
    shown = run(*ANSWERS[name], *END, tables=world).stdout
    file = GOLDEN / f"{name}-{columns}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown, "utf-8")
    assert shown == file.read_text("utf-8")
    assert max(map(len, shown.splitlines()[:-1])) <= columns


@pytest.mark.usefixtures("window")
def test_wide_cuts_nothing(run: Run, world: Path) -> None:
    assert "…" in run("groups", "status", *END, tables=world).stdout
    wide = run("groups", "status", "--wide", *END, tables=world).stdout
    assert "…" not in wide
    assert "5,747" in wide


def test_a_pipe_gets_all_and_no_separators(run: Run, world: Path) -> None:
    piped = run("groups", "status", *END, tables=world).stdout
    assert " 5747 " in piped
    assert "…" not in piped


@pytest.mark.usefixtures("window")
@pytest.mark.parametrize("output_format", ["json", "csv"])
def test_json_and_csv_are_the_same_on_a_terminal(run: Run, world: Path, output_format: str) -> None:
    shown = run("groups", "status", *END, "--output", output_format, tables=world).stdout
    assert "5747" in shown
    assert "…" not in shown


@pytest.mark.usefixtures("window")
def test_offsets_have_no_separators(run: Run, world: Path) -> None:
    """They are typed again, as in --to-offset."""
    assert f" {OFFSET} " in run("lag", "--all-groups", *END, tables=world).stdout


@pytest.mark.parametrize("no_color", ["", "1"])
def test_levels_have_colours_unless_the_user_wants_none(
    run: Run, world: Path, monkeypatch: pytest.MonkeyPatch, no_color: str
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    show_at(monkeypatch, Terminal(120, 1000, has_color=allows_color()))
    shown = run("groups", "status", *END, tables=world, color=True)
    assert [click.style(f"{level:<7}", fg=fg) in shown.stdout for level, fg in (("ERR", "red"), ("OK", "green"))] == [
        not no_color
    ] * 2
    assert ("\x1b" in shown.stderr) == (not no_color)


@pytest.mark.parametrize(
    ("lines", "more", "variables", "is_paged"),
    [
        (5, (), {}, True),
        (1000, (), {}, False),  # it fits the screen
        (5, ("--no-pager",), {}, False),
        (5, (), {"PAGER": "cat"}, False),
        (5, (), {"PAGER": "less '"}, False),  # no command
        (5, (), {"OFFSETSTREAM_PAGER": "", "PAGER": "less"}, False),
        (5, (), {"OFFSETSTREAM_PAGER": "less -S", "PAGER": "cat"}, True),
    ],
)
def test_a_long_answer_goes_to_a_pager(
    run: Run,
    world: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: int,
    more: tuple[str, ...],
    variables: dict[str, str],
    is_paged: bool,
) -> None:
    paged = list[tuple[str, str | None]]()

    def page(texts: Iterable[str]) -> None:
        paged.append(("".join(texts), os.environ.get("PAGER")))

    for name in ("PAGER", "OFFSETSTREAM_PAGER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(click, "echo_via_pager", page)
    show_at(monkeypatch, Terminal(120, lines, has_color=False))
    shown = run("groups", "status", *END, *more, tables=world)
    assert shown.exit_code == 4
    assert bool(paged) == is_paged
    assert "8 of 11 groups are not OK" in (paged[0][0] if is_paged else shown.stdout)
    if is_paged:
        assert paged[0][1] == variables.get("OFFSETSTREAM_PAGER", variables.get("PAGER"))


def test_member_ids_are_as_short_as_they_differ() -> None:
    first, second = "3f2a9c4e-0000-4000-8000-000000000001", "3f2a9c4e-1000-4000-8000-000000000001"
    assert short_ids([f"app-{first}", None]) == ["3f2a9c4e…", None]
    assert short_ids([f"app-{first}", f"app-{second}"]) == [f"{first[:10]}…", f"{second[:10]}…"]
    assert short_ids(["AAAAAAAAAAAAAAAAAAAAAQ", "by-hand"]) == ["AAAAAAAA…", "by-hand"]
