"""The recorded incident in README and docs: each command there prints what is below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testkit.night import PAGES, ROOT, SHOWN, answer, night_tables

SHOWN_IN = {page.name: SHOWN.findall(page.read_text("utf-8")) for page in PAGES}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("night")
    night_tables(folder)
    return folder


@pytest.mark.parametrize(("command", "shown"), [each for page in SHOWN_IN.values() for each in page])
def test_a_command_prints_what_the_documents_show(night: Path, command: str, shown: str) -> None:
    assert answer(night, command) == shown, "if that is meant, run 'python -m testkit.night'"


def test_the_query_of_the_glossary_shows_each_offsets_partition(night: Path) -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text("utf-8")
    (query,) = re.findall(r"`offsetstream (sql .*?)`", text)
    assert len(answer(night, query).splitlines()) == 51


def test_the_documents_show_enough_and_no_more() -> None:
    assert len(SHOWN_IN["README.md"]) == 5
    assert 6 <= len(SHOWN_IN["investigate.md"]) <= 8
    assert len(SHOWN_IN["runbooks.md"]) > 3
    assert max(len(shown.splitlines()) for page in SHOWN_IN.values() for _, shown in page) <= 12
