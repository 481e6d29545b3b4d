"""README's night, and docs/how-to/operations.md: each of their commands prints what is below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.night import GUIDE, README, SECTION, SHOWN, answer, night_tables

(TOLD,) = SECTION.findall(README.read_text("utf-8"))
COMMANDS = SHOWN.findall(TOLD)
OF_THE_GUIDE = SHOWN.findall(GUIDE.read_text("utf-8"))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("night")
    night_tables(folder)
    return folder


@pytest.mark.parametrize(("command", "shown"), COMMANDS + OF_THE_GUIDE)
def test_a_command_prints_what_the_documents_show(night: Path, command: str, shown: str) -> None:
    assert answer(night, command) == shown, "if that is meant, run 'python -m testkit.night'"


def test_the_night_is_short_and_whole() -> None:
    assert 6 <= len(COMMANDS) <= 8
    assert TOLD.count("```text\n") == TOLD.count("offsetstream ") == len(COMMANDS)
    assert max(len(shown.splitlines()) for _, shown in COMMANDS) <= 12
    assert len(OF_THE_GUIDE) == GUIDE.read_text("utf-8").count("```text\n") > 3
