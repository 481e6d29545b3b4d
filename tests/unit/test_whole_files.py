"""A test session in which one test kills its process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.waiting import SECONDS

_CONFTEST = """
from testkit.whole_files import InWholeFiles

def pytest_xdist_make_scheduler(config, log):
    return InWholeFiles(config, log)
"""
_DEADLY = """
import os, pytest

@pytest.mark.parametrize("number", range(5))
def test_it(number):
    if number == 2:
        os._exit(1)
"""


@pytest.mark.long
@pytest.mark.parametrize("deadly", [{8}, {0, 1, 2, 19}], ids=["one", "several at once"])
def test_the_others_run_and_the_session_ends(deadly: set[int], tmp_path: Path) -> None:
    """Each other file has a single test: a process starts none before it knows the next."""
    (tmp_path / "conftest.py").write_text(_CONFTEST, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    for number in range(20):
        text = _DEADLY if number in deadly else "def test_it():\n    pass\n"
        (tmp_path / f"test_{number:02}.py").write_text(text, "utf-8")
    options = ["-p", "no:cacheprovider", "--no-loadscope-reorder", "-n", "2"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS).stdout
    passed = 20 - len(deadly) + 4 * len(deadly)
    assert re.search(f"^=+ {len(deadly)} failed, {passed} passed in ", shown, re.MULTILINE), shown
    for number in deadly:
        assert f"crashed while running 'test_{number:02}.py::test_it[2]'" in shown
