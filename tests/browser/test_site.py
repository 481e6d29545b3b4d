"""The documentation site in a browser sends no request elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.browser import Visit

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]


def test_no_page_sends_a_request_elsewhere(
    visit: Callable[..., Visit], internet: tuple[str, list[str]], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True, capture_output=True)
    asked_before = len(internet[1])
    pages = sorted(tmp_path.rglob("index.html"))
    assert len(pages) > 20
    browser = visit(pages[0])
    for page in pages[1:]:
        browser.go(page)
    assert [request for request in browser.requests if not request.startswith("file:")] == []
    assert internet[1][asked_before:] == []
